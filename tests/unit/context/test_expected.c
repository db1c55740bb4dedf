// The expected byte: when it is trusted, what its bits say, and what a contradiction costs.
#include "context_memory.h"
#include "draw.h"
#include "expected_byte.h"
#include "memory_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 500, TEXT = 24000 };

// A block of letters that comes again and again; one byte in a hundred is another one.
static void draw_text(uint64_t seed, uint8_t *text) {
    for (size_t i = 0; i < BLOCK; i++) text[i] = (uint8_t)draw_int(&seed, 'a', 'z');
    for (size_t i = BLOCK; i < TEXT; i++) text[i] = text[i - BLOCK];
    for (size_t i = BLOCK; i < TEXT; i++)
        if (draw_int(&seed, 0, 99) == 0) text[i] = (uint8_t)draw_int(&seed, 0, 255);
}

static reef_memory *memory_of(uint64_t seed, uint8_t *text) {
    reef_memory *memory = new_memory(REEF_MEMORY_BYTES_MIN);
    draw_text(seed, text);
    learn(memory, text, TEXT, NULL, NULL);
    return memory;
}

PLAIN_TEST(what_repeats_is_trusted_and_costs_little) {
    static uint8_t text[TEXT];
    uint64_t seed = 7;
    draw_text(seed, text);
    reef_memory *memory = new_memory(REEF_MEMORY_BYTES_MIN);
    const reef_expected_byte *expected = &memory->predictor.expected_byte;
    size_t trusted = 0, right = 0, of = 0;
    double bits = 0.0;
    for (size_t i = 0; i < TEXT; i++) {
        float cost = 0.0f;
        bool repeats = i >= TEXT / 2 && text[i] == text[i - BLOCK];
        learn(memory, text + i, 1, NULL, &cost);
        // In the first block nothing is known that could be trusted.
        if (i < BLOCK) assert_false(expected->trusted);
        if (!repeats) continue;
        of++;
        trusted += expected->trusted; // it agreed to the end
        right += expected->byte == text[i];
        bits += (double)cost;
    }
    print_message("%zu of %zu trusted, %zu right, %.3f bits each\n", trusted, of, right,
                  bits / (double)of);
    assert_true(trusted * 10 > of * 9 && right * 20 > of * 19);
    assert_true(bits < 0.2 * (double)of);
    reef_memory_free(memory);
}

// Reads up to the first byte that is trusted, and predicts its first bit. Returns how many were
// read.
static size_t read_to_trusted(reef_memory_session *session, const uint8_t *text) {
    const reef_predictor *p = (const reef_predictor *)(const void *)session; // its first field
    uint32_t one = 0;
    for (size_t i = 0; i < TEXT; i++) {
        must(reef_memory_session_predict(session, &one, &why));
        if (p->expected_byte.trusted) return i;
        must(reef_memory_session_read(session, text + i, 1, NULL, NULL, &why));
    }
    fail_msg("no byte is trusted");
    return 0;
}

PLAIN_TEST(its_bits_make_the_probability_of_the_byte) {
    static uint8_t text[TEXT];
    reef_memory *memory = memory_of(11, text);
    reef_memory_session *session = open_session(memory, REEF_READ_ADAPTING);
    const reef_predictor *p = (const reef_predictor *)(const void *)session;
    read_to_trusted(session, text);
    uint8_t byte = (uint8_t)p->expected_byte.byte;
    double chance = 1.0, whole = p->expected_byte.probability / 65536.0;
    for (int i = 7; i >= 0; i--) {
        uint32_t one = 0;
        int bit = byte >> i & 1;
        must(reef_memory_session_predict(session, &one, &why));
        assert_true(p->expected_byte.trusted);
        chance *= (bit ? one : 65536 - one) / 65536.0;
        reef_memory_session_update(session, bit);
    }
    assert_true(fabs(chance - whole) < 10.0 / 65536.0); // each bit is rounded
    reef_memory_session_close(session);
    reef_memory_free(memory);
}

// Whichever bit contradicts: each byte costs what the distribution said of it.
PLAIN_TEST(every_other_byte_costs_what_was_said_of_it) {
    static uint8_t text[TEXT];
    reef_memory *memory = memory_of(13, text);
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        reef_memory_session *session = open_session(memory, reading);
        double chances[256], sum = 0.0;
        size_t before = read_to_trusted(session, text);
        uint8_t expected =
            (uint8_t)((const reef_predictor *)(const void *)session)->expected_byte.byte;
        for (int byte = 0; byte < 256; byte++) {
            float bits = 0.0f;
            uint8_t at = (uint8_t)byte;
            reef_memory_session_reset(session);
            must(reef_memory_session_read(session, text, before, NULL, NULL, &why));
            must(reef_memory_session_distribution(session, NULL, 0, chances, &why));
            must(reef_memory_session_read(session, &at, 1, NULL, &bits, &why));
            assert_true(fabs((double)bits + log2(chances[byte])) < 1e-5);
        }
        for (size_t b = 0; b < 256; b++) sum += chances[b];
        assert_true(fabs(sum - 1.0) < 1e-9 && chances[expected] > 0.8);
        reef_memory_session_close(session);
    }
    reef_memory_free(memory);
}

// A net has the trees of a trusted byte looked at, and changes nothing of them.
PLAIN_TEST(a_net_changes_nothing_of_what_trusted_bytes_teach) {
    static uint8_t text[TEXT];
    static reef_net_prediction net[TEXT];
    uint64_t seed = 17;
    reef_memory *alone = memory_of(19, text), *with_net = new_memory(REEF_MEMORY_BYTES_MIN);
    for (size_t i = 0; i < TEXT; i++) {
        net[i].tokens = draw_int(&seed, 0, 2) == 0 ? 0 : 9;
        for (int b = 0; b < 8; b++) net[i].odds[b] = (int16_t)draw_int(&seed, -1000, 1000);
    }
    learn(with_net, text, TEXT, net, NULL);
    size_t count = reef_memory_part_count();
    reef_memory_part *a = room(count * sizeof(*a)), *b = room(count * sizeof(*b));
    reef_memory_parts(alone, a);
    reef_memory_parts(with_net, b);
    for (size_t i = 0; i < count; i++) {
        // The header has the net's size.
        if (strcmp(a[i].name, "net") == 0 || strcmp(a[i].name, "header") == 0) continue;
        assert_int_equal(a[i].bytes, b[i].bytes);
        assert_memory_equal(a[i].data, b[i].data, a[i].bytes);
    }
    reef_memory_free(alone);
    reef_memory_free(with_net);
}

// Elects a byte where of the contexts only these two believe in theirs, equally.
static int elected_by(reef_predictor *p, size_t one, size_t other) {
    for (size_t k = 0; k < p->known_count; k++)
        for (size_t s = 0; s < REEF_EXPECTED_STATES; s++)
            p->state->expected.contexts[p->known[k]][s] =
                reef_chance_of(k == one || k == other ? 50000 : 1000);
    for (size_t k = 0; k < REEF_MATCHES; k++) p->followed[k] = -1;
    reef_expected_find(p);
    return p->expected_byte.byte;
}

PLAIN_TEST(of_equal_votes_the_shorter_context_wins) {
    static uint8_t text[TEXT];
    reef_memory *memory = memory_of(23, text);
    size_t ties = 0;
    for (size_t before = BLOCK; before < BLOCK + 20; before++) {
        reef_memory_session *session = open_session(memory, REEF_READ_ADAPTING);
        reef_predictor *p = (reef_predictor *)(void *)session;
        uint32_t one = 0;
        must(reef_memory_session_read(session, text, before, NULL, NULL, &why));
        must(reef_memory_session_predict(session, &one, &why));
        for (size_t k = 0; k < p->known_count; k++)
            for (size_t longer = k + 1; longer < p->known_count; longer++) {
                int byte = elected_by(p, k, k);
                if (byte == elected_by(p, longer, longer)) continue;
                assert_int_equal(elected_by(p, k, longer), byte);
                ties++;
            }
        reef_memory_session_close(session);
    }
    print_message("%zu ties\n", ties);
    assert_true(ties > 20);
    reef_memory_free(memory);
}

RUN_TESTS
