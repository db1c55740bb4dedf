// A context memory learns a batch of the stream: the open generation's memory, or that of a kind
// that came back.
#ifndef REEF_MEMORY_BATCH_H
#define REEF_MEMORY_BATCH_H

#include "trainer_internal.h"

/**
 * Learn the batch at `bytes` (one more than a batch), which stands at `begin` in the stream. The
 * first of them is learned only where it has not been yet.
 *
 * predictions  (batch * context) what the net said of each target before it learned the batch, or
 *              NULL: nothing
 * bits         (batch * context) written: what each target surprised
 *
 * Errors: NO_MEMORY; the memory is then only good for release.
 */
REEF_MUST_CHECK reef_status reef_memory_learn_batch(const reef_config *config,
                                                    reef_generation_memory *memory,
                                                    const uint8_t *bytes,
                                                    uint64_t begin,
                                                    const reef_net_prediction *predictions,
                                                    float *bits,
                                                    reef_error *err);

/**
 * Look up how full a memory is, if it has learned much since it was `seen` last: counting walks
 * tables of up to 128 MB, some hundredths of a second for seconds of the stream.
 */
void reef_memory_refresh_stats(const reef_memory *memory, reef_memory_stats *seen);

#endif
