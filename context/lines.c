// See lines.h.
#include "lines.h"

#include "reef_huge_page.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_lines_init(reef_lines *lines, size_t count, reef_error *err) {
    assert(count > 0 && (count & (count - 1)) == 0);
    *lines = (reef_lines){.count = count};
    // Lines are read at random: with pages of 4 KiB most reads would miss the TLB as well.
    lines->own = reef_huge_page_new(count, REEF_LINE_BYTES);
    if (lines->own == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a table of %zu bytes",
                         count * REEF_LINE_BYTES);
    return REEF_OK;
}

reef_status reef_lines_init_view(reef_lines *view, const reef_lines *base, reef_error *err) {
    assert(base->own != NULL);
    *view = (reef_lines){.count = base->count, .base = base->own};
    view->copied = calloc(base->count / 64 + 1, sizeof(*view->copied));
    view->copies = malloc(base->count * sizeof(*view->copies));
    view->written = malloc(base->count * sizeof(*view->written));
    if (view->copied != NULL && view->copies != NULL && view->written != NULL) return REEF_OK;
    reef_lines_release(view);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a session's view of %zu lines",
                     base->count);
}

void reef_lines_release(reef_lines *lines) {
    reef_huge_page_free(lines->own, lines->count, REEF_LINE_BYTES);
    free(lines->copied);
    free(lines->copies);
    free(lines->written);
    for (size_t i = 0; i < lines->chunk_count; i++) free(lines->chunks[i]);
    free(lines->chunks);
    *lines = (reef_lines){0};
}

void reef_lines_reset(reef_lines *view) {
    // Only what was written is cleared: a short text over a large table costs little.
    for (size_t i = 0; i < view->written_count; i++) view->copied[view->written[i] / 64] = 0;
    view->written_count = 0;
    view->chunk = view->carved = 0;
}

reef_status reef_lines_reserve(reef_lines *lines, size_t count, reef_error *err) {
    assert(count <= REEF_CHUNK_LINES);
    if (lines->own != NULL) return REEF_OK;
    if (lines->chunk < lines->chunk_count && lines->carved + count <= REEF_CHUNK_LINES)
        return REEF_OK;
    // The rest of the present chunk is given up: lines of one chunk are carved without a check.
    size_t next = lines->chunk_count == 0 ? 0 : lines->chunk + 1;
    if (next == lines->chunk_count) {
        uint8_t **chunks = realloc(lines->chunks, (next + 1) * sizeof(*chunks));
        if (chunks != NULL) lines->chunks = chunks;
        uint8_t *chunk = chunks == NULL ? NULL
                                        : aligned_alloc(REEF_LINE_BYTES,
                                                        (size_t)REEF_CHUNK_LINES * REEF_LINE_BYTES);
        if (chunk == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu chunks of a session",
                             next + 1);
        lines->chunks[lines->chunk_count++] = chunk;
    }
    lines->chunk = next;
    lines->carved = 0;
    return REEF_OK;
}

uint8_t *reef_lines_copy(reef_lines *view, size_t at) {
    assert(view->carved < REEF_CHUNK_LINES);
    uint8_t *copy = view->chunks[view->chunk] + view->carved++ * REEF_LINE_BYTES;
    memcpy(copy, view->base + at * REEF_LINE_BYTES, REEF_LINE_BYTES);
    view->copies[at] = copy;
    view->copied[at / 64] |= (uint64_t)1 << (at % 64);
    view->written[view->written_count++] = (uint32_t)at;
    return copy;
}
