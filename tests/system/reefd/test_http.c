// HTTP of a reefd that trains: what it answers agrees with the pool and with the other ways to ask,
// who may not is refused, and no client, however slow or broken, is kept for long or keeps it from
// training.
#include "http_run.h"

#include "reef_trainer.h"
#include "test.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DRIP_S 12
#define UNREAD_REQUESTS 6000
#define UNREAD_ANSWERS_MAX                                                                         \
    1000 // of more than a thousand bytes; without a bound it is several thousand
#define QUESTIONS_THAT_WAIT 40
#define PATIENCE_S 120
#define ANSWERED "reef_http_answers_total{code=\"2xx\"} "
#define REFUSED "reef_http_answers_total{code=\"4xx\"} "
#define CONNECTIONS 256    // all that there are
#define BACKLOG_BATCHES 4  // of 1 MiB, which take longer to train than anyone waits for an answer
#define PART_BYTES 600000  // for which 1 MiB is kept
#ifdef __SANITIZE_THREAD__ // which keeps four bytes of its own for each
#define KEPT_BYTES_MAX (64 << 20)
#else
#define KEPT_BYTES_MAX (16 << 20)
#endif
#define LIMIT_S 15 // by when every connection that does nothing useful is closed

// ---- answers ------------------------------------------------------------------------------------

static void it_says_that_it_lives_and_is_ready(void **state) {
    running *run = *state;
    http_answer answer = get(run, "/livez");
    assert_int_equal(answer.code, 200);
    assert_string_equal(answer.body, "ok\n");
    answer = get(run, "/readyz");
    assert_int_equal(answer.code, 200);
    assert_string_equal(answer.body, "ready\n");
    assert_trains_on_and_stops(run);
}

static void the_status_is_that_of_the_socket(void **state) {
    running *run = *state;
    json_t *over_http = json_of(get(run, "/v1/status"), 200);
    json_t *over_socket = reefd_ask(&run->box, "{\"command\": \"status\"}");
    const char *key;
    json_t *value;
    assert_int_equal(json_object_size(over_http), json_object_size(over_socket));
    json_object_foreach(over_socket, key, value) {
        json_t *other = json_object_get(over_http, key);
        if (other == NULL || (json_typeof(other) != json_typeof(value) && !json_is_number(value)))
            fail_msg("'%s' differs", key);
    }
    assert_int_equal(json_integer_value(json_object_get(over_http, "pid")), run->pid);
    assert_trains_on_and_stops(run);
}

static void commands_need_the_token_and_are_done(void **state) {
    running *run = *state;
    static const char SNAPSHOT[] = "{\"command\": \"snapshot\", \"name\": \"over-http\"}";
    while (reefd_count(&run->box, "step") < 10) sleep_ms(2);
    assert_code(post(run, "/v1/command", "", SNAPSHOT), 401);
    assert_code(post(run, "/v1/command", "Authorization: Bearer " TOKEN "x\r\n", SNAPSHOT), 401);
    assert_code(post(run, "/v1/command", "Authorization: Bearer 0123\r\n", SNAPSHOT), 401);
    assert_code(post(run, "/v1/command", "Authorization: Basic " TOKEN "\r\n", SNAPSHOT), 401);
    json_t *snapshot =
        json_of(post(run, "/v1/command", "Authorization: bearer " TOKEN "\r\n", SNAPSHOT), 200);
    assert_string_equal(json_string_value(json_object_get(snapshot, "name")), "over-http");
    json_decref(snapshot);
    json_t *list = json_of(get(run, "/v1/snapshots"), 200);
    assert_int_equal(json_array_size(json_object_get(list, "snapshots")), 1);
    assert_true(json_is_array(json_object_get(list, "damaged")));
    assert_code(post(run, "/v1/command", BEARER, SNAPSHOT), 400); // the name is taken
    assert_code(post(run, "/v1/command", BEARER, "{\"command\": \"dance\"}"), 400);
    assert_code(post(run, "/v1/command", BEARER, ""), 400);
    json_t *sealed = json_of(post(run, "/v1/command", BEARER, "{\"command\": \"seal\"}"), 200);
    assert_int_equal(json_integer_value(json_object_get(sealed, "generation")), 1);
    json_t *generations = json_of(get(run, "/v1/generations"), 200);
    assert_int_equal(json_array_size(json_object_get(generations, "generations")), 2);
    json_t *timeline = json_of(get(run, "/v1/timeline?last=1"), 200);
    assert_int_equal(json_array_size(json_object_get(timeline, "events")), 1);
    json_t *stop = json_of(post(run, "/v1/command", BEARER, "{\"command\": \"stop\"}"), 200);
    assert_string_equal(json_string_value(json_object_get(stop, "state")), "draining");
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
    pool_check(&run->box);
}

static void text_is_generated_by_its_seed(void **state) {
    running *run = *state;
    static const char ASK[] =
        "{\"prompt\": \"the \", \"bytes\": 40, \"seed\": 7, \"temperature\": 0.8}";
    while (reefd_count(&run->box, "step") < 20) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"snapshot\", \"name\": \"then\"}");
    json_t *one = json_of(post(run, "/v1/generate?as_of=then", "", ASK), 200);
    json_t *two = json_of(post(run, "/v1/generate?as_of=then", "", ASK), 200);
    assert_string_equal(json_string_value(json_object_get(one, "text")),
                        json_string_value(json_object_get(two, "text")));
    assert_int_equal(strlen(json_string_value(json_object_get(one, "text"))), 40);
    // A share too small for a float is still one: the likeliest byte is all that it leaves.
    one = json_of(
        post(run, "/v1/generate?as_of=then", "", "{\"prompt\": \"the \", \"top_p\": 1e-60}"), 200);
    two = json_of(
        post(run, "/v1/generate?as_of=then", "", "{\"prompt\": \"the \", \"temperature\": 0}"),
        200);
    assert_string_equal(json_string_value(json_object_get(one, "text")),
                        json_string_value(json_object_get(two, "text")));
    assert_code(post(run, "/v1/generate", "", "{\"prompt\": \"\"}"), 400);
    assert_code(post(run, "/v1/generate", "", "{\"prompt\": \"a\", \"bytes\": 100000}"), 400);
    assert_code(post(run, "/v1/generate", "", "{\"prompt\": \"a\", \"top_p\": 2}"), 400);
    assert_code(post(run, "/v1/generate", "", "{\"prompts\": \"a\"}"), 400);
    assert_code(post(run, "/v1/generate", "", "no json"), 400);
    assert_trains_on_and_stops(run);
}

static void the_series_is_cut_into_as_many_points(void **state) {
    running *run = *state;
    while (reefd_count(&run->box, "step") < 60) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"commit\"}");
    json_t *series = json_of(get(run, "/v1/series?points=7"), 200);
    json_t *points = json_object_get(series, "points");
    assert_int_equal(json_array_size(points), 7);
    json_int_t step = -1;
    for (size_t i = 0; i < 7; i++) {
        json_t *point = json_array_get(points, i);
        assert_true(json_integer_value(json_object_get(point, "step")) > step);
        step = json_integer_value(json_object_get(point, "step"));
        assert_true(json_number_value(json_object_get(point, "loss")) > 0);
    }
    assert_true(step >= 59);
    assert_code(get(run, "/v1/series?points=0"), 400);
    assert_code(get(run, "/v1/series?points=7&points=8"), 400);
    assert_code(get(run, "/v1/series?points=many"), 400);
    assert_code(get(run, "/v1/series?from=10&to=5"), 400);
    assert_trains_on_and_stops(run);
}

// promtool reads what Prometheus would.
static void metrics_are_what_prometheus_takes(void **state) {
    running *run = *state;
    while (reefd_count(&run->box, "step") < 10) sleep_ms(2);
    (void)reefd_ask(&run->box, "{\"command\": \"commit\"}");
    http_answer answer = get(run, "/metrics");
    assert_int_equal(answer.code, 200);
    static const char *const NAMES[] = {"reef_steps_total ",
                                        "reef_visited_bytes_total ",
                                        "reef_loss ",
                                        "reef_commit_duration_seconds_count ",
                                        "reef_source_lag_bytes{source=",
                                        "reef_experts{state=\"open\"} "};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++)
        if (strstr(answer.body, NAMES[i]) == NULL) fail_msg("no '%s'", NAMES[i]);
    char path[256], line[320];
    snprintf(path, sizeof(path), "%s/metrics", run->box.directory);
    write_file(path, answer.body, 0600);
    int known = system("command -v promtool >/dev/null 2>&1");
    if (known == 0) {
        snprintf(line, sizeof(line), "promtool check metrics < %s", path);
        assert_int_equal(system(line), 0);
    } else {
        print_message("promtool is not installed: what it would say is not checked\n");
    }
    assert_trains_on_and_stops(run);
}

static uint64_t metric(const running *run, const char *name) {
    char line[128];
    http_answer answer = get(run, "/metrics");
    assert_int_equal(answer.code, 200);
    snprintf(line, sizeof(line), "\n%s", name);
    const char *found = strstr(answer.body, line);
    if (found == NULL) fail_msg("no '%s'", name);
    uint64_t value = strtoull(strrchr(strtok((char *)found + 1, "\n"), ' '), NULL, 10);
    return value;
}

// A counter that falls would look like a reset: all that was ever trained would count once more.
static void counters_since_ever_do_not_fall_after_a_crash(void **state) {
    static const char *const NAMES[] = {"reef_steps_total ", "reef_stream_bytes_total ",
                                        "reef_source_read_bytes_total{"};
    enum { COUNT = sizeof(NAMES) / sizeof(*NAMES) };
    running *run = *state;
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    sandbox_make_pool(&run->box);
    run_start_with(run, "0", "--commit-seconds=0");
    while (reefd_count(&run->box, "step") < 10) sleep_ms(2);
    json_t *commit = reefd_ask(&run->box, "{\"command\": \"commit\"}");
    int64_t committed = json_integer_value(json_object_get(commit, "step"));
    while (reefd_count(&run->box, "step") < committed + 10) sleep_ms(2);
    uint64_t before[COUNT];
    for (size_t i = 0; i < COUNT; i++) before[i] = metric(run, NAMES[i]);
    assert_int_equal(before[0], committed);
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    run_start(run, "0");
    for (size_t i = 0; i < COUNT; i++) assert_true(metric(run, NAMES[i]) >= before[i]);
    assert_trains_on_and_stops(run);
}

// As in status, where it is null: 0 would be the best loss that there is.
static void before_anything_was_measured_there_is_no_loss(void **state) {
    running *run = *state;
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    sandbox_make_pool(&run->box);
    snprintf(run->box.text, sizeof(run->box.text), "push:web");
    run_start(run, "0");
    http_answer answer = get(run, "/metrics");
    assert_int_equal(answer.code, 200);
    assert_non_null(strstr(answer.body, "\nreef_loss NaN\n"));
    kill(run->pid, SIGTERM);
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
}

// ---- refusals -----------------------------------------------------------------------------------

static void what_is_not_there_is_refused(void **state) {
    running *run = *state;
    assert_code(get(run, "/nothing"), 404);
    assert_code(get(run, "/v1/status/more"), 404);
    assert_code(get(run, "/v1/score"), 405);
    assert_code(post(run, "/v1/status", "", ""), 405);
    assert_code(get(run, "/v1/status"), 200);
    // A page of another site that has the loopback address under its own name.
    int fd = http_connect(run->address);
    static const char REBOUND[] =
        "GET /v1/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    (void)send(fd, REBOUND, sizeof(REBOUND) - 1, MSG_NOSIGNAL);
    http_answer answer;
    assert_true(http_read_all(fd, LIMIT_S, &answer));
    assert_int_equal(answer.code, 421);
    close(fd);
    // One that sends something here, to be done by us.
    assert_code(post(run, "/v1/score", "Sec-Fetch-Site: cross-site\r\n", "some text"), 403);
    assert_code(post(run, "/v1/score", "Sec-Fetch-Site: same-origin\r\n", "some text"), 200);
    assert_trains_on_and_stops(run);
}

// A misspelt argument that was passed over would do something else than was asked for.
static void every_route_knows_what_may_stand_in_its_query(void **state) {
    running *run = *state;
    static const char *const PATHS[] = {
        "/",          "/livez",     "/readyz",   "/metrics",     "/v1/status",
        "/v1/events", "/v1/series", "/v1/usage", "/v1/timeline", "/charts.js"};
    char target[64];
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(*PATHS); i++) {
        snprintf(target, sizeof(target), "%s?foo=1", PATHS[i]);
        assert_code(get(run, target), 400);
    }
    assert_code(post(run, "/v1/command?dry_run=1", BEARER, "{\"command\": \"seal\"}"), 400);
    assert_int_equal(reefd_count(&run->box, "generation"), 0);
    static const char *const SCORES[] = {"as_of", "as_of=", "per_byte", "per_byte=1&per_byte=1",
                                         "as_of=now%C3"};
    for (size_t i = 0; i < sizeof(SCORES) / sizeof(*SCORES); i++) {
        snprintf(target, sizeof(target), "/v1/score?%s", SCORES[i]);
        assert_code(post(run, target, "", "a line"), 400);
    }
    http_answer answer = post(run, "/v1/ingest?label=last", BEARER, "no batch");
    assert_non_null(strstr(answer.body, "in the query"));
    assert_code(answer, 400);
    assert_code(get(run, "/v1/status?"), 200);
    // Nothing is cut off at a zero.
    assert_code(get(run, "/v1/status%00x"), 404);
    assert_code(get(run, "/v1/timeline?last=1%00x"), 400);
    assert_code(post(run, "/v1/score?as_of=now%00x", "", "a line"), 404);
    assert_trains_on_and_stops(run);
}

static void a_request_of_two_meanings_is_refused_and_the_last(void **state) {
    running *run = *state;
    static const char *const HEADERS[] = {
        "Host: localhost\r\nContent-Length: 5\r\nContent-Length: 6",
        "Host: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
        "Host: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Host: localhost\r\nTransfer-Encoding: gzip, chunked",
        "Host: localhost\r\nContent-Length: 5\r\nHost: evil.example"};
    static const char REST[] = "0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char text[512];
    for (size_t i = 0; i < sizeof(HEADERS) / sizeof(*HEADERS); i++) {
        int fd = http_connect(run->address);
        int bytes = snprintf(text, sizeof(text), "POST /v1/generate HTTP/1.1\r\n%s\r\n\r\n%s",
                             HEADERS[i], REST);
        assert_int_equal(send(fd, text, (size_t)bytes, MSG_NOSIGNAL), bytes);
        http_answer answer;
        assert_true(http_read_all(fd, LIMIT_S, &answer));
        close(fd);
        if (strstr(answer.body != NULL ? answer.body : "", "HTTP/1.1") != NULL)
            fail_msg("%s", HEADERS[i]);
        assert_code(answer, 400);
    }
    assert_code(get(run, "/livez"), 200);
    assert_trains_on_and_stops(run);
}

static void a_body_that_is_too_long_is_refused(void **state) {
    running *run = *state;
    size_t bytes = (1u << 20) + 1;
    char *body = malloc(bytes);
    memset(body, 'a', bytes);
    uint64_t before = metric(run, REFUSED);
    assert_code(http_ask(run->address, "POST", "/v1/score", "", body, bytes), 413);
    // Without a length known before: the answer is the same, at the end.
    int fd = http_connect(run->address);
    static const char CHUNKED[] = "POST /v1/score HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    (void)send(fd, CHUNKED, sizeof(CHUNKED) - 1, MSG_NOSIGNAL);
    for (size_t i = 0; i < 40; i++) {
        (void)send(fd, "10000\r\n", 7, MSG_NOSIGNAL);
        (void)send(fd, body, 65536, MSG_NOSIGNAL);
        (void)send(fd, "\r\n", 2, MSG_NOSIGNAL);
    }
    (void)send(fd, "0\r\n\r\n", 5, MSG_NOSIGNAL);
    http_answer answer;
    assert_true(http_read_all(fd, LIMIT_S, &answer));
    assert_code(answer, 413);
    close(fd);
    free(body);
    assert_int_equal(metric(run, REFUSED), before + 2);
    assert_trains_on_and_stops(run);
}

// Sends all but the last byte of a body.
static int send_part(const running *run, const char *path) {
    static char part[PART_BYTES - 1];
    char head[256];
    int fd = http_connect(run->address);
    int bytes = snprintf(head, sizeof(head),
                         "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Content-Length: %d\r\n\r\n",
                         path, PART_BYTES);
    assert_int_equal(send(fd, head, (size_t)bytes, MSG_NOSIGNAL), bytes);
    for (size_t sent = 0; sent < sizeof(part);) {
        ssize_t count = send(fd, part + sent, sizeof(part) - sent, MSG_NOSIGNAL);
        assert_true(count > 0);
        sent += (size_t)count;
    }
    return fd;
}

static http_answer send_rest(int fd) {
    http_answer answer;
    assert_int_equal(send(fd, "", 1, MSG_NOSIGNAL), 1);
    assert_true(http_read_all(fd, LIMIT_S, &answer));
    close(fd);
    return answer;
}

static void bodies_are_bounded_together_and_not_kept_for_who_may_not_ask(void **state) {
    running *run = *state;
    enum { COUNT = 40 };
    int fds[COUNT];
    static const char *const PATHS[] = {"/v1/command", "/v1/nothing"};
    for (size_t route = 0; route < 2; route++) {
        int64_t before = reefd_count(&run->box, "resident_bytes");
        for (size_t i = 0; i < COUNT; i++) fds[i] = send_part(run, PATHS[route]);
        int64_t more = reefd_count(&run->box, "resident_bytes") - before;
        if (more > KEPT_BYTES_MAX) fail_msg("%jd bytes are kept", (intmax_t)more);
        assert_code(send_rest(fds[0]), route ? 404 : 401);
        for (size_t i = 1; i < COUNT; i++) close(fds[i]);
    }
    for (size_t i = 0; i < COUNT; i++) fds[i] = send_part(run, "/v1/generate");
    sleep_ms(1000); // until they are read
    size_t refused = 0;
    for (size_t i = 0; i < COUNT; i++) {
        http_answer answer = send_rest(fds[i]);
        bool busy = answer.code == 429;
        assert_true(!busy ||
                    (strstr(answer.head, "Retry-After") && strstr(answer.body, "retry_ms")));
        assert_code(answer, busy ? 429 : 400);
        refused += busy;
    }
    assert_true(refused > 0 && refused < COUNT / 2);
    assert_code(send_rest(send_part(run, "/v1/generate")), 400);
    assert_trains_on_and_stops(run);
}

static int send_post(const running *run, const char *target, const char *body) {
    char text[512];
    int fd = http_connect(run->address);
    int bytes = snprintf(text, sizeof(text),
                         "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Content-Length: %zu\r\n\r\n%s",
                         target, strlen(body), body);
    assert_int_equal(send(fd, text, (size_t)bytes, MSG_NOSIGNAL), bytes);
    return fd;
}

// Otherwise clients that ask again after a time would keep the daemon answering those that went
// away.
static void a_question_whose_client_hung_up_is_not_begun(void **state) {
    running *run = *state;
    int fds[QUESTIONS_THAT_WAIT];
    for (size_t i = 0; i < QUESTIONS_THAT_WAIT; i++)
        fds[i] = send_post(run, "/v1/generate", "{\"prompt\": \"the \", \"bytes\": 4096}");
    int half = send_post(run, "/v1/generate", "{\"prompt\": \"a\", \"bytes\": 16}");
    assert_int_equal(shutdown(half, SHUT_WR), 0);
    for (size_t i = 1; i < QUESTIONS_THAT_WAIT; i++) close(fds[i]);
    int listening = send_post(run, "/v1/score", "a line of text");
    http_answer answer;
    assert_true(http_read_all(half, PATIENCE_S, &answer));
    // libmicrohttpd lets it go without a word where it sees the end of what was sent before our
    // answer.
    assert_true(answer.code == 429 || !answer.code);
    if (answer.code) assert_non_null(strstr(answer.body, "client closed the connection"));
    assert_true(http_read_all(listening, PATIENCE_S, &answer));
    assert_code(answer, 200);
    assert_true(http_read_all(fds[0], PATIENCE_S, &answer));
    assert_code(answer, 200);
    close(listening);
    close(half);
    close(fds[0]);
    assert_trains_on_and_stops(run);
}

// Some send nothing, some a byte now and then, some half a body, some nonsense.
static void hostile_clients_are_let_go(void **state) {
    running *run = *state;
    enum { COUNT = 40 };
    static const char *const OPENINGS[] = {
        "",
        "GET /v1/status HTT",
        "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not TLS here\r\n\r\n",
        "GET /livez HTTP/1.1\rHost: localhost\r\r",
    };
    int fds[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        const char *opening = OPENINGS[i % 5];
        fds[i] = http_connect(run->address);
        (void)send(fds[i], opening, strlen(opening), MSG_NOSIGNAL);
    }
    // A header that grows by a byte a second is never silent for long.
    for (size_t second = 0; second < DRIP_S; second++) {
        // Seen beside training; for the rest other tests have more use of the processor.
        if (second == 2) json_decref(reefd_ask(&run->box, "{\"command\": \"pause\"}"));
        for (size_t i = 1; i < COUNT; i += 5) (void)send(fds[i], "P", 1, MSG_NOSIGNAL);
        assert_code(get(run, "/livez"), 200);
        sleep_ms(1000);
    }
    for (size_t i = 0; i < COUNT; i++) {
        http_answer answer;
        if (!http_read_all(fds[i], LIMIT_S - DRIP_S, &answer))
            fail_msg("client %zu was not let go", i);
        assert_int_not_equal(answer.code, 200);
        close(fds[i]);
    }
    (void)reefd_ask(&run->box, "{\"command\": \"resume\"}");
    assert_trains_on_and_stops(run);
}

static uint64_t answered(const running *run) {
    return metric(run, ANSWERED);
}

// Who asks and asks and reads nothing is not answered for ever: what lies unread for it is bounded.
static void answers_that_are_not_read_are_few(void **state) {
    running *run = *state;
    static const char ASK[] = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int small = 4096;
    int fd = http_connect(run->address);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    for (size_t i = 0; i < UNREAD_REQUESTS; i++)
        if (send(fd, ASK, sizeof(ASK) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) sleep_ms(1);
    uint64_t before, now = answered(run);
    do {
        before = now;
        sleep_ms(300);
        now = answered(run);
    } while (now > before + 1); // one is that for the count itself
    if (now > UNREAD_ANSWERS_MAX) fail_msg("%ju answers lie unread", (uintmax_t)now);
    close(fd);
    assert_trains_on_and_stops(run);
}

static void a_client_that_leaves_before_its_answer_is_forgotten(void **state) {
    running *run = *state;
    static const char SEAL[] = "{\"command\": \"commit\"}";
    char request[512];
    for (size_t i = 0; i < 30; i++) {
        int fd = http_connect(run->address);
        bool scores = i % 2;
        int bytes =
            snprintf(request, sizeof(request),
                     "POST /v1/%s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n%s",
                     scores ? "score" : "command", BEARER, strlen(SEAL), SEAL);
        (void)send(fd, request, (size_t)bytes, MSG_NOSIGNAL);
        if (i % 3) sleep_ms(3);
        close(fd);
    }
    assert_code(get(run, "/livez"), 200);
    assert_trains_on_and_stops(run);
}

// What they asked for is done all the same.
static void commands_of_clients_that_have_gone_keep_no_connection(void **state) {
    running *run = *state;
    static const char DRAIN[] = "POST /v1/command HTTP/1.1\r\nHost: localhost\r\n" BEARER
                                "Content-Length: 20\r\n\r\n{\"command\": \"drain\"}x";
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    sandbox_make_pool(&run->box);
    size_t bytes = (1u << 20) - 1;
    char *body = read_text(run->box.text, NULL);
    snprintf(run->box.text, sizeof(run->box.text), "push:web");
    run_start(run, "0");
    for (size_t i = 0; i < BACKLOG_BATCHES; i++)
        assert_code(http_ask(run->address, "POST", "/v1/ingest", BEARER, body, bytes), 200);
    for (size_t i = 0; i < CONNECTIONS; i++) {
        int fd = http_connect(run->address);
        // Some have begun another request.
        assert_true(send(fd, DRAIN, sizeof(DRAIN) - 1 - i % 2, MSG_NOSIGNAL) > 0);
        sleep_ms(1); // it is read before the end is
        close(fd);
    }
    assert_code(get(run, "/livez"), 200);
    assert_true((size_t)reefd_count(&run->box, "stream_bytes") < BACKLOG_BATCHES * bytes / 2);
    assert_trains_on_and_stops(run);
}

static int run_with(const sandbox *box, const char *listen, const char *token) {
    return reefd_run(box, -1,
                     (const char *const[]){"--pool", box->pool, "--source", box->text, "--http",
                                           listen, token != NULL ? "--http-token" : NULL, token,
                                           NULL});
}

static void what_would_be_unsafe_is_refused_at_the_start(void **state) {
    running *run = *state;
    sandbox *box = &run->box;
    kill(run->pid, SIGTERM);
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
    char token[192];
    snprintf(token, sizeof(token), "%s/other", box->directory);
    assert_int_equal(run_with(box, "0.0.0.0:0", NULL), 64);
    assert_true(reefd_said(box, "--http-token"));
    assert_int_equal(run_with(box, "somewhere:80", NULL), 64);
    assert_int_equal(run_with(box, "127.0.0.1:99999", NULL), 64);
    assert_int_equal(run_with(box, "0", token), 66);
    write_file(token, TOKEN "\n", 0644);
    assert_int_equal(run_with(box, "0", token), 64);
    assert_true(reefd_said(box, "read or written by others"));
    write_file(token, "short\n", 0600);
    assert_int_equal(run_with(box, "0", token), 64);
    write_file(token, TOKEN "\n" TOKEN "\n", 0600);
    assert_int_equal(run_with(box, "0", token), 64);
    // A port that is taken.
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_storage bound = {.ss_family = AF_INET};
    socklen_t bytes = sizeof(bound);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&bound, &bytes), 0);
    char place[32];
    const uint8_t *port = (const uint8_t *)&bound + 2;
    snprintf(place, sizeof(place), "127.0.0.1:%u", port[0] * 256u + port[1]);
    assert_int_equal(run_with(box, place, NULL), 75);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SET_UP(it_says_that_it_lives_and_is_ready),
        SET_UP(the_status_is_that_of_the_socket),
        SET_UP(commands_need_the_token_and_are_done),
        SET_UP(text_is_generated_by_its_seed),
        SET_UP(the_series_is_cut_into_as_many_points),
        SET_UP(metrics_are_what_prometheus_takes),
        SET_UP(counters_since_ever_do_not_fall_after_a_crash),
        SET_UP(before_anything_was_measured_there_is_no_loss),
        SET_UP(what_is_not_there_is_refused),
        SET_UP(every_route_knows_what_may_stand_in_its_query),
        SET_UP(a_request_of_two_meanings_is_refused_and_the_last),
        SET_UP(a_body_that_is_too_long_is_refused),
        SET_UP(bodies_are_bounded_together_and_not_kept_for_who_may_not_ask),
        SET_UP(a_question_whose_client_hung_up_is_not_begun),
        SET_UP(hostile_clients_are_let_go),
        SET_UP(answers_that_are_not_read_are_few),
        SET_UP(a_client_that_leaves_before_its_answer_is_forgotten),
        SET_UP(commands_of_clients_that_have_gone_keep_no_connection),
        SET_UP(what_would_be_unsafe_is_refused_at_the_start),
    };
    return cmocka_run_group_tests_name("daemon http", tests, NULL, NULL);
}
