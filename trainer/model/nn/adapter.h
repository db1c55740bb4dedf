// Corrections of a sealed matrix: y += x down up on the tokens of a window where a generation fires
// (Hu et al. 2021), or y += x up with a whole matrix where that has no more values. `up` starts at
// zero, so a new adapter changes nothing.
#ifndef REEF_ADAPTER_H
#define REEF_ADAPTER_H

#include "shapes.h"

/**
 * y[t] += (x[t] down) up where fire[t]; other rows of y are not touched by one bit.
 * scratch  (T, rank + out)
 */
void reef_adapter_forward(const reef_adapter_shape *shape,
                          size_t T,
                          float *y,       // (T, out) accumulated into
                          const float *x, // (T, in)
                          const reef_adapter *adapter,
                          const uint8_t *fire, // (T)
                          float *scratch);

/**
 * d_x    (T, in) accumulated into
 * low    (T, rank) written: x down, zero where it does not fire
 * d_low  (T, rank) written: its gradient
 * The adapter's own gradients are matrix products of these: d_down = x^T d_low (if it has one),
 * d_up = low^T d_y.
 */
void reef_adapter_backward(const reef_adapter_shape *shape,
                           size_t T,
                           float *d_x,
                           float *low,
                           float *d_low,
                           const float *d_y, // (T, out)
                           const float *x,   // (T, in)
                           const reef_adapter *adapter,
                           const uint8_t *fire);

#endif
