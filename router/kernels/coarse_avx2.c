// Coarse scores with AVX2: vpmaddubsw multiplies bytes and adds them in pairs, 32 products an
// instruction where a fused multiply-add has 8. See coarse.h.
//
// What always holds: a sum of two products does not saturate, since a byte of a key is at most 64
// in size and 255 * 64 * 2 < 2^15. The sums of these may wrap on their way, but their total is
// rho . kappa of a chunk, which fits 16 bits because |rho| |kappa| does; so it is exact.
#include "coarse_bounds.h"

#include <immintrin.h>
#include <string.h>

enum { LANES = 8 };

static inline float sum_of(__m256 v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float most_of(__m256 v) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline __m256 size_of(__m256 v) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

static inline void put_words(__m256 values, __m256 per, int16_t *to) {
    __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(values, per));
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(whole, whole), 0x08);
    _mm_storeu_si128((__m128i_u *)to, _mm256_castsi256_si128(words));
}

// ---- tables -------------------------------------------------------------------------------------

static void take_mean(const coarse_table *table, float *mean) {
    const float share = 1.0f / (float)table->side;
    memset(mean, 0, table->half * sizeof(*mean));
    for (size_t i = 0; i < table->side; i++)
        for (size_t d = 0; d < table->half; d++) mean[d] += table->keys[i * table->stride + d];
    for (size_t d = 0; d < table->half; d++) mean[d] *= share;
}

static coarse_extent measure_keys(const coarse_table *table, const float *mean) {
    coarse_extent most = {0, 0, 0, 0};
    for (size_t i = 0; i < table->side; i++) {
        const float *key = table->keys + i * table->stride;
        __m256 whole = _mm256_setzero_ps(), value = whole;
        float centred = 0;
        for (size_t d = 0; d < table->half;) {
            __m256 chunk = _mm256_setzero_ps();
            for (size_t end = coarse_chunk_end(table, d); d < end; d += LANES) {
                __m256 k = _mm256_loadu_ps(key + d);
                __m256 off = _mm256_sub_ps(k, _mm256_loadu_ps(mean + d));
                whole = _mm256_fmadd_ps(k, k, whole);
                chunk = _mm256_fmadd_ps(off, off, chunk);
                value = _mm256_max_ps(size_of(off), value);
            }
            const float square = sum_of(chunk);
            centred += square;
            most.chunk = fmaxf(most.chunk, square);
        }
        // The comparison fails for NaN, which a sum keeps.
        const float square = sum_of(whole);
        if (!(square <= most.whole)) most.whole = square;
        if (!(most.whole < COARSE_NORM_MAX * COARSE_NORM_MAX)) break;
        most.centred = fmaxf(most.centred, centred);
        most.value = fmaxf(most.value, most_of(value));
    }
    return most;
}

// Of one key: the largest |kappa| of a chunk and |rest|, squared.
typedef struct key_extent {
    float chunk, rest;
} key_extent;

// One key among those of its block.
static key_extent put_key(const coarse_table *table, size_t i, const float *mean) {
    const size_t half = table->half, block = i / COARSE_KEYS, lane = i % COARSE_KEYS;
    const float *key = table->keys + i * table->stride;
    const size_t together = table->together;
    int8_t *to = table->bytes + block * COARSE_KEYS * half + lane * together;
    int16_t *start = table->starts + block * coarse_chunks(half) * COARSE_KEYS + lane;
    const __m256 unit = _mm256_set1_ps(table->unit), per = _mm256_set1_ps(1 / table->unit);
    const __m256 per_word = _mm256_set1_ps(1 / table->word_unit);
    __m256 rests = _mm256_setzero_ps();
    key_extent most = {0, 0};
    int32_t total = 0;
    for (size_t d = 0; d < half; start += COARSE_KEYS) {
        __m256 squares = _mm256_setzero_ps(), sums = squares;
        for (size_t end = coarse_chunk_end(table, d); d < end; d += LANES) {
            __m256 off = _mm256_sub_ps(_mm256_loadu_ps(key + d), _mm256_loadu_ps(mean + d));
            __m256i kappa = _mm256_cvtps_epi32(_mm256_mul_ps(off, per));
            __m256 whole = _mm256_cvtepi32_ps(kappa), rest = _mm256_fnmadd_ps(whole, unit, off);
            rests = _mm256_fmadd_ps(rest, rest, rests);
            squares = _mm256_fmadd_ps(whole, whole, squares); // whole numbers: exact
            sums = _mm256_add_ps(sums, whole);
            put_words(off, per_word, table->words + i * half + d);
            int32_t values[LANES];
            memcpy(values, &kappa, sizeof(values));
            for (size_t e = 0; e < LANES; e++) {
                const size_t within = e % together;
                to[(d + e - within) * COARSE_KEYS + within] = (int8_t)values[e];
            }
        }
        const int32_t sum = -COARSE_BYTE_ZERO * (int32_t)sum_of(sums);
        if (together == 2) *start = (int16_t)sum;
        total += sum;
        most.chunk = fmaxf(most.chunk, sum_of(squares));
    }
    table->totals[i] = total;
    most.rest = sum_of(rests);
    return most;
}

// Keys of zeros that score the least.
static void pad_block(const coarse_table *table) {
    const size_t half = table->half, first = table->side % COARSE_KEYS;
    if (first == 0) return;
    const size_t block = table->side / COARSE_KEYS, chunks = coarse_chunks(half);
    int8_t *bytes = table->bytes + block * COARSE_KEYS * half;
    int16_t *starts = table->starts + block * chunks * COARSE_KEYS;
    const size_t together = table->together;
    for (size_t p = 0; p < half / together; p++)
        memset(bytes + (p * COARSE_KEYS + first) * together, 0, (COARSE_KEYS - first) * together);
    for (size_t i = first; i < COARSE_KEYS; i++)
        table->totals[block * COARSE_KEYS + i] = INT32_MIN / 2;
    for (size_t n = 0; n < chunks; n++)
        for (size_t i = first; i < COARSE_KEYS; i++) starts[n * COARSE_KEYS + i] = INT16_MIN;
}

static void fill_table(coarse_table *table) {
    float mean[COARSE_HALF_MAX];
    take_mean(table, mean);
    const coarse_extent most = measure_keys(table, mean);
    const float centred = sqrtf(most.centred) * COARSE_SLACK;
    table->norm = sqrtf(most.whole) * COARSE_SLACK;
    // Also false for NaN.
    table->usable = table->norm < COARSE_NORM_MAX && centred > COARSE_NORM_MIN;
    if (!table->usable) return;

    // Queries and keys of equal length in bytes have the least bound. Rounding may add half a byte
    // to each value.
    const float added = coarse_rounding_norm(coarse_chunk_end(table, 0));
    const float chunk = sqrtf(most.chunk) * COARSE_SLACK;
    table->unit = fmaxf(chunk / (sqrtf(coarse_score_max(table)) - added),
                        most.value / coarse_key_byte_max(table));
    table->word_unit = fmaxf(centred / (COARSE_WORD_NORM_MAX - coarse_rounding_norm(table->half)),
                             most.value / COARSE_WORD_MAX);
    key_extent all = {0, 0};
    for (size_t i = 0; i < table->side; i++) {
        key_extent one = put_key(table, i, mean);
        all.chunk = fmaxf(all.chunk, one.chunk);
        all.rest = fmaxf(all.rest, one.rest);
    }
    pad_block(table);
    table->byte_norm = sqrtf(all.chunk);
    table->rest = sqrtf(all.rest) / table->unit * COARSE_SLACK;
    table->spread = centred / table->unit * COARSE_SLACK;
}

// ---- queries ------------------------------------------------------------------------------------

// Of a query: |q|^2, the largest of a chunk, the largest value.
static coarse_extent measure_query(const coarse_table *table, const float *query) {
    const size_t half = table->half;
    coarse_extent most = {0, 0, 0, 0};
    __m256 value = _mm256_setzero_ps();
    for (size_t d = 0; d < half;) {
        __m256 chunk = _mm256_setzero_ps();
        for (size_t end = coarse_chunk_end(table, d); d < end; d += LANES) {
            __m256 q = _mm256_loadu_ps(query + d);
            chunk = _mm256_fmadd_ps(q, q, chunk);
            value = _mm256_max_ps(size_of(q), value);
        }
        const float square = sum_of(chunk);
        most.whole += square;
        most.chunk = fmaxf(most.chunk, square);
    }
    most.value = most_of(value);
    return most;
}

// The lowest bytes of eight numbers: four pairs, each twice, or two fours.
static inline void put_bytes(__m256i numbers, size_t together, uint32_t *to) {
    const __m256i twice =
        _mm256_setr_epi8(0, 4, 0, 4, 8, 12, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 0, 4, 8,
                         12, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i fours =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    if (together == 2) {
        __m256i both = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(numbers, twice), 0x08);
        _mm_storeu_si128((__m128i_u *)to, _mm256_castsi256_si128(both));
    } else {
        __m256i both = _mm256_shuffle_epi8(numbers, fours);
        to[0] = (uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(both));
        to[1] = (uint32_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(both, 1));
    }
}

static coarse_query round_query(const coarse_table *table,
                                const float *query,
                                uint32_t *groups,
                                int16_t *words) {
    const size_t half = table->half;
    const coarse_extent most = measure_query(table, query);
    const coarse_steps step = coarse_steps_of(table, most);
    if (step.norm < 0) return (coarse_query){-1, 0, 0};
    const __m256 per = _mm256_set1_ps(1 / step.byte), steps = _mm256_set1_ps(step.byte);
    const __m256 per_word = _mm256_set1_ps(1 / step.word);
    __m256 rests = _mm256_setzero_ps(), squares = rests;
    for (size_t d = 0; d < half; d += LANES) {
        __m256 q = _mm256_loadu_ps(query + d);
        __m256i rho = _mm256_cvtps_epi32(_mm256_mul_ps(q, per));
        __m256 whole = _mm256_cvtepi32_ps(rho), rest = _mm256_fnmadd_ps(whole, steps, q);
        rests = _mm256_fmadd_ps(rest, rest, rests);
        squares = _mm256_fmadd_ps(whole, whole, squares);
        put_words(q, per_word, words + d);
        __m256i unsigned_bytes = _mm256_add_epi32(rho, _mm256_set1_epi32(COARSE_BYTE_ZERO));
        put_bytes(unsigned_bytes, table->together, groups + d / table->together);
    }
    return coarse_query_of(table, step, sum_of(rests), sum_of(squares));
}

// ---- scores -------------------------------------------------------------------------------------

// COARSE_QUERIES queries and one block of keys: eight sums stay in registers, two for a query.
static inline void score_block(const coarse_table *table,
                               const int8_t *bytes,
                               const int16_t *starts,
                               const uint32_t *pairs,
                               int16_t *scores,
                               size_t stride) {
    const size_t half = table->half;
    const int shift = coarse_shift(half, 2);
    for (size_t d = 0; d < half; starts += COARSE_KEYS) {
        const __m256i first = _mm256_loadu_si256((const __m256i_u *)starts);
        const __m256i second = _mm256_loadu_si256((const __m256i_u *)(starts + COARSE_KEYS / 2));
        const bool begins = d == 0;
        __m256i low[COARSE_QUERIES], high[COARSE_QUERIES];
        for (size_t n = 0; n < COARSE_QUERIES; n++) {
            low[n] = first;
            high[n] = second;
        }
        // Four pairs a turn at constant places, or addresses take longer than the products.
        for (size_t end = coarse_chunk_end(table, d); d < end; d += LANES) {
            const __m256i_u *keys = (const __m256i_u *)(bytes + d * COARSE_KEYS);
#pragma GCC unroll 4
            for (size_t p = 0; p < LANES / 2; p++) {
                const __m256i keys0 = _mm256_loadu_si256(keys + 2 * p);
                const __m256i keys1 = _mm256_loadu_si256(keys + 2 * p + 1);
#pragma GCC unroll 4
                for (size_t n = 0; n < COARSE_QUERIES; n++) {
                    __m256i query = _mm256_set1_epi32((int32_t)pairs[n * (half / 2) + d / 2 + p]);
                    low[n] = _mm256_add_epi16(low[n], _mm256_maddubs_epi16(query, keys0));
                    high[n] = _mm256_add_epi16(high[n], _mm256_maddubs_epi16(query, keys1));
                    // Here, in this order: GCC would form all products first, and spill them.
                    __asm__ volatile("" : "+x"(low[n]), "+x"(high[n]));
                }
            }
        }
        for (size_t n = 0; n < COARSE_QUERIES; n++) {
            __m256i_u *to = (__m256i_u *)(scores + n * stride);
            low[n] = _mm256_srai_epi16(low[n], shift);
            high[n] = _mm256_srai_epi16(high[n], shift);
            // With saturation for the keys that fill a block, which are at the end already.
            if (!begins) low[n] = _mm256_adds_epi16(low[n], _mm256_loadu_si256(to));
            if (!begins) high[n] = _mm256_adds_epi16(high[n], _mm256_loadu_si256(to + 1));
            _mm256_storeu_si256(to, low[n]);
            _mm256_storeu_si256(to + 1, high[n]);
        }
    }
}

static void score_blocks(const coarse_table *table,
                         size_t count,
                         const uint32_t *pairs,
                         int16_t *scores,
                         size_t stride) {
    const size_t half = table->half, chunks = coarse_chunks(half);
    for (size_t key = 0; key < table->side; key += COARSE_KEYS)
        for (size_t n = 0; n < count; n += COARSE_QUERIES)
            score_block(table, table->bytes + key * half, table->starts + key * chunks,
                        pairs + n * (half / 2), scores + n * stride + key, stride);
}

// ---- what is left -------------------------------------------------------------------------------

// The K-th largest of COARSE_KEYS values: the least of those that fewer than K others exceed.
static int16_t kth_largest(__m256i low, __m256i high, size_t K) {
    int16_t each[COARSE_KEYS];
    memcpy(each, &low, sizeof(low));
    memcpy(each + COARSE_KEYS / 2, &high, sizeof(high));
    __m256i above_low = _mm256_setzero_si256(), above_high = above_low;
    for (size_t n = 0; n < COARSE_KEYS; n++) {
        __m256i other = _mm256_set1_epi16(each[n]);
        above_low = _mm256_sub_epi16(above_low, _mm256_cmpgt_epi16(other, low));
        above_high = _mm256_sub_epi16(above_high, _mm256_cmpgt_epi16(other, high));
    }
    const __m256i wanted = _mm256_set1_epi16((int16_t)K), most = _mm256_set1_epi16(INT16_MAX);
    low = _mm256_blendv_epi8(most, low, _mm256_cmpgt_epi16(wanted, above_low));
    high = _mm256_blendv_epi8(most, high, _mm256_cmpgt_epi16(wanted, above_high));
    low = _mm256_min_epi16(low, high);
    __m128i least = _mm_min_epi16(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    // There is an instruction for the least of eight unsigned numbers.
    least = _mm_minpos_epu16(_mm_xor_si128(least, _mm_set1_epi16(INT16_MIN)));
    return (int16_t)(_mm_extract_epi16(least, 0) ^ 0x8000);
}

static inline __m256i load_scores(const int16_t *scores) {
    return _mm256_loadu_si256((const __m256i_u *)scores);
}

static int16_t find_least(size_t side, const int16_t *scores, size_t K) {
    // Of the best K at least K are among these maxima or above them, see lower_bound in
    // kernels_vector.h.
    __m256i low = load_scores(scores), high = load_scores(scores + COARSE_KEYS / 2);
    for (size_t i = COARSE_KEYS; i < side; i += COARSE_KEYS) {
        low = _mm256_max_epi16(low, load_scores(scores + i));
        high = _mm256_max_epi16(high, load_scores(scores + i + COARSE_KEYS / 2));
    }
    return kth_largest(low, high, K);
}

static size_t find_reached(size_t side, const int16_t *scores, int32_t least, uint16_t *rows) {
    if (least <= INT16_MIN + 1) return 0; // padding would reach it
    const __m256i below = _mm256_set1_epi16((int16_t)(least - 1));
    size_t count = 0;
    for (size_t i = 0; i < side; i += COARSE_KEYS) {
        __m256i above0 = _mm256_cmpgt_epi16(load_scores(scores + i), below);
        __m256i above1 = _mm256_cmpgt_epi16(load_scores(scores + i + COARSE_KEYS / 2), below);
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(above0, above1), 0xd8);
        uint32_t reached = (uint32_t)_mm256_movemask_epi8(packed);
        const size_t found = (size_t)__builtin_popcount(reached);
        // Three at once: the end of a loop over the bits could not be predicted. If no bit is left,
        // the next write replaces this one; the bit above them keeps the count defined.
        uint64_t bits = reached | 1ull << 32;
        for (size_t n = 0; n < 3; n++, bits &= bits - 1)
            rows[count + n] = (uint16_t)(i + (size_t)__builtin_ctzll(bits | 1ull << 32));
        for (size_t n = 3; n < found; n++, bits &= bits - 1)
            rows[count + n] = (uint16_t)(i + (size_t)__builtin_ctzll(bits));
        count += found;
        if (count > COARSE_FOUND_MAX) return 0;
    }
    return count;
}

// ---- exact scores -------------------------------------------------------------------------------

// Values d to d + 7 of eight keys, one key a lane.
static inline void transpose(const float *const *keys, size_t d, __m256 *values) {
    for (size_t part = 0; part < 2; part++) {
        __m256 rows[4];
        for (size_t n = 0; n < 4; n++)
            rows[n] =
                _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(keys[n] + d + 4 * part)),
                                     _mm_loadu_ps(keys[n + 4] + d + 4 * part), 1);
        __m256d ab_low = _mm256_castps_pd(_mm256_unpacklo_ps(rows[0], rows[1]));
        __m256d ab_high = _mm256_castps_pd(_mm256_unpackhi_ps(rows[0], rows[1]));
        __m256d cd_low = _mm256_castps_pd(_mm256_unpacklo_ps(rows[2], rows[3]));
        __m256d cd_high = _mm256_castps_pd(_mm256_unpackhi_ps(rows[2], rows[3]));
        values[4 * part] = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_low, cd_low));
        values[4 * part + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_low, cd_low));
        values[4 * part + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high));
        values[4 * part + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high));
    }
}

// Eight keys and their query.
typedef struct exact_group {
    const float *query, *keys[LANES];
    float *scores;
} exact_group;

enum { EXACT_GROUPS = 2 };

// Sums of one group or two, a constant: each product of a group waits for the one before it.
static inline __attribute__((always_inline)) void exact_groups(size_t groups,
                                                               size_t half,
                                                               const exact_group *of) {
    __m256 sums[EXACT_GROUPS];
    for (size_t g = 0; g < groups; g++) sums[g] = _mm256_setzero_ps();
    for (size_t d = 0; d < half; d += LANES)
        for (size_t g = 0; g < groups; g++) {
            __m256 values[LANES];
            transpose(of[g].keys, d, values);
            for (size_t e = 0; e < LANES; e++)
                sums[g] =
                    _mm256_fmadd_ps(_mm256_broadcast_ss(of[g].query + d + e), values[e], sums[g]);
        }
    for (size_t g = 0; g < groups; g++) _mm256_storeu_ps(of[g].scores, sums[g]);
}

static void pad_rows(size_t count, uint16_t *rows, size_t to) {
    for (size_t n = 0; n < to; n++) rows[count + n] = rows[0]; // any key
}

static void score_exact(const coarse_table *table, size_t count, const coarse_exact *all) {
    exact_group groups[EXACT_GROUPS];
    size_t waiting = 0;
    for (size_t i = 0; i < count; i++) {
        const coarse_exact *of = &all[i];
        pad_rows(of->count, of->rows, LANES);
        for (size_t n = 0; n < of->count; n += LANES) {
            exact_group *group = &groups[waiting];
            group->query = of->query;
            group->scores = of->scores + n;
            for (size_t k = 0; k < LANES; k++)
                group->keys[k] = table->keys + of->rows[n + k] * table->stride;
            if (++waiting < EXACT_GROUPS && (i + 1 < count || n + LANES < of->count)) continue;
            // Constants, so that each call is inlined with its loops unrolled.
            if (waiting == 2) exact_groups(2, table->half, groups);
            if (waiting == 1) exact_groups(1, table->half, groups);
            waiting = 0;
        }
    }
}

// ---- nearly exact scores ------------------------------------------------------------------------

// Lane n: the sum of vector n.
static inline __m256i sums_of(const __m256i *v) {
    __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                            _mm256_permute2x128_si256(low, high, 0x31));
}

// Products of words, of eight keys; `vectors` of 16 words, a constant, and perhaps half of one.
static inline __attribute__((always_inline)) __m256i near_group(size_t vectors,
                                                                const coarse_table *table,
                                                                const int16_t *words,
                                                                const uint16_t *rows) {
    const size_t half = table->half;
    __m256i query[COARSE_HALF_MAX / 16], sums[LANES];
    for (size_t i = 0; i < vectors; i++)
        query[i] = _mm256_loadu_si256((const __m256i_u *)words + i);
    for (size_t n = 0; n < LANES; n++) {
        const int16_t *key = table->words + rows[n] * half;
        sums[n] = _mm256_setzero_si256();
        if (vectors * 16 < half)
            sums[n] = _mm256_zextsi128_si256(
                _mm_madd_epi16(_mm_loadu_si128((const __m128i_u *)(words + vectors * 16)),
                               _mm_loadu_si128((const __m128i_u *)(key + vectors * 16))));
#pragma GCC unroll 8
        for (size_t i = 0; i < vectors; i++)
            sums[n] = _mm256_add_epi32(
                sums[n],
                _mm256_madd_epi16(query[i], _mm256_loadu_si256((const __m256i_u *)key + i)));
    }
    return sums_of(sums);
}

static __m256i near_scores(const coarse_table *table, const int16_t *words, const uint16_t *rows) {
    const size_t vectors = table->half / 16;
    // Constants, so that each call is inlined with its loops unrolled.
    if (vectors == 4) return near_group(4, table, words, rows);
    if (vectors == 2) return near_group(2, table, words, rows);
    return near_group(vectors, table, words, rows);
}

// A vector's ranks among 16 values: those that are above it, and equal ones that come before.
static inline __m256i rank_among(__m256 these, const float *all, size_t count, size_t first) {
    const __m256i places =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32((int)first));
    __m256i ranks = _mm256_setzero_si256();
    for (size_t n = 0; n < count; n++) {
        const __m256 other = _mm256_broadcast_ss(all + n);
        __m256i above = _mm256_castps_si256(_mm256_cmp_ps(other, these, _CMP_GT_OQ));
        __m256i equal = _mm256_castps_si256(_mm256_cmp_ps(other, these, _CMP_EQ_OQ));
        __m256i before = _mm256_cmpgt_epi32(places, _mm256_set1_epi32((int)n));
        ranks = _mm256_sub_epi32(ranks, _mm256_or_si256(above, _mm256_and_si256(equal, before)));
    }
    return ranks;
}

static void score_near(const coarse_table *table,
                       const coarse_query *rounded,
                       const int16_t *words,
                       size_t count,
                       uint16_t *rows,
                       float *scores,
                       float peaks[COARSE_PEAKS]) {
    const __m256 none = _mm256_set1_ps(-INFINITY), unit = _mm256_set1_ps(rounded->near_unit);
    const size_t whole = (count + COARSE_PEAKS - 1) / COARSE_PEAKS * COARSE_PEAKS;
    __m256 most[2] = {none, none};
    pad_rows(count, rows, whole - count);
    for (size_t n = 0; n < whole; n += LANES) {
        const __m256i products = near_scores(table, words, rows + n);
        _mm256_storeu_ps(scores + n, _mm256_mul_ps(unit, _mm256_cvtepi32_ps(products)));
    }
    // What fills the last group must not count.
    for (size_t n = count; n < whole; n++) scores[n] = -INFINITY;
    for (size_t n = 0; n < whole; n += LANES)
        most[n / LANES % 2] = _mm256_max_ps(most[n / LANES % 2], _mm256_loadu_ps(scores + n));
    float each[COARSE_PEAKS];
    _mm256_storeu_ps(each, most[0]);
    _mm256_storeu_ps(each + LANES, most[1]);
    for (size_t g = 0; g < 2; g++) {
        __m256i ranks = rank_among(most[g], each, COARSE_PEAKS, g * LANES);
        int32_t places[LANES];
        memcpy(places, &ranks, sizeof(places));
        for (size_t n = 0; n < LANES; n++) peaks[places[n]] = each[g * LANES + n];
    }
}

static size_t keep_reached(size_t count, const float *scores, float least, uint16_t *rows) {
    const __m256 bound = _mm256_set1_ps(least);
    size_t kept = 0;
    for (size_t first = 0; first < count; first += 4 * LANES) {
        uint32_t reached = 0;
        for (size_t n = 0; n < 4; n++)
            reached |= (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(
                           _mm256_loadu_ps(scores + first + n * LANES), bound, _CMP_GE_OQ))
                       << (n * LANES);
        // Behind the scores that there are stands anything.
        if (count - first < 4 * LANES) reached &= (1u << (count - first)) - 1;
        for (; reached != 0; reached &= reached - 1)
            rows[kept++] = rows[first + (size_t)__builtin_ctz(reached)];
    }
    return kept;
}

static void sort_best(size_t count,
                      const float *scores,
                      const uint16_t *rows,
                      size_t kept,
                      float *best,
                      uint16_t *best_rows) {
    float sorted[COARSE_SORT_MAX];
    uint16_t order[COARSE_SORT_MAX];
    for (size_t first = 0; first < count; first += LANES) {
        const __m256i ranks = rank_among(_mm256_loadu_ps(scores + first), scores, count, first);
        int32_t places[LANES];
        memcpy(places, &ranks, sizeof(places));
        const size_t here = count - first < LANES ? count - first : LANES;
        for (size_t n = 0; n < here; n++) {
            sorted[places[n]] = scores[first + n];
            order[places[n]] = rows[first + n];
        }
    }
    memcpy(best, sorted, kept * sizeof(*best));
    memcpy(best_rows, order, kept * sizeof(*best_rows));
}

const reef_coarse_kernels reef_coarse_avx2 = {
    .together = 2,
    .group = COARSE_GROUP_MAX,
    .table = fill_table,
    .query = round_query,
    .scores = score_blocks,
    .least = find_least,
    .reach = find_reached,
    .near = score_near,
    .keep = keep_reached,
    .exact = score_exact,
    .sort = sort_best,
};

const reef_coarse_kernels reef_coarse_avx512 = {
    .together = 4,
    .group = COARSE_GROUP_MAX,
    .table = fill_table,
    .query = reef_coarse_query_avx512,
    .scores = reef_coarse_scores_avx512,
    .least = reef_coarse_least_avx512,
    .reach = reef_coarse_reach_avx512,
    .near = reef_coarse_near_avx512,
    .keep = reef_coarse_keep_avx512,
    .exact = score_exact,
    .sort = reef_coarse_sort_avx512,
};
