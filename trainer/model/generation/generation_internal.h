// The inside of a generation in memory (generation.h), shared by the files that make it up:
//
//   generation_layout.c  the one list of every tensor
//   generation.c         memory, and what one generation takes over from another
//   generation_init.c    initial values; an open one with a larger side
//   generation_seal.c    averages and folded queries; the sealed twin of an open one
//   generation_merge.c   matrices with a generation's corrections added
//
// What they compute is for forward.c and backward.c, and bytes on disk for checkpoint.c.
#ifndef REEF_GENERATION_INTERNAL_H
#define REEF_GENERATION_INTERNAL_H

#include "generation.h"

#include <string.h>

static inline void reef_floats_copy(float *out, const float *in, size_t count) {
    memcpy(out, in, count * sizeof(*out));
}

// generation_layout.c

/**
 * How many tensors `generation` will have, and values in all of them, from its `info` alone.
 */
void reef_generation_count_tensors(reef_generation *generation, const reef_config *config);
/** Name its tensors, now that they have memory, and assign them and their views to it. */
void reef_generation_lay_out(reef_generation *generation, const reef_config *config);

// generation.c

/**
 * Copy every tensor that both have, as far as the smaller of the two goes: sub-keys may have grown.
 */
void reef_generation_copy_tensors(reef_generation *to, const reef_generation *from, bool moments);

#endif
