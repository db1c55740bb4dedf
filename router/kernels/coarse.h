// Coarse scores: products of queries and sub-keys as whole numbers of a byte, with a bound on what
// rounding can have done to them. They prove of most sub-keys that they are not among the best;
// the others are scored exactly. Private to the router.
//
// With c the mean of a table's keys, a key k is c + unit * kappa + a rest, and a query q is
// step * rho + a rest, kappa and rho whole. In units of step * unit the score of k, less q . c,
// which is the same for all keys, then lies within
//
//   |rho| |rest of k| / unit + |rest of q| / step * |k - c| / unit
//
// of rho . kappa (Cauchy-Schwarz), plus what the exact score itself is rounded by. A key whose
// coarse score is more than twice that bound below those of K others scores less than these K.
//
// coarse_list.c calls the kernels of a set in this order; counts are of 1,024 sub-keys:
//
//   table    once for a table: its keys in bytes and in words, and what rounding took from them
//   query    the same for a query, and the bound of its coarse scores
//   scores   coarse scores of all sub-keys, products of bytes
//   least    a bound of the K-th best
//   reach    sub-keys at most twice the bound below that: about 50, or 35 of whole bytes
//   near     nearly exact scores of these, products of words
//   keep     those that may take part in one of the best pairs: about 12
//   exact    scores of these in floats, their products summed one after the other
//   sort     the K best of these, best first
#ifndef REEF_COARSE_H
#define REEF_COARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COARSE_KEYS = 32,       // of a block, whose scores are computed together
    COARSE_QUERIES = 4,     // that share the loads of a block
    COARSE_GROUP_MAX = 8,   // see reef_coarse_kernels
    COARSE_HALF_STEP = 8,   // values of a key: a multiple of this
    COARSE_HALF_MAX = 128,  // and at most these
    COARSE_CHUNK = 16,      // values whose products are summed in 16 bits
    COARSE_KEPT_MAX = 24,   // of COARSE_KEYS maxima, so that their K-th largest is a useful bound
    COARSE_FOUND_MAX = 192, // sub-keys that are left; of more all are scored
    COARSE_ROOM = COARSE_FOUND_MAX + 2 * COARSE_KEYS, // of their lists
    COARSE_PEAKS = 16,   // parts of the nearly exact scores; the best of each is known
    COARSE_SORT_MAX = 32 // scores that `sort` takes; more go through the kernel for top-k
};

/** One table of sub-keys in bytes. */
typedef struct coarse_table {
    size_t side, half; // keys; values of each
    const float *keys; // (side) rows of `half` floats, `stride` apart
    size_t stride;     // floats from one key to the next
    size_t together;   // values whose products an instruction adds up: 2 or 4
    int8_t *bytes;     // (blocks, half / together, COARSE_KEYS, together) kappa
    int16_t *starts;   // (blocks, chunks, COARSE_KEYS) -128 times the sum of a key's bytes
    int32_t *totals;   // (blocks, COARSE_KEYS) the same of all chunks
    int16_t *words;    // (side, half) k - c in words, for scores that are nearly exact
    float unit;        // of a byte
    float word_unit;   // of a word
    bool usable;       // false: keys without spread, or of numbers beyond those of any use
    float byte_norm;   // largest |kappa| of a chunk
    float rest;        // largest |rest of k| / unit
    float spread;      // largest |k - c| / unit
    float norm;        // largest |k|
} coarse_table;

/** Chunks of a key's values; the last one may be shorter. */
static inline size_t coarse_chunks(size_t half) {
    return (half + COARSE_CHUNK - 1) / COARSE_CHUNK;
}

/**
 * Bits that a score has lost: so many that the sum of what chunks have left fits 16. Where four
 * values go together there is one sum of 32 bits, of bytes in their whole range: four times as
 * much.
 */
static inline int coarse_shift(size_t half, size_t together) {
    const size_t chunks = coarse_chunks(half);
    const int bits = chunks == 1 ? 0 : chunks == 2 ? 1 : chunks <= 4 ? 2 : 3;
    return together == 4 ? bits + 2 : bits;
}

/** A query in bytes and words. */
typedef struct coarse_query {
    int32_t bound;   // of the error of its coarse scores; negative: the query is of no use here
    float near_unit; // of products of words
    float margin;    // of what nearly exact scores, less q . c, and exact ones may differ by
} coarse_query;

/** What is scored exactly for one query. */
typedef struct coarse_exact {
    const float *query;
    size_t count;   // of rows
    uint16_t *rows; // (COARSE_ROOM)
    float *scores;  // (COARSE_ROOM) written
} coarse_exact;

/** The kernels: one set for each instruction set that has them. */
typedef struct reef_coarse_kernels {
    /** Fill bytes, starts and what follows from keys. */
    void (*table)(coarse_table *table);
    size_t together; // of the tables
    size_t group;    // queries whose coarse scores are in cache together; COARSE_GROUP_MAX at most
    /** rho of one query as unsigned bytes rho + 128: four in 32 bits, or a pair twice. */
    coarse_query (*query)(const coarse_table *table,
                          const float *query,
                          uint32_t *groups, // (half / together) written
                          int16_t *words);  // (half) written
    /**
     * rho . kappa of queries and keys without its last coarse_shift bits, rounded down, for each
     * chunk or once. Keys that fill the last block have INT16_MIN. `count` a multiple of
     * COARSE_QUERIES.
     */
    void (*scores)(const coarse_table *table,
                   size_t count,
                   const uint32_t *groups, // (count, half / together)
                   int16_t *scores,        // (count, stride) written
                   size_t stride);
    /** A score that at least K <= COARSE_KEYS sub-keys reach. */
    int16_t (*least)(size_t side, const int16_t *scores, size_t K);
    /** Rows whose score is at least `least`, rising; 0 when they are more than COARSE_FOUND_MAX. */
    size_t (*reach)(size_t side, const int16_t *scores, int32_t least, uint16_t *rows);
    /**
     * Nearly exact scores of `count` rows, -INFINITY behind them, and the best of each of
     * COARSE_PEAKS shares of them, best first.
     */
    void (*near)(const coarse_table *table,
                 const coarse_query *rounded,
                 const int16_t *words, // (half) of the query
                 size_t count,
                 uint16_t *rows,             // (COARSE_ROOM)
                 float *scores,              // (COARSE_ROOM) written
                 float peaks[COARSE_PEAKS]); // written
    /** Keep the rows whose score is not below `least`, in their order; how many there are. */
    size_t (*keep)(size_t count, const float *scores, float least, uint16_t *rows);
    /**
     * Exact scores of what is left of one or two queries, which then do not wait for each other's
     * sums: of fused products in the order of the values.
     */
    void (*exact)(const coarse_table *table, size_t count, const coarse_exact *of);
    /** The `kept` best of at most COARSE_SORT_MAX, best first, the first in order among equals. */
    void (*sort)(size_t count,
                 const float *scores, // (COARSE_ROOM)
                 const uint16_t *rows,
                 size_t kept,
                 float *best, // (kept) written
                 uint16_t *best_rows);
} reef_coarse_kernels;

// The set that has AVX-512 and its VNNI and VBMI2 for all that is done for each query.
void reef_coarse_scores_avx512(const coarse_table *table,
                               size_t count,
                               const uint32_t *groups,
                               int16_t *scores,
                               size_t stride);
coarse_query reef_coarse_query_avx512(const coarse_table *table,
                                      const float *query,
                                      uint32_t *groups,
                                      int16_t *words);
int16_t reef_coarse_least_avx512(size_t side, const int16_t *scores, size_t K);
size_t reef_coarse_reach_avx512(size_t side, const int16_t *scores, int32_t least, uint16_t *rows);
void reef_coarse_near_avx512(const coarse_table *table,
                             const coarse_query *rounded,
                             const int16_t *words,
                             size_t count,
                             uint16_t *rows,
                             float *scores,
                             float peaks[COARSE_PEAKS]);
size_t reef_coarse_keep_avx512(size_t count, const float *scores, float least, uint16_t *rows);
void reef_coarse_sort_avx512(size_t count,
                             const float *scores,
                             const uint16_t *rows,
                             size_t kept,
                             float *best,
                             uint16_t *best_rows);

#endif
