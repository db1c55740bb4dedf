// The mixer's arithmetic, one loop per definition in 64 bits: what the kernels must agree with.
#ifndef PLAIN_MIXER_H
#define PLAIN_MIXER_H

#include <stddef.h>
#include <stdint.h>

/** The whole number at or below x / divisor, whatever the sign. */
static inline int64_t plain_floor(int64_t x, int64_t divisor) {
    int64_t quotient = x / divisor;
    return quotient - (x % divisor != 0 && x < 0);
}

/** Weights have 14 bits behind the point: 6 are cut pair by pair, 8 at the end. */
static inline void plain_dot(
    size_t K, size_t N, int64_t *out, const int16_t *in, const int16_t *const *w) {
    for (size_t k = 0; k < K; k++) {
        int64_t sum = 0;
        for (size_t i = 0; i < N; i += 2) {
            int64_t pair = (int64_t)in[i] * w[k][i] + (int64_t)in[i + 1] * w[k][i + 1];
            sum += plain_floor(pair, 64);
        }
        out[k] = plain_floor(sum, 256);
    }
}

static inline void plain_train(
    size_t K, size_t N, int16_t *const *w, const int16_t *in, const int16_t *rate) {
    for (size_t k = 0; k < K; k++)
        for (size_t i = 0; i < N; i++) {
            // A half is added before the rest is cut, so it rounds to the nearest, upwards between.
            int64_t x = w[k][i] + plain_floor((int64_t)in[i] * rate[k] + (1 << 14), 1 << 15);
            w[k][i] = (int16_t)(x > INT16_MAX ? INT16_MAX : x < INT16_MIN ? INT16_MIN : x);
        }
}

/** logistic.h: 22 bits of probability over 10 of a count that ends at 1023. */
static inline uint32_t plain_chance_after(uint32_t chance, int bit, const int32_t *rates) {
    int64_t n = chance % 1024, p = chance / 1024;
    int64_t far = (bit ? (1 << 22) - 1 - p : p) / 64;
    int64_t step = far * rates[n] / 512;
    p += bit ? step : -step;
    return (uint32_t)(p * 1024 + (n < 1023 ? n + 1 : n));
}

#endif
