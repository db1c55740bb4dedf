// The plain loops that every other kernel agrees with to the bit.
#include "mix_layer.h"

#include "reef_kernels.h"

#include <string.h>

// Products of two neighbours are added before they are cut, as the vector instruction does.
static void mix_dot(size_t K, size_t N, int32_t *out, const int16_t *in, const int16_t *const *w) {
    for (size_t k = 0; k < K; k++) {
        int32_t sum = 0;
        for (size_t i = 0; i < N; i += 2) sum += (in[i] * w[k][i] + in[i + 1] * w[k][i + 1]) >> 6;
        out[k] = sum >> 8;
    }
}

static int16_t saturated(int32_t x) {
    if (x > INT16_MAX) return INT16_MAX;
    return (int16_t)(x < INT16_MIN ? INT16_MIN : x);
}

static void mix_train(
    size_t K, size_t N, int16_t *const *w, const int16_t *in, const int16_t *rate) {
    for (size_t k = 0; k < K; k++)
        for (size_t i = 0; i < N; i++)
            w[k][i] = saturated(w[k][i] + ((in[i] * rate[k] + (1 << 14)) >> 15));
}

const reef_mix_kernels reef_mix_scalar = {.name = "scalar", .dot = mix_dot, .train = mix_train};

const reef_mix_kernels *reef_mix_kernels_chosen(void) {
#if defined(__x86_64__)
    // One choice for the whole program: that of the router's kernels.
    if (strcmp(reef_kernels_name(), "avx512") == 0) return &reef_mix_avx512;
    if (strcmp(reef_kernels_name(), "avx2") == 0) return &reef_mix_avx2;
#endif
    return &reef_mix_scalar;
}
