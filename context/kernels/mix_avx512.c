#include "chance.h"
#include "mixer.h"

#include <immintrin.h>

static void mix_inputs(size_t N,
                       int16_t *odds,
                       int16_t *distance,
                       const uint32_t *chance,
                       const uint8_t *history,
                       const int16_t *stretch) {
    for (size_t i = 0; i < N; i += 16) {
        __m512i c = _mm512_loadu_si512(chance + i);
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(history + i));
        __mmask16 seen = _mm_test_epi8_mask(h, h);
        __m512i p = _mm512_sub_epi32(_mm512_srli_epi32(c, 16), _mm512_set1_epi32(32768));
        // Two entries at once: the lower half is the one that was asked for.
        __m512i pair = _mm512_i32gather_epi32(_mm512_srli_epi32(c, 20), stretch, 2);
        __m256i o = _mm512_cvtepi32_epi16(_mm512_maskz_mov_epi32(seen, pair));
        __m256i d = _mm512_cvtepi32_epi16(_mm512_maskz_srai_epi32(seen, p, 5));
        _mm256_storeu_si256((__m256i *)(void *)(odds + i), o);
        _mm256_storeu_si256((__m256i *)(void *)(distance + i), d);
    }
}

static void mix_dot(size_t K, size_t N, int32_t *out, const int16_t *in, const int16_t *const *w) {
    for (size_t k = 0; k < K; k++) {
        __m512i sum = _mm512_setzero_si512();
        for (size_t i = 0; i < N; i += 32) {
            __m512i product =
                _mm512_madd_epi16(_mm512_loadu_si512(in + i), _mm512_loadu_si512(w[k] + i));
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
            __m512i change = _mm512_mulhrs_epi16(_mm512_loadu_si512(in + i), r);
            _mm512_storeu_si512(w[k] + i, _mm512_adds_epi16(_mm512_loadu_si512(w[k] + i), change));
        }
    }
}

static void mix_update(size_t N, uint32_t *chance, int bit, const int32_t *rates) {
    const __m512i top = _mm512_set1_epi32(REEF_CHANCE_MAX);
    const __m512i limit = _mm512_set1_epi32(REEF_CHANCE_LIMIT);
    for (size_t i = 0; i < N; i += 16) {
        __m512i c = _mm512_loadu_si512(chance + i);
        __m512i n = _mm512_and_si512(c, limit), p = _mm512_srli_epi32(c, 10);
        __m512i rate = _mm512_i32gather_epi32(n, rates, 4);
        __m512i far = _mm512_srli_epi32(bit ? _mm512_sub_epi32(top, p) : p, 6);
        __m512i step = _mm512_srli_epi32(_mm512_mullo_epi32(far, rate), 9);
        p = bit ? _mm512_add_epi32(p, step) : _mm512_sub_epi32(p, step);
        __mmask16 below = _mm512_cmplt_epi32_mask(n, limit);
        n = _mm512_mask_add_epi32(n, below, n, _mm512_set1_epi32(1));
        _mm512_storeu_si512(chance + i, _mm512_or_si512(_mm512_slli_epi32(p, 10), n));
    }
}

const reef_mix_kernels reef_mix_avx512 = {.name = "avx512",
                                          .inputs = mix_inputs,
                                          .dot = mix_dot,
                                          .train = mix_train,
                                          .update = mix_update};
