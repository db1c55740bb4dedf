// Which bytes followed each context: one cell a context.
//
// Most contexts are followed by one byte for ever, or by two. So a cell names up to two bytes and
// the history of the choice between them, in seven bytes where a tree of bit histories takes 32. A
// third byte turns the context into trees (below), and the cell says so.
//
//   line of 64 bytes   offset  size
//                           0    36   check of each of 9 cells; 0: empty
//                          36     9   first byte
//                          45     9   second byte
//                          54     9   history of the choice: zeros are the first byte, ones the
//                                     second; 255: trees, and then the first byte is the last that
//                                     came and the second how often in a row
//                          63     1   where the search for a cell to replace begins
//
// A context is a hash of 64 bits. Its line is the upper bits; its check is 32 bits from a fixed
// place on. So a table can double: the next bit of the line is one of the check's. In the largest
// table 16 of its bits are left, and one context in 7,000 is taken for another one.
#ifndef REEF_CELL_TABLE_H
#define REEF_CELL_TABLE_H

#include "bit_history.h"
#include "lines.h"

#include <stdbool.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define REEF_CELLS_A_LINE 9
#define REEF_CELL_TREES 255
#define REEF_CELL_LINES_MIN_LOG2 13 // the fewest lines: the check begins below their bits
#define REEF_CELL_LINES_MAX_LOG2 29 // 32 GiB

typedef struct reef_cell_line {
    uint32_t check[REEF_CELLS_A_LINE];
    uint8_t first[REEF_CELLS_A_LINE];
    uint8_t second[REEF_CELLS_A_LINE];
    uint8_t history[REEF_CELLS_A_LINE];
    uint8_t hand;
} reef_cell_line;

static inline size_t reef_cell_line_of(uint64_t hash, uint32_t lines_log2) {
    return (size_t)(hash >> (64 - lines_log2));
}

/** Never 0. */
static inline uint32_t reef_cell_check(uint64_t hash) {
    uint32_t check = (uint32_t)(hash >> (32 - REEF_CELL_LINES_MIN_LOG2));
    return check | (uint32_t)(check == 0);
}

/** What names a context in every size of the tables: line and check of the smallest one. */
static inline uint64_t reef_cell_name(uint64_t hash) {
    return hash >> (64 - REEF_CELL_LINES_MIN_LOG2) << 32 | reef_cell_check(hash);
}

/** The name of a context by where its cell is. */
static inline uint64_t reef_cell_name_at(size_t line, uint32_t lines_log2, uint32_t check) {
    // Line and check overlap but in the first bits of the line.
    return (uint64_t)(line >> (lines_log2 - REEF_CELL_LINES_MIN_LOG2)) << 32 | check;
}

/** Number of the cell with that check in the line; -1: none. */
static inline int reef_cell_find(const reef_cell_line *line, uint32_t check) {
    uint32_t found = 0;
#if defined(__SSE2__)
    // All at once; behind the ninth the third vector has other things.
    const __m128i wanted = _mm_set1_epi32((int32_t)check);
    const __m128i *at = (const __m128i *)(const void *)line;
    __m128i low = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_load_si128(at), wanted),
                                  _mm_cmpeq_epi32(_mm_load_si128(at + 1), wanted));
    __m128i high = _mm_cmpeq_epi32(_mm_load_si128(at + 2), wanted);
    found = (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, _mm_packs_epi32(high, high))) &
            ((1u << REEF_CELLS_A_LINE) - 1);
#else
    for (uint32_t i = 0; i < REEF_CELLS_A_LINE; i++)
        found |= (uint32_t)(line->check[i] == check) << i;
#endif
    return found == 0 ? -1 : __builtin_ctz(found);
}

/**
 * A cell for `check`, in place of the one that has seen least; of equals, in turns. What it holds
 * is for the caller to write.
 */
int reef_cell_insert(reef_cell_line *line, uint32_t check, const reef_histories *histories);

/** Is the line so full that a new cell soon costs an old one? Cells fill from the first on. */
static inline bool reef_cell_line_is_crowded(const reef_cell_line *line) {
    return line->check[REEF_CELLS_A_LINE * 3 / 4] != 0;
}

/** Move the cells of a table into one of twice the lines. `to`: zeros. */
void reef_cells_double(reef_lines *to, const reef_lines *from, const reef_histories *histories);

// ---- trees --------------------------------------------------------------------------------------
//
// Trees of bit histories: what followed a context, nibble by nibble.
//
// A slot has the 15 histories of one nibble: that of its first bit, then two for the second, four
// and eight. A byte takes two slots, one found by the context and one by context and upper nibble,
// so a bit costs no search (Mahoney 2005).
//
//   line of 64 bytes: 4 slots of    offset  size
//                                        0     1  check; 0: empty
//                                        1    15  histories; that of the first bit comes first

#define REEF_SLOTS_A_LINE 4
#define REEF_SLOT_NODES 15
#define REEF_SLOT_LINES_MIN_LOG2 12
#define REEF_SLOT_LINES_MAX_LOG2 29 // 32 GiB

typedef struct reef_slot {
    uint8_t check;
    uint8_t history[REEF_SLOT_NODES];
} reef_slot;

/**
 * Key of the tree of a context's upper nibbles: the upper bits are the line, the lowest 8 the
 * check. `name`: see reef_cell_name.
 */
static inline uint64_t reef_slot_key(uint64_t name) {
    uint64_t h = (name + 1) * 0x9E3779B97F4A7C15ull;
    h ^= h >> 32;
    h *= 0xBF58476D1CE4E5B9ull;
    return h ^ h >> 41;
}

/**
 * Key of the tree of the lower nibbles that follow `upper`. The last bit of `upper` is in the check
 * alone: so the line is known, and on its way, one bit before it is needed.
 */
static inline uint64_t reef_slot_key_lower(uint64_t name, uint32_t upper) {
    uint64_t three = (upper >> 1) + 1; // names have 45 bits
    return reef_slot_key(name ^ three << 45) ^ (upper & 1) << 7;
}

static inline size_t reef_slot_line_of(uint64_t key, uint32_t lines_log2) {
    return (size_t)(key >> (64 - lines_log2));
}

/** The slot of a key in its line, or NULL. */
static inline reef_slot *reef_slot_find(uint8_t *line, uint64_t key) {
    reef_slot *slots = (reef_slot *)(void *)line;
    uint8_t check = (uint8_t)key | (uint8_t)((key & 0xFF) == 0);
    for (int i = 0; i < REEF_SLOTS_A_LINE; i++)
        if (slots[i].check == check) return &slots[i];
    return NULL;
}

/** An empty slot for a key that its line does not have, in place of the one that has seen least. */
reef_slot *reef_slot_replace(uint8_t *line, uint64_t key, const reef_histories *histories);

/** The slot of a key, an empty one where its line has none. */
static inline reef_slot *reef_slot_take(uint8_t *line,
                                        uint64_t key,
                                        const reef_histories *histories) {
    reef_slot *slot = reef_slot_find(line, key);
    return slot != NULL ? slot : reef_slot_replace(line, key, histories);
}

#endif
