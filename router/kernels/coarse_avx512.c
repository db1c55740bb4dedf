// The first pass with AVX-512 and its extensions for bytes and words (VNNI, VBMI2): all that is
// done for each query, see coarse.h. Tables are rounded by coarse_avx2.c.
#include "coarse_bounds.h"

#include <immintrin.h>
#include <string.h>

enum {
    LANES = 16,
    WIDE = 8, // queries at a time: twice as many sums as an instruction's results take to come
    WORDS = 32
};

static inline __mmask32 first_words(size_t count) {
    return count < WORDS ? (1u << count) - 1 : ~0u;
}

static inline __mmask16 first_lanes(size_t count) {
    return (__mmask16)(count < LANES ? (1u << count) - 1 : 0xffff);
}

// ---- queries ------------------------------------------------------------------------------------

coarse_query reef_coarse_query_avx512(const coarse_table *table,
                                      const float *query,
                                      uint32_t *groups,
                                      int16_t *words) {
    const size_t half = table->half;
    __m512 squares = _mm512_setzero_ps(), rests = squares, value = squares;
    for (size_t d = 0; d < half; d += LANES) {
        const __m512 q = _mm512_maskz_loadu_ps(first_lanes(half - d), query + d);
        squares = _mm512_fmadd_ps(q, q, squares);
        value = _mm512_max_ps(_mm512_abs_ps(q), value);
    }
    const float square = _mm512_reduce_add_ps(squares);
    const coarse_steps step = coarse_steps_of(
        table,
        (coarse_extent){.whole = square, .chunk = square, .value = _mm512_reduce_max_ps(value)});
    if (step.norm < 0) return (coarse_query){-1, 0, 0};

    const __m512 per = _mm512_set1_ps(1 / step.byte), steps = _mm512_set1_ps(step.byte);
    const __m512 per_word = _mm512_set1_ps(1 / step.word);
    squares = _mm512_setzero_ps();
    for (size_t d = 0; d < half; d += LANES) {
        const __mmask16 here = first_lanes(half - d);
        const __m512 q = _mm512_maskz_loadu_ps(here, query + d);
        const __m512i rho = _mm512_cvtps_epi32(_mm512_mul_ps(q, per));
        const __m512 whole = _mm512_cvtepi32_ps(rho), rest = _mm512_fnmadd_ps(whole, steps, q);
        rests = _mm512_fmadd_ps(rest, rest, rests);
        squares = _mm512_fmadd_ps(whole, whole, squares);
        const __m512i word = _mm512_cvtps_epi32(_mm512_mul_ps(q, per_word));
        _mm256_mask_storeu_epi16(words + d, here, _mm512_cvtepi32_epi16(word));
        const __m512i byte = _mm512_add_epi32(rho, _mm512_set1_epi32(COARSE_BYTE_ZERO));
        _mm_mask_storeu_epi8((uint8_t *)groups + d, here, _mm512_cvtepi32_epi8(byte));
    }
    return coarse_query_of(table, step, _mm512_reduce_add_ps(rests), _mm512_reduce_add_ps(squares));
}

// ---- scores -------------------------------------------------------------------------------------

// One block of keys and some queries, a constant, whose sums stay in registers.
static inline __attribute__((always_inline)) void score_block(size_t queries,
                                                              size_t half,
                                                              const int8_t *bytes,
                                                              const int32_t *totals,
                                                              const uint32_t *groups,
                                                              int16_t *scores,
                                                              size_t stride) {
    const __m512i shift = _mm512_set1_epi32(coarse_shift(half, 4));
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i sums[WIDE][2];
    for (size_t n = 0; n < queries; n++)
        for (size_t i = 0; i < 2; i++) sums[n][i] = _mm512_loadu_si512(totals + i * LANES);
    for (size_t d = 0; d < half; d += 4) {
        const __m512i keys0 = _mm512_loadu_si512(bytes + d * COARSE_KEYS);
        const __m512i keys1 = _mm512_loadu_si512(bytes + d * COARSE_KEYS + sizeof(__m512i));
#pragma GCC unroll 8
        for (size_t n = 0; n < queries; n++) {
            const __m512i query = _mm512_set1_epi32((int32_t)groups[(n * half + d) / 4]);
            sums[n][0] = _mm512_dpbusd_epi32(sums[n][0], query, keys0);
            sums[n][1] = _mm512_dpbusd_epi32(sums[n][1], query, keys1);
        }
    }
    for (size_t n = 0; n < queries; n++) {
        // With saturation for the keys that fill a block; in lanes of four of both.
        const __m512i both = _mm512_packs_epi32(_mm512_srav_epi32(sums[n][0], shift),
                                                _mm512_srav_epi32(sums[n][1], shift));
        _mm512_storeu_si512(scores + n * stride, _mm512_permutexvar_epi64(order, both));
    }
}

void reef_coarse_scores_avx512(const coarse_table *table,
                               size_t count,
                               const uint32_t *groups,
                               int16_t *scores,
                               size_t stride) {
    const size_t half = table->half;
    for (size_t key = 0; key < table->side; key += COARSE_KEYS) {
        const int8_t *bytes = table->bytes + key * half;
        size_t n = 0;
        for (; n + WIDE <= count; n += WIDE)
            score_block(WIDE, half, bytes, table->totals + key, groups + n * (half / 4),
                        scores + n * stride + key, stride);
        for (; n < count; n += COARSE_QUERIES)
            score_block(COARSE_QUERIES, half, bytes, table->totals + key, groups + n * (half / 4),
                        scores + n * stride + key, stride);
    }
}

// ---- what is left -------------------------------------------------------------------------------

// The K-th largest of COARSE_KEYS values: the least of those that fewer than K others exceed.
static int16_t kth_largest(__m512i values, size_t K) {
    // Each twice, since an instruction that loads one word for all lanes also shuffles.
    int32_t each[COARSE_KEYS];
    _mm512_storeu_si512(each, _mm512_unpacklo_epi16(values, values));
    _mm512_storeu_si512(each + COARSE_KEYS / 2, _mm512_unpackhi_epi16(values, values));
    const __m512i one = _mm512_set1_epi16(1);
    __m512i above[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 16
    for (size_t n = 0; n < COARSE_KEYS; n++) {
        const __mmask32 more = _mm512_cmpgt_epi16_mask(_mm512_set1_epi32(each[n]), values);
        above[n % 2] = _mm512_mask_add_epi16(above[n % 2], more, above[n % 2], one);
    }
    const __mmask32 fewer = _mm512_cmplt_epi16_mask(_mm512_add_epi16(above[0], above[1]),
                                                    _mm512_set1_epi16((int16_t)K));
    values = _mm512_mask_mov_epi16(_mm512_set1_epi16(INT16_MAX), fewer, values);
    const __m256i sixteen =
        _mm256_min_epi16(_mm512_castsi512_si256(values), _mm512_extracti64x4_epi64(values, 1));
    __m128i least =
        _mm_min_epi16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1));
    // There is an instruction for the least of eight unsigned numbers.
    least = _mm_minpos_epu16(_mm_xor_si128(least, _mm_set1_epi16(INT16_MIN)));
    return (int16_t)(_mm_extract_epi16(least, 0) ^ 0x8000);
}

int16_t reef_coarse_least_avx512(size_t side, const int16_t *scores, size_t K) {
    // Of the best K at least K are among these maxima or above them, see lower_bound in
    // kernels_vector.h.
    __m512i most = _mm512_loadu_si512(scores);
    for (size_t i = COARSE_KEYS; i < side; i += COARSE_KEYS)
        most = _mm512_max_epi16(most, _mm512_loadu_si512(scores + i));
    return kth_largest(most, K);
}

size_t reef_coarse_reach_avx512(size_t side, const int16_t *scores, int32_t least, uint16_t *rows) {
    if (least <= INT16_MIN + 1) return 0; // padding would reach it
    const __m512i below = _mm512_set1_epi16((int16_t)(least - 1));
    const __m512i step = _mm512_set1_epi16(COARSE_KEYS);
    __m512i numbers = _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17,
                                       16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    size_t count = 0;
    for (size_t i = 0; i < side; i += COARSE_KEYS) {
        const __mmask32 reached = _mm512_cmpgt_epi16_mask(_mm512_loadu_si512(scores + i), below);
        // Straight to memory the instruction takes a hundred cycles on some CPUs.
        _mm512_storeu_si512(rows + count, _mm512_maskz_compress_epi16(reached, numbers));
        numbers = _mm512_add_epi16(numbers, step);
        count += (size_t)__builtin_popcount(reached);
        if (count > COARSE_FOUND_MAX) return 0;
    }
    return count;
}

// ---- nearly exact scores ------------------------------------------------------------------------

static void pad_rows(size_t count, uint16_t *rows) {
    _mm256_storeu_si256((__m256i_u *)(rows + count), _mm256_set1_epi16((int16_t)rows[0])); // any
}

// Lane n: the sum of vector n. Each step halves the vectors and adds halves of their sums.
static inline __m512i sums_of(const __m512i *v) {
    __m512i twos[8], fours[4];
    for (size_t n = 0; n < 8; n++) // lanes: v0 v1 v0 v1, of two sums each
        twos[n] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2 * n], v[2 * n + 1]),
                                   _mm512_unpackhi_epi32(v[2 * n], v[2 * n + 1]));
    for (size_t n = 0; n < 4; n++) // v0 v1 v2 v3, of four each
        fours[n] = _mm512_add_epi32(_mm512_unpacklo_epi64(twos[2 * n], twos[2 * n + 1]),
                                    _mm512_unpackhi_epi64(twos[2 * n], twos[2 * n + 1]));
    const __m512i low = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[0], fours[1], 0x88),
                                         _mm512_shuffle_i32x4(fours[0], fours[1], 0xdd));
    const __m512i high = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[2], fours[3], 0x88),
                                          _mm512_shuffle_i32x4(fours[2], fours[3], 0xdd));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88),
                            _mm512_shuffle_i32x4(low, high, 0xdd));
}

// Products of words, of sixteen keys; `vectors` of 32 words, and whether the last one is whole, are
// constants.
static inline __attribute__((always_inline)) __m512i near_group(size_t vectors,
                                                                bool whole,
                                                                const coarse_table *table,
                                                                const int16_t *words,
                                                                const uint16_t *rows) {
    const size_t half = table->half;
    const __mmask32 last = whole ? ~0u : first_words(half - (vectors - 1) * WORDS);
    __m512i query[COARSE_HALF_MAX / WORDS], sums[LANES];
    for (size_t i = 0; i < vectors; i++)
        query[i] = _mm512_maskz_loadu_epi16(i + 1 < vectors ? ~0u : last, words + i * WORDS);
#pragma GCC unroll 16
    for (size_t n = 0; n < LANES; n++) {
        const int16_t *key = table->words + rows[n] * half;
        sums[n] = _mm512_setzero_si512();
        for (size_t i = 0; i < vectors; i++)
            sums[n] = _mm512_dpwssd_epi32(
                sums[n], query[i],
                _mm512_maskz_loadu_epi16(i + 1 < vectors ? ~0u : last, key + i * WORDS));
    }
    return sums_of(sums);
}

static __m512i near_scores(const coarse_table *table, const int16_t *words, const uint16_t *rows) {
    // Constants, so that each call is inlined with its loops unrolled.
    const size_t half = table->half;
    if (half == WORDS) return near_group(1, true, table, words, rows);
    if (half == 2 * WORDS) return near_group(2, true, table, words, rows);
    if (half == 4 * WORDS) return near_group(4, true, table, words, rows);
    if (half < WORDS) return near_group(1, false, table, words, rows);
    return near_group((half + WORDS - 1) / WORDS, false, table, words, rows);
}

// Each lane and its partner, `apart` lanes away: those of the mask take the larger of both, the
// others the smaller.
static inline __m512 compare_lanes(__m512 v, __m512 partners, __mmask16 larger) {
    return _mm512_mask_max_ps(_mm512_min_ps(v, partners), larger, v, partners);
}

static inline __m512 apart1(__m512 v) {
    return _mm512_permute_ps(v, 0xb1);
}

static inline __m512 apart2(__m512 v) {
    return _mm512_permute_ps(v, 0x4e);
}

static inline __m512 apart4(__m512 v) {
    return _mm512_shuffle_f32x4(v, v, 0xb1);
}

static inline __m512 apart8(__m512 v) {
    return _mm512_shuffle_f32x4(v, v, 0x4e);
}

// From the largest down: a bitonic sort (Batcher 1968), of blocks of 2, 4, 8 and 16 lanes that fall
// and rise in turn.
static inline __m512 sort_lanes(__m512 v) {
    v = compare_lanes(v, apart1(v), 0x9999);
    v = compare_lanes(v, apart2(v), 0xc3c3);
    v = compare_lanes(v, apart1(v), 0xa5a5);
    v = compare_lanes(v, apart4(v), 0xf00f);
    v = compare_lanes(v, apart2(v), 0xcc33);
    v = compare_lanes(v, apart1(v), 0xaa55);
    v = compare_lanes(v, apart8(v), 0x00ff);
    v = compare_lanes(v, apart4(v), 0x0f0f);
    v = compare_lanes(v, apart2(v), 0x3333);
    return compare_lanes(v, apart1(v), 0x5555);
}

void reef_coarse_near_avx512(const coarse_table *table,
                             const coarse_query *rounded,
                             const int16_t *words,
                             size_t count,
                             uint16_t *rows,
                             float *scores,
                             float peaks[COARSE_PEAKS]) {
    const __m512 none = _mm512_set1_ps(-INFINITY), unit = _mm512_set1_ps(rounded->near_unit);
    __m512 most = none;
    pad_rows(count, rows);
    for (size_t n = 0; n < count; n += LANES) {
        const __m512 near =
            _mm512_mul_ps(unit, _mm512_cvtepi32_ps(near_scores(table, words, rows + n)));
        // What fills the last group must not count.
        const __m512 these = _mm512_mask_mov_ps(none, first_lanes(count - n), near);
        _mm512_storeu_ps(scores + n, these);
        most = _mm512_max_ps(most, these);
    }
    _mm512_storeu_ps(peaks, sort_lanes(most));
}

size_t reef_coarse_keep_avx512(size_t count, const float *scores, float least, uint16_t *rows) {
    const __m512 bound = _mm512_set1_ps(least);
    size_t kept = 0;
    for (size_t first = 0; first < count; first += LANES) {
        const __mmask16 reached = _mm512_mask_cmp_ps_mask(
            first_lanes(count - first), _mm512_loadu_ps(scores + first), bound, _CMP_GE_OQ);
        // Never beyond what was read: as many as were kept at most.
        const __m256i these = _mm256_loadu_si256((const __m256i_u *)(rows + first));
        _mm256_storeu_si256((__m256i_u *)(rows + kept),
                            _mm256_maskz_compress_epi16(reached, these));
        kept += (size_t)__builtin_popcount(reached);
    }
    return kept;
}

void reef_coarse_sort_avx512(size_t count,
                             const float *scores,
                             const uint16_t *rows,
                             size_t kept,
                             float *best,
                             uint16_t *best_rows) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i one = _mm512_set1_epi32(1);
    float sorted[COARSE_SORT_MAX];
    uint16_t order[COARSE_SORT_MAX];
    for (size_t first = 0; first < count; first += LANES) {
        const __m512 these = _mm512_loadu_ps(scores + first);
        __m512i places = _mm512_add_epi32(lanes, _mm512_set1_epi32((int32_t)first));
        __m512i before = _mm512_setzero_si512();
        // A place is the number of those that are above, and of equal ones that come before.
        for (size_t n = 0; n < count; n++) {
            const __m512 other = _mm512_set1_ps(scores[n]);
            const __mmask16 later = _mm512_cmpgt_epi32_mask(places, _mm512_set1_epi32((int32_t)n));
            const __mmask16 above = _mm512_cmp_ps_mask(other, these, _CMP_GT_OQ);
            const __mmask16 equal = _mm512_mask_cmp_ps_mask(later, other, these, _CMP_EQ_OQ);
            before = _mm512_mask_add_epi32(before, above | equal, before, one);
        }
        int32_t at[LANES];
        _mm512_storeu_si512(at, before);
        const size_t here = count - first < LANES ? count - first : LANES;
        for (size_t n = 0; n < here; n++) {
            sorted[at[n]] = scores[first + n];
            order[at[n]] = rows[first + n];
        }
    }
    memcpy(best, sorted, kept * sizeof(*best));
    memcpy(best_rows, order, kept * sizeof(*best_rows));
}
