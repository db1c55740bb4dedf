// Fitting the gate of the open generation while it learns.
#ifndef REEF_GATE_REFIT_H
#define REEF_GATE_REFIT_H

#include "trainer_internal.h"

/** Fit the open generation's gate on reservoir and stream, if both have enough. */
REEF_MUST_CHECK reef_status reef_growth_fit_gate(reef_trainer *trainer,
                                                 reef_generation *generation,
                                                 const uint8_t *fresh,
                                                 size_t fresh_bytes,
                                                 reef_error *err);

/** Is it time to fit the gate again? At 32, 128, 512, ... steps of the generation. */
bool reef_growth_gate_due(const reef_trainer *trainer);

#endif
