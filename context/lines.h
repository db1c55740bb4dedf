// An array of cache lines, or a copy-on-write view of one.
//
// Tables of a memory lie in lines of 64 bytes: reading one costs one miss. A session reads
// a text over tables that must not change: its view copies a line when it is first asked for, and
// drops its copies afterwards. What a short text costs is mostly these copies.
//
//   table   own    | line 0 | line 1 | ...
//   view    base   -> lines of the table
//           copied | 0 | 1 | 0 | ...   in bits: few enough to stay in the cache
//           copies | ? | copy of line 1 | ? | ...
#ifndef REEF_LINES_H
#define REEF_LINES_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_LINE_BYTES 64
#define REEF_CHUNK_LINES 16384 // 1 MiB

typedef struct reef_lines {
    size_t count;        // a power of two
    uint8_t *own;        // (count * 64) of a table; NULL in a view
    const uint8_t *base; // of a view: the lines below
    uint64_t *copied;    // of a view: a bit for each line, is there a copy?
    uint8_t **copies;    // of a view: (count) set where there is one
    uint32_t *written;   // of a view: (count) numbers of copied lines, `written_count` used
    size_t written_count;
    uint8_t **chunks; // of a view: memory that copies are carved from, kept for the next text
    size_t chunk_count, chunk; // the one that is being carved
    size_t carved;             // lines of it
} reef_lines;

/** A table of zeros. `count`: a power of two. */
REEF_MUST_CHECK reef_status reef_lines_init(reef_lines *lines, size_t count, reef_error *err);
/** A view of `base`, a table, which must neither change nor end before it. */
REEF_MUST_CHECK reef_status reef_lines_init_view(reef_lines *view,
                                                 const reef_lines *base,
                                                 reef_error *err);
void reef_lines_release(reef_lines *lines); // accepts zeros
/** A view as it was at first; its memory is kept. */
void reef_lines_reset(reef_lines *view);
/** Memory for copies of `count` more lines (at most REEF_CHUNK_LINES); a table needs none. */
REEF_MUST_CHECK reef_status reef_lines_reserve(reef_lines *lines, size_t count, reef_error *err);

/** A view's copy of a line, of memory that was reserved. */
uint8_t *reef_lines_copy(reef_lines *view, size_t at);

static inline bool reef_lines_is_copied(const reef_lines *view, size_t at) {
    return (view->copied[at / 64] >> (at % 64) & 1) != 0;
}

/** Line `at`, to be read and written. */
static inline uint8_t *reef_lines_at(reef_lines *lines, size_t at) {
    if (lines->own != NULL) return lines->own + at * REEF_LINE_BYTES;
    return reef_lines_is_copied(lines, at) ? lines->copies[at] : reef_lines_copy(lines, at);
}

/** Line `at`, to be read. */
static inline const uint8_t *reef_lines_peek(const reef_lines *lines, size_t at) {
    if (lines->own != NULL) return lines->own + at * REEF_LINE_BYTES;
    return reef_lines_is_copied(lines, at) ? lines->copies[at] : lines->base + at * REEF_LINE_BYTES;
}

#endif
