// Kernels of mix_layer.h with vectors of 512 bits: the same bits as mix_scalar.c, since all is
// whole numbers.
#include "mix_layer.h"

#include <immintrin.h>

// The last sixteen inputs, where their number is an odd multiple of 16.
static inline __m512i load(const int16_t *at, size_t left) {
    if (left >= 32) return _mm512_loadu_si512(at);
    return _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

static inline void store(int16_t *at, size_t left, __m512i v) {
    if (left >= 32)
        _mm512_storeu_si512(at, v);
    else
        _mm256_storeu_si256((__m256i *)(void *)at, _mm512_castsi512_si256(v));
}

static void mix_dot(size_t K, size_t N, int32_t *out, const int16_t *in, const int16_t *const *w) {
    for (size_t k = 0; k < K; k++) {
        __m512i sum = _mm512_setzero_si512();
        for (size_t i = 0; i < N; i += 32) {
            __m512i product = _mm512_madd_epi16(load(in + i, N - i), load(w[k] + i, N - i));
            sum = _mm512_add_epi32(sum, _mm512_srai_epi32(product, 6));
        }
        out[k] = _mm512_reduce_add_epi32(sum) >> 8;
    }
}

static void mix_train(
    size_t K, size_t N, int16_t *const *w, const int16_t *in, const int16_t *rate) {
    for (size_t k = 0; k < K; k++) {
        __m512i r = _mm512_set1_epi16(rate[k]);
        for (size_t i = 0; i < N; i += 32) {
            __m512i change = _mm512_mulhrs_epi16(load(in + i, N - i), r);
            store(w[k] + i, N - i, _mm512_adds_epi16(load(w[k] + i, N - i), change));
        }
    }
}

const reef_mix_kernels reef_mix_avx512 = {.name = "avx512", .dot = mix_dot, .train = mix_train};
