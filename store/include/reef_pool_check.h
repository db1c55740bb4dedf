// Is the pool undamaged? A check walks all of it, here or in a child process, and says what helps;
// a scrub reads what is sealed piece by piece, beside training.
//
// Errors and threads: see reef_store.h.
#ifndef REEF_POOL_CHECK_H
#define REEF_POOL_CHECK_H

#include "reef_store.h"

/** What helps a damaged pool, all findings together. */
typedef enum reef_remedy_kind {
    REEF_REMEDY_NOTHING, // none is needed: it is sound, or nothing computes with what is damaged
    REEF_REMEDY_RESTORE, // snapshot `name`: its whole state is sound and has nothing of it
    REEF_REMEDY_RECOVER, // kinds go on as they were before: `reef kind recover`
    REEF_REMEDY_REMOVE,  // snapshot `name`, in which it lies; the present state does not need it
    REEF_REMEDY_PUSH,    // what waited in source `name`, once more
    REEF_REMEDY_COPY,    // only a copy of the pool
} reef_remedy_kind;
typedef struct reef_remedy {
    reef_remedy_kind kind;
    char name[REEF_NAME_BYTES_MAX + 1];
    uint64_t commit, stream_bytes; // of a snapshot to be restored: training continues from there
} reef_remedy;

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
    reef_remedy remedy;
} reef_check_report;

typedef struct reef_check_options {
    bool quick;    // hash no payload of what is sealed
    double sample; // share of the sealed records whose payload is hashed, (0, 1); 0: all
    uint64_t seed; // chooses the sample: the same seed, the same records
    /** Further checks of the same pool in the same transaction; may be NULL. */
    reef_status (*also)(reef_txn *txn,
                        void (*on_damage)(void *context, const reef_key *key, const char *what),
                        void *context,
                        reef_error *err);
    void (*on_damage)(void *context, const char *what); // may be NULL
    void *context;
} reef_check_options;

/**
 * Walk everything: LMDB's trees and free list page by page, every record's header and checksum,
 * `sums` against the records, the root hash of the last commit and of each sealed generation,
 * references of snapshots, usage over time against the totals. Continues after damage. `on_damage`
 * receives one line naming the record and what is wrong. What is not sealed is always hashed; of a
 * sealed record that is not, the header is checked against `sums`. `options` NULL: none.
 *
 * Pages are walked in one read transaction, all else in steps, each on the last commit then;
 * `commits` and `root` of the report belong to the commit whose root hash was computed.
 *
 * Returns OK also if damage was found (see `damaged`); CORRUPT if the walk could not continue. A
 * truncated map raises SIGBUS: call reef_store_verify to be safe from that.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_check(reef_store *store,
                                                      const reef_check_options *options,
                                                      reef_check_report *report,
                                                      reef_error *err);

/**
 * reef_store_check in a child process, which opens `path`: a signal there becomes REEF_ERR_CORRUPT
 * here; `also` runs there. Where `path` holds shards, each is checked so, counts are sums over
 * them, and findings begin with `rank-K: `. INVALID also: they are not one pool.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_verify(const char *path,
                                                       const reef_check_options *options,
                                                       reef_check_report *report,
                                                       reef_error *err);

// ---- piece by piece, beside training ------------------------------------------------------------

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

#endif
