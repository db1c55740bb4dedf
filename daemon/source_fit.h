// Whether a pool can go on with the sources that were given, asked before anything is trained.
#ifndef REEF_SOURCE_FIT_H
#define REEF_SOURCE_FIT_H

#include "input.h"
#include "reef_trainer.h"

/**
 * Errors: INVALID they are more than the pool can have; nothing was changed.
 */
REEF_MUST_CHECK reef_status reef_sources_fit(const reef_trainer *trainer,
                                             const reef_input *sources,
                                             size_t count,
                                             reef_error *err);

#endif
