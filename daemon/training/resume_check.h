// Whether a pool can continue with the given sources, checked before anything is trained.
#ifndef REEF_RESUME_CHECK_H
#define REEF_RESUME_CHECK_H

#include "reef_source.h"
#include "reef_trainer.h"

/**
 * Errors: INVALID they are more than the pool can have; nothing was changed.
 */
REEF_MUST_CHECK reef_status reef_sources_fit(const reef_trainer *trainer,
                                             const reef_input *sources,
                                             size_t count,
                                             reef_error *err);

#endif
