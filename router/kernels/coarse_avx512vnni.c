// Coarse scores with the dot products of bytes of AVX-512 (VNNI), sixteen keys at a time.
#include "coarse.h"

#include <immintrin.h>

#define VEC_SUMS 16
#define DOT4_SCORES reef_coarse_scores_avx512vnni

typedef __m512i vec;

static inline vec vec_load(const void *from) {
    return _mm512_loadu_si512(from);
}

static inline vec vec_set(uint32_t value) {
    return _mm512_set1_epi32((int32_t)value);
}

static inline vec vec_dot4(vec sum, vec query, vec keys) {
    return _mm512_dpbusd_epi32(sum, query, keys);
}

// Rounded down; what does not fit 16 bits becomes the least or the largest of them.
static inline void vec_store_shifted(int16_t *to, vec sums, int shift) {
    const __m512i shifted = _mm512_sra_epi32(sums, _mm_cvtsi32_si128(shift));
    _mm256_storeu_si256((__m256i_u *)to, _mm512_cvtsepi32_epi16(shifted));
}

#include "coarse_dot4.h"
