// How numbers are rounded to bytes and words, and what that can do to a score: the part of coarse.h
// that is the same with all instructions.
#ifndef REEF_COARSE_BOUNDS_H
#define REEF_COARSE_BOUNDS_H

#include "coarse.h"

#include <math.h>

enum { COARSE_PAIR_BYTE_MAX = 64, COARSE_BYTE_MAX = 127, COARSE_BYTE_ZERO = 128 };

#define COARSE_SCORE_MAX 32767.0f
// Of words: 2^15.5, whose square fits 32 bits, and a little less.
#define COARSE_WORD_NORM_MAX 46330.0f
#define COARSE_WORD_MAX 32766.0f
// Norms between these: squares of a hundredth of a unit are normal floats, and sums are finite.
#define COARSE_NORM_MIN 1e-10f
#define COARSE_NORM_MAX 1e10f
// What bounds are raised by, for the rounding of their own computation; a few ulp would do.
#define COARSE_SLACK 1.001f

// Values whose products have one sum: of 16 bits, or where four go together of 32.
static inline size_t coarse_chunk_end(const coarse_table *table, size_t d) {
    const bool chunked = table->together == 2 && d + COARSE_CHUNK < table->half;
    return chunked ? d + COARSE_CHUNK : table->half;
}

// What |rho| |kappa| of a chunk may be.
static inline float coarse_score_max(const coarse_table *table) {
    if (table->together == 2) return COARSE_SCORE_MAX;
    return COARSE_SCORE_MAX * (float)(1 << coarse_shift(table->half, 4));
}

// vpmaddubsw adds two products to 16 bits, where a larger byte could saturate.
static inline float coarse_key_byte_max(const coarse_table *table) {
    return table->together == 2 ? COARSE_PAIR_BYTE_MAX : COARSE_BYTE_MAX;
}

// Half a unit in each value.
static inline float coarse_rounding_norm(size_t half) {
    return 0.5f * sqrtf((float)half);
}

/** Largest of all keys or of a query, norms squared: |k|, |k - c|, the same of a chunk, a value. */
typedef struct coarse_extent {
    float whole, centred, chunk, value;
} coarse_extent;

/** Units of a query in bytes and in words; its norm. */
typedef struct coarse_steps {
    float byte, word, norm;
} coarse_steps;

// A norm of -1: the query is of no use.
static inline coarse_steps coarse_steps_of(const coarse_table *table, coarse_extent most) {
    const float norm = sqrtf(most.whole) * COARSE_SLACK;
    if (!(norm > COARSE_NORM_MIN && norm < COARSE_NORM_MAX)) return (coarse_steps){0, 0, -1};
    const float added = coarse_rounding_norm(coarse_chunk_end(table, 0));
    const float bytes_max = coarse_score_max(table) / table->byte_norm - added;
    const float words_max = COARSE_WORD_NORM_MAX - coarse_rounding_norm(table->half);
    return (coarse_steps){
        fmaxf(sqrtf(most.chunk) * COARSE_SLACK / bytes_max, most.value / COARSE_BYTE_MAX),
        fmaxf(norm / words_max, most.value / COARSE_WORD_MAX), norm};
}

// Of a query that was rounded: |rest of q| and |rho|, squared.
static inline coarse_query coarse_query_of(const coarse_table *table,
                                           coarse_steps step,
                                           float rests,
                                           float squares) {
    const size_t half = table->half;
    const float rest = sqrtf(rests) / step.byte * COARSE_SLACK;
    const float bytes = sqrtf(squares) * COARSE_SLACK;
    // Of a sum of n fused products: n u |q| |k|, u = 2^-24, in any order (Higham 2002, section
    // 3.1). The few ulp more are for sums of two scores, and for what is computed with them.
    const float rounding = ((float)half + 32) * 0x1p-24f * step.norm * table->norm;
    const float bound =
        bytes * table->rest + rest * table->spread + rounding / step.byte / table->unit;
    // In units of scores, which lose a fraction for each chunk.
    const size_t chunks = table->together == 2 ? coarse_chunks(half) : 1;
    const int shift = coarse_shift(half, table->together);
    const float scaled = bound * COARSE_SLACK / (float)(1 << shift) + (float)chunks + 1;
    const float near_unit = step.word * table->word_unit;
    const float near_bound =
        near_unit * coarse_rounding_norm(half) * 2 * COARSE_WORD_NORM_MAX * COARSE_SLACK;
    return (coarse_query){scaled < COARSE_SCORE_MAX ? (int32_t)scaled + 1 : -1, near_unit,
                          near_bound + rounding};
}

#endif
