// Retrieved experts of a layer: forward, backward, and the optimiser in the same pass. Single
// neurons (PEER), or values (product-key memory).
//
// A row holds the vectors of one expert side by side, [w_down, w_up], for gated ones [w_down, w_up,
// w_gate], for values [w_up] alone, D values each, so that one prefetch stream serves them all.
// Expert gradients are never stored: one pass over (expert, token) pairs sorted by expert
// accumulates a row's gradient and applies Adam at once. He 2024 eq. 3 and 6.
#ifndef REEF_EXPERTS_H
#define REEF_EXPERTS_H

#include "reef_router.h"
#include "reef_store.h"
#include "shapes.h"

/**
 * y[t] += sum over p of gate[t][p] * expert indices[t][p] of x[t]
 *
 * Rows of one piece, summed in order p = 0 .. P-1.
 * y       (rows, D) accumulated into
 * hidden  (rows, reef_expert_hidden_values) written, which backward needs; may be NULL in
 *         evaluation
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
 * factors   (rows, P, reef_expert_vectors) written: what the gradient of each vector of the
 *           expert's row is a multiple of x or d_y by, which the update needs:
 *             d_w_down = factors[0] * x,   d_w_up = factors[1] * d_y,   d_w_gate = factors[2] * x
 *           (of values d_w_up = factors[0] * d_y).
 *           They lie side by side, because the update meets the pairs in the order of the experts
 *           and finds each one's on a cache line of its own. NULL where nothing is updated.
 * Skipped tokens (active 0) get d_gate = factors = 0.
 */
void reef_experts_backward(const reef_expert_shape *shape,
                           size_t rows,
                           float *d_x,
                           float *d_gate,
                           float *factors,
                           const float *d_y,
                           const float *hidden,
                           const reef_expert_id *indices,
                           const float *gate,
                           const reef_expert_rows *experts,
                           const uint8_t *active);

/** A selection: the expert's id * 2^32 + its index in `indices`, token * P + p. */
typedef uint64_t reef_pair;

static inline reef_expert_id reef_pair_expert(reef_pair pair) {
    return (reef_expert_id)(pair >> 32);
}

static inline uint32_t reef_pair_index(reef_pair pair) {
    return (uint32_t)pair;
}

/** Scratch of the update pass, allocated once. Nothing in it has the size of the pool. */
typedef struct reef_expert_pairs {
    size_t pair_count_max, expert_count;
    size_t pair_count; // sorted
    reef_pair *sorted; // (pair_count) by expert, in token order within one
    reef_pair *scratch;
    uint32_t *offsets; // scratch of the sort
    float *row_grads;  // scratch per piece of the update
    // Bias corrections by a row's number of updates, and of which betas they are: rows of a small
    // net are short, so that two powers for each are a fifth of their optimiser's time.
    reef_adam_bias *biases; // (REEF_EXPERT_BIASES), [0] unused
    float bias_beta1, bias_beta2;
} reef_expert_pairs;

#define REEF_EXPERT_BIASES 2048 // rows with as many updates or more compute theirs

#define REEF_EXPERT_PIECES 64 // fixed number of pieces of the update pass
#define REEF_EXPERT_LINE_BYTES 64

/** The first of `count` things that is the piece's. */
static inline size_t reef_piece_begin(size_t count, size_t piece, size_t pieces) {
    return count * piece / pieces;
}

/** Floats between the gradients of two pieces: whole cache lines, so that threads share none. */
static inline size_t reef_expert_grad_stride(size_t row_values) {
    const size_t line = REEF_EXPERT_LINE_BYTES / sizeof(float);
    return (row_values + line - 1) / line * line;
}

REEF_MUST_CHECK reef_status reef_expert_pairs_init(reef_expert_pairs *pairs,
                                                   size_t pair_count_max,
                                                   size_t expert_count,
                                                   size_t row_values,
                                                   reef_error *err);
void reef_expert_pairs_release(reef_expert_pairs *pairs);

/**
 * Sort the pairs of `rows` tokens by expert; every index is below expert_count. Tokens with active
 * 0 have no pairs, and their indices are not read. The result does not depend on the number of
 * threads.
 */
void reef_expert_pairs_sort(reef_expert_pairs *pairs,
                            reef_thread_pool *workers,
                            size_t rows,
                            size_t P,
                            const reef_expert_id *indices,
                            const uint8_t *active);

/** Where the pairs end that are of the same expert as sorted[begin], begin < pair_count. */
size_t reef_expert_pairs_end(const reef_expert_pairs *pairs, size_t begin);

typedef struct reef_expert_update {
    reef_adam adam;
    float average_rate; // of the running average, where one is kept
    float clip;         // bound on the norm of one row's gradient; 0 for none
    // (N) or NULL; non-zero: frozen, not one bit of the row or its moments changes
    const uint8_t *flags;
    uint8_t *dirty;    // (N) or NULL: set to 1 for every row that changed
    reef_usage *usage; // (N) or NULL: count and score are added for every selection, frozen or not
    reef_row_share share; // which rows are here: only they are updated; zero: all are
} reef_expert_update;

/**
 * The gradient of every selected expert, summed over its pairs in token order from the factors that
 * backward left, its Adam step, and the step of its average. `gate` (rows, P) counts for the usage
 * only. Fixed pieces over experts, no reduction between them: same bits for any number of threads.
 * `pairs` must have been sorted for the same indices.
 */
void reef_experts_update(reef_thread_pool *workers,
                         const reef_expert_shape *shape,
                         float *experts, // (here, row values) in one block
                         reef_expert_moments *moments,
                         reef_expert_pairs *pairs, // whose bias corrections may be written
                         const float *x,
                         const float *d_y,
                         const float *gate,
                         const float *factors,
                         const reef_expert_update *update);

/**
 * row_grad (row values) written: gradient of the row, summed over the pairs of one expert, in
 * their order. The other arrays are those of reef_experts_update.
 */
void reef_expert_row_gradient(const reef_expert_shape *shape,
                              size_t pair_count,
                              float *row_grad,
                              const reef_pair *pairs,
                              const float *x,
                              const float *d_y,
                              const float *factors);

#endif
