// Why and with which size a generation is opened, and growth in place.
#ifndef REEF_ENLARGE_H
#define REEF_ENLARGE_H

#include "trainer_internal.h"

/** Why and how large a generation is opened; made by reef_policy_size. */
typedef struct reef_opening {
    const char *reason; // "drift", "command", "mark", "budget" or "capacity"
    uint32_t side;      // sub-keys per side
    const uint8_t *fresh;
    size_t fresh_bytes; // that are known to be its data, from the first pending byte on; 0 for none
    // What the side was chosen by; NaN where that was not asked for or nothing is known.
    double gap;       // bits per byte of the fresh data above the open generation's median
    double unclaimed; // share of them on which no gate fires
    double distance;  // 0: known, 1: nothing is known of it
} reef_opening;

/** Grow the open generation in place, in memory. `opening` is stored in the event; may be NULL. */
REEF_MUST_CHECK reef_status reef_growth_enlarge(reef_trainer *trainer,
                                                uint32_t side,
                                                const reef_opening *opening,
                                                reef_error *err);
#define REEF_DISTANCE_BYTES 128 // of reef_distance_text

#endif
