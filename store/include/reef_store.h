// The expert pool on disk: one LMDB environment in one directory.
//
// The store knows nothing of neural networks. It holds records: a key (database, generation, layer,
// block, name) and a payload, each with a header that has its checksum. Everything a commit changes
// goes through one write transaction, whose end computes the root hash: equal training has equal
// root hashes, whenever the commits happened.
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

#define REEF_FORMAT_VERSION 3u       // of new pools
#define REEF_FORMAT_VERSION_FIRST 1u // the oldest one that is read and written
#define REEF_HASH_BYTES 16           // XXH3-128, canonical (big-endian) byte order
#define REEF_NAME_BYTES_MAX 64       // tensor, snapshot and source names, without the final zero
#define REEF_BLOCK_BYTES_MAX 131072  // payload of a block of expert rows: at most 128 KiB
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
    X(RESERVOIR, reservoir, 1)                                                                     \
    X(JOURNAL, journal, 0)                                                                         \
    X(TIMELINE, timeline, 0)                                                                       \
    X(SERIES, series, 0)                                                                           \
    X(SUMS, sums, 0)                                                                               \
    X(MEMORY, memory, 0)                                                                           \
    X(VISITS, visits, 0)

typedef enum reef_db {
#define REEF_DB_ENUM(upper, lower, hashed) REEF_DB_##upper,
    REEF_DB_LIST(REEF_DB_ENUM)
#undef REEF_DB_ENUM
        REEF_DB_COUNT
} reef_db;

typedef enum reef_dtype {
    REEF_BYTES = 0,
    REEF_F32 = 1,
    REEF_BF16 = 2,
    REEF_U32 = 3,
    REEF_U64 = 4,
    REEF_JSON = 5
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
 *   reservoir                  block (the slot)
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
} reef_store_options;

/**
 * Open the pool in directory `path`.
 *
 * Checks before mapping: the directory and data file exist, the file is at least as long as its
 * last page; then: the format version is one of ours, the record of the last commit is sound. Never
 * raises a signal on a damaged file.
 *
 * Errors: NOT_FOUND no such pool; INVALID not a pool, or it exists with `create`; VERSION another
 * format (message has its number and ours); CORRUPT truncated, the last commit's record is damaged,
 * or the databases are not those of the format; BUSY a second writer; IO. Threads: a store may be
 * shared; one thread at a time may hold the write transaction.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_open(reef_store **out,
                                                     const char *path,
                                                     const reef_store_options *options,
                                                     reef_error *err);
REEF_API void reef_store_close(reef_store *store);
REEF_API const char *reef_store_path(const reef_store *store);

/**
 * The format version of the pool, REEF_FORMAT_VERSION_FIRST to REEF_FORMAT_VERSION; it never
 * changes. A pool of format 1 has no database `memory`: it reads as empty, and writes to it are
 * INVALID. All else is the same.
 */
REEF_API uint32_t reef_store_format(const reef_store *store);

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

/** The pool's file, as a read transaction sees it. */
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
 * Write a record. A payload that equals the stored one (same content hash) is not written again.
 * Records of a sealed generation (except its USAGE) are refused with REEF_ERR_INVALID, as are those
 * the store keeps itself (generations, snapshots, and "format" and "commit" in meta), and those of
 * MEMORY in a pool of format 1.
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

/** Rows of a block: the largest power of two whose payload is at most REEF_BLOCK_BYTES_MAX. */
REEF_API uint32_t reef_block_rows(size_t row_bytes);

typedef struct reef_generation_record {
    uint32_t generation; // 0 is the first
    uint32_t parent;     // the generation it was opened after (itself for the first)
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
 * The root that a generation has, from its records one by one, wherever they come from: first those
 * of TENSORS, then of EXPERTS, of FLAGS and of MEMORY, each in the order of their keys.
 */
typedef struct reef_generation_hash reef_generation_hash;
REEF_API REEF_MUST_CHECK reef_status reef_generation_hash_new(reef_generation_hash **out,
                                                              reef_error *err);
REEF_API void reef_generation_hash_free(reef_generation_hash *hash); // accepts NULL
/** Add the next record. INVALID as by reef_record_put, for a key that is none. */
REEF_API REEF_MUST_CHECK reef_status reef_generation_hash_add(reef_generation_hash *hash,
                                                              const reef_key *key,
                                                              reef_dtype dtype,
                                                              const void *payload,
                                                              size_t bytes,
                                                              reef_error *err);
/** The root of what was added so far. */
REEF_API void reef_generation_hash_root(const reef_generation_hash *hash,
                                        uint8_t out[REEF_HASH_BYTES]);

/**
 * Was it consolidated into a later one? It keeps its number and its offset in the stream, and
 * computes nothing.
 */
static inline bool reef_generation_is_empty(const reef_generation_record *generation) {
    return generation->side == 0;
}

/**
 * Give up the sealed generations first .. last for one new one, `last`. Their tensors, experts,
 * flags, memory and usage are removed; those before `last` stay as numbers without content (side 0,
 * sealed, the root of nothing). Then write the new one as if it were open: this transaction can
 * commit once it is sealed. Generations after `last` are not touched.
 *
 * Errors: INVALID the range is not of sealed generations from 1 on, or a snapshot shares one of
 * them.
 */
REEF_API REEF_MUST_CHECK reef_status reef_generations_replace(reef_txn *txn,
                                                              uint32_t first,
                                                              uint32_t last,
                                                              reef_error *err);

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

typedef struct reef_snapshot {
    char name[REEF_NAME_BYTES_MAX + 1];
    uint64_t commit, step, stream_bytes, unix_ms;
    uint8_t root[REEF_HASH_BYTES]; // root hash of the commit it was made from
    uint32_t sealed_count;         // sealed generations of the state: 0 .. sealed_count - 1
    uint32_t shared_count; // it shares the first ones with the pool, and holds copies of the rest
    uint32_t open_generation; // the generation that was open (== sealed_count)
    uint32_t copy;            // pseudo-generation that holds the copy of the open one
    uint32_t kept; // the same of generation shared_count, and so on; 0: all sealed ones are shared
    bool exact;    // the copy has moments, usage and reservoir too: training continues exactly
    // of a scan: its record cannot be read, only `name` is known; it may need all that is sealed
    bool damaged;
} reef_snapshot;

/** Under which number the records of generation 0 .. sealed_count of a snapshot's state lie. */
REEF_API uint32_t reef_snapshot_records(const reef_snapshot *snapshot, uint32_t generation);

/**
 * Lend usage (level 0, window 0) of a block of experts: of the pool, or of a snapshot's copy.
 * Errors: NOT_FOUND also in a copy of a snapshot that is not exact.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_usage_view(reef_txn *txn,
                                                              uint32_t records,
                                                              uint32_t layer,
                                                              uint32_t block,
                                                              reef_view *out,
                                                              reef_error *err);

/**
 * Make a snapshot inside a write transaction: copies tensors, experts, flags, moments, memory,
 * usage and the generation record of the open generation, and the reservoir, to a fresh
 * pseudo-generation; sealed ones are shared. INVALID when the name is taken or not
 * [A-Za-z0-9][A-Za-z0-9._-]{0,63}, parses as an unsigned number (numbers name generations) or is
 * "now". The root hash does not change.
 *
 * Commit first: the snapshot is then of the last commit (NOT_FOUND if nothing was committed). When
 * this transaction has already changed something that is hashed, the snapshot is of the commit that
 * it becomes; step, root and times are filled in by reef_txn_commit, not in `out`. `copy` is 0 when
 * no generation is open; the copy's generation record holds the copy's root.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_create(reef_txn *txn,
                                                          const char *name,
                                                          reef_snapshot *out,
                                                          reef_error *err);
/**
 * May a snapshot be called that? INVALID as of reef_snapshot_create; whether it is taken is another
 * question.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_name_check(const char *name, reef_error *err);
/** Errors: NOT_FOUND no snapshot has exactly this name; CORRUPT its record is damaged. */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_read(reef_txn *txn,
                                                        const char *name,
                                                        reef_snapshot *out,
                                                        reef_error *err);
/**
 * The snapshot called `name`, or the only one whose name begins with it.
 * Errors: NOT_FOUND; INVALID several do, which the message lists; CORRUPT its record is damaged.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_find(reef_txn *txn,
                                                        const char *name,
                                                        reef_snapshot *out,
                                                        reef_error *err);
/**
 * Remove a snapshot and the copies it holds; NOT_FOUND. The root hash does not change. One whose
 * record is damaged goes too, with the copies that no other snapshot holds; while another one is
 * damaged, they may be of that one, and stay.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_remove(reef_txn *txn,
                                                          const char *name,
                                                          reef_error *err);
typedef reef_status (*reef_snapshot_visit)(void *context,
                                           const reef_snapshot *snapshot,
                                           reef_error *err);
/** Visit all snapshots in the order of names, those whose record is damaged as well (`damaged`). */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_scan(reef_txn *txn,
                                                        reef_snapshot_visit visit,
                                                        void *context,
                                                        reef_error *err);

// ---- usage over time ----------------------------------------------------------------------------

#define REEF_USAGE_SEGMENT 65536u // experts of one layer that share a record of a window

// Levels of usage. The totals stand in the root hash; windows, which depend on the clock, never do.
enum {
    REEF_USAGE_TOTALS = 0, // since the beginning, in blocks of the caller's; window 0
    REEF_USAGE_DELTAS = 1, // since the commit before; window: the time of the commit, unix ms
    REEF_USAGE_HOURS = 2,  // window: the hour's beginning
    REEF_USAGE_DAYS = 3,   // window: the day's beginning, UTC
    REEF_USAGE_LEVELS = 4
};

/**
 * Write the totals of one layer, and what they grew by since they were written last as a delta.
 *
 * block_rows  experts of a record of totals: a power of two up to REEF_USAGE_SEGMENT
 * totals      (expert_count, 2) how often each expert was chosen and its score, since the beginning
 * unix_ms     the wall clock: names the delta's window and decides nothing else
 *
 * Errors: INVALID block_rows, fewer experts than before, or a total that fell; reef_record_put's.
 */
REEF_API REEF_MUST_CHECK reef_status reef_usage_put(reef_txn *txn,
                                                    uint32_t generation,
                                                    uint32_t layer,
                                                    uint32_t block_rows,
                                                    size_t expert_count,
                                                    const uint64_t *totals,
                                                    uint64_t unix_ms,
                                                    reef_error *err);

/** What one expert was used since the commit before. */
typedef struct reef_usage_use {
    uint32_t expert; // within its layer
    uint64_t count, score;
} reef_usage_use;

/**
 * Write a delta alone, for who writes the totals with reef_record_put. A delta of the same time is
 * added to. INVALID unless `uses` (count) rise by expert.
 */
REEF_API REEF_MUST_CHECK reef_status reef_usage_add(reef_txn *txn,
                                                    uint32_t generation,
                                                    uint32_t layer,
                                                    size_t count,
                                                    const reef_usage_use *uses,
                                                    uint64_t unix_ms,
                                                    reef_error *err);

/** A range of time, and what of it is known. Times are unix ms. */
typedef struct reef_usage_range {
    uint64_t since_ms, until_ms; // asked for: since <= t < until
    uint64_t from_ms, to_ms;     // written: times of the first and the last commit that counted
    uint64_t windows;            // written: records that counted; 0: the two above are zero
    uint64_t known_ms;           // written: the layer's oldest window; 0 if it has none
} reef_usage_range;

/**
 * Add to `sums` (expert_count, 2) what the windows hold of one layer whose commits touch a range. A
 * window counts as a whole. Over all time (0 to UINT64_MAX) the totals less these sums are what was
 * used before the oldest window.
 *
 * Errors: CORRUPT names the record.
 */
REEF_API REEF_MUST_CHECK reef_status reef_usage_sum(reef_txn *txn,
                                                    uint32_t generation,
                                                    uint32_t layer,
                                                    size_t expert_count,
                                                    reef_usage_range *range,
                                                    uint64_t *sums,
                                                    reef_error *err);

/**
 * When each expert of a layer was used last, as far as the windows tell: the time of the last
 * commit of the latest window that names it, so to the commit for an hour, then to the hour, then
 * to the day.
 *
 * last_ms  (expert_count) written; unix ms, 0 for experts that no window names
 *
 * Errors: CORRUPT names the record.
 */
REEF_API REEF_MUST_CHECK reef_status reef_usage_last(reef_txn *txn,
                                                     uint32_t generation,
                                                     uint32_t layer,
                                                     size_t expert_count,
                                                     uint64_t *last_ms,
                                                     reef_error *err);

typedef struct reef_usage_level_stat {
    uint64_t windows, records;
    uint64_t bytes; // with keys, headers and entries in sums, without what pages leave empty
    uint64_t first_ms, last_ms; // windows
} reef_usage_level_stat;

typedef struct reef_usage_stat {
    reef_usage_level_stat levels[REEF_USAGE_LEVELS];
    uint64_t experts; // that have totals, in all layers
} reef_usage_stat;

/** Count the records of usage, of all generations and layers. Reads keys only. */
REEF_API REEF_MUST_CHECK reef_status reef_usage_survey(reef_txn *txn,
                                                       reef_usage_stat *out,
                                                       reef_error *err);
/**
 * Bytes that a level is kept within; the finest windows are merged early rather than exceed them.
 */
REEF_API uint64_t reef_usage_bytes_max(uint32_t level, uint64_t experts);

typedef struct reef_usage_compaction {
    uint64_t merged;  // records of deltas and hours that went into coarser ones
    uint64_t dropped; // records of days: what they held is known in the totals only
} reef_usage_compaction;

/**
 * One bounded step of compaction as part of a write transaction: merge deltas into hours, hours
 * into days, or drop days. Nothing in `out` when there is nothing to do. Sums are conserved, the
 * root hash stays.
 *
 * unix_ms  the wall clock; when it went back, less is old enough
 *
 * Errors: CORRUPT names the record of a window; FULL, as reef_record_put.
 */
REEF_API REEF_MUST_CHECK reef_status reef_usage_compact(reef_txn *txn,
                                                        uint64_t unix_ms,
                                                        reef_usage_compaction *out,
                                                        reef_error *err);
/** Is there something for reef_store_compact to do? Errors: those of reef_txn_begin for a read. */
REEF_API REEF_MUST_CHECK reef_status reef_store_compact_due(reef_store *store,
                                                            uint64_t unix_ms,
                                                            bool *out,
                                                            reef_error *err);
/**
 * The same step as a transaction of its own, with step and position of the last commit. Call it
 * until `out` is zero.
 *
 * commit  written when something was done; may be NULL
 *
 * Errors: those of reef_txn_begin, reef_usage_compact and reef_txn_commit.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_compact(reef_store *store,
                                                        uint64_t unix_ms,
                                                        reef_usage_compaction *out,
                                                        reef_commit *commit,
                                                        reef_error *err);
/** What going back to a snapshot takes away. */
typedef struct reef_restore_plan {
    reef_snapshot snapshot;
    uint32_t generation_count; // of the pool as it is
    uint32_t sealed_gone;      // sealed generations from snapshot.shared_count on
    size_t needy_count; // other snapshots that share one of these, or whose record is damaged,
    char needy[REEF_NAME_BYTES_MAX + 1]; // and the first of them
    bool needy_damaged;                  // whose record is damaged
} reef_restore_plan;

/** Errors: those of reef_snapshot_find. */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_restore_plan(reef_txn *txn,
                                                                const char *name,
                                                                reef_restore_plan *plan,
                                                                reef_error *err);

/**
 * Make the state of a snapshot the pool's, inside a write transaction that has changed nothing
 * else: its generations, and where it is exact also moments, usage and reservoir, so that the root
 * hash is that of the commit the snapshot is of (CORRUPT when it is not; commit with the snapshot's
 * step and stream_bytes). Where it is not, the open generation has neither moments nor usage, and
 * the reservoir is left alone. Live sources are at their positions of that time, and the scheduler
 * continues with the same queue. Meta, timeline, series and the rest of the journal stay as they
 * are (see reef_journal_move). The snapshot itself stays.
 *
 * keep_as  keep the present state as a snapshot of that name, with copies of the sealed generations
 *          that go; NULL: not at all, and snapshots that need one of these, or whose record is
 *          damaged, are removed
 * plan     written: what was done
 *
 * Errors: NOT_FOUND; INVALID with keep_as: it cannot be a name, or a snapshot needs what would go;
 * FULL.
 */
REEF_API REEF_MUST_CHECK reef_status reef_snapshot_restore(
    reef_txn *txn, const char *name, const char *keep_as, reef_restore_plan *plan, reef_error *err);

/**
 * reef_store_copy, whose result appears in place only after `change` has succeeded on it.
 *
 * change  called once with the copy, open for writing at a path of its own
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_copy_changed(
    reef_store *store, const char *to, reef_store_change change, void *context, reef_error *err);

/**
 * Append an event to the timeline: `json` is one JSON object, not part of the root hash.
 *
 * Errors: INVALID `json` is not an object; FULL, as reef_record_put.
 */
REEF_API REEF_MUST_CHECK reef_status reef_timeline_append(reef_txn *txn,
                                                          const char *json,
                                                          reef_error *err);

// ---- the journal: what clients pushed -----------------------------------------------------------

#define REEF_PUSH_PREFIX "push:"   // the name of a source that is pushed into begins so
#define REEF_JOURNAL_IDS_MAX 1024u // last batches of a source whose ids are known, trained or not
#define REEF_JOURNAL_ID_BYTES_MAX 128u // of one id
#define REEF_JOURNAL_BATCH_BYTES_MAX (1u << 20)
#define REEF_JOURNAL_ENTRY_BYTES 256u // what a batch counts for against bytes_max, beside its bytes

/** Bytes that a client pushed. They stay the caller's. */
typedef struct reef_journal_batch {
    const char *source; // its name, REEF_PUSH_PREFIX and more
    uint64_t cursor; // of the trainer: where the source's journal begins when it has no entry yet
    uint64_t bytes_max; // the batch is refused when more would wait for training than so many
    const uint8_t *bytes;
    size_t count;   // 1 to REEF_JOURNAL_BATCH_BYTES_MAX
    const char *id; // up to REEF_JOURNAL_ID_BYTES_MAX; NULL or "": none
    uint64_t unix_ms;
    // the answer
    reef_error error; // OK; INVALID sizes, or an id that other bytes had; BUSY bytes_max
    bool duplicate; // a batch of this id and these bytes was journalled before: nothing was written
    bool trained; // BUSY, and the cursor has passed all that waits: a commit of training makes room
    // In the source, of the byte after the batch, or after the one before; of one that was trained
    // before a snapshot was restored, some position that the cursor has passed.
    uint64_t position;
} reef_journal_batch;

/**
 * Journal the batches in their order, all in one transaction of its own, with step and position of
 * the last commit. The reason why a batch is refused is its own `error`; the others are stored.
 *
 * commit  written when something was; may be NULL
 *
 * Errors (nothing is journalled): FULL, IO, CORRUPT, those of reef_txn_begin. The root hash does
 * not change.
 */
REEF_API REEF_MUST_CHECK reef_status reef_journal_append(reef_store *store,
                                                         reef_journal_batch *batches,
                                                         size_t batch_count,
                                                         reef_commit *commit,
                                                         reef_error *err);

/**
 * The bytes of a source from `position` on, as many as wait and fit, in a read transaction of its
 * own.
 *
 * bytes  (room) written
 * count  written; 0: nothing waits
 *
 * Errors: CORRUPT an entry is damaged, or does not reach back to `position`, or ends before it.
 */
REEF_API REEF_MUST_CHECK reef_status reef_journal_read(reef_store *store,
                                                       const char *source,
                                                       uint64_t position,
                                                       uint8_t *bytes,
                                                       size_t room,
                                                       size_t *count,
                                                       reef_error *err);

/**
 * Remove the bytes of entries that lie wholly before `cursor`, as part of a write transaction: the
 * one that commits this cursor. Of the last REEF_JOURNAL_IDS_MAX entries all but the bytes stays. A
 * source without a journal is fine.
 *
 * Errors: CORRUPT names the entry; FULL, as reef_record_put.
 */
REEF_API REEF_MUST_CHECK reef_status reef_journal_trim(reef_txn *txn,
                                                       const char *source,
                                                       uint64_t cursor,
                                                       reef_error *err);

/**
 * The trainer's cursor of a source has gone from `from` to `to` without training: a snapshot was
 * restored.
 *
 * Ids are known then of batches that the snapshot's state has as a whole, and of those that wait.
 * Batches that the journal still holds, and the state does not have, are trained at `to`: neither
 * lost nor trained twice.
 *
 * snapshot  that was restored; NULL, or made before snapshots kept ids: what is there now stands
 *           in, and where the pool was restored before, some ids are known that should not be, or
 *           the other way round
 *
 * Errors: CORRUPT the journal was never read so far; the list of ids is damaged.
 */
REEF_API REEF_MUST_CHECK reef_status reef_journal_move(reef_txn *txn,
                                                       const char *source,
                                                       const reef_snapshot *snapshot,
                                                       uint64_t from,
                                                       uint64_t to,
                                                       reef_error *err);

/** A source's journal. Positions are the source's; zero where it has no entry. */
typedef struct reef_journal_stat {
    uint64_t entries;       // that wait, wholly or in part
    uint64_t begin, end;    // of what they hold
    uint64_t entries_known; // with those whose id alone is left
    uint64_t last_ms;       // when the last one was accepted
} reef_journal_stat;

REEF_API REEF_MUST_CHECK reef_status reef_journal_survey(reef_txn *txn,
                                                         const char *source,
                                                         reef_journal_stat *out,
                                                         reef_error *err);

// ---- checking -----------------------------------------------------------------------------------

typedef struct reef_check_report {
    uint64_t records, bytes; // checked
    uint64_t damaged;        // findings; each was reported by a call of `on_damage`
    uint64_t generations, snapshots, commits;
    uint64_t file_bytes, used_bytes;
    uint8_t root[REEF_HASH_BYTES];
    uint64_t sealed_records, sealed_bytes; // of sealed generations and of copies in snapshots,
    uint64_t hashed_records, hashed_bytes; // and of those the ones whose payload was hashed
    uint64_t usage_windows;                // records of windows that were summed up
    uint64_t pages, pages_used, pages_free;
    uint64_t pages_lost;    // neither used nor free: nothing reads them, and nothing will
    uint64_t reads;         // transactions that it took, and
    double longest_read_ms; // the longest that this process held on the pool
} reef_check_report;

/**
 * What one damaged record is, and where its content can be had. Made by a check with `on_repair`.
 */
typedef struct reef_repair {
    char what[256]; // as reported to on_damage
    reef_key key;   // of the record; its name, where it has one, is in `name`
    char name[REEF_NAME_BYTES_MAX + 1];
    uint32_t generation; // to whose state it belongs; of a copy, the generation that was copied
    bool sealed; // that generation is sealed, or the record lies in a copy: it never changes
    char snapshot[REEF_NAME_BYTES_MAX + 1]; // whose copy it lies in; "" for the pool's own
    bool intact; // its bytes are as they were written; its entry in sums is damaged or lost
    bool stale;  // its bytes are an earlier commit's: the last change of it was lost
    uint64_t commit, commit_lost;       // of a stale one: which it is of, which it should be of
    bool identical;                     // the same bytes lie elsewhere in the pool, proved by the
    uint32_t identical_generation;      // content hash in sums: under this number,
    char twin[REEF_NAME_BYTES_MAX + 1]; // in the copy of this snapshot ("": of the pool's own)
    char restore[REEF_NAME_BYTES_MAX + 1]; // the newest snapshot whose whole state is sound, and
    uint64_t restore_commit;               // without this record; "" if there is none
    uint64_t restore_stream_bytes;         // offset in the stream from which training would
                                           // continue
    bool restore_exact;                    // it would continue to the same bits
} reef_repair;

typedef struct reef_check_options {
    bool quick;    // hash no payload of what is sealed
    double sample; // share of the sealed records whose payload is hashed, (0, 1); 0: all
    uint64_t seed; // chooses the sample: the same seed, the same records
    /** Further checks of the same pool in the same transaction; may be NULL. */
    reef_status (*also)(reef_txn *txn,
                        void (*on_damage)(void *context, const reef_key *key, const char *what),
                        void *context,
                        reef_error *err);
    void (*on_damage)(void *context, const char *what);          // may be NULL
    void (*on_repair)(void *context, const reef_repair *repair); // after all; NULL: no plan
    void (*on_whole)(void *context, uint32_t generation);        // a sealed one that is sound
    void *context;                                               // of the three
} reef_check_options;

/**
 * Walk everything: LMDB's trees and free list page by page, every record's header and checksum,
 * `sums` against the records, the root hash of the last commit and of each sealed generation,
 * references of snapshots, usage over time against the totals. Continues after damage. `on_damage`
 * (may be NULL) receives one line naming the record and what is wrong.
 *
 * Pages are walked in one read transaction, all else in steps, each on the last commit then;
 * `commits` and `root` of the report belong to the commit whose root hash was computed.
 *
 * Returns OK also if damage was found (see `damaged`); CORRUPT if the walk could not continue. A
 * truncated map raises SIGBUS: call reef_store_verify to be safe from that.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_check(reef_store *store,
                                                      void (*on_damage)(void *context,
                                                                        const char *what),
                                                      void *context,
                                                      reef_check_report *report,
                                                      reef_error *err);
/**
 * The same with options. What is not sealed is always hashed; of a sealed record that is not, the
 * header is checked against `sums`. For the first 1,000 damaged records there is a plan, which
 * takes one transaction for the whole check: what it names lies in one state.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_check_with(reef_store *store,
                                                           const reef_check_options *options,
                                                           reef_check_report *report,
                                                           reef_error *err);

/**
 * reef_store_check in a child process: a signal there becomes REEF_ERR_CORRUPT here. Opens `path`.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_verify(const char *path,
                                                       void (*on_damage)(void *context,
                                                                         const char *what),
                                                       void *context,
                                                       reef_check_report *report,
                                                       reef_error *err);
/** reef_store_check_with in a child process; `also` runs there. */
REEF_API REEF_MUST_CHECK reef_status reef_store_verify_with(const char *path,
                                                            const reef_check_options *options,
                                                            reef_check_report *report,
                                                            reef_error *err);

// ---- checking beside everything else ------------------------------------------------------------

#define REEF_SCRUB_KEY_BYTES 96

/** How far the check of sealed records has come: passes over all of them, one after the other. */
typedef struct reef_scrub {
    uint64_t passes;  // complete ones
    uint64_t last_ms; // end of the last complete one, unix ms; 0: none
    uint64_t last_records, last_bytes, last_damaged; // what it saw and found
    uint64_t began_ms;                               // the present one; 0: not begun
    uint64_t records, bytes, damaged;                // what it has seen and found so far
    uint8_t next[REEF_SCRUB_KEY_BYTES];              // the key from which it continues, as in
                                                     // `sums`
    size_t next_bytes;                               // 0: from the beginning
} reef_scrub;

/**
 * Read and check the next records of sealed generations and of copies in snapshots, until
 * `bytes_max` bytes or all of them have been read: the next call then starts again. The file is
 * read, not the map, so bad pages and a disk that fails are findings and raise no signal.
 *
 * scrub    read and written; zeroed at first
 * unix_ms  the wall clock, for the times in `scrub`
 * bytes    written: of records, read by this call
 *
 * `on_damage` gets the record's key, or NULL for what is none. Errors (nothing was checked): BUSY
 * commits follow each other too fast; CORRUPT the list of databases or of generations; NO_MEMORY;
 * IO. Threads: as reef_txn_begin for a read; one at a time for one `scrub`.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_scrub(reef_store *store,
                                                      reef_scrub *scrub,
                                                      uint64_t bytes_max,
                                                      uint64_t unix_ms,
                                                      void (*on_damage)(void *context,
                                                                        const reef_key *key,
                                                                        const char *what),
                                                      void *context,
                                                      uint64_t *bytes,
                                                      reef_error *err);
/**
 * Keep it in the pool, and read it back (zeroed if it is absent). Not part of the root hash.
 */
REEF_API REEF_MUST_CHECK reef_status reef_scrub_put(reef_txn *txn,
                                                    const reef_scrub *scrub,
                                                    reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_scrub_read(reef_txn *txn,
                                                     reef_scrub *out,
                                                     reef_error *err);

/**
 * Did LMDB end this process (SIGABRT) because a page of a pool made no sense? For signal handlers.
 */
REEF_API bool reef_store_lmdb_aborted(void);

/** 32 hexadecimal digits and a final zero. */
REEF_API void reef_hash_format(const uint8_t hash[REEF_HASH_BYTES],
                               char out[2 * REEF_HASH_BYTES + 1]);

/**
 * The hash that reef_hash_format wrote as this text; `out` is written if it is one. False: it is
 * not exactly 32 digits 0-9 and a-f, or NULL.
 */
REEF_API bool reef_hash_parse(const char *text, uint8_t out[REEF_HASH_BYTES]);

#endif
