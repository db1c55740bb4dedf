// Experts of the open generation that nothing chooses are initialised again, as recycle_after asks
// for.
//
// Every recycle_after bytes that the generation trains on, rounded up to whole batches, every
// expert that was not chosen since the last time, and is not frozen, gets a new w_down (and
// w_gate), w_up = 0, and an optimiser that knows nothing of it. Its key is a pair of sub-keys,
// which it shares with a row and a column of the grid: where none of those was chosen or is frozen,
// the sub-key moves to a query of the last batch, so that experts of it are chosen again. A sub-key
// that any expert in use needs stays where it is.
//
// What it forgets was used by nothing in all that time; sealed generations and frozen experts are
// not touched. Decided by steps of the generation and by counts that are part of every commit.
#ifndef REEF_EXPERT_RECYCLING_H
#define REEF_EXPERT_RECYCLING_H

#include "trainer_internal.h"

/** Does the step that was just trained end a window? */
bool reef_recycle_is_due(const reef_trainer *trainer);

/**
 * Recycle, and begin the next window. The pass still holds the batch that was just trained.
 * Reported as an event.
 */
REEF_MUST_CHECK reef_status reef_recycle(reef_trainer *trainer, reef_error *err);

#endif
