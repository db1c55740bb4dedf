// The promises of the lifelong loop, on real pools: as-of is exact to the bit for ever, and the
// stream alone decides the bits (not threads, cuts, commits or restarts).
#include "lifelong_process.h"
#include "reef_snapshot.h"
#include "test.h"
#include "trainer_internal.h"

#include <pthread.h>
#include <stdatomic.h>

#define LOGIT_BYTES LIFELONG_LOGIT_BYTES

LIFELONG_TEST(as_of_is_bit_identical_for_ever) {
    float *sealed[2] = {new_logits(), new_logits()}, *later = new_logits();
    make_pool(f, 2);
    for (int g = 0; g < 2; g++) {
        feed_kind(f, g, 12000, 1);
        must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
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
}

static void assert_reopens_to(reef_model **model, lifelong *f, const char *as_of) {
    uint8_t probe[LIFELONG_PROBE_BYTES];
    float *again = new_logits(), *anew = new_logits();
    must(reef_model_reopen(model, f->store, as_of, &(reef_model_options){.threads = 1}, &why));
    for (int kind = 0; kind < 3; kind++) {
        lifelong_text(probe, sizeof(probe), kind, 99);
        must(reef_model_logits(*model, probe, sizeof(probe), again, &why));
        logits_of(f->store, as_of, kind, anew);
        assert_memory_equal(again, anew, LOGIT_BYTES);
    }
}

// Whatever of the older copy is taken over: nothing at first, then what was sealed since or before.
LIFELONG_TEST(a_model_that_is_reopened_has_the_bits_of_one_that_is_opened) {
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
        must(reef_trainer_snapshot(f->trainer,
                                   g == 1   ? "one"
                                   : g == 2 ? "two"
                                            : "none",
                                   &snapshot, &why));
        must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
        assert_reopens_to(&model, f, "now");
    }
    static const char *const STATES[] = {"0", "1", "one", "2", "two", "now"};
    for (size_t i = 0; i < sizeof(STATES) / sizeof(*STATES); i++)
        assert_reopens_to(&model, f, STATES[i]);
    assert_int_equal(reef_model_reopen(&model, f->store, "9", NULL, &why), REEF_ERR_NOT_FOUND);
    assert_null(model);
    assert_reopens_to(&model, f, "now");
    // A pool that went another way from "one" on has other generations after the first.
    char path[TEMP_DIR_BYTES];
    reef_restoration done;
    temp_dir_join(path, f->dir, "other");
    must(reef_pool_restore(f->store, "one", path, &done, &why));
    close_pool(f);
    temp_dir_join(f->pool, f->dir, "other");
    open_pool(f, 2);
    for (int g = 3; g < 5; g++) {
        feed_kind(f, g, 6000, 1);
        must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
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
    float *logits = room(LOGIT_BYTES);
    lifelong_text(probe, sizeof(probe), 0, 99);
    do {
        if (logits == NULL ||
            reef_model_logits(r->model, probe, sizeof(probe), logits, &why) != REEF_OK ||
            memcmp(logits, r->expected, LOGIT_BYTES) != 0)
            r->different++;
    } while (!atomic_load(&r->ends));
    return NULL;
}

static reef_model *open_beside(lifelong *f, reef_model *older, const float *expected) {
    pthread_t thread;
    reading r = {.model = older, .expected = expected};
    reef_model *newer = NULL;
    assert_int_equal(pthread_create(&thread, NULL, read_on, &r), 0);
    reef_status status = reef_model_open_beside(&newer, f->store, "now",
                                                &(reef_model_options){.threads = 1}, older, &why);
    atomic_store(&r.ends, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    must(status);
    assert_int_equal(r.different, 0);
    return newer;
}

static void assert_answers(reef_model *model, int kind, const float *expected) {
    uint8_t probe[LIFELONG_PROBE_BYTES];
    float *logits = new_logits();
    lifelong_text(probe, sizeof(probe), kind, 99);
    must(reef_model_logits(model, probe, sizeof(probe), logits, &why));
    assert_memory_equal(logits, expected, LOGIT_BYTES);
}

LIFELONG_TEST(a_model_opened_beside_an_older_one_leaves_that_as_it_was) {
    float *before = new_logits(), *now = new_logits();
    make_pool(f, 2);
    for (int g = 0; g < 2; g++) {
        feed_kind(f, g, 8000, 1);
        must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    }
    feed_kind(f, 2, 4000, 1);
    commit(f);
    reef_model *older = model_of(f->store, "now");
    assert_true(reef_model_is_shared(older));
    for (int round = 0; round < 3; round++) {
        logits_of(f->store, "now", 0, before);
        feed_kind(f, 2, 4000, 2 + (uint32_t)round);
        if (round == 1) must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
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
        reef_model_inherit(newer, older);
        reef_model_close(older);
        older = newer;
        assert_answers(older, 2, now);
    }
    reef_model_close(older);
}

// Scores by net and memories.
static void scores_of(reef_model *model, float *bits) {
    uint8_t probe[LIFELONG_PROBE_BYTES];
    reef_score score = {0};
    for (int kind = 0; kind < 2; kind++) {
        lifelong_text(probe, sizeof(probe), kind, 99);
        must(reef_model_score(model, probe, sizeof(probe), bits + kind * LIFELONG_PROBE_BYTES,
                              &score, NULL, NULL, &why));
    }
}

typedef struct scoring {
    reef_model *model;
    float bits[2 * LIFELONG_PROBE_BYTES];
} scoring;

static void *score_aside(void *context) {
    scoring *s = context;
    scores_of(s->model, s->bits);
    return NULL;
}

LIFELONG_TEST(twins_answer_at_once_and_alike) {
    enum { TWINS = 3 };
    scoring all[TWINS] = {0};
    pthread_t threads[TWINS];
    float expected[2 * LIFELONG_PROBE_BYTES], own[2 * LIFELONG_PROBE_BYTES];
    choose(&f->config, "memory", "4M");
    choose(&f->config, "net_share", "0.5");
    make_pool(f, 1);
    feed_kind(f, 0, 6000, 1);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    feed_kind(f, 1, 6000, 1);
    commit(f);
    reef_model *model = model_of(f->store, "now");
    scores_of(model, expected);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < TWINS; i++) must(reef_model_open_twin(&all[i].model, model, &why));
        for (int i = 0; i < TWINS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, score_aside, &all[i]), 0);
        scores_of(model, own); // beside them
        assert_memory_equal(own, expected, sizeof(expected));
        for (int i = 0; i < TWINS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (int i = 0; i < TWINS; i++) {
            assert_memory_equal(all[i].bits, expected, sizeof(expected));
            assert_int_equal(reef_model_commit(all[i].model)->number,
                             reef_model_commit(model)->number);
            reef_model_close(all[i].model);
        }
    }
    scores_of(model, own); // it lost nothing with them
    assert_memory_equal(own, expected, sizeof(expected));
    reef_model_close(model);
}

static void assert_scores(reef_model *model, const float *expected) {
    float bits[2 * LIFELONG_PROBE_BYTES];
    scores_of(model, bits);
    assert_memory_equal(bits, expected, sizeof(bits));
}

LIFELONG_TEST(a_warmed_model_answers_as_one_that_is_cold) {
    reef_model *cold = NULL, *model = NULL, *newer = NULL, *twin = NULL;
    const reef_line_scorer *own, *lent;
    float expected[2 * LIFELONG_PROBE_BYTES];
    choose(&f->config, "memory", "4M");
    choose(&f->config, "net_share", "0.5");
    make_pool(f, 1);
    feed_kind(f, 0, 6000, 1);
    commit(f);
    must(reef_model_open(&model, f->store, "now", &(reef_model_options){.threads = 1}, &why));
    for (int round = 0; round < 3; round++) {
        feed_kind(f, 1, 3000, 1 + (uint32_t)round);
        if (round == 1) must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
        commit(f);
        must(reef_model_open(&cold, f->store, "now", &(reef_model_options){.threads = 1}, &why));
        scores_of(cold, expected);
        reef_model_close(cold);
        must(reef_model_open_beside(&newer, f->store, "now", &(reef_model_options){.threads = 1},
                                    model, &why));
        must(reef_model_warm(newer, &why));
        reef_model_inherit(newer, model);
        reef_model_close(model);
        model = newer;
        must(reef_model_open_twin(&twin, model, &why));
        must(reef_model_warm(twin, &why));
        assert_scores(twin, expected);
        assert_scores(model, expected);
        // Its words are counted once.
        must(reef_model_line_scorer(model, &own, &why));
        must(reef_model_line_scorer(twin, &lent, &why));
        assert_ptr_equal(lent, own);
        reef_model_close(twin);
        assert_scores(model, expected);
    }
    reef_model_close(model);
}

LIFELONG_TEST(rows_in_place_have_no_twin) {
    reef_model *model = NULL, *twin = NULL;
    choose(&f->config, "side", "32");
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 1);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    commit(f);
    must(reef_model_open(&model, f->store, "now",
                         &(reef_model_options){.threads = 1, .memory_bytes = 1}, &why));
    assert_int_equal(reef_model_open_twin(&twin, model, &why), REEF_ERR_INVALID);
    assert_null(twin);
    reef_model_close(model);
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
    lifelong_setup(&state);
    lifelong *f = state;
    f->config = *config;
    enum { PART = 14000, TOTAL = 3 * PART };
    uint8_t *stream = room(TOTAL);
    for (int kind = 0; kind < 3; kind++) lifelong_text(stream + kind * PART, PART, kind, 7);
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
        open_again(f, threads);
        assert_int_equal(reef_trainer_cursor(f->trainer, "test"), at);
        reef_commit again; // what was read back is what was written
        again = commit(f);
        assert_memory_equal(last.root, again.root, REEF_HASH_BYTES);
    }
    last = commit(f);
    assert_int_equal(status_of(f).generation, 2); // the boundaries were found
    memcpy(root, last.root, REEF_HASH_BYTES);
    lifelong_teardown(&state);
}

static void assert_the_stream_decides(const reef_config *config) {
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    root_of_run(config, 1, 42000, 1, false, expected);
    root_of_run(config, 2, 42000, 1, false, root); // threads
    assert_memory_equal(expected, root, sizeof(root));
    root_of_run(config, 3, 997, 5, false, root); // cuts and commits
    assert_memory_equal(expected, root, sizeof(root));
    root_of_run(config, 8, 313, 3, true, root); // restarts
    assert_memory_equal(expected, root, sizeof(root));
}

PLAIN_TEST(the_stream_alone_decides_the_bits) {
    reef_config config = lifelong_config();
    assert_the_stream_decides(&config);
}

PLAIN_TEST(it_does_for_gated_experts_that_are_rounded_too) {
    reef_config config = lifelong_config();
    choose(&config, "expert", "glu");
    choose(&config, "score", "sigmoid");
    choose(&config, "seal_dtype", "int8");
    assert_the_stream_decides(&config);
}

LIFELONG_TEST(a_snapshot_keeps_its_state) {
    reef_snapshot snapshot;
    float *then = new_logits(), *later = new_logits();
    make_pool(f, 1);
    feed_kind(f, 0, 6000, 3);
    must(reef_trainer_snapshot(f->trainer, "monday", &snapshot, &why));
    logits_of(f->store, "now", 0, then);
    feed_kind(f, 0, 6000, 4);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    logits_of(f->store, "monday", 0, later);
    assert_memory_equal(then, later, LOGIT_BYTES);
    logits_of(f->store, "0", 0, later);
    assert_memory_not_equal(then, later, LOGIT_BYTES);
    reef_model *model;
    assert_int_equal(
        reef_model_open(&model, f->store, "tuesday", &(reef_model_options){.threads = 1}, &why),
        REEF_ERR_NOT_FOUND);
    assert_int_equal(
        reef_model_open(&model, f->store, "2", &(reef_model_options){.threads = 1}, &why),
        REEF_ERR_NOT_FOUND);
}

LIFELONG_TEST(scoring_and_generating_agree_with_the_logits) {
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES], out[64], again[64];
    float *logits = new_logits(), bits[LIFELONG_PROBE_BYTES];
    forget_memories(f); // logits are those of the net
    make_pool(f, 1);
    feed_kind(f, 0, 9000, 3);
    commit(f);
    lifelong_text(probe, sizeof(probe), 0, 99);
    must(reef_model_open(&model, f->store, NULL, &(reef_model_options){.threads = 2}, &why));
    must(reef_model_logits(model, probe, sizeof(probe), logits, &why));
    reef_score score = {0};
    must(reef_model_score(model, probe, sizeof(probe), bits, &score, NULL, NULL, &why));
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
    assert_int_equal(reef_model_score(model, probe, 1, NULL, &score, NULL, NULL, &why),
                     REEF_ERR_INVALID);

    reef_sampling greedy = {.temperature = 0.0f};
    must(reef_model_generate(model, probe, 12, sizeof(out), &greedy, out, &why));
    size_t best = 0;
    for (size_t v = 1; v < REEF_VOCAB; v++)
        if (logits[11 * REEF_VOCAB + v] > logits[11 * REEF_VOCAB + best]) best = v;
    assert_int_equal(out[0], best);
    const float cold[] = {1e-20f, 1e-38f, 1e-40f, 1e-45f}; // the last ones divide beyond a float
    for (size_t i = 0; i < sizeof(cold) / sizeof(*cold); i++) {
        reef_sampling sampling = {.seed = 5, .temperature = cold[i], .top_p = 0.9f};
        must(reef_model_generate(model, probe, 12, sizeof(again), &sampling, again, &why));
        assert_memory_equal(out, again, sizeof(out));
    }
    reef_sampling sampling = {.seed = 5, .temperature = 1.0f, .top_p = 0.9f};
    must(reef_model_generate(model, probe, 12, sizeof(out), &sampling, out, &why));
    must(reef_model_generate(model, probe, 12, sizeof(again), &sampling, again, &why));
    assert_memory_equal(out, again, sizeof(out));
    reef_model_close(model);
}

int main(int argc, char **argv) {
    int result;
    if (lifelong_is_other_process(argc, argv, &result)) return result;
    return test_run(NULL, NULL);
}
