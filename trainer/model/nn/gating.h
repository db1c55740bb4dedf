// Which generations take part in which token: gates read along a stream, and of those that open the
// newest fires.
#ifndef REEF_GATING_H
#define REEF_GATING_H

#include "activations.h"

/** Gates on their way through one stream. */
typedef struct reef_gating {
    size_t generation_count;
    reef_gate_state *states; // (generation_count); generation 0 has no gate
} reef_gating;

/** All gates at the beginning of a stream; `gating` has none yet. */
REEF_MUST_CHECK reef_status reef_gating_init(reef_gating *gating,
                                             const reef_network *network,
                                             reef_error *err);
/** Gates of new generations start at their own beginning; the others continue. */
REEF_MUST_CHECK reef_status reef_gating_extend(reef_gating *gating,
                                               const reef_network *network,
                                               reef_error *err);
void reef_gating_release(reef_gating *gating);
REEF_MUST_CHECK reef_status reef_gating_copy(reef_gating *to,
                                             const reef_gating *from,
                                             reef_error *err);

/**
 * Decide for the next `count` tokens of the stream: of the generations g >= 1 the newest whose
 * margin is positive fires.
 *
 * batch    windows and tokens of the next part of the stream, from the beginning of a window on; of
 *          the last window anything may follow `count`. `fire` is ignored
 * count    tokens of the batch that belong to the stream
 * fire     (generation_count, stride) row g >= 1, columns 0 .. count - 1 written, the rest of the
 *          batch cleared
 * margins  (generation_count, stride) row g >= 1 written: of all of them
 */
void reef_gating_decide(reef_gating *gating,
                        const reef_network *network,
                        const reef_batch *batch,
                        size_t count,
                        uint8_t *fire,
                        float *margins,
                        size_t stride);

/** Of the generations that fire at each of `count` tokens keep the newest. */
void reef_gating_keep_newest(size_t generation_count, size_t count, uint8_t *fire, size_t stride);

#endif
