// Initial values of whole tensors.
#include "reef_random.h"

#include <math.h>

void reef_random_normal(size_t count, float *out, float deviation, uint64_t seed, uint64_t stream) {
    const double two_pi = 6.283185307179586;
    for (size_t i = 0; i < count; i++) {
        // Box-Muller, one of the pair: two draws per value keep value i independent of `count`.
        double u = 1.0 - reef_random_unit(seed, stream, 2 * i); // in (0, 1]
        double angle = two_pi * reef_random_unit(seed, stream, 2 * i + 1);
        out[i] = deviation * (float)(sqrt(-2.0 * log(u)) * cos(angle));
    }
}

void reef_random_uniform(size_t count, float *out, float bound, uint64_t seed, uint64_t stream) {
    for (size_t i = 0; i < count; i++)
        out[i] = bound * (float)(2.0 * reef_random_unit(seed, stream, i) - 1.0);
}
