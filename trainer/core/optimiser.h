// Adam on the dense tensors of the open generation.
#ifndef REEF_OPTIMISER_H
#define REEF_OPTIMISER_H

#include "trainer_internal.h"

#define REEF_BN_MOMENTUM                                                                           \
    0.05f // share of a batch in what it moves: statistics of queries, thresholds
// Of the weights' running average, which is the model: the mean of about the last hundred updates.
#define REEF_AVERAGE_RATE 0.01f

/** Norm of the gradient of the open generation's dense tensors, all together. */
double reef_step_gradient_norm(reef_thread_pool *workers, reef_generation *generation);

/** Adam on these tensors, whose gradients are zero afterwards; clipped by their norm. */
void reef_step_update_dense(reef_trainer *trainer,
                            reef_generation *generation,
                            double gradient_norm);

/** Of the next step: warm-up from 0 after the last boundary. */
float reef_learning_rate(const reef_config *config, uint64_t step);

#endif
