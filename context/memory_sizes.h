// How large the tables of a memory are: what they begin with, how they grow with the stream, and
// where they end.
//
// Growth, the writer of parts and their reader all ask here and nowhere else, so a memory cannot
// grow to what cannot be read back. Everything follows from two numbers, the bound and the bytes
// learned, and is counted in 64 bits.
#ifndef REEF_MEMORY_SIZES_H
#define REEF_MEMORY_SIZES_H

#include "match_model.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum reef_memory_table {
    REEF_TABLE_CELLS,
    REEF_TABLE_TREES,
    REEF_TABLE_INDEX,                              // of each match
    REEF_TABLES = REEF_TABLE_INDEX + REEF_MATCHES, // also: none
} reef_memory_table;

typedef struct reef_memory_sizes {
    uint64_t bytes_max;     // its bound
    uint64_t learned_bytes; // of the stream
    uint32_t lines_log2[REEF_TABLES];
} reef_memory_sizes;

/** Has a memory with that bound further contexts? */
bool reef_memory_is_wide(uint64_t bytes_max);

/** Of a memory that has learned nothing. */
reef_memory_sizes reef_memory_sizes_first(uint64_t bytes_max);

/** The table that doubles now, before the next byte; REEF_TABLES: none. Ask again until then. */
reef_memory_table reef_memory_sizes_grow(const reef_memory_sizes *sizes);

/** Can growth have led to these? `sizes` may come from anywhere. */
bool reef_memory_sizes_are_possible(const reef_memory_sizes *sizes);

/** Lines that a table of a memory with that bound has at most; of at least one byte each. */
uint32_t reef_memory_table_max_log2(uint64_t bytes_max, reef_memory_table table);

/** Bytes of the tables, the text and the mixers, as growth counts them; never above the bound. */
uint64_t reef_memory_sizes_bytes(const reef_memory_sizes *sizes);

/** The ring of the text: what it has room for now and at last, and what it holds. */
uint64_t reef_memory_text_capacity(const reef_memory_sizes *sizes);
uint64_t reef_memory_text_bound(uint64_t bytes_max);
uint64_t reef_memory_text_bytes(const reef_memory_sizes *sizes);

#endif
