// Probabilities and their log odds in integers: the same bits on every CPU.
//
//   probability   16 bits: 1 .. 65535 are 1/65536 .. 65535/65536
//   log odds      ln(p / (1 - p)) in units of 1/256, from -3071 to 3071 (so about -12 to 12)
#ifndef REEF_LOGISTIC_H
#define REEF_LOGISTIC_H

#include <stdint.h>

#define REEF_ODDS_MAX 3071

typedef struct reef_logistic {
    uint16_t squash[2 * (REEF_ODDS_MAX + 1)]; // of log odds + REEF_ODDS_MAX + 1
    int16_t stretch[4096];                    // of the upper 12 bits of a probability
    int16_t stretch_exact[65536];             // of all 16
} reef_logistic;

/** The tables, made once. Threads: any. */
const reef_logistic *reef_logistic_tables(void);

static inline int32_t reef_odds_clip(int32_t odds) {
    if (odds > REEF_ODDS_MAX) return REEF_ODDS_MAX;
    return odds < -REEF_ODDS_MAX ? -REEF_ODDS_MAX : odds;
}

/** Probability of clipped log odds. */
static inline uint32_t reef_squash(const reef_logistic *t, int32_t odds) {
    return t->squash[odds + REEF_ODDS_MAX + 1];
}

/** Where probabilities near 0 and 1 are to come out as they went in. */
static inline int16_t reef_stretch_exact(const reef_logistic *t, uint32_t probability) {
    return t->stretch_exact[probability];
}

static inline int16_t reef_stretch(const reef_logistic *t, uint32_t probability) {
    return t->stretch[probability >> 4];
}

// ---- chances ------------------------------------------------------------------------------------
//
// A probability that learns: what a bit history, a match or a direct context is worth.
//
//   bits 31..10  probability of a one, 22 bits
//   bits  9..0   how often it was updated, up to a limit
//
// It moves by 1 / (n + 1.6) of the error at its n-th update, so that few sightings count much and
// many average out, and by 1 / limit for ever after.

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
