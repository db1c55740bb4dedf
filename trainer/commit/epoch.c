// A commit that all ranks make, an epoch. It counts when rank 0 has made it, which does so last:
//
//   every rank   write everything, compute the root, compare it with the others'
//   ranks 1 ..   make it durable, then say so
//   rank 0       hear that from all, then make it durable
//
// So a rank that is ahead of rank 0 after a crash is ahead by one commit, the last thing that it
// wrote, and steps back (reef_store_step_back); no rank is ever behind.
#include "commit.h"
#include "divided.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WHY_BYTES_MAX = 400, HEX_BYTES = 2 * REEF_HASH_BYTES + 1 };

static bool is_shared(const reef_trainer *trainer) {
    return trainer->options.shard.count > 0;
}

typedef struct epoch_claim {
    uint64_t epoch, step, stream_bytes;
    uint8_t root[REEF_HASH_BYTES];
} epoch_claim;

// All ranks see the same claims; rank 0 speaks for them.
static void end_unless_equal(reef_trainer *trainer, const epoch_claim *claims) {
    reef_ranks *ranks = trainer->options.ranks;
    for (size_t r = 1; r < reef_ranks_count(ranks); r++) {
        char why[WHY_BYTES_MAX], root[HEX_BYTES], first[HEX_BYTES];
        if (memcmp(&claims[r], &claims[0], sizeof(*claims)) == 0) continue;
        reef_hash_format(claims[r].root, root);
        reef_hash_format(claims[0].root, first);
        snprintf(why, sizeof(why),
                 "rank %zu: its root at step %" PRIu64 " is %s, that of rank 0 at step %" PRIu64
                 " is %s: a machine computes differently, or has been given something else; "
                 "nothing since epoch %" PRIu64 " is kept",
                 r, claims[r].step, root, claims[0].step, first, trainer->options.shard.epoch);
        reef_ranks_end(ranks, why);
    }
}

static void gather_from_all(const reef_trainer *trainer, void *claims, size_t bytes) {
    reef_ranks_set_part(trainer->options.ranks, REEF_RANKS_COMMIT);
    reef_divided_tell(trainer->options.ranks, claims, bytes);
    reef_ranks_set_part(trainer->options.ranks, REEF_RANKS_STEP);
}

static void say_made(reef_trainer *trainer) {
    uint8_t made[REEF_RANKS_MAX] = {0};
    gather_from_all(trainer, made, 1);
}

static reef_status before_commit(void *context, const reef_commit *commit, reef_error *err) {
    reef_trainer *trainer = context;
    static _Thread_local epoch_claim claims[REEF_RANKS_MAX]; // too large for comfort on a stack
    size_t rank = reef_ranks_rank(trainer->options.ranks);
    (void)err;
    claims[rank] = (epoch_claim){.epoch = trainer->options.shard.epoch + 1,
                                 .step = commit->step,
                                 .stream_bytes = commit->stream_bytes};
    memcpy(claims[rank].root, commit->root, sizeof(commit->root));
    gather_from_all(trainer, claims, sizeof(*claims));
    end_unless_equal(trainer, claims);
    // Of rank 0 only: the others say so when they have made it.
    if (rank == 0) say_made(trainer);
    return REEF_OK;
}

// ---- divided pools ------------------------------------------------------------------------------

static reef_status exchange_changes(void *context,
                                    const void *changes,
                                    size_t bytes,
                                    reef_shard_take take,
                                    void *taker,
                                    reef_error *err) {
    reef_ranks_set_part(context, REEF_RANKS_COMMIT);
    reef_status status = reef_divided_exchange(context, changes, bytes, take, taker, err);
    reef_ranks_set_part(context, REEF_RANKS_STEP);
    return status;
}

void reef_epoch_share(reef_trainer *trainer, reef_txn *txn) {
    if (is_shared(trainer)) reef_shard_share(txn, exchange_changes, trainer->options.ranks);
}

reef_status reef_epoch_put(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    if (!is_shared(trainer)) return REEF_OK;
    reef_shard next = trainer->options.shard;
    next.epoch++;
    reef_txn_before_commit(txn, before_commit, trainer);
    return reef_shard_put(txn, &next, err);
}

void reef_epoch_made(reef_trainer *trainer) {
    if (!is_shared(trainer)) return;
    trainer->options.shard.epoch++;
    if (reef_ranks_rank(trainer->options.ranks) > 0) say_made(trainer);
}

uint64_t reef_trainer_epoch(const reef_trainer *trainer) {
    return trainer->options.shard.epoch;
}

void reef_epoch_failed(reef_trainer *trainer, reef_status status, const reef_error *err) {
    char why[WHY_BYTES_MAX];
    if (!is_shared(trainer)) return;
    // What the model or a name rules out, it rules out on every rank.
    if (status == REEF_ERR_INVALID || status == REEF_ERR_NOT_FOUND) return;
    snprintf(why, sizeof(why),
             "rank %zu: its commit failed: %.200s; nothing that was committed is "
             "lost, start all ranks again",
             reef_ranks_rank(trainer->options.ranks), err->message);
    reef_ranks_end(trainer->options.ranks, why);
}
