// The decision that every layer follows, made once per token at the model's input.
#include "gating.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_firing_init(reef_firing *firing, const reef_net *net, reef_error *err) {
    firing->gen_count = net->gen_count;
    firing->unexplained = 0.0;
    firing->states = calloc(net->gen_count, sizeof *firing->states);
    if (firing->states == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu gates", net->gen_count);
    for (size_t g = 0; g < net->gen_count; g++)
        reef_gate_reset(&net->gens[g]->gate, &firing->states[g]);
    return REEF_OK;
}

void reef_firing_release(reef_firing *firing) {
    free(firing->states);
    *firing = (reef_firing){0};
}

reef_status reef_firing_copy(reef_firing *to, const reef_firing *from, reef_error *err) {
    if (to->gen_count != from->gen_count) {
        reef_gate_state *states = realloc(to->states, from->gen_count * sizeof *states);
        if (states == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu gates", from->gen_count);
        to->states = states;
        to->gen_count = from->gen_count;
    }
    memcpy(to->states, from->states, from->gen_count * sizeof *to->states);
    to->unexplained = from->unexplained;
    return REEF_OK;
}

// The newest first: each was trained on top of those before it, and its gate tells its own data from
// theirs, while an older gate has never seen what came later and may well claim it.
void reef_firing_limit(
    size_t gen_count, size_t count, uint8_t *fire, size_t stride, size_t fire_max) {
    if (gen_count - 1 <= fire_max) return;
    for (size_t t = 0; t < count; t++) {
        size_t fired = 0;
        for (size_t g = gen_count - 1; g > 0; g--) {
            uint8_t *one = &fire[g * stride + t];
            *one = *one && fired < fire_max;
            fired += *one;
        }
    }
}

// Losses of the model of the first `gen_count` generations, which have decided.
static reef_status older_losses(const reef_firing_means *means,
                                const reef_batch *batch,
                                size_t gen_count,
                                const uint8_t *fire,
                                size_t stride,
                                reef_error *err) {
    reef_net older = *means->net; // a view
    older.gen_count = gen_count;
    const reef_batch decided = {.windows = batch->windows,
                                .tokens = batch->tokens,
                                .targets = batch->targets,
                                .fire = fire,
                                .fire_stride = stride};
    return reef_pass_forward(means->pass, &older, means->workers, &decided, REEF_PASS_EVALUATE,
                             err);
}

reef_status reef_firing_decide(reef_firing *firing,
                               const reef_firing_means *means,
                               const reef_batch *batch,
                               size_t count,
                               uint8_t *fire,
                               float *margins,
                               size_t stride,
                               bool *answered,
                               reef_error *err) {
    const reef_net *net = means->net;
    size_t rows = batch->windows * net->config.context;
    assert(firing->gen_count == net->gen_count && count <= rows && rows <= stride);
    bool current = false; // the pass holds the losses of the generations that have decided
    for (size_t g = 1; g < net->gen_count; g++) {
        const reef_gate *gate = &net->gens[g]->gate;
        uint8_t *mine = fire + g * stride;
        float *margin = margins + g * stride;
        bool reads = gate->loss_weight > 0.0f;
        if (reads && !current) {
            reef_status status = older_losses(means, batch, g, fire, stride, err);
            if (status != REEF_OK) return status;
            current = true;
            firing->windows += batch->windows;
        }
        reef_gate_score_losses(gate, &firing->states[g], count, batch->tokens,
                               reads ? means->pass->loss : NULL, margin);
        memset(mine, 0, rows);
        size_t fired = 0;
        for (size_t t = 0; t < count; t++) fired += mine[t] = margin[t] > 0.0f;
        if (fired > 0) current = false;
        // Who is silenced among the first g stays silenced among all: the newest go first.
        reef_firing_limit(g + 1, count, fire, stride, reef_fire_max(&net->config));
    }
    *answered = current;
    return REEF_OK;
}
