// What there is in a pool: sizes, generations, snapshots, usage.
#include "lib.h"
#include "reef_snapshot.h"
#include "reef_usage.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t generation_count(const reef_pool *pool) {
    return pool->trainer != NULL ? (uint32_t)reef_trainer_generation_count(pool->trainer)
                                 : reef_model_generation_count(pool->model);
}

// A state that was opened knows its own, whatever a writer has made of the pool since.
static reef_status find_generation(const reef_pool *pool,
                                   uint32_t number,
                                   reef_generation_record *out,
                                   reef_error *err) {
    if (number >= generation_count(pool))
        return reef_fail(err, REEF_ERR_NOT_FOUND, "no generation %u: the state has 0 to %u", number,
                         generation_count(pool) - 1);
    *out = pool->trainer != NULL ? *reef_trainer_generation(pool->trainer, number)
                                 : *reef_model_generation(pool->model, number);
    return REEF_OK;
}

static reef_status fill_info(reef_pool *pool, reef_pool_info *info, reef_error *err) {
    const reef_config *config = &pool->config;
    reef_commit commit;
    reef_status status = reef_store_read_commit(pool->store, &commit, err);
    if (status != REEF_OK) return status;
    *info = (reef_pool_info){
        .model = reef_config_word(config, "model"),
        .expert = reef_config_word(config, "expert"),
        .score = reef_config_word(config, "score"),
        .writing = pool->trainer != NULL,
        .layers = config->layers,
        .d_model = config->d_model,
        .heads = config->heads,
        .topk = config->topk,
        .d_key = config->d_key,
        .generations = generation_count(pool),
        .commit = commit.number,
        .step = commit.step,
        .position = commit.stream_bytes,
    };
    // With an open trainer the present is ahead of the last commit.
    if (pool->trainer != NULL) {
        reef_trainer_status now;
        reef_trainer_status_read(pool->trainer, &now);
        info->step = now.step;
        info->position = now.stream_bytes;
        info->collected = reef_trainer_layer_collected(pool->trainer);
    }
    for (uint32_t g = 0; status == REEF_OK && g < info->generations; g++) {
        reef_generation_record generation = {0};
        status = find_generation(pool, g, &generation, err);
        if (status == REEF_OK) info->experts += (uint64_t)generation.side * generation.side;
    }
    return status;
}

reef_status reef_pool_read_info(reef_pool *pool, reef_pool_info *out, reef_error *err) {
    reef_pool_info info;
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = fill_info(pool, &info, err);
    reef_lib_leave(pool);
    return status == REEF_OK ? reef_lib_give(out, &info, sizeof(info), "reef_pool_info", err)
                             : status;
}

reef_status reef_pool_read_generation(reef_pool *pool,
                                      uint32_t generation,
                                      reef_generation_info *out,
                                      reef_error *err) {
    reef_generation_record found = {0};
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = find_generation(pool, generation, &found, err);
    reef_lib_leave(pool);
    if (status != REEF_OK) return status;
    // Outside the lock: only the copy and the configuration are used, which never changes.
    const reef_generation_info info = {
        .generation = generation,
        .side = found.side,
        .sealed = found.sealed,
        .experts = (uint64_t)found.side * found.side,
        .first_expert = found.first_id,
        .opened_step = found.opened_step,
        .sealed_step = found.sealed_step,
        .opened_at = found.opened_at,
        .sealed_at = found.sealed_at,
    };
    return reef_lib_give(out, &info, sizeof(info), "reef_generation_info", err);
}

// ---- snapshots ----------------------------------------------------------------------------------

typedef struct search {
    size_t index, at;
    bool found;
    reef_snapshot snapshot;
} search;

static reef_status on_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    search *s = context;
    (void)err;
    if (s->at++ != s->index) return REEF_OK;
    s->found = true;
    s->snapshot = *snapshot;
    return REEF_OK;
}

reef_status reef_pool_read_snapshot(reef_pool *pool,
                                    size_t index,
                                    reef_snapshot_info *out,
                                    reef_error *err) {
    search s = {.index = index};
    reef_txn *txn = NULL;
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    // One transaction, so that index and total are of the same commit.
    status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_snapshot_scan(txn, on_snapshot, &s, err);
    reef_txn_abort(txn);
    reef_lib_leave(pool);
    if (status != REEF_OK) return status;
    if (!s.found)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "no snapshot %zu: the pool has %zu", index, s.at);
    // A damaged one keeps its index, or the ones after it would move.
    if (s.snapshot.damaged)
        return reef_fail(err, REEF_ERR_CORRUPT, "the record of snapshot %s is damaged",
                         s.snapshot.name);
    reef_snapshot_info info = {
        .commit = s.snapshot.commit,
        .step = s.snapshot.step,
        .position = s.snapshot.stream_bytes,
        .unix_ms = s.snapshot.unix_ms,
        .generations = s.snapshot.open_generation + 1,
    };
    snprintf(info.name, sizeof(info.name), "%s", s.snapshot.name);
    return reef_lib_give(out, &info, sizeof(info), "reef_snapshot_info", err);
}

// ---- usage --------------------------------------------------------------------------------------

static reef_status check_usage(
    reef_pool *pool, uint32_t generation, uint32_t layer, size_t count, reef_error *err) {
    reef_generation_record found;
    reef_status status = find_generation(pool, generation, &found, err);
    if (status != REEF_OK) return status;
    if (layer >= pool->config.layers)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "no layer %u: the model has 0 to %u", layer,
                         pool->config.layers - 1);
    // Checked here, because the array is filled for every expert without asking again.
    if ((uint64_t)found.side * found.side == count) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "generation %u has %llu experts, but the array has %zu",
                     generation, (unsigned long long)found.side * found.side, count);
}

// How many experts the commit has that is read: records are as long. A state that was opened may
// have fewer, where a writer has grown the generation since, and what a writer has not committed
// yet more.
static reef_status count_stored(reef_txn *txn, uint32_t generation, size_t *out, reef_error *err) {
    reef_generation_record now;
    *out = 0;
    reef_status status = reef_generation_read(txn, generation, &now, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status == REEF_OK) *out = (size_t)now.side * now.side;
    return status;
}

// `out` is on the heap, of at least `count` experts. Growing keeps ids; what is not stored has no
// use yet.
static reef_status read_usage(reef_pool *pool,
                              uint32_t generation,
                              uint32_t layer,
                              size_t count,
                              reef_usage_range *range, // NULL: ever
                              reef_usage **out,
                              reef_error *err) {
    reef_txn *txn = NULL;
    size_t stored = 0;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = count_stored(txn, generation, &stored, err);
    // The trainer may have grown since the last commit, so the two sizes may differ.
    size_t room = stored > count ? stored : count;
    if (status == REEF_OK && (*out = calloc(room + 1, sizeof(**out))) == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the usage of %zu experts", room);
    if (status == REEF_OK && stored > 0)
        status = reef_usage_range_read(txn, generation, layer, stored, range, *out, NULL, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_pool_usage(reef_pool *pool,
                            uint32_t generation,
                            uint32_t layer,
                            uint64_t since_ms,
                            uint64_t until_ms,
                            uint64_t *counts,
                            double *scores,
                            size_t count,
                            reef_error *err) {
    bool ever = since_ms == 0 && until_ms == 0;
    reef_usage_range range = {.since_ms = since_ms,
                              .until_ms = until_ms == 0 ? UINT64_MAX : until_ms};
    reef_usage *usage = NULL;
    if (range.since_ms >= range.until_ms)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a range of time from %llu to %llu has nothing in it",
                         (unsigned long long)since_ms, (unsigned long long)until_ms);
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = check_usage(pool, generation, layer, count, err);
    if (status == REEF_OK)
        status = read_usage(pool, generation, layer, count, ever ? NULL : &range, &usage, err);
    reef_lib_leave(pool);
    for (size_t n = 0; status == REEF_OK && n < count; n++) {
        counts[n] = usage[n].count;
        if (scores != NULL) scores[n] = (double)usage[n].score / (double)REEF_USAGE_SCORE_ONE;
    }
    free(usage);
    return status;
}
