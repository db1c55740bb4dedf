// The query network as kernels on plain arrays; private to the router.
#ifndef REEF_QUERY_NETWORK_H
#define REEF_QUERY_NETWORK_H

#include <stdbool.h>
#include <stddef.h>

/** Features that one piece of batch-norm work covers; the sums of a panel fit the stack. */
enum { PANEL_WIDTH = 64 };

/** Are all D values finite? */
bool reef_query_is_finite(size_t D, const float *x);

/**
 * Batch norm over B rows of `count` <= PANEL_WIDTH neighbouring features; `stride` floats a row.
 * mean, var  (count) written; var is biased
 */
void reef_query_norm_forward(size_t B,
                             size_t count,
                             size_t stride,
                             float *query,           // (B, stride) written
                             float *mean,            // (count) written
                             float *var,             // (count) written
                             const float *query_raw, // (B, stride)
                             const float *bn_scale,  // (count)
                             const float *bn_shift); // (count)

/** Backward of reef_query_norm_forward, in place: d_query becomes the gradient of query_raw. */
void reef_query_norm_backward(size_t B,
                              size_t count,
                              size_t stride,
                              float *d_query,    // (B, stride) in and out
                              float *d_bn_scale, // (count) accumulated into
                              float *d_bn_shift, // (count) accumulated into
                              const float *query_raw,
                              const float *mean,
                              const float *var,
                              const float *bn_scale);

#endif
