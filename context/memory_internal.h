// The memory behind its handle.
#ifndef REEF_MEMORY_INTERNAL_H
#define REEF_MEMORY_INTERNAL_H

#include "predictor.h"
#include "reef_context.h"

#define REEF_MEMORY_HEADER_BYTES 192
#define REEF_INDEX_LINES_MIN_LOG2 8

// Inputs that people see, one for two of the mixer: the constant, which is nobody's, is none.
enum { REEF_INPUT_NET = REEF_PREDICTION_BIAS, REEF_INPUT_NAMES };

struct reef_memory {
    reef_predictor predictor;
    uint64_t bytes_max;
    uint8_t header[REEF_MEMORY_HEADER_BYTES]; // as reef_memory_parts showed it last
};

/** What sizes the tables; those of the text follow from it. */
typedef struct reef_memory_sizes {
    uint64_t bytes_max, learned_bytes;
    uint32_t cell_lines_log2, slot_lines_log2;
    uint32_t index_lines_log2[REEF_MATCHES];
} reef_memory_sizes;

/** What tables of these sizes take, as growth counts it. */
uint64_t reef_memory_sizes_bytes(const reef_memory_sizes *sizes);

/** Tables of zeros, a text of zeros, and a mixer that is not initialised. */
REEF_MUST_CHECK reef_status reef_memory_make(reef_memory **out,
                                             const reef_memory_sizes *sizes,
                                             reef_error *err);

#endif
