// The whole distribution of the next byte: a depth-first walk over the tree of its bits.
//
// A byte's bits are learned one after the other, so a bit's prediction depends on what the bits
// before it taught. So the walk learns on its way down and takes it back on its way up:
//
//   the predictor itself   a copy for each of seven bits
//   weights, chances, SSE  what a bit may change is copied before it
//   trees                  copies of their lines, in place of the tables' (reef_trial_lines)
//   cells, text, matches   do not change within a byte
#include "expected_byte.h"

#include <stdlib.h>
#include <string.h>

// What the predictor was when a bit was predicted, and what learning that bit may change.
typedef struct bit_before {
    reef_predictor predictor;
    int16_t weights[REEF_SETS][REEF_INPUTS], net_weights[REEF_NET_SETS][REEF_INPUTS];
    int32_t last_weights[REEF_SETS], net_last_weights[REEF_NET_SETS + 1];
    reef_chance chances[REEF_CONTEXTS], order_0, matches[REEF_MATCHES], expected, net;
    uint16_t sse[2], net_sse[2];
    reef_chance divergence[8]; // of a trusted byte
} bit_before;

typedef struct walk {
    reef_predictor *p;
    const reef_net_tree *net; // or NULL
    double *out;
    reef_trial_lines lines, upper; // the second: before a lower nibble
    bit_before before[7];
} walk;

// Contexts that know nothing have no history here and learn nothing; copies of them do no harm.
static reef_chance *chance_of(const reef_predictor *p, size_t i) {
    return &p->state->chance[i][p->histories[i]];
}

static reef_chance *order_0_chance_of(const reef_predictor *p) {
    return &p->state->order_0_chance[p->order_0_history];
}

static void keep_rows(size_t sets, int16_t (*kept)[REEF_INPUTS], int16_t *const *from) {
    for (size_t k = 0; k < sets; k++) memcpy(kept[k], from[k], REEF_INPUTS * sizeof(**kept));
}

static void take_rows_back(size_t sets, const int16_t (*kept)[REEF_INPUTS], int16_t *const *to) {
    for (size_t k = 0; k < sets; k++) memcpy(to[k], kept[k], REEF_INPUTS * sizeof(**kept));
}

static void keep_net(bit_before *b, const reef_predictor *p) {
    keep_rows(REEF_NET_SETS, b->net_weights, p->net_rows);
    memcpy(b->net_last_weights, p->net->last_weights[p->bits], sizeof(b->net_last_weights));
    b->net = *p->net_chance;
    for (size_t t = 0; t < 2; t++) b->net_sse[t] = *p->net_sse[t];
}

static void take_net_back(const bit_before *b, const reef_predictor *p) {
    take_rows_back(REEF_NET_SETS, b->net_weights, p->net_rows);
    memcpy(p->net->last_weights[p->bits], b->net_last_weights, sizeof(b->net_last_weights));
    *p->net_chance = b->net;
    for (size_t t = 0; t < 2; t++) *p->net_sse[t] = b->net_sse[t];
}

static void keep(bit_before *b, const reef_predictor *p) {
    memcpy(&b->predictor, p, sizeof(*p));
    if (p->frozen) return;
    if (p->net_tokens > 0) keep_net(b, p);
    // A bit of a trusted byte teaches nothing, or the one that contradicts ends the trust.
    if (p->expected_byte.trusted) {
        memcpy(b->divergence, p->expected_byte.divergence, sizeof(b->divergence));
        return;
    }
    keep_rows(REEF_SETS, b->weights, p->rows);
    memcpy(b->last_weights, p->state->last_weights[p->last_row], sizeof(b->last_weights));
    for (size_t i = 0; i < REEF_CONTEXTS; i++) b->chances[i] = *chance_of(p, i);
    b->order_0 = *order_0_chance_of(p);
    for (size_t k = 0; k < REEF_MATCHES; k++)
        b->matches[k] = p->state->match[k][p->match_states[k]];
    b->expected = *reef_expected_chance(p);
    for (size_t t = 0; t < 2; t++) b->sse[t] = *p->sse[t];
}

static void take_back(const bit_before *b, reef_predictor *p) {
    memcpy(p, &b->predictor, sizeof(*p));
    if (p->frozen) return;
    if (p->net_tokens > 0) take_net_back(b, p);
    if (p->expected_byte.trusted) {
        memcpy(p->expected_byte.divergence, b->divergence, sizeof(b->divergence));
        p->trial->count = 0; // trees were opened by catching up alone
        return;
    }
    take_rows_back(REEF_SETS, b->weights, p->rows);
    memcpy(p->state->last_weights[p->last_row], b->last_weights, sizeof(b->last_weights));
    for (size_t i = 0; i < REEF_CONTEXTS; i++) *chance_of(p, i) = b->chances[i];
    *order_0_chance_of(p) = b->order_0;
    for (size_t k = 0; k < REEF_MATCHES; k++)
        p->state->match[k][p->match_states[k]] = b->matches[k];
    *reef_expected_chance(p) = b->expected;
    for (size_t t = 0; t < 2; t++) *p->sse[t] = b->sse[t];
    // Histories were read when the bit was predicted. Contexts that share a tree agree in them.
    p->state->order_0[p->bits] = p->order_0_history;
    uint32_t depth = p->bit % 4, node = 1u << depth | (p->bits & ((1u << depth) - 1));
    for (size_t k = 0; k < p->tree_count; k++) {
        size_t i = p->trees[k];
        p->nodes[i][node - 1] = p->histories[i];
    }
}

// All bytes that begin with the bits so far; `chance` is theirs.
static void descend(walk *w, double chance) {
    reef_predictor *p = w->p;
    if (w->net != NULL) p->net_odds = reef_net_tree_odds(w->net, p->begun ? p->bits : 1);
    double one = reef_predictor_predict(p) / 65536.0;
    const double chances[2] = {chance * (1.0 - one), chance * one};
    if (p->bit == 7) {
        for (uint32_t bit = 0; bit < 2; bit++) w->out[(p->bits << 1 | bit) & 255] = chances[bit];
        return;
    }
    bit_before *before = &w->before[p->bit];
    keep(before, p);
    bool ends_nibble = p->bit == 3;
    if (ends_nibble) w->upper = w->lines;
    for (int bit = 0; bit < 2; bit++) {
        reef_predictor_update(p, bit);
        descend(w, chances[bit]);
        take_back(before, p);
        if (ends_nibble) w->lines = w->upper;
    }
}

reef_status reef_predictor_distribution(
    reef_predictor *p, const reef_net_tree *net, uint32_t tokens, double *out, reef_error *err) {
    walk *w = malloc(sizeof(*w));
    if (w == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a distribution");
    uint32_t tokens_before = p->net_tokens;
    bool met_net = p->net != NULL;
    p->net_tokens = net != NULL ? tokens : 0;
    reef_status status = reef_predictor_reserve(p, err);
    p->net_tokens = tokens_before;
    if (status == REEF_OK) {
        reef_predictor between = *p;
        w->p = p;
        w->net = net;
        w->out = out;
        w->lines.count = 0;
        p->net_tokens = net != NULL ? tokens : 0;
        p->trial = &w->lines;
        descend(w, 1.0);
        *p = between;
    }
    if (!met_net) {
        free(p->net); // weights for a net's bytes begin with the first that is read
        p->net = NULL;
    }
    free(w);
    return status;
}
