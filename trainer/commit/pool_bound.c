// Old states are given up: on command between two commits of training, and with a commit where a
// pool takes more than it may.
#include "commit.h"
#include "divided.h"
#include "events.h"
#include "reef_states.h"

#include <inttypes.h>
#include <stdio.h>

#define TARGET_SHARE 10 // pruned until this part of the bound is free, so that it is not done often

void reef_trainer_set_pool_max(reef_trainer *trainer, uint64_t bytes) {
    trainer->options.pool_max = bytes;
    trainer->over_reported = false;
}

static reef_status report_pruned(reef_trainer *trainer,
                                 uint32_t keep_last,
                                 const reef_pruning *done,
                                 uint64_t bound, // that it was done for; 0: on command
                                 reef_error *err) {
    char because[48] = "";
    if (bound > 0) snprintf(because, sizeof(because), ", \"pool_max\": %" PRIu64, bound);
    return reef_state_event(trainer, err, "prune",
                            "\"keep_last\": %" PRIu32 ", \"states\": %" PRIu32
                            ", \"visits\": %" PRIu64 ", \"bytes\": %" PRIu64 "%s",
                            keep_last, done->states, done->visits, done->bytes, because);
}

// ---- where a pool takes too much ----------------------------------------------------------------

static reef_status would_free(reef_txn *txn, uint32_t keep_last, uint64_t *bytes, reef_error *err) {
    reef_pruning would;
    reef_status status = reef_states_prune(txn, keep_last, true, &would, err);
    *bytes = would.bytes;
    return status;
}

// The most states that can be kept if so many bytes have to go, by halving: more states never free
// more. 1 where even that is too many, 0 where nothing can go.
static reef_status choose_keep(reef_txn *txn, uint64_t excess, uint32_t *out, reef_error *err) {
    uint32_t least = 1, most;
    uint64_t bytes = 0;
    reef_status status = reef_generation_count(txn, &most, err);
    if (status == REEF_OK) status = would_free(txn, least, &bytes, err);
    *out = bytes > 0;
    if (bytes < excess) return status;
    while (status == REEF_OK && least < most) {
        uint32_t middle = least + (most - least + 1) / 2;
        status = would_free(txn, middle, &bytes, err);
        if (bytes >= excess)
            least = middle;
        else
            most = middle - 1;
    }
    *out = least;
    return status;
}

static reef_status report_over(reef_trainer *trainer, uint64_t bytes, reef_error *err) {
    if (trainer->over_reported) return REEF_OK;
    trainer->over_reported = true;
    return reef_state_event(trainer, err, "over", "\"bytes\": %" PRIu64 ", \"pool_max\": %" PRIu64,
                            bytes, trainer->options.pool_max);
}

static bool is_shared(const reef_trainer *trainer) {
    return trainer->options.shard.count > 0 && reef_ranks_count(trainer->options.ranks) > 1;
}

// Shards of one training differ in size, and have to decide alike: by the largest.
static uint64_t largest_of_all(const reef_trainer *trainer, uint64_t bytes) {
    reef_ranks *ranks = trainer->options.ranks;
    uint64_t each[REEF_RANKS_MAX];
    if (!is_shared(trainer)) return bytes;
    each[reef_ranks_rank(ranks)] = bytes;
    reef_ranks_set_part(ranks, REEF_RANKS_COMMIT);
    reef_divided_tell(ranks, each, sizeof(*each));
    reef_ranks_set_part(ranks, REEF_RANKS_STEP);
    for (size_t r = 0; r < reef_ranks_count(ranks); r++)
        if (each[r] > bytes) bytes = each[r];
    return bytes;
}

// LMDB lets only read transactions read its list of free pages.
reef_status reef_pool_over(reef_trainer *trainer, uint64_t *out, reef_error *err) {
    // Each rank may have been started with another one: rank 0's counts.
    if (is_shared(trainer))
        reef_ranks_tell(trainer->options.ranks, &trainer->options.pool_max,
                        sizeof(trainer->options.pool_max));
    uint64_t bound = trainer->options.pool_max;
    reef_txn *txn = NULL;
    reef_file_stat file = {0};
    *out = 0;
    if (bound == 0) return REEF_OK;
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_file_stat_read(txn, &file, err);
    reef_txn_abort(txn);
    uint64_t bytes = largest_of_all(trainer, file.file_bytes - file.free_bytes);
    if (bytes > bound) *out = bytes;
    return status;
}

reef_status reef_pool_bound(reef_trainer *trainer, reef_txn *txn, uint64_t bytes, reef_error *err) {
    uint64_t bound = trainer->options.pool_max, target = bound - bound / TARGET_SHARE;
    uint32_t keep_last = 0;
    reef_pruning done = {0};
    if (bytes == 0) return REEF_OK;
    reef_status status = choose_keep(txn, bytes - target, &keep_last, err);
    // Of a divided pool each rank has other blocks of what goes: rank 0 chooses for all.
    if (is_shared(trainer)) reef_ranks_tell(trainer->options.ranks, &keep_last, sizeof(keep_last));
    if (status == REEF_OK && keep_last > 0)
        status = reef_states_prune(txn, keep_last, false, &done, err);
    if (status == REEF_OK && done.bytes > 0)
        status = report_pruned(trainer, keep_last, &done, bound, err);
    uint64_t left = largest_of_all(trainer, bytes - done.bytes);
    return status == REEF_OK && left > bound ? report_over(trainer, left, err) : status;
}

// ---- on command ---------------------------------------------------------------------------------

typedef struct pruning {
    uint32_t keep_last;
    reef_pruning *out;
} pruning;

static reef_status prune(void *context, reef_txn *txn, reef_error *err) {
    const pruning *p = context;
    return reef_states_prune(txn, p->keep_last, false, p->out, err);
}

static reef_status count_prunable(const reef_trainer *trainer, const pruning *p, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_states_prune(txn, p->keep_last, true, p->out, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_trainer_prune(
    reef_trainer *trainer, uint32_t keep_last, bool dry_run, reef_pruning *out, reef_error *err) {
    pruning p = {keep_last, out};
    reef_status status = count_prunable(trainer, &p, err);
    if (status != REEF_OK || dry_run || out->bytes == 0) return status;
    size_t events = trainer->unstored.event_count;
    status = report_pruned(trainer, keep_last, out, 0, err);
    if (status == REEF_OK) status = reef_trainer_commit_after(trainer, prune, &p, err);
    if (status == REEF_OK) (void)!reef_trainer_repin(trainer, NULL); // as in commit.c
    if (status != REEF_OK) reef_state_drop_events(trainer, events);
    return status;
}
