// What reefd sends by itself or bit by bit over HTTP, and what its page shows: events, text as it
// is produced, usage and forgetting. It agrees with the pool, and neither listeners nor those who
// leave keep it from training.
#include "http_run.h"

#include <math.h>
#include <poll.h>
#include <sys/socket.h>

#define LIMIT_S 30
#define SOURCES 256
#define SOURCE_BYTES 230
#define LISTENERS 24      // REEF_EVENTS_MAX
#define COLUMN_BYTES 4096 // of what a kind has learned

// HTTP/1.0 takes an answer without a length up to the end of the connection.
static int open_stream(const sandbox *box, const char *request, const char *body) {
    char head[512];
    int bytes = snprintf(head, sizeof(head),
                         "%s HTTP/1.0\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", request,
                         strlen(body), body);
    return http_raw(box->address, head, (size_t)bytes);
}

// Read on until `text` has come `times` times; what came, on the heap.
static char *read_until(int fd, const char *text, size_t times) {
    size_t used = 0, room = 1 << 20;
    char *all = keep(calloc(room, 1));
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, LIMIT_S * 1000) <= 0) fail_msg("nothing more came after: %s", all);
        ssize_t count = recv(fd, all + used, room - used - 1, 0);
        if (count <= 0) fail_msg("the stream ended after: %s", all);
        used += (size_t)count;
        all[used] = 0;
        if (times_in(all, text) >= times) return all;
    }
}

// The data of the event that begins at `at`.
static json_t *event_data(const char *at) {
    const char *data = strstr(at, "data: ");
    assert_non_null(data);
    json_t *object = json_loads(data + 6, JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(object);
    return keep(object);
}

// ---- events -------------------------------------------------------------------------------------

static void the_status_comes_by_itself(void **state) {
    sandbox *box = *state;
    int fd = open_stream(box, "GET /v1/events", "");
    char *came = read_until(fd, "\n\n", 6); // the first one is cut off the head, whole
    assert_non_null(strstr(came, "200 OK"));
    assert_non_null(strstr(came, "text/event-stream"));
    const char *first = strstr(came, "event: status\n"), *last = first;
    for (const char *at = first; (at = strstr(at + 1, "event: status\n")) != NULL;)
        if (strstr(at, "\n\n") != NULL) last = at;
    assert_ptr_not_equal(first, last);
    json_t *before = event_data(first), *after = event_data(last);
    assert_true(integer(after, "step") > integer(before, "step"));
    assert_true(integer(after, "unix_ms") > integer(before, "unix_ms"));
    assert_string_equal(string(after, "pool"), box->pool);
    close(fd);
    await_steps(box, 1);
}

// Larger than what may wait for a client of several events.
static void a_status_of_any_size_comes_by_itself(void **state) {
    sandbox *box = *state;
    static char sources[SOURCES][SOURCE_BYTES];
    const char *arguments[3 + 2 * SOURCES] = {"--http", "0"};
    for (size_t i = 0; i < SOURCES; i++) {
        snprintf(sources[i], SOURCE_BYTES, "redis://127.0.0.1:1/%0*zu", SOURCE_BYTES - 30, i);
        arguments[2 + 2 * i] = "--source";
        arguments[3 + 2 * i] = sources[i];
    }
    reefd_begin(box, arguments);
    char *text = json_dumps(reefd_status(box), JSON_COMPACT);
    assert_true(strlen(text) > 131072);
    free(text);
    int fd = open_stream(box, "GET /v1/events", "");
    assert_int_equal(length(event_data(read_until(fd, "\n\n", 2)), "sources"), SOURCES);
    close(fd);
    reefd_end(box);
}

static void listeners_are_counted_and_their_leaving_is_noticed(void **state) {
    sandbox *box = *state;
    int fds[LISTENERS];
    for (size_t i = 0; i < LISTENERS; i++) {
        fds[i] = open_stream(box, "GET /v1/events", "");
        (void)read_until(fds[i], "event: status", 1);
    }
    assert_code(get(box, "/v1/events"), 429);
    assert_code(get(box, "/livez"), 200);
    for (size_t i = 0; i < LISTENERS; i++) close(fds[i]);
    int code = 429;
    for (size_t tries = 0; code == 429 && tries < 300; tries++) {
        int fd = open_stream(box, "GET /v1/events", "");
        char *came = read_until(fd, "\r\n\r\n", 1);
        code = atoi(came + strlen("HTTP/1.x "));
        close(fd);
        sleep_ms(50);
    }
    assert_int_equal(code, 200);
    await_steps(box, 1);
}

static void an_end_of_the_daemon_ends_streams(void **state) {
    sandbox *box = *state;
    int fd = open_stream(box, "GET /v1/events", "");
    (void)read_until(fd, "event: status", 1);
    kill(box->pid, SIGTERM);
    (void)http_end(fd);
    reefd_await_end(box);
}

// ---- text ---------------------------------------------------------------------------------------

static bool is_ascii(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80) return false;
    return true;
}

// So hot that nearly all bytes are equally likely: most first bytes of characters are followed by
// one that is no part of them, some are not.
static void text_has_the_characters_that_are_whole(void **state) {
    sandbox *box = *state;
    static const char ASK[] = "{\"prompt\": \"the \", \"bytes\": 500, \"temperature\": 100}";
    reefd_snapshot(box, "early");
    const char *text = string(json_of(post(box, "/v1/generate?as_of=early", "", ASK), 200), "text");
    assert_int_equal(strlen(text), 500);
    assert_false(is_ascii(text));
    assert_non_null(strchr(text, '?'));
    assert_code(post(box, "/v1/generate?as_of=never", "", ASK), 404);
    assert_code(post(box, "/v1/generate", "", "{\"prompt\": \"\"}"), 400);
    assert_code(post(box, "/v1/generate", "", "{\"prompt\": \"a\", \"stream\": true}"), 400);
    await_steps(box, 1);
}

static void those_who_leave_a_text_do_not_make_others_wait_for_it(void **state) {
    sandbox *box = *state;
    enum { COUNT = 12 };
    for (size_t i = 0; i < COUNT; i++)
        close(open_stream(box, "POST /v1/generate", "{\"prompt\": \"a\", \"bytes\": 4096}"));
    (void)json_of(post(box, "/v1/score", "", "some text"), 200);
    await_steps(box, 1);
}

// ---- usage and forgetting -----------------------------------------------------------------------

static void usage_is_that_of_the_pool(void **state) {
    sandbox *box = *state;
    reef_error err;
    await_count(box, "step", 40);
    (void)reefd_tell(box, "pause");
    reef_store *store;
    reef_txn *txn = pool_view(box->pool, &store);
    reef_generation_record generation;
    assert_int_equal(reef_generation_read(txn, 0, &generation, &err), REEF_OK);
    size_t experts = (size_t)generation.side * generation.side;
    reef_usage *usage = keep(calloc(experts, sizeof(*usage)));
    reef_usage_summary summary;
    assert_int_equal(reef_usage_read(txn, 0, 0, experts, usage, &err), REEF_OK);
    reef_usage_summarise(experts, usage, &summary);
    pool_close(store, txn);

    static const char *const ASKED[] = {"/v1/usage", "/v1/usage?generation=0&layer=0",
                                        "/v1/usage?layer=0&since=1"};
    for (size_t i = 0; i < 3; i++) {
        json_t *answer = json_of(get(box, ASKED[i]), 200);
        json_t *layers = json_at(answer, "layers"), *layer = json_at(layers, "0");
        assert_int_equal(integer(answer, "generation"), 0);
        assert_true(i == 0 || json_array_size(layers) == 1);
        assert_int_equal(integer(layer, "experts"), experts);
        assert_int_equal(integer(layer, "used"), summary.used_count);
        assert_int_equal(integer(layer, "selections"), summary.selections);
        assert_true(fabs(number(layer, "unevenness") - summary.unevenness) < 1e-9);
        assert_int_equal(json_at(layer, "windows") != NULL, i == 2);
    }
    json_t *none = json_of(get(box, "/v1/usage?until=1"), 200);
    assert_int_equal(integer(none, "layers.0.windows"), 0);
    assert_code(get(box, "/v1/usage?generation=1"), 400);
    assert_code(get(box, "/v1/usage?layer=99"), 400);
    assert_code(get(box, "/v1/usage?since=2&until=2"), 400);
    assert_code(get(box, "/v1/usage?since=yesterday"), 400);
    (void)reefd_tell(box, "resume");
    await_steps(box, 1);
}

// The matrix of the last commit once all of it is measured, against models that are opened for it.
static void assert_forgetting(sandbox *box) {
    reef_error err;
    reef_store *store;
    json_t *matrix = NULL;
    json_int_t commit = (json_int_t)pool_commit(box).number;
    for (bool complete = false; !complete; sleep_ms(20)) {
        matrix = json_of(get(box, "/v1/forgetting"), 200);
        complete = is_true(matrix, "complete") && integer(matrix, "commit") == commit;
    }
    assert_int_equal(length(matrix, "values"), 2); // as of 0, and now
    assert_int_equal(length(matrix, "columns"), 2);
    assert_string_equal(string(matrix, "measure"), "bits_per_byte");
    uint8_t text[COLUMN_BYTES];
    reef_model *model = NULL;
    reef_txn *txn = pool_view(box->pool, &store);
    assert_int_equal(reef_model_open(&model, store, "0", NULL, &err), REEF_OK);
    size_t count = reef_model_text(model, 0, text, sizeof(text));
    reef_model_close(model);
    pool_close(store, txn);
    assert_int_equal(integer(matrix, "columns.0.bytes"), count);
    static const char *const STATES[][2] = {{"0", "values.0.0"}, {"now", "values.1.0"}};
    for (size_t row = 0; row < 2; row++) {
        double is =
            pool_score(box->pool, STATES[row][0], (const char *)text, count, NULL).bits_per_byte;
        double said = number(matrix, STATES[row][1]);
        if (!(fabs(said - is) < 1e-9)) fail_msg("row %zu says %.12g, not %.12g", row, said, is);
    }
}

static void train_on_and_pause(sandbox *box, const char *count, int64_t steps) {
    (void)reefd_tell(box, "resume");
    await_count(box, count, steps);
    (void)reefd_tell(box, "pause");
}

// The model of now that answers scores may be an older one, and reads as the last of them asked: it
// does not change what is measured. A daemon measures again only after a long pause, so each of
// them measures once.
static void forgetting_is_measured_on_learned_text_whatever_is_scored(void **state) {
    sandbox *box = *state;
    static const char *const ASKED[] = {"/v1/score", "/v1/score?frozen=1"};
    for (int i = 0; i < 2; i++) {
        if (i > 0) {
            reefd_discard(box);
            LEARN(box, HTTP(box));
        }
        await_count(box, "step", 30);
        (void)reefd_tell(box, "seal");
        // Scored before what is new is learned, or after it.
        if (i > 0) train_on_and_pause(box, "generation_step", 40);
        assert_code(post(box, ASKED[i], "Content-Type: text/plain\r\n", "a text to score"), 200);
        if (i == 0) train_on_and_pause(box, "generation_step", 40);
        assert_forgetting(box);
    }
    (void)reefd_tell(box, "resume");
    assert_trains_on_and_stops(box);
}

// ---- the rest of what an operator sees ----------------------------------------------------------

static void a_part_of_the_series_is_that_part(void **state) {
    sandbox *box = *state;
    await_count(box, "step", 60);
    (void)reefd_tell(box, "pause");
    json_t *points = json_at(json_of(get(box, "/v1/series?points=100000"), 200), "points");
    assert_true(json_array_size(points) >= 60);
    json_int_t from = integer(points, "9.stream_bytes"), to = integer(points, "29.stream_bytes");
    char target[96];
    snprintf(target, sizeof(target), "/v1/series?points=4&from=%lld&to=%lld", (long long)from,
             (long long)to);
    json_t *four = json_at(json_of(get(box, target), 200), "points");
    assert_int_equal(json_array_size(four), 4);
    for (size_t i = 0; i < 4; i++) {
        double sum = 0, low = INFINITY;
        int64_t batches = 0; // of a point: 16 where it is old
        for (size_t k = 10 + 5 * i; k < 15 + 5 * i; k++) {
            json_t *point = json_array_get(points, k);
            int64_t these = integer(point, "batches");
            sum += (double)these * number(point, "loss");
            low = fmin(low, number(point, "low"));
            batches += these;
        }
        json_t *point = json_array_get(four, i);
        assert_int_equal(integer(point, "batches"), batches);
        assert_true(fabs(number(point, "loss") - sum / (double)batches) < 1e-9);
        assert_true(number(point, "low") == low);
    }
    (void)reefd_tell(box, "resume");
    await_steps(box, 1);
}

// Facts of the pool are read beside training: they are there a little after the start.
static void metrics_tell_what_the_pool_holds(void **state) {
    sandbox *box = *state;
    static const char *const NAMES[] = {"reef_expert_usage_ratio{generation=\"0\"} ",
                                        "reef_expert_unevenness{generation=\"1\"} ",
                                        "reef_reader_age_commits ",
                                        "reef_longest_read_seconds ",
                                        "reef_pool_free_bytes ",
                                        "reef_learning_rate ",
                                        "reef_source_loss{source=",
                                        "reef_resident_memory_bytes "};
    await_count(box, "step", 30);
    (void)reefd_tell(box, "seal");
    (void)await_metrics(box, NAMES, sizeof(NAMES) / sizeof(*NAMES));
    assert_trains_on_and_stops(box);
}

// The page holds nothing of the pool; what it asks for needs the token wherever others can reach
// it.
static void the_page_is_for_everyone_and_what_it_shows_is_not(void **state) {
    sandbox *box = *state;
    LEARN(box, "--http", "0.0.0.0:0", "--http-token", box->token);
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1%s", strrchr(box->address, ':'));
    strcpy(box->address, address);
    static const char *const FILES[] = {
        "/",         "/dashboard.js", "/charts.js", "/incidents.js", "/dashboard.css",
        "/uplot.js", "/uplot.css"};
    for (size_t i = 0; i < sizeof(FILES) / sizeof(*FILES); i++) {
        http_answer file = get(box, FILES[i]);
        assert_int_equal(file.code, 200);
        assert_true(file.body_bytes > 500);
        assert_non_null(strstr(file.head, "Content-Security-Policy: default-src 'none'"));
    }
    static const char *const ASKED[] = {"/v1/events", "/v1/usage", "/v1/forgetting", "/v1/series"};
    for (size_t i = 0; i < sizeof(ASKED) / sizeof(*ASKED); i++) {
        assert_code(get(box, ASKED[i]), 401);
        if (i > 0) assert_code(http_ask(box->address, "GET", ASKED[i], BEARER, NULL, 0), 200);
    }
    assert_trains_on_and_stops(box);
}

static int setup_idle(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    write_text(box->text, TEXT_BYTES, 1);
    return 0;
}

int main(void) {
    const struct CMUnitTest of_one_daemon[] = {
        cmocka_unit_test(listeners_are_counted_and_their_leaving_is_noticed),
        cmocka_unit_test(the_status_comes_by_itself),
        cmocka_unit_test(text_has_the_characters_that_are_whole),
        cmocka_unit_test(those_who_leave_a_text_do_not_make_others_wait_for_it),
        cmocka_unit_test(usage_is_that_of_the_pool),
        cmocka_unit_test(a_part_of_the_series_is_that_part),
    };
    const struct CMUnitTest tests[] = {
        BOX_OF(a_status_of_any_size_comes_by_itself, setup_idle),
        BOX(an_end_of_the_daemon_ends_streams),
        BOX(forgetting_is_measured_on_learned_text_whatever_is_scored),
        BOX(metrics_tell_what_the_pool_holds),
        BOX_OF(the_page_is_for_everyone_and_what_it_shows_is_not, setup_idle),
    };
    return cmocka_run_group_tests_name("one daemon", of_one_daemon, setup, sandbox_stop) +
           cmocka_run_group_tests_name("daemon view", tests, NULL, NULL);
}
