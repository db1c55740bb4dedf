// The promises of the lifelong loop, on real pools: as-of is exact to the bit for ever, the stream
// alone decides the bits (not threads, cuts, commits or restarts), boundaries are found, a domain
// that comes back is recognised, frozen experts stand still.
#include "lifelong_process.h"
#include "trainer_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static reef_config tiny_config(void) {
    reef_config config = lifelong_config();
    config.gate_decay = 0.9f;
    return config;
}

static int setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    f->config = tiny_config();
    return 0;
}

#define LOGIT_BYTES LIFELONG_LOGIT_BYTES

static void as_of_is_bit_identical_for_ever(void **state) {
    lifelong *f = *state;
    reef_error err;
    float *sealed[2] = {new_logits(), new_logits()}, *later = new_logits();
    make_pool(f, 2);
    for (int g = 0; g < 2; g++) {
        feed_kind(f, g, 12000, 1);
        ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
        logits_of(f->store, g == 0 ? "0" : "1", g, sealed[g]);
    }
    feed_kind(f, 2, 12000, 1);
    commit(f);
    close_pool(f);
    logits_in_new_process(f, "0", 0, later);
    assert_memory_equal(sealed[0], later, LOGIT_BYTES);
    logits_in_new_process(f, "1", 1, later);
    assert_memory_equal(sealed[1], later, LOGIT_BYTES);
    logits_in_new_process(f, "now", 2, later);
    logits_in_new_process(f, "0", 2, sealed[0]);
    assert_memory_not_equal(sealed[0], later, LOGIT_BYTES); // something was learned in between
    free(sealed[0]);
    free(sealed[1]);
    free(later);
}

static void assert_reopens_to(reef_model **model, lifelong *f, const char *as_of) {
    reef_error err;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    float *again = new_logits(), *anew = new_logits();
    ok(reef_model_reopen(model, f->store, as_of, &(reef_model_options){.threads = 1}, &err), &err);
    for (int kind = 0; kind < 3; kind++) {
        lifelong_text(probe, sizeof(probe), kind, 99);
        ok(reef_model_logits(*model, probe, sizeof(probe), again, &err), &err);
        logits_of(f->store, as_of, kind, anew);
        assert_memory_equal(again, anew, LOGIT_BYTES);
    }
    free(again);
    free(anew);
}

// Whatever of the older copy is taken over: nothing at first, then what was sealed since or before.
static void a_model_that_is_reopened_has_the_bits_of_one_that_is_opened(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_model *model = NULL;
    reef_snapshot snapshot;
    make_pool(f, 2);
    for (int g = 0; g < 3; g++) {
        feed_kind(f, g, 8000, 1);
        commit(f);
        assert_reopens_to(&model, f, "now");
        feed_kind(f, g, 2000, 2);
        commit(f);
        assert_reopens_to(&model, f, "now");
        ok(reef_trainer_snapshot(f->trainer,
                                 g == 1   ? "one"
                                 : g == 2 ? "two"
                                          : "none",
                                 &snapshot, &err),
           &err);
        ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
        assert_reopens_to(&model, f, "now");
    }
    static const char *const STATES[] = {"0", "1", "one", "2", "two", "now"};
    for (size_t i = 0; i < sizeof(STATES) / sizeof(*STATES); i++)
        assert_reopens_to(&model, f, STATES[i]);
    assert_int_equal(reef_model_reopen(&model, f->store, "9", NULL, &err), REEF_ERR_NOT_FOUND);
    assert_null(model);
    assert_reopens_to(&model, f, "now");
    // A pool that went another way from "one" on has other generations after the first.
    char path[TEMP_DIR_BYTES];
    reef_restoration done;
    temp_dir_join(path, f->dir, "other");
    ok(reef_pool_restore(f->store, "one", path, &done, &err), &err);
    close_pool(f);
    temp_dir_join(f->pool, f->dir, "other");
    open_pool(f, 2);
    for (int g = 3; g < 5; g++) {
        feed_kind(f, g, 6000, 1);
        ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    }
    assert_reopens_to(&model, f, "now");
    reef_model_close(model);
}

// Reads a probe again and again while a later copy is opened beside the model.
typedef struct reading {
    reef_model *model;
    atomic_bool ends;
    const float *expected;
    size_t different;
} reading;

static void *read_on(void *context) {
    reading *r = context;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    float *logits = malloc(LOGIT_BYTES);
    reef_error err;
    lifelong_text(probe, sizeof(probe), 0, 99);
    do {
        if (logits == NULL ||
            reef_model_logits(r->model, probe, sizeof(probe), logits, &err) != REEF_OK ||
            memcmp(logits, r->expected, LOGIT_BYTES) != 0)
            r->different++;
    } while (!atomic_load(&r->ends));
    free(logits);
    return NULL;
}

static reef_model *open_beside(lifelong *f, reef_model *older, const float *expected) {
    reef_error err;
    pthread_t thread;
    reading r = {.model = older, .expected = expected};
    reef_model *newer = NULL;
    assert_int_equal(pthread_create(&thread, NULL, read_on, &r), 0);
    reef_status status = reef_model_open_beside(
        &newer, f->store, "now", &(reef_model_options){.threads = 1}, older, &err);
    atomic_store(&r.ends, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    ok(status, &err);
    assert_int_equal(r.different, 0);
    return newer;
}

static void assert_answers(reef_model *model, int kind, const float *expected) {
    reef_error err;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    float *logits = new_logits();
    lifelong_text(probe, sizeof(probe), kind, 99);
    ok(reef_model_logits(model, probe, sizeof(probe), logits, &err), &err);
    assert_memory_equal(logits, expected, LOGIT_BYTES);
    free(logits);
}

static void a_model_opened_beside_an_older_one_leaves_that_as_it_was(void **state) {
    lifelong *f = *state;
    reef_error err;
    float *before = new_logits(), *now = new_logits();
    reef_model *older = NULL;
    make_pool(f, 2);
    for (int g = 0; g < 2; g++) {
        feed_kind(f, g, 8000, 1);
        ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    }
    feed_kind(f, 2, 4000, 1);
    commit(f);
    ok(reef_model_open(&older, f->store, "now", &(reef_model_options){.threads = 1}, &err), &err);
    assert_true(reef_model_is_shared(older));
    for (int round = 0; round < 3; round++) {
        logits_of(f->store, "now", 0, before);
        feed_kind(f, 2, 4000, 2 + (uint32_t)round);
        if (round == 1) ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
        commit(f);
        reef_model *newer = open_beside(f, older, before);
        for (int kind = 0; kind < 3; kind++) {
            logits_of(f->store, "now", kind, now);
            assert_answers(newer, kind, now);
        }
        assert_answers(older, 0, before);
        if (round == 0) { // given up: the older one still has all of its own
            reef_model_close(newer);
            assert_answers(older, 0, before);
            newer = open_beside(f, older, before);
        }
        reef_model_replace(older, newer);
        older = newer;
        assert_answers(older, 2, now);
    }
    reef_model_close(older);
    free(before);
    free(now);
}

static void todays_output_is_the_old_one_where_no_newer_gate_fires(void **state) {
    lifelong *f = *state;
    reef_error err;
    float *before = new_logits(), *now = new_logits();
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 1);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    logits_of(f->store, "0", 0, before);
    feed_kind(f, 1, 12000, 1);
    commit(f);
    logits_of(f->store, "now", 0, now);
    assert_memory_equal(before, now, LOGIT_BYTES);
    logits_of(f->store, "0", 1, before);
    logits_of(f->store, "now", 1, now);
    assert_memory_not_equal(before, now, LOGIT_BYTES);
    free(before);
    free(now);
}

// The root after a stream with two changes, fed in cuts of `cut` bytes, committed every `every`
// cuts, and with `reopen` thrown away after every third commit and taken up from the pool.
static void root_of_run(const reef_config *config,
                        size_t threads,
                        size_t cut,
                        size_t every,
                        bool reopen,
                        uint8_t root[REEF_HASH_BYTES]) {
    void *state = NULL;
    setup(&state);
    lifelong *f = state;
    f->config = *config;
    enum { PART = 9000, TOTAL = 3 * PART };
    uint8_t *stream = malloc(TOTAL);
    for (int kind = 0; kind < 3; kind++) lifelong_text(stream + kind * PART, PART, kind, 7);
    f->config.gate_decay = 0.995f; // longer than the start of a stream weighs
    make_pool(f, threads);
    reef_commit last;
    size_t cuts = 0, commits = 0;
    for (size_t at = 0; at < TOTAL;) {
        size_t count = TOTAL - at < cut ? TOTAL - at : cut;
        feed(f, stream + at, count);
        at += count;
        if (++cuts % every != 0) continue;
        last = commit(f);
        if (!reopen || ++commits % 3 != 0) continue;
        if (at < TOTAL) feed(f, stream + at, 1); // lost with the process: not committed
        close_pool(f);
        open_pool(f, threads);
        assert_int_equal(reef_trainer_cursor(f->trainer, "test"), at);
        reef_commit again; // what was read back is what was written
        again = commit(f);
        assert_memory_equal(last.root, again.root, REEF_HASH_BYTES);
    }
    last = commit(f);
    assert_int_equal(status_of(f).generation, 2); // the boundaries were found
    memcpy(root, last.root, REEF_HASH_BYTES);
    free(stream);
    lifelong_teardown(&state);
}

static void assert_the_stream_decides(const reef_config *config) {
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    root_of_run(config, 1, 27000, 1, false, expected);
    root_of_run(config, 2, 27000, 1, false, root); // threads
    assert_memory_equal(expected, root, sizeof(root));
    root_of_run(config, 3, 997, 5, false, root); // cuts and commits
    assert_memory_equal(expected, root, sizeof(root));
    root_of_run(config, 8, 313, 3, true, root); // restarts
    assert_memory_equal(expected, root, sizeof(root));
}

static void the_stream_alone_decides_the_bits(void **state) {
    (void)state;
    reef_config config = tiny_config();
    assert_the_stream_decides(&config);
}

static void it_does_for_gated_experts_that_are_rounded_too(void **state) {
    (void)state;
    reef_config config = tiny_config();
    choose(&config, "expert", "glu");
    choose(&config, "score", "sigmoid");
    choose(&config, "seal_dtype", "bf16");
    assert_the_stream_decides(&config);
}

static void every_kind_and_score_learns(void **state) {
    (void)state;
    static const char *const EXPERTS[] = {"gelu", "relu", "glu"};
    static const char *const SCORES[] = {"softmax", "sigmoid", "relu"};
    for (size_t i = 0; i < 9; i++) {
        void *own = NULL;
        setup(&own);
        lifelong *f = own;
        choose(&f->config, "expert", EXPERTS[i / 3]);
        choose(&f->config, "score", SCORES[i % 3]);
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
    assert_int_equal(status.skipped_bytes, 0);
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
    assert_true(status.skipped_bytes > 3000);
    // Its loss is the model's, not that of a generation that answers nothing of it.
    assert_true(reef_trainer_source_loss(f->trainer, "test", &returned));
    double bits = (returned.sum - learned.sum) / (double)(returned.scored - learned.scored);
    if (!(bits < 3.0 && status.last_bits_per_byte < 3.0))
        fail_msg("%g bits per byte, the last batch %g", bits, status.last_bits_per_byte);
    commit(f);
    logits_of(f->store, "now", 0, now);
    logits_of(f->store, "0", 0, before);
    assert_memory_equal(before, now, LOGIT_BYTES);
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
    assert_true(status.skipped_bytes <= 16 * LIFELONG_BATCH);
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
    assert_true(then.skipped_bytes <= 4 * LIFELONG_BATCH);
    assert_true(now.skipped_bytes - then.skipped_bytes >= 36 * LIFELONG_BATCH);
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

static void frozen_experts_do_not_change_by_one_bit(void **state) {
    lifelong *f = *state;
    reef_error err;
    uint64_t changed;
    reef_key key = {.db = REEF_DB_EXPERTS, .generation = 0, .layer = 1, .block = 0};
    size_t row = 2 * 16, count = 36 * row;
    float *before = calloc(count, sizeof(*before)), *after = calloc(count, sizeof(*after));
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    reef_freeze freeze = {.layer = 1, .first = 0, .last = 9, .dry_run = true};
    ok(reef_trainer_freeze(f->trainer, &freeze, &changed, &err), &err);
    assert_int_equal(changed, 10);
    freeze.dry_run = false;
    ok(reef_trainer_freeze(f->trainer, &freeze, &changed, &err), &err);
    assert_int_equal(changed, 10);
    reef_txn *txn = NULL;
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_read(txn, &key, before, count * sizeof(*before), &err), &err);
    reef_txn_abort(txn);
    feed_kind(f, 0, 4000, 4);
    commit(f);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_read(txn, &key, after, count * sizeof(*after), &err), &err);
    reef_txn_abort(txn);
    assert_memory_equal(before, after, 10 * row * sizeof(*before));
    assert_memory_not_equal(before + 10 * row, after + 10 * row, 26 * row * sizeof(*before));
    freeze.first = 40;
    freeze.last = 50;
    assert_int_equal(reef_trainer_freeze(f->trainer, &freeze, &changed, &err), REEF_ERR_INVALID);
    free(before);
    free(after);
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

static void a_grown_generation_goes_on_learning(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_pool(f, 2);
    feed_kind(f, 0, 6000, 3);
    assert_int_equal(reef_trainer_grow(f->trainer, 6, &err), REEF_ERR_INVALID);
    ok(reef_trainer_grow(f->trainer, 9, &err), &err);
    assert_int_equal(status_of(f).experts_open, 2 * 81);
    double before = status_of(f).bits_per_byte;
    feed_kind(f, 0, 6000, 4);
    assert_true(status_of(f).bits_per_byte < before);
    close_pool(f);
    open_pool(f, 1);
    assert_int_equal(status_of(f).experts_open, 2 * 81);
}

// How far today's output on old data is from the old one, where the new generation's gate must
// leak: both generations saw the same kind of text, and half of the old tokens may fire.
static double drift_on_leaking_tokens(float retain_weight) {
    void *state = NULL;
    setup(&state);
    lifelong *f = state;
    reef_error err;
    f->config.retain_weight = retain_weight;
    f->config.leak_max = 0.5f;
    f->config.boundaries = REEF_BOUNDARIES_GIVEN;
    make_pool(f, 1);
    feed_kind(f, 0, 8000, 3);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    feed_kind(f, 0, 16000, 4);
    commit(f);
    float *before = new_logits(), *now = new_logits();
    logits_of(f->store, "0", 0, before);
    logits_of(f->store, "now", 0, now);
    double sum = 0.0;
    for (size_t i = 0; i < LIFELONG_PROBE_BYTES * REEF_VOCAB; i++)
        sum += fabs((double)now[i] - (double)before[i]);
    free(before);
    free(now);
    lifelong_teardown(&state);
    return sum;
}

static void the_retain_term_keeps_what_leaks_small(void **state) {
    (void)state;
    double without = drift_on_leaking_tokens(0.0f), with = drift_on_leaking_tokens(100.0f);
    assert_true(without > 0.0);
    assert_true(with < 0.8 * without);
}

static void the_running_statistics_of_queries_move(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_txn *txn = NULL;
    float mean[16];
    reef_key key = {.db = REEF_DB_TENSORS, .generation = 0, .name = "block1.bn_mean"};
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    commit(f);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_read(txn, &key, mean, sizeof(mean), &err), &err);
    reef_txn_abort(txn);
    size_t moved = 0;
    for (size_t i = 0; i < 16; i++) moved += mean[i] != 0.0f;
    assert_int_equal(moved, 16);
}

static void a_snapshot_keeps_its_state(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_snapshot snapshot;
    float *then = new_logits(), *later = new_logits();
    make_pool(f, 1);
    feed_kind(f, 0, 6000, 3);
    ok(reef_trainer_snapshot(f->trainer, "monday", &snapshot, &err), &err);
    logits_of(f->store, "now", 0, then);
    feed_kind(f, 0, 6000, 4);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    logits_of(f->store, "monday", 0, later);
    assert_memory_equal(then, later, LOGIT_BYTES);
    logits_of(f->store, "0", 0, later);
    assert_memory_not_equal(then, later, LOGIT_BYTES);
    reef_model *model;
    assert_int_equal(
        reef_model_open(&model, f->store, "tuesday", &(reef_model_options){.threads = 1}, &err),
        REEF_ERR_NOT_FOUND);
    assert_int_equal(
        reef_model_open(&model, f->store, "2", &(reef_model_options){.threads = 1}, &err),
        REEF_ERR_NOT_FOUND);
    free(then);
    free(later);
}

static void scoring_and_generating_agree_with_the_logits(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES], out[64], again[64];
    float *logits = new_logits(), bits[LIFELONG_PROBE_BYTES];
    make_pool(f, 1);
    feed_kind(f, 0, 9000, 3);
    commit(f);
    lifelong_text(probe, sizeof(probe), 0, 99);
    ok(reef_model_open(&model, f->store, NULL, &(reef_model_options){.threads = 2}, &err), &err);
    ok(reef_model_logits(model, probe, sizeof(probe), logits, &err), &err);
    reef_score score = {0};
    ok(reef_model_score(model, probe, sizeof(probe), bits, &score, NULL, NULL, &err), &err);
    double total = 0.0;
    for (size_t t = 0; t + 1 < sizeof(probe); t++) {
        const float *row = logits + t * REEF_VOCAB;
        double sum = 0.0;
        for (size_t v = 0; v < REEF_VOCAB; v++) sum += exp((double)row[v]);
        double expected = (log(sum) - (double)row[probe[t + 1]]) / log(2.0);
        assert_true(fabs(expected - (double)bits[t + 1]) < 1e-4);
        total += expected;
    }
    assert_true(fabs(total - score.bits) < 1e-2);
    assert_int_equal(score.bytes, sizeof(probe) - 1);
    assert_int_equal(reef_model_score(model, probe, 1, NULL, &score, NULL, NULL, &err),
                     REEF_ERR_INVALID);

    reef_sampling greedy = {.temperature = 0.0f};
    ok(reef_model_generate(model, probe, 12, sizeof(out), &greedy, out, &err), &err);
    size_t best = 0;
    for (size_t v = 1; v < REEF_VOCAB; v++)
        if (logits[11 * REEF_VOCAB + v] > logits[11 * REEF_VOCAB + best]) best = v;
    assert_int_equal(out[0], best);
    const float cold[] = {1e-20f, 1e-38f, 1e-40f, 1e-45f}; // the last ones divide beyond a float
    for (size_t i = 0; i < sizeof(cold) / sizeof(*cold); i++) {
        reef_sampling sampling = {.seed = 5, .temperature = cold[i], .top_p = 0.9f};
        ok(reef_model_generate(model, probe, 12, sizeof(again), &sampling, again, &err), &err);
        assert_memory_equal(out, again, sizeof(out));
    }
    reef_sampling sampling = {.seed = 5, .temperature = 1.0f, .top_p = 0.9f};
    ok(reef_model_generate(model, probe, 12, sizeof(out), &sampling, out, &err), &err);
    ok(reef_model_generate(model, probe, 12, sizeof(again), &sampling, again, &err), &err);
    assert_memory_equal(out, again, sizeof(out));
    reef_model_close(model);
    free(logits);
}

static void a_name_that_is_not_utf8_is_no_source(void **state) {
    lifelong *f = *state;
    reef_error err;
    uint8_t text[200];
    size_t taken = 1;
    make_pool(f, 1);
    feed_kind(f, 0, 500, 1);
    lifelong_text(text, sizeof(text), 0, 2);
    assert_int_equal(
        reef_trainer_feed(f->trainer, "caf\xe9", text, sizeof(text), &taken, NULL, &err),
        REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "UTF-8"));
    assert_int_equal(taken, 0);
    commit(f); // and nothing was spoilt
    ok(reef_trainer_feed(f->trainer, "caf\xc3\xa9", text, sizeof(text), &taken, NULL, &err), &err);
    commit(f);
    close_pool(f);
    open_pool(f, 1);
    assert_int_equal(reef_trainer_cursor(f->trainer, "caf\xc3\xa9"), sizeof(text));
}

// Without a router it is the loss that shows it, with one the queries.
static void check_divergence(lifelong *f, const char *ffw) {
    reef_error err;
    reef_status status = REEF_OK;
    f->config.layers = 1;
    choose(&f->config, "ffw", ffw);
    f->config.learning_rate = 10.0f;
    f->config.clip = 0.0f;
    f->config.warmup = 0;
    f->config.beta2 = 0.0f;
    f->config.epsilon = 1e-16f;
    make_pool(f, 1);
    reef_commit before = commit(f);
    uint8_t text[LIFELONG_BATCH];
    for (uint32_t i = 0; status == REEF_OK && i < 3000; i++) {
        lifelong_text(text, sizeof(text), (int)(i % 5), i);
        status = reef_trainer_feed(f->trainer, "test", text, sizeof(text), NULL, NULL, &err);
    }
    reef_trainer_status now = status_of(f);
    char step[64];
    snprintf(step, sizeof(step), "training diverged at step %llu", (unsigned long long)now.step);
    assert_int_equal(status, REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, step));
    assert_non_null(strstr(err.message, "learning_rate"));
    assert_true(isfinite(now.last_bits_per_byte)); // it does not count
    assert_int_equal(reef_trainer_feed(f->trainer, "test", text, 1, NULL, NULL, &err),
                     REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, step));
    assert_int_equal(reef_trainer_commit(f->trainer, NULL, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, step));
    close_pool(f);
    open_pool(f, 1);
    assert_memory_equal(f->trainer->last_commit.root, before.root, sizeof(before.root));
    assert_sound(f);
    close_pool(f);
    temp_dir_remove(f->pool);
}

static void training_that_diverges_is_reported_and_not_kept(void **state) {
    lifelong *f = *state;
    check_divergence(f, "d");
    check_divergence(f, "p");
}

static void the_reservoir_is_a_uniform_sample(void **state) {
    (void)state;
    reef_error err;
    reef_config config = tiny_config();
    reef_reservoir reservoir;
    ok(reef_reservoir_init(&reservoir, &config, &err), &err);
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
    ok(reef_reservoir_lists_init(&lists, &reservoir, 1, &err), &err);
    assert_int_equal(lists.old_fit.count + lists.old_calibrate.count, old);
    assert_int_equal(lists.young.count, reservoir.slots - reservoir.old_slots);
    reef_reservoir_lists_release(&lists);
    reef_reservoir_clear_sample(&reservoir);
    ok(reef_reservoir_lists_init(&lists, &reservoir, 2, &err), &err);
    assert_int_equal(lists.young.count, 0);
    assert_int_equal(lists.old_fit.count + lists.old_calibrate.count, reservoir.old_slots);
    reef_reservoir_lists_release(&lists);
    reef_reservoir_release(&reservoir);
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

int main(int argc, char **argv) {
    int result;
    if (lifelong_is_other_process(argc, argv, &result)) return result;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_of_is_bit_identical_for_ever, setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_model_that_is_reopened_has_the_bits_of_one_that_is_opened,
                                        setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_model_opened_beside_an_older_one_leaves_that_as_it_was,
                                        setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(todays_output_is_the_old_one_where_no_newer_gate_fires,
                                        setup, lifelong_teardown),
        cmocka_unit_test(the_stream_alone_decides_the_bits),
        cmocka_unit_test(it_does_for_gated_experts_that_are_rounded_too),
        cmocka_unit_test(every_kind_and_score_learns),
        cmocka_unit_test_setup_teardown(a_boundary_is_found_where_the_stream_changes, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_change_has_to_last_for_a_share_of_what_was_seen, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(an_odd_passage_before_the_change_stays_with_what_was, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(what_is_always_enough_bounds_the_share, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_generation_without_training_is_not_sealed, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(without_drift_nothing_is_opened, setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_short_oddity_is_trained_on_and_opens_nothing, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_domain_that_comes_back_is_recognised, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(it_is_recognised_although_the_open_gate_still_fires, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(what_an_old_gate_claims_but_does_not_explain_is_learned,
                                        setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(what_the_open_gate_leaves_to_older_ones_is_not_trained_on,
                                        setup, lifelong_teardown),
        cmocka_unit_test(excess_loss_adds_up_and_is_forgotten_again),
        cmocka_unit_test_setup_teardown(the_running_statistics_of_queries_move, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(frozen_experts_do_not_change_by_one_bit, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(growing_tests_deferred_batches_again, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_grown_generation_goes_on_learning, setup,
                                        lifelong_teardown),
        cmocka_unit_test(the_retain_term_keeps_what_leaks_small),
        cmocka_unit_test_setup_teardown(a_snapshot_keeps_its_state, setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(scoring_and_generating_agree_with_the_logits, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_name_that_is_not_utf8_is_no_source, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(training_that_diverges_is_reported_and_not_kept, setup,
                                        lifelong_teardown),
        cmocka_unit_test(the_reservoir_is_a_uniform_sample),
        cmocka_unit_test(the_drift_level_is_median_and_robust_spread),
    };
    return cmocka_run_group_tests_name("trainer lifelong", tests, NULL, NULL);
}
