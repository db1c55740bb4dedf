// Boundaries in a pool without a context memory: a change is found at its place, a short oddity
// opens no generation, and a domain that returns is recognised.
#include "lifelong.h"
#include "trainer_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void a_boundary_is_found_where_the_stream_changes(void **state) {
    lifelong *f = *state;
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    assert_int_equal(status_of(f).generation, 0);
    double before = status_of(f).bits_per_byte;
    feed_kind(f, 1, 8 * 64, 3); // a boundary's worth and a little
    assert_int_equal(status_of(f).generation, 1);
    assert_true(status_of(f).bits_per_byte > before + 1.0); // a history of its own
    feed_kind(f, 1, 6000 - 8 * 64, 4);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 1);
    uint64_t batch = f->config.batch * f->config.context;
    assert_true(status.opened_at + batch > 12000 && status.opened_at < 12000 + batch);
    assert_int_equal(status.stream_bytes + status.pending_bytes, 18000); // nothing is lost
}

// 187 batches trained, an eighth of them asked for: 15 foreign ones are a page in the same book,
// which is then trained like the rest; 40 are another book.
static void a_change_has_to_last_for_a_share_of_what_was_seen(void **state) {
    lifelong *f = *state;
    uint64_t batch = f->config.batch * f->config.context;
    f->config.drift_share = 0.125f;
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 15 * batch, 3);
    assert_int_equal(status_of(f).generation, 0);
    assert_int_equal(status_of(f).anomalous, 15); // drift_confirm would be 6 of them
    feed_kind(f, 0, 2000, 4);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 0);
    assert_int_equal(status.anomalous, 0);
    assert_true(status.pending_bytes <= batch); // all of it is trained
    assert_int_equal(status.stream_bytes + status.pending_bytes, 14000 + 15 * batch);
    feed_kind(f, 1, 40 * batch, 4);
    assert_int_equal(status_of(f).generation, 1);
}

// Batches that are a quarter of another kind are anomalous, but nearer to what was normal than to
// the text that follows: they are trained into the old generation.
static void an_odd_passage_before_the_change_stays_with_what_was(void **state) {
    lifelong *f = *state;
    uint64_t window = f->config.context, batch = f->config.batch * window;
    make_pool(f, 1);
    feed_kind(f, 0, 188 * batch, 3);
    for (uint32_t i = 0; i < 4; i++) {
        feed_kind(f, 0, 3 * window, 10 + i);
        feed_kind(f, 1, window, 20 + i);
    }
    feed_kind(f, 1, 3 * window, 4);
    assert_true(status_of(f).anomalous >= 3);
    feed_kind(f, 1, 20 * batch, 3);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 1);
    assert_int_equal(status.opened_at, 191 * batch); // the last of them may hold the change
    assert_int_equal(status.stream_bytes + status.pending_bytes, 212 * batch + 3 * window);
}

static void what_is_always_enough_bounds_the_share(void **state) {
    lifelong *f = *state;
    f->config.drift_share = 1.0f;
    f->config.drift_hold = 8;
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 7 * 64, 3);
    assert_int_equal(status_of(f).generation, 0);
    feed_kind(f, 1, 3 * 64, 4);
    assert_int_equal(status_of(f).generation, 1);
}

static void a_generation_without_training_is_not_sealed(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_pool(f, 1);
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &err), REEF_ERR_INVALID);
    feed_kind(f, 0, 4000, 3);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &err), REEF_ERR_INVALID);
    assert_int_equal(status_of(f).generation, 1);
}

static void without_drift_nothing_is_opened(void **state) {
    lifelong *f = *state;
    f->config.boundaries = REEF_BOUNDARIES_GIVEN;
    make_pool(f, 1);
    feed_kind(f, 0, 8000, 3);
    feed_kind(f, 1, 8000, 3);
    assert_int_equal(status_of(f).generation, 0);
}

static void a_short_oddity_is_trained_on_and_opens_nothing(void **state) {
    lifelong *f = *state;
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 3 * 64, 3); // half of what a boundary needs
    feed_kind(f, 0, 6000, 4);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 0);
    assert_true(status.pending_bytes <= 64);
    assert_int_equal(status.not_learned_bytes, 0);
}

static void feed_a_domain_again(lifelong *f, float gate_decay) {
    f->config.gate_decay = gate_decay;
    make_pool(f, 1);
    feed_kind(f, 0, 16000, 3);
    feed_kind(f, 1, 16000, 3);
    assert_int_equal(status_of(f).generation, 1);
    float *before = new_logits(), *now = new_logits();
    commit(f);
    logits_of(f->store, "now", 1, before);
    reef_source_loss learned, returned;
    assert_true(reef_trainer_source_loss(f->trainer, "test", &learned));
    feed_kind(f, 0, 4000, 5);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 1);
    assert_true(status.not_learned_bytes > 3000);
    // Its loss is the model's, not that of a generation that answers nothing of it.
    assert_true(reef_trainer_source_loss(f->trainer, "test", &returned));
    double bits = (returned.sum - learned.sum) / (double)(returned.scored - learned.scored);
    if (!(bits < 3.0 && status.last_bits_per_byte < 3.0))
        fail_msg("%g bits per byte, the last batch %g", bits, status.last_bits_per_byte);
    commit(f);
    logits_of(f->store, "now", 0, now);
    logits_of(f->store, "0", 0, before);
    assert_memory_equal(before, now, LIFELONG_LOGIT_BYTES);
    free(before);
    free(now);
}

static void a_domain_that_comes_back_is_recognised(void **state) {
    feed_a_domain_again(*state, 0.9f);
}

// The open gate's mean stays high for longer than a boundary takes to be found.
static void it_is_recognised_although_the_open_gate_still_fires(void **state) {
    feed_a_domain_again(*state, 0.998f);
}

// Random letters; a share that changes from batch to batch is replaced by others: text whose loss
// varies much. With one letter, a batch of nothing but letters at random would pass for an unlucky
// one of it, and with many for a lucky one.
static void feed_letters(lifelong *f, size_t batches, const char *others) {
    uint32_t state = others != NULL ? 7 : 8, count = others != NULL ? (uint32_t)strlen(others) : 0;
    uint8_t batch[LIFELONG_BATCH];
    for (size_t i = 0; i < batches; i++) {
        uint32_t share = others != NULL ? 40 + (uint32_t)(i * 37 % 160) : 0; // of 256
        for (size_t t = 0; t < LIFELONG_BATCH; t++) {
            state = state * 1664525u + 1013904223u;
            batch[t] = (uint8_t)((state >> 8 & 255) < share ? others[(state >> 16) % count]
                                                            : "abcdefgh"[state >> 29]);
        }
        feed(f, batch, LIFELONG_BATCH);
    }
}

// The gate of the diluted letters claims the pure ones. They are explained worse than its own data
// were, one batch after the other: so they are not a domain that came back.
static void feed_what_an_old_gate_claims(lifelong *f, bool interrupted) {
    make_pool(f, 1);
    feed_kind(f, 1, 16000, 3);
    feed_letters(f, 250, "a");
    assert_int_equal(status_of(f).generation, 1);
    feed_kind(f, 2, 8000, 3);
    assert_int_equal(status_of(f).generation, 2);
    for (size_t i = 0; i < 16; i++) {
        feed_letters(f, 1, NULL);
        if (!interrupted) continue;
        commit(f); // also after the first of them were taken for the old ones
        close_pool(f);
        open_pool(f, 1);
    }
    feed_letters(f, 40, NULL);
}

static void what_an_old_gate_claims_but_does_not_explain_is_learned(void **state) {
    lifelong *f = *state, other = {.config = f->config};
    feed_what_an_old_gate_claims(f, false);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 3);
    assert_true(status.not_learned_bytes <= 16 * LIFELONG_BATCH);
    temp_dir_new(other.dir);
    temp_dir_join(other.pool, other.dir, "pool");
    feed_what_an_old_gate_claims(&other, true);
    assert_memory_equal(commit(&other).root, commit(f).root, REEF_HASH_BYTES);
    close_pool(&other);
    temp_dir_remove(other.dir);
}

// The open generation's batches vary so much that letters at random are nothing unusual for it; but
// its gate leaves them to generation 0, which knows them better.
static void what_the_open_gate_leaves_to_older_ones_is_not_trained_on(void **state) {
    lifelong *f = *state;
    make_pool(f, 1);
    feed_letters(f, 250, NULL);
    feed_letters(f, 250, "IJKLMNOPQRSTUVWXYZijklmnopqrstuvwxyz0123456789+-");
    reef_trainer_status then = status_of(f);
    assert_int_equal(then.generation, 1);
    feed_letters(f, 40, NULL);
    reef_trainer_status now = status_of(f);
    assert_int_equal(now.generation, 1);
    assert_true(then.not_learned_bytes <= 4 * LIFELONG_BATCH);
    assert_true(now.not_learned_bytes - then.not_learned_bytes >= 36 * LIFELONG_BATCH);
}

// What was thought of held batches is in no commit; growing changes the model that thought it.
static void growing_tests_deferred_batches_again(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_commit last[2];
    for (size_t i = 0; i < 2; i++) {
        make_pool(f, 1);
        feed_kind(f, 0, 6000, 1);
        feed_kind(f, 1, 3 * LIFELONG_BATCH + 20, 1);
        assert_int_equal(status_of(f).generation, 0);
        assert_true(status_of(f).anomalous > 0);
        ok(reef_trainer_grow(f->trainer, f->config.side + 2, &err), &err);
        assert_int_equal(status_of(f).anomalous, 0);
        if (i == 1) { // as after a crash
            close_pool(f);
            open_pool(f, 1);
        }
        feed_kind(f, 1, 6000, 2);
        assert_int_equal(status_of(f).generation, 1);
        last[i] = commit(f);
        close_pool(f);
        temp_dir_remove(f->pool);
    }
    assert_memory_equal(last[0].root, last[1].root, sizeof(last[0].root));
}

static void excess_loss_adds_up_and_is_forgotten_again(void **state) {
    (void)state;
    reef_config config;
    reef_config_default(&config);
    config.drift_z = 6;
    config.drift_bits = 0.35f;
    // Level 2, spread 0.5, so the limit is 5: batches at 4 lie below it.
    double sum = reef_drift_cusum(0, 4, 2, 0.5, &config);
    assert_true(fabs(sum - 1.5) < 1e-12);
    sum = reef_drift_cusum(sum, 4, 2, 0.5, &config);
    assert_true(fabs(sum - 3.0) < 1e-12);
    for (size_t i = 0; i < 100; i++) sum = reef_drift_cusum(sum, 4, 2, 0.5, &config);
    assert_true(sum == 6.0); // twice the distance to the limit, however long it lasts
    for (size_t i = 0; i < 12; i++) sum = reef_drift_cusum(sum, 2, 2, 0.5, &config);
    assert_true(sum == 0.0);
    // Up to one spread above the level, or drift_bits where that is more, nothing adds up.
    assert_true(reef_drift_cusum(0, 2.5, 2, 0.5, &config) == 0.0);
    assert_true(reef_drift_cusum(0, 2.3, 2, 0.01, &config) == 0.0);
}

static void the_drift_level_is_median_and_robust_spread(void **state) {
    (void)state;
    reef_error err;
    reef_drift drift;
    double median, spread;
    ok(reef_drift_init(&drift, 5, &err), &err);
    reef_drift_level(&drift, &median, &spread);
    assert_true(median == 0.0 && spread == 0.0);
    const double values[] = {9.0, 1.0, 2.0, 3.0, 4.0, 100.0}; // the 9 has left the ring
    for (size_t i = 0; i < 6; i++) reef_drift_push(&drift, values[i]);
    reef_drift_level(&drift, &median, &spread);
    assert_true(median == 3.0);
    assert_true(fabs(spread - 1.4826) < 1e-12); // deviations 2 1 0 1 97
    assert_true(reef_drift_at(&drift, 0) == 1.0 && reef_drift_at(&drift, 4) == 100.0);
    reef_drift_release(&drift);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_boundary_is_found_where_the_stream_changes,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_change_has_to_last_for_a_share_of_what_was_seen,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(an_odd_passage_before_the_change_stays_with_what_was,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(what_is_always_enough_bounds_the_share,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_generation_without_training_is_not_sealed,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(without_drift_nothing_is_opened, lifelong_setup_quick_gates,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_short_oddity_is_trained_on_and_opens_nothing,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_domain_that_comes_back_is_recognised,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(it_is_recognised_although_the_open_gate_still_fires,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(what_an_old_gate_claims_but_does_not_explain_is_learned,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(what_the_open_gate_leaves_to_older_ones_is_not_trained_on,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test_setup_teardown(growing_tests_deferred_batches_again,
                                        lifelong_setup_quick_gates, lifelong_teardown),
        cmocka_unit_test(excess_loss_adds_up_and_is_forgotten_again),
        cmocka_unit_test(the_drift_level_is_median_and_robust_spread),
    };
    return cmocka_run_group_tests_name("trainer boundaries", tests, NULL, NULL);
}
