// The memory behind its handle.
#ifndef REEF_MEMORY_INTERNAL_H
#define REEF_MEMORY_INTERNAL_H

#include "inputs.h"
#include "reef_context.h"

#define REEF_MEMORY_HEADER_BYTES 192
#define REEF_INDEX_LINES_MIN_LOG2 8
#define REEF_MEMORY_VERSION 4
#define REEF_MEMORY_VERSION_WHOLE 3 // has "mixer" as it is

struct reef_memory {
    reef_predictor predictor;
    uint64_t bytes_max;
    reef_input_counts inputs; // since it was made or restored
    // Of the parts, as they are stored: it keeps the version that it was restored from.
    uint32_t version;
    uint8_t header[REEF_MEMORY_HEADER_BYTES]; // as reef_memory_parts showed it last
    reef_mix_state *difference;               // owned; scratch for the part "mixer"
};

/** What sizes the tables; those of the text follow from it. */
typedef struct reef_memory_sizes {
    uint64_t bytes_max, learned_bytes;
    uint32_t cell_lines_log2, slot_lines_log2;
    uint32_t index_lines_log2[REEF_MATCHES];
} reef_memory_sizes;

/** Has a memory with that bound further contexts? */
bool reef_memory_is_wide(uint64_t bytes_max);

/** What tables of these sizes take, as growth counts it. */
uint64_t reef_memory_sizes_bytes(const reef_memory_sizes *sizes);

/** Of the text, what is kept. */
uint64_t reef_memory_text_bytes(const reef_memory_sizes *sizes);

/** Slots in use in `count` lines of cells, or of trees. */
uint64_t reef_memory_cells_used(const uint8_t *lines, size_t count);
uint64_t reef_memory_trees_used(const uint8_t *lines, size_t count);

/** Tables of zeros, a text of zeros, and a mixer that is not initialised. */
REEF_MUST_CHECK reef_status reef_memory_make(reef_memory **out,
                                             const reef_memory_sizes *sizes,
                                             reef_error *err);

#endif
