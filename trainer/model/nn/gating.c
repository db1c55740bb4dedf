// The decision that every layer follows, made once per token at the model's input.
#include "gating.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_gating_init(reef_gating *gating, const reef_network *network, reef_error *err) {
    gating->generation_count = network->generation_count;
    gating->cusum = 0.0;
    gating->states = calloc(network->generation_count, sizeof(*gating->states));
    if (gating->states == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu gates",
                         network->generation_count);
    for (size_t g = 0; g < network->generation_count; g++)
        reef_gate_reset(&network->generations[g]->gate, &gating->states[g]);
    return REEF_OK;
}

void reef_gating_release(reef_gating *gating) {
    free(gating->states);
    *gating = (reef_gating){0};
}

reef_status reef_gating_copy(reef_gating *to, const reef_gating *from, reef_error *err) {
    if (to->generation_count != from->generation_count) {
        reef_gate_state *states = realloc(to->states, from->generation_count * sizeof(*states));
        if (states == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu gates",
                             from->generation_count);
        to->states = states;
        to->generation_count = from->generation_count;
    }
    memcpy(to->states, from->states, from->generation_count * sizeof(*to->states));
    to->cusum = from->cusum;
    return REEF_OK;
}

// The newest first: each was trained on top of those before it, and its gate separates its own data
// from theirs. An older gate has never seen what came later and may well claim it.
void reef_gating_limit(
    size_t generation_count, size_t count, uint8_t *fire, size_t stride, size_t fire_max) {
    if (generation_count - 1 <= fire_max) return;
    for (size_t t = 0; t < count; t++) {
        size_t fired = 0;
        for (size_t g = generation_count - 1; g > 0; g--) {
            uint8_t *one = &fire[g * stride + t];
            *one = *one && fired < fire_max;
            fired += *one;
        }
    }
}

// Losses of the model of the first `generation_count` generations, which have decided.
static reef_status older_losses(const reef_gating_pass *pass,
                                const reef_batch *batch,
                                size_t generation_count,
                                const uint8_t *fire,
                                size_t stride,
                                reef_error *err) {
    reef_network older = *pass->network; // a view
    older.generation_count = generation_count;
    const reef_batch decided = {.windows = batch->windows,
                                .tokens = batch->tokens,
                                .targets = batch->targets,
                                .fire = fire,
                                .fire_stride = stride};
    return reef_network_forward(pass->acts, &older, pass->workers, &decided, REEF_PASS_EVALUATE,
                                err);
}

reef_status reef_gating_decide(reef_gating *gating,
                               const reef_gating_pass *pass,
                               const reef_batch *batch,
                               size_t count,
                               uint8_t *fire,
                               float *margins,
                               size_t stride,
                               bool *answered,
                               reef_error *err) {
    const reef_network *network = pass->network;
    size_t rows = batch->windows * network->config.context;
    assert(gating->generation_count == network->generation_count && count <= rows &&
           rows <= stride);
    bool current = false; // the pass holds the losses of the generations that have decided
    for (size_t g = 1; g < network->generation_count; g++) {
        const reef_gate *gate = &network->generations[g]->gate;
        uint8_t *mine = fire + g * stride;
        float *margin = margins + g * stride;
        bool reads = gate->loss_weight > 0.0f;
        if (reads && !current) {
            reef_status status = older_losses(pass, batch, g, fire, stride, err);
            if (status != REEF_OK) return status;
            current = true;
            gating->windows += batch->windows;
        }
        reef_gate_score_losses(gate, &gating->states[g], count, batch->tokens,
                               reads ? pass->acts->loss : NULL, margin);
        memset(mine, 0, rows);
        size_t fired = 0;
        for (size_t t = 0; t < count; t++) fired += mine[t] = margin[t] > 0.0f;
        if (fired > 0) current = false;
        // Who is silenced among the first g stays silenced among all: the newest go first.
        reef_gating_limit(g + 1, count, fire, stride, reef_fire_max(&network->config));
    }
    *answered = current;
    return REEF_OK;
}
