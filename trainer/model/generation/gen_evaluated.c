// An open generation as it is evaluated, sealed and stored: averages in the place of its weights, batch norm folded.
#include "generation_internal.h"

#include <assert.h>
#include <string.h>

static void exchange(float *a, float *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

// Over every array of weights that has an average, which `visit` gets second.
static void visit_averages(reef_gen *gen, void (*visit)(float *, float *, size_t)) {
    assert(gen->open);
    for (size_t i = 0; i < gen->tensor_count; i++) {
        reef_tensor *tensor = &gen->tensors[i];
        if (tensor->average != NULL) visit(tensor->data, tensor->average, tensor->count);
    }
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        reef_peer *peer = &gen->peers[l];
        if (peer->moments.average != NULL)
            visit(peer->experts, peer->moments.average, peer->expert_count * peer->row_values);
    }
}

static void begin_average(float *weights, float *average, size_t count) {
    reef_floats_copy(average, weights, count);
}

void reef_gen_average_reset(reef_gen *gen) {
    visit_averages(gen, begin_average);
}

void reef_gen_exchange(reef_gen *gen, const reef_config *config) {
    visit_averages(gen, exchange);
    reef_gen_fold(gen, config);
}

void reef_gen_average_adopt(reef_gen *gen, const reef_config *config) {
    reef_gen_exchange(gen, config);
    reef_gen_average_reset(gen);
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        if (gen->peers[l].moments.average != NULL)
            memset(gen->peers[l].dirty, 1, gen->peers[l].expert_count);
}

void reef_gen_fold(reef_gen *gen, const reef_config *config) {
    gen->merged.fresh = false;
    reef_router_shape shape = reef_gen_shape(config, gen->info.side);
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_router_fold(&shape, &gen->weights.routers[l], gen->folded[l].w_query,
                         gen->folded[l].query_bias);
    }
}
