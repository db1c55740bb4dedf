// A net's prediction as an input of the mixer, whole distributions, and bytes that pass by.
#include "context_memory.h"
#include "memory_internal.h"
#include "reef_context.h"
#include "reef_kernels.h"

#include "draw.h"
#include "draw_text.h"
#include "test.h"

#include <math.h>

enum { LEARNED = 16000, READ = 4000 };

static uint8_t learned[LEARNED], text[READ];
static void read_bytes(reef_memory_session *session,
                       const uint8_t *bytes,
                       size_t count,
                       const reef_net_prediction *net,
                       float *bits) {
    must(reef_memory_session_read(session, bytes, count, net, bits, &why));
}

static double mean_of(const float *bits, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += (double)bits[i];
    return sum / (double)count;
}

static reef_memory *learned_memory(void) {
    reef_memory *memory = new_memory(0);
    learn(memory, learned, LEARNED, NULL, NULL);
    return memory;
}

static int set_up(void **state) {
    static uint8_t both[LEARNED + READ];
    uint64_t seed = 211;
    draw_text(&seed, sizeof(both), both);
    memcpy(learned, both, LEARNED);
    memcpy(text, both + LEARNED, READ);
    return 0;
}

// Probabilities of the 256 bytes: of any size, some of them 0; of every fourth all the same.
static void draw_probabilities(uint64_t *seed, float *probabilities) {
    float sum = 0.0f;
    for (size_t i = 0; i < 256; i++) {
        int kind = draw_int(seed, 0, 9);
        float drawn = (float)draw_int(seed, 1, 1000);
        probabilities[i] = kind == 0 ? 0.0f : kind == 1 ? drawn * 1e-9f : drawn;
        sum += probabilities[i];
    }
    for (size_t i = 0; i < 256; i++) probabilities[i] /= sum;
}

// ---- the prediction -----------------------------------------------------------------------------

PLAIN_TEST(the_odds_of_a_byte_are_those_of_sums_of_halves) {
    static float probabilities[256];
    uint64_t seed = 223;
    for (int time = 0; time < 200; time++) {
        uint8_t byte = (uint8_t)draw_bits(&seed);
        reef_net_prediction net;
        draw_probabilities(&seed, probabilities);
        reef_net_predict_byte(probabilities, byte, 77, &net);
        assert_int_equal(net.tokens, 77);
        for (int bit = 0; bit < 8; bit++) {
            double sums[2] = {0, 0};
            for (int i = 0; i < 256; i++)
                if (i >> (8 - bit) == byte >> (8 - bit))
                    sums[i >> (7 - bit) & 1] += (double)probabilities[i];
            double odds = 256.0 * log(sums[1] / sums[0]); // may be infinite
            if (odds > REEF_ODDS_MAX) odds = REEF_ODDS_MAX;
            if (odds < -REEF_ODDS_MAX) odds = -REEF_ODDS_MAX;
            if (sums[0] + sums[1] == 0.0) odds = 0.0;
            assert_true(fabs(net.odds[bit] - odds) <= 0.5001);
        }
    }
}

PLAIN_TEST(numbers_that_are_no_probabilities_say_nothing) {
    static float probabilities[256];
    const float wrong[] = {NAN, INFINITY, -1.0f, 0.0f};
    for (size_t k = 0; k < sizeof(wrong) / sizeof(*wrong); k++) {
        reef_net_prediction net;
        for (size_t i = 0; i < 256; i++) probabilities[i] = wrong[k];
        reef_net_predict_byte(probabilities, 'a', 1, &net);
        for (int bit = 0; bit < 8; bit++) assert_int_equal(net.odds[bit], 0);
    }
}

// What a net says that gives each bit of the byte the chance `right` with luck `luck` of 1000.
static void draw_net(uint64_t *seed,
                     const uint8_t *bytes,
                     size_t count,
                     int16_t odds,
                     int luck,
                     reef_net_prediction *net) {
    for (size_t i = 0; i < count; i++) {
        net[i].tokens = 64;
        for (int bit = 0; bit < 8; bit++) {
            bool one = bytes[i] >> (7 - bit) & 1, lucky = draw_int(seed, 0, 999) < luck;
            net[i].odds[bit] = (int16_t)(one == lucky ? odds : -odds);
        }
    }
}

PLAIN_TEST(a_net_that_is_right_is_trusted_soon) {
    enum { SOON = 400 };
    static uint8_t noise[READ];
    static reef_net_prediction net[READ];
    static float bits[READ];
    uint64_t seed = 227;
    reef_memory *memory = learned_memory();
    // Bytes that the memory knows nothing of; the net gives every bit that comes 0.9.
    for (size_t i = 0; i < READ; i++) noise[i] = (uint8_t)draw_bits(&seed);
    draw_net(&seed, noise, READ, (int16_t)(256.0 * log(9.0)), 900, net);
    reef_memory_session *session = open_session(memory, REEF_READ_ADAPTING);
    read_bytes(session, noise, READ, net, bits);
    double holds = 8.0 * -(0.9 * log2(0.9) + 0.1 * log2(0.1)), later = mean_of(bits + SOON, SOON);
    double last = mean_of(bits + READ / 2, READ / 2);
    print_message("%.3f bits, then %.3f, at last %.3f, where %.3f are held\n", mean_of(bits, SOON),
                  later, last, holds);
    assert_true(later < holds + 0.4 && last < holds + 0.2);
    reef_memory_session_close(session);
    // Learned, the trust is the memory's.
    learn(memory, noise, READ, net, NULL);
    draw_net(&seed, text, READ, (int16_t)(256.0 * log(9.0)), 900, net);
    session = open_session(memory, REEF_READ_ADAPTING);
    read_bytes(session, text, READ, net, bits);
    assert_true(mean_of(bits, SOON) < holds);
    reef_memory_session_close(session);
    reef_memory_free(memory);
}

PLAIN_TEST(a_net_that_knows_nothing_costs_little) {
    static reef_net_prediction net[READ];
    static float with[READ], without[READ];
    uint64_t seed = 229;
    reef_memory *memory = learned_memory();
    for (int kind = 0; kind < 2; kind++) {
        draw_net(&seed, text, READ, kind == 0 ? 0 : 500, 500, net);
        reef_memory_session *session = open_session(memory, REEF_READ_ADAPTING);
        read_bytes(session, text, READ, NULL, without);
        reef_memory_session_reset(session);
        read_bytes(session, text, READ, net, with);
        reef_memory_session_close(session);
        print_message("%.4f bits without, %.4f with\n", mean_of(without, READ),
                      mean_of(with, READ));
        // The first bytes pay for finding it out.
        size_t half = READ / 2;
        assert_true(mean_of(with + half, half) < mean_of(without + half, half) * 1.02);
    }
    reef_memory_free(memory);
}

// The layer with a net lies above: below it everything is as if there were none.
PLAIN_TEST(a_memory_learns_the_same_with_a_net_and_without) {
    enum { PARTS_MAX = 16 };
    static reef_net_prediction net[READ];
    static float with[READ], without[READ];
    reef_memory_part left[PARTS_MAX], right[PARTS_MAX];
    uint64_t seed = 233;
    draw_net(&seed, text, READ, 700, 700, net);
    reef_memory *a = learned_memory(), *b = learned_memory();
    assert_null(a->predictor.net);
    for (int time = 0; time < 2; time++) { // the second time the net's bytes are known
        learn(a, text, READ, net, with);
        learn(b, text, READ, NULL, without);
        assert_memory_not_equal(with, without, sizeof(with));
        assert_int_equal(a->predictor.net->bytes, (time + 1) * READ);
    }
    reef_memory_parts(a, left);
    reef_memory_parts(b, right);
    for (size_t i = 1; i < reef_memory_part_count(); i++) // the header has the size of "net"
        if (strcmp(left[i].name, "net") != 0) {
            assert_int_equal(left[i].bytes, right[i].bytes);
            assert_memory_equal(left[i].data, right[i].data, left[i].bytes);
        }
    // And the layer above learns from its own bytes alone.
    reef_net_state *before = copied(a->predictor.net, sizeof(*before));
    learn(a, text, READ, NULL, with);
    learn(b, text, READ, NULL, without);
    assert_memory_equal(with, without, sizeof(with));
    assert_memory_equal(before, a->predictor.net, sizeof(*before));
    reef_memory_free(a);
    reef_memory_free(b);
}

PLAIN_TEST(a_layer_begins_the_same_in_any_memory) {
    reef_memory *memory = learned_memory();
    reef_net_state *a = room(sizeof(*a)), *b = room(sizeof(*b));
    memset(a, 0, sizeof(*a));
    memset(b, 0xA5, sizeof(*b));
    reef_net_state_init(a, memory->predictor.state);
    reef_net_state_init(b, memory->predictor.state);
    assert_memory_equal(a, b, sizeof(*a));
    reef_memory_free(memory);
}

PLAIN_TEST(predictions_without_tokens_are_none) {
    static reef_net_prediction net[READ];
    static float plain[READ], bits[READ];
    uint64_t seed = 239;
    draw_net(&seed, text, READ, 700, 700, net);
    for (size_t i = 0; i < READ; i++) net[i].tokens = 0;
    reef_memory *a = learned_memory(), *b = learned_memory();
    learn(a, text, READ, NULL, plain);
    learn(b, text, READ, net, bits);
    assert_memory_equal(plain, bits, sizeof(bits));
    assert_null(b->predictor.net);
    reef_memory_free(a);
    reef_memory_free(b);
}

PLAIN_TEST(any_odds_and_tokens_are_taken) {
    static reef_net_prediction net[READ];
    static float bits[READ];
    uint64_t seed = 241;
    for (size_t i = 0; i < READ; i++) {
        net[i].tokens = (uint16_t)(draw_bits(&seed) >> draw_int(&seed, 0, 15));
        for (int bit = 0; bit < 8; bit++) net[i].odds[bit] = (int16_t)draw_bits(&seed);
    }
    net[0].odds[0] = INT16_MIN;
    reef_memory *memory = new_memory(0);
    learn(memory, text, READ, net, bits);
    for (size_t i = 0; i < READ; i++) assert_true(bits[i] > 0.0f && bits[i] <= 128.0f);
    reef_memory_free(memory);
}

PLAIN_TEST(every_kernel_gives_the_same_bits_with_a_net) {
    static reef_net_prediction net[READ];
    static float plain[READ], bits[READ];
    const char *const names[] = {"scalar", "avx2", "avx512"}, *before = reef_kernels_name();
    uint64_t seed = 251;
    draw_net(&seed, text, READ, 700, 800, net);
    for (size_t i = 0; i < READ; i += 3) net[i].tokens = 0; // in turns
    for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
        if (reef_kernels_choose(names[n], NULL) != REEF_OK) continue; // not on this CPU
        reef_memory *memory = new_memory(0);
        learn(memory, text, READ, net, n == 0 ? plain : bits);
        if (n > 0) assert_memory_equal(plain, bits, sizeof(bits));
        reef_memory_free(memory);
    }
    assert_int_equal(reef_kernels_choose(before, NULL), REEF_OK);
}

// A session that meets the first net does what the memory does that meets it.
PLAIN_TEST(a_session_and_its_memory_give_the_same_bits) {
    static reef_net_prediction net[READ];
    static float of_session[READ], again[READ], of_memory[READ];
    uint64_t seed = 257;
    draw_net(&seed, text, READ, 700, 800, net);
    for (int met = 0; met < 2; met++) {
        reef_memory *memory = learned_memory();
        if (met) learn(memory, text, READ, net, NULL);
        reef_memory_session *session = open_session(memory, REEF_READ_ADAPTING);
        read_bytes(session, text, READ, net, of_session);
        reef_memory_session_reset(session);
        read_bytes(session, text, READ, net, again);
        reef_memory_session_close(session);
        assert_memory_equal(of_session, again, sizeof(again));
        // Without what a new text knows nothing of: its position and its matches.
        reef_predictor_begin(&memory->predictor);
        learn(memory, text, READ, net, of_memory);
        assert_true(fabs(mean_of(of_session, READ) - mean_of(of_memory, READ)) < 0.02);
        session = open_session(memory, REEF_READ_FROZEN);
        read_bytes(session, text, READ, net, of_session);
        reef_memory_session_reset(session);
        read_bytes(session, text, READ / 2, net, again);
        read_bytes(session, text + READ / 2, READ / 2, net + READ / 2, again + READ / 2);
        assert_memory_equal(of_session, again, sizeof(again));
        reef_memory_session_close(session);
        reef_memory_free(memory);
    }
}

PLAIN_TEST(the_net_is_an_input_with_a_name_a_share_and_hits) {
    enum { INPUTS_MAX = 64 };
    static reef_net_prediction net[READ];
    double shares[INPUTS_MAX], hits[INPUTS_MAX];
    size_t count = reef_memory_input_count(), at = 0;
    uint64_t seed = 263;
    assert_true(count <= INPUTS_MAX);
    while (at < count && strcmp(reef_memory_input_name(at), "net") != 0) at++;
    assert_true(at < count);
    reef_memory *memory = learned_memory();
    reef_memory_session *session = open_session(memory, REEF_READ_ADAPTING);
    read_bytes(session, text, READ, NULL, NULL);
    reef_memory_session_inputs(session, shares, hits);
    assert_true(shares[at] == 0.0 && hits[at] == 0.0);
    reef_memory_session_reset(session);
    draw_net(&seed, text, READ, 900, 980, net);
    read_bytes(session, text, READ / 2, NULL, NULL);
    read_bytes(session, text + READ / 2, READ / 2, net + READ / 2, NULL);
    reef_memory_session_inputs(session, shares, hits);
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += shares[i];
    assert_true(shares[at] > 0.01 && fabs(hits[at] - 0.5) < 0.02 && fabs(sum - 1.0) < 1e-9);
    reef_memory_session_close(session);
    reef_memory_free(memory);
}

// ---- bit by bit, and whole distributions --------------------------------------------------------

PLAIN_TEST(predicts_with_a_distribution_are_those_of_reading) {
    enum { COUNT = 300 };
    static float probabilities[COUNT][256], bits[COUNT];
    static reef_net_prediction net[COUNT];
    uint64_t seed = 269;
    for (size_t i = 0; i < COUNT; i++) {
        draw_probabilities(&seed, probabilities[i]);
        reef_net_predict_byte(probabilities[i], text[i], (uint16_t)(i % 5), &net[i]);
    }
    reef_memory *memory = learned_memory();
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        reef_memory_session *session = open_session(memory, reading);
        read_bytes(session, text, COUNT, net, bits);
        reef_memory_session_reset(session);
        for (size_t i = 0; i < COUNT; i++) {
            double chance = 1.0;
            // What is said last counts; of no tokens nothing is said.
            must(reef_memory_session_net(session, probabilities[0], 9, &why));
            must(reef_memory_session_net(session, probabilities[i], (uint16_t)(i % 5), &why));
            for (int b = 7; b >= 0; b--) {
                uint32_t one = 0;
                int bit = text[i] >> b & 1;
                must(reef_memory_session_predict(session, &one, &why));
                if (b > 0)
                    assert_int_equal(reef_memory_session_net(session, probabilities[0], 1, &why),
                                     REEF_ERR_INVALID);
                chance *= (bit ? one : 65536 - one) / 65536.0;
                reef_memory_session_update(session, bit);
            }
            assert_true((float)-log2(chance) == bits[i]);
        }
        reef_memory_session_close(session);
    }
    reef_memory_free(memory);
}

static void check_distribution(const reef_memory *memory,
                               reef_memory_reading reading,
                               size_t at,
                               const float *probabilities,
                               uint16_t tokens) {
    double out[256], sum = 0.0;
    reef_memory_session *session = open_session(memory, reading);
    read_bytes(session, text, at, NULL, NULL);
    must(reef_memory_session_distribution(session, probabilities, tokens, out, &why));
    for (int byte = 0; byte < 256; byte++) {
        sum += out[byte];
        if (byte % 7 != (int)(at % 7) && byte != text[at]) continue;
        double chance = 1.0;
        reef_memory_session_reset(session);
        read_bytes(session, text, at, NULL, NULL);
        if (probabilities != NULL)
            must(reef_memory_session_net(session, probabilities, tokens, &why));
        for (int b = 7; b >= 0; b--) {
            uint32_t one = 0;
            int bit = byte >> b & 1;
            must(reef_memory_session_predict(session, &one, &why));
            chance *= bit ? one / 65536.0 : 1.0 - one / 65536.0;
            reef_memory_session_update(session, bit);
        }
        if (out[byte] != chance)
            fail_msg("byte %d after %zu: %.17g, not %.17g", byte, at, out[byte], chance);
    }
    reef_memory_session_close(session);
    assert_true(fabs(sum - 1.0) < 1e-9);
}

PLAIN_TEST(a_distribution_has_the_products_of_its_paths) {
    static float probabilities[256];
    uint64_t seed = 271;
    reef_memory *memory = learned_memory();
    for (size_t k = 0; k < 16; k++) {
        if (k == 8) { // the memory has met a net
            static reef_net_prediction net[READ];
            draw_net(&seed, text, READ, 700, 700, net);
            learn(memory, text, READ, net, NULL);
        }
        draw_probabilities(&seed, probabilities);
        bool speaks = k % 4 < 2;
        check_distribution(memory, k % 3, 13 * k, speaks ? probabilities : NULL, speaks ? 5 : 0);
    }
    reef_memory_free(memory);
}

PLAIN_TEST(a_distribution_changes_nothing) {
    enum { COUNT = 400 };
    static float plain[READ], bits[READ], probabilities[256];
    static reef_net_prediction net[READ];
    double first[256], second[256];
    uint64_t seed = 277;
    draw_net(&seed, text, READ, 700, 800, net);
    reef_memory *memory = learned_memory();
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++) {
        reef_memory_session *a = open_session(memory, reading), *b = open_session(memory, reading);
        for (size_t i = 0; i < COUNT; i++) {
            // A net from the middle on: its weights begin there, and not at the first distribution.
            const reef_net_prediction *of = i < COUNT / 2 ? NULL : &net[i];
            draw_probabilities(&seed, probabilities);
            must(reef_memory_session_distribution(b, probabilities, 3, first, &why));
            must(reef_memory_session_distribution(b, NULL, 0, second, &why));
            if (i % 50 == 0) assert_memory_not_equal(first, second, sizeof(first));
            must(reef_memory_session_distribution(b, probabilities, 3, second, &why));
            assert_memory_equal(first, second, sizeof(first));
            read_bytes(a, text + i, 1, of, plain + i);
            read_bytes(b, text + i, 1, of, bits + i);
        }
        assert_memory_equal(plain, bits, COUNT * sizeof(*bits));
        read_bytes(a, text + COUNT, READ - COUNT, NULL, plain);
        read_bytes(b, text + COUNT, READ - COUNT, NULL, bits);
        assert_memory_equal(plain, bits, (READ - COUNT) * sizeof(*bits));
        uint32_t one = 0;
        must(reef_memory_session_predict(b, &one, &why));
        assert_int_equal(reef_memory_session_distribution(b, NULL, 0, first, &why),
                         REEF_ERR_INVALID);
        reef_memory_session_close(a);
        reef_memory_session_close(b);
    }
    reef_memory_free(memory);
}

// ---- bytes that pass by -------------------------------------------------------------------------

PLAIN_TEST(what_was_skipped_is_where_the_text_is) {
    static float read[READ], skipped[READ], cold[READ];
    reef_memory *memory = learned_memory();
    size_t half = READ / 2;
    // Alone, all but the matches is a function of the last bytes, words and lines.
    reef_memory_session *a = open_session(memory, REEF_READ_ALONE),
                        *b = open_session(memory, REEF_READ_ALONE);
    read_bytes(a, text, half, NULL, NULL);
    must(reef_memory_session_skip(b, text, half / 2, &why));
    must(reef_memory_session_skip(b, text + half / 2, half - half / 2, &why));
    assert_memory_equal(&((const reef_predictor *)(const void *)a)->position,
                        &((const reef_predictor *)(const void *)b)->position,
                        sizeof(reef_position));
    read_bytes(a, text + half, 20, NULL, read);
    read_bytes(b, text + half, 20, NULL, skipped);
    reef_memory_session_reset(b);
    read_bytes(b, text + half, 20, NULL, cold);
    assert_true(fabs(mean_of(read, 20) - mean_of(skipped, 20)) < 0.5);
    assert_true(memcmp(skipped, cold, 20 * sizeof(*cold)) != 0);
    reef_memory_session_close(a);
    reef_memory_session_close(b);
    // In known text a match is found as soon as it may be.
    a = open_session(memory, REEF_READ_ADAPTING);
    must(reef_memory_session_skip(a, learned + 5000, 100, &why));
    read_bytes(a, learned + 5100, 200, NULL, skipped);
    assert_true(mean_of(skipped, 200) < 0.5);
    reef_memory_session_close(a);
    reef_memory_free(memory);
}

PLAIN_TEST(skipping_teaches_nothing_and_costs_no_page) {
    static float first[READ], second[READ];
    reef_memory *memory = learned_memory();
    reef_memory_session *session = open_session(memory, REEF_READ_ADAPTING);
    for (int time = 0; time < 2; time++) must(reef_memory_session_skip(session, text, READ, &why));
    const reef_predictor *p = (const reef_predictor *)(const void *)session; // its first field
    assert_int_equal(p->cells.written_count, 0);
    assert_int_equal(p->slots.written_count, 0);
    assert_int_equal(p->learned_bytes, LEARNED);
    assert_memory_equal(p->state, memory->predictor.state, sizeof(*p->state));
    read_bytes(session, text, READ, NULL, first);
    reef_memory_session_reset(session);
    read_bytes(session, text, READ, NULL, second);
    assert_true(fabs(mean_of(first, READ) - mean_of(second, READ)) < 0.02);
    // Within a byte nothing passes by; before it, what was predicted is dropped.
    uint32_t one = 0, again = 0;
    must(reef_memory_session_predict(session, &one, &why));
    must(reef_memory_session_skip(session, text, 0, &why));
    must(reef_memory_session_predict(session, &again, &why));
    assert_int_equal(one, again);
    reef_memory_session_update(session, 0);
    assert_int_equal(reef_memory_session_skip(session, text, 1, &why), REEF_ERR_INVALID);
    reef_memory_session_close(session);
    reef_memory_free(memory);
}

int main(void) {
    return test_run(set_up, NULL);
}
