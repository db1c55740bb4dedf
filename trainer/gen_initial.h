// The initial values of a generation, and of what it gains by growing.
#ifndef REEF_GEN_INITIAL_H
#define REEF_GEN_INITIAL_H

#include "model.h"

/** Sub-keys of an open generation drawn; its queries too, or copied from `before` where there is one. */
void reef_gen_draw_router(reef_gen *gen,
                          const reef_config *config,
                          uint32_t layer,
                          const reef_gen *before,
                          uint64_t seed);

/** Rows from `from` on drawn, with w_up of deviation `up`; 0 leaves it as it is. */
void reef_gen_draw_experts(reef_peer *peer,
                           size_t from,
                           const reef_config *config,
                           uint32_t layer,
                           float up,
                           uint64_t seed);

#endif
