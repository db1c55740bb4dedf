// What a net says of a byte, as log odds of its bits.
//
//   probabilities of the 256 bytes -> sums of halves -> log odds at each of the 255 nodes
//
// Sums and logarithms are of doubles in one fixed order, without the C library's log(): the same
// probabilities give the same odds everywhere.
#include "predictor.h"

#include <math.h>

void reef_net_tree_init(reef_net_tree *tree, const float *probabilities) {
    for (size_t i = 0; i < 256; i++) tree->sums[256 + i] = (double)probabilities[i];
    tree->sums[0] = 0.0; // no node
    for (size_t node = 255; node > 0; node--)
        tree->sums[node] = tree->sums[2 * node] + tree->sums[2 * node + 1];
}

#define LN_2 0.693147180559945309417
#define SQRT_HALF 0.707106781186547524401

// ln(x) = exponent * ln(2) + ln(m), where sqrt(1/2) <= m < sqrt(2) and ln(m) = 2 artanh((m - 1) /
// (m + 1)), as a series whose error is below 1e-9.
static double logarithm(double x) {
    int exponent = 0;
    double m = frexp(x, &exponent); // exact
    if (m < SQRT_HALF) {
        m *= 2.0;
        exponent--;
    }
    double s = (m - 1.0) / (m + 1.0), q = s * s;
    double series = 1.0 + q * (1.0 / 3.0 + q * (1.0 / 5.0 + q * (1.0 / 7.0 + q / 9.0)));
    return exponent * LN_2 + 2.0 * s * series;
}

int16_t reef_net_tree_odds(const reef_net_tree *tree, uint32_t bits) {
    double zero = tree->sums[2 * (size_t)bits], one = tree->sums[2 * (size_t)bits + 1];
    // Where no number says anything, the net says nothing: not finite, or nothing on both sides.
    if (!(zero >= 0.0 && one >= 0.0 && zero + one > 0.0 && isfinite(zero + one))) return 0;
    if (zero == 0.0) return REEF_ODDS_MAX;
    if (one == 0.0) return -REEF_ODDS_MAX;
    double odds = 256.0 * (logarithm(one) - logarithm(zero));
    if (odds >= REEF_ODDS_MAX) return REEF_ODDS_MAX;
    if (odds <= -REEF_ODDS_MAX) return -REEF_ODDS_MAX;
    // Halves go away from zero, so that neither zeros nor ones are preferred.
    return (int16_t)(odds < 0.0 ? odds - 0.5 : odds + 0.5);
}

void reef_net_predict_byte(const float *probabilities,
                           uint8_t byte,
                           uint16_t tokens,
                           reef_net_prediction *out) {
    reef_net_tree tree;
    reef_net_tree_init(&tree, probabilities);
    out->tokens = tokens;
    for (uint32_t bit = 0; bit < 8; bit++)
        out->odds[bit] = reef_net_tree_odds(&tree, 256u >> (8 - bit) | (uint32_t)byte >> (8 - bit));
}
