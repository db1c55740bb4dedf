// Random numbers as a pure function of (seed, stream, counter): no state to store, so a restart
// after a crash draws exactly what an uninterrupted run would have drawn.
#ifndef REEF_RANDOM_H
#define REEF_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/** 64 uniform bits; SplitMix64 (Steele et al. 2014) over the three inputs. */
static inline uint64_t reef_random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint64_t z = seed + 0x9e3779b97f4a7c15u * (counter + 1);
    for (int round = 0; round < 2; round++) {
        z ^= stream * 0xd1342543de82ef95u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
    }
    return z;
}

/** Uniform in [0, 1). */
static inline double reef_random_unit(uint64_t seed, uint64_t stream, uint64_t counter) {
    return (double)(reef_random_bits(seed, stream, counter) >> 11) * 0x1p-53;
}

/** out[i] ~ N(0, deviation^2), i < count. */
void reef_random_normal(size_t count, float *out, float deviation, uint64_t seed, uint64_t stream);

/** out[i] ~ U(-bound, bound), i < count. */
void reef_random_uniform(size_t count, float *out, float bound, uint64_t seed, uint64_t stream);

#endif
