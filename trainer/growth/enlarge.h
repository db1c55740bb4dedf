// Growth in place, in memory: new sub-keys and experts beside those of the open generation.
#ifndef REEF_ENLARGE_H
#define REEF_ENLARGE_H

#include "trainer_internal.h"

/** Grow the open generation to `side` sub-keys per side. Reported as an event. */
REEF_MUST_CHECK reef_status reef_growth_enlarge(reef_trainer *trainer,
                                                uint32_t side,
                                                reef_error *err);

#endif
