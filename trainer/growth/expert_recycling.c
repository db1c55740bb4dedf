// See expert_recycling.h. Draws are functions of seed, generation, step and layer.
#include "expert_recycling.h"

#include "events.h"
#include "reef_random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_RECYCLE = 401, STREAM_ROW, STREAM_QUERY };

// One layer of the open generation during recycling.
typedef struct recycling_pass {
    reef_trainer *trainer;
    reef_generation *generation;
    uint32_t layer;
    uint64_t seed; // of this check
    reef_expert_shape shape;
    uint8_t *needed[2]; // (side) for each table: sub-keys of experts that are in use or frozen
    uint64_t experts, sub_keys;
} recycling_pass;

bool reef_recycle_is_due(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    uint64_t bytes = reef_batch_bytes(config);
    if (config->recycle_after == 0 || trainer->generation_step == 0) return false;
    uint64_t steps = (config->recycle_after - 1) / bytes + 1;
    return trainer->generation_step % steps == 0;
}

static bool stays(const reef_expert_table *table, size_t n) {
    return table->usage[n].count != table->used_before[n] || table->flags[n] != 0;
}

static void mark_needed(const recycling_pass *at) {
    const reef_expert_table *table = &at->generation->expert_tables[at->layer];
    for (size_t n = 0; n < table->expert_count; n++) {
        if (!stays(table, n)) continue;
        uint32_t i, j;
        reef_expert_pair_of((reef_expert_id)n, &i, &j);
        at->needed[0][i] = at->needed[1][j] = 1;
    }
}

// ---- rows ---------------------------------------------------------------------------------------

// Untrained, and silent: there is nothing to forget.
static bool is_new(const reef_expert_table *table, size_t n, const reef_expert_shape *shape) {
    size_t D = shape->D, place = reef_row_place(&table->share, n);
    const float *w_up = table->experts + place * table->row_values + reef_expert_up(shape) * D;
    for (size_t d = 0; d < D; d++)
        if (w_up[d] != 0.0f) return false;
    return table->moments.counts[place] == 0;
}

static void renew_row(const recycling_pass *at, size_t n) {
    size_t D = at->shape.D, w_up = reef_expert_up(&at->shape) * D;
    reef_expert_table *table = &at->generation->expert_tables[at->layer];
    const reef_expert_moments *moments = &table->moments;
    size_t place = reef_row_place(&table->share, n);
    size_t first = place * table->row_values, bytes = table->row_values * sizeof(float);
    float *row = table->experts + first;
    // Seeds derive from the step, the layer and the row: recycling gives the same rows on any
    // machine and with any threads.
    uint64_t seed = reef_random_bits(at->seed, STREAM_ROW, at->layer);
    float deviation = 1.0f / sqrtf((float)D);
    // w_down is drawn as for a new expert. w_up is zero, so the recycled expert adds nothing until
    // it has learned, and no output changes at this moment.
    if (w_up > 0) reef_random_normal(D, row, deviation, seed, 2 * (uint64_t)n);
    memset(row + w_up, 0, D * sizeof(*row));
    // Gated experts have a third vector, drawn like w_down.
    if (table->row_values > 2 * D)
        reef_random_normal(D, row + 2 * D, deviation, seed, 2 * (uint64_t)n + 1);
    // Old moments would push the new row in the direction of the old one.
    memset(moments->adam_m + first, 0, bytes);
    memset(moments->adam_v + first, 0, bytes);
    if (moments->average != NULL) memcpy(moments->average + first, row, bytes);
    moments->counts[place] = 0;
    table->dirty[n] = 1;
}

static void renew_rows(recycling_pass *at) {
    const reef_expert_table *table = &at->generation->expert_tables[at->layer];
    for (size_t n = 0; n < table->expert_count; n++) {
        if (!reef_row_is_here(&table->share, n) || stays(table, n) || is_new(table, n, &at->shape))
            continue;
        renew_row(at, n);
        at->experts++;
    }
}

// ---- sub-keys -----------------------------------------------------------------------------------

// Tables of its own for each head, or one for all: rows of a table have a sub-key of each.
static size_t tables_of(const recycling_pass *at) {
    reef_router_shape shape =
        reef_generation_shape(&at->trainer->network.config, at->generation->info.side);
    return reef_router_tables(&shape);
}

// Mean length of the sub-keys that are needed: a score is an inner product, so a shorter one would
// lose against them. Without any, that of random ones.
static float key_length(const recycling_pass *at, size_t table, const float *keys) {
    const reef_config *config = &at->trainer->network.config;
    size_t half = config->d_key / 2, tables = tables_of(at), count = 0;
    double sum = 0.0;
    for (size_t i = 0; i < at->generation->info.side * tables; i++) {
        if (!at->needed[table][i / tables]) continue;
        sum += sqrt((double)reef_dot(half, keys + i * half, keys + i * half));
        count++;
    }
    return count > 0 ? (float)(sum / (double)count)
                     : sqrtf((float)half / (3.0f * (float)config->d_key));
}

// A half of a query of the last batch that met the table, scaled to `length`; `i` counts all its
// sub-keys.
static void draw_key(const recycling_pass *at, size_t table, size_t i, float length, float *key) {
    // Sub-keys are moved onto queries that were really asked, because a random key in many
    // dimensions is near none of them.
    const reef_trainer *trainer = at->trainer;
    const reef_config *config = &trainer->network.config;
    size_t half = config->d_key / 2, tables = tables_of(at);
    size_t queries = reef_batch_tokens(config) * config->heads / tables;
    const reef_router_tape *tape =
        &trainer->acts.expert_tables[trainer->network.generation_count - 1][at->layer].tape;
    uint64_t seed = reef_random_bits(at->seed, STREAM_QUERY, at->layer);
    size_t query = (size_t)reef_random_below(seed, table, i, queries) * tables + i % tables;
    const float *from = tape->query + query * config->d_key + table * half;
    // Only the direction matters for the score; the length stays that of the table's other keys.
    float norm = sqrtf(reef_dot(half, from, from));
    for (size_t d = 0; d < half; d++) key[d] = norm > 0.0f ? from[d] * (length / norm) : 0.0f;
}

static void move_sub_keys(recycling_pass *at, size_t table) {
    char name[REEF_NAME_BYTES_MAX + 1];
    snprintf(name, sizeof(name), "block%u.sub_keys_%c", at->layer, table == 0 ? 'a' : 'b');
    const reef_tensor *keys = reef_generation_find(at->generation, name);
    size_t half = at->trainer->network.config.d_key / 2, bytes = half * sizeof(float);
    size_t tables = tables_of(at);
    float length = key_length(at, table, keys->data);
    for (size_t i = 0; i < at->generation->info.side * tables; i++) {
        size_t first = i * half;
        // A sub-key whose row or column still has an expert in use must not move: that expert would
        // be found by other queries.
        if (at->needed[table][i / tables]) continue; // in use, or frozen
        draw_key(at, table, i, length, keys->data + first);
        memset(keys->adam_m + first, 0, bytes);
        memset(keys->adam_v + first, 0, bytes);
        if (keys->average != NULL) memcpy(keys->average + first, keys->data + first, bytes);
        at->sub_keys++;
    }
}

// Every rank renews its own rows; how many there were in all is part of the state of each.
static void sum_experts(recycling_pass *at) {
    reef_ranks *ranks = at->trainer->acts.row_ranks;
    uint64_t counts[REEF_RANKS_MAX];
    const reef_ranks_array each = {counts, sizeof(*counts), sizeof(*counts)};
    if (ranks == NULL) return;
    counts[reef_ranks_rank(ranks)] = at->experts;
    reef_ranks_gather(ranks, reef_ranks_count(ranks), 1, &each);
    at->experts = 0;
    for (size_t r = 0; r < reef_ranks_count(ranks); r++) at->experts += counts[r];
}

// ---- all of it ----------------------------------------------------------------------------------

static reef_status find_unused(recycling_pass *at, reef_error *err) {
    // needed[0] flags rows of the square, needed[1] columns.
    size_t side = at->generation->info.side;
    reef_expert_table *table = &at->generation->expert_tables[at->layer];
    uint8_t *needed = calloc(2 * side, 1);
    if (needed == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to look for idle experts");
    at->needed[0] = needed;
    at->needed[1] = needed + side;
    mark_needed(at);
    renew_rows(at);
    move_sub_keys(at, 0);
    move_sub_keys(at, 1);
    free(needed);
    // Uses are compared with those at the last recycling, so that an expert which was popular long
    // ago can be recycled as well.
    for (size_t n = 0; n < table->expert_count; n++) table->used_before[n] = table->usage[n].count;
    return REEF_OK;
}

reef_status reef_recycle(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_generation *generation = reef_open_generation(trainer);
    uint64_t seed = reef_random_bits(config->seed, STREAM_RECYCLE, generation->info.generation);
    recycling_pass at = {.trainer = trainer,
                         .generation = generation,
                         .seed = reef_random_bits(seed, STREAM_RECYCLE, trainer->generation_step)};
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        // Layers are independent: each has its own routers and experts.
        at.layer = l;
        at.shape = reef_generation_expert_shape(config, l);
        reef_status status = find_unused(&at, err);
        if (status != REEF_OK) return status;
    }
    sum_experts(&at);
    if (at.experts == 0 && at.sub_keys == 0) return REEF_OK;
    // Folded queries and norms of sub-keys are derived values; they are stale now.
    reef_generation_fold(generation, config);
    trainer->recycled_experts += at.experts;
    return reef_state_event(trainer, err, "recycle",
                            "\"experts\": %" PRIu64 ", \"sub_keys\": %" PRIu64
                            ", \"recycled_experts\": %" PRIu64,
                            at.experts, at.sub_keys, trainer->recycled_experts);
}
