// Product-key retrieval the slow way: score every pair, sort, take the best.
#ifndef EXHAUSTIVE_PAIRS_H
#define EXHAUSTIVE_PAIRS_H

#include "reef_router.h"

#include <stdlib.h>

typedef struct scored_pair {
    float score;
    reef_expert_id id;
    uint16_t i, j;
} scored_pair;

static inline int better_pair_first(const void *left, const void *right) {
    const scored_pair *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/**
 * All side * side pairs by score_a[i] + score_b[j], best first, the lower id first among equals.
 */
static inline void exhaustive_pairs(size_t side,
                                    const float *score_a,
                                    const float *score_b,
                                    scored_pair *pairs) {
    for (size_t i = 0; i < side; i++) {
        for (size_t j = 0; j < side; j++) {
            pairs[i * side + j] = (scored_pair){
                .score = score_a[i] + score_b[j],
                .id = reef_expert_id_of((uint32_t)i, (uint32_t)j),
                .i = (uint16_t)i,
                .j = (uint16_t)j,
            };
        }
    }
    qsort(pairs, side * side, sizeof(*pairs), better_pair_first);
}

#endif
