// How large the tables of a memory are: what they begin with, how they grow with the stream, and
// where they end.
//
// Growth, the writer of parts and their reader all ask here and nowhere else, so a memory cannot
// grow to what cannot be read back. Everything follows from two numbers, the bound and the bytes
// learned, and is counted in 64 bits.
//
// A memory begins small. A table doubles whenever the stream has grown so that there is room for
// the next size, up to its share of the bound. So what a memory takes, and what it knows, depends
// on the stream alone.
//
// Of the power of two below the bound cells have a half, trees a quarter, and the two indexes of
// the text an eighth each, so together they stay within it. The text itself is stored in blocks
// that do not change, and read there: four times the bound are kept.
//
// Room for cells and trees, by what the stream has:
//
//   84 kB   500 kB   1.7 MB   10 MB    100 MB    1 GB
//   1.3 MB   12 MB    50 MB   254 MB   806 MB   2.5 GB
//
// First contexts come with each byte, later ever fewer of them are met again: of 10 MB of C half of
// the room costs 0.6 % of the bits.
#include "memory_internal.h"

#include <assert.h>

#define LEARNED_BYTES_MAX (1ull << 56)
#define INDEX_LINES_MIN_LOG2 8
#define INDEX_ENTRIES_A_LINE (REEF_LINE_BYTES / sizeof(uint32_t))
// Bytes of text for an entry of an index. The index of long matches has as many entries as places
// are entered: with an eighth of them a repeated passage was found some fifty bytes later.
#define INDEX_SPARSE 8
#define INDEX_LINES_MAX_LOG2 26
static_assert(INDEX_ENTRIES_A_LINE * INDEX_SPARSE << (INDEX_LINES_MAX_LOG2 - 1) ==
                  REEF_MEMORY_TEXT_MAX,
              "it doubles for the last time when the text is as long as it gets");
// An entry of an index has the lower 32 bits of a position: more text could not be told apart.
static_assert(REEF_MEMORY_TEXT_MAX <= 1ull << 32, "32 bits hold every position in the text");

static uint32_t log2_below(uint64_t x) {
    return 63 - (uint32_t)__builtin_clzll(x);
}

// ---- the text -----------------------------------------------------------------------------------

uint64_t reef_memory_text_max(uint64_t bytes_max) {
    uint64_t bound = 1ull << log2_below(bytes_max) << 2;
    return bound < REEF_MEMORY_TEXT_MAX ? bound : REEF_MEMORY_TEXT_MAX;
}

uint64_t reef_memory_text_bytes(const reef_memory_sizes *sizes) {
    return sizes->learned_bytes - reef_text_begin(sizes->learned_bytes, sizes->text_max);
}

// ---- the tables ---------------------------------------------------------------------------------

static uint32_t min_log2(reef_memory_table table) {
    if (table == REEF_TABLE_CELLS) return REEF_CELL_LINES_MIN_LOG2;
    return table == REEF_TABLE_TREES ? REEF_SLOT_LINES_MIN_LOG2 : INDEX_LINES_MIN_LOG2;
}

uint32_t reef_memory_table_max_log2(uint64_t bytes_max, reef_memory_table table) {
    uint32_t all = log2_below(bytes_max / REEF_LINE_BYTES);
    if (table == REEF_TABLE_CELLS) return all - 1;
    if (table == REEF_TABLE_TREES) return all - 2;
    // Of all the text there can be.
    return all - 3 < INDEX_LINES_MAX_LOG2 ? all - 3 : INDEX_LINES_MAX_LOG2;
}

static uint64_t table_bytes(const reef_memory_sizes *sizes, reef_memory_table table) {
    return (uint64_t)REEF_LINE_BYTES << sizes->lines_log2[table];
}

reef_memory_sizes reef_memory_sizes_first(uint64_t bytes_max, uint64_t text_max) {
    reef_memory_sizes sizes = {.bytes_max = bytes_max, .text_max = text_max};
    for (reef_memory_table t = 0; t < REEF_TABLES; t++) sizes.lines_log2[t] = min_log2(t);
    return sizes;
}

uint64_t reef_memory_sizes_bytes(const reef_memory_sizes *sizes) {
    uint64_t bytes = 0;
    for (reef_memory_table t = 0; t < REEF_TABLES; t++) bytes += table_bytes(sizes, t);
    return bytes;
}

bool reef_memory_sizes_are_possible(const reef_memory_sizes *sizes) {
    if (sizes->bytes_max < REEF_MEMORY_BYTES_MIN || sizes->bytes_max > REEF_MEMORY_BYTES_MAX ||
        sizes->learned_bytes > LEARNED_BYTES_MAX)
        return false;
    if (sizes->text_max < REEF_MEMORY_TEXT_MIN || sizes->text_max > REEF_MEMORY_TEXT_MAX ||
        sizes->text_max % REEF_TEXT_BLOCK_BYTES != 0)
        return false;
    for (reef_memory_table t = 0; t < REEF_TABLES; t++)
        if (sizes->lines_log2[t] < min_log2(t) ||
            sizes->lines_log2[t] > reef_memory_table_max_log2(sizes->bytes_max, t))
            return false;
    return true;
}

// ---- growth -------------------------------------------------------------------------------------

static uint64_t root_below(uint64_t x) {
    uint64_t root = 0;
    for (uint64_t bit = 1ull << 31; bit > 0; bit /= 2)
        if ((root + bit) * (root + bit) <= x) root += bit;
    return root;
}

// While a stream is short its mixers take as much as its tables: a part of the room is theirs.
static uint64_t room_of(uint64_t learned) {
    uint64_t few = learned < 256 << 10 ? 16 * learned : 32 * learned - (4 << 20);
    uint64_t many = 80600 * root_below(learned);
    return few < many ? few : many;
}

static bool may_double(const reef_memory_sizes *sizes, reef_memory_table table) {
    return sizes->lines_log2[table] < reef_memory_table_max_log2(sizes->bytes_max, table);
}

reef_memory_table reef_memory_sizes_grow(const reef_memory_sizes *sizes) {
    for (reef_memory_table t = REEF_TABLE_INDEX; t < REEF_TABLES; t++) {
        uint64_t entries = (uint64_t)INDEX_ENTRIES_A_LINE << sizes->lines_log2[t];
        if (entries * INDEX_SPARSE <= reef_memory_text_bytes(sizes) && may_double(sizes, t))
            return t;
    }
    bool cells_first = sizes->lines_log2[REEF_TABLE_CELLS] <= sizes->lines_log2[REEF_TABLE_TREES];
    reef_memory_table next = cells_first ? REEF_TABLE_CELLS : REEF_TABLE_TREES;
    uint64_t larger = table_bytes(sizes, REEF_TABLE_CELLS) + table_bytes(sizes, REEF_TABLE_TREES) +
                      table_bytes(sizes, next);
    return may_double(sizes, next) && larger <= room_of(sizes->learned_bytes) ? next : REEF_TABLES;
}
