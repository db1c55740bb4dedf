// Shards that are one pool: are they, and what reads all of them as if they were one file. Private
// to the store.
#ifndef REEF_SHARD_VIEW_H
#define REEF_SHARD_VIEW_H

#include "store_internal.h"

/** What shards compare before they count as one pool. */
typedef struct reef_shard_card {
    reef_shard shard; // zero: it is none
    reef_commit commit;
} reef_shard_card;

REEF_MUST_CHECK reef_status reef_shard_card_read(reef_txn *txn,
                                                 reef_shard_card *out,
                                                 reef_error *err);
/**
 * Is the pool at `path` the shard of this rank of the pool that `first` is a shard of?
 *
 * another_epoch  written: it is, but as of another epoch
 * Errors: INVALID and CORRUPT, with its path.
 */
REEF_MUST_CHECK reef_status reef_shard_card_compare(const reef_shard_card *first,
                                                    const reef_shard_card *one,
                                                    size_t rank,
                                                    size_t count,
                                                    const char *path,
                                                    bool *another_epoch,
                                                    reef_error *err);

/** One of the shards that a store reads as one pool. */
struct reef_view_part {
    reef_environment *environment;
    char *path;
};

/** Does the directory hold shards, rank-0 and so on, and is no pool itself? */
bool reef_view_is_at(const char *path);
/** How many shards it has to hold: one of them says so. Errors as reef_view_open's. */
REEF_MUST_CHECK reef_status reef_view_count(const char *path, uint32_t *count, reef_error *err);
/** The directory of one of them, on the heap; NULL when out of memory. */
char *reef_view_shard_path(const char *path, uint32_t rank);
/**
 * Open all shards in the directory for reading. Errors: INVALID one is missing, of another pool,
 * another rank's, stale, or has all rows; those of reef_environment_open.
 */
REEF_MUST_CHECK reef_status reef_view_open(reef_store *store,
                                           const char *path,
                                           const reef_store_options *options,
                                           reef_error *err);
void reef_view_close(reef_store *store); // accepts a store that is no view

/**
 * Begin a read of every shard, all of them as of one epoch. While ranks commit, shards are at two
 * epochs for a moment: it waits until they are at one. Errors: INVALID they stay apart.
 */
REEF_MUST_CHECK reef_status reef_view_begin(reef_txn *txn, reef_error *err);
void reef_view_end(reef_txn *txn);

/** The shard that has the record, of `part_count` of the transaction's store. */
static inline uint32_t reef_view_part_of(const reef_txn *txn, const reef_key *key) {
    if (!reef_shard_divides(key)) return 0;
    return reef_shard_owner(key->layer, key->block, txn->store->part_count);
}

/**
 * A walk over a database in all shards, in the order of keys, each record once. As reef_cursor_open
 * and so on, which call these.
 */
REEF_MUST_CHECK reef_status reef_view_cursor_open(reef_cursor *cursor,
                                                  reef_txn *txn,
                                                  reef_db db,
                                                  const void *from,
                                                  size_t from_bytes,
                                                  reef_error *err);
REEF_MUST_CHECK reef_status reef_view_cursor_next(reef_cursor *cursor,
                                                  reef_txn *txn,
                                                  reef_error *err);
void reef_view_cursor_close(reef_cursor *cursor);

#endif
