// Which generations take part in which token: gates scored along a stream, at most fire_max of them.
#ifndef REEF_FIRING_H
#define REEF_FIRING_H

#include "model.h"

#include <string.h>

/** Gates on their way through one stream. */
typedef struct reef_firing {
    size_t gen_count;
    reef_gate_state *states; // (gen_count); generation 0 has no gate
} reef_firing;

/** All gates at the beginning of a stream. */
REEF_MUST_CHECK reef_status reef_firing_init(reef_firing *firing,
                                             const reef_net *net,
                                             reef_error *err);
void reef_firing_release(reef_firing *firing);
REEF_MUST_CHECK reef_status reef_firing_copy(reef_firing *to,
                                             const reef_firing *from,
                                             reef_error *err);

/**
 * Decide for the next `count` bytes of the stream: a generation g >= 1 fires where its margin is
 * positive, but at most the `fire_max` newest of those.
 *
 * fire     (gen_count, stride) row g, columns 0 .. count - 1 written; row 0 is not touched
 * margins  (gen_count, stride) scratch
 */
void reef_firing_score(reef_firing *firing,
                       const reef_net *net,
                       size_t count,
                       const uint8_t *bytes,
                       uint8_t *fire,
                       float *margins,
                       size_t stride);

/** How many generations beyond the first may fire on one token: without gates, all of them. */
static inline size_t reef_fire_max(const reef_config *config) {
    return strcmp(config->gate, "off") == 0 ? SIZE_MAX : config->fire_max;
}
/** Of the generations that fire at each of `count` tokens keep the `fire_max` newest. */
void reef_firing_limit(
    size_t gen_count, size_t count, uint8_t *fire, size_t stride, size_t fire_max);

#endif
