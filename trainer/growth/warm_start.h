// How a later generation begins where its configuration asks for more than random values.
//
// subkeys_new = queries: its sub-keys lie where the queries of its own first data are.
// copy_experts: some of its experts begin with the w_down of older ones that fire most on that
// data. Either way w_up stays zero. branch_new = trial: it begins as a copy of a sealed generation
// where that learns the first data better (branch_trial.h). weigh_older: where the sum of older
// experts makes the loss on that data worse, it begins without it; all else changes no bit of any
// output.
#ifndef REEF_WARM_START_H
#define REEF_WARM_START_H

#include "trainer_internal.h"

/** Is the open generation one that has trained nothing, with a start of its own? */
bool reef_start_is_due(const reef_trainer *trainer);

/**
 * Start the open generation from whole batches of its data, in the stream from the first pending
 * byte on and followed by one byte more. Reported as an event.
 */
REEF_MUST_CHECK reef_status reef_start_generation(reef_trainer *trainer,
                                                  const uint8_t *fresh,
                                                  size_t fresh_bytes,
                                                  reef_error *err);

#endif
