// See inputs.h.
#include "inputs.h"

#include "reef_context.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static_assert(REEF_INPUT_NAMES <= REEF_MEMORY_INPUTS_MAX, "readers have room for all inputs");

// What an input says, by the weights of one set: log odds, without their sign.
static double part_of(const int16_t *in, const int16_t *weights, size_t input) {
    const size_t distance = reef_distance_of(input);
    return fabs((double)in[input] * weights[input] + (double)in[distance] * weights[distance]);
}

// What inputs say, by a row of weights.
static void find_parts(const int16_t *in, const int16_t *weights, double *parts) {
    memset(parts, 0, REEF_INPUT_NAMES * sizeof(*parts));
    for (size_t i = 0; i < REEF_INPUT_NET; i++) parts[i] = part_of(in, weights, i);
}

// Parts of the layer with a net: what the memory says counts for its inputs.
static void add_net_parts(const reef_predictor *p, double *parts) {
    const int16_t *weights = p->net_rows[REEF_NET_SET_TOKENS];
    double memory = fabs(weights[REEF_PREDICTION_MEMORY] / (double)REEF_WEIGHT_ONE);
    double own[REEF_INPUT_NAMES];
    find_parts(p->net_in, weights, own);
    for (size_t i = 0; i < REEF_INPUT_NAMES; i++) parts[i] = parts[i] * memory + own[i];
    parts[REEF_INPUT_NET] = part_of(p->net_in, weights, REEF_PREDICTION_NET) +
                            part_of(p->net_in, weights, REEF_PREDICTION_NET_CHANCE);
}

void reef_inputs_count(reef_input_counts *counts, const reef_predictor *p, uint32_t bits) {
    double parts[REEF_INPUT_NAMES];
    // The bits of a trusted byte have the inputs of the question whether it comes.
    const reef_expected_byte *expected = &p->expected_byte;
    bool trees_speak = !expected->trusted || p->net_tokens > 0;
    const int16_t *in = trees_speak ? p->in : expected->in;
    const int16_t *weights =
        trees_speak ? p->rows[REEF_SET_ORDERS] : expected->rows[REEF_EXPECTED_SET_ORDERS];
    find_parts(in, weights, parts);
    double sum = part_of(in, weights, REEF_PREDICTION_BIAS);
    if (p->net_tokens > 0) add_net_parts(p, parts);
    for (size_t i = 0; i < REEF_INPUT_NAMES; i++) sum += parts[i];
    double each = sum > 0.0 ? bits / sum : 0.0;
    for (size_t i = 0; i < REEF_INPUT_NAMES; i++) counts->shares[i] += parts[i] * each;
    // Once trees are open, whenever that was, both nibbles have theirs.
    uint32_t trees = p->open ? 2 * p->tree_count : 0;
    if (p->bit + bits == 8) counts->lines += REEF_CONTEXTS + REEF_MATCHES + trees;
    if (p->bit > 0) return;
    counts->bytes++;
    for (size_t i = 0; i < REEF_CONTEXTS; i++) counts->hits[i] += p->kinds[i] != REEF_CONTEXT_NEW;
    counts->hits[REEF_PREDICTION_ORDER_0]++;
    for (size_t k = 0; k < REEF_MATCHES; k++)
        counts->hits[REEF_PREDICTION_MATCH + k] += p->followed[k] >= 0;
    counts->hits[REEF_PREDICTION_EXPECTED] += expected->byte >= 0;
    counts->hits[REEF_INPUT_NET] += p->net_tokens > 0;
}

void reef_inputs_read(const reef_input_counts *counts, double *shares, double *hits) {
    double bytes = counts->bytes > 0 ? (double)counts->bytes : 1.0, sum = 0.0;
    // Shares leave the bias input out.
    for (size_t i = 0; i < REEF_INPUT_NAMES; i++) sum += counts->shares[i];
    for (size_t i = 0; i < REEF_INPUT_NAMES; i++) {
        shares[i] = sum > 0.0 ? counts->shares[i] / sum : 0.0;
        hits[i] = (double)counts->hits[i] / bytes;
    }
}
