// One pass backwards, on its way: backward.c, and backward_experts.c for blocks that retrieve.
#ifndef REEF_BACKWARD_H
#define REEF_BACKWARD_H

#include "generation.h"

typedef struct reef_backward {
    reef_pass *pass;
    reef_net *net;
    const reef_batch *batch;
    reef_workers *workers;
    reef_gen *open; // the generation being trained
    bool first;     // it is generation 0: the backbone trains
    reef_pass_layer *layer;
    uint32_t l;
    size_t g;
    size_t rows;
} reef_backward;

/** From d_x of block `l` to d_norm; the open generation's experts are updated. */
void reef_backward_experts(reef_backward *backward, const reef_pass_update *update);

#endif
