// What cells and trees learn of each context, and which contexts get a cell.
#include "context_memory.h"
#include "memory_internal.h"
#include "reef_context.h"

#include "draw.h"
#include "draw_text.h"
#include "test.h"

enum { CONTEXTS_SEEN_LOG2 = 16, TREES_TEXT = 1500 };

// What followed one context, in trees that every byte of it was learned into bit by bit: the upper
// nibble's, and sixteen lower ones.
typedef struct plain_context {
    uint64_t name; // 0: free
    uint32_t visits, symbols;
    uint8_t symbol[2]; // the first two that differ
    uint8_t real[17][REEF_SLOT_NODES];
    uint8_t stored[17][REEF_SLOT_NODES]; // as the tables should have them, once they are there
} plain_context;

static plain_context *plain_find(plain_context *contexts, uint64_t name) {
    uint64_t at = name * 0x9E3779B97F4A7C15ull >> (64 - CONTEXTS_SEEN_LOG2);
    while (contexts[at].name != 0 && contexts[at].name != name)
        at = (at + 1) & ((1u << CONTEXTS_SEEN_LOG2) - 1);
    contexts[at].name = name;
    return &contexts[at];
}

static void learn_nibble(uint8_t *nodes, uint32_t nibble) {
    uint32_t node = 1;
    for (int bit = 3; bit >= 0; bit--) {
        uint8_t *history = &nodes[node - 1];
        *history = reef_histories_table()->next[*history][nibble >> bit & 1];
        node = node * 2 + (nibble >> bit & 1);
    }
}

static void learn_byte(uint8_t trees[17][REEF_SLOT_NODES], uint8_t byte) {
    learn_nibble(trees[0], byte >> 4);
    learn_nibble(trees[1 + (byte >> 4)], byte & 15);
}

static void copy_nodes(const reef_predictor *p, size_t i, uint8_t *tree) {
    // A context that knows nothing has no nodes.
    if (p->kinds[i] == REEF_CONTEXT_NEW)
        memset(tree, REEF_HISTORY_NONE, REEF_SLOT_NODES);
    else
        memcpy(tree, p->nodes[i], REEF_SLOT_NODES);
}

// The histories that a context has for a byte; like a frozen session, so nothing changes.
static void drawn_trees(reef_predictor *p, uint8_t trees[REEF_CONTEXTS][17][REEF_SLOT_NODES]) {
    p->frozen = true;
    reef_trees_find(p);
    reef_trees_open(p);
    for (size_t i = 0; i < REEF_CONTEXTS; i++) copy_nodes(p, i, trees[i][0]);
    for (uint32_t upper = 0; upper < 16; upper++) {
        p->bits = 16 | upper;
        reef_trees_open_lower(p);
        for (size_t i = 0; i < REEF_CONTEXTS; i++) copy_nodes(p, i, trees[i][1 + upper]);
    }
    p->frozen = false;
}

// A pair is exact where a real tree is one of its kind: all of it while three bits keep their
// order, and for ever where the two symbols part. Elsewhere the bit is always the same, so a run of
// them, which has counted no more than there were.
static void check_pair(const plain_context *c, uint8_t drawn[17][REEF_SLOT_NODES]) {
    const reef_histories *table = reef_histories_table();
    size_t partings = 0;
    for (size_t t = 0; t < 17; t++)
        for (size_t node = 0; node < REEF_SLOT_NODES; node++) {
            uint8_t real = c->real[t][node], is = drawn[t][node];
            bool both = table->zeros[real] > 0 && table->ones[real] > 0;
            partings += both;
            if (c->visits <= 3 || both) {
                if (is != real) fail_msg("tree %zu node %zu: %d, not %d", t, node, is, real);
                continue;
            }
            int bit = table->ones[real] > 0;
            uint32_t counted = bit ? table->ones[is] : table->zeros[is];
            assert_int_equal(real == 0, is == 0);
            assert_int_equal(table->visits[is], counted);
            assert_true(counted <= table->visits[real]);
            if (c->symbols == 1) assert_int_equal(is, real);
        }
    assert_int_equal(partings, c->symbols == 2);
}

typedef struct trees_count {
    size_t fresh, pairs, trees;
    size_t mistaken; // trees of another context with the same check, of eight bits
} trees_count;

// Nibbles that never followed have no trees to compare.
static void check_trees(plain_context *c, uint8_t drawn[17][REEF_SLOT_NODES], trees_count *count) {
    for (size_t t = 0; t < 17; t++) {
        if (c->real[t][0] == REEF_HISTORY_NONE) continue;
        count->trees++;
        if (memcmp(drawn[t], c->stored[t], REEF_SLOT_NODES) == 0) continue;
        count->mistaken++;
        memcpy(c->stored[t], drawn[t], REEF_SLOT_NODES);
    }
}

static void check_context(const reef_predictor *p,
                          size_t i,
                          plain_context *c,
                          uint8_t drawn[17][REEF_SLOT_NODES],
                          trees_count *count) {
    static const uint8_t none[17][REEF_SLOT_NODES];
    switch (p->kinds[i]) {
    case REEF_CONTEXT_NEW:
        assert_int_equal(c->visits, 0); // the tables are large enough to keep all
        assert_memory_equal(drawn, none, sizeof(none));
        count->fresh++;
        break;
    case REEF_CONTEXT_PAIR:
        assert_true(c->visits > 0 && c->symbols <= 2);
        check_pair(c, drawn);
        memcpy(c->stored, drawn, sizeof(c->stored)); // what a third byte would find
        count->pairs++;
        break;
    default:
        assert_int_equal(c->symbols, 3);
        check_trees(c, drawn, count);
    }
}

// A third byte takes the place of the older of two that came once, except in a short context.
static bool forgets_a_byte(const plain_context *c, size_t i, uint8_t byte) {
    return i > REEF_CONTEXT_ORDER_3 && c->visits == 2 && c->symbols == 2 && c->symbol[0] != byte &&
           c->symbol[1] != byte;
}

static void learn_context(plain_context *c, size_t i, uint8_t byte) {
    if (forgets_a_byte(c, i, byte)) {
        uint8_t newer = c->symbol[1];
        c->visits = 0;
        learn_context(c, i, newer);
    }
    if (c->visits++ == 0) {
        memset(c->real, 0, sizeof(c->real));
        memset(c->stored, 0, sizeof(c->stored));
        c->symbols = 0;
    }
    bool known = c->symbols > 0 && c->symbol[0] == byte;
    known |= c->symbols > 1 && c->symbol[1] == byte;
    if (!known && c->symbols < 2) c->symbol[c->symbols] = byte;
    if (!known && c->symbols < 3) c->symbols++;
    learn_byte(c->real, byte);
    learn_byte(c->stored, byte);
}

static bool has_cell(const reef_predictor *p, size_t i) {
    size_t at = reef_cell_line_of(p->hashes[i], p->cell_lines_log2);
    const reef_cell_line *line = (const void *)reef_lines_peek(&p->cells, at);
    return reef_cell_find(line, reef_cell_check(p->hashes[i])) >= 0;
}

PLAIN_TEST(trees_are_those_that_the_bytes_of_each_context_make) {
    // Symbols that part in every bit of either nibble, and some that share one.
    static const uint8_t SYMBOLS[][3] = {
        {'a', 'b', 'c'}, {0x11, 0x91, 0x19}, {0, 255, 16}, {'0', '8', 'p'}};
    plain_context *contexts = room(sizeof(*contexts) << CONTEXTS_SEEN_LOG2);
    static uint8_t drawn[REEF_CONTEXTS][17][REEF_SLOT_NODES];
    for (size_t s = 0; s < sizeof(SYMBOLS) / sizeof(*SYMBOLS); s++) {
        uint64_t seed = 1149 + s;
        trees_count count = {0};
        size_t trusted = 0, forgotten = 0;
        memset(contexts, 0, sizeof(*contexts) << CONTEXTS_SEEN_LOG2);
        reef_memory *memory = new_memory(REEF_MEMORY_BYTES_MIN);
        reef_predictor *p = &memory->predictor;
        for (size_t n = 0; n < TREES_TEXT; n++) {
            // The third symbol is rare, so that pairs get old before they turn into trees.
            uint8_t byte = SYMBOLS[s][draw_int(&seed, 0, 30) == 0 ? 2 : draw_int(&seed, 0, 3) == 0];
            if (n % 128 < 32) byte = SYMBOLS[s][0]; // runs, which are trusted
            plain_context *of[REEF_CONTEXTS];
            drawn_trees(p, drawn);
            for (size_t i = 0; i < REEF_CONTEXTS; i++) {
                of[i] = plain_find(contexts, reef_cell_name(p->hashes[i]));
                check_context(p, i, of[i], drawn[i], &count);
            }
            learn(memory, &byte, 1, NULL, NULL);
            // A byte that was trusted and came teaches no tree, only cells.
            bool cells_only = p->expected_byte.trusted;
            for (size_t i = 0; i < REEF_CONTEXTS; i++) {
                if (cells_only && p->kinds[i] == REEF_CONTEXT_TREES) continue;
                if (!has_cell(p, i)) continue; // its line was crowded
                forgotten += forgets_a_byte(of[i], i, byte);
                learn_context(of[i], i, byte);
            }
            trusted += cells_only;
        }
        print_message("%zu new ones, %zu pairs, %zu trees, %zu of others, %zu forgotten\n",
                      count.fresh, count.pairs, count.trees, count.mistaken, forgotten);
        assert_true(trusted > 100 && trusted < TREES_TEXT);
        assert_true(count.fresh > 1000 && count.pairs > 1000 && count.trees > 1000);
        assert_true(count.mistaken * 100 <= count.trees);
        assert_true(forgotten > 0);
        reef_memory_free(memory);
    }
}

// A text whose contexts of three bytes come again and those of eight mostly do not, in a memory
// that has room for a half of them, and then bytes that nothing foresees.
PLAIN_TEST(contexts_that_come_again_keep_their_cells) {
    enum { LEARNED = 24000, NOISE = 200000 };
    static uint8_t text[LEARNED];
    uint64_t words = 101, seed = 163;
    draw_text(&words, LEARNED, text);
    double shares[REEF_MEMORY_INPUTS_MAX], hits[REEF_MEMORY_INPUTS_MAX];
    reef_memory *memory = new_memory(REEF_MEMORY_BYTES_MIN);
    learn(memory, text, LEARNED, NULL, NULL);
    for (int noisy = 0; noisy < 2; noisy++) {
        for (size_t i = 0; noisy && i < NOISE; i++) {
            uint8_t byte = (uint8_t)draw_bits(&seed);
            learn(memory, &byte, 1, NULL, NULL);
        }
        reef_memory_session *session = open_session(memory, REEF_READ_ALONE);
        must(reef_memory_session_read(session, text, LEARNED, NULL, NULL, &why));
        reef_memory_session_inputs(session, shares, hits);
        reef_memory_session_close(session);
        print_message("of three bytes %.3f are known, of eight %.3f\n", hits[REEF_CONTEXT_ORDER_3],
                      hits[REEF_CONTEXT_ORDER_8]);
        // Where cells go to all alike, 0.75 are.
        assert_true(hits[REEF_CONTEXT_ORDER_3] > (noisy ? 0.80 : 0.87));
        assert_true(hits[REEF_CONTEXT_ORDER_8] > 0.05); // some are sampled
    }
    reef_memory_free(memory);
}

RUN_TESTS
