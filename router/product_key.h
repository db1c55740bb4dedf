// Choosing the best pairs of two score rows; private to the router and its tests.
#ifndef REEF_PRODUCT_KEY_H
#define REEF_PRODUCT_KEY_H

#include "reef_router.h"

enum { PAIR_STAIRS = 4, PAIR_STEPS_MAX = 16 };

/**
 * Sets of at least topk places (p, q) in sorted lists, so that with a place all before it in both
 * are in the set: their rows have falling lengths. Of each set the last places of its steps, where
 * its least sums are; the sets turned over, p for q, count too.
 */
typedef struct pair_stairs {
    uint8_t steps[PAIR_STAIRS];
    uint8_t p[PAIR_STAIRS][PAIR_STEPS_MAX], q[PAIR_STAIRS][PAIR_STEPS_MAX];
} pair_stairs;

/** The sorted lists of one selection, its scratch, and its sizes. */
typedef struct pair_lists {
    size_t side, topk;
    pair_stairs stairs;  // reef_pairs_stairs
    float *score_a;      // (reef_pairs_kept) best scores of table a, best first
    float *score_b;      // (reef_pairs_kept)
    uint16_t *row_a;     // (reef_pairs_kept) their rows
    uint16_t *row_b;     // (reef_pairs_kept)
    size_t length_a;     // of the lists: reef_pairs_kept, or fewer where no pair with another
    size_t length_b;     // sub-key can be among the best or score what the worst of them does
    uint64_t *keys;      // (topk) best pairs so far: score and id in one sortable number
    uint32_t *positions; // (topk) in the lists: position in a << 16 | position in b
    uint16_t *tied_a;    // (side) rows that may take part in a tie
    uint16_t *tied_b;    // (side)
} pair_lists;

/**
 * Length of the lists: one more than are chosen, which shows whether ties continue; side at most.
 */
size_t reef_pairs_kept(size_t side, size_t topk);

/** Sets for `topk`, from square to one row; empty where it is too large for them. */
void reef_pairs_stairs(size_t topk, pair_stairs *stairs);

/**
 * A sum that at least topk pairs reach, by `count` scores of different rows of each table, best
 * first; -INFINITY where none is known.
 */
float reef_pairs_reached(const pair_stairs *stairs,
                         size_t count_a,
                         const float *a, // (count_a)
                         size_t count_b,
                         const float *b);

/** Fill one table's list from its scores (side). False, list unspecified, when one is NaN. */
bool reef_pairs_list(size_t side, size_t topk, const float *scores, float *best, uint16_t *rows);

/** Whether pairs were chosen; the outputs are unspecified otherwise. */
typedef enum pairs_outcome {
    PAIRS_CHOSEN,
    PAIRS_NOT_FINITE, // the best scores are not all finite numbers
    PAIRS_TIED,       // ties reach beyond the lists, and there are no rows of scores to search
} pairs_outcome;

/**
 * The `topk` best of all side * side pairs (i, j) by score_a[i] + score_b[j], the sum rounded to
 * float, best first and the lower id first among equals. Exact, as if every pair had been
 * scored. Both lists are filled before.
 */
pairs_outcome reef_pairs_choose(const pair_lists *lists,
                                const float *score_a,    // (side) or NULL: the lists are all
                                const float *score_b,    // (side) there is
                                reef_expert_id *indices, // (topk) written
                                uint16_t *index_a,       // (topk) written
                                uint16_t *index_b,       // (topk) written
                                float *scores);          // (topk) written

#endif
