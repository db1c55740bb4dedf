// Products of a window's tokens with the matrices of the backbone, each token's with the
// corrections of the generation that fires for it.
#ifndef REEF_PROJECTION_H
#define REEF_PROJECTION_H

#include "activations.h"

/** A matrix that later generations correct, in the head or in one block. */
typedef enum reef_net_matrix {
    REEF_W_HEAD,    // (D, V)
    REEF_W_QKV,     // (D, 3*D)
    REEF_W_OUT,     // (D, D)
    REEF_W_FFW_IN,  // (D, F)
    REEF_W_FFW_OUT, // (F, D)
} reef_net_matrix;

/** Window w of a pass, in block l. */
typedef struct reef_projection {
    const reef_activations *acts;
    const reef_network *network;
    uint32_t l;
    size_t w;
} reef_projection;

/** y (T, out) = x (T, in) W, or with `add` y += x W. */
void reef_project(
    const reef_projection *at, reef_net_matrix which, float *y, const float *x, bool add);
/** d_x (T, in) = d_y (T, out) W^T, or with `add` d_x += d_y W^T: the gradient of x. */
void reef_project_back(
    const reef_projection *at, reef_net_matrix which, float *d_x, const float *d_y, bool add);

#endif
