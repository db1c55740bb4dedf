// One pass forwards, on its way: forward.c, and forward.c for blocks that retrieve.
#ifndef REEF_FORWARD_H
#define REEF_FORWARD_H

#include "activations.h"

typedef struct reef_forward {
    reef_activations *acts;
    bool train; // REEF_PASS_TRAIN
    const reef_network *network;
    const reef_batch *batch;
    reef_activations_layer *layer;
    uint32_t l;
    size_t g; // generation of the experts' job
} reef_forward;

/** All generations that fire add their experts of block `l` to the residual stream. */
REEF_MUST_CHECK reef_status reef_forward_experts(reef_forward *forward,
                                                 reef_thread_pool *workers,
                                                 reef_activations_mode mode,
                                                 reef_error *err);

typedef struct reef_backward {
    reef_activations *acts;
    reef_network *network;
    const reef_batch *batch;
    reef_thread_pool *workers;
    reef_generation *open; // the generation being trained
    bool first;            // it is generation 0: the backbone trains
    reef_activations_layer *layer;
    uint32_t l;
    size_t g;
    size_t rows;
} reef_backward;

/** From d_x of block `l` to d_norm; the open generation's experts are updated. */
void reef_backward_experts(reef_backward *backward, const reef_network_update *update);

#endif
