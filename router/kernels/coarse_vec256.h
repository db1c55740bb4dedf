// Vectors of 256 bits for coarse_dot4.h: all but vec_dot4, for which instruction sets differ. Also
// included by the test that emulates vec_dot4 with AVX2, so that the rest is tested everywhere.
#define VEC_SUMS 8

typedef __m256i vec;

static inline vec vec_load(const void *from) {
    return _mm256_loadu_si256((const __m256i_u *)from);
}

static inline vec vec_set(uint32_t value) {
    return _mm256_set1_epi32((int32_t)value);
}

// Rounded down; what does not fit 16 bits becomes the least or the largest of them.
static inline void vec_store_shifted(int16_t *to, vec sums, int shift) {
    const __m256i shifted = _mm256_sra_epi32(sums, _mm_cvtsi32_si128(shift));
    _mm_storeu_si128((__m128i_u *)to, _mm_packs_epi32(_mm256_castsi256_si128(shifted),
                                                      _mm256_extracti128_si256(shifted, 1)));
}
