// The expert pool on disk: one LMDB environment in one directory.
//
// The store knows nothing of neural networks. It holds records: a key (database, generation, layer,
// block, name) and a payload, each with a header that has its checksum. Everything a commit changes
// goes through one write transaction, whose end computes the root hash: equal training has equal
// root hashes, whenever the commits happened.
//
// Here: pools, transactions, copies, records, generations. What is built of records has headers of
// its own: reef_snapshot.h, reef_usage.h, reef_push_journal.h and reef_pool_check.h.
//
// Errors: beside those that a function names, each one with `err` can fail with CORRUPT (a record
// or a page that it reads is damaged, which the message names), IO and NO_MEMORY. Each one that
// changes records can also fail with FULL, as reef_record_put, and with INVALID in a read
// transaction. After FULL or IO a write transaction is good for reef_txn_abort only.
//
// Threads: a store may be shared by any number. A transaction and its views belong to one thread at
// a time; a write transaction stays with the thread that began it.
#ifndef REEF_STORE_H
#define REEF_STORE_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_FORMAT_VERSION 7u      // of pools; those of development versions had 1 to 6
#define REEF_HASH_BYTES 16          // XXH3-128, canonical (big-endian) byte order
#define REEF_NAME_BYTES_MAX 64      // tensor, snapshot and source names, without the final zero
#define REEF_BLOCK_BYTES_MAX 131072 // payload of a block of expert rows: at most 128 KiB
#define REEF_GENERATION_COUNT_MAX 65536u
#define REEF_GENERATION_SIDE_MAX 65536u // sub-keys a side; 2^32 experts, whose ids have 32 bits
#define REEF_READERS_MAX 1024           // read transactions at once, of all processes together
#define REEF_READ_MS_MAX 250u // how long one may keep the writer from reusing pages, where it can
#define REEF_SNAPSHOT_GENERATION 0x80000000u // first pseudo-generation that holds a snapshot's copy

typedef struct reef_store reef_store;
typedef struct reef_txn reef_txn;

// name, in the root hash?  (order is the order on disk and in the root hash; never reorder)
#define REEF_DB_LIST(X)                                                                            \
    X(META, meta, 0)                                                                               \
    X(TENSORS, tensors, 1)                                                                         \
    X(EXPERTS, experts, 1)                                                                         \
    X(MOMENTS, moments, 1)                                                                         \
    X(FLAGS, flags, 1)                                                                             \
    X(USAGE, usage, 1)                                                                             \
    X(GENERATIONS, generations, 1)                                                                 \
    X(SNAPSHOTS, snapshots, 0)                                                                     \
    X(JOURNAL, journal, 0)                                                                         \
    X(TIMELINE, timeline, 0)                                                                       \
    X(SERIES, series, 0)                                                                           \
    X(SUMS, sums, 0)                                                                               \
    X(MEMORY, memory, 0)                                                                           \
    X(VISITS, visits, 0)                                                                           \
    X(TEXT, text, 0)                                                                               \
    X(BLOCKS, blocks, 0)

typedef enum reef_db {
#define REEF_DB_ENUM(upper, lower, hashed) REEF_DB_##upper,
    REEF_DB_LIST(REEF_DB_ENUM)
#undef REEF_DB_ENUM
        REEF_DB_COUNT
} reef_db;

typedef enum reef_dtype {
    REEF_BYTES = 0,
    REEF_F32 = 1,
    REEF_U32 = 2,
    REEF_U64 = 3,
    REEF_JSON = 4,
    REEF_I8 = 5 // rows of experts, each with a scale; the last one
} reef_dtype;

/**
 * Where a record lives. Which fields count depends on the database; the others must be zero:
 *
 *   meta, snapshots            name
 *   tensors, memory            generation, name, block (the part; 0)
 *   experts, flags             generation, layer, block
 *   visits                     generation, layer (the kind), name, block
 *   moments                    generation, and either name (moments of a tensor) or layer and block
 *                              (moments of expert rows); name NULL means the latter
 *   usage                      level (0: totals since the beginning), window (0 of totals, else its
 *                              time), generation, layer, block (of totals as of experts, of windows
 *                              the part)
 *   generations                generation
 *   journal, timeline          sequence (journal: name is the source)
 *   series                     name (the metric), level, sequence (time)
 */
typedef struct reef_key {
    reef_db db;
    uint32_t generation;
    uint32_t layer;
    uint32_t block;
    uint32_t level;
    uint64_t window;
    uint64_t sequence;
    const char *name;
} reef_key;

/** A record's payload inside the map (or, in a write transaction, in LMDB's dirty pages). */
typedef struct reef_view {
    const void *data; // `const`, possibly unaligned for small values: copy out, never cast
    size_t bytes;
    reef_dtype dtype;
    uint64_t commit; // the commit that wrote it
} reef_view;

// ---- opening and making a pool ------------------------------------------------------------------

typedef struct reef_store_options {
    bool create;        // make the directory and an empty pool; REEF_ERR_INVALID when it exists
    bool write;         // take the pool's writer lock; REEF_ERR_BUSY names the holder's pid
    bool damaged;       // for checks: open it although the record of its last commit is damaged
    uint64_t map_bytes; // address space to begin with; 0: 64 GiB, or what is allowed
    // Commits do not wait for the disk. For simulations whose pool nobody needs after a power
    // failure; a store that finds the pool open in this process already syncs as the first one
    // does.
    bool no_sync;
    uint64_t renew_us; // length of a step of its reads in steps; 0: half of REEF_READ_MS_MAX
    uint64_t agree_ms; // how long a read of shards waits until they are of one epoch; 0: a minute
} reef_store_options;

/**
 * Open the pool in directory `path`. A directory that holds the shards of a pool whose rows are
 * divided (reef_shard.h), rank-0 and so on, is opened as that pool, for reading: each read is of
 * one epoch in all of them.
 *
 * Checks before mapping: the directory and data file exist, the file is at least as long as its
 * last page; then: the format version is one of ours, the record of the last commit is sound. Never
 * raises a signal on a damaged file.
 *
 * Errors: NOT_FOUND no such pool; INVALID not a pool, or it exists with `create`; VERSION another
 * format (message has its number and ours); NOT_FOUND, INVALID a shard is missing, stale, of
 * another pool or another rank's, or the shards are to be written; CORRUPT truncated, the last
 * commit's record is damaged, or the databases are not those of the format; BUSY a second writer;
 * IO. Threads: a store may be shared; one thread at a time may hold the write transaction.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_open(reef_store **out,
                                                     const char *path,
                                                     const reef_store_options *options,
                                                     reef_error *err);
REEF_API void reef_store_close(reef_store *store);
REEF_API const char *reef_store_path(const reef_store *store);
/** From how many files the pool is read: 1, or its shards. */
REEF_API uint32_t reef_store_part_count(const reef_store *store);

/**
 * May a pool be made at `path`? INVALID unless nothing is there, an empty directory, or what a
 * process left that died while it made one there, and where the directory above is a pool;
 * NOT_FOUND, IO where no directory can be made.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_check_new(const char *path, reef_error *err);

/**
 * May a file that is not part of a pool be written at `path`? INVALID if its directory is a pool.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_check_output(const char *path, reef_error *err);

/** Change a pool that is open for writing, at a path of its own. */
typedef reef_status (*reef_store_change)(void *context, reef_store *store, reef_error *err);

/**
 * Make an empty pool, which appears in place only after `change`, called once, has succeeded on it.
 *
 * Errors: those of reef_store_open with `create`, and of `change`. After an error nothing is left,
 * and the directory is removed if it was made here.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_create(const char *path,
                                                       reef_store_change change,
                                                       void *context,
                                                       reef_error *err);

// ---- transactions and commits -------------------------------------------------------------------

typedef enum reef_txn_mode {
    REEF_TXN_READ,
    REEF_TXN_WRITE,
    REEF_TXN_READ_RENEWED, // a read of more than one step: see reef_txn_renew
} reef_txn_mode;

/**
 * Begin a transaction. Read transactions are meant to be short: they keep pages from reuse. Slots
 * of readers that were killed are freed whenever a pool is opened and before every write
 * transaction.
 *
 * Errors: BUSY all REEF_READERS_MAX slots are taken (waits a second for one first), a write
 * transaction of this process is running; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_txn_begin(reef_txn **out,
                                                    reef_store *store,
                                                    reef_txn_mode mode,
                                                    reef_error *err);

/**
 * End a read transaction in steps and begin a new one on the last commit, if the step has lasted
 * its time; before that, and in another mode, nothing happens. Views end with a step: this is for
 * sealed generations.
 *
 * renewed  written: whether it did; the reader then has to make sure that what it reads is still
 *          the same
 *
 * Errors: those of reef_txn_begin; the transaction is then only good for reef_txn_abort.
 */
REEF_API REEF_MUST_CHECK reef_status reef_txn_renew(reef_txn *txn, bool *renewed, reef_error *err);

/**
 * Read transactions of this process on a pool that have ended; each step counts as one.
 */
typedef struct reef_read_stat {
    uint64_t count;
    double longest_ms;
} reef_read_stat;
REEF_API void reef_store_read_stat(const reef_store *store, reef_read_stat *out);

/** The pool's file, or those of its shards, as a read transaction sees them. */
typedef struct reef_file_stat {
    uint64_t file_bytes;
    uint64_t free_bytes; // of pages inside it that a later commit may use again
} reef_file_stat;
REEF_API REEF_MUST_CHECK reef_status reef_file_stat_read(reef_txn *txn,
                                                         reef_file_stat *out,
                                                         reef_error *err);

/** Read transactions that run on a pool at this moment, in all processes. */
typedef struct reef_readers {
    uint32_t count;
    uint64_t behind;    // commits since the oldest of them began: their pages are not used again
    int64_t oldest_pid; // who holds it; 0 when none is behind
} reef_readers;
REEF_API REEF_MUST_CHECK reef_status reef_store_readers(reef_store *store,
                                                        reef_readers *out,
                                                        reef_error *err);

/** What a commit is about; `number`, `root` are filled by reef_txn_commit. */
typedef struct reef_commit {
    uint64_t number;       // 1 for the first
    uint64_t step;         // training steps so far
    uint64_t stream_bytes; // position in the stream
    uint64_t unix_ms;      // wall clock; not part of the root hash
    uint8_t root[REEF_HASH_BYTES];
    uint64_t bytes_written; // payload bytes that this commit wrote
} reef_commit;

/** Called by reef_txn_commit; a failure is that of the commit. */
typedef reef_status (*reef_txn_check)(void *context, const reef_commit *commit, reef_error *err);

/**
 * Let `check` see the commit of this write transaction, root and all, when everything is written
 * and nothing is durable or visible yet. It must not use the transaction.
 */
REEF_API void reef_txn_before_commit(reef_txn *txn, reef_txn_check check, void *context);

/**
 * End the write transaction: update `sums`, compute the root hash, write the commit record, sync.
 * Uses the handle up, even when it fails. On failure nothing of the transaction is in the pool.
 *
 * Errors: what a put of this transaction failed with, if one did; FULL the disk (with the bytes
 * free and needed), IO. After a failure the store stays usable: the next transaction may succeed.
 * Threads: the one that began the transaction.
 */
REEF_API REEF_MUST_CHECK reef_status reef_txn_commit(reef_txn *txn,
                                                     reef_commit *commit,
                                                     reef_error *err);
REEF_API void reef_txn_abort(reef_txn *txn); // accepts NULL

/** The last commit as this transaction sees it; NOT_FOUND in a pool without any. */
REEF_API REEF_MUST_CHECK reef_status reef_commit_read(reef_txn *txn,
                                                      reef_commit *out,
                                                      reef_error *err);
/** The same by a transaction of its own. */
REEF_API REEF_MUST_CHECK reef_status reef_store_read_commit(reef_store *store,
                                                            reef_commit *out,
                                                            reef_error *err);

// ---- copies of a pool ---------------------------------------------------------------------------

/**
 * May a copy of the pool at `path` be made at `to`? As reef_store_check_new, and INVALID where `to`
 * lies inside that pool or is empty.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_check_copy(const char *path,
                                                           const char *to,
                                                           reef_error *err);

/**
 * Copy the last commit into a new pool directory `to`: all of its records, free pages left out.
 * Made in a subdirectory and moved into place when it is on the disk, so a `to` with a data file is
 * a whole pool. The copy is opened, and its root hash computed and compared with the source's;
 * reef_store_verify would walk its records as well. Writers, this process's included, can commit
 * meanwhile; until the end, pages of the source are not reused.
 *
 * commit  written: the one that the copy holds, number 0 where the pool has none; may be NULL
 *
 * Errors: INVALID `to` is anything but an empty or missing directory, or lies inside the pool;
 * NOT_FOUND its parent; FULL; CORRUPT; IO; NO_MEMORY. After an error nothing is left in `to`, and
 * it is removed if it was made here. Threads: as reef_txn_begin for a read.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_copy(reef_store *store,
                                                     const char *to,
                                                     reef_commit *commit,
                                                     reef_error *err);

/**
 * reef_store_copy, whose result appears in place only after `change` has succeeded on it.
 *
 * change  called once with the copy, open for writing at a path of its own
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_copy_changed(
    reef_store *store, const char *to, reef_store_change change, void *context, reef_error *err);

// ---- records ------------------------------------------------------------------------------------

/**
 * Write a record. A payload that equals the stored one (same content hash) is not written again.
 * Records of a sealed generation (except its USAGE) are refused with REEF_ERR_INVALID, as are those
 * the store keeps itself (generations, snapshots, and "format" and "commit" in meta).
 *
 * `payload` must not be a view of this transaction: the write may move it.
 *
 * Errors: FULL when the map is full: LMDB cannot enlarge it inside a transaction, so this one is
 * lost, and the next one begins with twice the map. (It is also doubled in time, when less than a
 * quarter is free at the beginning: a transaction of less than that never meets its end.)
 */
REEF_API REEF_MUST_CHECK reef_status reef_record_put(reef_txn *txn,
                                                     const reef_key *key,
                                                     reef_dtype dtype,
                                                     const void *payload,
                                                     size_t bytes,
                                                     reef_error *err);

/**
 * Lend the payload until the transaction ends. Verifies the record's checksum.
 *
 * Errors: NOT_FOUND no such record; CORRUPT names it.
 */
REEF_API REEF_MUST_CHECK reef_status reef_record_view(reef_txn *txn,
                                                      const reef_key *key,
                                                      reef_view *out,
                                                      reef_error *err);

/**
 * Where a payload of exactly `bytes` bytes lies in the map, until the transaction ends; another
 * size is CORRUPT. For data that is larger than memory: neither header nor payload is read, so
 * nothing is verified (reef_store_verify does that). At a multiple of 64 for payloads of a page and
 * more.
 */
REEF_API REEF_MUST_CHECK reef_status reef_record_locate(
    reef_txn *txn, const reef_key *key, size_t bytes, const void **out, reef_error *err);

/** A payload: where it lies, and whether it stays there. */
typedef struct reef_lent {
    const uint8_t *data;
    bool stays;
} reef_lent;

/**
 * Lend a payload of exactly `bytes` bytes, some pages at least, of a record that never changes. It
 * is verified now. It stays, where out->stays, until the last store of this pool in this process is
 * closed, or the record is removed: then other bytes may stand there. Else it is good until the
 * transaction ends, as one that this transaction wrote.
 *
 * Errors: those of reef_record_view; CORRUPT also for another size.
 */
REEF_API REEF_MUST_CHECK reef_status
reef_record_lend(reef_txn *txn, const reef_key *key, size_t bytes, reef_lent *out, reef_error *err);

/**
 * Copy a payload of exactly `bytes` bytes into `out`.
 *
 * Errors: those of reef_record_view; CORRUPT also for another size.
 */
REEF_API REEF_MUST_CHECK reef_status
reef_record_read(reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err);

/**
 * Remove a record; absent is fine.
 *
 * Errors: INVALID of a sealed generation (except its USAGE), or one that the store keeps itself;
 * FULL, as reef_record_put.
 */
REEF_API REEF_MUST_CHECK reef_status reef_record_delete(reef_txn *txn,
                                                        const reef_key *key,
                                                        reef_error *err);

/** Called for each record in key order; a status other than OK ends the walk and is passed on. */
typedef reef_status (*reef_record_visit)(void *context,
                                         const reef_key *key,
                                         const reef_view *view,
                                         reef_error *err);

/**
 * Visit every record of a database (of one generation when `generation` is not UINT32_MAX; INVALID
 * in a database whose keys have none). Each is verified as by reef_record_view. A visit must not
 * write.
 */
REEF_API REEF_MUST_CHECK reef_status reef_record_scan(reef_txn *txn,
                                                      reef_db db,
                                                      uint32_t generation,
                                                      reef_record_visit visit,
                                                      void *context,
                                                      reef_error *err);

/**
 * Remove what is damaged of a database on which nothing depends but what people read of it, such as
 * the history in SERIES; `dropped` is how many records. Errors: CORRUPT: a key is malformed; those
 * of reef_record_delete.
 */
REEF_API REEF_MUST_CHECK reef_status reef_record_drop_damaged(reef_txn *txn,
                                                              reef_db db,
                                                              size_t *dropped,
                                                              reef_error *err);

/** Rows of a block: the largest power of two whose payload is at most REEF_BLOCK_BYTES_MAX. */
REEF_API uint32_t reef_block_rows(size_t row_bytes);

// ---- generations --------------------------------------------------------------------------------

typedef struct reef_generation_record {
    uint32_t generation; // 0 is the first
    uint32_t parent;     // the generation it was opened after (itself for the first)
    uint32_t continues;  // 1 + the kind whose net it is a later part of; 0: it begins a kind
    uint32_t side;       // sub-keys per side; side * side experts in every PEER layer
    uint64_t first_id;   // pool-wide id of its first expert, in every layer
    reef_dtype dtype;    // of expert rows
    bool sealed;
    uint64_t opened_step, sealed_step;
    uint64_t opened_at, sealed_at; // stream positions in bytes
    uint8_t root[REEF_HASH_BYTES]; // of its tensors, experts, flags and memory; zero while open
} reef_generation_record;

/**
 * Write the record of the open generation, or open the next one. INVALID when that would change a
 * sealed generation, leave two open, or say `sealed` (reef_generation_seal does that, with the
 * root).
 */
REEF_API REEF_MUST_CHECK reef_status reef_generation_put(reef_txn *txn,
                                                         const reef_generation_record *generation,
                                                         reef_error *err);
/** Errors: NOT_FOUND no such generation. */
REEF_API REEF_MUST_CHECK reef_status reef_generation_read(reef_txn *txn,
                                                          uint32_t generation,
                                                          reef_generation_record *out,
                                                          reef_error *err);
/** Number of generations; they are 0 .. count - 1, and only the last may be open. */
REEF_API REEF_MUST_CHECK reef_status reef_generation_count(reef_txn *txn,
                                                           uint32_t *out,
                                                           reef_error *err);
/**
 * Seal: drop the generation's moments, compute its root, mark it sealed. From then on
 * reef_record_put refuses its records. `step` and `at` as sealed_step and sealed_at of
 * reef_generation_record.
 *
 * Errors: NOT_FOUND no such generation; INVALID it is sealed already; FULL.
 */
REEF_API REEF_MUST_CHECK reef_status reef_generation_seal(
    reef_txn *txn, uint32_t generation, uint64_t step, uint64_t at, reef_error *err);

/**
 * Remove all records of the open generation but its own, so that it can be written again. INVALID:
 * not open.
 */
REEF_API REEF_MUST_CHECK reef_status reef_generation_clear(reef_txn *txn,
                                                           uint32_t generation,
                                                           reef_error *err);

/**
 * The root of a generation as its records give it: of its tensors, experts, flags and, unless it is
 * a copy's, its memory. CORRUPT.
 */
REEF_API REEF_MUST_CHECK reef_status reef_generation_root(reef_txn *txn,
                                                          uint32_t generation,
                                                          uint8_t out[REEF_HASH_BYTES],
                                                          reef_error *err);

/**
 * Make a pool at `to` of one sealed generation as it was sealed, for reef_trainer_import: its
 * records, the configuration, and what is said of it and of those before it. It is no pool to train
 * or to read.
 *
 * Errors: NOT_FOUND; INVALID it is open, or `to` is there; CORRUPT; FULL; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_generation_extract(reef_store *store,
                                                             uint32_t generation,
                                                             const char *to,
                                                             reef_error *err);

/** The kind whose net it is: the generation that began it, most often itself. */
static inline uint32_t reef_generation_kind(const reef_generation_record *generation) {
    return generation->continues > 0 ? generation->continues - 1 : generation->generation;
}

/** Did a kind begin with it? */
static inline bool reef_generation_begins_kind(const reef_generation_record *generation) {
    return generation->continues == 0;
}

// ---- visits, blocks, events, hashes as text -----------------------------------------------------

#define REEF_VISIT_LIST "kinds" // the name of a holder's list of visits, under kind 0

/**
 * Remove what a holder has of one kind's visits, its list of visits not. In a sealed holder too: no
 * root covers them.
 *
 * dry_run  only count
 * bytes    written; of the records, with their headers
 */
REEF_API REEF_MUST_CHECK reef_status reef_visit_drop(
    reef_txn *txn, uint32_t holder, uint32_t kind, bool dry_run, uint64_t *bytes, reef_error *err);

// Blocks of memories, which states share: see store/blocks.c.
#define REEF_TEXT_LIST "text blocks" // names of blocks of text
#define REEF_SLICE_LIST "slices"     // u64 pairs, the second the number of a block; 0: none
#define REEF_LOG_LIST "log"          // as well
#define REEF_TEXT_HEX_BYTES (2 * REEF_HASH_BYTES + 1)

/** The key of the block of text of that name; `hex`, written, backs its name. */
REEF_API reef_key reef_text_key(const uint8_t name[REEF_HASH_BYTES], char hex[REEF_TEXT_HEX_BYTES]);
/** The key of the block of that number. */
REEF_API reef_key reef_block_key(uint64_t number);

/** The commit that this write transaction is to be. */
REEF_API uint64_t reef_blocks_now(const reef_txn *txn);
/** The last commit whose blocks a snapshot may have copied; 0: none. CORRUPT. */
REEF_API REEF_MUST_CHECK reef_status reef_blocks_shared_to(reef_txn *txn,
                                                           uint64_t *out,
                                                           reef_error *err);
/**
 * Write a block of a list: in place of the one that has *number, or as a new one, whose number is
 * written, where that was born up to commit `shared_to`, or is 0. Errors: as reef_record_put.
 */
REEF_API REEF_MUST_CHECK reef_status reef_block_put(reef_txn *txn,
                                                    uint64_t *number,
                                                    uint64_t shared_to,
                                                    const void *payload,
                                                    size_t bytes,
                                                    reef_error *err);
/** The list names that block no more: it is removed, unless another list may name it. */
REEF_API REEF_MUST_CHECK reef_status reef_block_drop(reef_txn *txn,
                                                     uint64_t number,
                                                     uint64_t shared_to,
                                                     reef_error *err);
/**
 * Remove blocks and text that no list names. Where a list is damaged, nothing is.
 *
 * goes     lists that do not count, by the keys of their records; NULL: all do
 * dry_run  only count
 * bytes    written; of the records, with their headers
 */
REEF_API REEF_MUST_CHECK reef_status reef_blocks_drop_unnamed(reef_txn *txn,
                                                              bool (*goes)(const void *context,
                                                                           const reef_key *list),
                                                              const void *context,
                                                              bool dry_run,
                                                              uint64_t *bytes,
                                                              reef_error *err);

/**
 * Append an event to the timeline: `json` is one JSON object, not part of the root hash.
 *
 * Errors: INVALID `json` is not an object; FULL, as reef_record_put.
 */
REEF_API REEF_MUST_CHECK reef_status reef_timeline_append(reef_txn *txn,
                                                          const char *json,
                                                          reef_error *err);
/** The sequence number that the next event will have: one more than the last one's; from 1. */
REEF_API REEF_MUST_CHECK reef_status reef_timeline_next(reef_txn *txn,
                                                        uint64_t *out,
                                                        reef_error *err);

/** 32 hexadecimal digits and a final zero. */
REEF_API void reef_hash_format(const uint8_t hash[REEF_HASH_BYTES],
                               char out[2 * REEF_HASH_BYTES + 1]);

/**
 * The hash that reef_hash_format wrote as this text; `out` is written if it is one. False: it is
 * not exactly 32 digits 0-9 and a-f, or NULL.
 */
REEF_API bool reef_hash_parse(const char *text, uint8_t out[REEF_HASH_BYTES]);

#endif
