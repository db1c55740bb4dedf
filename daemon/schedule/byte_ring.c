// One ring of bytes; see byte_ring.h. The memory is one read larger than the high-water mark, so
// that a read which starts just below the mark always fits.
#include "byte_ring.h"

#include <assert.h>
#include <stdlib.h>

static size_t room_of(const reef_ring *ring) {
    return ring->high + REEF_READ_BYTES_MAX;
}

reef_status reef_ring_init(reef_ring *ring, size_t high, reef_error *err) {
    *ring = (reef_ring){.high = high};
    ring->bytes = malloc(room_of(ring));
    if (ring->bytes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no %zu bytes for the input queue",
                         room_of(ring));
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
    if (reef_ring_count(ring) >= ring->high) return false;
    size_t index = (size_t)(ring->tail % room_of(ring));
    *at = ring->bytes + index;
    *count = smaller(REEF_READ_BYTES_MAX, room_of(ring) - index);
    return true;
}

void reef_ring_fill(reef_ring *ring, size_t count) {
    ring->tail += count;
    assert(reef_ring_count(ring) <= room_of(ring));
}

uint64_t reef_ring_after(const reef_ring *ring, uint8_t byte) {
    for (uint64_t at = ring->head; at < ring->tail; at++)
        if (ring->bytes[at % room_of(ring)] == byte) return at + 1;
    return ring->head;
}

size_t reef_ring_view(const reef_ring *ring, uint64_t end, const uint8_t **at) {
    assert(end >= ring->head);
    size_t index = (size_t)(ring->head % room_of(ring));
    *at = ring->bytes + index;
    size_t waiting = smaller(end - ring->head, reef_ring_count(ring));
    return smaller(waiting, room_of(ring) - index);
}

void reef_ring_take(reef_ring *ring, size_t count) {
    assert(count <= reef_ring_count(ring));
    ring->head += count;
}
