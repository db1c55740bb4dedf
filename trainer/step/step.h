// One training step: forward, backward, optimiser.
#ifndef REEF_STEP_H
#define REEF_STEP_H

#include "trainer_internal.h"

/**
 * Count the losses of the batch that was just run forward, which begins at that offset of the
 * stream, by source.
 */
void reef_step_count_losses(reef_trainer *trainer, uint64_t begin);

/**
 * Forward of the batch at `bytes` (one more token than a batch) as the open generation trains it.
 * Errors: INVALID queries or the loss are not finite: training diverged; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_step_forward(reef_trainer *trainer,
                                              const uint8_t *bytes,
                                              double *bits,
                                              reef_error *err);

/** Backward and optimiser for the batch that reef_step_forward has just seen. */
void reef_step_backward(reef_trainer *trainer);

#endif
