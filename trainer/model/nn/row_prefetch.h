// Rows of sealed generations that stay in the store's map, for pools larger than memory: a thread
// of its own asks the system for the pages of the chosen rows while the others compute, and
// releases all pages when the process holds more than it may.
#ifndef REEF_ROW_PREFETCH_H
#define REEF_ROW_PREFETCH_H

#include "experts.h"

typedef struct reef_row_prefetch reef_row_prefetch;

/**
 * resident_bytes_max  what the whole process may hold in memory; when it holds three quarters of
 *                     that, the pages of the map go (the system may keep them in its cache). Pages
 *                     of other mappings cannot be released.
 * Errors: NO_MEMORY, also when the thread cannot be started.
 */
REEF_MUST_CHECK reef_status reef_row_prefetch_new(reef_row_prefetch **out,
                                                  uint64_t resident_bytes_max,
                                                  reef_error *err);
void reef_row_prefetch_free(reef_row_prefetch *prefetch); // accepts NULL

/** The part of a file's map that rows lie in. NULL: none of it. */
typedef struct reef_map_span {
    const uint8_t *first, *end;
} reef_map_span;

/**
 * From now on the rows lie in these spans, each of one file's map, which do not overlap; nothing is
 * held of them yet. Not between start and finish. Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_row_prefetch_cover(reef_row_prefetch *prefetch,
                                                    const reef_map_span *spans,
                                                    size_t count,
                                                    reef_error *err);

/** What a pass is about to read. */
typedef struct reef_row_prefetch_request {
    const reef_expert_rows *rows;
    size_t row_bytes;
    size_t tokens, P;
    const reef_expert_id *indices; // (tokens, P)
    const uint8_t *active;         // (tokens) or NULL: 0 reads nothing
} reef_row_prefetch_request;

/**
 * Begin to fetch, token by token; returns at once. The arrays must not change before
 * reef_row_prefetch_finish, which stops what is left of it. Fetching is only about time: rows may
 * be read all along.
 */
void reef_row_prefetch_start(reef_row_prefetch *prefetch, const reef_row_prefetch_request *request);
void reef_row_prefetch_finish(reef_row_prefetch *prefetch);

/** How often all pages were released. */
uint64_t reef_row_prefetch_drops(const reef_row_prefetch *prefetch);

#endif
