// Single experts for people: what their rows are like.
#include "architecture.h"
#include "reef_model.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// ---- norms --------------------------------------------------------------------------------------

static float float_of_bytes(const uint8_t *at) {
    float value;
    memcpy(&value, at, sizeof(value));
    return value;
}

// Records may lie anywhere: values are copied out one by one.
static double norm_at(const uint8_t *at, reef_dtype dtype, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        double value =
            dtype == REEF_I8 ? (double)(int8_t)at[i] : (double)float_of_bytes(at + 4 * i);
        sum += value * value;
    }
    return sqrt(sum);
}

static void take_row(reef_expert_stats *out,
                     const reef_expert_shape *shape,
                     const uint8_t *row,
                     reef_dtype dtype) {
    const size_t vector_bytes = shape->D * (dtype == REEF_I8 ? 1 : 4);
    // Of int8 the scale comes first.
    const double scale = dtype == REEF_I8 ? (double)float_of_bytes(row) : 1;
    if (dtype == REEF_I8) row += REEF_I8_SCALE_BYTES;
    *out = (reef_expert_stats){.down = (double)NAN, .gate = (double)NAN};
    out->up = scale * norm_at(row + reef_expert_up(shape) * vector_bytes, dtype, shape->D);
    if (shape->kind == REEF_EXPERT_VALUE) return;
    out->down = scale * norm_at(row, dtype, shape->D);
    if (shape->kind == REEF_EXPERT_GLU)
        out->gate = scale * norm_at(row + 2 * vector_bytes, dtype, shape->D);
}

// Blocks of rows, as checkpoint.c cuts them; the one that was read last is at hand.
static reef_status read_rows(reef_txn *txn,
                             const reef_config *config,
                             uint32_t generation,
                             uint32_t layer,
                             size_t count,
                             const uint32_t *ids,
                             reef_expert_stats *out,
                             reef_error *err) {
    reef_expert_shape shape = reef_generation_expert_shape(config, layer);
    size_t values = reef_expert_row_values(&shape);
    uint32_t rows = reef_block_rows(values * sizeof(float));
    reef_view view = {0};
    uint32_t seen = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        // No list of ids means all of them, in order.
        uint32_t id = ids == NULL ? (uint32_t)i : ids[i];
        const reef_key key = {
            .db = REEF_DB_EXPERTS, .generation = generation, .layer = layer, .block = id / rows};
        // Ids of one block follow each other in most calls; viewing it once is enough.
        reef_status status = key.block == seen ? REEF_OK : reef_record_view(txn, &key, &view, err);
        if (status != REEF_OK) return status;
        seen = key.block;
        size_t each = reef_row_bytes(view.dtype, values), at = id % rows * each;
        // An id behind the last row of a short block.
        if (at + each > view.bytes)
            return reef_fail(err, REEF_ERR_NOT_FOUND,
                             "no expert %" PRIu32 " in layer %" PRIu32 " of generation %" PRIu32,
                             id, layer, generation);
        take_row(&out[i], &shape, (const uint8_t *)view.data + at, view.dtype);
    }
    return REEF_OK;
}

reef_status reef_expert_stats_read(reef_txn *txn,
                                   uint32_t generation,
                                   uint32_t layer,
                                   size_t count,
                                   const uint32_t *ids,
                                   reef_expert_stats *out,
                                   reef_error *err) {
    reef_config config;
    reef_status status = reef_config_read(txn, &config, err);
    if (status != REEF_OK) return status;
    if (layer >= config.layers || !reef_layer_retrieves(&config, layer))
        return reef_fail(err, REEF_ERR_INVALID,
                         "layer %" PRIu32 " has no experts that are retrieved", layer);
    return read_rows(txn, &config, generation, layer, count, ids, out, err);
}
