// Coarse scores with the dot products of bytes of processors without AVX-512 (AVX-VNNI), eight keys
// at a time.
#include "coarse.h"

#include <immintrin.h>

#define VEC_SUMS 8
#define DOT4_SCORES reef_coarse_scores_avxvnni

typedef __m256i vec;

static inline vec vec_load(const void *from) {
    return _mm256_loadu_si256((const __m256i_u *)from);
}

static inline vec vec_set(uint32_t value) {
    return _mm256_set1_epi32((int32_t)value);
}

static inline vec vec_dot4(vec sum, vec query, vec keys) {
    return _mm256_dpbusd_avx_epi32(sum, query, keys);
}

// Rounded down; what does not fit 16 bits becomes the least or the largest of them.
static inline void vec_store_shifted(int16_t *to, vec sums, int shift) {
    const __m256i shifted = _mm256_sra_epi32(sums, _mm_cvtsi32_si128(shift));
    _mm_storeu_si128((__m128i_u *)to, _mm_packs_epi32(_mm256_castsi256_si128(shifted),
                                                      _mm256_extracti128_si256(shifted, 1)));
}

#include "coarse_dot4.h"
