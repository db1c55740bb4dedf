// An array of cache lines, or a copy-on-write view of one.
//
// Tables of a memory lie in lines of 64 bytes: reading one costs one miss. A session reads
// a text over tables that must not change: its view copies a page of eight lines when the first of
// them is asked for, and drops its pages afterwards.
//
//   table   own    | line 0 | line 1 | ...
//   view    base   -> lines of the table
//           pages  | NULL | copy of lines 8..15 | NULL | ...
#ifndef REEF_LINES_H
#define REEF_LINES_H

#include "reef_error.h"

#include <stddef.h>
#include <stdint.h>

#define REEF_LINE_BYTES 64
#define REEF_PAGE_LINES 8
#define REEF_CHUNK_PAGES 2048 // 1 MiB

typedef struct reef_lines {
    size_t count;        // a power of two
    uint8_t *own;        // (count * 64) of a table; NULL in a view
    const uint8_t *base; // of a view: the lines below
    uint8_t **pages;     // of a view: (count / 8) copies; NULL where nothing was written
    uint32_t *written;   // of a view: (count / 8) numbers of copied pages, `written_count` used
    size_t written_count;
    uint8_t **chunks; // of a view: memory that pages are carved from, kept for the next text
    size_t chunk_count, chunk; // the one that is being carved
    size_t carved;             // pages of it
} reef_lines;

/** A table of zeros. `count`: a power of two, at least REEF_PAGE_LINES. */
REEF_MUST_CHECK reef_status reef_lines_init(reef_lines *lines, size_t count, reef_error *err);
/** A view of `base`, a table, which must neither change nor end before it. */
REEF_MUST_CHECK reef_status reef_lines_init_view(reef_lines *view,
                                                 const reef_lines *base,
                                                 reef_error *err);
void reef_lines_release(reef_lines *lines); // accepts zeros
/** A view as it was at first; its memory is kept. */
void reef_lines_reset(reef_lines *view);
/** Memory for copies of `pages` more pages (at most REEF_CHUNK_PAGES); a table needs none. */
REEF_MUST_CHECK reef_status reef_lines_reserve(reef_lines *lines, size_t pages, reef_error *err);

/** A view's copy of a page, of memory that was reserved. */
uint8_t *reef_lines_copy_page(reef_lines *view, size_t page);

/** Line `at`, to be read and written. */
static inline uint8_t *reef_lines_at(reef_lines *lines, size_t at) {
    if (lines->own != NULL) return lines->own + at * REEF_LINE_BYTES;
    uint8_t *page = lines->pages[at / REEF_PAGE_LINES];
    if (page == NULL) page = reef_lines_copy_page(lines, at / REEF_PAGE_LINES);
    return page + at % REEF_PAGE_LINES * REEF_LINE_BYTES;
}

/** Line `at`, to be read. */
static inline const uint8_t *reef_lines_peek(const reef_lines *lines, size_t at) {
    if (lines->own != NULL) return lines->own + at * REEF_LINE_BYTES;
    const uint8_t *page = lines->pages[at / REEF_PAGE_LINES];
    if (page == NULL) return lines->base + at * REEF_LINE_BYTES;
    return page + at % REEF_PAGE_LINES * REEF_LINE_BYTES;
}

#endif
