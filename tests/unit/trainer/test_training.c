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

RUN_TESTS
