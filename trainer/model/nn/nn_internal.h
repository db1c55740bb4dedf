// The state of one pass, forwards (forward.c) and backwards (backward.c): which block, which
// generation.
#ifndef REEF_NN_INTERNAL_H
#define REEF_NN_INTERNAL_H

#include "activations.h"

typedef struct reef_forward {
    reef_activations *acts;
    bool train;        // REEF_PASS_TRAIN
    reef_ranks *ranks; // that share the pass; NULL: it is this process's alone
    const reef_network *network;
    const reef_batch *batch;
    // The block that is computed now, and the generation whose experts run in it.
    const reef_layer_plan *plan;
    reef_activations_layer *layer;
    size_t layer_set; // index of `layer`: 0 in evaluation, else l
    uint32_t l;
    size_t g;
} reef_forward;

typedef struct reef_backward {
    reef_activations *acts;
    reef_network *network;
    const reef_batch *batch;
    reef_thread_pool *workers;
    reef_generation *open; // the generation being trained
    bool first;            // it is generation 0: the backbone trains
    const reef_layer_plan *plan;
    reef_activations_layer *layer;
    uint32_t l;
    size_t g;
    size_t rows;
} reef_backward;

#endif
