// What a net says of a byte, as log odds of its bits.
//
//   probabilities of the 256 bytes -> sums of halves -> log odds at each of the 255 nodes
//
// Sums and logarithms are of doubles in one fixed order, without the C library's log(): the same
// probabilities give the same odds everywhere.
#ifndef REEF_NET_PREDICTION_H
#define REEF_NET_PREDICTION_H

#include "reef_context.h"

/** Sums of the probabilities below every node: node 1 is the root, 256 .. 511 are the bytes. */
typedef struct reef_net_tree {
    double sums[512];
} reef_net_tree;

void reef_net_tree_init(reef_net_tree *tree, const float *probabilities);
/** Clipped log odds of a one after `bits`: 1 and then the bits of the byte so far. */
int16_t reef_net_tree_odds(const reef_net_tree *tree, uint32_t bits);

#endif
