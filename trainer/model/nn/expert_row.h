// The gradient of one expert on its own, private to the trainer: the update pass never stores
// gradients, so this is where tests can see one.
#ifndef REEF_EXPERT_ROW_H
#define REEF_EXPERT_ROW_H

#include "experts.h"

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
