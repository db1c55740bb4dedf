// One ring of bytes; see ring.h. The memory is one read larger than the high-water mark, so that a
// read which starts just below the mark always fits.
#include "ring.h"

#include <assert.h>
#include <stdlib.h>

#define RING_BYTES (REEF_QUEUE_BYTES_HIGH + REEF_READ_BYTES_MAX)

reef_status reef_ring_init(reef_ring *ring, reef_error *err) {
    *ring = (reef_ring){0};
    ring->bytes = malloc(RING_BYTES);
    if (!ring->bytes)
        return reef_fail(err, REEF_NO_MEMORY, "no %u bytes for the input queue", RING_BYTES);
    return REEF_OK;
}

void reef_ring_release(reef_ring *ring) {
    free(ring->bytes);
    *ring = (reef_ring){0};
}

uint64_t reef_ring_count(const reef_ring *ring) {
    return ring->tail - ring->head;
}

static size_t smaller(uint64_t a, uint64_t b) {
    return (size_t)(a < b ? a : b);
}

bool reef_ring_space(reef_ring *ring, uint8_t **at, size_t *count) {
    if (reef_ring_count(ring) >= REEF_QUEUE_BYTES_HIGH) return false;
    size_t index = (size_t)(ring->tail % RING_BYTES);
    *at = ring->bytes + index;
    *count = smaller(REEF_READ_BYTES_MAX, RING_BYTES - index);
    return true;
}

void reef_ring_fill(reef_ring *ring, size_t count) {
    ring->tail += count;
    assert(reef_ring_count(ring) <= RING_BYTES);
}

size_t reef_ring_view(const reef_ring *ring, uint64_t end, const uint8_t **at) {
    assert(end >= ring->head);
    size_t index = (size_t)(ring->head % RING_BYTES);
    *at = ring->bytes + index;
    size_t waiting = smaller(end - ring->head, reef_ring_count(ring));
    return smaller(waiting, RING_BYTES - index);
}

void reef_ring_take(reef_ring *ring, size_t count) {
    assert(count <= reef_ring_count(ring));
    ring->head += count;
}
