// See expected_byte.h.
#include "expected_byte.h"

#include "mix_layer.h"

#include <string.h>

// 0.885: with less, prose is learned faster and predicted worse; found by trials.
#define TRUSTED 58000
#define RATE 3 // of the weights, in those of the bits: there is one question for eight bits
#define RUN_MAX 31

// What a context with a cell says of a byte. Of one with trees its last byte is known, and how
// often in a row that came.
enum {
    STATE_PAIR,                                    // and the history, as of the byte in question
    STATE_PAIR_OTHER = 256,                        // and the history: it is none of the two
    STATE_TREES = 512,                             // and the run: it is the last one
    STATE_TREES_OTHER = STATE_TREES + RUN_MAX + 1, // and the run: it is not
    STATES_USED = STATE_TREES_OTHER + RUN_MAX + 1,
};
_Static_assert(STATES_USED == REEF_EXPECTED_STATES, "all states have a chance");

static void init_context_chances(reef_chance (*chances)[REEF_EXPECTED_STATES]) {
    const reef_histories *table = reef_histories_table();
    for (size_t i = 0; i < REEF_CONTEXTS; i++) {
        reef_chance *chance = chances[i];
        for (uint32_t h = 0; h < 256; h++) {
            uint32_t zeros = table->zeros[h], all = zeros + table->ones[h];
            chance[STATE_PAIR + h] = reef_chance_of((10 * zeros + 4) * 65536 / (10 * all + 10));
            chance[STATE_PAIR_OTHER + h] = reef_chance_of(4 * 65536 / (10 * all + 10));
        }
        for (uint32_t run = 0; run <= RUN_MAX; run++) {
            chance[STATE_TREES + run] = reef_chance_of((10 * run + 4) * 65536 / (10 * run + 14));
            chance[STATE_TREES_OTHER + run] = reef_chance_of(4 * 65536 / (10 * run + 14));
        }
    }
}

static void init_chances(reef_expected_state *state) {
    init_context_chances(state->contexts);
    for (size_t k = 0; k < REEF_MATCHES; k++)
        for (uint32_t s = 0; s < REEF_MATCH_STATES; s++) {
            state->matches[k][0][s] = reef_chance_of(65535 / (s / 4 + 3));
            state->matches[k][1][s] = reef_chance_of(65535 - 65535 / (s / 4 + 3));
        }
    // A bit of a byte that is doubted is right more often than the whole byte.
    for (size_t bit = 0; bit < 8; bit++)
        for (uint32_t p = 0; p < 32; p++)
            state->bits[bit][p] = reef_chance_of(65535 - (65535 - p * 2048) / 2);
    for (size_t c = 0; c < REEF_DIVERGENCES; c++)
        for (size_t bit = 0; bit < 8; bit++) state->divergence[c][bit] = reef_chance_of(16384);
}

void reef_expected_state_init(reef_expected_state *state) {
    memset(state, 0, sizeof(*state));
    init_chances(state);
    for (size_t s = 0; s < REEF_EXPECTED_WEIGHT_SETS; s++) reef_weights_init(state->weights[s]);
    for (size_t s = 0; s < REEF_EXPECTED_LAST; s++)
        for (size_t k = 0; k < REEF_EXPECTED_SETS; k++)
            state->last_weights[s][k] = 65536 / REEF_EXPECTED_SETS;
    for (size_t t = 0; t < 2; t++)
        for (size_t c = 0; c < 1 << REEF_SSE_LOG2; c++)
            reef_sse_init(reef_logistic_tables(), state->sse[t][c]);
}

// ---- which byte ---------------------------------------------------------------------------------

static uint32_t run_of(const reef_cell_line *line, int cell) {
    return line->second[cell] < RUN_MAX ? line->second[cell] : RUN_MAX;
}

// The byte that a context would choose, and the state of it.
static uint8_t favourite_of(const reef_predictor *p, size_t i, uint32_t *state) {
    const reef_cell_line *line = p->lines[i];
    int cell = p->cells_at[i];
    if (p->kinds[i] == REEF_CONTEXT_TREES) {
        *state = STATE_TREES + run_of(line, cell);
        return line->first[cell];
    }
    uint8_t history = line->history[cell];
    bool first = p->table->zeros[history] >= p->table->ones[history];
    *state = STATE_PAIR + (first ? history : p->table->mirror[history]);
    return first ? line->first[cell] : line->second[cell];
}

static uint32_t state_of(const reef_predictor *p, size_t i, uint8_t byte) {
    const reef_cell_line *line = p->lines[i];
    int cell = p->cells_at[i];
    if (p->kinds[i] == REEF_CONTEXT_TREES)
        return (byte == line->first[cell] ? STATE_TREES : STATE_TREES_OTHER) + run_of(line, cell);
    uint8_t history = line->history[cell];
    if (byte == line->first[cell]) return STATE_PAIR + history;
    if (byte == line->second[cell] && p->table->ones[history] > 0)
        return STATE_PAIR + p->table->mirror[history];
    return STATE_PAIR_OTHER + history;
}

static reef_chance *match_chance(const reef_predictor *p, size_t k, int byte) {
    return &p->state->expected.matches[k][p->followed[k] == byte][p->match_states[k]];
}

// What a context or a match says of a byte.
typedef struct opinion {
    reef_chance chance;
    uint16_t state; // of a context
    int16_t odds;
    uint8_t byte;
} opinion;

typedef struct opinions {
    size_t count; // those of known contexts, in their order, and then those of matches
    opinion all[REEF_CONTEXTS + REEF_MATCHES];
} opinions;

static inline void weigh(const reef_predictor *p, opinion *o, reef_chance chance) {
    o->chance = chance;
    o->odds = p->logistic->stretch[chance >> 20];
}

static void ask(const reef_predictor *p, opinions *asked) {
    opinion *o = asked->all;
    for (size_t k = 0; k < p->known_count; k++, o++) {
        uint32_t state = 0, i = p->known[k];
        o->byte = favourite_of(p, i, &state);
        o->state = (uint16_t)state;
        weigh(p, o, p->state->expected.contexts[i][state]);
    }
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        if (p->followed[k] < 0) continue;
        o->byte = (uint8_t)p->followed[k];
        weigh(p, o++, *match_chance(p, k, p->followed[k]));
    }
    asked->count = (size_t)(o - asked->all);
}

// Do all name the same byte, and does one of them believe in it? That is so mostly, and cheap to
// find out.
static bool agree(const opinions *asked) {
    uint32_t other = 0;
    bool sure = false;
    for (size_t k = 0; k < asked->count; k++) {
        other |= asked->all[k].byte ^ asked->all[0].byte;
        sure |= asked->all[k].odds > 0;
    }
    return other == 0 && sure;
}

// The byte with most votes, of equals the one with the shortest context; -1: none.
static int elect_byte(const opinions *asked) {
    if (agree(asked)) return asked->all[0].byte;
    int32_t votes[256]; // of the bytes that are named
    for (size_t k = 0; k < asked->count; k++) votes[asked->all[k].byte] = 0;
    for (size_t k = 0; k < asked->count; k++)
        votes[asked->all[k].byte] += asked->all[k].odds > 0 ? asked->all[k].odds : 0;
    int elected = -1;
    int32_t most = 0;
    for (size_t k = 0; k < asked->count; k++) {
        const opinion *o = &asked->all[k];
        if (o->odds > 0 && votes[o->byte] > most) most = votes[o->byte], elected = o->byte;
    }
    return elected;
}

// ---- does it come -------------------------------------------------------------------------------

static void put_inputs(reef_predictor *p, size_t i, const opinion *o) {
    int16_t *in = p->expected_byte.in;
    in[i] = o->odds;
    in[reef_distance_of(i)] = reef_distance(reef_chance_p(o->chance));
}

// Inputs of the question, and how many of the orders expect the byte. Whoever named another byte is
// asked again.
static uint32_t gather_inputs(reef_predictor *p, uint8_t byte, opinions *asked) {
    reef_expected_byte *e = &p->expected_byte;
    opinion *o = asked->all;
    uint32_t orders = 0;
    memset(e->in, 0, REEF_INPUTS * sizeof(*e->in));
    for (size_t k = 0; k < p->known_count; k++, o++) {
        size_t i = p->known[k];
        if (o->byte != byte) {
            o->state = (uint16_t)state_of(p, i, byte);
            weigh(p, o, p->state->expected.contexts[i][o->state]);
        }
        e->states[i] = o->state;
        put_inputs(p, i, o);
        if (i < REEF_ORDERS) orders += o->chance >> 31;
    }
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        if (p->followed[k] < 0) continue;
        if (o->byte != byte) weigh(p, o, *match_chance(p, k, byte));
        put_inputs(p, REEF_PREDICTION_MATCH + k, o++);
    }
    e->in[REEF_PREDICTION_BIAS] = REEF_BIAS;
    return orders;
}

static void choose_weights(reef_predictor *p, uint8_t byte, uint32_t orders) {
    reef_expected_byte *e = &p->expected_byte;
    uint32_t length = reef_match_length_class(p->matches[0].length) / 2;
    uint32_t match = p->followed[0] < 0 ? 0 : (1 + (p->followed[0] == byte)) * 16 + length;
    uint32_t known = p->orders_known * 8 + orders;
    const uint32_t chosen[REEF_EXPECTED_SETS] = {
        [REEF_EXPECTED_SET_MATCH] = match,
        [REEF_EXPECTED_SET_BYTE] = byte,
        [REEF_EXPECTED_SET_ORDERS] = known,
        [REEF_EXPECTED_SET_LAST] = p->position.bytes & 0xFF,
        [REEF_EXPECTED_SET_FIELD] = reef_position_class(&p->position),
    };
    static const uint32_t COUNTS[REEF_EXPECTED_SETS] = {
#define REEF_SET_SIZE(name, count) count,
        REEF_EXPECTED_SET_LIST(REEF_SET_SIZE)
#undef REEF_SET_SIZE
    };
    for (uint32_t k = 0, first = 0; k < REEF_EXPECTED_SETS; first += COUNTS[k++])
        e->rows[k] = p->state->expected.weights[first + chosen[k]];
    e->last_weights = p->state->expected.last_weights[known];
}

void reef_expected_find(reef_predictor *p) {
    reef_expected_byte *e = &p->expected_byte;
    reef_expected_state *state = &p->state->expected;
    e->trusted = false;
    opinions asked;
    ask(p, &asked);
    e->byte = elect_byte(&asked);
    if (e->byte < 0) return;
    uint8_t byte = (uint8_t)e->byte;
    uint32_t last = p->position.bytes & 0xFF, last_two = p->position.bytes & 0xFFFF;
    const uint32_t hashes[2] = {reef_mix_hash(last << 8 | byte),
                                reef_mix_hash(last_two << 8 | byte | 1u << 30)};
    uint16_t *rows[2];
    // Asked for before the odds are known, as in the layer of bits.
    for (size_t t = 0; t < 2; t++) {
        rows[t] = state->sse[t][hashes[t] & ((1 << REEF_SSE_LOG2) - 1)];
        __builtin_prefetch(rows[t]);
        __builtin_prefetch(rows[t] + REEF_SSE_STEPS - 1);
    }
    e->divergence = state->divergence[hashes[0] & (REEF_DIVERGENCES - 1)];
    __builtin_prefetch(e->divergence);
    choose_weights(p, byte, gather_inputs(p, byte, &asked));
    reef_predictor_dot(p, REEF_EXPECTED_SETS, e->odds, e->in, e->rows);
    e->last_odds = reef_mix_last(REEF_EXPECTED_SETS, e->odds, e->last_weights);
    uint32_t right = 2 * reef_squash(p->logistic, e->last_odds);
    for (size_t t = 0; t < 2; t++) right += reef_refine(e->last_odds, rows[t], &e->sse[t]);
    e->probability = reef_probability_clip(right / 4);
    e->trusted = e->probability >= TRUSTED;
    e->escape = (65536 - e->probability) << 6;
}

void reef_expected_learn(reef_predictor *p, uint8_t byte) {
    reef_expected_byte *e = &p->expected_byte;
    if (e->byte < 0) return;
    const int right = byte == e->byte;
    int16_t rates[REEF_EXPECTED_SETS];
    reef_learn_last(p->logistic, REEF_EXPECTED_SETS, e->last_weights, e->odds, e->last_odds, right);
    reef_mix_rates(p->logistic, REEF_EXPECTED_SETS, rates, e->odds, RATE * p->rate, right);
    p->kernels->train(REEF_EXPECTED_SETS, REEF_INPUTS, e->rows, e->in, rates);
    for (size_t k = 0; k < p->known_count; k++) {
        size_t i = p->known[k];
        reef_chance *chance = &p->state->expected.contexts[i][e->states[i]];
        *chance = reef_chance_after(*chance, right, p->rates);
    }
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        if (p->followed[k] < 0) continue;
        reef_chance *chance = match_chance(p, k, e->byte);
        *chance = reef_chance_after(*chance, right, p->rates);
    }
    for (size_t t = 0; t < 2; t++) reef_learn_sse(e->sse[t], right);
}

// ---- the bits of a trusted byte -----------------------------------------------------------------

// Probability that the byte is another one and contradicts in this bit, 22 bits.
static uint32_t diverging(const reef_predictor *p) {
    const reef_expected_byte *e = &p->expected_byte;
    if (p->bit == 7) return e->escape; // what has agreed so far differs here
    return (uint32_t)((uint64_t)e->escape * (e->divergence[p->bit] >> 10) >> 22);
}

uint32_t reef_expected_predict(const reef_predictor *p) {
    uint32_t other = reef_probability_clip(diverging(p) >> 6);
    return reef_expected_bit(p) == 1 ? 65536 - other : other;
}

// Bayes: the escape that is left, given that a bit agrees.
static uint32_t escape_left(uint32_t escape, uint32_t other) {
    const uint64_t one = 1u << 22;
    return (uint32_t)((escape - other) * one / (one - other));
}

double reef_expected_read(reef_predictor *p) {
    double chance = 1.0;
    for (p->bit = 0; p->bit < 8; p->bit++) {
        uint32_t other = diverging(p);
        chance *= (65536 - reef_probability_clip(other >> 6)) / 65536.0;
        p->expected_byte.escape = escape_left(p->expected_byte.escape, other);
    }
    return chance;
}

bool reef_expected_update(reef_predictor *p, int bit) {
    reef_expected_byte *e = &p->expected_byte;
    uint32_t other = diverging(p);
    if (reef_expected_bit(p) == bit) {
        e->escape = escape_left(e->escape, other);
        return true;
    }
    e->trusted = false;
    if (p->frozen) return false;
    for (uint32_t b = 0; b <= p->bit && b < 7; b++)
        e->divergence[b] = reef_chance_after(e->divergence[b], b == p->bit, p->rates);
    return false;
}
