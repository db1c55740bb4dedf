// See text_ring.h.
#include "text_ring.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

reef_status reef_text_init(reef_text_ring *text,
                           uint64_t capacity,
                           uint64_t bound,
                           reef_error *err) {
    assert((capacity & (capacity - 1)) == 0 && (bound & (bound - 1)) == 0 && capacity <= bound);
    *text = (reef_text_ring){.capacity = capacity, .bound = bound};
    text->own = calloc(capacity, 1);
    if (text->own != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu64 " bytes of text", capacity);
}

reef_status reef_text_init_view(reef_text_ring *view, const reef_text_ring *base, reef_error *err) {
    assert(base->base == NULL);
    reef_status status = reef_text_init(view, 1ull << 12, base->bound, err);
    if (status != REEF_OK) return status;
    view->base = base;
    view->begin = view->end = base->end;
    return REEF_OK;
}

void reef_text_release(reef_text_ring *text) {
    free(text->own);
    *text = (reef_text_ring){0};
}

void reef_text_reset(reef_text_ring *view) {
    view->end = view->begin;
    view->kept = 0;
}

reef_status reef_text_reserve(reef_text_ring *text, uint64_t count, reef_error *err) {
    uint64_t capacity = text->capacity;
    while (capacity < text->bound && capacity - text->kept < count) capacity *= 2;
    if (capacity == text->capacity) return REEF_OK;
    uint8_t *own = calloc(capacity, 1);
    if (own == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu64 " bytes of text",
                         capacity);
    // A byte's place depends on the capacity: each is carried over by its position.
    for (uint64_t back = 1; back <= text->kept; back++) {
        uint64_t at = text->end - back - text->begin;
        own[at & (capacity - 1)] = text->own[at & (text->capacity - 1)];
    }
    free(text->own);
    text->own = own;
    text->capacity = capacity;
    return REEF_OK;
}
