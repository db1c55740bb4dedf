// From accepted bytes to training batches.
#ifndef REEF_STREAM_H
#define REEF_STREAM_H

#include "trainer_internal.h"

/** `source` is the one that the bytes come from, and its cursor is still before them. */
REEF_MUST_CHECK reef_status reef_stream_push(reef_trainer *trainer,
                                             const uint8_t *bytes,
                                             size_t count,
                                             size_t *taken,
                                             size_t *steps,
                                             reef_error *err);

#endif
