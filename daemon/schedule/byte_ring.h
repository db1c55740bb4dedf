// The bounded queue between reading and training: one ring of bytes.
//
// Positions count all bytes that ever went through and never wrap; only indices into the memory do.
// One thread fills at the tail and one takes from the head. The ring itself has no lock: its owner
// calls under its own, and only the bytes that `space` and `view` lend are touched outside it,
// which no other call moves or hands out again.
#ifndef REEF_BYTE_RING_H
#define REEF_BYTE_RING_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_READ_BYTES_MAX (64u << 10) // one read

typedef struct reef_ring {
    uint8_t *bytes;
    size_t high;         // the high-water mark: no space is lent while this much waits
    uint64_t head, tail; // positions of the next byte to take, to fill
} reef_ring;

REEF_MUST_CHECK reef_status reef_ring_init(reef_ring *ring, size_t high, reef_error *err);
void reef_ring_release(reef_ring *ring);

/** Bytes that wait. */
uint64_t reef_ring_count(const reef_ring *ring);

/** Lend up to REEF_READ_BYTES_MAX free bytes in one piece; false at the high-water mark. */
bool reef_ring_space(reef_ring *ring, uint8_t **at, size_t *count);
/** `count` bytes of the lent space now hold data. */
void reef_ring_fill(reef_ring *ring, size_t count);

/** The position after the first waiting `byte`; the head's if it does not occur. */
uint64_t reef_ring_after(const reef_ring *ring, uint8_t byte);
/** Lend waiting bytes up to position `end`, in one piece; returns how many. */
size_t reef_ring_view(const reef_ring *ring, uint64_t end, const uint8_t **at);
/** The first `count` bytes of the view are done with. */
void reef_ring_take(reef_ring *ring, size_t count);

#endif
