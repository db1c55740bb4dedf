// Kernels of mix_layer.h with vectors of 256 bits: the same bits as mix_scalar.c, since all is
// whole numbers.
#include "mix_layer.h"

#include <immintrin.h>

static inline int32_t sum_of(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

static void mix_dot(size_t K, size_t N, int32_t *out, const int16_t *in, const int16_t *const *w) {
    for (size_t k = 0; k < K; k++) {
        __m256i sum = _mm256_setzero_si256();
        for (size_t i = 0; i < N; i += 16) {
            __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(in + i));
            __m256i weights = _mm256_loadu_si256((const __m256i *)(const void *)(w[k] + i));
            sum = _mm256_add_epi32(sum, _mm256_srai_epi32(_mm256_madd_epi16(x, weights), 6));
        }
        out[k] = sum_of(sum) >> 8;
    }
}

static void mix_train(
    size_t K, size_t N, int16_t *const *w, const int16_t *in, const int16_t *rate) {
    for (size_t k = 0; k < K; k++) {
        __m256i r = _mm256_set1_epi16(rate[k]);
        for (size_t i = 0; i < N; i += 16) {
            __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(in + i));
            __m256i *at = (__m256i *)(void *)(w[k] + i);
            __m256i change = _mm256_mulhrs_epi16(x, r);
            _mm256_storeu_si256(at, _mm256_adds_epi16(_mm256_loadu_si256(at), change));
        }
    }
}

const reef_mix_kernels reef_mix_avx2 = {.name = "avx2", .dot = mix_dot, .train = mix_train};
