// Is the pool undamaged? A check walks all of it, here or in a child process, and can plan repairs;
// a scrub reads what is sealed piece by piece, beside training.
//
// Errors and threads: see reef_store.h.
#ifndef REEF_POOL_CHECK_H
#define REEF_POOL_CHECK_H

#include "reef_store.h"

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
/**
 * reef_store_check_with in a child process; `also` runs there. Where `path` holds shards, each is
 * checked so, counts are sums over them, and findings begin with `rank-K: `. INVALID also: they are
 * not one pool, or a plan is asked for.
 */
REEF_API REEF_MUST_CHECK reef_status reef_store_verify_with(const char *path,
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
