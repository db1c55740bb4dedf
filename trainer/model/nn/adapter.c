// See adapter.h. Products run over the whole window, so that their shapes are fixed; the mask
// decides what is added.
#include "adapter.h"

#include <string.h>

static void mask_rows(size_t T, size_t width, float *rows, const uint8_t *fire) {
    for (size_t t = 0; t < T; t++)
        if (!fire[t]) memset(rows + t * width, 0, width * sizeof(*rows));
}

void reef_adapter_forward(const reef_adapter_shape *shape,
                          size_t T,
                          float *y,
                          const float *x,
                          const reef_adapter *adapter,
                          const uint8_t *fire,
                          float *scratch) {
    size_t in = shape->in, out = shape->out, rank = shape->rank;
    float *low = scratch, *delta = scratch + T * rank;
    if (!shape->whole)
        reef_gemm(false, false, T, rank, in, 1.0f, x, in, adapter->down, rank, 0.0f, low, rank);
    reef_gemm(false, false, T, out, rank, 1.0f, shape->whole ? x : low, rank, adapter->up, out,
              0.0f, delta, out);
    for (size_t t = 0; t < T; t++)
        if (fire[t]) reef_axpy(out, y + t * out, 1.0f, delta + t * out);
}

void reef_adapter_backward(const reef_adapter_shape *shape,
                           size_t T,
                           float *d_x,
                           float *low,
                           float *d_low,
                           const float *d_y,
                           const float *x,
                           const reef_adapter *adapter,
                           const uint8_t *fire) {
    size_t in = shape->in, out = shape->out, rank = shape->rank;
    if (shape->whole)
        memcpy(low, x, T * in * sizeof(*low));
    else
        reef_gemm(false, false, T, rank, in, 1.0f, x, in, adapter->down, rank, 0.0f, low, rank);
    reef_gemm(false, true, T, rank, out, 1.0f, d_y, out, adapter->up, out, 0.0f, d_low, rank);
    mask_rows(T, rank, low, fire);
    mask_rows(T, rank, d_low, fire);
    if (shape->whole)
        reef_axpy(T * in, d_x, 1.0f, d_low);
    else
        reef_gemm(false, true, T, in, rank, 1.0f, d_low, rank, adapter->down, rank, 1.0f, d_x, in);
}
