// A probability that learns: what a bit history, a match or a direct context is worth.
//
//   bits 31..10  probability of a one, 22 bits
//   bits  9..0   how often it was updated, up to a limit
//
// It moves by 1 / (n + 1.6) of the error at its n-th update, so that few sightings count much and
// many average out, and by 1 / limit for ever after.
#ifndef REEF_CHANCE_H
#define REEF_CHANCE_H

#include <stdint.h>

typedef uint32_t reef_chance;

#define REEF_CHANCE_LIMIT 1023
#define REEF_CHANCE_MAX ((1 << 22) - 1)

/** Reciprocals for the updates: 32768 / (n + 1.6). */
const int32_t *reef_chance_rates(void);

static inline reef_chance reef_chance_of(uint32_t probability) {
    return probability << 16;
}

/** 16 bits. */
static inline uint32_t reef_chance_p(reef_chance chance) {
    return chance >> 16;
}

static inline reef_chance reef_chance_after(reef_chance chance, int bit, const int32_t *rates) {
    uint32_t n = chance & REEF_CHANCE_LIMIT;
    int32_t p = (int32_t)(chance >> 10);
    // 16 bits of the error times 15 bits of the rate stay within 32 bits. Both sides are rounded
    // down, so that neither is preferred and none is passed.
    int32_t step = (((bit ? REEF_CHANCE_MAX - p : p) >> 6) * rates[n]) >> 9;
    p = bit ? p + step : p - step;
    return (uint32_t)p << 10 | (n + (n < REEF_CHANCE_LIMIT));
}

#endif
