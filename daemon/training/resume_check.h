// Whether a pool can continue with the given sources, checked before anything is trained.
#ifndef REEF_RESUME_CHECK_H
#define REEF_RESUME_CHECK_H

#include "reef_source.h"
#include "reef_trainer.h"

/**
 * The sources stand where the pool's last commit does. `record_bytes`: of a vector's record; 0:
 * records are lines.
 *
 * Errors: INVALID they are more than the pool can have, or none of them has the rest of a record
 * that the pool stopped in; nothing was changed.
 */
REEF_MUST_CHECK reef_status reef_sources_fit(const reef_trainer *trainer,
                                             const reef_input *sources,
                                             size_t count,
                                             size_t record_bytes,
                                             reef_error *err);

#endif
