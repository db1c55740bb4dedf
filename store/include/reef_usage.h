// How often each expert was used, in total and over time.
//
// Totals count since the beginning and are what training needs. Windows say when: each commit
// writes what the totals grew by (a delta), and compaction merges deltas into hours and hours into
// days, so that their size is bounded.
//
// Errors and threads: see reef_store.h.
#ifndef REEF_USAGE_H
#define REEF_USAGE_H

#include "reef_store.h"

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

#endif
