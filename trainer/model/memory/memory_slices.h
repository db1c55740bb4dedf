// How a large memory is stored while it learns: the slices of its tables in turns, each as it is
// when its turn comes, and a log from the oldest of them on (reef_replay.h).
#ifndef REEF_MEMORY_SLICES_H
#define REEF_MEMORY_SLICES_H

#include "reef_replay.h"

typedef struct reef_memory_slices {
    uint64_t
        *learned[REEF_MEMORY_TABLES]; // owned; (count) what it had learned when each was stored
    size_t count[REEF_MEMORY_TABLES], bytes[REEF_MEMORY_TABLES];
    size_t next;     // whose turn it is, counted through all tables
    uint64_t stored; // what it had learned when all else was stored
    // Blocks of the log that are stored have numbers from `first` on; the first of those that the
    // memory has (reef_memory_log_blocks) has the number `open`.
    uint32_t first, open;
    uint64_t *begins; // owned: of the stored ones, the position of the first byte of each
    size_t block_count;
    reef_log_block *unread; // owned, (block_count) as read, until they are replayed; NULL: they are
} reef_memory_slices;

void reef_memory_slices_free(reef_memory_slices *slices); // accepts NULL

/** Room for the slices of a table of so many bytes; all of them as of `learned`. */
REEF_MUST_CHECK reef_status reef_memory_slices_resize(
    reef_memory_slices *slices, size_t table, size_t bytes, uint64_t learned, reef_error *err);

/** The log has one block more, number first + block_count. */
REEF_MUST_CHECK reef_status reef_memory_slices_add_block(reef_memory_slices *slices,
                                                         uint64_t begin,
                                                         reef_error *err);

/** Another one like it, without what is unread. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_memory_slices_copy(reef_memory_slices **out,
                                                    const reef_memory_slices *of,
                                                    reef_error *err);

size_t reef_memory_slices_count(const reef_memory_slices *slices); // of all tables
uint64_t reef_memory_slices_oldest(const reef_memory_slices *slices);

/** How many slices a table of so many bytes has. */
static inline size_t reef_slices_of(size_t bytes) {
    return (bytes + REEF_SLICE_BYTES - 1) / REEF_SLICE_BYTES;
}

#endif
