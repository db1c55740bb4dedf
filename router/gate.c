// The gate of one generation: does this stream resemble the generation's data or older data? A
// linear score of hashed 1- to 4-grams, a causal mean over the stream, and a calibrated threshold.
//
// What always holds: a margin depends on the tokens of the stream up to it and on the gate, not on
// how the stream is cut into calls. How a gate is fitted stands in gate_fit.c and gate_calibrate.c;
// what happens when it fires is the caller's business.
#include "gate_internal.h"

#include <math.h>
#include <stdlib.h>

#define DECAY_DEFAULT 0.995f

reef_status reef_gate_init(reef_gate *gate, reef_error *err) {
    *gate = (reef_gate){.decay = DECAY_DEFAULT, .prior = REEF_GATE_PRIOR, .threshold = INFINITY};
    gate->weights = calloc(REEF_GATE_WEIGHTS, sizeof(*gate->weights));
    if (gate->weights != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the %u weights of a gate",
                     REEF_GATE_WEIGHTS);
}

void reef_gate_release(reef_gate *gate) {
    free(gate->weights);
    *gate = (reef_gate){0};
}

void reef_gate_reset(const reef_gate *gate, reef_gate_state *state) {
    *state = (reef_gate_state){.mean = gate->start};
}

static reef_recent recent_from(const reef_gate_state *state) {
    reef_recent recent = {0};
    for (size_t n = state->context_tokens; n > 0; n--)
        reef_recent_push(&recent, state->context[n - 1]);
    return recent;
}

static void recent_keep(const reef_recent *recent, reef_gate_state *state) {
    // The longest n-gram of the next token takes one token less from here than it is long.
    size_t kept = recent->count < REEF_GATE_ORDERS ? recent->count : REEF_GATE_ORDERS - 1;
    for (size_t n = 0; n < kept; n++)
        // Newest first, as recent_from pushes them back.
        state->context[n] = (uint8_t)(recent->tokens >> 8 * n);
    state->context_tokens = (uint8_t)kept;
}

void reef_gate_score(const reef_gate *gate,
                     reef_gate_state *state,
                     size_t count,
                     const uint8_t *bytes,
                     float *margin) {
    if (gate->weights == NULL) { // of a generation without content
        for (size_t t = 0; t < count; t++) margin[t] = -INFINITY;
        return;
    }
    // The state carries over the edge of a call, so how the stream is cut changes no margin.
    reef_recent recent = recent_from(state);
    reef_gate_mean mean = {state->mean, state->count};
    float memory = 1.0f - gate->decay;
    for (size_t t = 0; t < count; t++) {
        reef_recent_push(&recent, bytes[t]);
        margin[t] =
            reef_gate_mean_push(&mean, gate->prior, memory, reef_gate_logit(gate, &recent)) -
            gate->threshold;
    }
    state->mean = mean.mean;
    state->count = mean.count;
    recent_keep(&recent, state);
}
