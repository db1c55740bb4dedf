// The kernel for dot products of bytes with instructions of AVX2 in their place, so that it is
// tested where no processor has them. Exact, because bytes of keys are at most 64 in size.
#include "emulated_dot4.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define VEC_SUMS 8
#define DOT4_SCORES emulated_dot4_scores

typedef __m256i vec;

static inline vec vec_load(const void *from) {
    return _mm256_loadu_si256((const __m256i_u *)from);
}

static inline vec vec_set(uint32_t value) {
    return _mm256_set1_epi32((int32_t)value);
}

static inline vec vec_dot4(vec sum, vec query, vec keys) {
    const __m256i pairs = _mm256_maddubs_epi16(query, keys);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline void vec_store_shifted(int16_t *to, vec sums, int shift) {
    const __m256i shifted = _mm256_sra_epi32(sums, _mm_cvtsi32_si128(shift));
    _mm_storeu_si128((__m128i_u *)to, _mm_packs_epi32(_mm256_castsi256_si128(shifted),
                                                      _mm256_extracti128_si256(shifted, 1)));
}

#include "coarse_dot4.h"
#endif
