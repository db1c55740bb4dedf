// How a memory's tables are stored: in slices, each in a block of its own (reef_block_put), as it
// was at its own time. Of a small memory all are of one time; of a large one that learns they are
// stored in turns, with a log from the oldest of them on (reef_replay.h).
#ifndef REEF_MEMORY_SLICES_H
#define REEF_MEMORY_SLICES_H

#include "reef_replay.h"

typedef struct reef_memory_slices {
    // owned: (count) of each, what it had learned when each was stored, and the numbers of blocks
    uint64_t *learned[REEF_MEMORY_TABLES], *numbers[REEF_MEMORY_TABLES];
    size_t count[REEF_MEMORY_TABLES], bytes[REEF_MEMORY_TABLES];
    size_t next;     // whose turn it is, counted through all tables
    uint64_t stored; // what it had learned when all else was stored
    uint64_t since;  // the commit before the list was begun: others may have blocks of up to then
    // owned: (log_count) of the log, the position of the first byte of each block, and its number
    uint64_t *begins, *log_numbers;
    size_t log_count, open; // the first block of those that the memory has (reef_memory_log_blocks)
    reef_log_block *unread; // owned, (log_count) as read, until they are replayed; NULL: they are
} reef_memory_slices;

void reef_memory_slices_free(reef_memory_slices *slices); // accepts NULL

/** Are they of different times? `slices`: or NULL. */
static inline bool reef_memory_slices_in_turns(const reef_memory_slices *slices) {
    return slices != NULL && slices->log_count > 0;
}

/** Room for the slices of a table of so many bytes, which have no blocks yet. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_memory_slices_resize(reef_memory_slices *slices,
                                                      size_t table,
                                                      size_t bytes,
                                                      reef_error *err);

/** The log has one block more. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_memory_slices_add_log(reef_memory_slices *slices,
                                                       uint64_t begin,
                                                       uint64_t number,
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
