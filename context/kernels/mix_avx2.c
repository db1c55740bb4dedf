#include "mix_avx2.h"
#include "chance.h"
#include "mixer.h"

#include <immintrin.h>

static inline int32_t sum_of(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

static inline __m256i inputs_of(__m256i chance,
                                __m256i seen,
                                const int16_t *stretch,
                                __m256i *far) {
    __m256i half = _mm256_set1_epi32(32768);
    *far = _mm256_and_si256(
        seen, _mm256_srai_epi32(_mm256_sub_epi32(_mm256_srli_epi32(chance, 16), half), 5));
    // Two entries at once: the lower half is the one that was asked for.
    __m256i pair = _mm256_i32gather_epi32((const int *)(const void *)stretch,
                                          _mm256_srli_epi32(chance, 20), 2);
    return _mm256_and_si256(seen, _mm256_srai_epi32(_mm256_slli_epi32(pair, 16), 16));
}

void reef_mix_inputs_avx2(size_t N,
                          int16_t *odds,
                          int16_t *distance,
                          const uint32_t *chance,
                          const uint8_t *history,
                          const int16_t *stretch) {
    for (size_t i = 0; i < N; i += 8) {
        __m128i h8 = _mm_loadl_epi64((const __m128i *)(const void *)(history + i));
        __m256i seen = _mm256_cmpgt_epi32(_mm256_cvtepu8_epi32(h8), _mm256_setzero_si256());
        __m256i c = _mm256_loadu_si256((const __m256i *)(const void *)(chance + i)), far;
        __m256i near = inputs_of(c, seen, stretch, &far);
        // Four log odds, four distances, and the same of the other half: put in order.
        __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(near, far), 0xD8);
        _mm_storeu_si128((__m128i *)(void *)(odds + i), _mm256_castsi256_si128(both));
        _mm_storeu_si128((__m128i *)(void *)(distance + i), _mm256_extracti128_si256(both, 1));
    }
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

void reef_mix_update_avx2(size_t N, uint32_t *chance, int bit, const int32_t *rates) {
    const __m256i top = _mm256_set1_epi32(REEF_CHANCE_MAX);
    const __m256i limit = _mm256_set1_epi32(REEF_CHANCE_LIMIT);
    for (size_t i = 0; i < N; i += 8) {
        __m256i *at = (__m256i *)(void *)(chance + i), c = _mm256_loadu_si256(at);
        __m256i n = _mm256_and_si256(c, limit), p = _mm256_srli_epi32(c, 10);
        __m256i rate = _mm256_i32gather_epi32((const int *)rates, n, 4);
        __m256i far = _mm256_srli_epi32(bit ? _mm256_sub_epi32(top, p) : p, 6);
        __m256i step = _mm256_srli_epi32(_mm256_mullo_epi32(far, rate), 9);
        p = bit ? _mm256_add_epi32(p, step) : _mm256_sub_epi32(p, step);
        // Where n is below the limit the comparison is -1, and subtracting it counts one more.
        n = _mm256_sub_epi32(n, _mm256_cmpgt_epi32(limit, n));
        _mm256_storeu_si256(at, _mm256_or_si256(_mm256_slli_epi32(p, 10), n));
    }
}

const reef_mix_kernels reef_mix_avx2 = {.name = "avx2",
                                        .inputs = reef_mix_inputs_avx2,
                                        .dot = mix_dot,
                                        .train = mix_train,
                                        .update = reef_mix_update_avx2};
