// The query thread: between queries it releases reads of states that nobody asks for; it reports
// forgetting where one generation learns all tasks, and the readers.
#include "query_thread.h"

#include "lifelong.h"

#include <math.h>
#include <semaphore.h>
#include <unistd.h>

enum { QUESTIONS = 4, TASKS = 30, COLUMNS = 24, TASK_BYTES = 256 };
static const char PROBE[] = "some text to be scored";

typedef struct world {
    lifelong *f;
    uv_loop_t loop;
    uv_async_t wake;
    reef_query_thread *queries;
    reef_query *done; // replies that were not looked at yet
} world;

static sem_t submitted; // the first question begins when all of them wait
static sem_t held;      // the query thread is busy until it is posted

static void on_wake(uv_async_t *wake) {
}

static int setup(void **state) {
    world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    void *f = NULL;
    if (lifelong_setup(&f) != 0) return -1;
    w->f = f;
    choose(&w->f->config, "boundaries", "given");
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(uv_async_init(&w->loop, &w->wake, on_wake), 0);
    assert_int_equal(sem_init(&submitted, 0, 0), 0);
    assert_int_equal(sem_init(&held, 0, 0), 0);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    (void)sem_post(&held); // of a test that failed
    reef_query_thread_stop(w->queries);
    for (reef_query *done; (done = w->done) != NULL; reef_query_free(done)) w->done = done->next;
    uv_close((uv_handle_t *)&w->wake, NULL);
    (void)uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    (void)sem_destroy(&submitted);
    (void)sem_destroy(&held);
    void *f = w->f;
    free(w);
    return lifelong_teardown(&f);
}

static reef_status count_reads(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_readers readers;
    reef_status status = reef_store_readers(reef_query_thread_store(queries), &readers, err);
    if (status == REEF_OK) query->result = json_pack("{s:I}", "reads", (json_int_t)readers.count);
    return status;
}

static reef_status wait_for_others(reef_query_thread *queries, reef_query *query, reef_error *err) {
    while (sem_wait(&submitted) != 0) continue;
    return count_reads(queries, query, err);
}

static reef_status score(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_model *model;
    reef_score score = {0};
    reef_status status = reef_query_thread_model(queries, query->as_of, &model, err);
    if (status != REEF_OK) return status;
    status = reef_model_score(model, (const uint8_t *)PROBE, sizeof(PROBE), NULL, &score, NULL,
                              NULL, err);
    return status == REEF_OK ? count_reads(queries, query, err) : status;
}

static void submit(world *w, reef_query_run run, const char *as_of) {
    reef_query *query = calloc(1, sizeof(*query));
    assert_non_null(query);
    query->run = run;
    snprintf(query->as_of, sizeof(query->as_of), "%s", as_of);
    must(reef_query_thread_submit(w->queries, query, &why));
}

static void start(world *w, uint64_t memory_bytes) {
    must(reef_query_thread_start(
        &w->queries,
        &(reef_query_thread_options){
            .store = w->f->store, .threads = 1, .memory_bytes = memory_bytes, .wake = &w->wake},
        &why));
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, world *w)

// All of them wait from the start, so the queue is empty for none but the last.
FIXTURE_TEST(under_load_a_state_that_is_not_asked_for_holds_no_read) {
    uint8_t text[2048];
    choose(&w->f->config, "side", "32"); // some rows fill pages, and are read where they lie
    make_pool(w->f, 1);
    lifelong_text(text, sizeof(text), 1, 0);
    feed(w->f, text, sizeof(text));
    must(reef_trainer_seal(w->f->trainer, NULL, NULL, &why));
    (void)commit(w->f);
    start(w, 1);
    reef_readers before;
    must(reef_store_readers(w->f->store, &before, &why));
    submit(w, wait_for_others, "now");
    submit(w, score, "0");
    submit(w, score, "now");
    submit(w, count_reads, "now"); // after one that asked for now: as if the next did so, too
    submit(w, count_reads, "now");
    static const json_int_t EXPECTED[QUESTIONS] = {1, 1, 1, 0};
    assert_int_equal(sem_post(&submitted), 0);
    for (size_t n = 0; n < QUESTIONS + 1;) {
        reef_query *done = reef_query_thread_replied(w->queries), *next;
        for (; done != NULL; done = next, n++) {
            next = done->next;
            if (done->error.status != REEF_OK) fail_msg("%s", done->error.message);
            json_t *said = json_loads(done->text != NULL ? done->text : "", 0, NULL);
            json_int_t reads = json_integer_value(json_object_get(said, "reads"));
            if (n > 0 && reads - before.count != EXPECTED[n - 1])
                fail_msg("question %zu: %lld reads", n, (long long)reads - before.count);
            json_decref(said);
            reef_query_free(done);
        }
    }
}

// ---- twins --------------------------------------------------------------------------------------

enum { OPENED_ANEW_SECONDS = 2 }; // more than ten times what opening takes

static reef_status hold(reef_query_thread *queries, reef_query *query, reef_error *err) {
    (void)queries, (void)err;
    while (sem_wait(&held) != 0) continue;
    query->result = json_object();
    return REEF_OK;
}

static reef_status score_now(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_model *model = query->lent;
    reef_score score = {0};
    reef_status status =
        model == NULL ? reef_query_thread_model(queries, "now", &model, err) : REEF_OK;
    if (status == REEF_OK)
        status = reef_model_score(model, (const uint8_t *)PROBE, sizeof(PROBE), NULL, &score, NULL,
                                  NULL, err);
    if (status != REEF_OK) return status;
    query->result =
        json_pack("{s:f, s:I, s:b}", "bits", score.bits, "commit",
                  (json_int_t)reef_model_commit(model)->number, "lent", query->lent != NULL);
    return REEF_OK;
}

static void submit_now(world *w, bool for_twins) {
    reef_query *query = calloc(1, sizeof(*query));
    assert_non_null(query);
    query->run = score_now;
    query->asks_now = for_twins;
    must(reef_query_thread_submit(w->queries, query, &why));
}

// The next score, the caller's; what was held is no score.
static json_t *next_score(world *w) {
    json_t *score = NULL;
    while (score == NULL) {
        if (w->done == NULL) w->done = reef_query_thread_replied(w->queries);
        reef_query *done = w->done;
        if (done == NULL) continue;
        w->done = done->next;
        if (done->error.status != REEF_OK) fail_msg("%s", done->error.message);
        if (done->run == score_now) score = json_loads(done->text, 0, NULL);
        reef_query_free(done);
    }
    return keep(score);
}

// One score by the query thread, which is held then, and `count` by twins; or, where they still had
// an older state, some of them by the query thread. Returns the bits, which are the same in all.
static double score_and_hold(world *w, size_t count) {
    double bits = 0.0;
    size_t lent = 0;
    submit(w, wait_for_others, "now");
    submit_now(w, false);
    submit(w, hold, "now");
    for (size_t i = 0; i < count; i++) submit_now(w, true);
    assert_int_equal(sem_post(&submitted), 0); // all of them wait: so the model is lent
    for (size_t i = 0; i < count + 1; i++) {
        json_t *score = next_score(w);
        double these = json_real_value(json_object_get(score, "bits"));
        if (i > 0) assert_true(these == bits);
        bits = these;
        lent += json_is_true(json_object_get(score, "lent"));
    }
    if (count > 0) assert_in_range(lent, 1, count);
    return bits;
}

static void learn_more(world *w, int kind) {
    uint8_t text[2048];
    lifelong_text(text, sizeof(text), kind, 0);
    feed(w->f, text, sizeof(text));
    (void)commit(w->f);
}

// A model without a context memory is opened in no time: a query waits for it instead of being
// answered by the older one.
static void make_quick_pool(world *w) {
    choose(&w->f->config, "memory", "0");
    choose(&w->f->config, "net_share", "1");
    make_pool(w->f, 1);
}

FIXTURE_TEST(twins_score_while_the_query_thread_is_busy) {
    double before = 0.0;
    make_quick_pool(w);
    start(w, 0);
    for (int round = 0; round < 2; round++) {
        learn_more(w, round);
        double bits = score_and_hold(w, 5);
        assert_true(bits != before); // of another state
        before = bits;
        assert_int_equal(sem_post(&held), 0);
        sleep(OPENED_ANEW_SECONDS);
    }
}

FIXTURE_TEST(a_newer_state_is_opened_by_the_query_thread) {
    make_quick_pool(w);
    learn_more(w, 0);
    start(w, 0);
    double bits = score_and_hold(w, 0);
    learn_more(w, 1);
    sleep(OPENED_ANEW_SECONDS);
    submit_now(w, true);
    assert_int_equal(sem_post(&held), 0);
    json_t *score = next_score(w);
    assert_true(json_real_value(json_object_get(score, "bits")) != bits);
}

FIXTURE_TEST(a_stop_drops_what_twins_have_not_begun) {
    make_pool(w->f, 1);
    learn_more(w, 0);
    start(w, 0);
    (void)score_and_hold(w, 1);
    for (int i = 0; i < 40; i++) submit_now(w, true);
    assert_int_equal(sem_post(&held), 0);
    reef_query_thread_stop(w->queries);
    w->queries = NULL;
}

// ---- newer states of memories -------------------------------------------------------------------

// After what is stored as tables comes a tail that takes longer to learn than a score: a commit
// stores the tables of 32 KiB or more that were learned since.
enum { COMMITS = 3, STORED_BYTES = 36000, TAIL_BYTES = 30000 };

static void learn_bytes(world *w, size_t count, int kind, uint32_t seed) {
    uint8_t *text = malloc(count);
    assert_non_null(text);
    lifelong_text(text, count, kind, seed);
    feed(w->f, text, count);
    free(text);
}

// Learn, commit and score the new state by a reader of one's own. Returns the commit's number.
static json_int_t learn_and_score(world *w, int round, double *bits) {
    reef_model *model = NULL;
    reef_score score = {0};
    learn_bytes(w, STORED_BYTES, round % 5, 2 * (uint32_t)round);
    (void)commit(w->f);
    learn_bytes(w, TAIL_BYTES, round % 5, 2 * (uint32_t)round + 1);
    (void)commit(w->f);
    must(reef_model_open(&model, w->f->store, "now", &(reef_model_options){.threads = 1}, &why));
    must(reef_model_score(model, (const uint8_t *)PROBE, sizeof(PROBE), NULL, &score, NULL, NULL,
                          &why));
    json_int_t number = (json_int_t)reef_model_commit(model)->number;
    reef_model_close(model);
    *bits = score.bits;
    return number;
}

// The next score is one of `count` states, to the bit. Returns which.
static size_t next_state(
    world *w, size_t count, const json_int_t *numbers, const double *bits, bool lent) {
    json_t *score = next_score(w);
    size_t i = 0;
    while (i < count && json_integer_value(json_object_get(score, "commit")) != numbers[i]) i++;
    assert_in_range(i, 0, count - 1);
    // What was sent as text has twelve digits.
    double said = json_real_value(json_object_get(score, "bits"));
    assert_true(fabs(said - bits[i]) <= 1e-9 * bits[i]);
    if (lent) assert_true(json_is_true(json_object_get(score, "lent")));
    return i;
}

FIXTURE_TEST(a_newer_state_answers_once_it_and_its_twins_are_ready) {
    json_int_t numbers[COMMITS];
    double bits[COMMITS];
    choose(&w->f->config, "memory", "4M");
    choose(&w->f->config, "net_share", "0");
    make_pool(w->f, 1);
    numbers[0] = learn_and_score(w, 0, &bits[0]);
    start(w, 0);
    (void)score_and_hold(w, 1); // from here on there are twins
    assert_int_equal(sem_post(&held), 0);
    for (size_t n = 1; n < COMMITS; n++) {
        numbers[n] = learn_and_score(w, (int)n, &bits[n]);
        assert_true(bits[n] != bits[n - 1]);
        size_t found = 0;
        for (size_t asked = 0; found != n; asked++) {
            if (asked > 1) uv_sleep(5); // opening needs a core, too
            submit_now(w, false);
            size_t next = next_state(w, n + 1, numbers, bits, false);
            assert_in_range(next, found, n);       // never back
            if (asked == 0) assert_true(next < n); // the older one answers at once
            found = next;
        }
        // With the query thread busy, and before it has lent anything to a query that waits.
        submit(w, hold, "now");
        for (int i = 0; i < 3; i++) {
            submit_now(w, true);
            assert_int_equal(next_state(w, n + 1, numbers, bits, true), n);
        }
        assert_int_equal(sem_post(&held), 0);
    }
}

// The answer to one question; the caller's.
static json_t *ask(world *w, reef_query_run run) {
    reef_query *done = NULL;
    submit(w, run, "now");
    while (done == NULL) done = reef_query_thread_replied(w->queries);
    if (done->error.status != REEF_OK) fail_msg("%s", done->error.message);
    json_t *said = json_loads(done->text, 0, NULL);
    assert_non_null(said);
    reef_query_free(done);
    return keep(said);
}

FIXTURE_TEST(of_many_tasks_the_newest_are_shown) {
    uint8_t text[TASK_BYTES];
    choose(&w->f->config, "boundaries", "given"); // a kind begins where the test says so
    make_pool(w->f, 1);
    for (uint32_t task = 0; task < TASKS; task++) {
        if (task) must(reef_trainer_seal(w->f->trainer, NULL, NULL, &why));
        lifelong_text(text, sizeof(text), (int)task % 5, task);
        feed(w->f, text, sizeof(text));
    }
    (void)commit(w->f);
    start(w, 0);
    json_t *matrix = ask(w, reef_query_forgetting);
    while (!json_is_true(json_object_get(matrix, "complete")))
        matrix = ask(w, reef_query_forgetting);
    json_t *columns = json_object_get(matrix, "columns");
    assert_int_equal(json_array_size(columns), COLUMNS);
    for (size_t c = 0; c < COLUMNS; c++) {
        json_t *column = json_array_get(columns, c);
        assert_int_equal(json_integer_value(json_object_get(column, "generation")),
                         TASKS - COLUMNS + c);
        assert_true(json_integer_value(json_object_get(column, "bytes")) > 0);
    }
}

static void assert_stats(world *w, json_int_t readers, json_int_t lag) {
    json_t *stats = ask(w, reef_query_stats);
    assert_int_equal(json_integer_value(json_object_get(stats, "readers")), readers);
    assert_int_equal(json_integer_value(json_object_get(stats, "reader_lag")), lag);
    assert_true(json_is_number(json_object_get(stats, "longest_read_s")));
}

FIXTURE_TEST(reading_the_stats_opens_no_model) {
    uint8_t text[TASK_BYTES];
    make_pool(w->f, 1);
    (void)commit(w->f);
    start(w, 0);
    assert_stats(w, 0, 0);
    reef_txn *own = pool_begin(w->f->store, REEF_TXN_READ);
    assert_stats(w, 1, 0);
    for (int i = 0; i < 2; i++) {
        lifelong_text(text, sizeof(text), 1, (uint64_t)i);
        feed(w->f, text, sizeof(text));
        (void)commit(w->f);
    }
    assert_stats(w, 1, 2);
    reef_txn_abort(own);
    assert_stats(w, 0, 0);
}

RUN_TESTS
