// The decision that every layer follows, made once per token at the model's input.
#include "firing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_firing_init(reef_firing *firing, const reef_net *net, reef_error *err) {
    firing->gen_count = net->gen_count;
    firing->states = calloc(net->gen_count, sizeof *firing->states);
    if (firing->states == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for %zu gates", net->gen_count);
    for (size_t g = 1; g < net->gen_count; g++)
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
            return reef_fail(err, REEF_NO_MEMORY, "no memory for %zu gates", from->gen_count);
        to->states = states;
        to->gen_count = from->gen_count;
    }
    memcpy(to->states, from->states, from->gen_count * sizeof *to->states);
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

void reef_firing_score(reef_firing *firing,
                       const reef_net *net,
                       size_t count,
                       const uint8_t *bytes,
                       uint8_t *fire,
                       float *margins,
                       size_t stride) {
    assert(firing->gen_count == net->gen_count && count <= stride);
    for (size_t g = 1; g < net->gen_count; g++) {
        float *margin = margins + g * stride;
        reef_gate_score(&net->gens[g]->gate, &firing->states[g], count, bytes, margin);
        for (size_t t = 0; t < count; t++) fire[g * stride + t] = margin[t] > 0.0f;
    }
    reef_firing_limit(net->gen_count, count, fire, stride, reef_fire_max(&net->config));
}
