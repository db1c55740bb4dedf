// HTTP of a reefd that trains: what it answers agrees with the pool and with the other ways to ask,
// who may not is refused, and no client, however slow or broken, is kept for long or keeps it from
// training.
#include "http_run.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define DRIP_S 12
#define UNREAD_REQUESTS 6000
#define UNREAD_ANSWERS_MAX                                                                         \
    1000 // of more than a thousand bytes; without a bound it is several thousand
#define QUESTIONS_THAT_WAIT 40
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
    sandbox *box = *state;
    assert_string_equal(get(box, "/livez").body, "ok\n");
    assert_string_equal(get(box, "/readyz").body, "ready\n");
    await_steps(box, 1);
}

static void the_status_is_that_of_the_socket(void **state) {
    sandbox *box = *state;
    json_t *over_http = json_of(get(box, "/v1/status"), 200);
    json_t *over_socket = reefd_status(box);
    const char *key;
    json_t *value;
    assert_int_equal(json_object_size(over_http), json_object_size(over_socket));
    json_object_foreach(over_socket, key, value) {
        json_t *other = json_object_get(over_http, key);
        if (other == NULL || (json_typeof(other) != json_typeof(value) && !json_is_number(value)))
            fail_msg("'%s' differs", key);
    }
    assert_int_equal(integer(over_http, "pid"), box->pid);
    await_steps(box, 1);
}

static void commands_need_the_token_and_are_done(void **state) {
    sandbox *box = *state;
    static const char SNAPSHOT[] = "{\"command\": \"snapshot\", \"name\": \"over-http\"}";
    await_count(box, "step", 10);
    assert_code(post(box, "/v1/command", "", SNAPSHOT), 401);
    assert_code(post(box, "/v1/command", "Authorization: Bearer " TOKEN "x\r\n", SNAPSHOT), 401);
    assert_code(post(box, "/v1/command", "Authorization: Bearer 0123\r\n", SNAPSHOT), 401);
    assert_code(post(box, "/v1/command", "Authorization: Basic " TOKEN "\r\n", SNAPSHOT), 401);
    json_t *made =
        json_of(post(box, "/v1/command", "Authorization: bearer " TOKEN "\r\n", SNAPSHOT), 200);
    assert_string_equal(string(made, "name"), "over-http");
    json_t *list = json_of(get(box, "/v1/snapshots"), 200);
    assert_int_equal(length(list, "snapshots"), 1);
    assert_int_equal(length(list, "damaged"), 0);
    assert_code(post(box, "/v1/command", BEARER, SNAPSHOT), 400); // the name is taken
    assert_code(post(box, "/v1/command", BEARER, "{\"command\": \"dance\"}"), 400);
    assert_code(post(box, "/v1/command", BEARER, ""), 400);
    made = json_of(post(box, "/v1/command", BEARER, "{\"command\": \"seal\"}"), 200);
    assert_int_equal(integer(made, "generation"), 1);
    assert_int_equal(length(json_of(get(box, "/v1/generations"), 200), "generations"), 2);
    assert_int_equal(length(json_of(get(box, "/v1/timeline?last=1"), 200), "events"), 1);
    made = json_of(post(box, "/v1/command", BEARER, "{\"command\": \"stop\"}"), 200);
    assert_string_equal(string(made, "state"), "draining");
    reefd_await_end(box);
}

static const char *generated(const sandbox *box, const char *request) {
    return string(json_of(post(box, "/v1/generate?as_of=then", "", request), 200), "text");
}

static void text_is_generated_by_its_seed(void **state) {
    sandbox *box = *state;
    static const char ASK[] =
        "{\"prompt\": \"the \", \"bytes\": 40, \"seed\": 7, \"temperature\": 0.8}";
    static const char *const WRONG[] = {
        "{\"prompt\": \"\"}",
        "{\"prompt\": \"a\", \"bytes\": 100000}",
        "{\"prompt\": \"a\", \"top_p\": 2}",
        "{\"prompts\": \"a\"}",
        "no json",
    };
    await_count(box, "step", 20);
    reefd_snapshot(box, "then");
    assert_string_equal(generated(box, ASK), generated(box, ASK));
    assert_int_equal(strlen(generated(box, ASK)), 40);
    // A share too small for a float is still one: the likeliest byte is all that it leaves.
    assert_string_equal(generated(box, "{\"prompt\": \"the \", \"top_p\": 1e-60}"),
                        generated(box, "{\"prompt\": \"the \", \"temperature\": 0}"));
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++)
        assert_code(post(box, "/v1/generate", "", WRONG[i]), 400);
    await_steps(box, 1);
}

static void the_series_is_cut_into_as_many_points(void **state) {
    sandbox *box = *state;
    await_count(box, "step", 60);
    (void)reefd_tell(box, "commit");
    json_t *points = json_at(json_of(get(box, "/v1/series?points=7"), 200), "points");
    assert_int_equal(json_array_size(points), 7);
    json_int_t step = -1;
    for (size_t i = 0; i < 7; i++) {
        json_t *point = json_array_get(points, i);
        assert_true(integer(point, "step") > step);
        step = integer(point, "step");
        assert_true(number(point, "loss") > 0);
    }
    assert_true(step >= 59);
    assert_code(get(box, "/v1/series?points=0"), 400);
    assert_code(get(box, "/v1/series?points=7&points=8"), 400);
    assert_code(get(box, "/v1/series?points=many"), 400);
    assert_code(get(box, "/v1/series?from=10&to=5"), 400);
    await_steps(box, 1);
}

static void metrics_are_what_prometheus_takes(void **state) {
    sandbox *box = *state;
    static const char *const NAMES[] = {"reef_steps_total ",
                                        "reef_visited_bytes_total ",
                                        "reef_loss ",
                                        "reef_commit_duration_seconds_count ",
                                        "reef_source_lag_bytes{source=",
                                        "reef_experts{state=\"open\"} "};
    await_count(box, "step", 10);
    (void)reefd_tell(box, "commit");
    (void)await_metrics(box, NAMES, sizeof(NAMES) / sizeof(*NAMES));
    await_steps(box, 1);
}

static uint64_t metric(const sandbox *box, const char *name) {
    char line[128];
    http_answer answer = get(box, "/metrics");
    snprintf(line, sizeof(line), "\n%s", name);
    char *found = strstr(answer.body, line);
    if (found == NULL) fail_msg("no '%s'", name);
    return strtoull(strrchr(strtok(found + 1, "\n"), ' '), NULL, 10);
}

// A counter that falls would look like a reset: all that was ever trained would count once more.
static void counters_since_ever_do_not_fall_after_a_crash(void **state) {
    static const char *const NAMES[] = {"reef_steps_total ", "reef_stream_bytes_total ",
                                        "reef_source_read_bytes_total{"};
    enum { COUNT = sizeof(NAMES) / sizeof(*NAMES) };
    sandbox *box = *state;
    reefd_discard(box);
    LEARN(box, HTTP(box), "--commit-seconds=0", "--commit-steps=0");
    await_count(box, "step", 10);
    int64_t committed = integer(reefd_tell(box, "commit"), "step");
    await_count(box, "step", committed + 10);
    uint64_t before[COUNT];
    for (size_t i = 0; i < COUNT; i++) before[i] = metric(box, NAMES[i]);
    assert_int_equal(before[0], committed);
    reefd_kill(box);
    LEARN(box, HTTP(box));
    for (size_t i = 0; i < COUNT; i++) assert_true(metric(box, NAMES[i]) >= before[i]);
    assert_trains_on_and_stops(box);
}

// As in status, where it is null: 0 would be the best loss that there is.
static void before_anything_was_measured_there_is_no_loss(void **state) {
    sandbox *box = *state;
    reefd_discard(box);
    snprintf(box->text, sizeof(box->text), "push:web");
    LEARN(box, HTTP(box));
    assert_non_null(strstr(get(box, "/metrics").body, "\nreef_loss NaN\n"));
    reefd_end(box);
}

// ---- refusals -----------------------------------------------------------------------------------

static void what_is_not_there_is_refused(void **state) {
    sandbox *box = *state;
    assert_code(get(box, "/nothing"), 404);
    assert_code(get(box, "/v1/status/more"), 404);
    assert_code(get(box, "/v1/score"), 405);
    assert_code(post(box, "/v1/status", "", ""), 405);
    assert_code(get(box, "/v1/status"), 200);
    // A page of another site that has the loopback address under its own name.
    static const char REBOUND[] =
        "GET /v1/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_code(http_end(http_raw(box->address, REBOUND, sizeof(REBOUND) - 1)), 421);
    // One that sends something here, to be done by us.
    assert_code(post(box, "/v1/score", "Sec-Fetch-Site: cross-site\r\n", "some text"), 403);
    assert_code(post(box, "/v1/score", "Sec-Fetch-Site: same-origin\r\n", "some text"), 200);
    await_steps(box, 1);
}

// A misspelt argument that was passed over would do something else than was asked for.
static void every_route_knows_what_may_stand_in_its_query(void **state) {
    sandbox *box = *state;
    static const char *const PATHS[] = {
        "/",          "/livez",     "/readyz",   "/metrics",     "/v1/status",
        "/v1/events", "/v1/series", "/v1/usage", "/v1/timeline", "/charts.js"};
    char target[64];
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(*PATHS); i++) {
        snprintf(target, sizeof(target), "%s?foo=1", PATHS[i]);
        assert_code(get(box, target), 400);
    }
    assert_code(post(box, "/v1/command?dry_run=1", BEARER, "{\"command\": \"seal\"}"), 400);
    assert_int_equal(reefd_count(box, "generation"), 0);
    static const char *const SCORES[] = {"as_of", "as_of=", "per_byte", "per_byte=1&per_byte=1",
                                         "as_of=now%C3"};
    for (size_t i = 0; i < sizeof(SCORES) / sizeof(*SCORES); i++) {
        snprintf(target, sizeof(target), "/v1/score?%s", SCORES[i]);
        assert_code(post(box, target, "", "a line"), 400);
    }
    http_answer answer = post(box, "/v1/ingest?label=last", BEARER, "no batch");
    assert_non_null(strstr(answer.body, "in the query"));
    assert_code(answer, 400);
    assert_code(get(box, "/v1/status?"), 200);
    // Nothing is cut off at a zero.
    assert_code(get(box, "/v1/status%00x"), 404);
    assert_code(get(box, "/v1/timeline?last=1%00x"), 400);
    assert_code(post(box, "/v1/score?as_of=now%00x", "", "a line"), 404);
    await_steps(box, 1);
}

static void a_request_of_two_meanings_is_refused_and_the_last(void **state) {
    sandbox *box = *state;
    static const char *const HEADERS[] = {
        "Host: localhost\r\nContent-Length: 5\r\nContent-Length: 6",
        "Host: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
        "Host: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Host: localhost\r\nTransfer-Encoding: gzip, chunked",
        "Host: localhost\r\nContent-Length: 5\r\nHost: evil.example"};
    static const char REST[] = "0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char text[512];
    for (size_t i = 0; i < sizeof(HEADERS) / sizeof(*HEADERS); i++) {
        int bytes = snprintf(text, sizeof(text), "POST /v1/generate HTTP/1.1\r\n%s\r\n\r\n%s",
                             HEADERS[i], REST);
        http_answer answer = http_end(http_raw(box->address, text, (size_t)bytes));
        if (strstr(answer.body != NULL ? answer.body : "", "HTTP/1.1") != NULL)
            fail_msg("%s", HEADERS[i]);
        assert_code(answer, 400);
    }
    assert_code(get(box, "/livez"), 200);
    await_steps(box, 1);
}

static void a_body_that_is_too_long_is_refused(void **state) {
    sandbox *box = *state;
    size_t bytes = (1u << 20) + 1;
    char *body = malloc(bytes);
    memset(body, 'a', bytes);
    uint64_t before = metric(box, REFUSED);
    assert_code(http_ask(box->address, "POST", "/v1/score", "", body, bytes), 413);
    // Without a length known before: the answer is the same, at the end.
    static const char CHUNKED[] = "POST /v1/score HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    int fd = http_raw(box->address, CHUNKED, sizeof(CHUNKED) - 1);
    for (size_t i = 0; i < 40; i++) {
        (void)send(fd, "10000\r\n", 7, MSG_NOSIGNAL);
        (void)send(fd, body, 65536, MSG_NOSIGNAL);
        (void)send(fd, "\r\n", 2, MSG_NOSIGNAL);
    }
    (void)send(fd, "0\r\n\r\n", 5, MSG_NOSIGNAL);
    assert_code(http_end(fd), 413);
    free(body);
    assert_int_equal(metric(box, REFUSED), before + 2);
    await_steps(box, 1);
}

// Sends all but the last byte of a body.
static int send_part(const sandbox *box, const char *path) {
    static char body[PART_BYTES];
    return http_begin(box->address, "POST", path, "", body, sizeof(body), 1);
}

static http_answer send_rest(int fd) {
    assert_int_equal(send(fd, "", 1, MSG_NOSIGNAL), 1);
    return http_end(fd);
}

static void bodies_are_bounded_together_and_not_kept_for_who_may_not_ask(void **state) {
    sandbox *box = *state;
    enum { COUNT = 40 };
    int fds[COUNT];
    static const char *const PATHS[] = {"/v1/command", "/v1/nothing"};
    for (size_t route = 0; route < 2; route++) {
        int64_t before = reefd_count(box, "resident_bytes");
        for (size_t i = 0; i < COUNT; i++) fds[i] = send_part(box, PATHS[route]);
        int64_t more = reefd_count(box, "resident_bytes") - before;
        if (more > KEPT_BYTES_MAX) fail_msg("%jd bytes are kept", (intmax_t)more);
        assert_code(send_rest(fds[0]), route ? 404 : 401);
        for (size_t i = 1; i < COUNT; i++) close(fds[i]);
    }
    for (size_t i = 0; i < COUNT; i++) fds[i] = send_part(box, "/v1/generate");
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
    assert_code(send_rest(send_part(box, "/v1/generate")), 400);
    assert_trains_on_and_stops(box);
}

static int send_post(const sandbox *box, const char *target, const char *body) {
    return http_begin(box->address, "POST", target, "", body, strlen(body), 0);
}

// Otherwise clients that ask again after a time would keep the daemon answering those that went
// away.
static void a_question_whose_client_hung_up_is_not_begun(void **state) {
    sandbox *box = *state;
    int fds[QUESTIONS_THAT_WAIT];
    for (size_t i = 0; i < QUESTIONS_THAT_WAIT; i++)
        fds[i] = send_post(box, "/v1/generate", "{\"prompt\": \"the \", \"bytes\": 4096}");
    int half = send_post(box, "/v1/generate", "{\"prompt\": \"a\", \"bytes\": 16}");
    assert_int_equal(shutdown(half, SHUT_WR), 0);
    for (size_t i = 1; i < QUESTIONS_THAT_WAIT; i++) close(fds[i]);
    int listening = send_post(box, "/v1/score", "a line of text");
    http_answer answer = http_end(half);
    // libmicrohttpd lets it go without a word where it sees the end of what was sent before our
    // answer.
    assert_true(answer.code == 429 || !answer.code);
    if (answer.code) assert_non_null(strstr(answer.body, "client closed the connection"));
    assert_code(http_end(listening), 200);
    assert_code(http_end(fds[0]), 200);
    await_steps(box, 1);
}

// Some send nothing, some a byte now and then, some half a body, some nonsense.
static void hostile_clients_are_let_go(void **state) {
    sandbox *box = *state;
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
        fds[i] = http_raw(box->address, OPENINGS[i % 5], strlen(OPENINGS[i % 5]));
    }
    // A header that grows by a byte a second is never silent for long.
    for (size_t second = 0; second < DRIP_S; second++) {
        // Seen beside training; for the rest other tests have more use of the processor.
        if (second == 2) (void)reefd_tell(box, "pause");
        for (size_t i = 1; i < COUNT; i += 5) (void)send(fds[i], "P", 1, MSG_NOSIGNAL);
        assert_code(get(box, "/livez"), 200);
        sleep_ms(1000);
    }
    for (size_t i = 0; i < COUNT; i++) {
        http_answer answer;
        if (!http_read_all(fds[i], LIMIT_S - DRIP_S, &answer))
            fail_msg("client %zu was not let go", i);
        assert_int_not_equal(answer.code, 200);
        close(fds[i]);
    }
    (void)reefd_tell(box, "resume");
    await_steps(box, 1);
}

// Who asks and asks and reads nothing is not answered for ever: what lies unread for it is bounded.
static void answers_that_are_not_read_are_few(void **state) {
    sandbox *box = *state;
    static const char ASK[] = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int small = 4096;
    int fd = http_connect(box->address);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    for (size_t i = 0; i < UNREAD_REQUESTS; i++)
        if (send(fd, ASK, sizeof(ASK) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) sleep_ms(1);
    uint64_t before, now = metric(box, ANSWERED);
    do {
        before = now;
        sleep_ms(300);
        now = metric(box, ANSWERED);
    } while (now > before + 1); // one is that for the count itself
    if (now > UNREAD_ANSWERS_MAX) fail_msg("%ju answers lie unread", (uintmax_t)now);
    close(fd);
    assert_trains_on_and_stops(box);
}

static void a_client_that_leaves_before_its_answer_is_forgotten(void **state) {
    sandbox *box = *state;
    static const char COMMIT[] = "{\"command\": \"commit\"}";
    for (size_t i = 0; i < 30; i++) {
        int fd = http_begin(box->address, "POST", i % 2 ? "/v1/score" : "/v1/command", BEARER,
                            COMMIT, sizeof(COMMIT) - 1, 0);
        if (i % 3) sleep_ms(3);
        close(fd);
    }
    assert_code(get(box, "/livez"), 200);
    await_steps(box, 1);
}

// What they asked for is done all the same.
static void commands_of_clients_that_have_gone_keep_no_connection(void **state) {
    sandbox *box = *state;
    static const char DRAIN[] = "POST /v1/command HTTP/1.1\r\nHost: localhost\r\n" BEARER
                                "Content-Length: 20\r\n\r\n{\"command\": \"drain\"}x";
    reefd_discard(box);
    size_t bytes = (1u << 20) - 1;
    char *body = read_text(box->text, NULL);
    snprintf(box->text, sizeof(box->text), "push:web");
    LEARN(box, HTTP(box));
    for (size_t i = 0; i < BACKLOG_BATCHES; i++)
        assert_code(http_ask(box->address, "POST", "/v1/ingest", BEARER, body, bytes), 200);
    for (size_t i = 0; i < CONNECTIONS; i++) {
        // Some have begun another request.
        int fd = http_raw(box->address, DRAIN, sizeof(DRAIN) - 1 - i % 2);
        sleep_ms(1); // it is read before the end is
        close(fd);
    }
    assert_code(get(box, "/livez"), 200);
    assert_true((size_t)reefd_count(box, "stream_bytes") < BACKLOG_BATCHES * bytes / 2);
    assert_trains_on_and_stops(box);
}

static void is_refused(const sandbox *box, const char *listen, const char *token, int code) {
    int found = RUN(box, "--source", box->text, "--http", listen,
                    token != NULL ? "--http-token" : NULL, token);
    if (found != code) fail_msg("%s: %d, not %d", listen, found, code);
}

static void what_would_be_unsafe_is_refused_at_the_start(void **state) {
    sandbox *box = *state;
    char token[192], place[32];
    snprintf(token, sizeof(token), "%s/other", box->directory);
    is_refused(box, "0.0.0.0:0", NULL, 64);
    assert_true(reefd_said(box, "--http-token"));
    is_refused(box, "somewhere:80", NULL, 64);
    is_refused(box, "127.0.0.1:99999", NULL, 64);
    is_refused(box, "0", token, 66);
    write_mode(token, TOKEN "\n", 0644);
    is_refused(box, "0", token, 64);
    assert_true(reefd_said(box, "read or written by others"));
    write_mode(token, "short\n", 0600);
    is_refused(box, "0", token, 64);
    write_mode(token, TOKEN "\n" TOKEN "\n", 0600);
    is_refused(box, "0", token, 64);
    // A port that is taken.
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in bound = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(bound);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&bound, &bytes), 0);
    snprintf(place, sizeof(place), "127.0.0.1:%u", ntohs(bound.sin_port));
    is_refused(box, place, NULL, 75);
    close(fd);
}

static int setup_idle(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    write_text(box->text, 3000, 1);
    return 0;
}

int main(void) {
    const struct CMUnitTest of_one_daemon[] = {
        cmocka_unit_test(it_says_that_it_lives_and_is_ready),
        cmocka_unit_test(the_status_is_that_of_the_socket),
        cmocka_unit_test(text_is_generated_by_its_seed),
        cmocka_unit_test(the_series_is_cut_into_as_many_points),
        cmocka_unit_test(metrics_are_what_prometheus_takes),
        cmocka_unit_test(what_is_not_there_is_refused),
        cmocka_unit_test(every_route_knows_what_may_stand_in_its_query),
        cmocka_unit_test(a_request_of_two_meanings_is_refused_and_the_last),
        cmocka_unit_test(a_body_that_is_too_long_is_refused),
        cmocka_unit_test(a_question_whose_client_hung_up_is_not_begun),
        cmocka_unit_test(a_client_that_leaves_before_its_answer_is_forgotten),
        cmocka_unit_test(hostile_clients_are_let_go),
    };
    const struct CMUnitTest tests[] = {
        BOX(bodies_are_bounded_together_and_not_kept_for_who_may_not_ask),
        BOX(answers_that_are_not_read_are_few),
        BOX(commands_need_the_token_and_are_done),
        BOX(counters_since_ever_do_not_fall_after_a_crash),
        BOX(before_anything_was_measured_there_is_no_loss),
        BOX(commands_of_clients_that_have_gone_keep_no_connection),
        BOX_OF(what_would_be_unsafe_is_refused_at_the_start, setup_idle),
    };
    return cmocka_run_group_tests_name("one daemon", of_one_daemon, setup, sandbox_stop) +
           cmocka_run_group_tests_name("daemon http", tests, NULL, NULL);
}
