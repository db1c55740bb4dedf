// The decision that every layer follows, made once per token at the model's input.
#include "gating.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static reef_status reserve(reef_gating *gating, size_t count, reef_error *err) {
    reef_gate_state *states = realloc(gating->states, count * sizeof(*states));
    if (states == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu gates", count);
    gating->states = states;
    return REEF_OK;
}

reef_status reef_gating_extend(reef_gating *gating, const reef_network *network, reef_error *err) {
    reef_status status = reserve(gating, network->generation_count, err);
    if (status != REEF_OK) return status;
    for (size_t g = gating->generation_count; g < network->generation_count; g++)
        reef_gate_reset(&network->generations[g]->gate, &gating->states[g]);
    gating->generation_count = network->generation_count;
    return REEF_OK;
}

reef_status reef_gating_init(reef_gating *gating, const reef_network *network, reef_error *err) {
    *gating = (reef_gating){0};
    return reef_gating_extend(gating, network, err);
}

void reef_gating_release(reef_gating *gating) {
    free(gating->states);
    *gating = (reef_gating){0};
}

reef_status reef_gating_copy(reef_gating *to, const reef_gating *from, reef_error *err) {
    if (to->generation_count != from->generation_count) {
        reef_status status = reserve(to, from->generation_count, err);
        if (status != REEF_OK) return status;
        to->generation_count = from->generation_count;
    }
    memcpy(to->states, from->states, from->generation_count * sizeof(*to->states));
    return REEF_OK;
}

// The newest first: each was trained on top of those before it, and its gate separates its own data
// from theirs. An older gate has never seen what came later and may well claim it.
void reef_gating_keep_newest(size_t generation_count, size_t count, uint8_t *fire, size_t stride) {
    for (size_t t = 0; t < count; t++) {
        size_t g = generation_count - 1;
        while (g > 0 && !fire[g * stride + t]) g--;
        while (g > 1) fire[--g * stride + t] = 0;
    }
}

void reef_gating_decide(reef_gating *gating,
                        const reef_network *network,
                        const reef_batch *batch,
                        size_t count,
                        uint8_t *fire,
                        float *margins,
                        size_t stride) {
    const size_t rows = batch->windows * network->config.context;
    assert(gating->generation_count == network->generation_count && count <= rows &&
           rows <= stride);
    for (size_t g = 1; g < network->generation_count; g++) {
        uint8_t *mine = fire + g * stride;
        float *margin = margins + g * stride;
        reef_gate_score(&network->generations[g]->gate, &gating->states[g], count, batch->tokens,
                        margin);
        memset(mine, 0, rows);
        for (size_t t = 0; t < count; t++) mine[t] = margin[t] > 0.0f;
    }
    reef_gating_keep_newest(network->generation_count, count, fire, stride);
}
