// What reefd sends by itself or bit by bit over HTTP, and what its page shows: events, text as it
// is produced, usage and forgetting. It agrees with the pool, and neither listeners nor those who
// leave keep it from training.
#include "http_run.h"

#include "reef_trainer.h"

#include <math.h>
#include <poll.h>
#include <sys/socket.h>

#define LIMIT_S 30
#define SOURCES 256
#define SOURCE_BYTES 230
#define LISTENERS 24      // REEF_EVENTS_MAX
#define COLUMN_BYTES 4096 // of the reservoir, for one generation

// HTTP/1.0 takes an answer without a length up to the end of the connection.
static int open_stream(const running *run, const char *request, const char *body) {
    char head[512];
    int fd = http_connect(run->address);
    int bytes = snprintf(head, sizeof(head),
                         "%s HTTP/1.0\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", request,
                         strlen(body), body);
    assert_int_equal(send(fd, head, (size_t)bytes, MSG_NOSIGNAL), bytes);
    return fd;
}

// Read on until `text` has come `times` times; what came, on the heap.
static char *read_until(int fd, const char *text, size_t times) {
    size_t used = 0, room = 1 << 20;
    char *all = calloc(room, 1);
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, LIMIT_S * 1000) <= 0) fail_msg("nothing more came after: %s", all);
        ssize_t count = recv(fd, all + used, room - used - 1, 0);
        if (count <= 0) fail_msg("the stream ended after: %s", all);
        used += (size_t)count;
        all[used] = 0;
        size_t seen = 0;
        for (const char *at = all; (at = strstr(at, text)) != NULL; at += strlen(text)) seen++;
        if (seen >= times) return keep(all);
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

static json_int_t number(const json_t *object, const char *name) {
    return json_integer_value(json_object_get(object, name));
}

// ---- events -------------------------------------------------------------------------------------

static void the_status_comes_by_itself(void **state) {
    running *run = *state;
    int fd = open_stream(run, "GET /v1/events", "");
    char *came = read_until(fd, "\n\n", 6); // the first one is cut off the head, whole
    assert_non_null(strstr(came, "200 OK"));
    assert_non_null(strstr(came, "text/event-stream"));
    const char *first = strstr(came, "event: status\n"), *last = first;
    for (const char *at = first; (at = strstr(at + 1, "event: status\n")) != NULL;)
        if (strstr(at, "\n\n") != NULL) last = at;
    assert_ptr_not_equal(first, last);
    json_t *before = event_data(first), *after = event_data(last);
    assert_true(number(after, "step") > number(before, "step"));
    assert_true(number(after, "unix_ms") > number(before, "unix_ms"));
    assert_string_equal(json_string_value(json_object_get(after, "pool")), run->box.pool);
    close(fd);
    assert_trains_on_and_stops(run);
}

// Larger than what may wait for a client of several events.
static void a_status_of_any_size_comes_by_itself(void **state) {
    running *run = *state;
    static char sources[SOURCES][SOURCE_BYTES];
    const char *arguments[5 + 2 * SOURCES] = {"--pool", run->box.pool, "--http", "0"};
    for (size_t i = 0; i < SOURCES; i++) {
        snprintf(sources[i], SOURCE_BYTES, "redis://127.0.0.1:1/%0*zu", SOURCE_BYTES - 30, i);
        arguments[4 + 2 * i] = "--source";
        arguments[5 + 2 * i] = sources[i];
    }
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    sandbox_make_pool(&run->box);
    run->pid = reefd_start(&run->box, -1, arguments);
    reefd_await(&run->box, run->pid);
    json_t *status = reefd_ask(&run->box, "{\"command\": \"status\"}");
    char *text = json_dumps(status, JSON_COMPACT);
    assert_true(strlen(text) > 131072);
    snprintf(run->address, sizeof(run->address), "%s",
             json_string_value(json_object_get(status, "http")));
    free(text);
    int fd = open_stream(run, "GET /v1/events", "");
    char *came = read_until(fd, "\n\n", 2);
    json_t *event = event_data(came);
    assert_int_equal(json_array_size(json_object_get(event, "sources")), SOURCES);
    close(fd);
    kill(run->pid, SIGTERM);
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
}

static void listeners_are_counted_and_their_leaving_is_noticed(void **state) {
    running *run = *state;
    int fds[LISTENERS];
    for (size_t i = 0; i < LISTENERS; i++) {
        fds[i] = open_stream(run, "GET /v1/events", "");
        free(read_until(fds[i], "event: status", 1));
    }
    assert_code(get(run, "/v1/events"), 429);
    assert_code(get(run, "/livez"), 200);
    for (size_t i = 0; i < LISTENERS; i++) close(fds[i]);
    int code = 429;
    for (size_t tries = 0; code == 429 && tries < 300; tries++) {
        int fd = open_stream(run, "GET /v1/events", "");
        char *came = read_until(fd, "\r\n\r\n", 1);
        code = atoi(came + strlen("HTTP/1.x "));
        close(fd);
        sleep_ms(50);
    }
    assert_int_equal(code, 200);
    assert_trains_on_and_stops(run);
}

static void an_end_of_the_daemon_ends_streams(void **state) {
    running *run = *state;
    int fd = open_stream(run, "GET /v1/events", "");
    free(read_until(fd, "event: status", 1));
    kill(run->pid, SIGTERM);
    http_answer answer;
    assert_true(http_read_all(fd, LIMIT_S, &answer));
    close(fd);
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
    pool_check(&run->box);
}

// ---- text as it is produced ---------------------------------------------------------------------

// The texts of all events, put together.
static void join(const char *came, char *out, size_t room) {
    out[0] = 0;
    for (const char *at = came; (at = strstr(at, "data: {\"text\"")) != NULL; at++) {
        json_t *data = event_data(at);
        const char *text = json_string_value(json_object_get(data, "text"));
        assert_true(strlen(out) + strlen(text) < room);
        strcat(out, text);
    }
}

static char *text_of(json_t *answer) {
    char *text = strdup(json_string_value(json_object_get(answer, "text")));
    json_decref(answer);
    assert_non_null(text);
    return keep(text);
}

static bool is_ascii(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80) return false;
    return true;
}

// So hot that nearly all bytes are equally likely: most first bytes of characters are followed by
// one that is no part of them, some are not.
static void text_has_the_characters_that_are_whole(void **state) {
    running *run = *state;
    static const char ASK[] = "{\"prompt\": \"the \", \"bytes\": 2000, \"temperature\": 100}";
    static const char STREAM[] = "{\"prompt\": \"the \", \"bytes\": 2000, \"temperature\": 100, "
                                 "\"stream\": true}";
    (void)reefd_ask(&run->box, "{\"command\": \"snapshot\", \"name\": \"then\"}");
    char *whole = text_of(json_of(post(run, "/v1/generate?as_of=then", "", ASK), 200));
    char streamed[4096];
    http_answer answer;
    int fd = open_stream(run, "POST /v1/generate?as_of=then", STREAM);
    assert_true(http_read_all(fd, LIMIT_S, &answer));
    close(fd);
    join(answer.body, streamed, sizeof(streamed));
    assert_string_equal(whole, streamed);
    assert_int_equal(strlen(whole), 2000);
    assert_false(is_ascii(whole));
    assert_non_null(strchr(whole, '?'));
    assert_trains_on_and_stops(run);
}

static void text_is_sent_as_it_is_produced(void **state) {
    running *run = *state;
    static const char ASK[] = "{\"prompt\": \"the \", \"bytes\": 60, \"seed\": 7, "
                              "\"temperature\": 0.1}";
    static const char STREAM[] = "{\"prompt\": \"the \", \"bytes\": 60, \"seed\": 7, "
                                 "\"temperature\": 0.1, \"stream\": true}";
    while (reefd_count(&run->box, "step") < 60) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"snapshot\", \"name\": \"then\"}");
    json_t *whole = json_of(post(run, "/v1/generate?as_of=then", "", ASK), 200);
    int fd = open_stream(run, "POST /v1/generate?as_of=then", STREAM);
    http_answer answer;
    char text[256];
    assert_true(http_read_all(fd, LIMIT_S, &answer));
    close(fd);
    assert_int_equal(answer.code, 200);
    assert_non_null(strstr(answer.head, "text/event-stream"));
    join(answer.body, text, sizeof(text));
    assert_string_equal(text, json_string_value(json_object_get(whole, "text")));
    assert_int_equal(strlen(text), 60);
    const char *end = strstr(answer.body, "event: end\n");
    assert_non_null(end);
    json_t *last = event_data(end);
    assert_int_equal(number(last, "bytes"), 60);
    assert_true(number(last, "commit") >= number(whole, "commit")); // training continues
    assert_string_equal(json_string_value(json_object_get(last, "as_of")), "then");
    // Before the first byte an error is an answer like any other.
    assert_code(post(run, "/v1/generate?as_of=never", "", STREAM), 404);
    assert_code(post(run, "/v1/generate", "", "{\"prompt\": \"\", \"stream\": true}"), 400);
    assert_code(post(run, "/v1/generate", "", "{\"prompt\": \"a\", \"stream\": 1}"), 400);
    assert_trains_on_and_stops(run);
}

// Some leave before the first byte, so that the reply begins without a client. MHD notices it then
// and there when there is another connection that says nothing.
static void those_who_leave_a_text_do_not_make_others_wait_for_it(void **state) {
    running *run = *state;
    static const char LONG[] = "{\"prompt\": \"a\", \"bytes\": 4096, \"stream\": true}";
    enum { COUNT = 12 };
    int idle[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        idle[i] = http_connect(run->address);
        int fd = open_stream(run, "POST /v1/generate", LONG);
        if (i % 2) free(read_until(fd, "data: ", 1));
        close(fd);
    }
    (void)json_of(post(run, "/v1/score", "", "some text"), 200);
    for (size_t i = 0; i < COUNT; i++) close(idle[i]);
    assert_trains_on_and_stops(run);
}

// ---- usage and forgetting -----------------------------------------------------------------------

static reef_store *open_store(const running *run, reef_txn **txn) {
    reef_error err;
    reef_store *store;
    assert_int_equal(reef_store_open(&store, run->box.pool, &(reef_store_options){0}, &err),
                     REEF_OK);
    assert_int_equal(reef_txn_begin(txn, store, REEF_TXN_READ, &err), REEF_OK);
    return store;
}

static void usage_is_that_of_the_pool(void **state) {
    running *run = *state;
    reef_error err;
    while (reefd_count(&run->box, "step") < 40) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"pause\"}");
    reef_txn *txn;
    reef_store *store = open_store(run, &txn);
    reef_generation_record generation;
    assert_int_equal(reef_generation_read(txn, 0, &generation, &err), REEF_OK);
    size_t experts = (size_t)generation.side * generation.side;
    reef_usage *usage = calloc(experts, sizeof(*usage));
    reef_usage_summary summary;
    assert_int_equal(reef_usage_read(txn, 0, 0, experts, usage, &err), REEF_OK);
    reef_usage_summarise(experts, usage, &summary);
    free(usage);
    reef_txn_abort(txn);
    reef_store_close(store);

    static const char *const ASKED[] = {"/v1/usage", "/v1/usage?generation=0&layer=0",
                                        "/v1/usage?layer=0&since=1"};
    for (size_t i = 0; i < 3; i++) {
        json_t *answer = json_of(get(run, ASKED[i]), 200);
        json_t *layers = json_object_get(answer, "layers"), *layer = json_array_get(layers, 0);
        assert_int_equal(number(answer, "generation"), 0);
        assert_true(i == 0 || json_array_size(layers) == 1);
        assert_int_equal(number(layer, "experts"), experts);
        assert_int_equal(number(layer, "used"), summary.used_count);
        assert_int_equal(number(layer, "selections"), summary.selections);
        assert_true(fabs(json_number_value(json_object_get(layer, "unevenness")) -
                         summary.unevenness) < 1e-9);
        assert_int_equal(json_object_get(layer, "windows") != NULL, i == 2);
    }
    json_t *none = json_of(get(run, "/v1/usage?until=1"), 200);
    assert_int_equal(number(json_array_get(json_object_get(none, "layers"), 0), "windows"), 0);
    assert_code(get(run, "/v1/usage?generation=1"), 400);
    assert_code(get(run, "/v1/usage?layer=99"), 400);
    assert_code(get(run, "/v1/usage?since=2&until=2"), 400);
    assert_code(get(run, "/v1/usage?since=yesterday"), 400);
    (void)reefd_ask(&run->box, "{\"command\": \"resume\"}");
    assert_trains_on_and_stops(run);
}

typedef struct sample {
    uint8_t bytes[COLUMN_BYTES];
    size_t count;
} sample;

static reef_status take_window(
    void *context, uint32_t generation, const uint8_t *bytes, size_t count, reef_error *err) {
    sample *to = context;
    if (generation != 0 || to->count + count > sizeof(to->bytes)) return REEF_OK;
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
    return REEF_OK;
}

// The matrix of the last commit once all of it is measured, against models that are opened for it.
static void assert_forgetting(running *run) {
    reef_error err;
    json_t *matrix = NULL;
    json_int_t commit = (json_int_t)pool_commit(&run->box).number;
    for (bool complete = false; !complete; sleep_ms(5)) {
        matrix = json_of(get(run, "/v1/forgetting"), 200);
        complete =
            json_is_true(json_object_get(matrix, "complete")) && number(matrix, "commit") == commit;
    }
    json_t *values = json_object_get(matrix, "values"),
           *columns = json_object_get(matrix, "columns");
    assert_int_equal(json_array_size(values), 2); // as of 0, and now
    assert_int_equal(json_array_size(columns), 2);
    assert_string_equal(json_string_value(json_object_get(matrix, "measure")), "bits_per_byte");

    reef_txn *txn;
    reef_store *store = open_store(run, &txn);
    sample of = {.count = 0};
    reef_score score = {0};
    assert_int_equal(reef_reservoir_scan(txn, take_window, &of, &err), REEF_OK);
    reef_txn_abort(txn);
    assert_int_equal(number(json_array_get(columns, 0), "bytes"), of.count);
    static const char *const STATES[] = {"0", "now"};
    for (size_t row = 0; row < 2; row++) {
        reef_model *model;
        assert_int_equal(
            reef_model_open(&model, store, STATES[row], &(reef_model_options){.threads = 1}, &err),
            REEF_OK);
        assert_int_equal(
            reef_model_score(model, of.bytes, of.count, NULL, &score, NULL, NULL, &err), REEF_OK);
        reef_model_close(model);
        double said = json_number_value(json_array_get(json_array_get(values, row), 0));
        if (!(fabs(said - score.bits_per_byte) < 1e-9))
            fail_msg("row %zu says %.12g, not %.12g", row, said, score.bits_per_byte);
    }
    reef_store_close(store);
}

static void train_on_and_pause(running *run, const char *count, int64_t steps) {
    (void)reefd_ask(&run->box, "{\"command\": \"resume\"}");
    while (reefd_count(&run->box, count) < steps) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"pause\"}");
}

static void forgetting_is_measured_on_the_reservoir(void **state) {
    running *run = *state;
    while (reefd_count(&run->box, "step") < 60) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"seal\"}");
    train_on_and_pause(run, "generation_step", 60);
    assert_forgetting(run);
    (void)reefd_ask(&run->box, "{\"command\": \"resume\"}");
    assert_trains_on_and_stops(run);
}

// The model of now that answers scores may be an older one, and reads as the last of them asked.
static void scores_do_not_change_what_is_forgotten(void **state) {
    running *run = *state;
    while (reefd_count(&run->box, "step") < 60) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"seal\"}");
    static const char *const ASKED[] = {"/v1/score", "/v1/score?frozen=1"};
    for (int i = 0; i < 4; i++) {
        // Scored before what is new is learned, or after it.
        if (i >= 2) train_on_and_pause(run, "generation_step", 60 + 60 * i);
        assert_code(post(run, ASKED[i % 2], "Content-Type: text/plain\r\n", "a text to score"),
                    200);
        if (i < 2) train_on_and_pause(run, "generation_step", 60 + 60 * i);
        assert_forgetting(run);
    }
    (void)reefd_ask(&run->box, "{\"command\": \"resume\"}");
    assert_trains_on_and_stops(run);
}

// As `setup`, of a pool with context memories.
static int setup_memory(void **state) {
    running *run = calloc(1, sizeof(*run));
    sandbox_make(&run->box);
    sandbox_make_pool(&run->box);
    write_text(run->box.text, TEXT_BYTES, 1);
    snprintf(run->token, sizeof(run->token), "%s/token", run->box.directory);
    write_file(run->token, TOKEN "\n", 0600);
    run_start(run, "0");
    *state = run;
    return 0;
}

// ---- the rest of what an operator sees ----------------------------------------------------------

static void a_part_of_the_series_is_that_part(void **state) {
    running *run = *state;
    while (reefd_count(&run->box, "step") < 60) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"pause\"}");
    json_t *all = json_of(get(run, "/v1/series?points=100000"), 200);
    json_t *points = json_object_get(all, "points");
    size_t count = json_array_size(points);
    assert_true(count >= 60);
    json_int_t from = number(json_array_get(points, 9), "stream_bytes");
    json_int_t to = number(json_array_get(points, 29), "stream_bytes");
    char target[96];
    snprintf(target, sizeof(target), "/v1/series?points=4&from=%lld&to=%lld", (long long)from,
             (long long)to);
    json_t *part = json_of(get(run, target), 200);
    json_t *four = json_object_get(part, "points");
    assert_int_equal(json_array_size(four), 4);
    for (size_t i = 0; i < 4; i++) {
        double sum = 0, low = INFINITY;
        for (size_t k = 10 + 5 * i; k < 15 + 5 * i; k++) {
            double loss = json_number_value(json_object_get(json_array_get(points, k), "loss"));
            sum += loss;
            low = fmin(low, loss);
        }
        json_t *point = json_array_get(four, i);
        assert_int_equal(number(point, "batches"), 5);
        assert_true(fabs(json_number_value(json_object_get(point, "loss")) - sum / 5) < 1e-9);
        assert_true(json_number_value(json_object_get(point, "low")) == low);
    }
    (void)reefd_ask(&run->box, "{\"command\": \"resume\"}");
    assert_trains_on_and_stops(run);
}

// Facts of the pool are read beside training: they are there a little after the start.
static void metrics_tell_what_the_pool_holds(void **state) {
    running *run = *state;
    static const char *const NAMES[] = {"reef_expert_usage_ratio{generation=\"0\"} ",
                                        "reef_expert_unevenness{generation=\"1\"} ",
                                        "reef_gate_leakage_ratio{generation=\"1\"} ",
                                        "reef_reader_age_commits ",
                                        "reef_longest_read_seconds ",
                                        "reef_pool_free_bytes ",
                                        "reef_learning_rate ",
                                        "reef_source_loss{source=",
                                        "reef_resident_memory_bytes "};
    while (reefd_count(&run->box, "step") < 30) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"seal\"}");
    http_answer answer = {0};
    for (size_t found = 0; found < sizeof(NAMES) / sizeof(*NAMES); sleep_ms(50)) {
        answer = get(run, "/metrics");
        assert_int_equal(answer.code, 200);
        found = 0;
        for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++)
            found += strstr(answer.body, NAMES[i]) != NULL;
    }
    char path[256], line[320];
    snprintf(path, sizeof(path), "%s/metrics", run->box.directory);
    write_file(path, answer.body, 0600);
    if (system("command -v promtool >/dev/null 2>&1") == 0) {
        snprintf(line, sizeof(line), "promtool check metrics < %s", path);
        assert_int_equal(system(line), 0);
    } else {
        print_message("promtool is not installed: what it would say is not checked\n");
    }
    assert_trains_on_and_stops(run);
}

// The page holds nothing of the pool; what it asks for needs the token wherever others can reach
// it.
static void the_page_is_for_everyone_and_what_it_shows_is_not(void **state) {
    running *run = *state;
    kill(run->pid, SIGTERM);
    assert_int_equal(reefd_wait(run->pid), 0);
    run_start(run, "0.0.0.0:0");
    const char *port = strrchr(run->address, ':');
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1%s", port);
    snprintf(run->address, sizeof(run->address), "%s", address);
    static const char *const FILES[] = {
        "/", "/dashboard.js", "/charts.js", "/dashboard.css", "/uplot.js", "/uplot.css"};
    for (size_t i = 0; i < sizeof(FILES) / sizeof(*FILES); i++) {
        http_answer file = get(run, FILES[i]);
        assert_int_equal(file.code, 200);
        assert_true(file.body_bytes > 500);
        assert_non_null(strstr(file.head, "Content-Security-Policy: default-src 'none'"));
    }
    static const char *const ASKED[] = {"/v1/events", "/v1/usage", "/v1/forgetting", "/v1/series"};
    for (size_t i = 0; i < sizeof(ASKED) / sizeof(*ASKED); i++) {
        assert_code(get(run, ASKED[i]), 401);
        if (i > 0) assert_code(http_ask(run->address, "GET", ASKED[i], BEARER, NULL, 0), 200);
    }
    assert_trains_on_and_stops(run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SET_UP(the_status_comes_by_itself),
        SET_UP(a_status_of_any_size_comes_by_itself),
        SET_UP(listeners_are_counted_and_their_leaving_is_noticed),
        SET_UP(an_end_of_the_daemon_ends_streams),
        SET_UP(text_is_sent_as_it_is_produced),
        SET_UP(text_has_the_characters_that_are_whole),
        SET_UP(those_who_leave_a_text_do_not_make_others_wait_for_it),
        SET_UP(usage_is_that_of_the_pool),
        SET_UP(forgetting_is_measured_on_the_reservoir),
        cmocka_unit_test_setup_teardown(scores_do_not_change_what_is_forgotten, setup_memory,
                                        teardown),
        SET_UP(a_part_of_the_series_is_that_part),
        SET_UP(metrics_tell_what_the_pool_holds),
        SET_UP(the_page_is_for_everyone_and_what_it_shows_is_not),
    };
    return cmocka_run_group_tests_name("daemon live", tests, NULL, NULL);
}
