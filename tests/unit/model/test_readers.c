// A model that is read out of a pool while a trainer commits to it: no transaction keeps the
// trainer from reusing pages for long, and the results are the same to the bit.
#include "lifelong.h"
#include "model_internal.h"
#include "reef_pool_check.h"
#include "test.h"
#include "trainer_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { PART = 60 * LIFELONG_BATCH, LOGITS = LIFELONG_PROBE_BYTES * REEF_VOCAB, ATTEMPTS = 40 };

static void make_sealed(lifelong *f) {
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "side", "64"); // 4,096 experts: eight blocks a layer
    make_pool(f, 1);
    for (int kind = 0; kind < 2; kind++) {
        feed_kind(f, kind, PART, 3);
        must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    }
    feed_kind(f, 2, PART, 3);
    commit(f);
}

static reef_read_stat stat_of(const reef_store *store) {
    reef_read_stat stat;
    reef_store_read_stat(store, &stat);
    return stat;
}

// ---- copied -------------------------------------------------------------------------------------

LIFELONG_TEST(a_model_is_copied_in_steps_to_the_same_bits) {
    reef_store *hasty = NULL;
    make_sealed(f);
    must(reef_store_open(&hasty, f->pool, &(reef_store_options){.renew_us = 1}, &why));
    static const char *const STATES[] = {NULL, "0", "1"};
    for (size_t i = 0; i < 3; i++) {
        float *whole = new_logits(), *turns = new_logits();
        logits_of(f->store, STATES[i], 1, whole);
        uint64_t before = stat_of(f->store).count;
        logits_of(hasty, STATES[i], 1, turns);
        assert_true(stat_of(f->store).count - before > 8); // blocks of generation 0
        assert_memory_equal(whole, turns, LOGITS * sizeof(*whole));
    }
    reef_store_close(hasty);
}

typedef struct loading {
    const char *pool;
    const float *expected; // (LOGITS) as of generation 1
    atomic_bool stop;
    atomic_int loaded, wrong;
} loading;

static void *load_often(void *context) {
    loading *l = context;
    reef_store *store = NULL;
    float *logits = calloc(LOGITS, sizeof(*logits));
    uint8_t probe[LIFELONG_PROBE_BYTES];
    lifelong_text(probe, sizeof(probe), 1, 99);
    if (reef_store_open(&store, l->pool, &(reef_store_options){.renew_us = 50}, NULL) != REEF_OK)
        l->wrong++;
    while (store != NULL && !l->stop) {
        reef_model *model = NULL;
        reef_status status =
            reef_model_open(&model, store, "1", &(reef_model_options){.threads = 1}, NULL);
        if (status == REEF_OK)
            status = reef_model_logits(model, probe, sizeof(probe), logits, NULL);
        l->wrong += status != REEF_OK || memcmp(logits, l->expected, LOGITS * sizeof(*logits)) != 0;
        l->loaded++;
        reef_model_close(model);
    }
    reef_store_close(store);
    free(logits);
    return NULL;
}

LIFELONG_TEST(a_model_is_loaded_while_the_trainer_commits) {
    pthread_t thread;
    make_sealed(f);
    float *expected = new_logits();
    logits_of(f->store, "1", 1, expected);
    loading l = {.pool = f->pool, .expected = expected};
    assert_int_equal(pthread_create(&thread, NULL, load_often, &l), 0);
    for (uint32_t i = 0; i < 40 || l.loaded < 4; i++) {
        feed_kind(f, 2, 2 * LIFELONG_BATCH, 10 + i);
        commit(f);
    }
    l.stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(l.wrong, 0);
    reef_check_report report;
    must(reef_store_check(f->store, NULL, &report, &why));
    assert_int_equal(report.damaged, 0);
}

// ---- in place -----------------------------------------------------------------------------------

static void wait_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

LIFELONG_TEST(rows_in_place_are_found_again_before_a_transaction_is_old) {
    reef_store *store = NULL;
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    make_sealed(f);
    float *copied = new_logits(), *placed = new_logits();
    logits_of(f->store, NULL, 1, copied);
    lifelong_text(probe, sizeof(probe), 1, 99);
    must(reef_store_open(&store, f->pool, NULL, &why));
    reef_model_options little = {.threads = 1, .memory_bytes = 1 << 20};
    must(reef_model_open(&model, store, NULL, &little, &why));
    must(reef_model_logits(model, probe, sizeof(probe), placed, &why));
    assert_memory_equal(copied, placed, LOGITS * sizeof(*copied));
    for (uint32_t i = 0; i < 3; i++) {
        feed_kind(f, 2, 2 * LIFELONG_BATCH, 10 + i);
        commit(f);
        // A slow machine takes longer to find the rows, and holds them longer for it.
        uint64_t before = stat_of(store).count, now = before;
        for (uint32_t n = 0; n < ATTEMPTS && now == before; n++) {
            wait_ms(REEF_READ_MS_MAX + 20);
            must(reef_model_logits(model, probe, sizeof(probe), placed, &why));
            assert_memory_equal(copied, placed, LOGITS * sizeof(*copied));
            now = stat_of(store).count;
        }
        assert_true(now > before);
    }
    reef_model_close(model);
    reef_store_close(store);
}

// The snapshot "kept" of generation 1 while it was open, which is sealed in the pool.
static void make_restorable(lifelong *f) {
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "side", "64");
    make_pool(f, 1);
    feed_kind(f, 0, PART, 3);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    feed_kind(f, 1, PART, 3);
    must(reef_trainer_snapshot(f->trainer, "kept", NULL, &why));
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    close_trainer(f);
}

static void go_back(lifelong *f) {
    reef_restoration done;
    must(reef_pool_restore_in_place(f->store, "kept", false, &done, &why));
}

// Between the transaction that a model was loaded in, and the one in which its rows are found.
LIFELONG_TEST(generations_given_up_before_their_rows_are_found_are_reported) {
    reef_model *model = NULL;
    make_restorable(f);
    reef_store *store = pool_open(f->pool, false, false);
    reef_model_options little = {.threads = 1, .memory_bytes = 1 << 20};
    must(reef_model_open(&model, store, NULL, &little, &why));
    reef_residency_unpin(&model->residency);
    go_back(f);
    // An error for which reef_model_open starts again.
    assert_int_equal(reef_residency_pin(&model->residency, &model->network, true, &why),
                     REEF_ERR_BUSY);
    reef_model_close(model);
    reef_store_close(store);
}

LIFELONG_TEST(a_model_in_place_reports_when_its_generations_are_given_up) {
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    float *logits = new_logits();
    make_restorable(f);
    lifelong_text(probe, sizeof(probe), 1, 99);
    reef_store *store = pool_open(f->pool, false, false);
    reef_model_options little = {.threads = 1, .memory_bytes = 1 << 20};
    must(reef_model_open(&model, store, NULL, &little, &why));
    must(reef_model_logits(model, probe, sizeof(probe), logits, &why));
    go_back(f);
    reef_status status = REEF_OK;
    for (uint32_t n = 0; n < ATTEMPTS && status == REEF_OK; n++) {
        wait_ms(REEF_READ_MS_MAX + 20);
        status = reef_model_logits(model, probe, sizeof(probe), logits, &why);
    }
    assert_int_equal(status, REEF_ERR_BUSY);
    assert_non_null(strstr(why.message, "was given up while the model was in use"));
    reef_model_close(model);
    must(reef_model_open(&model, store, NULL, &little, &why));
    must(reef_model_logits(model, probe, sizeof(probe), logits, &why));
    reef_model_close(model);
    reef_store_close(store);
}

RUN_TESTS
