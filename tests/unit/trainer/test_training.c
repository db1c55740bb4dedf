// Training of one generation: all parameters learn, frozen experts do not change, a grown
// generation continues, and errors are reported without a commit.
#include "lifelong.h"
#include "test.h"
#include "trainer_internal.h"

#include <math.h>

PLAIN_TEST(every_kind_and_score_learns) {
    static const char *const EXPERTS[] = {"gelu", "relu", "glu"};
    static const char *const SCORES[] = {"softmax", "sigmoid", "relu"};
    for (size_t i = 0; i < 9; i++) {
        void *own = NULL;
        lifelong_setup(&own);
        lifelong *f = own;
        choose(&f->config, "expert", EXPERTS[i / 3]);
        choose(&f->config, "score", SCORES[i % 3]);
        forget_memories(f); // it is the net that learns
        make_pool(f, 1);
        feed_kind(f, 0, 20 * 64, 3);
        double early = status_of(f).bits_per_byte;
        feed_kind(f, 0, 60 * 64, 4);
        double late = status_of(f).bits_per_byte;
        assert_true(isfinite(early) && early < 9.0);
        assert_true(late < early - 0.5);
        lifelong_teardown(&own);
    }
}

LIFELONG_TEST(frozen_experts_do_not_change_by_one_bit) {
    uint64_t changed;
    reef_key key = {.db = REEF_DB_EXPERTS, .generation = 0, .layer = 1, .block = 0};
    size_t row = 2 * 16, count = 36 * row;
    float *before = room(count * sizeof(*before)), *after = room(count * sizeof(*after));
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    reef_freeze freeze = {.layer = 1, .first = 0, .last = 9, .dry_run = true};
    must(reef_trainer_freeze(f->trainer, &freeze, &changed, &why));
    assert_int_equal(changed, 10);
    freeze.dry_run = false;
    must(reef_trainer_freeze(f->trainer, &freeze, &changed, &why));
    assert_int_equal(changed, 10);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_record_read(txn, &key, before, count * sizeof(*before), &why));
    reef_txn_abort(txn);
    feed_kind(f, 0, 4000, 4);
    commit(f);
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_record_read(txn, &key, after, count * sizeof(*after), &why));
    reef_txn_abort(txn);
    assert_memory_equal(before, after, 10 * row * sizeof(*before));
    assert_memory_not_equal(before + 10 * row, after + 10 * row, 26 * row * sizeof(*before));
    freeze.first = 40;
    freeze.last = 50;
    assert_int_equal(reef_trainer_freeze(f->trainer, &freeze, &changed, &why), REEF_ERR_INVALID);
}

LIFELONG_TEST(a_grown_generation_goes_on_learning) {
    make_pool(f, 2);
    feed_kind(f, 0, 6000, 3);
    assert_int_equal(reef_trainer_grow(f->trainer, 6, &why), REEF_ERR_INVALID);
    must(reef_trainer_grow(f->trainer, 9, &why));
    assert_int_equal(status_of(f).experts_open, 2 * 81);
    double before = status_of(f).bits_per_byte;
    feed_kind(f, 0, 6000, 4);
    assert_true(status_of(f).bits_per_byte < before);
    open_again(f, 1);
    assert_int_equal(status_of(f).experts_open, 2 * 81);
}

// How far today's output on old data is from the old one, where the gate of the new generation
// fires on it. What is to be retained is drawn from the sample of old text, unless that is
// `forgotten`.
static double drift_on_leaking_tokens(bool forgotten) {
    void *state = NULL;
    lifelong_setup(&state);
    lifelong *f = state;
    f->config.boundaries = REEF_BOUNDARIES_GIVEN;
    make_pool(f, 1);
    feed_kind(f, 0, 8000, 3);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    reef_reservoir *reservoir = &f->trainer->net.reservoir;
    reservoir->old_slots = 8000 / LIFELONG_BATCH; // so that every draw finds a window
    if (forgotten) memset(reservoir->sizes, 0, reservoir->old_slots * sizeof(*reservoir->sizes));
    for (uint32_t i = 0; i < 250; i++) {
        reef_open_generation(f->trainer)->gate.threshold = -INFINITY;
        feed_kind(f, 1, LIFELONG_BATCH, i);
    }
    reef_open_generation(f->trainer)->gate.threshold = -INFINITY;
    commit(f);
    float *before = new_logits(), *now = new_logits();
    logits_of(f->store, "0", 0, before);
    logits_of(f->store, "now", 0, now);
    double sum = 0.0;
    for (size_t i = 0; i < LIFELONG_PROBE_BYTES * REEF_VOCAB; i++)
        sum += fabs((double)now[i] - (double)before[i]);
    lifelong_teardown(&state);
    return sum;
}

PLAIN_TEST(the_retain_term_keeps_what_leaks_small) {
    double without = drift_on_leaking_tokens(true), with = drift_on_leaking_tokens(false);
    assert_true(without > 0.0);
    assert_true(with < 0.9 * without);
}

LIFELONG_TEST(the_running_statistics_of_queries_move) {
    float mean[16];
    reef_key key = {.db = REEF_DB_TENSORS, .generation = 0, .name = "block1.bn_mean"};
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    commit(f);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_record_read(txn, &key, mean, sizeof(mean), &why));
    reef_txn_abort(txn);
    size_t moved = 0;
    for (size_t i = 0; i < 16; i++) moved += mean[i] != 0.0f;
    assert_int_equal(moved, 16);
}

LIFELONG_TEST(a_name_that_is_not_utf8_is_no_source) {
    uint8_t text[200];
    size_t taken = 1;
    make_pool(f, 1);
    feed_kind(f, 0, 500, 1);
    lifelong_text(text, sizeof(text), 0, 2);
    must_fail(reef_trainer_feed(f->trainer, "caf\xe9", text, sizeof(text), &taken, NULL, &why),
              REEF_ERR_INVALID, "UTF-8");
    assert_int_equal(taken, 0);
    commit(f); // and nothing was spoilt
    must(reef_trainer_feed(f->trainer, "caf\xc3\xa9", text, sizeof(text), &taken, NULL, &why));
    commit(f);
    open_again(f, 1);
    assert_int_equal(reef_trainer_cursor(f->trainer, "caf\xc3\xa9"), sizeof(text));
}

// Without a router it is the loss that shows it, with one the queries.
static void check_divergence(lifelong *f, const char *ffw) {
    reef_status status = REEF_OK;
    f->config.layers = 1;
    choose(&f->config, "ffw", ffw);
    f->config.learning_rate = 10.0f;
    f->config.clip = 0.0f;
    f->config.beta2 = 0.0f;
    f->config.epsilon = 1e-16f;
    make_pool(f, 1);
    reef_commit before = commit(f);
    uint8_t text[LIFELONG_BATCH];
    for (uint32_t i = 0; status == REEF_OK && i < 3000; i++) {
        lifelong_text(text, sizeof(text), (int)(i % 5), i);
        status = reef_trainer_feed(f->trainer, "test", text, sizeof(text), NULL, NULL, &why);
    }
    reef_trainer_status now = status_of(f);
    char step[64];
    snprintf(step, sizeof(step), "training diverged at step %llu", (unsigned long long)now.step);
    assert_int_equal(status, REEF_ERR_INVALID);
    assert_non_null(strstr(why.message, step));
    assert_non_null(strstr(why.message, "learning_rate"));
    assert_true(isfinite(now.last_bits_per_byte)); // it does not count
    must_fail(reef_trainer_feed(f->trainer, "test", text, 1, NULL, NULL, &why), REEF_ERR_INVALID,
              step);
    must_fail(reef_trainer_commit(f->trainer, NULL, &why), REEF_ERR_INVALID, step);
    open_again(f, 1);
    assert_memory_equal(f->trainer->last_commit.root, before.root, sizeof(before.root));
    assert_sound(f);
    remove_pool(f);
}

LIFELONG_TEST(training_that_diverges_is_reported_and_not_kept) {
    check_divergence(f, "d");
    check_divergence(f, "p");
}

PLAIN_TEST(the_reservoir_is_a_uniform_sample) {
    reef_config config = lifelong_config();
    reef_reservoir reservoir;
    must(reef_reservoir_init(&reservoir, &config, &why));
    reservoir.old_slots = 256; // a part of it, which is full soon
    reservoir.slots = 320;
    uint8_t window[64] = {0};
    enum { OFFERS = 20000 };
    for (uint64_t i = 0; i < OFFERS; i++)
        reef_reservoir_offer(&reservoir, i < OFFERS / 2 ? 0 : 1, i, window, 64);
    size_t old = 0, early = 0;
    for (size_t slot = 0; slot < reservoir.old_slots; slot++) {
        assert_int_equal(reservoir.sizes[slot], 64);
        old += reservoir.generations[slot] == 0;
        early += reservoir.offsets[slot] < OFFERS / 10;
    }
    // Binomial with 256 draws: five standard deviations are 40 and 24.
    assert_true(old > 88 && old < 168);
    assert_true(early > 1 && early < 50);
    reef_reservoir_lists lists;
    must(reef_reservoir_lists_init(&lists, &reservoir, 1, NULL, &why));
    assert_int_equal(lists.old_fit.count + lists.old_calibrate.count, old);
    assert_int_equal(lists.young.count, reservoir.slots - reservoir.old_slots);
    reef_reservoir_lists_release(&lists);
    reef_reservoir_clear_sample(&reservoir);
    must(reef_reservoir_lists_init(&lists, &reservoir, 2, NULL, &why));
    assert_int_equal(lists.young.count, 0);
    assert_int_equal(lists.old_fit.count + lists.old_calibrate.count, reservoir.old_slots);
    reef_reservoir_lists_release(&lists);
    reef_reservoir_release(&reservoir);
}

RUN_TESTS
