// See cell_table.h.
#include "cell_table.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

static_assert(sizeof(reef_cell_line) == REEF_LINE_BYTES, "a line of cells is a cache line");
static_assert(sizeof(reef_slot) * REEF_SLOTS_A_LINE == REEF_LINE_BYTES,
              "a line of slots is a cache line");

#define TREES_WORTH 256

int reef_cell_insert(reef_cell_line *line, uint32_t check, const reef_histories *histories) {
    int best = 0, least = 1 << 30;
    for (int k = 0, i = line->hand; k < REEF_CELLS_A_LINE; k++) {
        // Begin behind the last cell that was replaced, so that equal ones go in turns, mostly by
        // age. Trees have no visits here and are worth most: they are lost without their cell.
        uint8_t history = line->history[i];
        int w = history == REEF_CELL_TREES ? TREES_WORTH : histories->visits[history];
        if (line->check[i] == 0) w = -1;
        if (w < least) least = w, best = i;
        if (w < 0) break;
        if (++i == REEF_CELLS_A_LINE) i = 0;
    }
    line->hand = best + 1 == REEF_CELLS_A_LINE ? 0 : (uint8_t)(best + 1);
    line->check[best] = check;
    return best;
}

void reef_cells_double(reef_lines *to, const reef_lines *from, const reef_histories *histories) {
    assert(to->count == 2 * from->count);
    uint32_t log2 = (uint32_t)__builtin_ctzll(from->count);
    for (size_t at = 0; at < from->count; at++) {
        const reef_cell_line *old = (const reef_cell_line *)(const void *)reef_lines_peek(from, at);
        for (int i = 0; i < REEF_CELLS_A_LINE; i++) {
            // From the oldest on, so that the order of age is kept in both halves.
            int c = (old->hand + i) % REEF_CELLS_A_LINE;
            if (old->check[c] == 0) continue;
            // The bits of the check begin behind those of the smallest table's line.
            uint32_t bit = old->check[c] >> (31 - (log2 - REEF_CELL_LINES_MIN_LOG2)) & 1;
            reef_cell_line *new = (reef_cell_line *)(void *)reef_lines_at(to, 2 * at + bit);
            int into = reef_cell_insert(new, old->check[c], histories);
            new->first[into] = old->first[c];
            new->second[into] = old->second[c];
            new->history[into] = old->history[c];
        }
    }
}

reef_slot *reef_slot_replace(uint8_t *line, uint64_t key, const reef_histories *histories) {
    reef_slot *slots = (reef_slot *)(void *)line, *found = slots;
    int least = 1 << 30;
    for (int i = 0; i < REEF_SLOTS_A_LINE; i++) {
        // The history of the first bit has counted every visit, as far as it counts.
        int visits = slots[i].check == 0 ? -1 : histories->visits[slots[i].history[0]];
        if (visits < least) least = visits, found = &slots[i];
    }
    memset(found, 0, sizeof(*found));
    found->check = (uint8_t)key | (uint8_t)((key & 0xFF) == 0);
    return found;
}
