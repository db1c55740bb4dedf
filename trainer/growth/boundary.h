// A boundary: the open generation is sealed and the next one opened, in memory.
#ifndef REEF_BOUNDARY_H
#define REEF_BOUNDARY_H

#include "enlarge.h"
#include "trainer_internal.h"

/**
 * Seal the open generation with rows of `dtype` and open the next, in memory. `out` is written, and
 * reported as an event.
 */
REEF_MUST_CHECK reef_status reef_growth_boundary(reef_trainer *trainer,
                                                 const reef_opening *opening,
                                                 reef_dtype dtype,
                                                 reef_sealing *out,
                                                 reef_error *err);

/**
 * A new open generation after `last`, in memory; its queries begin as those of `open`, which are
 * not folded.
 */
REEF_MUST_CHECK reef_status reef_growth_next(reef_generation **out,
                                             const reef_trainer *trainer,
                                             const reef_generation_record *last,
                                             const reef_generation *open,
                                             uint32_t side,
                                             reef_error *err);

/** Gates of new generations start at their own beginning; the others continue. */
REEF_MUST_CHECK reef_status reef_growth_extend_gating(reef_gating *gating,
                                                      const reef_network *network,
                                                      reef_error *err);

#endif
