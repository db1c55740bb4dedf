// Choosing the best pairs of two score rows; private to the router and its tests.
#ifndef REEF_PRODUCT_KEY_H
#define REEF_PRODUCT_KEY_H

#include "reef_router.h"

/** The sorted lists of one selection, its scratch, and its sizes. */
typedef struct pair_lists {
    size_t side, topk;
    float *score_a;      // (reef_pairs_kept) best scores of table a, best first
    float *score_b;      // (reef_pairs_kept)
    uint16_t *row_a;     // (reef_pairs_kept) their rows
    uint16_t *row_b;     // (reef_pairs_kept)
    uint64_t *keys;      // (topk) best pairs so far: score and id in one sortable number
    uint32_t *positions; // (topk) in the lists: position in a << 16 | position in b
    uint16_t *tied_a;    // (side) rows that may take part in a tie
    uint16_t *tied_b;    // (side)
} pair_lists;

/**
 * Length of the lists: one more than are chosen, which shows whether ties continue; side at most.
 */
size_t reef_pairs_kept(size_t side, size_t topk);

/** Fill one table's list from its scores (side). False, list unspecified, when one is NaN. */
bool reef_pairs_list(size_t side, size_t topk, const float *scores, float *best, uint16_t *rows);

/**
 * The `topk` best of all side * side pairs (i, j) by score_a[i] + score_b[j], the sum rounded to
 * float, best first and the lower id first among equals. Exact, as if every pair had been
 * scored. Both lists are filled before.
 *
 * Returns false, outputs unspecified, when the best scores are not all finite numbers.
 */
bool reef_pairs_choose(const pair_lists *lists,
                       const float *score_a,    // (side)
                       const float *score_b,    // (side)
                       reef_expert_id *indices, // (topk) written
                       uint16_t *index_a,       // (topk) written
                       uint16_t *index_b,       // (topk) written
                       float *scores);          // (topk) written

#endif
