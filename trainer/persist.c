// Records of a generation, all little-endian as this machine holds them:
//
//   tensors   NAME               the floats of the tensor; of an open generation their averages, if any
//                                (of a layer by itself there are no gates)
//             gate               bias, decay, start, threshold, leak, detect, prior, loss weight and
//                                loss reference (9 floats; 7 where the loss has no weight)
//             gate_weights       (4, 65536) floats
//             reference          median and spread of the prequential loss at sealing (2 doubles)
//   moments   NAME               adam_m, then adam_v of the tensor; with averages then what training moves
//             layer, block       adam_m (rows, R), adam_v (rows, R), with averages the rows that training
//                                moves (rows, R), counts (rows) uint32
//             blockL.used        with recycle_after: one bit per expert of layer L of an open generation, the
//                                lowest first: was it chosen since the window began?
//   experts   layer, block       rows [w_down, w_up] or [w_down, w_up, w_gate]: R values, float or,
//                                once sealed so, bf16; of an open generation their averages, if any
//   flags     layer, block       one byte per expert
//   usage     layer, block       count and score per expert, two uint64; what they grew by as a delta of
//                                the time of the commit, see store/usage_windows.c
//   reservoir slot               see persist_reservoir.c
//
// Blocks are reef_block_rows(R * 4) experts everywhere, whatever the type of their rows, the last one of
// a layer shorter.
#include "persist.h"

#include "huge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GATE_FLOATS_NGRAM 7 // of gates that read no losses, as before there were any
#define GATE_FLOATS_FIRST 6 // of gates that were fitted when the prior had one value for all
#define GATE_PRIOR_FIRST 64.0f
#define MOMENT_PLANES_MAX 3 // arrays of the weights' shape in a record of moments: with averages

// ---- dense tensors -------------------------------------------------------------------------------

static reef_key tensor_key(reef_db db, uint32_t generation, const char *name) {
    return (reef_key){.db = db, .generation = generation, .name = name};
}

static reef_status put_tensor(reef_txn *txn,
                              uint32_t generation,
                              const char *name,
                              reef_dtype dtype,
                              const void *data,
                              size_t bytes,
                              reef_error *err) {
    reef_key key = tensor_key(REEF_DB_TENSORS, generation, name);
    return reef_record_put(txn, &key, dtype, data, bytes, err);
}

static reef_status read_tensor(reef_txn *txn,
                               uint32_t generation,
                               const char *name,
                               void *data,
                               size_t bytes,
                               reef_error *err) {
    reef_key key = tensor_key(REEF_DB_TENSORS, generation, name);
    return reef_record_read(txn, &key, data, bytes, err);
}

static reef_status put_gate(reef_txn *txn, const reef_gen *gen, reef_error *err) {
    uint32_t g = gen->info.generation;
    double reference[2] = {gen->reference_median, gen->reference_spread};
    reef_status status =
        put_tensor(txn, g, "reference", REEF_BYTES, reference, sizeof reference, err);
    if (status != REEF_OK || g == 0 || gen->gate.weights == NULL) return status;
    const reef_gate *gate = &gen->gate;
    float values[REEF_GATE_VALUES] = {gate->bias,      gate->decay,       gate->start,
                                      gate->threshold, gen->gate_leak,    gen->gate_detect,
                                      gate->prior,     gate->loss_weight, gate->loss_reference};
    size_t count = gate->loss_weight > 0.0f ? REEF_GATE_VALUES : GATE_FLOATS_NGRAM;
    status = put_tensor(txn, g, "gate", REEF_F32, values, count * sizeof *values, err);
    if (status != REEF_OK) return status;
    return put_tensor(txn, g, "gate_weights", REEF_F32, gate->weights,
                      REEF_GATE_WEIGHTS * sizeof(float), err);
}

// Those that it was stored without have the value that it was fitted with: no loss.
reef_status reef_persist_parse_gate(const void *stored,
                                    size_t bytes,
                                    float values[REEF_GATE_VALUES],
                                    reef_error *err) {
    size_t count = bytes / sizeof *values;
    if (bytes % sizeof *values != 0 ||
        (count != REEF_GATE_VALUES && count != GATE_FLOATS_NGRAM && count != GATE_FLOATS_FIRST))
        return reef_fail(err, REEF_CORRUPT, "a gate has %zu bytes, which is none of its lengths",
                         bytes);
    memset(values, 0, REEF_GATE_VALUES * sizeof *values);
    values[GATE_FLOATS_FIRST] = GATE_PRIOR_FIRST;
    memcpy(values, stored, bytes);
    return REEF_OK;
}

void reef_persist_set_gate(reef_gen *gen, const float values[REEF_GATE_VALUES]) {
    gen->gate.bias = values[0];
    gen->gate.decay = values[1];
    gen->gate.start = values[2];
    gen->gate.threshold = values[3];
    gen->gate_leak = values[4];
    gen->gate_detect = values[5];
    gen->gate.prior = values[6];
    gen->gate.loss_weight = values[REEF_GATE_VALUE_LOSS_WEIGHT];
    gen->gate.loss_reference = values[8];
}

static reef_status read_gate(reef_txn *txn, uint32_t records, reef_gen *gen, reef_error *err) {
    double reference[2];
    reef_status status = read_tensor(txn, records, "reference", reference, sizeof reference, err);
    if (status != REEF_OK) return status;
    gen->reference_median = reference[0];
    gen->reference_spread = reference[1];
    if (gen->info.generation == 0 || gen->gate.weights == NULL) return REEF_OK;
    float values[REEF_GATE_VALUES];
    reef_key key = tensor_key(REEF_DB_TENSORS, records, "gate");
    reef_view view;
    status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_OK) status = reef_persist_parse_gate(view.data, view.bytes, values, err);
    if (status != REEF_OK) return status;
    reef_persist_set_gate(gen, values);
    return read_tensor(txn, records, "gate_weights", gen->gate.weights,
                       REEF_GATE_WEIGHTS * sizeof(float), err);
}

reef_status reef_gate_leak_read(reef_txn *txn, uint32_t generation, double *out, reef_error *err) {
    float values[REEF_GATE_VALUES];
    reef_key key = tensor_key(REEF_DB_TENSORS, generation, "gate");
    reef_view view;
    *out = (double)NAN;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_NOT_FOUND) return REEF_OK;
    if (status == REEF_OK) status = reef_persist_parse_gate(view.data, view.bytes, values, err);
    if (status == REEF_OK) *out = (double)values[4];
    return status;
}

static reef_status put_tensors(reef_txn *txn, const reef_gen *gen, reef_error *err) {
    for (size_t i = 0; i < gen->tensor_count; i++) {
        const reef_tensor *tensor = &gen->tensors[i];
        const float *values = tensor->average != NULL ? tensor->average : tensor->data;
        reef_status status = put_tensor(txn, gen->info.generation, tensor->name, REEF_F32, values,
                                        tensor->count * sizeof(float), err);
        if (status != REEF_OK) return status;
    }
    return put_gate(txn, gen, err);
}

static size_t moment_planes(const float *average) {
    return average != NULL ? MOMENT_PLANES_MAX : MOMENT_PLANES_MAX - 1;
}

static reef_status put_tensor_moments(reef_txn *txn,
                                      const reef_gen *gen,
                                      float *buffer,
                                      reef_error *err) {
    for (size_t i = 0; i < gen->tensor_count; i++) {
        const reef_tensor *tensor = &gen->tensors[i];
        if (tensor->adam_m == NULL) continue;
        size_t bytes = tensor->count * sizeof(float);
        memcpy(buffer, tensor->adam_m, bytes);
        memcpy(buffer + tensor->count, tensor->adam_v, bytes);
        memcpy(buffer + 2 * tensor->count, tensor->data, bytes);
        reef_key key = tensor_key(REEF_DB_MOMENTS, gen->info.generation, tensor->name);
        reef_status status = reef_record_put(txn, &key, REEF_F32, buffer,
                                             moment_planes(tensor->average) * bytes, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// Moments and usage are missing where a snapshot was restored that has none: they begin with zeros. (A
// record that was lost is another matter, which the store tells apart.)
static reef_status read_or_zero(
    reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err) {
    reef_status status = reef_record_read(txn, key, out, bytes, err);
    if (status != REEF_NOT_FOUND) return status;
    memset(out, 0, bytes);
    return REEF_OK;
}

// Moments of a tensor or block, for which `weights` (floats) are stored. Without a record training begins with
// zeros, and where there are averages with what these are.
static reef_status read_moments(reef_txn *txn,
                                const reef_key *key,
                                float *buffer,
                                size_t bytes,
                                const float *weights,
                                size_t floats,
                                bool averaged,
                                reef_error *err) {
    reef_status status = reef_record_read(txn, key, buffer, bytes, err);
    if (status != REEF_NOT_FOUND) return status;
    memset(buffer, 0, bytes);
    if (averaged) memcpy(buffer + 2 * floats, weights, floats * sizeof(float));
    return REEF_OK;
}

// After read_tensors: what that read are the averages, if there are any.
static reef_status read_tensor_moments(
    reef_txn *txn, uint32_t records, reef_gen *gen, float *buffer, reef_error *err) {
    for (size_t i = 0; i < gen->tensor_count; i++) {
        reef_tensor *tensor = &gen->tensors[i];
        if (tensor->adam_m == NULL) continue;
        size_t bytes = tensor->count * sizeof(float);
        reef_key key = tensor_key(REEF_DB_MOMENTS, records, tensor->name);
        reef_status status =
            read_moments(txn, &key, buffer, moment_planes(tensor->average) * bytes, tensor->data,
                         tensor->count, tensor->average != NULL, err);
        if (status != REEF_OK) return status;
        memcpy(tensor->adam_m, buffer, bytes);
        memcpy(tensor->adam_v, buffer + tensor->count, bytes);
        if (tensor->average == NULL) continue;
        memcpy(tensor->average, tensor->data, bytes);
        memcpy(tensor->data, buffer + 2 * tensor->count, bytes);
    }
    return REEF_OK;
}

static size_t tensor_count_max(const reef_gen *gen) {
    size_t most = 0;
    for (size_t i = 0; i < gen->tensor_count; i++)
        if (gen->tensors[i].count > most) most = gen->tensors[i].count;
    return most;
}

// ---- blocks of experts ---------------------------------------------------------------------------

// One block of one PEER layer, with room for its moments.
typedef struct block {
    uint32_t records, layer, index;
    size_t first, rows, row_values;
    float *buffer; // (rows * (MOMENT_PLANES_MAX * row_values + 1)) floats
} block;

static size_t moment_bytes(const block *b, const reef_peer *peer) {
    size_t row_bytes = b->row_values * sizeof(float);
    return b->rows * (moment_planes(peer->moments.average) * row_bytes + sizeof(uint32_t));
}

// Where the block's rows lie in memory, and how many bytes they are.
static void *block_rows(const block *b, const reef_peer *peer, size_t *bytes) {
    size_t each = b->row_values * reef_rows_value_bytes(peer->rows.dtype);
    *bytes = b->rows * each;
    char *memory = peer->memory;
    return memory + b->first * each;
}

static reef_key block_key(const block *b, reef_db db) {
    return (reef_key){.db = db, .generation = b->records, .layer = b->layer, .block = b->index};
}

static reef_status put_block(reef_txn *txn,
                             const block *b,
                             const reef_peer *peer,
                             reef_error *err) {
    size_t at = b->first * b->row_values, floats = b->rows * b->row_values, bytes;
    reef_key key = block_key(b, REEF_DB_EXPERTS);
    const reef_expert_moments *moments = &peer->moments;
    const void *rows = block_rows(b, peer, &bytes);
    const void *stored = moments->average != NULL ? moments->average + at : rows;
    reef_status status = reef_record_put(txn, &key, peer->rows.dtype, stored, bytes, err);
    if (status != REEF_OK || moments->adam_m == NULL) return status;
    memcpy(b->buffer, moments->adam_m + at, bytes);
    memcpy(b->buffer + floats, moments->adam_v + at, bytes);
    memcpy(b->buffer + 2 * floats, rows, bytes); // without averages the counts take its place
    memcpy(b->buffer + moment_planes(moments->average) * floats, moments->counts + b->first,
           b->rows * sizeof(uint32_t));
    key = block_key(b, REEF_DB_MOMENTS);
    return reef_record_put(txn, &key, REEF_F32, b->buffer, moment_bytes(b, peer), err);
}

static reef_status put_flags(reef_txn *txn,
                             const block *b,
                             const reef_peer *peer,
                             reef_error *err) {
    reef_key key = block_key(b, REEF_DB_FLAGS);
    return reef_record_put(txn, &key, REEF_BYTES, peer->flags + b->first, b->rows, err);
}

static reef_status read_block(
    reef_txn *txn, const block *b, reef_peer *peer, bool training, reef_error *err) {
    size_t at = b->first * b->row_values, floats = b->rows * b->row_values, bytes;
    reef_key key = block_key(b, REEF_DB_EXPERTS);
    void *rows = block_rows(b, peer, &bytes);
    reef_status status = reef_record_read(txn, &key, rows, bytes, err);
    if (status != REEF_OK || !training) return status;
    key = block_key(b, REEF_DB_MOMENTS);
    status = read_moments(txn, &key, b->buffer, moment_bytes(b, peer), rows, floats,
                          peer->moments.average != NULL, err);
    if (status != REEF_OK) return status;
    reef_expert_moments *moments = &peer->moments;
    memcpy(moments->adam_m + at, b->buffer, bytes);
    memcpy(moments->adam_v + at, b->buffer + floats, bytes);
    if (moments->average != NULL) {
        memcpy(moments->average + at, rows, bytes);
        memcpy(rows, b->buffer + 2 * floats, bytes);
    }
    memcpy(moments->counts + b->first, b->buffer + moment_planes(moments->average) * floats,
           b->rows * sizeof(uint32_t));
    key = block_key(b, REEF_DB_FLAGS);
    status = reef_record_read(txn, &key, peer->flags + b->first, b->rows, err);
    if (status != REEF_OK) return status;
    key = block_key(b, REEF_DB_USAGE);
    return read_or_zero(txn, &key, peer->usage + b->first, b->rows * sizeof(reef_usage), err);
}

typedef struct blocks {
    uint32_t records, layer, index, block_rows;
    size_t expert_count, row_values;
    float *buffer;
} blocks;

static bool next_block(blocks *all, block *b) {
    size_t first = (size_t)all->index * all->block_rows;
    if (first >= all->expert_count) return false;
    size_t left = all->expert_count - first;
    *b = (block){
        .records = all->records,
        .layer = all->layer,
        .index = all->index++,
        .first = first,
        .rows = left < all->block_rows ? left : all->block_rows,
        .row_values = all->row_values,
        .buffer = all->buffer,
    };
    return true;
}

static size_t row_values_of(const reef_config *config, uint32_t layer) {
    reef_expert_shape shape = reef_gen_expert_shape(config, layer);
    return reef_expert_row_values(&shape);
}

static blocks blocks_of(const reef_config *config,
                        uint32_t records,
                        uint32_t layer,
                        const reef_peer *peer,
                        float *buffer) {
    size_t row_values = row_values_of(config, layer);
    return (blocks){
        .records = records,
        .layer = layer,
        .block_rows = reef_block_rows(row_values * sizeof(float)),
        .expert_count = peer->expert_count,
        .row_values = row_values,
        .buffer = buffer,
    };
}

static bool is_dirty(const reef_peer *peer, const block *b) {
    return memchr(peer->dirty + b->first, 1, b->rows) != NULL;
}

// The store's rows of two numbers are what a reef_usage is.
_Static_assert(sizeof(reef_usage) == 2 * sizeof(uint64_t), "count and score");

static reef_status put_usage(
    reef_txn *txn, const blocks *all, const reef_peer *peer, uint64_t unix_ms, reef_error *err) {
    return reef_usage_put(txn, all->records, all->layer, all->block_rows, peer->expert_count,
                          (const uint64_t *)peer->usage, unix_ms, err);
}

static void used_name(uint32_t layer, char name[REEF_NAME_BYTES_MAX + 1]) {
    snprintf(name, REEF_NAME_BYTES_MAX + 1, "block%u.used", layer);
}

static reef_status put_used(
    reef_txn *txn, uint32_t generation, uint32_t layer, const reef_peer *peer, reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    size_t bytes = (peer->expert_count + 7) / 8;
    if (peer->used_before == NULL) return REEF_OK;
    uint8_t *bits = calloc(bytes, 1);
    if (bits == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for the use of %zu experts",
                         peer->expert_count);
    for (size_t n = 0; n < peer->expert_count; n++)
        if (peer->usage[n].count != peer->used_before[n]) bits[n / 8] |= (uint8_t)(1u << n % 8);
    used_name(layer, name);
    reef_status status = put_tensor(txn, generation, name, REEF_BYTES, bits, bytes, err);
    free(bits);
    return status;
}

// How often an expert was chosen in the window is not kept: any count but the present one says that it was.
static reef_status read_used(
    reef_txn *txn, uint32_t records, uint32_t layer, reef_peer *peer, reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    size_t bytes = (peer->expert_count + 7) / 8;
    if (peer->used_before == NULL) return REEF_OK;
    uint8_t *bits = calloc(bytes, 1);
    if (bits == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for the use of %zu experts",
                         peer->expert_count);
    used_name(layer, name);
    reef_status status = read_tensor(txn, records, name, bits, bytes, err);
    for (size_t n = 0; status == REEF_OK && n < peer->expert_count; n++)
        peer->used_before[n] = peer->usage[n].count - (bits[n / 8] >> n % 8 & 1u);
    free(bits);
    return status;
}

static reef_status put_experts(reef_txn *txn,
                               const reef_config *config,
                               const reef_gen *gen,
                               uint64_t unix_ms,
                               float *buffer,
                               reef_error *err) {
    for (uint32_t l = 0; l < config->layers; l++) {
        const reef_peer *peer = &gen->peers[l];
        blocks all = blocks_of(config, gen->info.generation, l, peer, buffer);
        for (block b; next_block(&all, &b);) {
            reef_status status = is_dirty(peer, &b) ? put_block(txn, &b, peer, err) : REEF_OK;
            if (status == REEF_OK) status = put_flags(txn, &b, peer, err);
            if (status != REEF_OK) return status;
        }
        if (peer->expert_count == 0) continue;
        reef_status status = put_usage(txn, &all, peer, unix_ms, err);
        if (status == REEF_OK) status = put_used(txn, gen->info.generation, l, peer, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// Room for the moments of the largest tensor or of one block.
static reef_status moments_buffer(float **out,
                                  const reef_config *config,
                                  const reef_gen *gen,
                                  reef_error *err) {
    size_t floats = 0;
    for (uint32_t l = 0; l < config->layers; l++) {
        size_t row_values = row_values_of(config, l);
        size_t layer =
            reef_block_rows(row_values * sizeof(float)) * (MOMENT_PLANES_MAX * row_values + 1);
        if (layer > floats) floats = layer;
    }
    size_t tensor = MOMENT_PLANES_MAX * tensor_count_max(gen);
    *out = malloc((floats > tensor ? floats : tensor) * sizeof **out);
    if (*out == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for moments of generation %u",
                         gen->info.generation);
    return REEF_OK;
}

// ---- generations ---------------------------------------------------------------------------------

reef_status reef_persist_open(reef_txn *txn,
                              const reef_config *config,
                              const reef_gen *gen,
                              uint64_t unix_ms,
                              reef_error *err) {
    float *buffer = NULL;
    reef_status status = moments_buffer(&buffer, config, gen, err);
    if (status == REEF_OK) status = reef_generation_put(txn, &gen->info, err);
    if (status == REEF_OK) status = put_tensors(txn, gen, err);
    if (status == REEF_OK) status = put_tensor_moments(txn, gen, buffer, err);
    if (status == REEF_OK) status = put_experts(txn, config, gen, unix_ms, buffer, err);
    free(buffer);
    return status;
}

void reef_persist_clean(reef_gen *gen) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        reef_peer *peer = &gen->peers[l];
        if (peer->dirty == NULL) continue;
        memset(peer->dirty, 0, peer->expert_count);
        if (gen->open) continue;
        free(peer->flags);
        free(peer->dirty);
        free(peer->usage);
        peer->flags = peer->dirty = NULL;
        peer->usage = NULL;
    }
    gen->stored = !gen->open;
}

// Batch norm is folded away, nothing is recycled any more, and the trainer's own records move on to the next
// generation.
static reef_status delete_open_tensors(reef_txn *txn,
                                       const reef_config *config,
                                       uint32_t g,
                                       reef_error *err) {
    const char *parts[] = {"bn_scale", "bn_shift", "bn_mean", "bn_var", "used"};
    for (uint32_t l = 0; l < config->layers; l++) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[REEF_NAME_BYTES_MAX + 1];
            snprintf(name, sizeof name, "block%u.%s", l, parts[i]);
            reef_key key = tensor_key(REEF_DB_TENSORS, g, name);
            reef_status status = reef_record_delete(txn, &key, err);
            if (status != REEF_OK) return status;
        }
    }
    return REEF_OK;
}

reef_status reef_persist_sealed(reef_txn *txn,
                                const reef_config *config,
                                const reef_gen *gen,
                                uint64_t unix_ms,
                                reef_error *err) {
    reef_generation info = gen->info;
    info.sealed = false; // until everything is in place
    reef_status status = reef_generation_put(txn, &info, err);
    if (status == REEF_OK) status = put_tensors(txn, gen, err);
    if (status == REEF_OK) status = put_experts(txn, config, gen, unix_ms, NULL, err);
    if (status == REEF_OK) status = delete_open_tensors(txn, config, info.generation, err);
    if (status != REEF_OK) return status;
    return reef_generation_seal(txn, info.generation, info.sealed_step, info.sealed_at, err);
}

static reef_status read_tensors(reef_txn *txn, uint32_t records, reef_gen *gen, reef_error *err) {
    for (size_t i = 0; i < gen->tensor_count; i++) {
        reef_tensor *tensor = &gen->tensors[i];
        reef_status status = read_tensor(txn, records, tensor->name, tensor->data,
                                         tensor->count * sizeof(float), err);
        if (status != REEF_OK) return status;
    }
    return read_gate(txn, records, gen, err);
}

// Between two blocks of a generation that does not change any more, nor does a snapshot's copy: let the writer
// have its pages back, and then make sure that nobody gave it up or put another in its place.
static reef_status take_turn(reef_txn *txn,
                             uint32_t records,
                             const reef_generation *info,
                             reef_error *err) {
    bool turned;
    reef_generation now;
    if (!info->sealed && records < REEF_SNAPSHOT_GENERATION)
        return REEF_OK; // the open one: all at once
    reef_status status = reef_txn_turn(txn, &turned, err);
    if (status != REEF_OK || !turned) return status;
    status = reef_generation_read(txn, records, &now, err);
    if (status == REEF_OK && memcmp(now.root, info->root, sizeof now.root) == 0) return REEF_OK;
    if (status != REEF_OK && status != REEF_NOT_FOUND) return status;
    return reef_fail(err, REEF_BUSY,
                     "generation %u of the state was given up while it was being read; try again",
                     info->generation);
}

// All that is about to be written into the open generation, by all workers: memory that the system has to find
// first costs more than the copy into it.
static void touch_rows(const reef_gen *gen, reef_workers *workers) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_peer *peer = &gen->peers[l];
        const reef_expert_moments *moments = &peer->moments;
        size_t values = peer->expert_count * peer->row_values, bytes = values * sizeof(float);
        float *const all[] = {peer->experts, moments->adam_m, moments->adam_v, moments->average};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i] != NULL) reef_huge_touch(workers, all[i], bytes);
    }
}

reef_status reef_persist_load(reef_gen **out,
                              reef_txn *txn,
                              const reef_config *config,
                              uint32_t generation,
                              uint32_t records,
                              bool training,
                              bool in_place,
                              reef_workers *workers,
                              reef_error *err) {
    *out = NULL;
    reef_gen *gen = NULL;
    float *buffer = NULL;
    reef_generation info;
    reef_status status = reef_generation_read(txn, records, &info, err);
    if (status != REEF_OK) return status;
    if (info.dtype != REEF_F32 && !(info.dtype == REEF_BF16 && info.sealed))
        return reef_fail(err, REEF_CORRUPT, "generation %u has rows of dtype %d", generation,
                         (int)info.dtype);
    info.generation = generation; // a snapshot's copy carries its own number
    training = training && !info.sealed;
    in_place = in_place && info.sealed && records == generation;
    status = reef_gen_new(&gen, config, &info, err);
    if (status != REEF_OK) return status;
    if (reef_generation_is_empty(&info)) {
        gen->stored = true;
        *out = gen;
        return REEF_OK;
    }
    status = moments_buffer(&buffer, config, gen, err);
    if (status == REEF_OK && info.sealed && !in_place) status = reef_gen_hold_rows(gen, err);
    if (status == REEF_OK && training) touch_rows(gen, workers);
    if (status == REEF_OK) status = read_tensors(txn, records, gen, err);
    if (status == REEF_OK && training) status = read_tensor_moments(txn, records, gen, buffer, err);
    for (uint32_t l = 0; status == REEF_OK && !in_place && l < config->layers; l++) {
        blocks all = blocks_of(config, records, l, &gen->peers[l], buffer);
        for (block b; status == REEF_OK && next_block(&all, &b);) {
            status = read_block(txn, &b, &gen->peers[l], training, err);
            if (status == REEF_OK) status = take_turn(txn, records, &info, err);
        }
        if (status == REEF_OK && training) status = read_used(txn, records, l, &gen->peers[l], err);
    }
    free(buffer);
    if (status == REEF_OK) {
        if (gen->open) reef_gen_fold(gen, config);
        gen->stored = !gen->open && records == generation; // a copy's rows cannot be located later
        *out = gen;
        return REEF_OK;
    }
    reef_gen_free(gen);
    return status;
}

// ---- in place ------------------------------------------------------------------------------------

// A layer's last block may be short, and short records lie at any even address: it is copied.
static reef_status copy_last_block(
    reef_peer *peer, const block *b, reef_txn *txn, size_t bytes, reef_error *err) {
    reef_key key = block_key(b, REEF_DB_EXPERTS);
    peer->last_block = malloc(bytes);
    if (peer->last_block == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for a block of %zu bytes", bytes);
    peer->blocks[b->index] = peer->last_block;
    return reef_record_read(txn, &key, peer->last_block, bytes, err);
}

static reef_status locate_layer(reef_peer *peer, blocks *all, reef_txn *txn, reef_error *err) {
    size_t each = peer->row_values * reef_rows_value_bytes(peer->rows.dtype);
    peer->block_count = (peer->expert_count + all->block_rows - 1) / all->block_rows;
    peer->blocks = calloc(peer->block_count, sizeof *peer->blocks);
    if (peer->blocks == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for the places of %zu blocks",
                         peer->block_count);
    for (block b; next_block(all, &b);) {
        reef_key key = block_key(&b, REEF_DB_EXPERTS);
        size_t bytes = b.rows * each;
        bool last = b.index + 1 == peer->block_count;
        reef_status status =
            last ? copy_last_block(peer, &b, txn, bytes, err)
                 : reef_record_locate(txn, &key, bytes, &peer->blocks[b.index], err);
        if (status != REEF_OK) return status;
    }
    uint32_t shift = 0;
    while ((uint32_t)1 << shift < all->block_rows) shift++;
    peer->rows = (reef_expert_rows){peer->rows.dtype, shift, peer->blocks};
    return REEF_OK;
}

reef_status reef_persist_locate(reef_gen *gen,
                                reef_txn *txn,
                                const reef_config *config,
                                reef_error *err) {
    for (uint32_t l = 0; l < config->layers; l++) {
        reef_peer *peer = &gen->peers[l];
        if (peer->expert_count == 0) continue;
        blocks all = blocks_of(config, gen->info.generation, l, peer, NULL);
        reef_status status = locate_layer(peer, &all, txn, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// ---- usage and flags, for readers ----------------------------------------------------------------

static reef_status read_table(reef_txn *txn,
                              reef_db db,
                              uint32_t generation,
                              uint32_t layer,
                              size_t expert_count,
                              size_t each,
                              void *out,
                              reef_error *err) {
    reef_config config;
    reef_status status = reef_config_read(txn, &config, err);
    if (status != REEF_OK) return status;
    const reef_peer geometry = {.expert_count = expert_count};
    blocks all = blocks_of(&config, generation, layer, &geometry, NULL);
    for (block b; next_block(&all, &b);) {
        reef_key key = block_key(&b, db);
        char *to = (char *)out + b.first * each;
        status = db == REEF_DB_USAGE ? read_or_zero(txn, &key, to, b.rows * each, err)
                                     : reef_record_read(txn, &key, to, b.rows * each, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

reef_status reef_usage_read(reef_txn *txn,
                            uint32_t generation,
                            uint32_t layer,
                            size_t expert_count,
                            reef_usage *usage,
                            reef_error *err) {
    return read_table(txn, REEF_DB_USAGE, generation, layer, expert_count, sizeof *usage, usage,
                      err);
}

reef_status reef_flags_read(reef_txn *txn,
                            uint32_t generation,
                            uint32_t layer,
                            size_t expert_count,
                            uint8_t *flags,
                            reef_error *err) {
    return read_table(txn, REEF_DB_FLAGS, generation, layer, expert_count, 1, flags, err);
}
