// The last bytes of a text, which matches and the line above are read from.
//
// Positions count the bytes of a stream. A ring keeps the last `capacity` of them and doubles, up
// to its bound, before it would forget. A view continues the text of another ring in one of its
// own.
#ifndef REEF_TEXT_RING_H
#define REEF_TEXT_RING_H

#include "reef_error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct reef_text_ring {
    uint8_t *own;                      // (capacity)
    uint64_t capacity;                 // a power of two
    uint64_t bound;                    // of the capacity, a power of two
    uint64_t begin;                    // position of the first byte of `own`
    uint64_t end;                      // position behind the last byte
    uint64_t kept;                     // bytes of `own` before `end` that are there
    const struct reef_text_ring *base; // of a view: what came before `begin`
} reef_text_ring;

REEF_MUST_CHECK reef_status reef_text_init(reef_text_ring *text,
                                           uint64_t capacity,
                                           uint64_t bound,
                                           reef_error *err);
/** A view: `base` neither changes nor ends before it. */
REEF_MUST_CHECK reef_status reef_text_init_view(reef_text_ring *view,
                                                const reef_text_ring *base,
                                                reef_error *err);
void reef_text_release(reef_text_ring *text); // accepts zeros
/** A view as it was at first. */
void reef_text_reset(reef_text_ring *view);
/** Room for `count` bytes more, as far as the bound allows. */
REEF_MUST_CHECK reef_status reef_text_reserve(reef_text_ring *text,
                                              uint64_t count,
                                              reef_error *err);

static inline void reef_text_push(reef_text_ring *text, uint8_t byte) {
    text->own[(text->end - text->begin) & (text->capacity - 1)] = byte;
    text->end++;
    if (text->kept < text->capacity) text->kept++;
}

/** The byte at a position; *known is 0 where it is forgotten or not there yet. */
static inline uint8_t reef_text_at(const reef_text_ring *text, uint64_t position, int *known) {
    uint64_t back = text->end - position; // 1: the last byte
    if (back - 1 < text->kept) {
        *known = 1;
        return text->own[(position - text->begin) & (text->capacity - 1)];
    }
    // Of a view: before its beginning.
    if (text->base != NULL && text->begin - position - 1 < text->base->kept) {
        const reef_text_ring *base = text->base;
        *known = 1;
        return base->own[(position - base->begin) & (base->capacity - 1)];
    }
    *known = 0;
    return 0;
}

/** Ask for the byte at a position, wherever it is. */
static inline void reef_text_prefetch(const reef_text_ring *text, uint64_t position) {
    const reef_text_ring *ring = text;
    if (text->base != NULL && text->end - position - 1 >= text->kept) ring = text->base;
    __builtin_prefetch(ring->own + ((position - ring->begin) & (ring->capacity - 1)));
}

#endif
