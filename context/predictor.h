// One prediction of one bit from everything that is known, and what is learned from the bit.
//
//   byte begins   contexts -> cells -> the byte that is expected       (expected_byte.c)
//                 where that is not sure: trees of the upper nibble    (context_trees.c)
//   each bit      histories, matches -> chances -> inputs -> mixer -> SSE -> probability
//   then          chances, weights, SSE and histories learn the bit    (predictor.c)
//   nibble        trees of the lower nibble                            (context_trees.c)
//   byte ends     cells, text, position, matches
//
// A net may say something of a byte as well. Then a second layer has the same inputs, what the net
// says and what the memory says. It has mixers and SSE of its own, which begin as copies of the
// memory's. The memory learns as if there were no net.
//
// The same code learns a stream, over tables of its own, and reads a text, over views of them.
//
// What PAQ calls these:
//
//   chance         StateMap: an adaptive probability, here by bit history
//   odds           stretch(p) = ln(p / (1 - p)), the input of a mixer; squash is its inverse
//   distance       the second input of a chance: how far it is from one half, of either sign
//   set            the weights that one context selects; the mixer has one set of each kind in use
//   last mixer     the final mixer, which weighs what the sets say
//   SSE            APM: refines a probability by a small context
//   history, tree  bit history of a nonstationary state machine; those of a nibble, in one slot
//   expected byte  the one byte that the contexts agree on: it is predicted as a whole, before its
//                  bits are; where it is trusted, and comes, no tree is opened
//   prefetch       compute the hashes of the next byte's contexts, and ask for their cache lines
#ifndef REEF_PREDICTOR_H
#define REEF_PREDICTOR_H

#include "cell_table.h"
#include "learn_log.h"
#include "logistic.h"
#include "match_model.h"
#include "mix_layer.h"
#include "position.h"
#include "reef_context.h"

#define REEF_SETS 6 // of weights that are chosen for a bit

// Inputs of the mixer: of each prediction its log odds and, in the second half, its distance from a
// half. Contexts come first, then order 0, the matches, the expected byte and a constant. Those
// behind it are of the layer with a net alone, zeros in the other: what the net says, what came of
// that before, and what the memory says.
enum {
    REEF_PREDICTION_ORDER_0 = REEF_CONTEXTS,
    REEF_PREDICTION_MATCH,
    REEF_PREDICTION_EXPECTED = REEF_PREDICTION_MATCH + REEF_MATCHES,
    REEF_PREDICTION_BIAS,
    REEF_PREDICTION_NET,
    REEF_PREDICTION_NET_CHANCE,
    REEF_PREDICTION_MEMORY,
    REEF_PREDICTIONS_USED,
    REEF_PREDICTIONS =
        (REEF_PREDICTIONS_USED + REEF_INPUT_BLOCK - 1) / REEF_INPUT_BLOCK * REEF_INPUT_BLOCK,
    REEF_INPUTS = 2 * REEF_PREDICTIONS,
};

/** The second input that goes with one. */
static inline size_t reef_distance_of(size_t input) {
    return input + REEF_PREDICTIONS;
}

#define REEF_MATCH_CLASSES 4 // how long the match is: none that expects the bit, and 3 lengths

// set of weights: how many there are of it
#define REEF_SET_LIST(X)                                                                           \
    X(BITS, 256)   /* the bits of the byte so far */                                               \
    X(LAST, 1024)  /* the last byte, and which quarter of the byte the bit is in */                \
    X(BEFORE, 256) /* the byte before it */                                                        \
    X(ORDERS, REEF_MATCH_CLASSES * 8 * 8) /* how long the match is, how many orders know what */   \
                                          /* follows, and the bit's number */                      \
    X(SHAPE, 512)                         /* kinds of the last three bytes */                      \
    X(FIELD, 256) /* the field, the kind of the last byte, in a word or not */

enum {
#define REEF_SET_ENUM(name, count) REEF_SET_##name,
    REEF_SET_LIST(REEF_SET_ENUM)
#undef REEF_SET_ENUM
#define REEF_SET_COUNT(name, count) +(count)
        REEF_WEIGHT_SETS = 0 REEF_SET_LIST(REEF_SET_COUNT)
#undef REEF_SET_COUNT
};

#define REEF_NET_TOKENS 8      // classes of how many tokens a net has seen
#define REEF_NET_ODDS_STEP 192 // of the net's log odds, from one chance to the next
#define REEF_NET_STEPS (2 * REEF_ODDS_MAX / REEF_NET_ODDS_STEP + 2)

// the same of those that the layer with a net has beside copies of these
#define REEF_NET_SET_LIST(X)                                                                       \
    X(TOKENS, REEF_NET_TOKENS * 8) /* how many tokens the net has seen, and the bit's number */    \
    X(ODDS, (REEF_NET_STEPS - 1) *                                                                 \
                4)   /* what the net says, and which quarter of the byte the bit is in */          \
    X(MATCH, 3 * 16) /* what the match expects, and how long it is */

enum {
    REEF_NET_SETS_BEFORE = REEF_SETS - 1, // the copies
#define REEF_SET_ENUM(name, count) REEF_NET_SET_##name,
    REEF_NET_SET_LIST(REEF_SET_ENUM)
#undef REEF_SET_ENUM
        REEF_NET_SETS,
#define REEF_SET_COUNT(name, count) +(count)
    REEF_NET_WEIGHT_SETS = REEF_WEIGHT_SETS REEF_NET_SET_LIST(REEF_SET_COUNT)
#undef REEF_SET_COUNT
};

// the same of the question whether the expected byte comes
#define REEF_EXPECTED_SET_LIST(X)                                                                  \
    X(MATCH, 3 * 16) /* what the match says of it, and how long it is */                           \
    X(BYTE, 256)     /* the byte itself */                                                         \
    X(ORDERS, 8 * 8) /* how many orders know what follows, and how many of them expect it */       \
    X(LAST, 256)     /* the last byte */                                                           \
    X(FIELD, 256)    /* the field, the kind of the last byte, in a word or not */

enum {
#define REEF_SET_ENUM(name, count) REEF_EXPECTED_SET_##name,
    REEF_EXPECTED_SET_LIST(REEF_SET_ENUM)
#undef REEF_SET_ENUM
        REEF_EXPECTED_SETS,
#define REEF_SET_COUNT(name, count) +(count)
    REEF_EXPECTED_WEIGHT_SETS = 0 REEF_EXPECTED_SET_LIST(REEF_SET_COUNT)
#undef REEF_SET_COUNT
};

#define REEF_EXPECTED_STATES 576 // of a context, for a byte in question
#define REEF_EXPECTED_LAST 64    // sets of the second mixer: those of ORDERS
#define REEF_DIVERGENCES 4096    // by the last byte and the expected one, hashed
#define REEF_SSE_LOG2 12         // contexts of an SSE table

/** What is learned of expected bytes. */
typedef struct reef_expected_state {
    reef_chance contexts[REEF_CONTEXTS][REEF_EXPECTED_STATES];
    reef_chance matches[REEF_MATCHES][2][REEF_MATCH_STATES]; // it expects another, or this byte
    int16_t weights[REEF_EXPECTED_WEIGHT_SETS][REEF_INPUTS];
    int32_t last_weights[REEF_EXPECTED_LAST][REEF_EXPECTED_SETS];
    uint16_t sse[2][1 << REEF_SSE_LOG2][REEF_SSE_STEPS];
    reef_chance bits[8][32]; // of bytes that are not trusted, by their probability
    reef_chance divergence[REEF_DIVERGENCES][8];
} reef_expected_state;

/** What is learned beside the tables of contexts; small, so that a session has a copy. */
typedef struct reef_mix_state {
    reef_chance chance[REEF_CONTEXTS][256]; // by bit history
    reef_chance order_0_chance[256];        // the same without a context
    reef_chance match[REEF_MATCHES][REEF_MATCH_STATES];
    uint8_t order_0[256]; // bit histories by the bits of the byte so far
    int16_t weights[REEF_WEIGHT_SETS][REEF_INPUTS];
    // Of the second mixer, by the match and the bits of the byte so far; 16 bits behind the point.
    int32_t last_weights[REEF_MATCH_CLASSES * 256][REEF_SETS];
    uint16_t sse[2][1 << REEF_SSE_LOG2][REEF_SSE_STEPS];
    uint16_t met_again[REEF_CONTEXTS]; // share of new contexts that occur again, in 1/65536
    uint16_t followers[1 << 16];       // the two bytes that came last after two bytes
    reef_expected_state expected;
} reef_mix_state;

/** The layer of bytes that a net speaks of; there is none before the first of them. */
typedef struct reef_net_state {
    uint64_t bytes; // that it has learned
    reef_chance chance[REEF_NET_TOKENS]
                      [REEF_NET_STEPS]; // by the tokens the net has seen and its log odds
    int16_t weights[REEF_NET_WEIGHT_SETS][REEF_INPUTS];
    int32_t last_weights[256][REEF_NET_SETS + 1]; // the last for what the memory says
    uint16_t sse[2][1 << REEF_SSE_LOG2][REEF_SSE_STEPS];
} reef_net_state;

typedef enum reef_context_state {
    REEF_CONTEXT_NEW,   // nothing is known of it
    REEF_CONTEXT_PAIR,  // its cell has all
    REEF_CONTEXT_TREES, // its cell says that there are trees
} reef_context_state;

/** Copies of the lines of trees that a trial opens, in place of those of the table. */
typedef struct reef_trial_lines {
    size_t count;
    size_t at[2 * REEF_CONTEXTS]; // numbers of the lines, none twice
    _Alignas(REEF_LINE_BYTES) uint8_t bytes[2 * REEF_CONTEXTS][REEF_LINE_BYTES];
} reef_trial_lines;

/** A replay: what is up to date. */
typedef struct reef_replay {
    const uint64_t *const *slices; // of each table: learned bytes of each slice
    uint64_t at;                   // learned bytes before the byte in hand
} reef_replay;

/** The expected byte in hand. */
typedef struct reef_expected_byte {
    int byte;             // -1: none
    bool trusted;         // it alone predicts the bits, as long as they agree
    uint32_t probability; // that it comes, 16 bits
    uint32_t escape;      // that it does not, given the bits so far, 22 bits
    uint16_t states[REEF_CONTEXTS];
    int16_t in[REEF_INPUTS];
    int16_t *rows[REEF_EXPECTED_SETS]; // weights, (inputs) each
    int32_t odds[REEF_EXPECTED_SETS], last_odds, *last_weights;
    uint16_t *sse[2];        // the cells that learn
    reef_chance *divergence; // (8)
} reef_expected_byte;

typedef struct reef_predictor {
    // what it predicts from, and what learns
    reef_lines cells, slots, index[REEF_MATCHES];
    uint32_t cell_lines_log2, slot_lines_log2;
    reef_text text;
    reef_position position;
    reef_match matches[REEF_MATCHES];
    reef_mix_state *state; // owned
    reef_net_state *net;   // owned; NULL: no net has spoken yet
    uint64_t learned_bytes;
    bool frozen;               // no table, count or weight learns
    bool alone;                // and matches do not find what a session reads
    reef_trial_lines *trial;   // no table is written, not even a view; NULL: they are
    reef_learn_log *log;       // owned: what is decided; NULL: nobody asks
    const reef_replay *replay; // tables of different times are brought up to date; NULL: they learn

    // what the net says: of the byte in hand, how many tokens it has seen (0: it says nothing), and
    // of the bit in hand its log odds
    uint32_t net_tokens;
    int32_t net_odds;

    // the byte in hand
    bool begun;                          // false: what follows is of the byte before
    uint64_t next_hashes[REEF_CONTEXTS]; // contexts of the byte after it
    uint64_t hashes[REEF_CONTEXTS];
    reef_context_state kinds[REEF_CONTEXTS];
    reef_cell_line *lines[REEF_CONTEXTS];
    reef_expected_byte expected_byte;
    bool open;                          // its trees are
    uint32_t way;                       // reef_log_way: how it is learned
    int cells_at[REEF_CONTEXTS];        // the cell in its line; -1: none
    reef_slot own_slots[REEF_CONTEXTS]; // histories of contexts without trees
    uint8_t *nodes[REEF_CONTEXTS];      // histories of the nibble in hand
    int followed[REEF_MATCHES];         // byte that a match expects; -1: none, or wrong already
    uint32_t match_states[REEF_MATCHES];
    uint32_t bits; // 1 and then the bits of the byte so far
    uint32_t bit;  // number of the next one: 0 .. 7
    uint32_t orders_known;
    uint32_t last_row; // of the last weights
    uint32_t known_count, tree_count;
    uint8_t known[REEF_CONTEXTS]; // numbers of the contexts that know something of the byte
    uint8_t trees[REEF_CONTEXTS]; // of those with trees
    uint32_t sse_hash;
    int32_t rate; // of the weights, 12 bits behind the point

    // the bit in hand
    int16_t in[REEF_INPUTS];
    uint8_t histories[REEF_CONTEXTS]; // of the bit; those of contexts that know something
    uint8_t order_0_history;
    int16_t *rows[REEF_SETS]; // weights, (inputs) each
    int32_t odds[REEF_SETS], last_odds;
    uint16_t *sse_rows[2], *sse[2]; // the cell that learns
    uint32_t probability;

    // the bit in hand, in the layer with a net
    int16_t net_in[REEF_INPUTS];
    int16_t *net_rows[REEF_NET_SETS];
    int32_t net_set_odds[REEF_NET_SETS + 1], net_last_odds; // the last as of the weights
    reef_chance *net_chance;                                // the cell that learns
    uint16_t *net_sse[2];                                   // the same
    int32_t net_rate;

    // tables that never change
    const reef_logistic *logistic;
    const reef_histories *table;
    const int32_t *rates;
    const reef_mix_kernels *kernels;
} reef_predictor;

/** weights (REEF_INPUTS) written: a row before anything was learned. */
static inline void reef_weights_init(int16_t *weights) {
    for (size_t i = 0; i < REEF_PREDICTION_BIAS; i++) {
        weights[i] = REEF_FIRST_WEIGHT;
        weights[reef_distance_of(i)] = REEF_FIRST_WEIGHT_DISTANCE;
    }
}

/** The state before anything was learned. */
void reef_mix_state_init(reef_mix_state *state);
/** For the first byte that a net speaks of: copies of the mixer, which trust the net a little. */
void reef_net_state_init(reef_net_state *net, const reef_mix_state *state);
/** After its tables and its state: at the beginning of a text. */
void reef_predictor_begin(reef_predictor *p);
/** Memory for what the next byte may write, with the net's tokens set. */
REEF_MUST_CHECK reef_status reef_predictor_reserve(reef_predictor *p, reef_error *err);

/** Bytes that pass by: what follows knows where it is, and no table learns. Between two bytes. */
void reef_predictor_skip(reef_predictor *p, const uint8_t *bytes, size_t count);

/** odds (sets) written: what sets of weights say of inputs. */
static inline void reef_predictor_dot(
    const reef_predictor *p, size_t sets, int32_t *odds, const int16_t *in, int16_t *const *rows) {
    p->kernels->dot(sets, REEF_INPUTS, odds, in, (const int16_t *const *)rows);
}

/** Probability of a one as the next bit, 16 bits, 1 .. 65535; net_tokens and net_odds are set. */
uint32_t reef_predictor_predict(reef_predictor *p);
/** The bit that came, after reef_predictor_predict. */
void reef_predictor_update(reef_predictor *p, int bit);

struct reef_input_counts;

/**
 * Read a byte at once, where it is the trusted one and nothing else is asked: what it comes to is
 * the same as bit by bit. Call it before the first predict of the byte, with room reserved.
 *
 * inputs  NULL, or they are counted
 * chance  written: the product of the probabilities of its bits
 *
 * Returns false where the byte has to be read bit by bit. Otherwise what learns has learned it.
 */
bool reef_predictor_read_expected(reef_predictor *p,
                                  uint8_t byte,
                                  struct reef_input_counts *inputs,
                                  double *chance);

/**
 * All bits of a byte. net: what one says, or NULL. inputs: NULL, or they are counted. bits: NULL,
 * or its surprise is written.
 */
REEF_MUST_CHECK reef_status reef_predictor_code(reef_predictor *p,
                                                uint8_t byte,
                                                const reef_net_prediction *net,
                                                struct reef_input_counts *inputs,
                                                float *bits,
                                                reef_error *err);

// net_prediction.c: what a net says of a byte, as log odds of its bits

/** Sums of the probabilities below every node: node 1 is the root, 256 .. 511 are the bytes. */
typedef struct reef_net_tree {
    double sums[512];
} reef_net_tree;

void reef_net_tree_init(reef_net_tree *tree, const float *probabilities);
/** Clipped log odds of a one after `bits`: 1 and then the bits of the byte so far. */
int16_t reef_net_tree_odds(const reef_net_tree *tree, uint32_t bits);

// distribution.c

/**
 * Probabilities of all next bytes. net: NULL, or what one says. `p` is between two bytes, and is
 * as it was afterwards; it may read views alone. out (256) written. Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_predictor_distribution(
    reef_predictor *p, const reef_net_tree *net, uint32_t tokens, double *out, reef_error *err);

// context_trees.c

/** The contexts of the next byte; their lines are asked for. Changes no table. */
void reef_trees_prefetch(reef_predictor *p, uint64_t *hashes);
/** The next byte begins: what its contexts know. */
void reef_trees_find(reef_predictor *p);
/** The trees of its upper nibble: of a trusted byte to be looked at, else to be learned. */
void reef_trees_open(reef_predictor *p);
/** Three bits are known: the lines of the lower trees are asked for. */
void reef_trees_prefetch_lower(reef_predictor *p);
/** The trees of its lower nibble. */
void reef_trees_open_lower(reef_predictor *p);
/** The byte is not trusted any more: its trees are opened and learn the bits so far. */
void reef_trees_catch_up(reef_predictor *p);
/** The byte came: cells learn it. */
void reef_trees_end_byte(reef_predictor *p, uint8_t byte);
/** Does a context that was hardly met get a cell in a crowded line? */
bool reef_trees_are_met_again(const reef_predictor *p, size_t context);
/** Trees of every context in a table of twice the lines. `to`: zeros; `cells`: as they are. */
void reef_slots_double(reef_lines *to,
                       reef_lines *from,
                       const reef_lines *cells,
                       const reef_histories *table);

/**
 * In a replay, where `hashes` are those of the byte: the cells of `cells` are found, and as its
 * trees those of `trees`, a bit for each context.
 */
void reef_trees_replay_find(reef_predictor *p, uint32_t cells, uint32_t trees);
/** And the same as reef_trees_end_byte. events (count): cells that became trees. */
void reef_trees_replay_end_byte(
    reef_predictor *p, uint8_t byte, uint32_t cells, const reef_log_event *events, size_t count);
/**
 * Lines of cells, and of the trees of `trees`, that are up to date are asked for. Returns whose
 * cells' lines are, a bit for each context.
 */
uint32_t reef_trees_replay_prefetch(const reef_replay *replay,
                                    const reef_predictor *p,
                                    const uint64_t *hashes,
                                    uint32_t trees,
                                    uint8_t byte);
/** Is that line of a table up to date? Tables: as in reef_memory_table. */
static inline bool reef_replay_has(const reef_replay *replay, size_t table, size_t line) {
    return replay->slices[table][line / (REEF_SLICE_BYTES / REEF_LINE_BYTES)] <= replay->at;
}

#endif
