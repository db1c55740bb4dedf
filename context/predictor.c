// See predictor.h: how the bits of one byte are predicted (reef_predictor_predict) and learned
// (reef_predictor_update). Hashes of a byte's contexts are computed when the byte before it ends.
#include "predictor.h"
#include "expected_byte.h"
#include "inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Weights learn fast at first and slower with the bytes; 12 bits behind the point.
#define RATE_LAST 179
#define RATE_FIRST 1536
#define RATE_BYTES 8000
// The layer with a net: its weights learn fast again at first, but less long.
#define NET_RATE_LAST 179
#define NET_RATE_FIRST 512
#define NET_RATE_BYTES 1000
#define NET_FIRST_WEIGHT (REEF_WEIGHT_ONE / 16)
#define NET_FIRST_MEMORY (REEF_WEIGHT_ONE / 16 * 15)
// What its second mixer begins with, in tenths: the copies, its own sets together, and less of what
// the memory says, which both have. Found by trials, as the rest.
#define NET_FIRST_COPIES 7
#define NET_FIRST_OWN 4
#define NET_FIRST_SAID (-1)

static void begin_chances(reef_chance *chance) {
    const reef_histories *table = reef_histories_table();
    for (uint32_t h = 0; h < 256; h++) {
        uint32_t zeros = table->zeros[h], ones = table->ones[h];
        // Krichevsky and Trofimov's estimate, nearly.
        uint32_t p = (10 * ones + 4) * 65536 / (10 * (zeros + ones) + 8);
        chance[h] = reef_chance_of(p);
    }
}

static void begin_match_chances(reef_mix_state *state) {
    for (size_t k = 0; k < REEF_MATCHES; k++)
        for (uint32_t s = 0; s < REEF_MATCH_STATES; s++)
            state->match[k][s] = reef_chance_of(65535 - 65535 / (2 * (s / 4) + 3));
}

void reef_mix_state_init(reef_mix_state *state) {
    const reef_logistic *logistic = reef_logistic_tables();
    memset(state, 0, sizeof(*state));
    for (size_t i = 0; i < REEF_CONTEXTS; i++) begin_chances(state->chance[i]);
    begin_chances(state->order_0_chance);
    begin_match_chances(state);
    for (size_t s = 0; s < REEF_WEIGHT_SETS; s++) reef_weights_init(state->weights[s]);
    for (size_t s = 0; s < REEF_MATCH_CLASSES * 256; s++)
        for (size_t k = 0; k < REEF_SETS; k++) state->last_weights[s][k] = 65536 / REEF_SETS;
    for (size_t t = 0; t < 2; t++)
        for (size_t c = 0; c < 1 << REEF_SSE_LOG2; c++) reef_sse_init(logistic, state->sse[t][c]);
    reef_expected_state_init(&state->expected);
}

static void begin_net_mixers(reef_net_state *net, const reef_mix_state *state) {
    memcpy(net->weights, state->weights, sizeof(state->weights));
    for (size_t s = 0; s < REEF_NET_WEIGHT_SETS; s++) {
        net->weights[s][REEF_PREDICTION_NET] = NET_FIRST_WEIGHT;
        net->weights[s][REEF_PREDICTION_NET_CHANCE] = NET_FIRST_WEIGHT;
        if (s >= REEF_WEIGHT_SETS) net->weights[s][REEF_PREDICTION_MEMORY] = NET_FIRST_MEMORY;
    }
    const int32_t own = 65536 * NET_FIRST_OWN / (10 * (REEF_NET_SETS - REEF_SETS));
    for (size_t s = 0; s < 256; s++) {
        int32_t *last = net->last_weights[s];
        for (size_t k = 0; k < REEF_SETS; k++)
            last[k] = (int32_t)((int64_t)state->last_weights[s][k] * NET_FIRST_COPIES / 10);
        for (size_t k = REEF_SETS; k < REEF_NET_SETS; k++) last[k] = own;
        last[REEF_NET_SETS] = 65536 * NET_FIRST_SAID / 10;
    }
}

void reef_net_state_init(reef_net_state *net, const reef_mix_state *state) {
    const reef_logistic *logistic = reef_logistic_tables();
    memset(net, 0, sizeof(*net));
    // What the net says is what comes.
    for (uint32_t t = 0; t < REEF_NET_TOKENS; t++)
        for (int32_t i = 0; i < REEF_NET_STEPS; i++)
            net->chance[t][i] = reef_chance_of(
                reef_squash(logistic, reef_odds_clip(i * REEF_NET_ODDS_STEP - REEF_ODDS_MAX)));
    begin_net_mixers(net, state);
    memcpy(net->sse, state->sse, sizeof(net->sse));
}

// Nothing of a byte is known before this: its cells say which contexts know it, matches and cells
// give the expected byte. Trees are opened later, and only where they are needed.
static void begin_byte(reef_predictor *p) {
    uint64_t learned = p->learned_bytes;
    p->begun = true;
    p->bits = 1;
    p->bit = 0;
    p->rate = RATE_LAST + (int32_t)((uint64_t)RATE_FIRST * RATE_BYTES / (RATE_BYTES + learned));
    if (p->net_tokens > 0)
        p->net_rate = NET_RATE_LAST + (int32_t)((uint64_t)NET_RATE_FIRST * NET_RATE_BYTES /
                                                (NET_RATE_BYTES + p->net->bytes));
    p->sse_hash = reef_mix_hash((p->position.bytes & 0xFFFFFF) * 3 + 1);
    p->open = false;
    p->way = REEF_LOG_BIT_BY_BIT;
    reef_trees_find(p);
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        reef_match_take(&p->matches[k], &p->text, REEF_MATCH_SHORTEST[k]);
        p->followed[k] = reef_match_expected(&p->matches[k], &p->text);
        p->match_states[k] = reef_match_state(&p->matches[k]);
    }
    // The same occurrence found twice would count twice.
    if (p->followed[0] >= 0 && p->followed[1] >= 0 && p->matches[0].at == p->matches[1].at)
        p->followed[1] = -1;
    reef_expected_find(p);
}

// What the trees say is needed: where the byte is not trusted, and by the layer with a net.
static bool needs_trees(const reef_predictor *p) {
    return !p->expected_byte.trusted || p->net_tokens > 0;
}

static void open_byte(reef_predictor *p) {
    // A context that knows nothing has nothing to say in any bit of the byte.
    memset(p->in, 0, REEF_INPUTS * sizeof(*p->in));
    p->open = true;
    reef_trees_open(p);
}

void reef_predictor_begin(reef_predictor *p) {
    p->logistic = reef_logistic_tables();
    p->table = reef_histories_table();
    p->rates = reef_chance_rates();
    p->kernels = reef_mix_kernels_chosen();
    p->net_tokens = 0;
    reef_position_begin(&p->position, p->text.end);
    memset(p->matches, 0, sizeof(p->matches));
    memset(p->in, 0, sizeof(p->in));
    memset(p->histories, 0, sizeof(p->histories));
    memset(p->kinds, 0, sizeof(p->kinds));
    p->expected_byte = (reef_expected_byte){.byte = -1};
    reef_trees_prefetch(p, p->next_hashes);
    p->begun = false;
}

// A new context takes a cell. Of slots it opens one a nibble, or stores up to four.
static reef_status reserve_trees(reef_predictor *p, reef_error *err) {
    reef_status status = reef_lines_reserve(&p->cells, REEF_CONTEXTS, err);
    return status == REEF_OK ? reef_lines_reserve(&p->slots, (size_t)6 * REEF_CONTEXTS, err)
                             : status;
}

reef_status reef_predictor_reserve(reef_predictor *p, reef_error *err) {
    reef_status status = reef_text_reserve(&p->text, 1, err);
    if (status == REEF_OK && !p->frozen) status = reserve_trees(p, err);
    for (size_t k = 0; status == REEF_OK && !p->alone && k < REEF_MATCHES; k++)
        status = reef_lines_reserve(&p->index[k], 1, err);
    if (status != REEF_OK || p->net_tokens == 0 || p->net != NULL) return status;
    p->net = malloc(sizeof(*p->net));
    if (p->net == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the weights of a net's bytes");
    reef_net_state_init(p->net, p->state);
    return REEF_OK;
}

// ---- one bit ------------------------------------------------------------------------------------

// The place of the bit in hand among the histories of its nibble: 1 and then the nibble's bits.
static uint32_t node_of(const reef_predictor *p) {
    if (p->bit < 4) return p->bits;
    uint32_t depth = p->bit - 4;
    return 1u << depth | (p->bits & ((1u << depth) - 1));
}

// Two inputs of a chance; a bit that was never seen has nothing to say.
static inline void put_inputs(reef_predictor *p, size_t i, uint8_t history, reef_chance chance) {
    int16_t seen = (int16_t) - (history != REEF_HISTORY_NONE);
    p->in[i] = (int16_t)(p->logistic->stretch[chance >> 20] & seen);
    p->in[reef_distance_of(i)] = (int16_t)(reef_distance(reef_chance_p(chance)) & seen);
}

static reef_chance *order_0_chance(const reef_predictor *p) {
    return &p->state->order_0_chance[p->order_0_history];
}

static void context_inputs(reef_predictor *p) {
    const uint32_t node = node_of(p) - 1;
    for (size_t k = 0; k < p->known_count; k++) {
        size_t i = p->known[k];
        uint8_t history = p->histories[i] = p->nodes[i][node];
        put_inputs(p, i, history, p->state->chance[i][history]);
    }
    p->order_0_history = p->state->order_0[p->bits];
    put_inputs(p, REEF_PREDICTION_ORDER_0, p->order_0_history, *order_0_chance(p));
    p->in[REEF_PREDICTION_BIAS] = REEF_BIAS;
}

// The bit that a match expects; -1: none.
static int followed_bit(const reef_predictor *p, size_t k) {
    if (p->followed[k] < 0 || (uint32_t)(p->followed[k] | 256) >> (8 - p->bit) != p->bits)
        return -1;
    return p->followed[k] >> (7 - p->bit) & 1;
}

// Two inputs of a bit that is expected, right with that chance; -1: none is.
static void put_bit(reef_predictor *p, size_t i, int bit, const reef_chance *chance) {
    int16_t *odds = &p->in[i], *distance = odds + REEF_PREDICTIONS;
    *odds = *distance = 0;
    if (bit < 0) return;
    uint32_t right = reef_chance_p(*chance), one = bit == 1 ? right : 65535 - right;
    *odds = reef_stretch(p->logistic, one);
    *distance = reef_distance(one);
}

static void match_inputs(reef_predictor *p) {
    for (size_t k = 0; k < REEF_MATCHES; k++)
        put_bit(p, REEF_PREDICTION_MATCH + k, followed_bit(p, k),
                &p->state->match[k][p->match_states[k]]);
    put_bit(p, REEF_PREDICTION_EXPECTED, reef_expected_bit(p), reef_expected_chance(p));
}

// From one token on, doubling.
static uint32_t tokens_class(uint32_t tokens) {
    uint32_t log2 = 31 - (uint32_t)__builtin_clz(tokens);
    return log2 < REEF_NET_TOKENS ? log2 : REEF_NET_TOKENS - 1;
}

// `memory`: probability that the memory gives to a one.
static void net_inputs(reef_predictor *p, uint32_t memory) {
    int16_t *odds = p->net_in, *distance = p->net_in + REEF_PREDICTIONS;
    // The nearest of the chances.
    uint32_t step = (uint32_t)(p->net_odds + REEF_ODDS_MAX + REEF_NET_ODDS_STEP / 2);
    p->net_chance = &p->net->chance[tokens_class(p->net_tokens)][step / REEF_NET_ODDS_STEP];
    uint32_t one = reef_chance_p(*p->net_chance);
    memcpy(p->net_in, p->in, sizeof(p->net_in));
    odds[REEF_PREDICTION_NET] = (int16_t)p->net_odds;
    distance[REEF_PREDICTION_NET] = reef_distance(reef_squash(p->logistic, p->net_odds));
    odds[REEF_PREDICTION_NET_CHANCE] = reef_stretch(p->logistic, one);
    distance[REEF_PREDICTION_NET_CHANCE] = reef_distance(one);
    odds[REEF_PREDICTION_MEMORY] = reef_stretch_exact(p->logistic, memory);
    distance[REEF_PREDICTION_MEMORY] = reef_distance(memory);
}

// The memory's sets, copied for the layer with a net, and three more that depend on what the net
// says.
static void choose_net_weights(reef_predictor *p) {
    int bit = followed_bit(p, 0);
    uint32_t length = reef_match_length_class(p->matches[0].length) / 2;
    enum { OWN = REEF_NET_SETS - REEF_SETS };
    const uint32_t chosen[OWN] = {
        [REEF_NET_SET_TOKENS - REEF_SETS] = tokens_class(p->net_tokens) * 8 + p->bit,
        [REEF_NET_SET_ODDS - REEF_SETS] =
            (uint32_t)(p->net_odds + REEF_ODDS_MAX) / REEF_NET_ODDS_STEP * 4 + p->bit / 2,
        [REEF_NET_SET_MATCH - REEF_SETS] = (uint32_t)(bit + 1) * 16 + (bit < 0 ? 0 : length),
    };
    static const uint32_t COUNTS[OWN] = {
#define REEF_SET_SIZE(name, count) count,
        REEF_NET_SET_LIST(REEF_SET_SIZE)
#undef REEF_SET_SIZE
    };
    // Copies lie in the order of what they are copies of.
    for (size_t k = 0; k < REEF_SETS; k++)
        p->net_rows[k] = p->net->weights[0] + (p->rows[k] - p->state->weights[0]);
    for (uint32_t k = 0, first = REEF_WEIGHT_SETS; k < OWN; first += COUNTS[k++])
        p->net_rows[REEF_SETS + k] = p->net->weights[first + chosen[k]];
}

// How long the match is that expects the bit: a long one deserves more weight than contexts.
static uint32_t match_class(const reef_predictor *p) {
    if (followed_bit(p, 0) < 0) return 0;
    uint32_t length = p->matches[0].length;
    return length < 16 ? 1 : length < 32 ? 2 : 3;
}

static void choose_weights(reef_predictor *p) {
    const uint32_t match = match_class(p);
    p->last_row = match * 256 + p->bits;
    const reef_position *at = &p->position;
    uint32_t last = at->bytes & 0xFF, before = at->bytes >> 8 & 0xFF;
    const uint32_t chosen[REEF_SETS] = {
        [REEF_SET_BITS] = p->bits,
        [REEF_SET_LAST] =
            last | (uint32_t)(p->bit < 4) << 8 | (uint32_t)(p->bit >= 2 && p->bit < 6) << 9,
        [REEF_SET_BEFORE] = before,
        [REEF_SET_ORDERS] = (match * 8 + p->orders_known) * 8 + p->bit,
        [REEF_SET_SHAPE] = at->shape & 511,
        [REEF_SET_FIELD] = reef_position_class(at),
    };
    static const uint32_t COUNTS[REEF_SETS] = {
#define REEF_SET_SIZE(name, count) count,
        REEF_SET_LIST(REEF_SET_SIZE)
#undef REEF_SET_SIZE
    };
    for (uint32_t k = 0, first = 0; k < REEF_SETS; first += COUNTS[k++])
        p->rows[k] = p->state->weights[first + chosen[k]];
}

static int32_t mix(reef_predictor *p) {
    reef_predictor_dot(p, REEF_SETS, p->odds, p->in, p->rows);
    return reef_mix_last(REEF_SETS, p->odds, p->state->last_weights[p->last_row]);
}

// Rows of SSE, by the last byte and by the last three; asked for before the odds are known.
static void choose_rows(reef_predictor *p) {
    uint32_t last = p->position.bytes & 0xFF;
    const uint32_t contexts[2] = {reef_mix_hash(last << 8 | p->bits) >> 7,
                                  p->sse_hash ^ p->bits * 0x9E35u};
    for (size_t t = 0; t < 2; t++) {
        uint16_t *row = p->state->sse[t][contexts[t] & ((1 << REEF_SSE_LOG2) - 1)];
        __builtin_prefetch(row);
        __builtin_prefetch(row + REEF_SSE_STEPS - 1);
        p->sse_rows[t] = row;
    }
}

// Probability of a one, from that of the memory and what the net says. The memory's probability is
// one of the inputs, and once more one of the odds that the last mixer weighs. SSE weighs as in
// mix_memory: 1, 1, 2.
static uint32_t mix_net(reef_predictor *p, uint32_t memory) {
    net_inputs(p, memory);
    choose_net_weights(p);
    reef_predictor_dot(p, REEF_NET_SETS, p->net_set_odds, p->net_in, p->net_rows);
    p->net_set_odds[REEF_NET_SETS] = p->net_in[REEF_PREDICTION_MEMORY];
    p->net_last_odds =
        reef_mix_last(REEF_NET_SETS + 1, p->net_set_odds, p->net->last_weights[p->bits]);
    uint32_t one = reef_squash(p->logistic, p->net_last_odds);
    for (size_t t = 0; t < 2; t++) {
        // The same row in a copy of the table.
        size_t row = (size_t)(p->sse_rows[t] - p->state->sse[t][0]) / REEF_SSE_STEPS;
        one +=
            (uint32_t)(t + 1) * reef_refine(p->net_last_odds, p->net->sse[t][row], &p->net_sse[t]);
    }
    return reef_probability_clip(one / 4);
}

static uint32_t mix_memory(reef_predictor *p) {
    p->last_odds = mix(p);
    uint32_t one = reef_squash(p->logistic, p->last_odds);
    one += reef_refine(p->last_odds, p->sse_rows[0], &p->sse[0]);
    one += 2 * reef_refine(p->last_odds, p->sse_rows[1], &p->sse[1]);
    return reef_probability_clip(one / 4);
}

uint32_t reef_predictor_predict(reef_predictor *p) {
    // Between two bytes nothing is open: tables may grow, and a stored memory continues here.
    if (!p->begun) begin_byte(p);
    bool trusted = p->expected_byte.trusted;
    uint32_t one = trusted ? reef_expected_predict(p) : 0;
    if (needs_trees(p)) {
        if (!p->open) open_byte(p);
        choose_rows(p);
        choose_weights(p);
        context_inputs(p);
        match_inputs(p);
        if (!trusted) one = mix_memory(p);
        if (p->net_tokens > 0) one = mix_net(p, one);
    }
    p->probability = one;
    return one;
}

static void learn_weights(reef_predictor *p, int bit) {
    int16_t rates[REEF_SETS];
    reef_learn_last(p->logistic, REEF_SETS, p->state->last_weights[p->last_row], p->odds,
                    p->last_odds, bit);
    reef_mix_rates(p->logistic, REEF_SETS, rates, p->odds, p->rate, bit);
    p->kernels->train(REEF_SETS, REEF_INPUTS, p->rows, p->in, rates);
}

static void learn_net_weights(reef_predictor *p, int bit) {
    int16_t rates[REEF_NET_SETS];
    reef_learn_last(p->logistic, REEF_NET_SETS + 1, p->net->last_weights[p->bits], p->net_set_odds,
                    p->net_last_odds, bit);
    reef_mix_rates(p->logistic, REEF_NET_SETS, rates, p->net_set_odds, p->net_rate, bit);
    p->kernels->train(REEF_NET_SETS, REEF_INPUTS, p->net_rows, p->net_in, rates);
}

static void learn_chances(reef_predictor *p, int bit) {
    for (size_t k = 0; k < p->known_count; k++) {
        size_t i = p->known[k];
        reef_chance *chance = &p->state->chance[i][p->histories[i]];
        *chance = reef_chance_after(*chance, bit, p->rates);
    }
    reef_chance *order_0 = order_0_chance(p);
    *order_0 = reef_chance_after(*order_0, bit, p->rates);
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        int followed = followed_bit(p, k);
        if (followed < 0) continue;
        reef_chance *chance = &p->state->match[k][p->match_states[k]];
        *chance = reef_chance_after(*chance, followed == bit, p->rates);
    }
    int expected = reef_expected_bit(p);
    if (expected >= 0) {
        reef_chance *chance = reef_expected_chance(p);
        *chance = reef_chance_after(*chance, expected == bit, p->rates);
    }
    for (size_t t = 0; t < 2; t++) reef_learn_sse(p->sse[t], bit);
}

static void learn_net(reef_predictor *p, int bit) {
    learn_net_weights(p, bit);
    *p->net_chance = reef_chance_after(*p->net_chance, bit, p->rates);
    for (size_t t = 0; t < 2; t++) reef_learn_sse(p->net_sse[t], bit);
}

static void learn_histories(reef_predictor *p, int bit) {
    uint32_t node = node_of(p);
    // Trees that were drawn from a cell are temporary: those of the table alone learn here.
    for (size_t k = 0; k < p->tree_count; k++) {
        size_t i = p->trees[k];
        p->nodes[i][node - 1] = p->table->next[p->histories[i]][bit];
    }
    uint8_t *order_0 = &p->state->order_0[p->bits];
    *order_0 = p->table->next[*order_0][bit];
}

// Learn the whole byte. The order matters: expected byte and followers read the position before the
// byte, matches and hashes the one behind it.
static void end_byte(reef_predictor *p) {
    uint8_t byte = (uint8_t)p->bits;
    uint32_t last_two = p->position.bytes & 0xFFFF;
    uint16_t *followers = &p->state->followers[last_two], followed = *followers;
    if (p->expected_byte.trusted) p->way = REEF_LOG_FORESEEN;
    if (!p->frozen) reef_expected_learn(p, byte);
    if (!p->frozen) *followers = (uint16_t)(*followers << 8 | byte);
    reef_text_push(&p->text, byte);
    reef_position_step(&p->position, &p->text, byte);
    for (size_t k = 0; k < REEF_MATCHES; k++)
        reef_match_step(&p->matches[k], &p->index[k], &p->text, REEF_MATCH_SHORTEST[k], byte,
                        !p->alone);
    // The lines of the next byte are on their way while this one is learned.
    reef_trees_prefetch(p, p->next_hashes);
    if (!p->frozen) reef_trees_end_byte(p, byte);
    for (size_t k = 0; k < REEF_MATCHES; k++)
        reef_match_look_up(&p->matches[k], &p->index[k], &p->text, REEF_MATCH_SHORTEST[k],
                           !p->alone);
    p->learned_bytes += !p->frozen;
    if (p->log != NULL) reef_learn_log_put(p->log, p, p->way, last_two, followed);
    if (p->net_tokens > 0 && !p->frozen) p->net->bytes++;
    p->net_tokens = 0;
    p->begun = false;
}

// Matches do not follow skipped bytes, which would cost a comparison each: they are looked up again
// behind the last one. Contexts are hashed once, there.
void reef_predictor_skip(reef_predictor *p, const uint8_t *bytes, size_t count) {
    p->begun = false; // what was predicted of the next byte is dropped
    for (size_t i = 0; i < count; i++) {
        reef_text_push(&p->text, bytes[i]);
        reef_position_step(&p->position, &p->text, bytes[i]);
        for (size_t k = 0; k < REEF_MATCHES; k++) {
            p->matches[k].follows = false;
            p->matches[k].length = 0;
            reef_match_step(&p->matches[k], &p->index[k], &p->text, REEF_MATCH_SHORTEST[k],
                            bytes[i], !p->alone);
        }
    }
    if (count == 0) return;
    reef_trees_prefetch(p, p->next_hashes);
    for (size_t k = 0; k < REEF_MATCHES; k++)
        reef_match_look_up(&p->matches[k], &p->index[k], &p->text, REEF_MATCH_SHORTEST[k], false);
}

// A bit that contradicts ends the trust: now the byte is one like others.
static void catch_up(reef_predictor *p) {
    memset(p->in, 0, REEF_INPUTS * sizeof(*p->in));
    p->open = true;
    p->way = p->bit;
    reef_trees_catch_up(p);
}

void reef_predictor_update(reef_predictor *p, int bit) {
    bool trusted = p->expected_byte.trusted, contradicts = false;
    if (!p->frozen && p->net_tokens > 0) learn_net(p, bit);
    if (trusted) {
        contradicts = !reef_expected_update(p, bit);
    } else if (!p->frozen) {
        learn_weights(p, bit);
        learn_chances(p, bit);
        learn_histories(p, bit);
    }
    p->bits = p->bits << 1 | (uint32_t)bit;
    p->bit++;
    if (contradicts) catch_up(p);
    if (p->open && p->bit == 3) reef_trees_prefetch_lower(p);
    if (p->open && p->bit == 4) reef_trees_open_lower(p);
    if (p->bit < 8) return;
    end_byte(p);
}

bool reef_predictor_read_expected(reef_predictor *p,
                                  uint8_t byte,
                                  reef_input_counts *inputs,
                                  double *chance) {
    if (!p->begun) begin_byte(p);
    if (needs_trees(p) || p->bit > 0 || p->expected_byte.byte != byte) return false;
    if (inputs != NULL) reef_inputs_count(inputs, p, 8);
    *chance = reef_expected_read(p);
    p->bits = 256u | byte;
    end_byte(p);
    return true;
}

reef_status reef_predictor_code(reef_predictor *p,
                                uint8_t byte,
                                const reef_net_prediction *net,
                                reef_input_counts *inputs,
                                float *bits,
                                reef_error *err) {
    p->net_tokens = net != NULL ? net->tokens : 0;
    reef_status status = reef_predictor_reserve(p, err);
    if (status != REEF_OK) return status;
    double chance = 1.0;
    bool read = reef_predictor_read_expected(p, byte, inputs, &chance);
    for (int i = 7; i >= 0 && !read; i--) {
        int bit = byte >> i & 1;
        if (net != NULL) p->net_odds = reef_odds_clip(net->odds[7 - i]);
        uint32_t one = reef_predictor_predict(p);
        if (inputs != NULL) reef_inputs_count(inputs, p, 1);
        chance *= (bit ? one : 65536 - one) / 65536.0;
        reef_predictor_update(p, bit);
    }
    if (bits != NULL) *bits = (float)-log2(chance);
    return REEF_OK;
}
