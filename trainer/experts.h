// Single-neuron experts of a PEER layer: forward, backward, and the optimiser in the same pass.
//
// A row holds w_down and w_up of one expert side by side (2 * D floats), so that one prefetch stream
// serves both. Expert gradients are never stored: one pass over (expert, token) pairs sorted by expert
// accumulates a row's gradient and applies Adam at once. He 2024 eq. 3 and 6.
#ifndef REEF_EXPERTS_H
#define REEF_EXPERTS_H

#include "reef_kernels.h"
#include "reef_router.h"

/**
 * y[t] += sum over p of gate[t][p] * gelu(dot(w_down[indices[t][p]], x[t])) * w_up[indices[t][p]]
 *
 * Rows of one piece; P = heads * topk experts per token, summed in order p = 0 .. P-1.
 * y       (rows, D) accumulated into
 * hidden  (rows, P) written: dot(w_down, x), which backward needs; may be NULL in evaluation
 * active  (rows) or NULL: tokens with 0 are skipped, their y is not touched by one bit
 */
void reef_experts_forward(size_t rows,
                          size_t P,
                          size_t D,
                          float *y,
                          float *hidden,
                          const float *x,
                          const reef_expert_id *indices,
                          const float *gate,
                          const float *experts, // (N, 2 * D)
                          const uint8_t *active);

/**
 * What flows back through frozen and trained experts alike, with the weights of the forward:
 * d_x       (rows, D) accumulated into
 * d_gate    (rows, P) written
 * d_hidden  (rows, P) written: gradient of dot(w_down, x)
 * Skipped tokens (active 0) get d_gate = d_hidden = 0.
 */
void reef_experts_backward(size_t rows,
                           size_t P,
                           size_t D,
                           float *d_x,
                           float *d_gate,
                           float *d_hidden,
                           const float *d_y,
                           const float *x,
                           const float *hidden,
                           const reef_expert_id *indices,
                           const float *gate,
                           const float *experts,
                           const uint8_t *active);

/** Adam state of the experts of one layer of the open generation. */
typedef struct reef_expert_moments {
    float *adam_m;    // (N, 2 * D)
    float *adam_v;    // (N, 2 * D)
    uint32_t *counts; // (N) updates of each row: lazy Adam's own bias correction
} reef_expert_moments;

/** Scratch of the update pass, allocated once. */
typedef struct reef_expert_pairs {
    size_t pair_count_max, expert_count;
    uint32_t *pairs;  // (pair_count_max) token * P + p, sorted by expert, in token order within one
    uint32_t *starts; // (expert_count + 1) where each expert's pairs begin
    float *row_grads; // scratch per piece
} reef_expert_pairs;

#define REEF_EXPERT_PIECES 64 // fixed number of pieces of the update pass

REEF_MUST_CHECK reef_status reef_expert_pairs_init(reef_expert_pairs *pairs,
                                                   size_t pair_count_max,
                                                   size_t expert_count,
                                                   size_t D,
                                                   reef_error *err);
void reef_expert_pairs_release(reef_expert_pairs *pairs);

/** Sort the pairs of `rows` tokens by expert (counting sort). Tokens with active 0 have no pairs. */
void reef_expert_pairs_sort(reef_expert_pairs *pairs,
                            size_t rows,
                            size_t P,
                            const reef_expert_id *indices,
                            const uint8_t *active);

typedef struct reef_expert_update {
    reef_adam adam;
    float clip; // bound on the norm of one row's gradient; 0 for none
    const uint8_t
        *flags;     // (N) or NULL; non-zero: frozen, not one bit of the row or its moments changes
    uint8_t *dirty; // (N) or NULL: set to 1 for every row that changed
    reef_usage *usage; // (N) or NULL: count and score are added for every selection, frozen or not
} reef_expert_update;

/**
 * The gradient of every selected expert, summed over its pairs in token order, and its Adam step:
 *   d_w_down = sum d_hidden * x,   d_w_up = sum gate * gelu(hidden) * d_y
 * Fixed pieces over experts, no reduction between them: same bits for any number of threads.
 * `pairs` must have been sorted for the same indices.
 */
void reef_experts_update(reef_workers *workers,
                         size_t rows,
                         size_t P,
                         size_t D,
                         float *experts, // (N, 2 * D)
                         reef_expert_moments *moments,
                         const reef_expert_pairs *pairs,
                         const float *x,
                         const float *d_y,
                         const float *gate,
                         const float *hidden,
                         const float *d_hidden,
                         const reef_expert_update *update);

#endif
