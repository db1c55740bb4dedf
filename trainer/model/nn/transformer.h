// The dense parts of the transformer: pure functions on plain row-major arrays of one piece (a
// window of T tokens, or any number of rows where the shape says `rows`). No allocation, no
// globals.
//
// forward and backward stand next to each other; gradients are accumulated, the caller clears them.
// Parameter gradients may be NULL: then the parameter is sealed and only d_x is computed.
#ifndef REEF_TRANSFORMER_H
#define REEF_TRANSFORMER_H

#include "reef_kernels.h"
#include "shapes.h"

#define REEF_LAYER_NORM_EPSILON 1e-5f

/** y = (x - mean) * rstd * scale + shift, per row. mean, rstd (rows) are kept for backward. */
void reef_layer_norm_forward(size_t rows,
                             size_t D,
                             float *y,    // (rows, D) written
                             float *mean, // (rows) written
                             float *rstd, // (rows) written
                             const float *x,
                             const float *scale,  // (D)
                             const float *shift); // (D)
void reef_layer_norm_backward(size_t rows,
                              size_t D,
                              float *d_x,     // (rows, D) accumulated into
                              float *d_scale, // (D) accumulated into, or NULL
                              float *d_shift, // (D) accumulated into, or NULL
                              const float *d_y,
                              const float *x,
                              const float *mean,
                              const float *rstd,
                              const float *scale);

/** d_w (in, out) += x^T (in, rows) d_y (rows, out): the gradient of the weight of y = x w. */
typedef struct reef_weight_product {
    size_t in, out;
    float *d_w;
    const float *x, *d_y;
} reef_weight_product;

/**
 * The gradients of `count` weights over the same `rows`. Together, so that there are tiles enough
 * for every thread; the tiles depend on the shapes alone.
 */
void reef_weight_gradients(reef_thread_pool *workers, // or NULL
                           size_t rows,
                           size_t count,
                           const reef_weight_product *products);

/** One of those tiles: the rectangle of a product's d_w that is one piece of work. */
typedef struct reef_weight_tile {
    size_t product; // its index
    size_t row, column, rows, columns;
} reef_weight_tile;
size_t reef_weight_tile_count(size_t count, const reef_weight_product *products);
reef_weight_tile reef_weight_tile_at(const reef_weight_product *products, size_t tile);
/** The same of tiles first .. end - 1 alone. */
void reef_weight_gradients_of(reef_thread_pool *workers,
                              size_t rows,
                              const reef_weight_product *products,
                              size_t first,
                              size_t end);

/**
 * Causal multi-head attention of one window, after the projections (Vaswani et al. 2017 eq. 1).
 * qkv   (T, 3*D) rows are [q, k, v], each (A, D/A): A heads
 * probs (A, T, T) written up to the end of each row's block of REEF_ATTENTION_ROWS, zero above the
 *       diagonal; what lies past the block is neither written nor read
 * out   (T, D) written, heads side by side
 */
void reef_attention_forward(
    size_t T, size_t D, size_t A, float *out, float *probs, const float *qkv);
void reef_attention_backward(size_t T,
                             size_t D,
                             size_t A,
                             float *d_qkv,   // (T, 3*D) written
                             float *d_probs, // (REEF_ATTENTION_ROWS, T) scratch
                             const float *d_out,
                             const float *qkv,
                             const float *probs);

/**
 * Cross-entropy in nats of each row; the logits are replaced by its gradient.
 * logits   (rows, V) in: logits; out: weight[t] * (softmax - onehot); untouched when `gradient`
 *          false
 * loss     (rows) written, in nats, summed in double
 * weight   (rows) or NULL for 1
 */
void reef_cross_entropy(size_t rows,
                        size_t V,
                        double *loss,
                        float *logits,
                        const uint8_t *targets, // (rows)
                        const float *weight,
                        bool gradient);

/** Embedding gradient of `rows` tokens in order: d_table[tokens[t]] += d_x[t]. */
void reef_embedding_backward(size_t rows,
                             size_t D,
                             float *d_table, // (V, D) accumulated into
                             const float *d_x,
                             const uint8_t *tokens); // (rows)

#endif
