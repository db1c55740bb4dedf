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

/**
 * Fit a generation's gate as the configuration says; with too few windows it stays as it is. The
 * model whose loss it may read is that of the trainer's first `older_count` generations.
 */
REEF_MUST_CHECK reef_status reef_generation_fit_gate(reef_generation *generation,
                                                     reef_trainer *trainer,
                                                     size_t older_count,
                                                     const reef_gate_windows *old_fit,
                                                     const reef_gate_windows *old_calibrate,
                                                     const reef_gate_windows *young,
                                                     reef_error *err);

/** Is it time to fit the gate again? At 32, 128, 512, ... steps of the generation. */
bool reef_growth_gate_due(const reef_trainer *trainer);

#endif
