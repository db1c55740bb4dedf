// A pool that is one of several which ranks train together: which one it is, and the last epoch, a
// commit that all of them make. And the way back of one epoch, for a rank that made a commit when
// another did not.
#ifndef REEF_SHARD_H
#define REEF_SHARD_H

#include "reef_store.h"

#define REEF_SHARD_POOL_BYTES 16

/** Which shard a pool is. Not part of the root hash. */
typedef struct reef_shard {
    uint8_t pool[REEF_SHARD_POOL_BYTES]; // the same in all shards of one training, drawn at random
    uint32_t rank, count;                // this one, of how many
    uint64_t epoch;                      // commits of all ranks so far
} reef_shard;

/** NOT_FOUND the pool is no shard; CORRUPT. */
REEF_API REEF_MUST_CHECK reef_status reef_shard_read(reef_txn *txn,
                                                     reef_shard *out,
                                                     reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_shard_put(reef_txn *txn,
                                                    const reef_shard *shard,
                                                    reef_error *err);

/** Make the pool an ordinary one again; absent is fine. */
REEF_API REEF_MUST_CHECK reef_status reef_shard_remove(reef_txn *txn, reef_error *err);

/**
 * Undo the last transaction of the pool in directory `path`, which nobody has open for writing. The
 * one before it is whole: LMDB keeps its pages until the next has been written. Once only: then
 * there is no earlier one.
 *
 * Errors: those of reef_store_open; BUSY a writer; INVALID the last transaction was undone already.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_step_back(const char *path, reef_error *err);

#endif
