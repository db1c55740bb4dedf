// How a later generation begins: with the sum of what older experts add to its layers, or without it
// where that makes the loss on its first data worse. All else of it changes no bit of any output.
#ifndef REEF_WARM_START_H
#define REEF_WARM_START_H

#include "trainer_internal.h"

/** Is the open generation one that has trained nothing, with a start to choose? */
bool reef_start_is_due(const reef_trainer *trainer);

/**
 * Start the open generation from whole batches of its data, in the stream from the first pending
 * byte on and followed by one token more. Reported as an event.
 */
REEF_MUST_CHECK reef_status reef_start_generation(reef_trainer *trainer,
                                                  const uint8_t *fresh,
                                                  size_t fresh_bytes,
                                                  reef_error *err);

#endif
