// Experts of a generation as records, in blocks: rows, moments, flags and usage.
#include "checkpoint_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t row_values_of(const reef_config *config, uint32_t layer) {
    reef_expert_shape shape = reef_generation_expert_shape(config, layer);
    return reef_expert_row_values(&shape);
}

reef_checkpoint_blocks reef_checkpoint_blocks_of(const reef_config *config,
                                                 uint32_t records,
                                                 uint32_t layer,
                                                 size_t expert_count,
                                                 float *buffer) {
    size_t row_values = row_values_of(config, layer);
    // A block is a whole number of rows that fills one LMDB overflow value well, whatever the type
    // of the rows: so a block index means the same rows in every table.
    return (reef_checkpoint_blocks){
        .records = records,
        .layer = layer,
        .block_rows = reef_block_rows(row_values * sizeof(float)),
        .expert_count = expert_count,
        .row_values = row_values,
        .buffer = buffer,
    };
}

bool reef_checkpoint_block_next(reef_checkpoint_blocks *all, reef_checkpoint_block *out) {
    size_t first = (size_t)all->index * all->block_rows;
    // The last block may be short.
    if (first >= all->expert_count) return false;
    size_t left = all->expert_count - first;
    *out = (reef_checkpoint_block){
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

reef_key reef_checkpoint_block_key(const reef_checkpoint_block *b, reef_db db) {
    return (reef_key){.db = db, .generation = b->records, .layer = b->layer, .block = b->index};
}

static size_t moment_bytes(const reef_checkpoint_block *b, const reef_expert_table *table) {
    size_t row_bytes = b->row_values * sizeof(float);
    return b->rows * (reef_moment_planes(table->moments.average) * row_bytes + sizeof(uint32_t));
}

// Where the first row of a block, which is here, stands among the rows that are.
static size_t block_place(const reef_checkpoint_block *b, const reef_expert_table *table) {
    return reef_row_place(&table->share, b->first);
}

// Where the block's rows lie in memory, and how many bytes they are.
static void *block_rows(const reef_checkpoint_block *b,
                        const reef_expert_table *table,
                        size_t *bytes) {
    size_t each = reef_row_bytes(table->rows.dtype, b->row_values);
    *bytes = b->rows * each;
    char *memory = table->memory;
    return memory + block_place(b, table) * each;
}

static reef_status put_block(reef_txn *txn,
                             const reef_checkpoint_block *b,
                             const reef_expert_table *table,
                             reef_error *err) {
    size_t place = block_place(b, table);
    size_t at = place * b->row_values, floats = b->rows * b->row_values, bytes;
    reef_key key = reef_checkpoint_block_key(b, REEF_DB_EXPERTS);
    const reef_expert_moments *moments = &table->moments;
    const void *rows = block_rows(b, table, &bytes);
    // Readers evaluate averages; training continues from the raw weights, which are then stored
    // with the moments.
    const void *stored = moments->average != NULL ? moments->average + at : rows;
    reef_status status = reef_record_put(txn, &key, table->rows.dtype, stored, bytes, err);
    if (status != REEF_OK || moments->adam_m == NULL) return status;
    // One record holds both moments, the raw weights where averages are kept, and the update
    // counts: they are only ever read together.
    memcpy(b->buffer, moments->adam_m + at, bytes);
    memcpy(b->buffer + floats, moments->adam_v + at, bytes);
    memcpy(b->buffer + 2 * floats, rows, bytes); // without averages the counts are stored there
    memcpy(b->buffer + reef_moment_planes(moments->average) * floats, moments->counts + place,
           b->rows * sizeof(uint32_t));
    key = reef_checkpoint_block_key(b, REEF_DB_MOMENTS);
    return reef_record_put(txn, &key, REEF_F32, b->buffer, moment_bytes(b, table), err);
}

static reef_status put_flags(reef_txn *txn,
                             const reef_checkpoint_block *b,
                             const reef_expert_table *table,
                             reef_error *err) {
    reef_key key = reef_checkpoint_block_key(b, REEF_DB_FLAGS);
    return reef_record_put(txn, &key, REEF_BYTES, table->flags + b->first, b->rows, err);
}

static reef_status read_block(reef_txn *txn,
                              const reef_checkpoint_block *b,
                              reef_expert_table *table,
                              bool training,
                              reef_error *err) {
    size_t place = block_place(b, table);
    size_t at = place * b->row_values, floats = b->rows * b->row_values, bytes;
    reef_key key = reef_checkpoint_block_key(b, REEF_DB_EXPERTS);
    void *rows = block_rows(b, table, &bytes);
    reef_status status = reef_record_read(txn, &key, rows, bytes, err);
    // A reader needs the rows alone.
    if (status != REEF_OK || !training) return status;
    key = reef_checkpoint_block_key(b, REEF_DB_MOMENTS);
    status = reef_checkpoint_read_moments(txn, &key, b->buffer, moment_bytes(b, table), rows,
                                          floats, table->moments.average != NULL, err);
    if (status != REEF_OK) return status;
    reef_expert_moments *moments = &table->moments;
    memcpy(moments->adam_m + at, b->buffer, bytes);
    memcpy(moments->adam_v + at, b->buffer + floats, bytes);
    // Stored rows are the averages; the raw weights lie third in the moments' record.
    if (moments->average != NULL) {
        memcpy(moments->average + at, rows, bytes);
        memcpy(rows, b->buffer + 2 * floats, bytes);
    }
    memcpy(moments->counts + place, b->buffer + reef_moment_planes(moments->average) * floats,
           b->rows * sizeof(uint32_t));
    return REEF_OK;
}

// Of every expert, also those of other ranks' rows. Flags are always there once a block was
// written; usage counts may be missing, and then are zero.
static reef_status read_flags_and_usage(reef_txn *txn,
                                        const reef_checkpoint_block *b,
                                        reef_expert_table *table,
                                        reef_error *err) {
    reef_key key = reef_checkpoint_block_key(b, REEF_DB_FLAGS);
    reef_status status = reef_record_read(txn, &key, table->flags + b->first, b->rows, err);
    if (status != REEF_OK) return status;
    key = reef_checkpoint_block_key(b, REEF_DB_USAGE);
    return reef_checkpoint_read_or_zero(txn, &key, table->usage + b->first,
                                        b->rows * sizeof(reef_usage), err);
}

// Other ranks write their blocks themselves.
static bool is_dirty(const reef_expert_table *table, const reef_checkpoint_block *b) {
    return reef_row_is_here(&table->share, b->first) &&
           memchr(table->dirty + b->first, 1, b->rows) != NULL;
}

// The store's rows of two numbers are what a reef_usage is.
_Static_assert(sizeof(reef_usage) == 2 * sizeof(uint64_t), "count and score");

static reef_status put_usage(reef_txn *txn,
                             const reef_checkpoint_blocks *all,
                             const reef_expert_table *table,
                             uint64_t unix_ms,
                             reef_error *err) {
    return reef_usage_put(txn, all->records, all->layer, all->block_rows, table->expert_count,
                          (const uint64_t *)table->usage, unix_ms, err);
}

reef_status reef_checkpoint_put_experts(reef_txn *txn,
                                        const reef_config *config,
                                        const reef_generation *generation,
                                        uint64_t unix_ms,
                                        float *buffer,
                                        reef_error *err) {
    for (uint32_t l = 0; l < config->layers; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        reef_checkpoint_blocks all = reef_checkpoint_blocks_of(config, generation->info.generation,
                                                               l, table->expert_count, buffer);
        for (reef_checkpoint_block b; reef_checkpoint_block_next(&all, &b);) {
            // Only dirty blocks are written: a step touches the rows that were retrieved, which are
            // few of many.
            reef_status status = is_dirty(table, &b) ? put_block(txn, &b, table, err) : REEF_OK;
            if (status == REEF_OK) status = put_flags(txn, &b, table, err);
            if (status != REEF_OK) return status;
        }
        // A layer without experts has no usage.
        if (table->expert_count == 0) continue;
        reef_status status = put_usage(txn, &all, table, unix_ms, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// Between two blocks of a sealed generation or a snapshot's copy: let the writer have its pages
// back, and then make sure that the generation was not removed or replaced.
static reef_status renew_reader(reef_txn *txn,
                                uint32_t records,
                                const reef_generation_record *info,
                                reef_error *err) {
    bool turned;
    reef_generation_record now;
    // The open generation's blocks belong to one commit; renewing the reader between two of them
    // would mix two states.
    if (!info->sealed && records < REEF_SNAPSHOT_GENERATION)
        return REEF_OK; // the open one: all at once
    reef_status status = reef_txn_renew(txn, &turned, err);
    if (status != REEF_OK || !turned) return status;
    // The reader sees a later commit now. Equal roots mean that the generation is still the same
    // bits.
    status = reef_generation_read(txn, records, &now, err);
    if (status == REEF_OK && memcmp(now.root, info->root, sizeof(now.root)) == 0) return REEF_OK;
    if (status != REEF_OK && status != REEF_ERR_NOT_FOUND) return status;
    // Callers start again from the list of generations.
    return reef_fail(err, REEF_ERR_BUSY,
                     "generation %u of the state was given up while it was being read; try again",
                     info->generation);
}

reef_status reef_checkpoint_read_experts(reef_generation *generation,
                                         reef_txn *txn,
                                         const reef_config *config,
                                         uint32_t records,
                                         bool training,
                                         float *buffer,
                                         reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t l = 0; status == REEF_OK && l < config->layers; l++) {
        reef_expert_table *table = &generation->expert_tables[l];
        reef_checkpoint_blocks all =
            reef_checkpoint_blocks_of(config, records, l, table->expert_count, buffer);
        for (reef_checkpoint_block b; status == REEF_OK && reef_checkpoint_block_next(&all, &b);) {
            // A load of gigabytes takes seconds. Renewing after each block keeps the writer from
            // piling up pages meanwhile.
            if (reef_row_is_here(&table->share, b.first))
                status = read_block(txn, &b, table, training, err);
            if (status == REEF_OK && training) status = read_flags_and_usage(txn, &b, table, err);
            if (status == REEF_OK) status = renew_reader(txn, records, &generation->info, err);
        }
    }
    return status;
}

static size_t tensor_count_max(const reef_generation *generation) {
    size_t most = 0;
    for (size_t i = 0; i < generation->tensor_count; i++)
        if (generation->tensors[i].count > most) most = generation->tensors[i].count;
    return most;
}

reef_status reef_checkpoint_moments_buffer(float **out,
                                           const reef_config *config,
                                           const reef_generation *generation,
                                           reef_error *err) {
    // The largest block of any layer, or the largest tensor: one buffer serves both.
    size_t floats = 0;
    for (uint32_t l = 0; l < config->layers; l++) {
        size_t row_values = row_values_of(config, l);
        size_t layer =
            reef_block_rows(row_values * sizeof(float)) * (REEF_MOMENT_PLANES_MAX * row_values + 1);
        if (layer > floats) floats = layer;
    }
    size_t tensor = REEF_MOMENT_PLANES_MAX * tensor_count_max(generation);
    *out = malloc((floats > tensor ? floats : tensor) * sizeof(**out));
    if (*out == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for moments of generation %u",
                         generation->info.generation);
    return REEF_OK;
}

// ---- write tables -------------------------------------------------------------------------------
//
// Usage and flags of one layer, for readers that have no model.

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
    reef_checkpoint_blocks all =
        reef_checkpoint_blocks_of(&config, generation, layer, expert_count, NULL);
    for (reef_checkpoint_block b; reef_checkpoint_block_next(&all, &b);) {
        reef_key key = reef_checkpoint_block_key(&b, db);
        char *to = (char *)out + b.first * each;
        // Usage of a block that no token ever used was never written.
        status = db == REEF_DB_USAGE
                     ? reef_checkpoint_read_or_zero(txn, &key, to, b.rows * each, err)
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
    return read_table(txn, REEF_DB_USAGE, generation, layer, expert_count, sizeof(*usage), usage,
                      err);
}

// Add what is in the totals and in no window to what windows of the range have.
static reef_status add_rest(size_t expert_count,
                            reef_usage *usage,
                            const reef_usage *totals,
                            const reef_usage *windows,
                            bool counts,
                            uint64_t *before,
                            reef_error *err) {
    for (size_t n = 0; n < expert_count; n++) {
        // They are written by different commits of different code. If they contradict each other,
        // the file is damaged.
        if (windows[n].count > totals[n].count || windows[n].score > totals[n].score)
            return reef_fail(err, REEF_ERR_CORRUPT,
                             "usage over time says that expert %zu was chosen %" PRIu64
                             " times, but its total is %" PRIu64,
                             n, windows[n].count, totals[n].count);
        *before += totals[n].count - windows[n].count;
        if (!counts) continue;
        usage[n].count += totals[n].count - windows[n].count;
        usage[n].score += totals[n].score - windows[n].score;
    }
    return REEF_OK;
}

reef_status reef_usage_range_read(reef_txn *txn,
                                  uint32_t generation,
                                  uint32_t layer,
                                  size_t expert_count,
                                  reef_usage_range *range,
                                  reef_usage *usage,
                                  uint64_t *before,
                                  reef_error *err) {
    uint64_t unused, *rest = before != NULL ? before : &unused;
    *rest = 0;
    if (range == NULL) return reef_usage_read(txn, generation, layer, expert_count, usage, err);
    // All windows ever, to find what was counted before there were windows. The store sums rows of
    // two numbers, which are what a reef_usage is.
    reef_usage_range always = {.until_ms = UINT64_MAX};
    reef_usage *totals = calloc(2 * expert_count + 1, sizeof(*totals));
    if (totals == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the usage of %zu experts",
                         expert_count);
    reef_usage *windows = totals + expert_count;
    memset(usage, 0, expert_count * sizeof(*usage));
    reef_status status = reef_usage_read(txn, generation, layer, expert_count, totals, err);
    if (status == REEF_OK)
        status =
            reef_usage_sum(txn, generation, layer, expert_count, &always, (uint64_t *)windows, err);
    if (status == REEF_OK)
        status =
            reef_usage_sum(txn, generation, layer, expert_count, range, (uint64_t *)usage, err);
    if (status == REEF_OK)
        status = add_rest(expert_count, usage, totals, windows, range->since_ms == 0, rest, err);
    free(totals);
    return status;
}

reef_status reef_flags_read(reef_txn *txn,
                            uint32_t generation,
                            uint32_t layer,
                            size_t expert_count,
                            uint8_t *flags,
                            reef_error *err) {
    return read_table(txn, REEF_DB_FLAGS, generation, layer, expert_count, 1, flags, err);
}

reef_status reef_checkpoint_load_tables(reef_generation *generation,
                                        reef_txn *txn,
                                        reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t l = 0; status == REEF_OK && l < REEF_LAYER_COUNT_MAX; l++) {
        reef_expert_table *table = &generation->expert_tables[l];
        size_t count = table->expert_count;
        if (count == 0) continue;
        table->flags = malloc(count);
        table->dirty = malloc(count);
        table->usage = calloc(count, sizeof(*table->usage)); // none here so far
        if (table->flags == NULL || table->dirty == NULL || table->usage == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu experts", count);
        memset(table->dirty, 1, count);
        status = reef_flags_read(txn, generation->info.generation, l, count, table->flags, err);
    }
    generation->stored = false;
    return status;
}
