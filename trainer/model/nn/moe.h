// A mixture of experts in which experts choose their tokens: forward, backward, and the thresholds
// by which it is evaluated. Zhou et al. 2022, "Mixture-of-Experts with Expert Choice Routing".
//
//   scores = softmax over experts of x W_router
//   y[t]  += sum over the experts e that took t of scores[t][e] * gelu(x[t] w_in[e]) w_out[e]
//
// In training each expert takes the C tokens of a window that score highest with it: a choice that
// depends on the whole window. An evaluation must not: there an expert takes every token that
// scores at least its threshold, the running mean of the lowest score that it took in training.
//
// What always holds: a window is worked on by itself. An expert computes with blocks of C rows, the
// last one filled up with zeros, so that all products have fixed shapes; its tokens stand in the
// order of the window. Hence, by thresholds, nothing of a token depends on a later one by one bit.
#ifndef REEF_MOE_H
#define REEF_MOE_H

#include "reef_error.h"
#include "shapes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * What a forward leaves for its backward, and the scratch of both. Windows count as in the pass.
 */
typedef struct reef_moe_tape {
    size_t windows;   // of the pass
    bool chosen;      // by the window: what the experts computed is kept
    float *scores;    // (windows, T, E)
    uint16_t *tokens; // (windows, E, T) that each expert took, ascending
    size_t *counts;   // (windows, E) how many
    float *scratch;   // (windows, block values): one block, where it is not kept, and its gradients
    // of a tape for training; rows of what is kept are (E, windows, C)
    float *lowest;   // (windows, E) score of the last token that was taken
    float *x;        // (rows, D) tokens, gathered
    float *in;       // (rows, F) before the activation; backward replaces it by its gradient
    float *act;      // (rows, F)
    float *out;      // (rows, D)
    float *d_out;    // (rows, D)
    float *d_logits; // (windows, T, E)
    struct reef_weight_product *products; // (2 * E)
} reef_moe_tape;

REEF_MUST_CHECK reef_status reef_moe_tape_init(reef_moe_tape *tape,
                                               const reef_moe_shape *shape,
                                               size_t windows_max,
                                               bool backward,
                                               reef_error *err);
void reef_moe_tape_release(reef_moe_tape *tape); // accepts the zeroed tape

/**
 * Before the windows of a pass: how many there are, and whether experts choose (training) or by
 * thresholds.
 */
void reef_moe_begin(reef_moe_tape *tape, size_t windows, bool choose);

/**
 * Window `window` of the pass. Threads: any number of windows at once.
 * y  (T, D) accumulated into; x (T, D)
 */
void reef_moe_forward(const reef_moe_shape *shape,
                      const reef_moe_params *params,
                      reef_moe_tape *tape,
                      size_t window,
                      float *y,
                      const float *x);

/**
 * Backward of the same window, which tokens were taken held fixed. Where tokens were taken by
 * thresholds nothing was kept, and what the experts computed is computed again.
 * d_x  (T, D) accumulated into; d_y, x (T, D)
 */
void reef_moe_backward(const reef_moe_shape *shape,
                       const reef_moe_params *params,
                       reef_moe_tape *tape,
                       size_t window,
                       float *d_x,
                       const float *d_y,
                       const float *x);

/**
 * After the backward of all windows of a pass whose experts chose: gradients of the parameters,
 * added to. x (windows * T, D)
 */
void reef_moe_gradients(const reef_moe_shape *shape,
                        const reef_moe_params *grads,
                        const reef_moe_tape *tape,
                        reef_thread_pool *workers,
                        const float *x);

/**
 * threshold = (1 - momentum) * threshold + momentum * the mean over windows of the lowest score
 * taken.
 */
void reef_moe_update_thresholds(const reef_moe_shape *shape,
                                const reef_moe_params *params,
                                const reef_moe_tape *tape,
                                float momentum);

#endif
