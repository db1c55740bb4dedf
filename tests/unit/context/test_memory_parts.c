// A memory that is stored and restored learns on to the same bits; what was not stored by a memory
// is refused or does no harm.
#include "context_memory.h"
#include "memory_internal.h"
#include "reef_byte_order.h"
#include "reef_context.h"

#include "draw.h"
#include "draw_text.h"
#include "test.h"

enum { PARTS_MAX = 16, TEXT = 120000 };

typedef struct stored {
    size_t count;
    const char *name[PARTS_MAX];
    uint8_t *data[PARTS_MAX]; // NULL where there are no bytes
    size_t bytes[PARTS_MAX];
    uint8_t *text; // full blocks
    bool lends;    // them
    size_t lost;   // 1 + the one that is lost
    size_t fails;  // number of the fetch that fails; 0: none
    size_t fetches;
} stored;

static stored store(reef_memory *memory) {
    reef_memory_part parts[PARTS_MAX];
    stored s = {.count = reef_memory_part_count(), .text = copy_text_blocks(memory)};
    assert_true(s.count <= PARTS_MAX);
    reef_memory_parts(memory, parts);
    assert_string_equal(parts[0].name, "header");
    for (size_t i = 0; i < s.count; i++) {
        s.name[i] = parts[i].name;
        s.bytes[i] = parts[i].bytes;
        if (parts[i].bytes == 0) continue;
        s.data[i] = malloc(parts[i].bytes);
        assert_non_null(s.data[i]);
        memcpy(s.data[i], parts[i].data, parts[i].bytes);
    }
    return s;
}

static void stored_release(stored *s) {
    for (size_t i = 0; i < s->count; i++) free(s->data[i]);
    free(s->text);
}

static reef_status fetch(
    void *context, const char *name, void *into, size_t bytes, reef_error *err) {
    stored *s = context;
    if (++s->fetches == s->fails) return reef_fail(err, REEF_ERR_IO, "as the test wants it");
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->name[i], name) == 0) {
            if (s->bytes[i] != bytes)
                return reef_fail(err, REEF_ERR_CORRUPT, "part %s has another size", name);
            memcpy(into, s->data[i], bytes);
            return REEF_OK;
        }
    return reef_fail(err, REEF_ERR_NOT_FOUND, "no part %s", name);
}

static reef_status fetch_text(void *context,
                              size_t block,
                              const uint8_t *name,
                              const uint8_t **out,
                              bool *lent,
                              reef_error *err) {
    stored *s = context;
    (void)name;
    if (++s->fetches == s->fails) return reef_fail(err, REEF_ERR_IO, "as the test wants it");
    *lent = s->lends;
    if (block + 1 != s->lost) *out = s->text + block * REEF_TEXT_BLOCK_BYTES;
    return REEF_OK;
}

static reef_status try_restore(reef_memory **out, stored *s) {
    return reef_memory_restore(out, &(reef_memory_reader){fetch, fetch_text, s}, &why);
}

static reef_memory *restore(stored *s) {
    reef_memory *memory = NULL;
    must(try_restore(&memory, s));
    return memory;
}

static reef_memory *stored_and_restored(reef_memory *memory) {
    stored s = store(memory);
    reef_memory *copy = restore(&s);
    stored_release(&s);
    reef_memory_free(memory);
    return copy;
}

// ---- the same memory ----------------------------------------------------------------------------

static void check_cuts(uint64_t bytes_max, size_t count, int cuts, bool with_net, uint64_t seed) {
    static uint8_t text[TEXT];
    static float plain[TEXT], bits[TEXT];
    static reef_net_prediction nets[TEXT];
    const reef_net_prediction *net = with_net ? nets : NULL;
    draw_text(&seed, count, text);
    draw_useful_net(&seed, text, count, nets);
    reef_memory *a = new_memory(bytes_max), *b = new_memory(bytes_max);
    learn(a, text, count, net, plain);
    for (size_t at = 0; at < count;) {
        // At any byte, and where tables grow: before the first byte of a step, and behind it.
        size_t next = at + (size_t)draw_int(&seed, 0, (int)(2 * count) / cuts);
        if (draw_int(&seed, 0, 1))
            next = (next + 4095) / 4096 * 4096 + (size_t)draw_int(&seed, 0, 1);
        if (next > count) next = count;
        b = stored_and_restored(b);
        assert_int_equal(reef_memory_learned_bytes(b), at);
        learn(b, text + at, next - at, net != NULL ? net + at : NULL, bits + at);
        at = next;
    }
    b = stored_and_restored(b);
    assert_memory_equal(plain, bits, count * sizeof(*bits));
    assert_same_parts(a, b);
    // What is said of them agrees as well.
    reef_memory_stats left, right;
    reef_memory_read_stats(a, &left);
    reef_memory_read_stats(b, &right);
    assert_memory_equal(&left, &right, sizeof(left));
    reef_memory_free(a);
    reef_memory_free(b);
}

PLAIN_TEST(a_restored_memory_learns_on_to_the_same_bits) {
    check_cuts(REEF_MEMORY_BYTES_MIN, TEXT, 12, false, 311); // grows to its bound
    check_cuts(0, TEXT / 6, 8, false, 313);
    check_cuts(0, TEXT / 6, 8, true, 317);
    check_cuts(0, 60, 20, true, 331);
}

// Of more than two blocks the oldest is forgotten.
PLAIN_TEST(a_text_that_has_forgotten_some_is_kept) {
    enum { PIECE = 50000, PIECES = 6 };
    static uint8_t text[PIECE];
    static float plain[PIECE], bits[PIECE];
    uint64_t seed = 337;
    reef_memory *a = NULL;
    const reef_memory_options options = {.bytes_max = REEF_MEMORY_BYTES_MIN, .text_max = 256 << 10};
    must(reef_memory_new(&a, &options, &why));
    for (int piece = 0; piece < PIECES; piece++) {
        draw_text(&seed, PIECE, text);
        learn(a, text, PIECE, NULL, NULL);
    }
    stored s = store(a);
    s.lends = true;
    reef_memory *b = restore(&s);
    assert_true(a->predictor.text.begin > 0);
    learn(a, text, PIECE, NULL, plain);
    learn(b, text, PIECE, NULL, bits);
    assert_memory_equal(plain, bits, sizeof(bits));
    assert_same_parts(a, b);
    stored_release(&s);
    reef_memory_free(a);
    reef_memory_free(b);
}

PLAIN_TEST(sessions_of_a_restored_memory_read_the_same_bits) {
    enum { COUNT = 8000, READ = 2000 };
    static uint8_t text[COUNT + READ];
    static float bits[2][READ];
    uint64_t seed = 347;
    draw_text(&seed, sizeof(text), text);
    reef_memory *memory = new_memory(0);
    learn(memory, text, COUNT, NULL, NULL);
    for (int k = 0; k < 2; k++) {
        reef_memory_session *session = NULL;
        must(reef_memory_session_open(&session, memory, REEF_READ_ADAPTING, &why));
        must(reef_memory_session_read(session, text + COUNT, READ, NULL, bits[k], &why));
        reef_memory_session_close(session);
        memory = stored_and_restored(memory);
    }
    assert_memory_equal(bits[0], bits[1], sizeof(bits[0]));
    reef_memory_free(memory);
}

// ---- failures -----------------------------------------------------------------------------------

static reef_memory *small_memory(uint64_t bytes_max, uint64_t seed, size_t count) {
    static uint8_t text[TEXT];
    static reef_net_prediction net[TEXT];
    reef_memory *memory = new_memory(bytes_max);
    draw_text(&seed, count, text);
    draw_useful_net(&seed, text, count, net);
    learn(memory, text, count, net, NULL);
    return memory;
}

PLAIN_TEST(what_a_fetch_returns_is_returned) {
    reef_memory *memory = small_memory(0, 349, 3000), *copy = NULL;
    stored s = store(memory);
    assert_null(s.text);
    const size_t fetches = s.count - 1; // no names of blocks
    for (s.fails = 1; s.fails <= fetches; s.fails++) {
        copy = memory; // is set to NULL whatever happens
        s.fetches = 0;
        assert_int_equal(try_restore(&copy, &s), REEF_ERR_IO);
        assert_null(copy);
        assert_string_equal(why.message, "as the test wants it");
    }
    s.fails = s.fetches = 0;
    copy = restore(&s);
    assert_int_equal(s.fetches, fetches); // each once
    reef_memory_free(copy);
    stored_release(&s);
    reef_memory_free(memory);
}

static void must_be_refused(stored *s, reef_status status, const char *word) {
    reef_memory *memory = NULL;
    assert_int_equal(try_restore(&memory, s), status);
    assert_null(memory);
    if (strstr(why.message, word) == NULL) fail_msg("\"%s\" without \"%s\"", why.message, word);
}

static size_t part_of(const stored *s, const char *name) {
    size_t i = 0;
    while (strcmp(s->name[i], name) != 0) i++;
    return i;
}

PLAIN_TEST(values_that_no_memory_has_are_refused) {
    reef_memory *memory = small_memory(REEF_MEMORY_BYTES_MIN, 353, 3000);
    stored s = store(memory);
    uint8_t header[REEF_MEMORY_HEADER_BYTES], *at = s.data[0];
    assert_int_equal(s.bytes[0], REEF_MEMORY_HEADER_BYTES);
    memcpy(header, at, sizeof(header));
    static const struct {
        size_t offset;
        uint32_t value;
        reef_status status;
    } wrong[] = {
        {0, 1, REEF_ERR_CORRUPT},
        {4, 6, REEF_ERR_VERSION},
        {4, 8, REEF_ERR_VERSION},
        {8, 0, REEF_ERR_CORRUPT},
        {12, 16, REEF_ERR_CORRUPT},  // bytes_max
        {23, 255, REEF_ERR_CORRUPT}, // learned bytes
        {24, 12, REEF_ERR_CORRUPT},
        {24, 21, REEF_ERR_CORRUPT},
        {24, 16, REEF_ERR_CORRUPT}, // more cells than their share
        {28, 0, REEF_ERR_CORRUPT},
        {28, 0x80000000, REEF_ERR_CORRUPT},
        {32, 7, REEF_ERR_CORRUPT},
        {36, 14, REEF_ERR_CORRUPT}, // more than its share
        {40, 1, REEF_ERR_CORRUPT},  // bytes of the mixer, of a net, of the text at most
        {44, 1, REEF_ERR_CORRUPT},
        {48, 1, REEF_ERR_CORRUPT},
        {52, 1, REEF_ERR_CORRUPT},
        {68, 1, REEF_ERR_CORRUPT}, // a line behind the end
        {76, 1, REEF_ERR_CORRUPT}, // the line above behind the line
        {84, 2, REEF_ERR_CORRUPT}, // has_letter
        {132, 1, REEF_ERR_CORRUPT},
        {160, 65536, REEF_ERR_CORRUPT}, // length, misses, follows of a match
        {164, 10, REEF_ERR_CORRUPT},
        {168, 2, REEF_ERR_CORRUPT},
        {172, 1, REEF_ERR_CORRUPT},
        {212, 1, REEF_ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        if (wrong[i].offset == 23)
            at[23] = 255;
        else
            reef_put_le32(at + wrong[i].offset, wrong[i].value);
        must_be_refused(&s, wrong[i].status, "header");
        memcpy(at, header, sizeof(header));
    }
    const struct {
        const char *name;
        size_t offset;
    } bytes[] = {
        {"cells", 64 * 100 + 63},
        {"cells", 54},
        {"trees", 64 * 77 + 5},
        {"mixer", 4 * 256 * (REEF_CONTEXTS + 1) + 1024 + 9},
        {"net", 7},
    };
    for (size_t i = 0; i < sizeof(bytes) / sizeof(*bytes); i++) {
        uint8_t *byte = s.data[part_of(&s, bytes[i].name)] + bytes[i].offset, before = *byte;
        *byte = 254; // no history, no hand
        must_be_refused(&s, REEF_ERR_CORRUPT, bytes[i].name);
        *byte = before;
    }
    reef_memory_free(restore(&s));
    stored_release(&s);
    reef_memory_free(memory);
}

// What differs from it is stored, so it must be for ever what it was.
PLAIN_TEST(what_a_mixer_begins_with_is_part_of_the_format) {
    static reef_mix_state first;
    uint64_t sum = 0xCBF29CE484222325ull; // FNV-1a
    reef_mix_state_init(&first);
    const uint8_t *bytes = (const uint8_t *)&first;
    for (size_t i = 0; i < sizeof(first); i++) sum = (sum ^ bytes[i]) * 0x100000001B3ull;
    assert_true(sum == 0xD92D9BD4CD092173ull);
}

// So that the mixer of a young memory takes no space.
PLAIN_TEST(a_mixer_is_stored_as_what_differs_from_a_new_one) {
    reef_memory *memory = new_memory(REEF_MEMORY_BYTES_MIN);
    stored s = store(memory);
    size_t mixer = part_of(&s, "mixer");
    for (size_t i = 0; i < s.bytes[mixer]; i++) assert_int_equal(s.data[mixer][i], 0);
    reef_memory *copy = restore(&s);
    assert_memory_equal(copy->predictor.state, memory->predictor.state, s.bytes[mixer]);
    stored_release(&s);
    reef_memory_free(copy);
    reef_memory_free(memory);
}

PLAIN_TEST(flipped_bits_are_refused_or_do_no_harm) {
    enum { TRIALS = 60, COUNT = 4000 };
    static uint8_t text[COUNT];
    static reef_net_prediction net[COUNT];
    size_t refused = 0;
    uint64_t seed = 359;
    reef_memory *memory = small_memory(0, 367, 5000);
    stored s = store(memory);
    draw_text(&seed, COUNT, text);
    draw_useful_net(&seed, text, COUNT, net);
    for (size_t trial = 0; trial < TRIALS; trial++) {
        // One part at a time, so that one that is checked does not keep others from being read.
        size_t part = trial % s.count;
        if (s.bytes[part] == 0) continue;
        uint8_t *kept = copied(s.data[part], s.bytes[part]);
        // A few, or whole stretches of anything.
        int flips = draw_int(&seed, 1, 30), stretch = draw_int(&seed, 0, 2) == 0 ? 3000 : 1;
        if (part == 0) flips = 1;
        for (int k = 0; k < flips; k++) {
            size_t at = draw_bits(&seed) % s.bytes[part];
            for (int i = 0; part > 0 && i < stretch && at + (size_t)i < s.bytes[part]; i++)
                s.data[part][at + (size_t)i] ^= (uint8_t)(1u << draw_int(&seed, 0, 7));
            if (part == 0) s.data[0][at] ^= (uint8_t)(1u << draw_int(&seed, 0, 7));
        }
        reef_memory *copy = NULL;
        reef_status status = try_restore(&copy, &s);
        if (status == REEF_OK) {
            learn(copy, text, COUNT, trial % 2 ? net : NULL, NULL);
            reef_memory_free(copy);
        } else {
            assert_true(status == REEF_ERR_CORRUPT || status == REEF_ERR_VERSION);
            refused++;
        }
        memcpy(s.data[part], kept, s.bytes[part]);
    }
    print_message("%zu of %d refused\n", refused, TRIALS);
    assert_true(refused > TRIALS / 8 && refused < TRIALS * 3 / 4);
    stored_release(&s);
    reef_memory_free(memory);
}

// A block of text that is lost reads as zeros and has their name; all else is as it was.
PLAIN_TEST(a_lost_block_of_text_does_no_harm) {
    enum { ALL = 2 * REEF_TEXT_BLOCK_BYTES + 5000 };
    static const uint8_t zeros[REEF_TEXT_BLOCK_BYTES];
    uint8_t *text = room(ALL);
    uint64_t draw = 29;
    const uint8_t *name, *other;
    draw_text(&draw, ALL, text);
    reef_memory *memory = new_memory(0);
    learn(memory, text, ALL, NULL, NULL);
    stored s = store(memory);
    s.lost = 1;
    reef_memory *copy = restore(&s);
    assert_memory_equal(reef_memory_text_block(copy, 0, &name), zeros, sizeof(zeros));
    assert_non_null(reef_memory_text_block(memory, 0, &other));
    assert_true(memcmp(name, other, REEF_TEXT_NAME_BYTES) != 0);
    assert_memory_equal(reef_memory_text_block(copy, 1, &name), text + REEF_TEXT_BLOCK_BYTES,
                        REEF_TEXT_BLOCK_BYTES);
    assert_non_null(reef_memory_text_block(memory, 1, &other));
    assert_memory_equal(name, other, REEF_TEXT_NAME_BYTES);
    assert_null(reef_memory_text_block(copy, 2, &name));
    learn(copy, text, 3000, NULL, NULL);
    reef_memory_free(copy);
    stored_release(&s);
    reef_memory_free(memory);
}

// A memory copies the blocks that were lent to it when it is asked to.
PLAIN_TEST(what_is_lent_can_be_copied) {
    enum { ALL = 2 * REEF_TEXT_BLOCK_BYTES };
    static float plain[3000], bits[3000];
    uint8_t *text = room(ALL);
    uint64_t draw = 31;
    draw_text(&draw, ALL, text);
    reef_memory *a = new_memory(0);
    learn(a, text, ALL, NULL, NULL);
    stored s = store(a);
    s.lends = true;
    reef_memory *b = restore(&s);
    assert_true(reef_memory_bytes(b) + ALL == reef_memory_bytes(a));
    must(reef_memory_text_copy(b, &why));
    stored_release(&s);
    assert_true(reef_memory_bytes(b) == reef_memory_bytes(a));
    learn(a, text, 3000, NULL, plain);
    learn(b, text, 3000, NULL, bits);
    assert_memory_equal(plain, bits, sizeof(bits));
    reef_memory_free(a);
    reef_memory_free(b);
}

// As far as its bound reaches.
PLAIN_TEST(the_end_of_the_stream_is_kept_as_text) {
    enum { KEPT = 256 << 10, ALL = KEPT + 70000, BLOCK = REEF_TEXT_BLOCK_BYTES };
    uint8_t *text = room(ALL), *out = room(ALL);
    uint64_t draw = 3;
    for (size_t i = 0; i < ALL; i++) text[i] = (uint8_t)('a' + draw_bits(&draw) % 8);
    reef_memory *memory = NULL;
    const reef_memory_options options = {.bytes_max = REEF_MEMORY_BYTES_MIN, .text_max = KEPT};
    must(reef_memory_new(&memory, &options, &why));
    assert_int_equal(reef_memory_text(memory, out, ALL), 0);
    for (size_t at = 0, count; at < ALL; at += count) {
        count = ALL - at < 70000 ? ALL - at : 70000;
        learn(memory, text + at, count, NULL, NULL);
        size_t end = at + count, blocks = (end + BLOCK - 1) / BLOCK,
               kept = end <= KEPT ? end : end - (blocks * BLOCK - KEPT);
        assert_int_equal(reef_memory_text(memory, NULL, 0), kept);
        assert_int_equal(reef_memory_text(memory, out, ALL), kept);
        assert_memory_equal(out, text + end - kept, kept);
        assert_int_equal(reef_memory_text(memory, out, 1000), 1000);
        assert_memory_equal(out, text + end - 1000, 1000);
    }
    reef_memory_free(memory);
}

static const uint8_t *view_part(const stored *s, const char *name, size_t *bytes) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->name[i], name) == 0) {
            *bytes = s->bytes[i];
            return s->data[i];
        }
    fail_msg("no part %s", name);
    return NULL;
}

PLAIN_TEST(facts_of_stored_parts_are_those_of_the_memory) {
    uint64_t seed = 5;
    reef_memory_stats whole, facts;
    uint8_t *text = room(TEXT);
    draw_text(&seed, TEXT, text);
    reef_memory *memory = new_memory(REEF_MEMORY_BYTES_MIN);
    learn(memory, text, TEXT, NULL, NULL);
    reef_memory_read_stats(memory, &whole);
    stored s = store(memory);
    size_t header_bytes, cells_bytes, trees_bytes;
    const uint8_t *header = view_part(&s, "header", &header_bytes),
                  *cells = view_part(&s, "cells", &cells_bytes),
                  *trees = view_part(&s, "trees", &trees_bytes);
    must(reef_memory_stored_stats(header, header_bytes, cells, cells_bytes, trees, trees_bytes,
                                  &facts, &why));
    assert_memory_equal(&facts, &whole, sizeof(whole));
    // A part of the tables is a fair sample of them.
    must(reef_memory_stored_stats(header, header_bytes, cells, cells_bytes / 4, trees,
                                  trees_bytes / 4, &facts, &why));
    double scale = (double)facts.cells_used / (double)whole.cells_used;
    assert_true(scale > 0.9 && scale < 1.1);
    scale = (double)facts.trees_used / (double)whole.trees_used;
    assert_true(scale > 0.9 && scale < 1.1);
    // Without them nothing is said to be in use.
    must(reef_memory_stored_stats(header, header_bytes, NULL, 0, NULL, 0, &facts, &why));
    assert_int_equal(facts.cells, whole.cells);
    assert_int_equal(facts.cells_used, 0);
    assert_int_equal(
        reef_memory_stored_stats(header, header_bytes - 1, NULL, 0, NULL, 0, &facts, &why),
        REEF_ERR_CORRUPT);
    stored_release(&s);
    reef_memory_free(memory);
}

PLAIN_TEST(inputs_are_counted_while_it_learns_and_never_stored) {
    double shares[REEF_MEMORY_INPUTS_MAX], hits[REEF_MEMORY_INPUTS_MAX], sum = 0.0;
    uint64_t seed = 6;
    uint8_t *text = room(TEXT);
    draw_text(&seed, TEXT, text);
    reef_memory *memory = new_memory(REEF_MEMORY_BYTES_MIN);
    reef_memory_inputs(memory, shares, hits);
    for (size_t i = 0; i < reef_memory_input_count(); i++)
        assert_true(shares[i] == 0.0 && hits[i] == 0.0);
    learn(memory, text, TEXT, NULL, NULL);
    reef_memory_inputs(memory, shares, hits);
    for (size_t i = 0; i < reef_memory_input_count(); i++) {
        bool net = strcmp(reef_memory_input_name(i), "net") == 0;
        if (net) assert_true(shares[i] == 0.0 && hits[i] == 0.0);
        assert_true(shares[i] >= 0.0 && hits[i] >= 0.0 && hits[i] <= 1.0);
        sum += shares[i];
    }
    assert_true(sum > 0.999 && sum < 1.001);
    memory = stored_and_restored(memory);
    reef_memory_inputs(memory, shares, hits);
    for (size_t i = 0; i < reef_memory_input_count(); i++) assert_true(shares[i] == 0.0);
    reef_memory_free(memory);
}

RUN_TESTS
