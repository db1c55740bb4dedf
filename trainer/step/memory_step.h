// What a step asks of the open generation's context memory. It learns in memory_lane.h.
#ifndef REEF_MEMORY_STEP_H
#define REEF_MEMORY_STEP_H

#include "trainer_internal.h"

/**
 * The open generation's memory learns the batch at `bytes` (one more than a batch), which stands at
 * `begin` in the stream. The first of them it learns only where it has not yet.
 *
 * net   the forward pass of the batch has just been run, and nothing trained on it yet
 * bits  written; the mean surprise
 *
 * Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_memory_step_learn(const reef_trainer *trainer,
                                                   const uint8_t *bytes,
                                                   uint64_t begin,
                                                   bool net,
                                                   double *bits,
                                                   reef_error *err);

/**
 * Count again how full the open generation's memory is, for status, if it has learned enough since
 * the last count. Changes nothing that is learned.
 */
void reef_memory_step_refresh_stats(reef_trainer *trainer);

/**
 * The last counts, and what memories know without counting: `memory` and `kind_memory` of a status
 * whose `kind` is known.
 */
void reef_memory_step_describe(const reef_trainer *trainer, reef_trainer_status *out);

#endif
