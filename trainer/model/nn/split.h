// A training pass that several ranks share out: who computes which piece, and what the pieces leave
// that others need.
//
// A rank computes the windows of its share, forwards and backwards. What sums over all rows of a
// step sums over them in one product, and the bits of a product are those of its shape; so it
// cannot be cut by rows. Instead the tiles of each weight's gradient are shared out: a rank gets
// the columns of activations that its tiles need from every other, and hands the tiles on. Sums
// over windows, statistics of queries, updates of rows of experts, and the optimiser are computed
// by every rank, from the same bits.
//
// With acts->ranks NULL everything runs here, and nothing is exchanged.
#ifndef REEF_SPLIT_H
#define REEF_SPLIT_H

#include "activations.h"
#include "transformer.h"

/** Run `work` over the windows that are this rank's. `ranks` NULL: over all. */
void reef_split_run(reef_ranks *ranks,
                    reef_thread_pool *workers,
                    size_t windows,
                    void (*work)(void *context, size_t window),
                    void *context);

/** What a window leaves in `base`: T rows of `width` floats. */
reef_ranks_array reef_split_rows(const reef_config *config, float *base, size_t width);

/** Set `active` to 0 for the windows of other ranks. */
void reef_split_mask(const reef_ranks *ranks, size_t windows, uint8_t *active);

/**
 * The same outcome on every rank: the one of the lowest rank that failed. A rank that did not fail
 * itself says in `err` whose it is.
 */
REEF_MUST_CHECK reef_status reef_split_agree(reef_ranks *ranks,
                                             reef_status status,
                                             reef_error *err);

/** reef_weight_gradients of products whose x and d_y are known for a rank's own windows. */
void reef_split_gradients(reef_ranks *ranks,
                          reef_thread_pool *workers,
                          const reef_config *config,
                          size_t windows,
                          size_t count,
                          const reef_weight_product *products);

#endif
