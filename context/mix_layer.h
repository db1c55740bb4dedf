// Logistic mixing: many predictions of one bit become one (Mahoney 2005).
//
// An input is the log odds of a prediction. A set of weights gives the log odds sum(w * input); it
// is chosen among many by a small context, and learns from its own error: w += rate * error *
// input. Several sets, each chosen by another context, run side by side, and a second, smaller
// mixer weighs what they say.
//
// Weights have 16 bits, 14 of them behind the point. All sums are of whole numbers, so that plain
// C, AVX2 and AVX-512 give the same bits in whatever order they add.
//
// One layer of it: several sets of weights over the same inputs, a second mixer over what they
// say, and secondary estimation (SSE) of the result.
#ifndef REEF_MIX_LAYER_H
#define REEF_MIX_LAYER_H

#include "logistic.h"

#include <stddef.h>
#include <stdint.h>

#define REEF_INPUT_BLOCK 8 // predictions are padded with zeros to a multiple: half a vector
#define REEF_WEIGHT_ONE (1 << 14)

typedef struct reef_mix_kernels {
    const char *name;
    /** out[k] = sum over i of w[k][i] * in[i], rounded down pair by pair, in units of `in`. N is
     *  a multiple of 16 here and in train. */
    void (*dot)(size_t K, size_t N, int32_t *out, const int16_t *in, const int16_t *const *w);
    /** w[k][i] += in[i] * rate[k] / 2^15, rounded, saturating; rate is above -32768. */
    void (*train)(size_t K, size_t N, int16_t *const *w, const int16_t *in, const int16_t *rate);
} reef_mix_kernels;

extern const reef_mix_kernels reef_mix_scalar;
#if defined(__x86_64__)
extern const reef_mix_kernels reef_mix_avx2;
extern const reef_mix_kernels reef_mix_avx512;
#endif

/** Those of the instruction set that reef_kernels_choose has chosen. */
const reef_mix_kernels *reef_mix_kernels_chosen(void);

// ---- one layer ----------------------------------------------------------------------------------

// Weights begin alike: with some twenty inputs that agree, a fifth of each is about right.
#define REEF_FIRST_WEIGHT (REEF_WEIGHT_ONE / 5)
#define REEF_FIRST_WEIGHT_DISTANCE (REEF_WEIGHT_ONE / 50)
#define REEF_BIAS 256 // the constant input
#define REEF_SSE_STEPS 33
#define REEF_SSE_STEP 192 // of log odds, from one value of a row to the next
#define REEF_SSE_RATE 64
#define REEF_LAST_RATE 3               // of the second mixer
#define REEF_LAST_WEIGHT_MAX (1 << 28) // of the second mixer; far from what any text teaches

static inline uint32_t reef_mix_hash(uint64_t x) {
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    return (uint32_t)(x * 0xBF58476D1CE4E5B9ull >> 32);
}

/** The second input of a probability of 16 bits: its distance from a half. */
static inline int16_t reef_distance(uint32_t one) {
    return (int16_t)(((int32_t)one - 32768) >> 5);
}

/** Log odds of the second mixer over what the sets say; `odds` are clipped. */
static inline int32_t reef_mix_last(size_t sets, int32_t *odds, const int32_t *weights) {
    int64_t sum = 0;
    for (size_t k = 0; k < sets; k++) {
        odds[k] = reef_odds_clip(odds[k]);
        sum += (int64_t)weights[k] * odds[k];
    }
    sum >>= 16;
    if (sum > REEF_ODDS_MAX) return REEF_ODDS_MAX;
    return sum < -REEF_ODDS_MAX ? -REEF_ODDS_MAX : (int32_t)sum;
}

/** What the second mixer learns; it said `said`. */
static inline void reef_learn_last(const reef_logistic *logistic,
                                   size_t sets,
                                   int32_t *weights,
                                   const int32_t *odds,
                                   int32_t said,
                                   int bit) {
    int32_t target = bit ? 65535 : 0;
    int32_t error = (target - (int32_t)reef_squash(logistic, said)) * REEF_LAST_RATE >> 6;
    for (size_t k = 0; k < sets; k++) {
        int32_t weight = weights[k] + (odds[k] * error >> 13);
        if (weight > REEF_LAST_WEIGHT_MAX) weight = REEF_LAST_WEIGHT_MAX;
        weights[k] = weight < -REEF_LAST_WEIGHT_MAX ? -REEF_LAST_WEIGHT_MAX : weight;
    }
}

/** rates (sets) written; what each set learns of its own error, for the kernel `train`. */
static inline void reef_mix_rates(const reef_logistic *logistic,
                                  size_t sets,
                                  int16_t *rates,
                                  const int32_t *odds,
                                  int32_t rate,
                                  int bit) {
    int32_t target = bit ? 65535 : 0;
    for (size_t k = 0; k < sets; k++) {
        int64_t e = (int64_t)(target - (int32_t)reef_squash(logistic, odds[k])) * rate >> 12;
        rates[k] = (int16_t)(e > 32767 ? 32767 : e < -32767 ? -32767 : e);
    }
}

/** A row at first: the probability that went in comes out. */
static inline void reef_sse_init(const reef_logistic *logistic, uint16_t *row) {
    for (int i = 0; i < REEF_SSE_STEPS; i++)
        row[i] = (uint16_t)reef_squash(logistic,
                                       reef_odds_clip((i - REEF_SSE_STEPS / 2) * REEF_SSE_STEP));
}

/** What came of such odds in such a context: read between two steps; the nearer one learns. */
static inline uint32_t reef_refine(int32_t odds, uint16_t *row, uint16_t **learns) {
    uint32_t at = (uint32_t)(odds + REEF_ODDS_MAX + 1), step = at / REEF_SSE_STEP;
    uint32_t part = at % REEF_SSE_STEP;
    *learns = &row[step + (part > REEF_SSE_STEP / 2)];
    return (row[step] * (REEF_SSE_STEP - part) + row[step + 1] * part) / REEF_SSE_STEP;
}

static inline void reef_learn_sse(uint16_t *cell, int bit) {
    *cell = (uint16_t)(*cell + ((bit ? 65535 : 0) - *cell) / REEF_SSE_RATE);
}

static inline uint32_t reef_probability_clip(uint32_t one) {
    return one < 1 ? 1 : one > 65535 ? 65535 : one;
}

#endif
