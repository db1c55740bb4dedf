// What lies between two states of a pool: generations sealed, experts and tensors that changed.
//
// Compared are records, block by block: no model is loaded, and nothing is held but one pair of
// blocks. One generation is compared: the one that was open in the earlier of the two states. All
// before it are sealed in both, and so the same.

#include "architecture.h"
#include "reef_kernels.h"
#include "reef_model.h"
#include "reef_snapshot.h"
#include "shapes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct comparison {
    reef_txn *txn;
    reef_state_change *out;
    uint32_t before, after; // where the records of the generation lie
    size_t row_values[REEF_LAYER_COUNT_MAX];
    bool vectors;
} comparison;

// ---- the states ---------------------------------------------------------------------------------

// The present in the form of a snapshot that shares everything.
static reef_status describe_now(reef_txn *txn, reef_snapshot *out, reef_error *err) {
    reef_commit commit;
    reef_generation_record last;
    uint32_t count = 0;
    reef_status status = reef_commit_read(txn, &commit, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &count, err);
    // A pool without a generation was never finished by reef_pool_init.
    if (status == REEF_OK && count == 0)
        return reef_fail(err, REEF_ERR_CORRUPT, "the pool has no generation");
    if (status == REEF_OK) status = reef_generation_read(txn, count - 1, &last, err);
    if (status != REEF_OK) return status;
    // The last generation is the open one, unless a crash came between sealing and opening, which
    // one transaction excludes.
    uint32_t sealed = last.sealed ? count : count - 1;
    *out = (reef_snapshot){.name = "now",
                           .commit = commit.number,
                           .step = commit.step,
                           .stream_bytes = commit.stream_bytes,
                           .unix_ms = commit.unix_ms,
                           .sealed_count = sealed,
                           .shared_count = sealed,
                           .open_generation = sealed,
                           .copy = sealed};
    memcpy(out->root, commit.root, REEF_HASH_BYTES);
    return REEF_OK;
}

static reef_status find_state(reef_txn *txn,
                              const char *name,
                              reef_snapshot *out,
                              reef_error *err) {
    if (name == NULL || strcmp(name, "now") == 0) return describe_now(txn, out, err);
    return reef_snapshot_find(txn, name, out, err);
}

// Generations that are sealed in only one of the states, as that one has them.
static reef_status list_sealed(reef_txn *txn, reef_state_change *out, reef_error *err) {
    // A restore may have gone back behind a seal; then generations are gone instead of new.
    bool gone = out->before.sealed_count > out->after.sealed_count;
    const reef_snapshot *most = gone ? &out->before : &out->after;
    uint32_t first = gone ? out->after.sealed_count : out->before.sealed_count;
    out->sealed_gone = gone;
    out->sealed = calloc(most->sealed_count - first + 1, sizeof(*out->sealed));
    if (out->sealed == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for generations");
    for (uint32_t g = first; g < most->sealed_count; g++) {
        reef_generation_record *one = &out->sealed[out->sealed_count++];
        reef_status status = reef_generation_read(txn, reef_snapshot_records(most, g), one, err);
        if (status != REEF_OK) return status;
        one->generation = g; // a copy has its own number
    }
    return REEF_OK;
}

// ---- experts ------------------------------------------------------------------------------------

static uint16_t to_bf16(float value) {
    reef_bf16 half;
    reef_bf16_round(1, &half, &value);
    return half;
}

// Values of f32 or bf16; records may lie anywhere.
static float value_of(reef_dtype dtype, const uint8_t *row, size_t i) {
    uint32_t bits = 0;
    float value;
    // bf16 is the upper half of a float.
    if (dtype == REEF_BF16)
        memcpy((char *)&bits + 2, row + 2 * i, 2);
    else
        memcpy(&bits, row + 4 * i, sizeof(bits));
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// Would the finer row, rounded as sealing rounds, be the row of int8?
static bool rounds_to_i8(size_t values, reef_dtype dtype, const uint8_t *fine, const int8_t *row) {
    float most = 0;
    for (size_t i = 0; i < values; i++) {
        const float value = value_of(dtype, fine, i);
        if (!isfinite(value)) return isnan(reef_i8_scale(row));
        most = fmaxf(most, fabsf(value));
    }
    const float scale = reef_i8_scale_of(most), stored = reef_i8_scale(row);
    if (memcmp(&scale, &stored, sizeof(scale)) != 0) return false;
    for (size_t i = 0; i < values; i++)
        if (reef_i8_value(value_of(dtype, fine, i), scale) != row[REEF_I8_SCALE_BYTES + i])
            return false;
    return true;
}

// Whether two rows hold the same values, as far as the coarser of their types can tell.
static bool rows_equal(size_t values, const reef_view *a, const reef_view *b, size_t row) {
    const size_t each_a = reef_row_bytes(a->dtype, values);
    const size_t each_b = reef_row_bytes(b->dtype, values);
    // Rows are compared in place: a diff of gigabytes allocates nothing.
    const uint8_t *at_a = (const uint8_t *)a->data + row * each_a;
    const uint8_t *at_b = (const uint8_t *)b->data + row * each_b;
    // Equal types: equal bits.
    if (a->dtype == b->dtype) return memcmp(at_a, at_b, each_a) == 0;
    // A row and its sealed copy: the finer is rounded as sealing rounds, and compared after that.
    if (b->dtype == REEF_I8) return rounds_to_i8(values, a->dtype, at_a, (const int8_t *)at_b);
    if (a->dtype == REEF_I8) return rounds_to_i8(values, b->dtype, at_b, (const int8_t *)at_a);
    const uint8_t *fine = a->dtype == REEF_BF16 ? at_b : at_a;
    const uint8_t *coarse = a->dtype == REEF_BF16 ? at_a : at_b;
    for (size_t i = 0; i < values; i++) {
        uint16_t value;
        memcpy(&value, coarse + 2 * i, sizeof(value));
        if (to_bf16(value_of(REEF_F32, fine, i)) != value) return false;
    }
    return true;
}

static reef_status layer_of(reef_state_change *out,
                            uint32_t layer,
                            reef_layer_change **found,
                            reef_error *err) {
    // Layers are found in the order of their keys; there are few.
    for (size_t i = 0; i < out->layer_count; i++)
        if (out->layers[i].layer == layer) {
            *found = &out->layers[i];
            return REEF_OK;
        }
    // The key comes from the file, and indexes an array.
    if (layer >= REEF_LAYER_COUNT_MAX)
        return reef_fail(err, REEF_ERR_CORRUPT, "experts of layer %u, where there are at most %d",
                         layer, REEF_LAYER_COUNT_MAX);
    *found = &out->layers[out->layer_count++];
    **found = (reef_layer_change){.layer = layer};
    return REEF_OK;
}

static reef_status count_rows(const comparison *c,
                              const reef_key *key,
                              const reef_view *view,
                              size_t *rows,
                              reef_error *err) {
    size_t row_bytes = reef_row_bytes(view->dtype, c->row_values[key->layer]);
    *rows = view->bytes / row_bytes;
    if (view->bytes % row_bytes == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "block %u of layer %u has %zu bytes, no whole rows of %zu", key->block,
                     key->layer, view->bytes, row_bytes);
}

static reef_status on_block_before(void *context,
                                   const reef_key *key,
                                   const reef_view *view,
                                   reef_error *err) {
    const comparison *c = context;
    reef_layer_change *layer = NULL;
    reef_view other;
    size_t rows = 0, rows_after = 0;
    reef_key there = *key;
    there.generation = c->after;
    reef_status status = layer_of(c->out, key->layer, &layer, err);
    if (status == REEF_OK) status = count_rows(c, key, view, &rows, err);
    if (status != REEF_OK) return status;
    layer->before += rows;
    status = reef_record_view(c->txn, &there, &other, err);
    // The block is there in one state only: its rows count as before, none as changed.
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK; // fewer experts there, or consolidated
    if (status == REEF_OK) status = count_rows(c, key, &other, &rows_after, err);
    // Rows that both states have.
    for (size_t row = 0; status == REEF_OK && row < rows && row < rows_after; row++)
        layer->changed += !rows_equal(c->row_values[key->layer], view, &other, row);
    return status;
}

static reef_status on_block_after(void *context,
                                  const reef_key *key,
                                  const reef_view *view,
                                  reef_error *err) {
    const comparison *c = context;
    reef_layer_change *layer = NULL;
    size_t rows = 0;
    reef_status status = layer_of(c->out, key->layer, &layer, err);
    if (status == REEF_OK) status = count_rows(c, key, view, &rows, err);
    if (status == REEF_OK) layer->after += rows;
    return status;
}

// ---- usage --------------------------------------------------------------------------------------

// Counts of both states for one block; false past the last block, or where a state has no usage.
static bool usage_pair(
    const comparison *c, uint32_t layer, uint32_t block, reef_view *before, reef_view *after) {
    return reef_snapshot_usage_view(c->txn, c->before, layer, block, before, NULL) == REEF_OK &&
           reef_snapshot_usage_view(c->txn, c->after, layer, block, after, NULL) == REEF_OK;
}

static uint64_t count_at(const reef_view *view, size_t expert) {
    uint64_t count = 0; // of an expert that the state does not have
    if ((expert + 1) * sizeof(reef_usage) <= view->bytes)
        memcpy(&count, (const uint8_t *)view->data + expert * sizeof(reef_usage), sizeof(count));
    return count;
}

// Half the sum of differences between two distributions over the experts of a layer: of the choices
// up to the earlier state, and of those since.
static void compare_usage(const comparison *c, reef_layer_change *layer) {
    reef_view a, b;
    uint64_t first = 0, second = 0;
    double distance = 0.0;
    layer->usage_drift = (double)NAN;
    for (uint32_t block = 0; usage_pair(c, layer->layer, block, &a, &b); block++)
        for (size_t i = 0; i * sizeof(reef_usage) < (a.bytes > b.bytes ? a.bytes : b.bytes); i++) {
            // Two passes: totals first, because shares need them.
            first += count_at(&a, i);
            second += count_at(&b, i);
        }
    // Usage counts only grow; if they shrank, the earlier state is the second one.
    bool back = second < first;
    uint64_t earlier = back ? second : first;
    layer->uses = back ? first - second : second - first;
    // No use before, or none since: no distribution to compare.
    if (earlier == 0 || layer->uses == 0) return;
    for (uint32_t block = 0; usage_pair(c, layer->layer, block, &a, &b); block++)
        for (size_t i = 0; i * sizeof(reef_usage) < (a.bytes > b.bytes ? a.bytes : b.bytes); i++) {
            uint64_t old = count_at(back ? &b : &a, i), now = count_at(back ? &a : &b, i);
            distance += fabs((double)old / (double)earlier -
                             ((double)now - (double)old) / (double)layer->uses);
        }
    layer->usage_drift = distance / 2.0;
}

// ---- tensors ------------------------------------------------------------------------------------

// Text of the trainer, and numbers that are not floats whatever their record says.
static bool is_tensor(const comparison *c, const char *name, reef_dtype dtype) {
    return dtype == REEF_F32 &&
           !(c->vectors && (strcmp(name, "labels") == 0 || strcmp(name, "head") == 0));
}

// |b - a| / |a| over the values that both have; 0 when all are the same, infinite when only a is
// zero. In double: sums over millions of values.
static double relative_change(const reef_view *a, const reef_view *b) {
    size_t bytes = a->bytes < b->bytes ? a->bytes : b->bytes;
    double change = 0.0, size = 0.0;
    for (size_t at = 0; at + sizeof(float) <= bytes; at += sizeof(float)) {
        float x, y;
        memcpy(&x, (const uint8_t *)a->data + at, sizeof(x));
        memcpy(&y, (const uint8_t *)b->data + at, sizeof(y));
        // Equal bits need no subtraction, and infinity minus infinity would be NaN.
        if (memcmp(&x, &y, sizeof(x)) == 0) continue; // infinite thresholds of gates too
        change += ((double)y - (double)x) * ((double)y - (double)x);
    }
    for (size_t at = 0; at + sizeof(float) <= bytes; at += sizeof(float)) {
        float x;
        memcpy(&x, (const uint8_t *)a->data + at, sizeof(x));
        size += (double)x * (double)x;
    }
    if (change == 0.0) return 0.0;
    return size > 0.0 ? sqrt(change / size) : (double)INFINITY;
}

static reef_status add_tensor(reef_state_change *out,
                              const char *name,
                              size_t before,
                              size_t after,
                              double relative,
                              reef_error *err) {
    // A diff names few tensors, so growth by one is fine.
    reef_tensor_change *tensors = realloc(out->tensors, (out->tensor_count + 1) * sizeof(*tensors));
    if (tensors == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for names of tensors");
    out->tensors = tensors;
    reef_tensor_change *one = &tensors[out->tensor_count++];
    *one = (reef_tensor_change){.before = before, .after = after, .relative = relative};
    memcpy(one->name, name, strlen(name) + 1);
    return REEF_OK;
}

static reef_status on_tensor_before(void *context,
                                    const reef_key *key,
                                    const reef_view *view,
                                    reef_error *err) {
    const comparison *c = context;
    // Records of other types share the table, gates among them.
    if (!is_tensor(c, key->name, view->dtype)) return REEF_OK;
    reef_key there = *key;
    reef_view other;
    there.generation = c->after;
    size_t values = view->bytes / sizeof(float);
    reef_status status = reef_record_view(c->txn, &there, &other, err);
    // A tensor that exists in one state only has no relative change.
    if (status == REEF_ERR_NOT_FOUND)
        return add_tensor(c->out, key->name, values, 0, (double)NAN, err);
    if (status != REEF_OK) return status;
    c->out->tensors_compared++;
    double relative = relative_change(view, &other);
    if (relative == 0.0 && view->bytes == other.bytes) return REEF_OK;
    return add_tensor(c->out, key->name, values, other.bytes / sizeof(float), relative, err);
}

static reef_status on_tensor_after(void *context,
                                   const reef_key *key,
                                   const reef_view *view,
                                   reef_error *err) {
    const comparison *c = context;
    if (!is_tensor(c, key->name, view->dtype)) return REEF_OK;
    reef_key there = *key;
    reef_view other;
    there.generation = c->before;
    // Those that both have were compared in the other direction already.
    reef_status status = reef_record_view(c->txn, &there, &other, err);
    if (status != REEF_ERR_NOT_FOUND) return status;
    return add_tensor(c->out, key->name, 0, view->bytes / sizeof(float), (double)NAN, err);
}

// ---- the whole ----------------------------------------------------------------------------------

static reef_status compare_records(comparison *c, reef_error *err) {
    // Two walks find what changed or went; two more find what is new.
    const struct {
        reef_db db;
        uint32_t generation;
        reef_record_visit visit;
    } walks[] = {
        {REEF_DB_EXPERTS, c->before, on_block_before},
        {REEF_DB_EXPERTS, c->after, on_block_after},
        {REEF_DB_TENSORS, c->before, on_tensor_before},
        {REEF_DB_TENSORS, c->after, on_tensor_after},
    };
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < sizeof(walks) / sizeof(*walks); i++)
        status = reef_record_scan(c->txn, walks[i].db, walks[i].generation, walks[i].visit, c, err);
    for (size_t i = 0; status == REEF_OK && i < c->out->layer_count; i++)
        compare_usage(c, &c->out->layers[i]);
    return status;
}

static reef_status diff(
    reef_txn *txn, const char *before, const char *after, reef_state_change *out, reef_error *err) {
    reef_config config;
    reef_generation_record info;
    reef_status status = reef_config_read(txn, &config, err);
    if (status == REEF_OK) status = find_state(txn, before, &out->before, err);
    if (status == REEF_OK) status = find_state(txn, after, &out->after, err);
    if (status == REEF_OK) status = list_sealed(txn, out, err);
    if (status != REEF_OK) return status;
    // The generation that was open in the earlier of the two states is the one whose experts are
    // compared.
    bool back = out->after.open_generation < out->before.open_generation;
    out->generation = back ? out->after.open_generation : out->before.open_generation;
    comparison c = {.txn = txn,
                    .out = out,
                    .before = reef_snapshot_records(&out->before, out->generation),
                    .after = reef_snapshot_records(&out->after, out->generation),
                    .vectors = reef_config_is_vector(&config)};
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        reef_expert_shape shape = reef_generation_expert_shape(&config, l < config.layers ? l : 0);
        // A row of a vector model is w_down with its bias, of an expert or a filter.
        c.row_values[l] =
            c.vectors ? reef_vector_row_values(&config) : reef_expert_row_values(&shape);
    }
    status = reef_generation_read(txn, c.before, &info, err);
    out->sealed_before = info.sealed;
    if (status == REEF_OK) status = reef_generation_read(txn, c.after, &info, err);
    out->sealed_after = info.sealed;
    return status == REEF_OK ? compare_records(&c, err) : status;
}

reef_status reef_state_diff(reef_store *store,
                            const char *before,
                            const char *after,
                            reef_state_change *out,
                            reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_state_change){0};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = diff(txn, before, after, out, err);
    reef_txn_abort(txn);
    return status;
}

void reef_state_change_release(reef_state_change *change) {
    free(change->sealed);
    free(change->tensors);
    *change = (reef_state_change){0};
}
