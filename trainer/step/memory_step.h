// What a step asks of the open generation's context memory. It learns in memory_lane.h.
#ifndef REEF_MEMORY_STEP_H
#define REEF_MEMORY_STEP_H

#include "trainer_internal.h"

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
