// The kernels for AVX2 and FMA, eight floats at a time; compiled with -mavx2 -mfma.
#include "kernels_internal.h"

#include <immintrin.h>

#define VEC_FLOATS 8
#define VEC_TABLE reef_kernels_avx2
#define VEC_NAME "avx2"

typedef float vec __attribute__((vector_size(32)));
typedef int32_t vec_int __attribute__((vector_size(32)));

// Of NaN and a number, the second operand comes back.
static inline vec vec_max(vec a, vec b) {
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
}

static inline vec vec_min(vec a, vec b) {
    return (vec)_mm256_min_ps((__m256)a, (__m256)b);
}

static inline vec vec_sqrt(vec a) {
    return (vec)_mm256_sqrt_ps((__m256)a);
}

// One bit per lane where a < b does not hold, NaN included.
static inline uint32_t vec_not_below(vec a, vec b) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_NLT_UQ));
}

// One more in each lane where a > b; or where a < b does not hold.
static inline vec_int vec_count_above(vec_int counts, vec a, vec b) {
    return counts - (a > b);
}

static inline vec_int vec_count_not_below(vec_int counts, vec a, vec b) {
    return counts - ~(a < b);
}

// The lanes whose bit is set, packed, to both arrays; behind them up to a vector of each is
// overwritten.
static inline void vec_compress(
    uint32_t set, float *to, vec v, int32_t *to_numbers, vec_int numbers) {
    for (; set != 0; set &= set - 1) {
        int lane = __builtin_ctz(set);
        *to++ = v[lane];
        *to_numbers++ = numbers[lane];
    }
}

static inline vec_int vec_int_max(vec_int a, vec_int b) {
    return (vec_int)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

static inline vec_int vec_int_min(vec_int a, vec_int b) {
    return (vec_int)_mm256_min_epi32((__m256i)a, (__m256i)b);
}

// The constants of the next three are known where they are inlined.

// Lanes whose number has the bit `half` from b, the others from a.
static inline __attribute__((always_inline)) vec_int vec_int_blend(vec_int a, vec_int b, int half) {
    return (vec_int)(half == 1   ? _mm256_blend_epi32((__m256i)a, (__m256i)b, 0xaa)
                     : half == 2 ? _mm256_blend_epi32((__m256i)a, (__m256i)b, 0xcc)
                                 : _mm256_blend_epi32((__m256i)a, (__m256i)b, 0xf0));
}

// Lane i has what lane i ^ half had.
static inline __attribute__((always_inline)) vec_int vec_int_swap(vec_int v, int half) {
    return (vec_int)(half == 1   ? _mm256_shuffle_epi32((__m256i)v, 0xb1)
                     : half == 2 ? _mm256_shuffle_epi32((__m256i)v, 0x4e)
                                 : _mm256_permute2x128_si256((__m256i)v, (__m256i)v, 1));
}

// Every `size` lanes in the other direction.
static inline __attribute__((always_inline)) vec_int vec_int_mirror(vec_int v, int size) {
    if (size == 2) return vec_int_swap(v, 1);
    v = (vec_int)_mm256_shuffle_epi32((__m256i)v, 0x1b);
    return size == 4 ? v : vec_int_swap(v, 4);
}

// GCC 12 widens bytes one by one where it is left to it.
static inline vec load_i8(const int8_t *from) {
    const __m128i bytes = _mm_loadl_epi64((const __m128i_u *)from);
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

static inline __m256i first_lanes(size_t count) {
    static const int32_t mask[2 * VEC_FLOATS] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i_u *)(mask + VEC_FLOATS - count));
}

// The first `count` < VEC_FLOATS floats, zeros behind them.
static inline vec load_some(size_t count, const float *from) {
    return (vec)_mm256_maskload_ps(from, first_lanes(count));
}

static inline void store_some(size_t count, float *to, vec v) {
    _mm256_maskstore_ps(to, first_lanes(count), (__m256)v);
}

// Lanes in a fixed tree: halves onto each other until one is left.
static inline float sum_lanes(vec v) {
    __m128 four =
        _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float max_lanes(vec v) {
    __m128 four =
        _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#include "kernels_vector.h"
