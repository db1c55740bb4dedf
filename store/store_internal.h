// What the store's files share: the transaction, raw records, the walk over `sums`. Not for other
// modules.
#ifndef REEF_STORE_INTERNAL_H
#define REEF_STORE_INTERNAL_H

#include "record.h"
#include "reef_shard.h"
#include "reef_snapshot.h"
#include "reef_store.h"

#include <lmdb.h>

// ---- one LMDB environment per pool and process, shared by every open store ----------------------

typedef struct reef_environment reef_environment;

/** A store's wishes, with defaults filled in. */
typedef struct reef_environment_options {
    bool create, write, damaged, no_sync;
    uint64_t map_bytes;
} reef_environment_options;

/**
 * Open the pool's environment, or share the one this process already has. Errors:
 * reef_store_open's.
 */
REEF_MUST_CHECK reef_status reef_environment_open(reef_environment **out,
                                                  const char *path,
                                                  const reef_environment_options *options,
                                                  reef_error *err);
/** Release; `write` as at open. The last one out closes. */
void reef_environment_close(reef_environment *environment, bool write);

const char *reef_environment_path(const reef_environment *environment);
MDB_env *reef_environment_lmdb(const reef_environment *environment);
/** The handle of a database. */
MDB_dbi reef_environment_dbi(const reef_environment *environment, reef_db db);
/**
 * The same bytes at an address that stays until the environment closes. mapped: `bytes` bytes of a
 * committed record of at least a page, in the map of a transaction that runs. NULL: there is no
 * address space.
 */
const uint8_t *reef_environment_lend(reef_environment *environment,
                                     const void *mapped,
                                     size_t bytes);

/**
 * Begin an LMDB transaction. First reopens the environment after a failed commit, and before a
 * write grows the map when less than a quarter of it is free.
 *
 * Errors: BUSY a write transaction of this process is running, no reader slot is free, or other
 * transactions of this process stand in the way of a reopening; IO.
 */
REEF_MUST_CHECK reef_status reef_environment_begin(reef_environment *environment,
                                                   bool write,
                                                   MDB_txn **out,
                                                   reef_error *err);
/** A transaction of this environment has ended. */
void reef_environment_end(reef_environment *environment, bool write);
/** A read transaction of so many nanoseconds has ended. */
void reef_environment_note_read(reef_environment *environment, uint64_t ns);
void reef_environment_read_stat(reef_environment *environment, reef_read_stat *out);
/** A commit failed: LMDB may refuse everything until the environment is reopened. */
void reef_environment_break(reef_environment *environment);
/** The map was full in a transaction: the next write transaction gets a larger one. */
void reef_environment_map_full(reef_environment *environment);

/** reef_lmdb_fail with the pool's path. */
reef_status reef_environment_fail(const reef_environment *environment,
                                  int code,
                                  uint64_t bytes_needed,
                                  const char *doing,
                                  reef_error *err);

// ---- stores, transactions, records --------------------------------------------------------------

typedef struct reef_view_part reef_view_part;
typedef struct reef_view_cursor reef_view_cursor;

struct reef_store {
    reef_environment *environment;
    reef_view_part *parts; // (part_count) owned: the shards that are read as one, shard_view.c
    uint32_t part_count;   // 0: the environment is the pool. Else it is that of rank 0
    uint64_t agree_ms;     // how long to wait until shards are of one epoch
    char *path;            // as it was given
    bool write;
    uint64_t renew_ns; // of reads in steps
};

struct reef_txn {
    reef_store *store;
    reef_environment *environment;
    MDB_txn *lmdb;
    MDB_txn **parts; // owned: one of each of the store's parts, the first is `lmdb`; NULL: no parts
    reef_txn_mode mode;
    uint64_t begun_ns;      // of a monotonic clock: start of a read, or of its present step
    uint64_t commit;        // the number this write transaction will have; 0 in a read
    uint64_t blocks_born;   // in it, see blocks.c
    uint64_t bytes_written; // payload bytes so far
    uint32_t generation_count, sealed_count; // sealed ones are 0 .. sealed_count - 1
    bool hashed_changed;                     // something in the root hash was written or removed
    bool snapshot_unfinished;     // a snapshot of this very commit waits for its number and root
    bool last_damaged;            // the last generation's record, and that is `failure`
    reef_txn_check before_commit; // or NULL
    void *before_context;
    reef_error failure; // of the first write that LMDB refused: nothing is committed then
    // Over how many ranks it is divided, and whose it is: 1 and 0 in a whole pool.
    uint32_t division_count, division_rank;
    reef_shard_exchange exchange; // or NULL
    void *exchange_context;
    uint8_t *changes; // owned: keys of `sums` of divided records that changed, see shard.c
    size_t change_count, change_capacity;
};

/** A cursor over one database; `done` after the last record. Good until the transaction ends. */
typedef struct reef_cursor {
    MDB_cursor *lmdb;
    MDB_val key, value; // of the current record
    bool done;
    reef_view_cursor *view; // owned: of a walk over several shards; NULL: of one
} reef_cursor;

/** Stand on the first record whose key is not below `from` (all when from_bytes is 0). */
REEF_MUST_CHECK reef_status reef_cursor_open(reef_cursor *cursor,
                                             reef_txn *txn,
                                             reef_db db,
                                             const void *from,
                                             size_t from_bytes,
                                             reef_error *err);
REEF_MUST_CHECK reef_status reef_cursor_next(reef_cursor *cursor, reef_txn *txn, reef_error *err);
void reef_cursor_close(reef_cursor *cursor);

/**
 * A walk that may write: it seeks its next record each time, since a cursor does not survive a
 * change of its database.
 */
typedef struct reef_walk {
    reef_db db;
    uint8_t from[REEF_SUM_KEY_BYTES_MAX]; // key to continue from
    size_t from_bytes;
    bool done;
    reef_key key; // of the record that was found, and its bytes with their header
    uint64_t bytes;
    char name[REEF_NAME_BYTES_MAX + 1]; // backs key.name
} reef_walk;

/** The next record, or `done`. CORRUPT: its key is not one of the database. */
REEF_MUST_CHECK reef_status reef_walk_next(reef_walk *walk, reef_txn *txn, reef_error *err);
/** Go on behind a key. */
REEF_MUST_CHECK reef_status reef_walk_pass(reef_walk *walk, const reef_key *key, reef_error *err);

/** reef_record_put and reef_record_delete without the rules on who may write what. */
REEF_MUST_CHECK reef_status reef_record_store(reef_txn *txn,
                                              const reef_key *key,
                                              reef_dtype dtype,
                                              const void *payload,
                                              size_t bytes,
                                              reef_error *err);
REEF_MUST_CHECK reef_status reef_record_remove(reef_txn *txn, const reef_key *key, reef_error *err);

/** Check a record under a cursor, its sum included. `name` backs key->name. */
REEF_MUST_CHECK reef_status reef_record_verify(reef_txn *txn,
                                               reef_db db,
                                               const reef_cursor *cursor,
                                               reef_key *key,
                                               char name[REEF_NAME_BYTES_MAX + 1],
                                               reef_view *view,
                                               reef_error *err);

/** The same without reading the payload: its header against the entry in sums. `key` as decoded. */
REEF_MUST_CHECK reef_status reef_record_verify_header(reef_txn *txn,
                                                      const reef_cursor *cursor,
                                                      const reef_key *key,
                                                      reef_view *view,
                                                      reef_error *err);
/** What sums has of a record, there or not. NOT_FOUND no entry; CORRUPT one of a wrong length. */
REEF_MUST_CHECK reef_status reef_sum_read(reef_txn *txn,
                                          const reef_key *key,
                                          uint64_t *commit,
                                          uint8_t content[REEF_HASH_BYTES],
                                          reef_error *err);

/** The same of an entry of another rank's record: written, or removed. */
REEF_MUST_CHECK reef_status reef_sum_write(reef_txn *txn,
                                           const uint8_t *sum_key,
                                           size_t sum_key_bytes,
                                           const uint8_t *content, // NULL: remove it
                                           reef_error *err);

/** The error of who asks for such a record. */
reef_status reef_shard_fail_elsewhere(const reef_txn *txn, const reef_key *key, reef_error *err);
#define REEF_CHANGE_KEY_BYTES 46                                        // of `sums`, at most
#define REEF_CHANGE_BYTES (2 + REEF_CHANGE_KEY_BYTES + REEF_HASH_BYTES) // see shard.c
/** A divided record of this shard was written or removed. */
REEF_MUST_CHECK reef_status reef_shard_note(reef_txn *txn,
                                            const reef_key *key,
                                            const reef_key_bytes *encoded,
                                            reef_error *err);
/** Exchange what changed since the last call; INVALID if there is nobody to exchange it with. */
REEF_MUST_CHECK reef_status reef_shard_settle(reef_txn *txn, reef_error *err);
/** Of what changes the divided part of the shard at `path` by itself: INVALID, and what to do. */
REEF_MUST_CHECK reef_status reef_shard_refuse_change(const char *path,
                                                     uint32_t rank,
                                                     uint32_t count,
                                                     reef_error *err);

/** Remember the first failure of a write transaction and pass its status on. */
reef_status reef_txn_failed(reef_txn *txn,
                            reef_status status,
                            const reef_error *reason,
                            reef_error *err);
/** INVALID unless this is a write transaction that can still commit. */
REEF_MUST_CHECK reef_status reef_txn_writable(const reef_txn *txn, reef_error *err);

/** Key and bytes of the record of the last commit; reef_commit_read reads it. */
extern const reef_key reef_commit_key;
void reef_commit_encode(const reef_commit *commit, uint8_t out[REEF_COMMIT_BYTES]);

/**
 * The greatest first field (u32) below `limit` of a database's keys; NOT_FOUND (silent) when none.
 */
REEF_MUST_CHECK reef_status
reef_db_last_u32(reef_txn *txn, reef_db db, uint32_t limit, uint32_t *out, reef_error *err);

/**
 * Fill generation_count and sealed_count from the pool. CORRUPT with both filled, the last
 * generation as an open one, when only its record is damaged.
 */
REEF_MUST_CHECK reef_status reef_txn_generations_load(reef_txn *txn, reef_error *err);
/** Write a generation's record, without the rules of reef_generation_put. */
REEF_MUST_CHECK reef_status reef_generation_store(reef_txn *txn,
                                                  const reef_generation_record *generation,
                                                  reef_error *err);
/** Remove a generation or a snapshot's copy: all that it holds, and its record. */
REEF_MUST_CHECK reef_status reef_generation_remove(reef_txn *txn,
                                                   uint32_t generation,
                                                   reef_error *err);
/**
 * Copy a generation to a pseudo-generation, with its usage and, of the open one, moments: all
 * that training needs. The copy's record has the copy's root.
 */
REEF_MUST_CHECK reef_status reef_generation_copy(reef_txn *txn,
                                                 uint32_t generation,
                                                 uint32_t copy,
                                                 reef_error *err);
/** And back, to a number under which nothing lies. */
REEF_MUST_CHECK reef_status reef_generation_copy_back(reef_txn *txn,
                                                      uint32_t copy,
                                                      uint32_t generation,
                                                      reef_error *err);
/**
 * Keep read positions of live sources, the scheduler's state and known batch ids for the snapshot
 * with this copy of the open generation; 0: none.
 */
REEF_MUST_CHECK reef_status reef_offsets_keep(reef_txn *txn, uint32_t copy, reef_error *err);
/** The snapshot goes. */
REEF_MUST_CHECK reef_status reef_offsets_drop(reef_txn *txn, uint32_t copy, reef_error *err);
/**
 * They stand where the snapshot has them; those that it does not have stand nowhere. Ids:
 * reef_journal_move.
 */
REEF_MUST_CHECK reef_status reef_offsets_restore(reef_txn *txn, uint32_t copy, reef_error *err);
/** Whether a record is one of those: of the journal, and not of a source that is pushed into. */
bool reef_snapshot_offsets_has(const reef_key *key);
/** The copy whose snapshot such a record belongs to; 0: to none. */
uint32_t reef_snapshot_offsets_copy(const reef_key *key);
/**
 * reef_snapshot_create that shares at most `shared_max` sealed generations and copies the others.
 */
REEF_MUST_CHECK reef_status reef_snapshot_make(
    reef_txn *txn, const char *name, uint32_t shared_max, reef_snapshot *out, reef_error *err);
/** Give snapshots made in this transaction the commit they belong to. */
REEF_MUST_CHECK reef_status reef_snapshots_finish(reef_txn *txn,
                                                  const reef_commit *commit,
                                                  reef_error *err);

/** A sealed generation as it was sealed, and what is said of those before it, into another pool. */
REEF_MUST_CHECK reef_status reef_generation_copy_into(reef_txn *from,
                                                      uint32_t generation,
                                                      reef_txn *into,
                                                      reef_error *err);

/** The text and the blocks that the memory of a generation names, into another pool. */
REEF_MUST_CHECK reef_status reef_blocks_copy_into(reef_txn *from,
                                                  uint32_t generation,
                                                  reef_txn *into,
                                                  reef_error *err);

/** The root hash of the whole pool as the transaction sees it; uses step and stream_bytes. */
REEF_MUST_CHECK reef_status reef_root_hash(reef_txn *txn,
                                           uint64_t step,
                                           uint64_t stream_bytes,
                                           uint8_t out[REEF_HASH_BYTES],
                                           reef_error *err);

#endif
