// Texts that memories keep of what they learned, and what they would cost by other memories.
//
// Before kinds are merged, memories are made for measuring: they learn texts up to
// their ends, and these ends are read. Kinds apart answer as those of a pool do; then one memory
// that learned all of them answers alone.
#ifndef REEF_MEMORY_TEXTS_H
#define REEF_MEMORY_TEXTS_H

#include "generation_memory.h"

/** The end of what a memory learned. */
typedef struct reef_kept_text {
    uint8_t *bytes; // owned where it was read; elsewhere a view of one that was
    size_t count;
} reef_kept_text;

/** All that a memory keeps; the caller frees `bytes`. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kept_text_read(reef_kept_text *out,
                                                const reef_memory *memory,
                                                reef_error *err);

/** A view of its last bytes, `max` at most. */
reef_kept_text reef_kept_text_last(const reef_kept_text *text, size_t max);

/** Views of what is measured, its last quarter but at most 64 KiB, and of what precedes that. */
void reef_kept_text_split(const reef_kept_text *text, reef_kept_text *begin, reef_kept_text *end);

/** A memory that is made for measuring learns a text. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kept_text_learn(reef_generation_memory *memory,
                                                 uint64_t bytes_max,
                                                 const reef_kept_text *text,
                                                 reef_error *err);

/**
 * What a text costs by memories that answer as kinds of a pool do: each by how well it predicted so
 * far.
 *
 * memories  (count) not NULL; count is at most REEF_RUNNING_MAX
 * bits      written; of all of it
 *
 * Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_kept_text_apart(const reef_memory *const *memories,
                                                 size_t count,
                                                 const reef_kept_text *text,
                                                 double *bits,
                                                 reef_error *err);

/** The same by one memory, which answers alone. */
REEF_MUST_CHECK reef_status reef_kept_text_together(const reef_memory *memory,
                                                    const reef_kept_text *text,
                                                    double *bits,
                                                    reef_error *err);

#endif
