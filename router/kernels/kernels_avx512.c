// The kernels for AVX-512, sixteen floats at a time; compiled with -mavx512f and its dq, bw and
// vl extensions.
#include "kernels_internal.h"

#include <immintrin.h>

#define VEC_FLOATS 16
#define VEC_TABLE reef_kernels_avx512
#define VEC_NAME "avx512"

typedef float vec __attribute__((vector_size(64)));
typedef int32_t vec_int __attribute__((vector_size(64)));

// Of NaN and a number, the second operand comes back.
static inline vec vec_max(vec a, vec b) {
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
}

static inline vec vec_min(vec a, vec b) {
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
}

static inline vec vec_sqrt(vec a) {
    return (vec)_mm512_sqrt_ps((__m512)a);
}

// One bit per lane where a < b does not hold, NaN included.
static inline uint32_t vec_not_below(vec a, vec b) {
    return (uint32_t)_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_NLT_UQ);
}

// One more in each lane where a > b; or where a < b does not hold.
static inline vec_int vec_count_above(vec_int counts, vec a, vec b) {
    __mmask16 above = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
    return (vec_int)_mm512_mask_add_epi32((__m512i)counts, above, (__m512i)counts,
                                          _mm512_set1_epi32(1));
}

static inline vec_int vec_count_not_below(vec_int counts, vec a, vec b) {
    __mmask16 not_below = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_NLT_UQ);
    return (vec_int)_mm512_mask_add_epi32((__m512i)counts, not_below, (__m512i)counts,
                                          _mm512_set1_epi32(1));
}

// The lanes whose bit is set, packed, to both arrays; behind them up to a vector of each is
// overwritten.
static inline void vec_compress(
    uint32_t set, float *to, vec v, int32_t *to_numbers, vec_int numbers) {
    // Straight to memory the instruction takes a hundred cycles on some CPUs.
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps((__mmask16)set, (__m512)v));
    _mm512_storeu_si512(to_numbers, _mm512_maskz_compress_epi32((__mmask16)set, (__m512i)numbers));
}

static inline vec_int vec_int_max(vec_int a, vec_int b) {
    return (vec_int)_mm512_max_epi32((__m512i)a, (__m512i)b);
}

static inline vec_int vec_int_min(vec_int a, vec_int b) {
    return (vec_int)_mm512_min_epi32((__m512i)a, (__m512i)b);
}

// The constants of the next three are known where they are inlined.

// Lanes whose number has the bit `half` from b, the others from a.
static inline __attribute__((always_inline)) vec_int vec_int_blend(vec_int a, vec_int b, int half) {
    const __mmask16 lanes = half == 1 ? 0xaaaa : half == 2 ? 0xcccc : half == 4 ? 0xf0f0 : 0xff00;
    return (vec_int)_mm512_mask_blend_epi32(lanes, (__m512i)a, (__m512i)b);
}

// Lane i has what lane i ^ half had.
static inline __attribute__((always_inline)) vec_int vec_int_swap(vec_int v, int half) {
    return (vec_int)(half == 1   ? _mm512_shuffle_epi32((__m512i)v, 0xb1)
                     : half == 2 ? _mm512_shuffle_epi32((__m512i)v, 0x4e)
                     : half == 4 ? _mm512_shuffle_i64x2((__m512i)v, (__m512i)v, 0xb1)
                                 : _mm512_shuffle_i64x2((__m512i)v, (__m512i)v, 0x4e));
}

// Every `size` lanes in the other direction.
static inline __attribute__((always_inline)) vec_int vec_int_mirror(vec_int v, int size) {
    if (size == 2) return vec_int_swap(v, 1);
    v = (vec_int)_mm512_shuffle_epi32((__m512i)v, 0x1b);
    if (size == 4) return v;
    return size == 8 ? vec_int_swap(v, 4)
                     : (vec_int)_mm512_shuffle_i64x2((__m512i)v, (__m512i)v, 0x1b);
}

// GCC 12 widens bytes one by one where it is left to it.
static inline vec load_i8(const int8_t *from) {
    const __m128i bytes = _mm_loadu_si128((const __m128i_u *)from);
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

static inline __mmask16 first_lanes(size_t count) {
    return (__mmask16)((1u << count) - 1);
}

// The first `count` < VEC_FLOATS floats, zeros behind them.
static inline vec load_some(size_t count, const float *from) {
    return (vec)_mm512_maskz_loadu_ps(first_lanes(count), from);
}

static inline void store_some(size_t count, float *to, vec v) {
    _mm512_mask_storeu_ps(to, first_lanes(count), (__m512)v);
}

// Lanes in a fixed tree: halves onto each other until one is left.
static inline float sum_lanes(vec v) {
    __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float max_lanes(vec v) {
    __m256 eight =
        _mm256_max_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#include "kernels_vector.h"
