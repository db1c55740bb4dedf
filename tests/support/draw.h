// Numbers for tests: a small generator with its state in the caller's hands (SplitMix64, Steele et
// al. 2014), so that a test's data depends on its seed alone.
#ifndef DRAW_H
#define DRAW_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t draw_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/** Uniform in [low, high). */
static inline float draw_float(uint64_t *state, float low, float high) {
    return low + (high - low) * ((float)(draw_bits(state) >> 40) * 0x1p-24f);
}

/** Uniform in low .. high. */
static inline int draw_int(uint64_t *state, int low, int high) {
    return low + (int)(draw_bits(state) % (uint64_t)(high - low + 1));
}

static inline void draw_floats(uint64_t *state, size_t count, float *x, float low, float high) {
    for (size_t i = 0; i < count; i++) x[i] = draw_float(state, low, high);
}

/** Small whole numbers, so that ties happen and sums are exact. */
static inline void draw_ints(uint64_t *state, size_t count, float *x, int low, int high) {
    for (size_t i = 0; i < count; i++) x[i] = (float)draw_int(state, low, high);
}

#endif
