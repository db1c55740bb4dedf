// The states of a bit history, and how they follow each other.
#include "bit_history.h"

#include <assert.h>
#include <stdbool.h>
#include <threads.h>

#define ORDERED_BITS 3 // so many bits are kept in their order, and not only counted

typedef struct history {
    uint8_t zeros, ones;
    uint8_t order; // 1 and then the first bits, the newest lowest; 0 once there are more
    uint8_t last;  // the last bit; 0 where `order` says it or only one kind was seen
} history;

// How large the larger count may be beside a smaller one: precision is worth most where one kind
// is rare.
static const uint8_t LARGER_MAX[] = {REEF_HISTORY_RUN_MAX, 18, 10, 7, 6, 5};
#define SMALLER_MAX 5

static reef_histories table;
static once_flag made = ONCE_FLAG_INIT;

// What is left of a count when the other bit comes.
static uint8_t discounted(uint8_t count) {
    if (count <= 2) return count;
    if (count <= 4) return 2;
    if (count <= 6) return 3;
    if (count <= 10) return 4;
    return count <= 20 ? 5 : 6;
}

static history after(history h, int bit) {
    uint8_t seen = (uint8_t)(h.zeros + h.ones);
    uint8_t *same = bit ? &h.ones : &h.zeros, *other = bit ? &h.zeros : &h.ones;
    ++*same;
    if (seen >= ORDERED_BITS) *other = discounted(*other);
    uint8_t *smaller = h.zeros < h.ones ? &h.zeros : &h.ones;
    uint8_t *larger = h.zeros < h.ones ? &h.ones : &h.zeros;
    if (*smaller > SMALLER_MAX) *smaller = SMALLER_MAX;
    if (*larger > LARGER_MAX[*smaller]) *larger = LARGER_MAX[*smaller];
    h.order = (uint8_t)(h.order != 0 && seen < ORDERED_BITS ? h.order << 1 | bit : 0);
    h.last = (uint8_t)(h.order == 0 && h.zeros > 0 && h.ones > 0 ? bit : 0);
    return h;
}

static bool is_same(history a, history b) {
    return a.zeros == b.zeros && a.ones == b.ones && a.last == b.last && a.order == b.order;
}

static history mirrored(history h) {
    uint8_t seen = (uint8_t)(h.zeros + h.ones);
    return (history){.zeros = h.ones,
                     .ones = h.zeros,
                     .order = (uint8_t)(h.order != 0 ? h.order ^ ((1u << seen) - 1) : 0),
                     .last = (uint8_t)(h.order == 0 && h.zeros > 0 && h.ones > 0 ? !h.last : 0)};
}

// Every state that any sequence of bits leads to, numbered in the order of a breadth-first walk.
static void make_table(void) {
    history states[256] = {{.order = 1}};
    uint16_t count = 1;
    for (uint16_t i = 0; i < count; i++) {
        for (int bit = 0; bit < 2; bit++) {
            history h = after(states[i], bit);
            uint16_t at = 0;
            while (at < count && !is_same(states[at], h)) at++;
            if (at == count) {
                assert(count < 255); // 255 is free for others: see cell_table.h
                states[count++] = h;
            }
            table.next[i][bit] = (uint8_t)at;
        }
        table.zeros[i] = states[i].zeros;
        table.ones[i] = states[i].ones;
        table.visits[i] = (uint16_t)(states[i].zeros + states[i].ones);
    }
    table.count = count;
    for (uint16_t i = 0; i < count; i++)
        for (uint16_t k = 0; k < count; k++)
            if (is_same(states[k], mirrored(states[i]))) table.mirror[i] = (uint8_t)k;
    for (int bit = 0; bit < 2; bit++)
        for (int n = 1; n <= REEF_HISTORY_RUN_MAX; n++)
            table.run[n][bit] = table.next[table.run[n - 1][bit]][bit];
}

const reef_histories *reef_histories_table(void) {
    call_once(&made, make_table);
    return &table;
}
