// How windows of usage are written and read; what usage_windows.c and usage_compact.c share.
//
// A record of a window covers one segment of a layer: the experts from block * REEF_USAGE_SEGMENT
// on. Segments do not follow the blocks of expert rows: a commit uses few experts of many blocks,
// and a record for each would be mostly header.
#ifndef REEF_USAGE_WINDOWS_H
#define REEF_USAGE_WINDOWS_H

#include "store_internal.h"

#define USAGE_HOUR_MS UINT64_C(3600000)
#define USAGE_DAY_MS UINT64_C(86400000)

/** Milliseconds that a window of a level spans; 1 for deltas, which are of an instant. */
uint64_t reef_usage_span_ms(uint32_t level);

/**
 * The times of the first and the last delta in a window; first_ms > last_ms if it has none.
 */
typedef struct reef_usage_extent {
    uint64_t first_ms, last_ms;
} reef_usage_extent;

/** One segment of a layer in memory; zeroed, then cleared, it is empty. */
typedef struct reef_usage_segment {
    size_t experts; // that there is room for: as many as were needed, at most REEF_USAGE_SEGMENT
    uint64_t *sums; // (experts, 2) count and score; zero for experts that were not used
    reef_usage_extent extent;
    uint8_t *code; // room for the longest payload
} reef_usage_segment;

void reef_usage_segment_free(reef_usage_segment *segment); // accepts the zeroed segment
void reef_usage_segment_clear(reef_usage_segment *segment);
/**
 * Add what a window's record says to a segment. Errors: NO_MEMORY; CORRUPT: the payload is not a
 * list of uses.
 */
REEF_MUST_CHECK reef_status reef_usage_segment_add(reef_usage_segment *segment,
                                                   const reef_key *key,
                                                   const reef_view *view,
                                                   reef_error *err);
/**
 * Encode the segment, for which something was reserved, into `code` for a window that begins at
 * `window`; 0 bytes when nothing was used.
 */
size_t reef_usage_segment_encode(reef_usage_segment *segment, uint64_t window);

/** A cursor on the first record of usage that is not below `key`, or on the first of a level. */
REEF_MUST_CHECK reef_status reef_usage_seek(reef_cursor *cursor,
                                            reef_txn *txn,
                                            const reef_key *key,
                                            reef_error *err);
/** The key under the cursor; false at the end of the windows (REEF_OK) or on an error. */
bool reef_usage_at(const reef_cursor *cursor, reef_key *key, reef_status *status, reef_error *err);

#endif
