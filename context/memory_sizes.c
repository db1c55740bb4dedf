// How large the tables of a memory are: what they begin with, how they grow with the stream, and
// where they end.
//
// Growth, the writer of parts and their reader all ask here and nowhere else, so a memory cannot
// grow to what cannot be read back. Everything follows from two numbers, the bound and the bytes
// learned, and is counted in 64 bits.
//
// A memory begins small. Whenever the stream has grown so that the next size stays below
// BYTES_A_BYTE times the bytes learned, and below the bound, a table doubles: indexes first, then
// cells, then trees. So what a memory takes, and what it knows, depends on the stream alone. A wide
// memory, which has further contexts, takes more for a byte.
#include "memory_internal.h"

#define BYTES_A_BYTE 24
#define WIDE_BYTES_A_BYTE 96
#define LEARNED_BYTES_MAX (1ull << 56)
#define INDEX_LINES_MIN_LOG2 8
#define INDEX_ENTRIES_A_LINE (REEF_LINE_BYTES / sizeof(uint32_t))
#define TEXT_FIRST (1ull << 16)
// An entry of an index has the lower 32 bits of a position: no more text can be told apart.
#define TEXT_MAX (1ull << 32)

// The mixers, and some more. Numbers and not sizes: growth is a function of the stream alone, on
// every machine. What a net's bytes need comes beside the bound, and so does the part of the mixers
// that a memory without further contexts leaves as it was.
#define EXPECTED_BYTES 797440
#define MIXER_BYTES (925576 + EXPECTED_BYTES)
#define WIDE_BYTES 261152 // beside them, of a wide memory

// Of the bound, for the text and for each index of matches.
#define TEXT_SHARE 16
#define INDEX_SHARE 16

bool reef_memory_is_wide(uint64_t bytes_max) {
    return bytes_max > REEF_MEMORY_BYTES_NARROW;
}

static uint32_t log2_below(uint64_t x) {
    return 63 - (uint32_t)__builtin_clzll(x);
}

// ---- the text -----------------------------------------------------------------------------------

uint64_t reef_memory_text_bound(uint64_t bytes_max) {
    uint64_t bound = 1ull << log2_below(bytes_max / TEXT_SHARE);
    return bound < TEXT_MAX ? bound : TEXT_MAX;
}

// It doubles when it is full and another byte comes.
uint64_t reef_memory_text_capacity(const reef_memory_sizes *sizes) {
    uint64_t bound = reef_memory_text_bound(sizes->bytes_max), capacity = TEXT_FIRST;
    while (capacity < bound && capacity < sizes->learned_bytes) capacity *= 2;
    return capacity;
}

uint64_t reef_memory_text_bytes(const reef_memory_sizes *sizes) {
    uint64_t capacity = reef_memory_text_capacity(sizes);
    return sizes->learned_bytes < capacity ? sizes->learned_bytes : capacity;
}

// ---- the tables ---------------------------------------------------------------------------------

static uint32_t min_log2(reef_memory_table table) {
    if (table == REEF_TABLE_CELLS) return REEF_CELL_LINES_MIN_LOG2;
    return table == REEF_TABLE_TREES ? REEF_SLOT_LINES_MIN_LOG2 : INDEX_LINES_MIN_LOG2;
}

// Cells and trees end where the hashes that find them do.
uint32_t reef_memory_table_max_log2(uint64_t bytes_max, reef_memory_table table) {
    if (table == REEF_TABLE_CELLS) return REEF_CELL_LINES_MAX_LOG2;
    if (table == REEF_TABLE_TREES) return REEF_SLOT_LINES_MAX_LOG2;
    return log2_below(bytes_max / INDEX_SHARE / REEF_LINE_BYTES);
}

static uint64_t table_bytes(const reef_memory_sizes *sizes, reef_memory_table table) {
    return (uint64_t)REEF_LINE_BYTES << sizes->lines_log2[table];
}

reef_memory_sizes reef_memory_sizes_first(uint64_t bytes_max) {
    reef_memory_sizes sizes = {.bytes_max = bytes_max};
    for (reef_memory_table t = 0; t < REEF_TABLES; t++) sizes.lines_log2[t] = min_log2(t);
    return sizes;
}

uint64_t reef_memory_sizes_bytes(const reef_memory_sizes *sizes) {
    uint64_t bytes = MIXER_BYTES + (reef_memory_is_wide(sizes->bytes_max) ? WIDE_BYTES : 0) +
                     reef_memory_text_capacity(sizes);
    for (reef_memory_table t = 0; t < REEF_TABLES; t++) bytes += table_bytes(sizes, t);
    return bytes;
}

bool reef_memory_sizes_are_possible(const reef_memory_sizes *sizes) {
    if (sizes->bytes_max < REEF_MEMORY_BYTES_MIN || sizes->bytes_max > REEF_MEMORY_BYTES_MAX ||
        sizes->learned_bytes > LEARNED_BYTES_MAX)
        return false;
    for (reef_memory_table t = 0; t < REEF_TABLES; t++)
        if (sizes->lines_log2[t] < min_log2(t) ||
            sizes->lines_log2[t] > reef_memory_table_max_log2(sizes->bytes_max, t))
            return false;
    return reef_memory_sizes_bytes(sizes) <= sizes->bytes_max;
}

// ---- growth -------------------------------------------------------------------------------------

static bool may_double(const reef_memory_sizes *sizes, reef_memory_table table) {
    if (sizes->lines_log2[table] >= reef_memory_table_max_log2(sizes->bytes_max, table))
        return false;
    const uint64_t larger = reef_memory_sizes_bytes(sizes) + table_bytes(sizes, table);
    const uint64_t a_byte =
        reef_memory_is_wide(sizes->bytes_max) ? WIDE_BYTES_A_BYTE : BYTES_A_BYTE;
    // The text doubles by itself, whenever it is full: its room is kept free.
    uint64_t text = reef_memory_text_capacity(sizes),
             text_bound = reef_memory_text_bound(sizes->bytes_max);
    uint64_t next_text = text < text_bound ? text : 0;
    // Tables begin to grow early, as if expected bytes took nothing: that was worth 0.01 bits.
    return larger + text_bound - text <= sizes->bytes_max &&
           larger + next_text <= a_byte * sizes->learned_bytes + EXPECTED_BYTES;
}

reef_memory_table reef_memory_sizes_grow(const reef_memory_sizes *sizes) {
    for (reef_memory_table t = REEF_TABLE_INDEX; t < REEF_TABLES; t++) {
        // An entry for every fourth byte: matches are long, and any of their bytes finds them.
        uint64_t entries = (uint64_t)INDEX_ENTRIES_A_LINE << sizes->lines_log2[t];
        if (entries * 4 <= sizes->learned_bytes && may_double(sizes, t)) return t;
    }
    reef_memory_table smaller =
        table_bytes(sizes, REEF_TABLE_CELLS) <= table_bytes(sizes, REEF_TABLE_TREES)
            ? REEF_TABLE_CELLS
            : REEF_TABLE_TREES;
    return may_double(sizes, smaller) ? smaller : REEF_TABLES;
}
