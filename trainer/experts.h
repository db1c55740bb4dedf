// Single-neuron experts of a PEER layer: forward, backward, and the optimiser in the same pass.
//
// A row holds the vectors of one expert side by side, [w_down, w_up] or for gated ones [w_down, w_up,
// w_gate], D values each, so that one prefetch stream serves them all. Expert gradients are never stored:
// one pass over (expert, token) pairs sorted by expert accumulates a row's gradient and applies Adam at
// once. He 2024 eq. 3 and 6.
#ifndef REEF_EXPERTS_H
#define REEF_EXPERTS_H

#include "reef_kernels.h"
#include "reef_router.h"
#include "reef_store.h"

/** What an expert does with the token x. */
typedef enum reef_expert_kind {
    REEF_EXPERT_GELU, // gelu(w_down . x) w_up
    REEF_EXPERT_RELU, // max(0, w_down . x) w_up
    REEF_EXPERT_GLU,  // gelu(w_gate . x) (w_down . x) w_up (Shazeer 2020)
} reef_expert_kind;

typedef struct reef_expert_shape {
    reef_expert_kind kind;
    size_t P; // experts per token: heads * topk
    size_t D; // width of a token
} reef_expert_shape;

/** Values of one row: 2 * D, gated 3 * D. */
static inline size_t reef_expert_row_values(const reef_expert_shape *shape) {
    return (shape->kind == REEF_EXPERT_GLU ? 3 : 2) * shape->D;
}

/** Floats of `hidden` per token: w_down . x of its P experts, gated ones followed by P w_gate . x. */
static inline size_t reef_expert_hidden_values(const reef_expert_shape *shape) {
    return (shape->kind == REEF_EXPERT_GLU ? 2 : 1) * shape->P;
}

/**
 * The rows of a layer's experts where they lie: in one block of memory, or in blocks anywhere, such as
 * in the store's map. Row n is row n mod 2^block_shift of block n >> block_shift.
 */
typedef struct reef_expert_rows {
    reef_dtype dtype;          // REEF_F32 or REEF_BF16
    uint32_t block_shift;      // 32 where all rows are in one block
    const void *const *blocks; // each aligned for its type
} reef_expert_rows;

#define REEF_EXPERT_ONE_BLOCK 32u

/**
 * y[t] += sum over p of gate[t][p] * expert indices[t][p] of x[t]
 *
 * Rows of one piece, summed in order p = 0 .. P-1.
 * y       (rows, D) accumulated into
 * hidden  (rows, reef_expert_hidden_values) written, which backward needs; may be NULL in evaluation
 * active  (rows) or NULL: tokens with 0 are skipped, their y is not touched by one bit
 */
void reef_experts_forward(const reef_expert_shape *shape,
                          size_t rows,
                          float *y,
                          float *hidden,
                          const float *x,
                          const reef_expert_id *indices,
                          const float *gate,
                          const reef_expert_rows *experts,
                          const uint8_t *active);

/**
 * What flows back through frozen and trained experts alike, with the weights of the forward:
 * d_x       (rows, D) accumulated into
 * d_gate    (rows, P) written
 * d_hidden  (rows, reef_expert_hidden_values) written: gradient of `hidden`
 * Skipped tokens (active 0) get d_gate = d_hidden = 0.
 */
void reef_experts_backward(const reef_expert_shape *shape,
                           size_t rows,
                           float *d_x,
                           float *d_gate,
                           float *d_hidden,
                           const float *d_y,
                           const float *hidden,
                           const reef_expert_id *indices,
                           const float *gate,
                           const reef_expert_rows *experts,
                           const uint8_t *active);

/** Adam state of the experts of one layer of the open generation. */
typedef struct reef_expert_moments {
    float *adam_m;    // (N, row values)
    float *adam_v;    // (N, row values)
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
                                                   size_t row_values,
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
 *   d_w_down = sum d_hidden * x,   d_w_up = sum gate * activation * d_y,   d_w_gate as d_w_down
 * Fixed pieces over experts, no reduction between them: same bits for any number of threads.
 * `pairs` must have been sorted for the same indices.
 */
void reef_experts_update(reef_workers *workers,
                         const reef_expert_shape *shape,
                         float *experts, // (N, row values) in one block
                         reef_expert_moments *moments,
                         const reef_expert_pairs *pairs,
                         const float *x,
                         const float *d_y,
                         const float *gate,
                         const float *hidden,
                         const float *d_hidden,
                         const reef_expert_update *update);

#endif
