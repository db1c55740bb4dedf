// The memory behind its handle.
#ifndef REEF_MEMORY_INTERNAL_H
#define REEF_MEMORY_INTERNAL_H

#include "inputs.h"
#include "reef_context.h"

#define REEF_MEMORY_HEADER_BYTES 216
#define REEF_MEMORY_VERSION 7

// ---- memory_sizes.c -----------------------------------------------------------------------------

typedef enum reef_memory_table {
    REEF_TABLE_CELLS,
    REEF_TABLE_TREES,
    REEF_TABLE_INDEX,                              // of each match
    REEF_TABLES = REEF_TABLE_INDEX + REEF_MATCHES, // also: none
} reef_memory_table;

typedef struct reef_memory_sizes {
    uint64_t bytes_max;     // bound of the tables
    uint64_t text_max;      // bound of the text
    uint64_t learned_bytes; // of the stream
    uint32_t lines_log2[REEF_TABLES];
} reef_memory_sizes;

/** Of a memory that has learned nothing. */
reef_memory_sizes reef_memory_sizes_first(uint64_t bytes_max, uint64_t text_max);

/** The table that doubles now, before the next byte; REEF_TABLES: none. Ask again until then. */
reef_memory_table reef_memory_sizes_grow(const reef_memory_sizes *sizes);

/** Can growth have led to these? `sizes` may come from anywhere. */
bool reef_memory_sizes_are_possible(const reef_memory_sizes *sizes);

/** Lines that a table of a memory with that bound has at most. */
uint32_t reef_memory_table_max_log2(uint64_t bytes_max, reef_memory_table table);

/** Bytes of the tables; never above the bound. */
uint64_t reef_memory_sizes_bytes(const reef_memory_sizes *sizes);

/** Bytes of the text that are kept. */
uint64_t reef_memory_text_bytes(const reef_memory_sizes *sizes);
/** The bound of the text where none is given. */
uint64_t reef_memory_text_max(uint64_t bytes_max);

// ---- memory.c -----------------------------------------------------------------------------------

struct reef_memory {
    reef_predictor predictor;
    uint64_t bytes_max;                       // of its tables
    reef_input_counts inputs;                 // since it was made or restored
    uint8_t header[REEF_MEMORY_HEADER_BYTES]; // as reef_memory_parts showed it last
    reef_mix_state *difference;               // owned; scratch for the part "mixer"
};

/** What its tables have now. */
reef_memory_sizes reef_memory_sizes_of(const reef_memory *memory);

/** Name of the part that a table is. */
const char *reef_memory_table_name(size_t table);

/** Slots in use in `count` lines of cells, or of trees. */
uint64_t reef_memory_cells_used(const uint8_t *lines, size_t count);
uint64_t reef_memory_trees_used(const uint8_t *lines, size_t count);

/** Tables of zeros, a text of zeros, and a mixer that is not initialised. */
REEF_MUST_CHECK reef_status reef_memory_make(reef_memory **out,
                                             const reef_memory_sizes *sizes,
                                             reef_error *err);

#endif
