// Gates that read the loss of the model before them (gate = loss). Texts of one alphabet in which
// every letter repeats the one `lag` letters before it: 1- to 4-grams are the same for every lag
// above 4, and only a model that has learned its own lag finds another one surprising.
#include "lifelong.h"
#include "trainer_internal.h"

#include <math.h>

#define PROBE_BYTES 1200 // more than two passes of the evaluation
#define LAG_COUNT 3
static const size_t LAGS[LAG_COUNT] = {6, 5, 7};

static void lag_text(uint8_t *out, size_t count, size_t lag, uint32_t seed) {
    uint32_t state = seed * 2654435761u + 1u;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        bool repeats = i >= lag && state >> 27 != 0; // 31 of 32
        out[i] = repeats ? out[i - lag] : (uint8_t)('a' + (state >> 16 & 15));
    }
}

static void feed_lag(lifelong *f, size_t lag, size_t count, uint32_t seed) {
    uint8_t *bytes = malloc(count);
    assert_non_null(bytes);
    lag_text(bytes, count, lag, seed);
    feed(f, bytes, count);
    free(bytes);
}

static int setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    f->config.context = 32;
    f->config.previous_bytes = 7;
    f->config.reservoir_window = 128;
    f->config.reservoir_bytes = 32768;
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "gate", "loss");
    return 0;
}

// One generation for each of the first `count` lags; all but the last are sealed.
static void learn(lifelong *f, size_t count, size_t threads) {
    reef_error err;
    make_pool(f, threads);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
        feed_lag(f, LAGS[i], 24000, (uint32_t)i);
    }
    commit(f);
}

static lifelong_mould moulds[LAG_COUNT + 1]; // of the first lags, by their number

// learn() on one thread, once for each number of lags.
static void learn_once(lifelong *f, size_t count) {
    if (moulds[count].dir[0] != '\0') {
        lifelong_copy(f, &moulds[count], 1);
        return;
    }
    learn(f, count, 1);
    lifelong_keep(f, &moulds[count]);
}

static void learn_two(lifelong *f) {
    learn_once(f, 2);
}

static int discard_moulds(void **state) {
    (void)state;
    for (size_t i = 0; i <= LAG_COUNT; i++) lifelong_discard(&moulds[i]);
    return 0;
}

static reef_model *open_model(const lifelong *f, const char *as_of, size_t threads) {
    reef_error err;
    reef_model *model = NULL;
    ok(reef_model_open(&model, f->store, as_of, &(reef_model_options){.threads = threads}, &err),
       &err);
    return model;
}

static reef_gate_stats margins_of(
    reef_model *model, uint32_t g, const uint8_t *text, size_t count, float *margins) {
    reef_error err;
    reef_gate_stats stats;
    ok(reef_model_gate_margins(model, g, text, count, &stats, margins, &err), &err);
    return stats;
}

static double share_fired(const float *margins, size_t count) {
    size_t fired = 0;
    for (size_t t = 0; t < count; t++) fired += margins[t] > 0;
    return (double)fired / (double)count;
}

// Share of a probe of that lag on which the gate of generation 1 fires.
static double share_on(const lifelong *f, size_t lag, reef_gate_stats *stats) {
    uint8_t probe[PROBE_BYTES];
    float margins[PROBE_BYTES];
    lag_text(probe, PROBE_BYTES, lag, 99);
    reef_model *model = open_model(f, "now", 1);
    *stats = margins_of(model, 1, probe, PROBE_BYTES, margins);
    reef_model_close(model);
    return share_fired(margins, PROBE_BYTES);
}

static void *logits_on(const lifelong *f, const char *as_of, const uint8_t *text, size_t count) {
    reef_error err;
    float *logits = calloc(count * REEF_VOCAB, sizeof(*logits));
    assert_non_null(logits);
    reef_model *model = open_model(f, as_of, 2);
    ok(reef_model_logits(model, text, count, logits, &err), &err);
    reef_model_close(model);
    return logits;
}

// ---- what it is for -----------------------------------------------------------------------------

static void the_loss_tells_apart_what_n_grams_cannot(void **state) {
    lifelong *f = *state;
    reef_gate_stats stats;
    learn_two(f);
    assert_true(share_on(f, LAGS[1], &stats) > 0.9);
    assert_true(stats.loss_weight > 0 && stats.loss_reference > 0);
    assert_true(stats.passes == 1.0);
    assert_true(share_on(f, LAGS[0], &stats) < 0.02);

    void *other = NULL;
    setup(&other);
    f = other;
    choose(&f->config, "gate", "ngram");
    learn(f, 2, 1);
    assert_true(share_on(f, LAGS[1], &stats) < 0.3);
    assert_true(stats.loss_weight == 0 && stats.passes == 0.0);
    lifelong_teardown(&other);
}

static void a_loss_that_tells_nothing_is_not_read(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_gate_stats stats;
    learn(f, 1, 1);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    feed_lag(f, LAGS[0], 24000, 17); // more of the same
    commit(f);
    share_on(f, LAGS[0], &stats);
    assert_true(stats.loss_weight == 0);
}

enum { N_GRAM_KINDS = 3 };

// Logits of two generations with alphabets of their own, for each kind, and the bytes of the second
// one's gate record.
static void n_gram_run(const char *gate, float *logits[N_GRAM_KINDS], size_t *gate_bytes) {
    void *state = NULL;
    reef_error err;
    reef_view view;
    reef_txn *txn = NULL;
    lifelong_setup(&state);
    lifelong *f = state;
    choose(&f->config, "gate", gate);
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 1);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    feed_kind(f, 1, 12000, 1);
    commit(f);
    for (int kind = 0; kind < N_GRAM_KINDS; kind++) {
        logits[kind] = new_logits();
        logits_of(f->store, "now", kind, logits[kind]);
    }
    reef_key key = {.db = REEF_DB_TENSORS, .generation = 1, .name = "gate"};
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_view(txn, &key, &view, &err), &err);
    *gate_bytes = view.bytes;
    reef_txn_abort(txn);
    lifelong_teardown(&state);
}

static void where_n_grams_are_enough_no_bit_changes(void **state) {
    (void)state;
    size_t plain_bytes, bytes;
    float *plain[N_GRAM_KINDS], *logits[N_GRAM_KINDS];
    n_gram_run("ngram", plain, &plain_bytes);
    n_gram_run("loss", logits, &bytes);
    assert_int_equal(plain_bytes, 7 * sizeof(float));
    assert_int_equal(bytes, plain_bytes);
    for (int kind = 0; kind < N_GRAM_KINDS; kind++) {
        assert_memory_equal(plain[kind], logits[kind], LIFELONG_LOGIT_BYTES);
        free(plain[kind]);
        free(logits[kind]);
    }
}

// ---- which loss it is ---------------------------------------------------------------------------

// The slow way: the loss of the state as of the generation before, scored on its own.
static void a_gate_reads_the_loss_of_the_state_as_of_the_generation_before(void **state) {
    lifelong *f = *state;
    reef_error err;
    learn_once(f, 3);
    size_t read = 0;
    for (uint32_t g = 1; g < 3; g++) {
        const reef_gate *gate = &f->trainer->network.generations[g]->gate;
        char before[8];
        snprintf(before, sizeof(before), "%u", g - 1);
        for (size_t i = 0; i < LAG_COUNT; i++) {
            uint8_t probe[PROBE_BYTES];
            float bits[PROBE_BYTES], margins[PROBE_BYTES], expected[PROBE_BYTES];
            double losses[PROBE_BYTES];
            reef_score score = {0};
            lag_text(probe, PROBE_BYTES, LAGS[i], 50);
            reef_model *older = open_model(f, before, 1), *now = open_model(f, "now", 1);
            ok(reef_model_score(older, probe, PROBE_BYTES, bits, &score, NULL, NULL, &err), &err);
            margins_of(now, g, probe, PROBE_BYTES, margins);
            reef_model_close(older);
            reef_model_close(now);
            for (size_t t = 0; t + 1 < PROBE_BYTES; t++) losses[t] = (double)bits[t + 1] * log(2.0);
            losses[PROBE_BYTES - 1] = NAN;
            reef_gate_state along;
            reef_gate_reset(gate, &along);
            reef_gate_score_losses(gate, &along, PROBE_BYTES, probe, losses, expected);
            for (size_t t = 0; t < PROBE_BYTES; t++)
                assert_true(fabsf(margins[t] - expected[t]) < 1e-4f * (1 + fabsf(expected[t])));
        }
        read += gate->loss_weight > 0;
    }
    assert_true(read == 2);
}

static void no_byte_changes_a_decision_before_it(void **state) {
    lifelong *f = *state;
    static const size_t changed[] = {1, 31, 32, 300, 511, 512, 513, 1100};
    uint8_t probe[PROBE_BYTES], other[PROBE_BYTES];
    learn_two(f);
    lag_text(probe, 600, LAGS[0], 7); // the gate changes its mind on the way
    lag_text(probe + 600, PROBE_BYTES - 600, LAGS[1], 8);
    float *logits = logits_on(f, "now", probe, PROBE_BYTES);
    float margins[PROBE_BYTES], later[PROBE_BYTES];
    reef_model *model = open_model(f, "now", 1);
    margins_of(model, 1, probe, PROBE_BYTES, margins);
    double share = share_fired(margins, PROBE_BYTES);
    assert_true(share > 0.2 && share < 0.8);
    for (size_t i = 0; i < sizeof(changed) / sizeof(*changed); i++) {
        size_t from = changed[i];
        memcpy(other, probe, PROBE_BYTES);
        for (size_t t = from; t < PROBE_BYTES; t++) other[t] = (uint8_t)('A' + t % 23);
        float *changed_logits = logits_on(f, "now", other, PROBE_BYTES);
        margins_of(model, 1, other, PROBE_BYTES, later);
        assert_memory_equal(logits, changed_logits, from * REEF_VOCAB * sizeof(*logits));
        assert_memory_equal(margins, later, from * sizeof(*margins));
        assert_true(margins[from] != later[from]);
        free(changed_logits);
    }
    reef_model_close(model);
    free(logits);
}

static void a_text_may_be_cut_anywhere(void **state) {
    lifelong *f = *state;
    static const size_t ends[] = {1, 2, 31, 32, 33, 480, 511, 512, 513, 1025};
    uint8_t probe[PROBE_BYTES];
    float margins[PROBE_BYTES], part[PROBE_BYTES];
    learn_two(f);
    lag_text(probe, PROBE_BYTES, LAGS[1], 3);
    float *logits = logits_on(f, "now", probe, PROBE_BYTES);
    reef_model *model = open_model(f, "now", 3);
    margins_of(model, 1, probe, PROBE_BYTES, margins);
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        float *fewer = logits_on(f, "now", probe, ends[i]);
        margins_of(model, 1, probe, ends[i], part);
        assert_memory_equal(logits, fewer, ends[i] * REEF_VOCAB * sizeof(*logits));
        assert_memory_equal(margins, part, ends[i] * sizeof(*margins));
        free(fewer);
    }
    reef_model_close(model);
    free(logits);
}

static void as_of_is_exact_and_silence_too(void **state) {
    lifelong *f = *state;
    reef_error err;
    size_t bytes = (size_t)PROBE_BYTES * REEF_VOCAB * sizeof(float);
    uint8_t old[PROBE_BYTES], own[PROBE_BYTES];
    float margins[PROBE_BYTES];
    reef_gate_stats stats;
    lag_text(old, PROBE_BYTES, LAGS[0], 5);
    lag_text(own, PROBE_BYTES, LAGS[1], 5);
    learn_two(f);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    float *sealed = logits_on(f, "1", own, PROBE_BYTES);
    float *first = logits_on(f, "0", old, PROBE_BYTES);
    feed_lag(f, LAGS[2], 24000, 2);
    commit(f);
    float *later = logits_on(f, "1", own, PROBE_BYTES);
    assert_memory_equal(sealed, later, bytes);
    free(later);
    later = logits_on(f, "0", old, PROBE_BYTES);
    assert_memory_equal(first, later, bytes);
    free(later);

    // Where no gate fires, the pass that the gates needed is the answer.
    reef_model *model = open_model(f, "now", 1);
    size_t fired = 0;
    for (uint32_t g = 1; g < 3; g++) {
        stats = margins_of(model, g, old, PROBE_BYTES, margins);
        for (size_t t = 0; t < PROBE_BYTES; t++) fired += margins[t] > 0;
    }
    reef_model_close(model);
    assert_int_equal(fired, 0);
    assert_true(stats.passes == 1.0); // of two gates that read losses
    later = logits_on(f, "now", old, PROBE_BYTES);
    assert_memory_equal(first, later, bytes);
    free(later);
    free(first);
    free(sealed);
}

// ---- generating ---------------------------------------------------------------------------------

static uint8_t likeliest(const float *logits) {
    size_t best = 0;
    for (size_t v = 1; v < REEF_VOCAB; v++)
        if (logits[v] > logits[best]) best = v;
    return (uint8_t)best;
}

// As long as the text fits one window, the drawn byte follows the logits of the text so far.
static void what_is_generated_follows_the_same_gates(void **state) {
    lifelong *f = *state;
    reef_error err;
    uint8_t text[32], out[80], again[80];
    learn_two(f);
    lag_text(text, 20, LAGS[1], 4);
    reef_sampling greedy = {.temperature = 0};
    reef_model *model = open_model(f, "now", 1), *three = open_model(f, "now", 3);
    ok(reef_model_generate(model, text, 20, sizeof(out), &greedy, out, &err), &err);
    ok(reef_model_generate(three, text, 20, sizeof(again), &greedy, again, &err), &err);
    assert_memory_equal(out, again, sizeof(out));
    for (size_t i = 0; i < 12; i++) {
        float *logits = logits_on(f, "now", text, 20 + i);
        assert_int_equal(out[i], likeliest(logits + (19 + i) * REEF_VOCAB));
        free(logits);
        text[20 + i] = out[i];
    }
    reef_model_close(model);
    reef_model_close(three);
}

// ---- the stream alone decides -------------------------------------------------------------------

static void root_of_run(size_t threads, bool reopen, uint8_t root[REEF_HASH_BYTES]) {
    void *state = NULL;
    reef_error err;
    reef_commit last;
    setup(&state);
    lifelong *f = state;
    choose(&f->config, "retain_weight", "1");
    make_pool(f, threads);
    for (size_t part = 0; part < 12; part++) {
        if (part % 4 == 0 && part > 0) ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
        feed_lag(f, LAGS[part / 4], 6001, (uint32_t)part);
        last = commit(f);
        if (!reopen) continue;
        close_pool(f);
        open_pool(f, threads);
    }
    for (size_t g = 1; g < 3; g++) {
        assert_true(f->trainer->network.generations[g]->gate.loss_weight > 0);
        assert_true(f->trainer->gating.states[g].surprise > 0);
    }
    memcpy(root, last.root, REEF_HASH_BYTES);
    lifelong_teardown(&state);
}

static void threads_and_restarts_change_nothing(void **state) {
    (void)state;
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    root_of_run(1, false, expected);
    root_of_run(3, true, root);
    assert_memory_equal(expected, root, sizeof(root));
}

static void growing_keeps_the_weight_of_the_loss(void **state) {
    lifelong *f = *state;
    reef_error err;
    learn_two(f);
    reef_gate before = f->trainer->network.generations[1]->gate;
    ok(reef_trainer_grow(f->trainer, 6, &err), &err);
    reef_gate after = f->trainer->network.generations[1]->gate;
    assert_true(before.loss_weight > 0 && after.loss_weight == before.loss_weight);
    assert_true(after.loss_reference == before.loss_reference);
}

// ---- what is stored -----------------------------------------------------------------------------

static void put_gate(lifelong *f, const float *values, size_t count) {
    reef_error err;
    reef_txn *txn = NULL;
    reef_key key = {.db = REEF_DB_TENSORS, .generation = 1, .name = "gate"};
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_WRITE, &err), &err);
    ok(reef_record_put(txn, &key, REEF_F32, values, count * sizeof(*values), &err), &err);
    ok(reef_txn_commit(txn, &(reef_commit){0}, &err), &err);
}

static void a_gate_that_was_stored_without_a_loss_reads_none(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_gate_stats stats;
    float values[9];
    reef_txn *txn = NULL;
    reef_key key = {.db = REEF_DB_TENSORS, .generation = 1, .name = "gate"};
    learn_two(f);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_read(txn, &key, values, sizeof(values), &err), &err);
    reef_txn_abort(txn);
    share_on(f, LAGS[0], &stats);
    assert_true(stats.loss_weight == values[7] && stats.loss_reference == values[8]);
    put_gate(f, values, 7);
    share_on(f, LAGS[0], &stats);
    assert_true(stats.loss_weight == 0 && stats.loss_reference == 0 && stats.prior == values[6]);
    put_gate(f, values, 8);
    reef_model *model = NULL;
    assert_int_equal(reef_model_open(&model, f->store, "now", NULL, &err), REEF_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "gate"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, lifelong_teardown)
        TEST(the_loss_tells_apart_what_n_grams_cannot),
        TEST(a_loss_that_tells_nothing_is_not_read),
        cmocka_unit_test(where_n_grams_are_enough_no_bit_changes),
        TEST(a_gate_reads_the_loss_of_the_state_as_of_the_generation_before),
        TEST(no_byte_changes_a_decision_before_it),
        TEST(a_text_may_be_cut_anywhere),
        TEST(as_of_is_exact_and_silence_too),
        TEST(what_is_generated_follows_the_same_gates),
        cmocka_unit_test(threads_and_restarts_change_nothing),
        TEST(growing_keeps_the_weight_of_the_loss),
        TEST(a_gate_that_was_stored_without_a_loss_reads_none),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, discard_moulds);
}
