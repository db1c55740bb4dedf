// Choosing the best pairs of two score rows; private to the router and its tests.
#ifndef PRODUCT_KEY_H
#define PRODUCT_KEY_H

#include "reef_router.h"

/** Scratch of one selection, and its sizes. */
typedef struct pair_lists {
    size_t side, topk;
    float *score_a;   // (topk + 1) best scores of table a, best first
    float *score_b;   // (topk + 1)
    uint16_t *row_a;  // (topk + 1) their rows
    uint16_t *row_b;  // (topk + 1)
    uint64_t *keys;   // (topk) best pairs so far: score and id in one sortable number
    uint32_t *places; // (topk) where they stand in the lists: place in a << 16 | place in b
    uint16_t *tied_a; // (side) rows that may take part in a tie
    uint16_t *tied_b; // (side)
} pair_lists;

/**
 * The `topk` best of all side * side pairs (i, j) by score_a[i] + score_b[j], the sum rounded to float,
 * best first and the lower id first among equals. Exact, as if every pair had been looked at.
 *
 * Returns false, outputs unspecified, when the best scores are not all finite numbers or one is NaN.
 */
bool reef_pairs_choose(const pair_lists *lists,
                       const float *score_a,    // (side)
                       const float *score_b,    // (side)
                       reef_expert_id *indices, // (topk) written
                       uint16_t *index_a,       // (topk) written
                       uint16_t *index_b,       // (topk) written
                       float *scores);          // (topk) written

#endif
