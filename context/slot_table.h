// Trees of bit histories: what followed a context, nibble by nibble.
//
// A slot has the 15 histories of one nibble: that of its first bit, then two for the second, four
// and eight. A byte takes two slots, one found by the context and one by context and upper nibble,
// so a bit costs no search (Mahoney 2005).
//
//   line of 64 bytes: 4 slots of    offset  size
//                                        0     1  check; 0: empty
//                                        1    15  histories; that of the first bit comes first
#ifndef REEF_SLOT_TABLE_H
#define REEF_SLOT_TABLE_H

#include "bit_history.h"
#include "lines.h"

#define REEF_SLOTS_A_LINE 4
#define REEF_SLOT_NODES 15
#define REEF_SLOT_LINES_MIN_LOG2 12
#define REEF_SLOT_LINES_MAX_LOG2 24 // the check is the lowest 8 bits of the key

typedef struct reef_slot {
    uint8_t check;
    uint8_t history[REEF_SLOT_NODES];
} reef_slot;

/** Key of the tree of a context's upper nibbles. `name`: see reef_cell_name. */
static inline uint32_t reef_slot_key(uint32_t name) {
    uint64_t h = (name + 1) * 0x9E3779B97F4A7C15ull;
    return (uint32_t)(h >> 32) ^ (uint32_t)(h >> 9);
}

/**
 * Key of the tree of the lower nibbles that follow `upper`. The last bit of `upper` is in the check
 * alone: so the line is known, and on its way, one bit before it is needed.
 */
static inline uint32_t reef_slot_key_lower(uint32_t name, uint32_t upper) {
    uint32_t three = (upper >> 1) + 1;
    return reef_slot_key(name ^ three << 28 ^ three * 0x2545F491u) ^ (upper & 1) << 7;
}

static inline size_t reef_slot_line_of(uint32_t key, uint32_t lines_log2) {
    return key >> (32 - lines_log2);
}

/** The slot of a key in its line, or NULL. */
static inline reef_slot *reef_slot_find(uint8_t *line, uint32_t key) {
    reef_slot *slots = (reef_slot *)(void *)line;
    uint8_t check = (uint8_t)key | (uint8_t)((key & 0xFF) == 0);
    for (int i = 0; i < REEF_SLOTS_A_LINE; i++)
        if (slots[i].check == check) return &slots[i];
    return NULL;
}

/** An empty slot for a key that its line does not have, in place of the one that has seen least. */
reef_slot *reef_slot_replace(uint8_t *line, uint32_t key, const reef_histories *histories);

/** The slot of a key, an empty one where its line has none. */
static inline reef_slot *reef_slot_take(uint8_t *line,
                                        uint32_t key,
                                        const reef_histories *histories) {
    reef_slot *slot = reef_slot_find(line, key);
    return slot != NULL ? slot : reef_slot_replace(line, key, histories);
}

#endif
