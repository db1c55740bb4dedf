// The memory behind its handle.
#ifndef REEF_MEMORY_INTERNAL_H
#define REEF_MEMORY_INTERNAL_H

#include "inputs.h"
#include "memory_sizes.h"
#include "reef_context.h"

#define REEF_MEMORY_HEADER_BYTES 224
#define REEF_MEMORY_VERSION 5

struct reef_memory {
    reef_predictor predictor;
    uint64_t bytes_max;
    reef_input_counts inputs;                 // since it was made or restored
    uint8_t header[REEF_MEMORY_HEADER_BYTES]; // as reef_memory_parts showed it last
    reef_mix_state *difference;               // owned; scratch for the part "mixer"
};

/** What its tables have now. */
reef_memory_sizes reef_memory_sizes_of(const reef_memory *memory);

/** Slots in use in `count` lines of cells, or of trees. */
uint64_t reef_memory_cells_used(const uint8_t *lines, size_t count);
uint64_t reef_memory_trees_used(const uint8_t *lines, size_t count);

/** Tables of zeros, a text of zeros, and a mixer that is not initialised. */
REEF_MUST_CHECK reef_status reef_memory_make(reef_memory **out,
                                             const reef_memory_sizes *sizes,
                                             reef_error *err);

#endif
