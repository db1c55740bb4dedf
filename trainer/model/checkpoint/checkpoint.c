// Records of a generation, all little-endian as this machine holds them:
//
//   database   key             payload
//   tensors    NAME            floats of the tensor; of an open generation their averages, if any
//   moments    NAME            adam_m, adam_v; with averages then the weights that training moves
//              layer, block    adam_m (rows, R), adam_v (rows, R); with averages then the rows that
//                              training moves (rows, R); counts (rows) uint32
//   experts    layer, block    rows of R values, [w_down, w_up], [w_down, w_up, w_gate] or [w_up]:
//                              float, or int8 once sealed as such; of an open generation their
//                              averages, if any
//   flags      layer, block    one byte per expert
//   usage      layer, block    count and score per expert, two uint64; beside these totals each
//                              commit leaves what they grew by (usage_windows.c)
//   memory                     see checkpoint_memory.c
//   visits                     see checkpoint_visits.c
//
// Blocks are reef_block_rows(R * 4) experts everywhere, whatever the type of their rows; the last
// one of a layer is shorter.
#include "checkpoint_internal.h"

#include "reef_huge_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_checkpoint_open(reef_txn *txn,
                                 const reef_config *config,
                                 reef_generation *generation,
                                 uint64_t unix_ms,
                                 reef_error *err) {
    float *buffer = NULL;
    // Moments are gathered into one buffer per block before they are written: LMDB wants one value,
    // and they lie in several arrays.
    reef_status status = reef_checkpoint_moments_buffer(&buffer, config, generation, err);
    // The generation's own record first: a reader that finds it finds its tensors in the same
    // transaction.
    if (status == REEF_OK) status = reef_generation_put(txn, &generation->info, err);
    if (status == REEF_OK) status = reef_checkpoint_put_tensors(txn, generation, err);
    if (status == REEF_OK)
        status = reef_checkpoint_put_tensor_moments(txn, generation, buffer, err);
    if (status == REEF_OK)
        status = reef_checkpoint_put_experts(txn, config, generation, unix_ms, buffer, err);
    if (status == REEF_OK) status = reef_checkpoint_put_memory(txn, generation, err);
    free(buffer);
    return status;
}

void reef_checkpoint_clean(reef_generation *generation) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        reef_expert_table *table = &generation->expert_tables[l];
        // No flags means a generation that was loaded sealed; nothing of it can be dirty.
        if (table->dirty == NULL) continue;
        memset(table->dirty, 0, table->expert_count);
        // The open generation keeps its flags and counts for the next commit. A sealed one needs
        // them no more.
        if (generation->open) continue;
        free(table->flags);
        free(table->dirty);
        free(table->usage);
        table->flags = table->dirty = NULL;
        table->usage = NULL;
    }
    if (generation->open)
        reef_generation_memory_settle(&generation->memory);
    else { // stored, and nobody trains on it any more: readers have copies of their own
        reef_generation_memory_release(&generation->memory);
        reef_generation_release_visits(generation);
    }
    generation->stored = !generation->open;
}

// Batch norm is folded away, and the trainer's own records move on to the next generation.
static reef_status delete_open_tensors(reef_txn *txn,
                                       const reef_config *config,
                                       uint32_t g,
                                       reef_error *err) {
    // A generation is sealed with its queries folded, so these would be read by nobody and would be
    // part of its root.
    const char *names[] = {"bn_scale", "bn_shift", "bn_mean", "bn_var"};
    for (uint32_t l = 0; l < config->layers; l++) {
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
            char name[REEF_NAME_BYTES_MAX + 1];
            snprintf(name, sizeof(name), "block%u.%s", l, names[i]);
            reef_key key = reef_tensor_key(REEF_DB_TENSORS, g, name);
            reef_status status = reef_record_delete(txn, &key, err);
            if (status != REEF_OK) return status;
        }
    }
    return REEF_OK;
}

static reef_status put_sealed_visits(reef_txn *txn, reef_generation *generation, reef_error *err) {
    size_t count = generation->visit_count;
    reef_visit **visits = calloc(count + 1, sizeof(*visits));
    if (visits == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu visits", count);
    for (size_t i = 0; i < count; i++) visits[i] = &generation->visits[i];
    reef_status status =
        reef_checkpoint_put_visits(txn, generation->info.generation, visits, count, err);
    free(visits);
    return status;
}

reef_status reef_checkpoint_sealed(reef_txn *txn,
                                   const reef_config *config,
                                   reef_generation *generation,
                                   uint64_t unix_ms,
                                   reef_error *err) {
    reef_generation_record info = generation->info;
    // The record says "open" until all data is there. reef_generation_seal then computes the root
    // over exactly what the store holds.
    info.sealed = false;
    reef_status status = reef_generation_put(txn, &info, err);
    if (status == REEF_OK) status = reef_checkpoint_put_tensors(txn, generation, err);
    if (status == REEF_OK)
        status = reef_checkpoint_put_experts(txn, config, generation, unix_ms, NULL, err);
    if (status == REEF_OK) status = reef_checkpoint_put_memory(txn, generation, err);
    if (status == REEF_OK) status = put_sealed_visits(txn, generation, err);
    if (status == REEF_OK) status = delete_open_tensors(txn, config, info.generation, err);
    if (status != REEF_OK) return status;
    return reef_generation_seal(txn, info.generation, info.sealed_step, info.sealed_at, err);
}

// All that is about to be written into the open generation, by all workers: memory that the system
// has to find first costs more than the copy into it.
static void touch_rows(const reef_generation *generation, reef_thread_pool *workers) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        const reef_expert_moments *moments = &table->moments;
        size_t values = table->row_count * table->row_values, bytes = values * sizeof(float);
        float *const all[] = {table->experts, moments->adam_m, moments->adam_v, moments->average};
        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
            if (all[i] != NULL) reef_huge_page_touch(workers, all[i], bytes);
    }
}

static reef_status read_info(reef_txn *txn,
                             const reef_checkpoint_source *source,
                             reef_generation_record *out,
                             reef_error *err) {
    reef_status status = reef_generation_read(txn, source->records, out, err);
    if (status != REEF_OK) return status;
    // Only sealed rows are rounded; anything else was damaged or written by a later version.
    if (out->dtype != REEF_F32 && !(out->dtype == REEF_I8 && out->sealed))
        return reef_fail(err, REEF_ERR_CORRUPT, "generation %u has rows of dtype %d",
                         source->number, (int)out->dtype);
    out->generation = source->number; // a snapshot's copy has its own number
    return REEF_OK;
}

static reef_status read_records(reef_generation *generation,
                                reef_txn *txn,
                                const reef_config *config,
                                const reef_checkpoint_source *source,
                                reef_thread_pool *workers,
                                reef_error *err) {
    uint32_t records = source->records;
    bool sealed = generation->info.sealed;
    // What a sealed generation was trained with is gone, so it can be loaded for training like any
    // other: without moments.
    bool trains = source->training && !sealed;
    // A snapshot's copy may be replaced under the same number at any time, so its rows are always
    // copied.
    bool maps_rows = source->in_place && sealed && records == source->number;
    // A trainer does not read texts by a sealed generation's memory.
    bool remembers = config->memory > 0 && !(source->training && sealed);
    float *buffer = NULL;
    reef_status status = reef_checkpoint_moments_buffer(&buffer, config, generation, err);
    if (status == REEF_OK && sealed && !maps_rows)
        status = reef_generation_allocate_rows(generation, err);
    // The pages are touched in parallel before they are filled: on a large generation the kernel's
    // page faults would otherwise be the slow part of opening.
    if (status == REEF_OK && trains) touch_rows(generation, workers);
    if (status == REEF_OK) status = reef_checkpoint_read_tensors(txn, records, generation, err);
    if (status == REEF_OK && trains)
        status = reef_checkpoint_read_tensor_moments(txn, records, generation, buffer, err);
    if (status == REEF_OK && !maps_rows)
        status =
            reef_checkpoint_read_experts(generation, txn, config, records, trains, buffer, err);
    if (status == REEF_OK && remembers && !source->memory_later)
        status = reef_checkpoint_read_memory(txn, records, &generation->memory, err);
    free(buffer);
    return status;
}

reef_status reef_checkpoint_load(reef_generation **out,
                                 reef_txn *txn,
                                 const reef_config *config,
                                 const reef_checkpoint_source *source,
                                 reef_thread_pool *workers,
                                 reef_error *err) {
    reef_generation *generation = NULL;
    reef_generation_record info;
    *out = NULL;
    reef_status status = read_info(txn, source, &info, err);
    // Who does not say whose rows it wants, wants all.
    if (status == REEF_OK && source->division.count <= 1) status = reef_shard_check_whole(txn, err);
    if (status == REEF_OK)
        status = reef_generation_new(&generation, config, &info, source->division, err);
    if (status != REEF_OK) return status;
    status = read_records(generation, txn, config, source, workers, err);
    if (status != REEF_OK) {
        reef_generation_free(generation);
        return status;
    }
    // Folded queries are derived, not stored.
    if (generation->open) reef_generation_fold(generation, config);
    // The rows of a snapshot's copy cannot be located later.
    generation->stored = !generation->open && source->records == source->number;
    *out = generation;
    return REEF_OK;
}
