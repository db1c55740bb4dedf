// The control socket of a reefd that trains: every command works between two steps, and nothing
// that a client sends or leaves undone keeps it from training.
#include "reefd_run.h"

#include "reef_client.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BYTES 10000000 // more than any of these tests waits for
#define DRAIN_BYTES 50000
#define CLIENTS 64
#ifdef __SANITIZE_ADDRESS__ // which makes training slower several times
#define BACKLOG_BYTES 80000 // that take some seconds to train
#else
#define BACKLOG_BYTES 300000
#endif
#define TICKS_MS 1200 // in which those who have gone are seen
#define STILL_MS 2000 // longer than the client waits for most commands when it hurries
#define LET_GO_S 15   // by when a client that asks nothing is closed
#define NO_COMMITS "--commit-seconds", "0", "--commit-steps", "0"
#define STATUS "{\"command\": \"status\"}"

static int setup(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    write_text(box->text, TEXT_BYTES, 1);
    START(box, "--source", box->text, "--threads", "1");
    return 0;
}

// Another one begins on a new pool.
#define BEGIN_ANEW(box, ...)                                                                       \
    do {                                                                                           \
        reefd_discard(box);                                                                        \
        START(box, __VA_ARGS__);                                                                   \
    } while (0)

// ---- commands -----------------------------------------------------------------------------------

// The end of a followed source is unknown, though its size is known.
static void what_never_ends_has_no_time_left(void **state) {
    sandbox *box = *state;
    char followed[200];
    static const bool NEVER_ENDS[] = {false, true};
    for (size_t i = 0; i < 2; i++) {
        snprintf(followed, sizeof(followed), "%s%s", NEVER_ENDS[i] ? "follow:" : "", box->text);
        BEGIN_ANEW(box, "--source", followed);
        json_t *status = reefd_status(box);
        for (; number(status, "bytes_per_s") <= 0; sleep_ms(20)) status = reefd_status(box);
        assert_int_equal(integer(status, "sources.0.bytes"), TEXT_BYTES);
        assert_true(NEVER_ENDS[i] ? is_null(status, "eta_s") : number(status, "eta_s") > 0);
    }
    assert_trains_on_and_stops(box);
}

static void status_has_every_field(void **state) {
    sandbox *box = *state;
    static const char COUNTS[] =
        "pid threads queue_bytes step stream_bytes carried_bytes generation "
        "generation_step opened_at experts dirty_since_step experts_open "
        "pool_file_bytes resident_bytes last_commit.number";
    static const char NUMBERS[] = "uptime_s bytes_per_s learning_rate bits_per_byte seconds_router "
                                  "seconds_forward seconds_update seconds_commit seconds_experts "
                                  "seconds_backward last_bits_per_byte";
    await_count(box, "step", 10);
    json_t *status = reefd_status(box);
    char names[400], *rest = NULL;
    strcpy(names, COUNTS);
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        assert_true(integer(status, name) >= 0);
    strcpy(names, NUMBERS);
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        (void)number(status, name);
    assert_int_equal(integer(status, "pid"), box->pid);
    assert_string_equal(string(status, "pool"), box->pool);
    assert_string_equal(string(status, "state"), "training");
    (void)string(status, "version");
    (void)string(status, "kernels");
    assert_true(is_null(status, "commit_error"));
    json_t *source = json_at(status, "sources.0");
    assert_string_equal(string(source, "name"), box->text);
    assert_int_equal(integer(source, "bytes"), TEXT_BYTES);
    assert_int_equal(integer(source, "cursor"),
                     integer(status, "stream_bytes") + integer(status, "carried_bytes"));
    assert_false(is_true(source, "ended"));
    assert_int_equal(strlen(string(status, "last_commit.root")), 2 * REEF_HASH_BYTES);
    await_steps(box, 1);
}

static void a_pause_stops_training_and_nothing_else(void **state) {
    sandbox *box = *state;
    await_count(box, "step", 20);
    int64_t step = integer(reefd_tell(box, "pause"), "step");
    await_text(box, "state", "paused");
    (void)reefd_tell(box, "pause"); // is one pause
    sleep_ms(200);
    assert_int_equal(reefd_count(box, "step"), step);
    assert_int_equal(pool_commit(box).step, step);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"drain\"}"), REEF_ERR_BUSY);
    reefd_snapshot(box, "paused");
    assert_int_equal(reefd_count(box, "step"), step);
    (void)reefd_tell(box, "resume");
    await_text(box, "state", "training");
    await_steps(box, 1);
}

static void a_stop_ends_a_pause(void **state) {
    sandbox *box = *state;
    (void)reefd_tell(box, "pause");
    (void)reefd_tell(box, "stop");
    reefd_await_end(box);
}

static void a_drain_waits_for_what_was_read(void **state) {
    sandbox *box = *state;
    write_text(box->text, DRAIN_BYTES, 1);
    BEGIN_ANEW(box, "--source", box->text, NO_COMMITS, "--stay");
    int64_t read = 0;
    while (read == 0) { // until something was read
        json_t *status = reefd_status(box);
        read = integer(status, "sources.0.cursor") + integer(status, "queue_bytes");
    }
    int64_t trained = integer(reefd_tell(box, "drain"), "stream_bytes");
    assert_true(trained + reefd_count(box, "carried_bytes") >= read);
    assert_int_equal(pool_commit(box).stream_bytes, trained);
    (void)reefd_tell(box, "stop");
    reefd_await_end(box);
}

static void commands_are_done_while_it_trains(void **state) {
    sandbox *box = *state;
    await_count(box, "step", 100);

    json_t *answer = reefd_tell(box, "commit");
    assert_int_equal(integer(answer, "stream_bytes"), 32 * integer(answer, "step"));
    assert_true(integer(answer, "step") >= 100);
    assert_true(pool_commit(box).number >= (uint64_t)integer(answer, "number")); // it is on disk

    answer = reefd_ask(
        box,
        "{\"command\": \"freeze\", \"layer\": 0, \"first\": 0, \"last\": 3, \"dry_run\": true}");
    assert_int_equal(integer(answer, "changed"), 4);
    answer = reefd_ask(box, "{\"command\": \"freeze\", \"layer\": 0, \"first\": 0, \"last\": 3}");
    assert_int_equal(integer(answer, "changed"), 4); // the dry run had changed nothing
    answer = reefd_ask(box, "{\"command\": \"thaw\", \"first\": 2}");
    assert_int_equal(integer(answer, "changed"), 2);

    answer = reefd_ask(box, "{\"command\": \"grow\", \"side\": 6}");
    assert_int_equal(integer(answer, "experts_open"), 2 * 6 * 6);
    answer = reefd_ask(box, "{\"command\": \"snapshot\", \"name\": \"first\"}");
    assert_string_equal(string(answer, "name"), "first");
    assert_int_equal(integer(answer, "sealed_generations"), 0);
    answer = reefd_ask(box, "{\"command\": \"seal\", \"seal_dtype\": \"int8\"}");
    assert_int_equal(integer(answer, "generation"), 1);
    assert_int_equal(integer(answer, "sealed"), 0);
    assert_string_equal(string(answer, "dtype"), "int8");
    assert_true(integer(answer, "loss_bytes") > 0);
    double before = number(answer, "loss_before");
    double after = number(answer, "loss_after");
    assert_true(before > 0 && after > 0 && before != after);
    assert_int_equal(integer(answer, "experts"), 2 * (6 * 6 + 4 * 4));

    assert_int_equal(reefd_count(box, "generation"), 1);
    assert_trains_on_and_stops(box);
}

static void commands_that_cannot_be_done_are_refused(void **state) {
    sandbox *box = *state;
    static const struct {
        const char *request;
        reef_status status;
    } CASES[] = {
        {"{\"command\": \"grow\", \"side\": 3}", REEF_ERR_INVALID},
        {"{\"command\": \"grow\", \"side\": 1000000}", REEF_ERR_INVALID},
        {"{\"command\": \"freeze\", \"layer\": 7}", REEF_ERR_NOT_FOUND},
        {"{\"command\": \"freeze\", \"first\": 0, \"last\": 9999}", REEF_ERR_INVALID},
        {"{\"command\": \"snapshot\", \"name\": \"../x\"}", REEF_ERR_INVALID},
        {"{\"command\": \"snapshot\", \"name\": \"12\"}", REEF_ERR_INVALID},
        {"{\"command\": \"snapshot\", \"name\": \"once\"}", REEF_ERR_INVALID},
        {"{\"command\": \"status\", \"verbose\": true}", REEF_ERR_INVALID},
        {"{\"command\": \"dance\"}", REEF_ERR_INVALID},
    };
    reefd_snapshot(box, "once");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++)
        if (reefd_refuses(box, CASES[i].request) != CASES[i].status)
            fail_msg("%s", CASES[i].request);
    await_steps(box, 1);
}

static void say_line(const sandbox *box, int64_t accepted) {
    assert_int_equal(write(box->input, "a line for the stream\n", 22), 22);
    await_count(box, "sources.0.cursor", accepted);
}

// It commits first, and then finds that there is one of that name.
static void what_a_refused_snapshot_committed_is_no_later_commit(void **state) {
    sandbox *box = *state;
    reefd_discard(box);
    START_PIPED(box, NO_COMMITS);
    reefd_snapshot(box, "once");
    say_line(box, 22);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"snapshot\", \"name\": \"once\"}"),
                     REEF_ERR_INVALID);
    assert_int_equal(reefd_count(box, "last_commit.number"), pool_commit(box).number);
    say_line(box, 44);
    (void)reefd_tell(box, "resume");
    (void)reefd_tell(box, "commit");
    reefd_kill(box);
    START_PIPED(box, NO_COMMITS);
    assert_int_equal(reefd_count(box, "sources.0.cursor"), 44);
    reefd_await_end(box);
}

static void another_process_evaluates_meanwhile(void **state) {
    sandbox *box = *state;
    size_t bytes = 0;
    char *text = read_text(box->text, &bytes);
    reefd_snapshot(box, "early");
    double early = 0;
    for (size_t round = 0; round < 4; round++) {
        const char *as_of = round % 2 ? "early" : NULL;
        reef_error err = {0};
        reef_store *store = NULL;
        reef_model *model = NULL;
        reef_score score = {0};
        assert_int_equal(reef_store_open(&store, box->pool, &(reef_store_options){0}, &err),
                         REEF_OK);
        if (reef_model_open(&model, store, as_of, &(reef_model_options){.threads = 1}, &err) !=
            REEF_OK)
            fail_msg("%s", err.message);
        reef_store_close(store);
        sleep_ms(20); // the daemon commits over what the model was read from
        assert_int_equal(
            reef_model_score(model, (const uint8_t *)text, 3000, NULL, &score, NULL, NULL, &err),
            REEF_OK);
        assert_true(score.bits_per_byte > 0 && score.bits_per_byte < 20);
        if (round == 1) early = score.bits;
        if (as_of != NULL) assert_true(score.bits == early); // a snapshot stays what it was
        reef_model_close(model);
    }
    await_steps(box, 1);
}

static void it_commits_by_time_while_it_waits(void **state) {
    sandbox *box = *state;
    reefd_discard(box);
    START_PIPED(box, "--commit-steps", "0", "--commit-seconds", "0.05");
    assert_int_equal(write(box->input, "a few bytes that do not fill two batches", 40), 40);
    while (pool_commit(box).number < 2) sleep_ms(5);
    assert_string_equal(string(reefd_status(box), "state"), "waiting");
    assert_int_equal(pool_commit(box).number,
                     2); // without new bytes there is nothing to commit
    reefd_await_end(box);
}

static void with_stay_it_serves_after_the_last_source(void **state) {
    sandbox *box = *state;
    write_text(box->text, 5000, 1);
    BEGIN_ANEW(box, "--source", box->text, "--stay");
    while (!is_true(reefd_status(box), "sources.0.ended")) sleep_ms(2);
    (void)reefd_tell(box, "seal");
    (void)reefd_tell(box, "commit");
    assert_int_equal(reefd_count(box, "generation"), 1);
    assert_int_equal(reefd_count(box, "dirty_since_step"), 0);
    (void)reefd_tell(box, "stop");
    reefd_await_end(box);
}

// Five bytes are not a batch.
static void a_loss_is_null_before_anything_was_measured(void **state) {
    sandbox *box = *state;
    write_mode(box->text, "five ", 0600);
    BEGIN_ANEW(box, "--source", box->text, "--stay");
    json_t *status = reefd_status(box);
    assert_int_equal(integer(status, "step"), 0);
    assert_true(is_null(status, "bits_per_byte"));
    assert_true(is_null(status, "last_bits_per_byte"));
    (void)reefd_tell(box, "stop");
    reefd_await_end(box);
}

// ---- raw connections ----------------------------------------------------------------------------

static int connect_to(const sandbox *box) {
    struct sockaddr_un address;
    reef_error err;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(reef_address_init(&address, box->pool, NULL, &err), REEF_OK);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void send_text(int fd, const char *text, size_t bytes) {
    while (bytes) {
        ssize_t count = send(fd, text, bytes, MSG_NOSIGNAL);
        if (count < 0 && (errno == EPIPE || errno == ECONNRESET)) return; // refused meanwhile
        assert_true(count > 0);
        text += count;
        bytes -= (size_t)count;
    }
}

// One reply from a connection: its body; NULL at the end of the connection.
static json_t *receive(int fd, int *code) {
    static char text[REEF_REQUEST_BYTES_MAX];
    size_t used = 0;
    char *end = NULL;
    while (end == NULL && used < sizeof(text) - 1 && recv(fd, text + used, 1, 0) == 1) {
        text[++used] = 0;
        if (used >= 4 && strcmp(text + used - 4, "\r\n\r\n") == 0) end = text + used;
    }
    if (end == NULL) return NULL;
    assert_int_equal(sscanf(text, "HTTP/1.1 %d", code), 1);
    const char *length = strstr(text, "Content-Length: ");
    assert_non_null(length);
    size_t bytes = strtoul(length + 16, NULL, 10);
    assert_true(used + bytes <= sizeof(text));
    assert_int_equal(recv(fd, end, bytes, MSG_WAITALL), bytes);
    json_t *answer = json_loadb(end, bytes, 0, NULL);
    assert_true(json_is_object(answer));
    return keep(answer);
}

static void assert_answer(int fd, int wanted) {
    int code = 0;
    json_t *answer = receive(fd, &code);
    assert_non_null(answer);
    if (code != wanted) fail_msg("%d: %s", code, json_dumps(answer, 0));
}

// A request with this body, as it goes over the wire; valid until the next call.
static const char *request_of(const char *body) {
    static char text[4096];
    snprintf(text, sizeof(text),
             "POST /v1/command HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    return text;
}

static void send_command(int fd, const char *body) {
    const char *text = request_of(body);
    send_text(fd, text, strlen(text));
}

static void pipelined_and_half_requests_are_answered_in_order(void **state) {
    sandbox *box = *state;
    int fd = connect_to(box), code = 0;
    send_command(fd, STATUS);
    send_command(fd, "{\"command\": \"commit\"}");
    static const char GET[] = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    send_text(fd, GET, sizeof(GET) - 1);
    send_command(fd, "nonsense");
    const char *grow = request_of("{\"command\": \"grow\", \"side\": 5}");
    send_text(fd, grow, strlen(grow) - 10);
    json_t *first = receive(fd, &code), *second = receive(fd, &code), *third = receive(fd, &code);
    assert_int_equal(integer(first, "pid"), box->pid);
    assert_true(integer(second, "number") >= 1);
    assert_int_equal(integer(third, "pid"), box->pid);
    assert_answer(fd, 400);
    send_text(fd, grow + strlen(grow) - 10, 10);
    assert_answer(fd, 200);
    send_command(fd, STATUS);
    assert_answer(fd, 200);
    close(fd);
    await_steps(box, 1);
}

static void garbage_is_answered_and_the_connection_stays_usable(void **state) {
    sandbox *box = *state;
    int fd = connect_to(box);
    uint64_t seed = 21;
    for (size_t round = 0; round < 200; round++) {
        char body[256];
        size_t count = 1 + (size_t)(round % (sizeof(body) - 2));
        for (size_t i = 0; i < count; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            body[i] = (char)(seed >> 33);
            if (!body[i]) body[i] = 'n';
        }
        body[0] = '{';
        body[count] = 0;
        send_command(fd, body);
        assert_answer(fd, 400);
    }
    enum { DEEP = 3000 };
    char deep[DEEP + 1] = {0};
    memset(deep, '[', DEEP);
    send_command(fd, deep);
    assert_answer(fd, 400);
    send_command(fd, STATUS);
    assert_answer(fd, 200);
    close(fd);
    await_steps(box, 1);
}

static void what_is_no_http_is_refused_and_closed(void **state) {
    sandbox *box = *state;
    int fd = connect_to(box);
    send_text(fd, STATUS "\n", sizeof(STATUS));
    static const char LONG[] = "POST /v1/command HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 1048577\r\n\r\n{";
    int longer = connect_to(box);
    send_text(longer, LONG, sizeof(LONG) - 1);
    assert_answer(longer, 413);
    char bytes[4096];
    while (recv(fd, bytes, sizeof(bytes), 0) > 0) continue;
    close(fd);
    close(longer);
    await_steps(box, 1);
}

static void clients_that_say_nothing_or_vanish_do_not_matter(void **state) {
    sandbox *box = *state;
    for (size_t i = 0; i < 40; i++) {
        int fd = connect_to(box);
        if (i % 3 == 0) send_text(fd, "POST /v1", 8);
        if (i % 3 == 1) send_command(fd, "{\"command\": \"commit\"}"); // gone before the answer
        close(fd);
    }
    int silent[8], code = 0;
    for (size_t i = 0; i < 8; i++) silent[i] = connect_to(box);
    // One that asks and asks and never reads an answer.
    int deaf = connect_to(box);
    assert_int_equal(fcntl(deaf, F_SETFL, O_NONBLOCK), 0);
    const char *request = request_of(STATUS);
    for (size_t i = 0; i < 20000; i++)
        if (send(deaf, request, strlen(request), MSG_NOSIGNAL) <= 0) break;
    assert_trains_on_and_stops(box);
    for (size_t i = 0; i < 8; i++) {
        assert_null(receive(silent[i], &code)); // closed when the daemon ended
        close(silent[i]);
    }
    close(deaf);
}

// One batch for push:web.
static void push_batch(const sandbox *box, size_t bytes) {
    char *text = calloc(bytes + 1, 1);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++) text[i] = i % 64 == 63 ? '\n' : (char)('a' + i % 7);
    (void)reefd_push_ok(box, NULL, NULL, text);
    free(text);
}

// Their commands are done, but they occupy no slot; one that only stopped sending still gets its
// reply.
static void clients_that_have_gone_keep_no_slot(void **state) {
    sandbox *box = *state;
    BEGIN_ANEW(box, "--source", "push:web");
    push_batch(box, BACKLOG_BYTES);
    int clients[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i] = connect_to(box);
        send_command(clients[i], "{\"command\": \"drain\"}");
    }
    assert_int_equal(shutdown(clients[0], SHUT_WR), 0);
    for (size_t i = 1; i < CLIENTS; i++) close(clients[i]);
    sleep_ms(TICKS_MS);
    (void)reefd_tell(box, "commit");
    assert_true(reefd_count(box, "stream_bytes") <
                BACKLOG_BYTES - WAITING_BYTES); // they were not done before
    assert_answer(clients[0], 200);
    assert_true(reefd_count(box, "stream_bytes") > BACKLOG_BYTES - WAITING_BYTES);
    close(clients[0]);
    (void)reefd_tell(box, "stop");
    reefd_await_end(box);
}

// Nothing at all, the beginning of a request, one whose reply is never read.
static void clients_that_ask_nothing_are_let_go(void **state) {
    sandbox *box = *state;
    static const char *const OPENINGS[] = {"", "POST /v1/comm",
                                           "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\nGET"};
    enum { COUNT = sizeof(OPENINGS) / sizeof(*OPENINGS) };
    int fds[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = connect_to(box);
        send_text(fds[i], OPENINGS[i], strlen(OPENINGS[i]));
    }
    // For seconds nothing happens: other tests have more use of the processor.
    (void)reefd_tell(box, "pause");
    for (size_t i = 0; i < COUNT; i++) {
        struct timeval limit = {.tv_sec = LET_GO_S};
        assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
        char bytes[4096];
        ssize_t count;
        while ((count = recv(fds[i], bytes, sizeof(bytes), 0)) > 0) continue;
        if (count < 0 && errno != ECONNRESET) fail_msg("client %zu was not let go", i);
        close(fds[i]);
    }
    (void)reefd_tell(box, "resume");
    await_steps(box, 1);
}

static int ask_on(int fd) {
    int code = 0;
    send_command(fd, STATUS);
    (void)receive(fd, &code);
    return code;
}

static void one_client_too_many_is_refused(void **state) {
    sandbox *box = *state;
    int clients[CLIENTS], code = 0;
    // The connection that setup used may still be closing; every slot must be free.
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i] = connect_to(box);
        if (ask_on(clients[i]) == 200) continue;
        close(clients[i--]);
        sleep_ms(2);
    }
    int late = connect_to(box);
    send_command(late, STATUS);
    json_t *answer = receive(late, &code);
    assert_int_equal(code, 429);
    assert_string_equal(string(answer, "error.status"), "busy");
    assert_null(receive(late, &code));
    close(late);
    int silent = connect_to(box); // one too many as well: the others are served beside it
    sleep_ms(TICKS_MS);
    for (size_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(ask_on(clients[i]), 200);
        close(clients[i]);
    }
    close(silent);
    for (code = 0; code != 200; sleep_ms(2)) { // the slots are free again
        int again = connect_to(box);
        code = ask_on(again);
        close(again);
    }
    await_steps(box, 1);
}

// ---- the file -----------------------------------------------------------------------------------

static void the_socket_is_private_and_goes_with_the_daemon(void **state) {
    sandbox *box = *state;
    char path[256];
    struct stat file;
    snprintf(path, sizeof(path), "%s/%s", box->pool, REEF_SOCKET_NAME);
    assert_int_equal(lstat(path, &file), 0);
    assert_true(S_ISSOCK(file.st_mode));
    assert_int_equal(file.st_mode & 0777, 0600);
    assert_trains_on_and_stops(box);
    assert_int_not_equal(lstat(path, &file), 0);
}

static void another_file_in_its_place_is_left_alone(void **state) {
    sandbox *box = *state;
    char path[256];
    assert_trains_on_and_stops(box);
    snprintf(path, sizeof(path), "%s/precious", box->directory);
    write_text(path, 10, 1);
    assert_int_equal(RUN(box, "--stay", "--socket", path), 64);
    assert_true(reefd_said(box, "precious"));
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_size, 10);
}

static void the_client_tells_absence_from_failure(void **state) {
    sandbox *box = *state;
    reef_error err = {0};
    char *result = NULL;
    char pool[300] = "/tmp/";
    assert_int_equal(reef_daemon_call(box->pool, NULL, "not JSON", &result, &err),
                     REEF_ERR_INVALID);
    assert_int_equal(reef_daemon_call(box->pool, NULL, "[]", &result, &err), REEF_ERR_INVALID);
    assert_int_equal(
        reef_daemon_call(box->pool, NULL, "{\n  \"command\":\n \"status\"\n}", &result, &err),
        REEF_OK);
    free(result);
    memset(pool + 5, 'p', 200);
    assert_int_equal(reef_daemon_call(pool, NULL, STATUS, &result, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "216 bytes"));
    assert_int_equal(reef_daemon_call("/nonexistent", NULL, STATUS, &result, &err),
                     REEF_ERR_NOT_FOUND);
    reefd_kill(box);
    assert_int_equal(reef_daemon_call(box->pool, NULL, STATUS, &result, &err),
                     REEF_ERR_NOT_FOUND); // a stale socket
    assert_null(result);
}

// NOLINTBEGIN(bugprone-reserved-identifier): the names are the linker's.
int __real_poll(struct pollfd *fds, nfds_t count, int wait_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int wait_ms);

static bool hurry; // a thousand times

int __wrap_poll(struct pollfd *fds, nfds_t count, int wait_ms) {
    return __real_poll(fds, count, hurry && wait_ms > 0 ? wait_ms / 1000 : wait_ms);
}
// NOLINTEND(bugprone-reserved-identifier)

static pid_t wake_later(pid_t pid) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    sleep_ms(STILL_MS);
    _exit(kill(pid, SIGCONT) != 0);
}

// A drain trains all that waits, which may take hours.
static void only_a_drain_is_waited_for_without_end(void **state) {
    sandbox *box = *state;
    reef_error err = {0};
    char *result = NULL;
    write_text(box->text, 5000, 1); // what is drained, and is soon
    BEGIN_ANEW(box, "--source", box->text, "--stay");
    hurry = true;
    assert_int_equal(kill(box->pid, SIGSTOP), 0);
    reef_status status = reef_daemon_call(box->pool, NULL, STATUS, &result, &err);
    assert_int_equal(status, REEF_ERR_BUSY);
    pid_t waker = wake_later(box->pid);
    if (reef_daemon_call(box->pool, NULL, "{\"command\": \"drain\"}", &result, &err) != REEF_OK)
        fail_msg("%s", err.message);
    assert_int_equal(reefd_wait(waker), 0);
    free(result);
    hurry = false;
    reefd_end(box);
}

int main(void) {
    const struct CMUnitTest of_one_daemon[] = {
        cmocka_unit_test(status_has_every_field),
        cmocka_unit_test(a_pause_stops_training_and_nothing_else),
        cmocka_unit_test(commands_that_cannot_be_done_are_refused),
        cmocka_unit_test(another_process_evaluates_meanwhile),
        cmocka_unit_test(pipelined_and_half_requests_are_answered_in_order),
        cmocka_unit_test(garbage_is_answered_and_the_connection_stays_usable),
        cmocka_unit_test(what_is_no_http_is_refused_and_closed),
        cmocka_unit_test(clients_that_ask_nothing_are_let_go),
        cmocka_unit_test(one_client_too_many_is_refused),
    };
    const struct CMUnitTest tests[] = {
        BOX(what_never_ends_has_no_time_left),
        BOX(commands_are_done_while_it_trains),
        BOX(a_stop_ends_a_pause),
        BOX(a_drain_waits_for_what_was_read),
        BOX(what_a_refused_snapshot_committed_is_no_later_commit),
        BOX(it_commits_by_time_while_it_waits),
        BOX(a_loss_is_null_before_anything_was_measured),
        BOX(with_stay_it_serves_after_the_last_source),
        BOX(clients_that_say_nothing_or_vanish_do_not_matter),
        BOX(clients_that_have_gone_keep_no_slot),
        BOX(the_socket_is_private_and_goes_with_the_daemon),
        BOX(another_file_in_its_place_is_left_alone),
        BOX(the_client_tells_absence_from_failure),
        BOX(only_a_drain_is_waited_for_without_end),
    };
    return cmocka_run_group_tests_name("one daemon", of_one_daemon, setup, sandbox_stop) +
           cmocka_run_group_tests_name("daemon control", tests, NULL, NULL);
}
