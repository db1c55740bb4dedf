// Tables of a memory that are stored slice by slice while it learns, and brought up to date again.
//
//   learned    0         x1        x2        x3        now
//   slices     |---------| s1      | s2      | s3      |        each as it was at its own time
//   log                  |-----------------------------|        from the oldest slice on
//
// A memory that is logged says of each byte what was decided when it was learned, some four bytes.
// Its parts are restored first. Slices of its tables are of different times, all else is as of now.
// Then the log is replayed from the oldest of these times on. What was predicted is
// not computed again, so that takes a fraction of the time of learning.
#ifndef REEF_REPLAY_H
#define REEF_REPLAY_H

#include "reef_context.h"

struct reef_thread_pool; // reef_kernels.h

#define REEF_SLICE_BYTES (UINT64_C(1) << 17)

/** Tables of a memory: parts from "cells" on, in their order. */
#define REEF_MEMORY_TABLES 4

/** A block of the log; every block can be replayed by itself. */
typedef struct reef_log_block {
    uint8_t *bytes;
    size_t count;   // below REEF_SLICE_BYTES
    uint64_t begin; // position of its first byte: how many were learned before it
} reef_log_block;

/** From here on what the memory learns is logged, in a new block. Errors: NO_MEMORY. */
REEF_API REEF_MUST_CHECK reef_status reef_memory_log(reef_memory *memory, reef_error *err);
/** Not any more. */
REEF_API void reef_memory_log_end(reef_memory *memory);
/** Is it? */
REEF_API bool reef_memory_is_logged(const reef_memory *memory);
/** Blocks since the last reef_memory_log_drop; the last one is open. Good until it learns. */
REEF_API const reef_log_block *reef_memory_log_blocks(const reef_memory *memory, size_t *count);
/** Forget all of them but the open one. */
REEF_API void reef_memory_log_drop(reef_memory *memory);

/** The tables, in the order of their parts, as they are: tables[REEF_MEMORY_TABLES] written. */
REEF_API void reef_memory_tables(const reef_memory *memory, reef_memory_part *tables);

/** Of a block: the position of its first byte. CORRUPT: it is not one of a log. */
REEF_API REEF_MUST_CHECK reef_status reef_log_block_begin(const uint8_t *block,
                                                          size_t bytes,
                                                          uint64_t *out,
                                                          reef_error *err);

/**
 * Replay a log, of a memory that was restored since.
 *
 * slices   of each table, for each slice of REEF_SLICE_BYTES of it: how many bytes the memory had
 *          learned when it was stored
 * blocks   (count) in their order
 * workers  or NULL; each of at most eight threads brings slices of its own up to date
 *
 * Errors: CORRUPT it is not what the memory learned; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_replay(reef_memory *memory,
                                                        const uint64_t *const *slices,
                                                        const reef_log_block *blocks,
                                                        size_t count,
                                                        struct reef_thread_pool *workers,
                                                        reef_error *err);

#endif
