// How much of a text a memory has met: of the contexts of a few orders that the text has, each
// counted once, the part for which there is a cell.
//
// This tells kinds of text apart where losses do not. The loss of text that was never met depends
// on how compressible it is by itself, and a session adapts to it within kilobytes.
#include "memory_internal.h"

#include <string.h>

static const uint32_t ORDERS[] = {3, 4, 5, 8};
#define ORDER_COUNT (sizeof(ORDERS) / sizeof(*ORDERS))
#define BYTES_BEFORE 8 // of the longest context
#define SEEN_LOG2 13   // twice as many as there are contexts in a text
#define FLOOR 50       // a fiftieth counts as met, where nothing is
_Static_assert(1u << SEEN_LOG2 >= 2 * REEF_FAMILIARITY_BYTES_MAX, "a table at most half full");

// 256 times the logarithm to the base 2, rounded down; of whole numbers, so the same everywhere.
static int32_t log2_256(uint64_t x) {
    int32_t whole = 63 - __builtin_clzll(x), part = 0;
    // From 1 to below 2, in units of 2^-31. Squaring doubles the logarithm: its next bit is whether
    // the square has reached 2.
    uint64_t y = whole > 31 ? x >> (whole - 31) : x << (31 - whole);
    for (int bit = 0; bit < 8; bit++) {
        y = y * y >> 31;
        part <<= 1;
        if (y >> 32) {
            y >>= 1;
            part |= 1;
        }
    }
    return whole * 256 + part;
}

// Was the context not among those that came before it? A hash of 0 is taken for one of 1.
static bool is_first(uint32_t *seen, uint32_t hash) {
    uint32_t wanted = hash == 0 ? 1 : hash, at = wanted >> (32 - SEEN_LOG2);
    while (seen[at] != 0) {
        if (seen[at] == wanted) return false;
        at = (at + 1) & ((1u << SEEN_LOG2) - 1);
    }
    seen[at] = wanted;
    return true;
}

static bool is_met(const reef_predictor *p, uint64_t hash) {
    const uint8_t *line = reef_lines_peek(&p->cells, reef_cell_line_of(hash, p->cell_lines_log2));
    return reef_cell_find((const reef_cell_line *)(const void *)line, reef_cell_check(hash)) >= 0;
}

static int32_t of_order(const reef_memory *memory,
                        uint32_t order,
                        const uint8_t *text,
                        size_t count) {
    uint32_t seen[1u << SEEN_LOG2];
    uint64_t bytes = 0, contexts = 0, met = 0;
    memset(seen, 0, sizeof(seen));
    for (size_t i = 0; i < count; i++) {
        bytes = bytes << 8 | text[i];
        if (i + 1 < BYTES_BEFORE) continue;
        uint64_t hash = reef_order_hash(order, bytes);
        if (!is_first(seen, (uint32_t)(hash >> 32))) continue;
        contexts++;
        met += memory != NULL && is_met(&memory->predictor, hash);
    }
    return contexts == 0 ? 0 : log2_256(met * FLOOR + contexts) - log2_256(contexts * FLOOR);
}

int32_t reef_memory_familiarity(const reef_memory *memory, const uint8_t *text, size_t count) {
    int32_t sum = 0;
    if (count > REEF_FAMILIARITY_BYTES_MAX) count = REEF_FAMILIARITY_BYTES_MAX;
    for (size_t i = 0; i < ORDER_COUNT; i++) sum += of_order(memory, ORDERS[i], text, count);
    return sum;
}
