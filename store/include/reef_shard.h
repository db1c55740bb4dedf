// A pool that is one of several which ranks train together: which one it is, and the last epoch, a
// commit that all of them make. And the way back of one epoch, for a rank that made a commit when
// another did not.
//
// The rows of experts are divided: each shard has the blocks of them that its rank owns, and of the
// others their entries in `sums`. All else is in every shard, memories too, which every rank holds.
// So roots, which are taken over `sums`, are those of a whole pool.
#ifndef REEF_SHARD_H
#define REEF_SHARD_H

#include "reef_store.h"

#include <string.h>

#define REEF_SHARD_POOL_BYTES 16

/** Which shard a pool is. Not part of the root hash. */
typedef struct reef_shard {
    uint8_t pool[REEF_SHARD_POOL_BYTES]; // the same in all shards of one training, drawn at random
    uint32_t rank, count;                // this one, of how many
    uint64_t epoch;                      // commits of all ranks so far
} reef_shard;

/** Whose a block is where a pool is divided. The same in every generation, and in copies of it. */
static inline uint32_t reef_shard_owner(uint32_t layer, uint32_t block, uint32_t count) {
    return (uint32_t)(((uint64_t)layer + block) % count);
}

/** Is the record one of those that are divided: a block of rows, or the moments of one? */
static inline bool reef_shard_divides(const reef_key *key) {
    return key->db == REEF_DB_EXPERTS || (key->db == REEF_DB_MOMENTS && key->name == NULL);
}

/** NOT_FOUND the pool is no shard; CORRUPT. */
REEF_API REEF_MUST_CHECK reef_status reef_shard_read(reef_txn *txn,
                                                     reef_shard *out,
                                                     reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_shard_put(reef_txn *txn,
                                                    const reef_shard *shard,
                                                    reef_error *err);

/** Does the record lie in another rank's shard? */
REEF_API bool reef_shard_is_elsewhere(const reef_txn *txn, const reef_key *key);

/**
 * INVALID if the pool has only the rows of one rank, with the command that makes a whole pool: for
 * who needs them all.
 */
REEF_API REEF_MUST_CHECK reef_status reef_shard_check_whole(const reef_txn *txn, reef_error *err);

/** Take what another rank changed: `bytes` bytes, as its exchange was given them. */
typedef reef_status (*reef_shard_take)(void *taker,
                                       const void *changes,
                                       size_t bytes,
                                       reef_error *err);
/**
 * Give the changes of this rank to all others, and those of each of them to `take`. Every rank of
 * the training calls it at once.
 */
typedef reef_status (*reef_shard_exchange)(void *context,
                                           const void *changes,
                                           size_t bytes,
                                           reef_shard_take take,
                                           void *taker,
                                           reef_error *err);
/**
 * This write transaction is one of all ranks: it exchanges what changed of divided records, namely
 * their entries in `sums`, before any root is taken. Another one cannot commit changes of them.
 */
REEF_API void reef_shard_share(reef_txn *txn, reef_shard_exchange exchange, void *context);
/** What one shard, or the whole pool, is made of. */
typedef struct reef_shard_making {
    uint64_t records, bytes; // all of it, with headers
    uint64_t moved_bytes;    // divided, that lay in another rank's shard, or in a whole pool
} reef_shard_making;

/**
 * Are these pools, open for writing, one pool: a whole one alone, or all shards of one, in the
 * order of their ranks?
 *
 * Errors: INVALID names the first that is of another pool, missing, stale, there twice, or has
 * another root; CORRUPT.
 */
REEF_API REEF_MUST_CHECK reef_status reef_shards_check(reef_store *const *sources,
                                                       size_t source_count,
                                                       reef_error *err);

/**
 * Make the shard of one rank in a new directory `to`, or a whole pool, from pools that are one
 * (reef_shards_check). All but rows is that of the first source. Every record is checked, and the
 * root of what was made; it appears in place only then.
 *
 * as      the shard to make; NULL: the whole pool
 * to      NULL: only fill `out`
 * Errors: those of reef_store_copy; CORRUPT names the record; INVALID the format of the pool is too
 * old.
 */
REEF_API REEF_MUST_CHECK reef_status reef_shard_make(reef_store *const *sources,
                                                     size_t source_count,
                                                     const reef_shard *as,
                                                     const char *to,
                                                     reef_shard_making *out,
                                                     reef_error *err);

/** Make the pool of one rank at `path`, or in a later round complete it. */
typedef reef_status (*reef_shard_maker)(
    void *context, uint32_t round, uint32_t rank, const char *path, reef_error *err);
/**
 * Make `count` pools NEW/rank-0 and so on, each in as many rounds. They are made in NEW.unfinished,
 * which takes its name when all are on the disk; what a process left there that died is removed
 * first. Errors: those of `make`; BUSY another process makes them; FULL, IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_shards_create(const char *to,
                                                        uint32_t count,
                                                        uint32_t rounds,
                                                        reef_shard_maker make,
                                                        void *context,
                                                        reef_error *err);
/** A number for a new set of shards, which must not be mixed with those of another. IO. */
REEF_API REEF_MUST_CHECK reef_status reef_shard_draw(reef_shard *shard, reef_error *err);

/**
 * Make all shards of `count` ranks, NEW/rank-0 and so on (reef_shards_create), or with `count` 1 a
 * whole pool NEW.
 *
 * dry_run  only fill `out`
 * out      (count)
 * Errors: those of reef_shard_make; BUSY another process makes them; INVALID NEW exists and is not
 * an empty directory, or a shard of an epoch that does not count.
 */
REEF_API REEF_MUST_CHECK reef_status reef_shards_make(reef_store *const *sources,
                                                      size_t source_count,
                                                      uint32_t count,
                                                      const char *to,
                                                      bool dry_run,
                                                      reef_shard_making *out,
                                                      reef_error *err);

/**
 * Undo the last transaction of the pool in directory `path`, which nobody has open for writing. The
 * one before it is whole: LMDB keeps its pages until the next has been written. Once only: then
 * there is no earlier one.
 *
 * Errors: those of reef_store_open; BUSY a writer; INVALID the last transaction was undone already.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_step_back(const char *path, reef_error *err);

#endif
