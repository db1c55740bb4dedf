// What forward.c and backward.c share: products with corrections, rows of other ranks, and passes
// that several ranks share out.
#ifndef REEF_NN_INTERNAL_H
#define REEF_NN_INTERNAL_H

#include "activations.h"
#include "transformer.h"

// ---- projection.c -------------------------------------------------------------------------------
//
// Products of a window's tokens with the matrices of the backbone, with the corrections of the
// generation that fires.

/** A matrix that later generations correct, in the head or in one block. */
typedef enum reef_net_matrix {
    REEF_W_HEAD,    // (D, V)
    REEF_W_QKV,     // (D, 3*D)
    REEF_W_OUT,     // (D, D)
    REEF_W_FFW_IN,  // (D, F)
    REEF_W_FFW_OUT, // (F, D)
} reef_net_matrix;

/** A window of a pass, in block l. */
typedef struct reef_projection {
    const reef_network *network;
    size_t fires; // the generation, or 0
    uint32_t l;
} reef_projection;

/** y (T, out) = x (T, in) W, or with `add` y += x W. */
void reef_project(
    const reef_projection *at, reef_net_matrix which, float *y, const float *x, bool add);
/** d_x (T, in) = d_y (T, out) W^T, or with `add` d_x += d_y W^T: the gradient of x. */
void reef_project_back(
    const reef_projection *at, reef_net_matrix which, float *d_x, const float *d_y, bool add);

// ---- row_exchange.c -----------------------------------------------------------------------------
//
// Rows of experts that other ranks own, fetched for one pass.
//
// A sum over experts is taken in the order in which they were chosen, so its bits need the rows
// themselves: what their owners could add up would be sums in another order. So rows travel to the
// tokens, each once to every rank that chose it.

/**
 * Fetch what generation g chose in layer l for the windows first .. end - 1, and is not here. Every
 * rank that the rows are divided over calls it at once, each for its own windows, which may be all.
 * What was fetched before into the same tape goes.
 *
 * Nothing happens where all rows are here. A rank without memory for them ends all ranks.
 */
void reef_rows_fetch(reef_activations *acts,
                     const reef_network *network,
                     size_t g,
                     uint32_t l,
                     size_t first,
                     size_t end);

// ---- split.c ------------------------------------------------------------------------------------
//
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
