// A boundary: the open generation is sealed and the next one opened, in memory. Or it grows.
#ifndef REEF_BOUNDARY_H
#define REEF_BOUNDARY_H

#include "trainer_internal.h"

/** Why and how large a generation is opened. */
typedef struct reef_opening {
    const char *reason; // "contexts", "mark", "command" or "return"
    uint32_t side;      // sub-keys per side
} reef_opening;

/**
 * A boundary of the stream, in memory: what follows is of another kind. Or an event that says that
 * no room is left.
 */
REEF_MUST_CHECK reef_status reef_growth_begin(reef_trainer *trainer,
                                              const char *reason,
                                              reef_error *err);

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

/**
 * Grow the open generation to `side` sub-keys per side, in place and in memory: new sub-keys and
 * experts beside those that it has. Reported as an event.
 */
REEF_MUST_CHECK reef_status reef_growth_enlarge(reef_trainer *trainer,
                                                uint32_t side,
                                                reef_error *err);

#endif
