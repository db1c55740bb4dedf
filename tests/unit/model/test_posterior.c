// Who answers a byte: fixed share, against its definition and its bound.
#include "posterior.h"

#include "draw.h"
#include "test.h"

#include <math.h>

enum { KINDS = 5, BYTES = 600 };

static const double SHARE = 1.0 / 150; // as in posterior.c

// Surprises: kind k knows the part k of the text, a fifth of it, and is at a loss elsewhere.
static void draw_bits_of_kinds(uint64_t *seed, float bits[BYTES][KINDS]) {
    for (int t = 0; t < BYTES; t++)
        for (int k = 0; k < KINDS; k++) {
            int most = t * KINDS / BYTES == k ? 300 : 1200;
            bits[t][k] = (float)draw_int(seed, 1, most) / 100.0f;
        }
}

static void begin(reef_posterior *p) {
    *p = (reef_posterior){0};
    for (uint32_t k = 0; k < KINDS; k++) reef_posterior_join(p, k, NULL, 0);
    reef_posterior_joined(p);
    assert_int_equal(p->running, KINDS);
}

static double read_all(reef_posterior *p, float bits[BYTES][KINDS]) {
    double sum = 0.0;
    for (int t = 0; t < BYTES; t++) sum += reef_posterior_read(p, bits[t]);
    return sum;
}

PLAIN_TEST(it_is_fixed_share) {
    uint64_t seed = 5;
    float bits[BYTES][KINDS];
    double weights[KINDS];
    reef_posterior p;
    draw_bits_of_kinds(&seed, bits);
    begin(&p);
    for (int k = 0; k < KINDS; k++) weights[k] = 1.0 / KINDS;
    for (int t = 0; t < BYTES; t++) {
        double chance = 0.0, sum = 0.0;
        for (int k = 0; k < KINDS; k++) chance += weights[k] * pow(2.0, -(double)bits[t][k]);
        for (int k = 0; k < KINDS; k++) assert_true(fabs(p.weights[k] - weights[k]) < 1e-12);
        assert_true(fabs(reef_posterior_read(&p, bits[t]) + log2(chance)) < 1e-9);
        for (int k = 0; k < KINDS; k++)
            weights[k] *= (1.0 - SHARE) * pow(2.0, -(double)bits[t][k]) / chance;
        for (int k = 0; k < KINDS; k++) weights[k] += SHARE / KINDS;
        for (int k = 0; k < KINDS; k++) sum += p.weights[k];
        assert_true(fabs(sum - 1.0) < 1e-12);
    }
}

// Herbster and Warmuth 1998: against the best kind of each part, who could be known afterwards
// alone, a beginning costs log2(kinds) bits, a change log2(kinds / share), and a byte without one
// -log2(1 - share).
PLAIN_TEST(a_text_costs_little_more_than_the_best_of_each_part) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t draws = seed;
        float bits[BYTES][KINDS];
        reef_posterior p;
        double best = 0.0;
        draw_bits_of_kinds(&draws, bits);
        begin(&p);
        for (int t = 0; t < BYTES; t++) best += bits[t][t * KINDS / BYTES];
        double most =
            best + log2(KINDS) + (KINDS - 1) * log2(KINDS / SHARE) - BYTES * log2(1.0 - SHARE);
        double sum = read_all(&p, bits);
        assert_true(sum <= most + 1e-6);
        assert_true(sum >= best - 1e-6 - BYTES);
        assert_int_equal(p.kinds[reef_posterior_likeliest(&p)], KINDS - 1);
    }
}

PLAIN_TEST(one_alone_answers_as_it_is) {
    reef_posterior p = {0};
    reef_posterior_join(&p, 7, NULL, 0);
    reef_posterior_joined(&p);
    for (int t = 1; t < 100; t++) {
        float bits = (float)t / 10.0f;
        assert_true(fabs(reef_posterior_read(&p, &bits) - (double)bits) < 1e-9);
        assert_true(p.weights[0] == 1.0);
    }
}

// Five bits a byte after half a bit: others are asked within some bytes, and not again at once.
static uint64_t surprise(reef_posterior *p, float bits) {
    uint64_t bytes = 0;
    while (!reef_posterior_begin_byte(p)) {
        assert_in_range(bytes, 0, 60);
        float all[REEF_RUNNING_MAX];
        for (size_t k = 0; k < REEF_RUNNING_MAX; k++) all[k] = bits;
        (void)reef_posterior_read(p, all);
        bytes++;
    }
    assert_int_equal(reef_posterior_awake(p), 0);
    assert_false(reef_posterior_begin_byte(p));
    return bytes;
}

static void calm(reef_posterior *p, int bytes) {
    for (int t = 0; t < bytes; t++) {
        float all[REEF_RUNNING_MAX];
        for (size_t k = 0; k < REEF_RUNNING_MAX; k++) all[k] = k == 0 ? 0.5f : 9.0f;
        assert_false(reef_posterior_begin_byte(p));
        (void)reef_posterior_read(p, all);
    }
}

PLAIN_TEST(surprises_wake_others_who_rest_again) {
    reef_posterior p = {0};
    reef_posterior_join(&p, 3, NULL, 0);
    reef_posterior_joined(&p);
    calm(&p, 200);
    assert_in_range(surprise(&p, 5.0f), 1, 3);
    // They join with what they would have had by now, and what they know badly puts them to rest.
    const float worse[] = {9.0f, 9.0f};
    for (uint32_t k = 10; k < 13; k++) reef_posterior_join(&p, k, worse, 2);
    reef_posterior_joined(&p);
    assert_int_equal(p.running, 4);
    assert_true(reef_posterior_runs(&p, 12));
    assert_false(reef_posterior_runs(&p, 4));
    calm(&p, 40);
    assert_int_equal(p.running, 1);
    assert_int_equal(p.kinds[0], 3);
}

PLAIN_TEST(one_that_joins_has_what_it_would_have) {
    reef_posterior p = {0};
    reef_posterior_join(&p, 3, NULL, 0);
    reef_posterior_joined(&p);
    calm(&p, 200);
    (void)surprise(&p, 5.0f);
    double worse = p.bits[(p.length - 1) % REEF_REPLAY]; // of the byte that surprised
    const float better[] = {0.5f};
    reef_posterior_join(&p, 4, better, 1);
    reef_posterior_joined(&p);
    double weight = SHARE / 2 * pow(2.0, worse - 0.5);
    assert_true(fabs(p.weights[1] - weight / (1.0 + weight)) < 1e-6);
}

// Who reads all of a short text once more has what those have that began with it.
PLAIN_TEST(one_that_joins_early_began_with_the_others) {
    const float bits[][3] = {{3.0f, 2.0f, 4.0f}, {1.0f, 1.5f, 1.0f}, {2.0f, 2.0f, 2.0f}};
    reef_posterior all = {0}, p = {0};
    for (uint32_t k = 0; k < 3; k++) {
        reef_posterior_join(&all, k, NULL, 0);
        if (k < 2) reef_posterior_join(&p, k, NULL, 0);
    }
    reef_posterior_joined(&all);
    reef_posterior_joined(&p);
    for (int i = 0; i < 3; i++) {
        const float each[] = {bits[0][i], bits[1][i], bits[2][i]};
        (void)reef_posterior_read(&all, each);
        (void)reef_posterior_read(&p, each);
    }
    reef_posterior_join(&p, 2, bits[2], 3);
    reef_posterior_joined(&p);
    // But for the shares, which go to two or to three.
    for (int k = 0; k < 3; k++) assert_true(fabs(p.weights[k] - all.weights[k]) < 0.01);
    assert_true(p.weights[2] > 0.05);
}

PLAIN_TEST(what_was_in_vain_is_tried_less_often) {
    reef_posterior p = {0};
    reef_posterior_join(&p, 3, NULL, 0);
    reef_posterior_joined(&p);
    uint64_t first = 0, last = 0;
    for (int i = 0; i < 30; i++) {
        calm(&p, 200);
        last = surprise(&p, 3.0f);
        if (i == 0) first = last;
    }
    assert_true(last >= 3 * first);
    // Until another one was the text's.
    const float better[] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f};
    reef_posterior_join(&p, 4, better, 8);
    reef_posterior_joined(&p);
    assert_int_equal(p.kinds[reef_posterior_likeliest(&p)], 4);
    for (int t = 0; t < 60; t++) {
        const float all[] = {9.0f, 0.5f};
        (void)reef_posterior_begin_byte(&p);
        (void)reef_posterior_read(&p, p.running == 2 ? all : &all[1]);
    }
    assert_int_equal(p.running, 1);
    calm(&p, 200);
    assert_int_equal(surprise(&p, 3.0f), first);
}

PLAIN_TEST(one_too_many_takes_the_place_of_the_least_likely) {
    reef_posterior p = {0};
    for (uint32_t k = 0; k < REEF_RUNNING_MAX; k++) reef_posterior_join(&p, k, NULL, 0);
    reef_posterior_joined(&p);
    float bits[REEF_RUNNING_MAX];
    for (size_t k = 0; k < REEF_RUNNING_MAX; k++) bits[k] = k == 2 ? 8.0f : 1.0f;
    (void)reef_posterior_read(&p, bits);
    reef_posterior_join(&p, 20, bits, 1);
    assert_int_equal(p.running, REEF_RUNNING_MAX);
    assert_false(reef_posterior_runs(&p, 2));
    assert_true(reef_posterior_runs(&p, 20));
}

// One that helps a little goes on: shares of a 150th, divided by four, and the loss of two thirds
// of a bit in each byte.
PLAIN_TEST(one_that_helps_a_little_runs_on) {
    reef_posterior p = {0};
    for (uint32_t k = 0; k < 4; k++) reef_posterior_join(&p, k, NULL, 0);
    reef_posterior_joined(&p);
    calm(&p, 200);
    (void)surprise(&p, 5.0f);
    for (uint32_t k = 1; k < 4; k++)
        if (!reef_posterior_runs(&p, k)) reef_posterior_join(&p, k, NULL, 0);
    reef_posterior_joined(&p);
    for (int t = 0; t < 100; t++) {
        const float all[] = {0.5f, 1.167f, 1.167f, 1.167f};
        (void)reef_posterior_begin_byte(&p);
        (void)reef_posterior_read(&p, all);
    }
    assert_int_equal(p.running, 4);
}

// All that is surprising adds up, though others were woken at its first byte.
PLAIN_TEST(a_text_that_changes_is_told_from_a_surprise) {
    reef_posterior p = {0};
    const float high = 5.0f, low = 0.5f;
    reef_posterior_join(&p, 3, NULL, 0);
    reef_posterior_joined(&p);
    calm(&p, 200);
    assert_in_range(surprise(&p, high), 1, 2);
    assert_false(p.changes);
    uint64_t bytes = p.length;
    while (!p.changes) {
        (void)reef_posterior_read(&p, &high);
        (void)reef_posterior_begin_byte(&p);
        assert_in_range(p.length - bytes, 1, 10);
    }
    assert_int_equal(p.changed_at, p.length);
    assert_int_equal(p.changed_from, 200);
    // Once it is over, a surprise is one again.
    for (int t = 0; t < 200; t++) {
        (void)reef_posterior_read(&p, &low);
        (void)reef_posterior_begin_byte(&p);
    }
    (void)surprise(&p, high);
    assert_false(p.changes);
}

RUN_TESTS
