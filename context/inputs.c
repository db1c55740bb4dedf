// See inputs.h.
#include "inputs.h"

#include "reef_context.h"

#include <assert.h>
#include <math.h>

static_assert(REEF_INPUT_NAMES <= REEF_MEMORY_INPUTS_MAX, "readers have room for all inputs");

// What an input says, by the weights of one set: log odds, without their sign.
static double part_of(const int16_t *in, const int16_t *weights, size_t prediction) {
    const int16_t *odds = in + prediction, *w = weights + prediction;
    return fabs((double)odds[0] * w[0] + (double)odds[REEF_PREDICTIONS] * w[REEF_PREDICTIONS]);
}

// Parts of the layer with a net: what the memory says counts for its inputs.
static void add_net_parts(const reef_predictor *p, double *parts) {
    const int16_t *weights = p->net_weights[REEF_NET_SET_TOKENS];
    double memory = fabs(weights[REEF_PREDICTION_MEMORY] / (double)REEF_WEIGHT_ONE);
    for (size_t i = 0; i < REEF_INPUT_NET; i++)
        parts[i] = parts[i] * memory + part_of(p->net_in, weights, i);
    parts[REEF_INPUT_NET] = part_of(p->net_in, weights, REEF_PREDICTION_NET) +
                            part_of(p->net_in, weights, REEF_PREDICTION_NET_CHANCE);
}

void reef_inputs_count(reef_input_counts *counts, const reef_predictor *p) {
    double parts[REEF_INPUT_NAMES];
    // The bits of a trusted byte have the inputs of the question whether it comes.
    const reef_expected_byte *expected = &p->expected_byte;
    bool bits = !expected->trusted || p->net_tokens > 0;
    const int16_t *in = bits ? p->in : expected->in;
    const int16_t *weights =
        bits ? p->weights[REEF_SET_ORDERS] : expected->weights[REEF_EXPECTED_SET_ORDERS];
    double sum = part_of(in, weights, REEF_PREDICTION_BIAS);
    for (size_t i = 0; i < REEF_INPUT_NET; i++) parts[i] = part_of(in, weights, i);
    parts[REEF_INPUT_NET] = 0.0;
    if (p->net_tokens > 0) add_net_parts(p, parts);
    for (size_t i = 0; i < REEF_INPUT_NAMES; i++) sum += parts[i];
    for (size_t i = 0; sum > 0.0 && i < REEF_INPUT_NAMES; i++) counts->shares[i] += parts[i] / sum;
    if (p->bit > 0) return;
    counts->bytes++;
    for (size_t i = 0; i < REEF_CONTEXTS; i++) counts->hits[i] += p->kinds[i] != REEF_CONTEXT_NEW;
    counts->hits[REEF_PREDICTION_ORDER_0]++;
    for (size_t k = 0; k < REEF_MATCHES; k++)
        counts->hits[REEF_PREDICTION_MATCH + k] += p->expected[k] >= 0;
    counts->hits[REEF_PREDICTION_EXPECTED] += expected->byte >= 0;
    counts->hits[REEF_INPUT_NET] += p->net_tokens > 0;
}

void reef_inputs_read(const reef_input_counts *counts, double *shares, double *hits) {
    double bytes = counts->bytes > 0 ? (double)counts->bytes : 1.0, sum = 0.0;
    // The constant is nobody's.
    for (size_t i = 0; i < REEF_INPUT_NAMES; i++) sum += counts->shares[i];
    for (size_t i = 0; i < REEF_INPUT_NAMES; i++) {
        shares[i] = sum > 0.0 ? counts->shares[i] / sum : 0.0;
        hits[i] = (double)counts->hits[i] / bytes;
    }
}
