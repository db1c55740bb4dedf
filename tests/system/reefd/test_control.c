// The control socket of a reefd that trains: every command works between two steps, and nothing
// that a client sends or leaves undone keeps it from training.
#include "reefd_run.h"

#include "reef_client.h"
#include "reef_trainer.h"
#include "service.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BYTES 10000000 // more than any of these tests waits for
#define DRAIN_BYTES 50000
#define STATE_MS_MAX 10000
#define CLIENTS 64
#ifdef __SANITIZE_ADDRESS__ // which makes training slower several times
#define BACKLOG_BYTES 80000 // that take some seconds to train
#else
#define BACKLOG_BYTES 300000
#endif
#define TICKS_MS 1200 // in which those who have gone are seen
#define STILL_MS 2000 // longer than the client waits for most commands when it hurries
#define LET_GO_S 15   // by when a client that asks nothing is closed
#define STATUS "{\"command\": \"status\"}"

typedef struct running {
    sandbox box;
    pid_t pid;
} running;

static int setup(void **state) {
    running *run = calloc(1, sizeof(*run));
    sandbox_make(&run->box);
    sandbox_make_pool(&run->box);
    write_text(run->box.text, TEXT_BYTES, 1);
    run->pid = reefd_start(&run->box, -1,
                           (const char *const[]){"--pool", run->box.pool, "--source", run->box.text,
                                                 "--threads", "1", NULL});
    reefd_await(&run->box, run->pid);
    *state = run;
    return 0;
}

static int teardown(void **state) {
    running *run = *state;
    if (run->pid) {
        kill(run->pid, SIGKILL);
        (void)reefd_wait(run->pid);
    }
    sandbox_remove(&run->box);
    free(run);
    return 0;
}

// After whatever a test did, the daemon trains on, and a stop still works.
static void assert_trains_on_and_stops(running *run) {
    int64_t before = reefd_count(&run->box, "step");
    while (reefd_count(&run->box, "step") <= before) sleep_ms(2);
    json_t *answer = reefd_ask(&run->box, "{\"command\": \"stop\"}");
    assert_string_equal(json_string_value(json_object_get(answer, "state")), "draining");
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
    pool_check(&run->box);
}

static int64_t count_in(const json_t *object, const char *key) {
    if (!json_is_integer(json_object_get(object, key))) fail_msg("no count '%s'", key);
    return json_integer_value(json_object_get(object, key));
}

// ---- commands -----------------------------------------------------------------------------------

// The end of a followed source is unknown, though its size is known.
static void what_never_ends_has_no_time_left(void **state) {
    running *run = *state;
    char followed[200];
    static const bool NEVER_ENDS[] = {false, true};
    for (size_t i = 0; i < 2; i++) {
        kill(run->pid, SIGKILL);
        (void)reefd_wait(run->pid);
        sandbox_make_pool(&run->box);
        snprintf(followed, sizeof(followed), "%s%s", NEVER_ENDS[i] ? "follow:" : "", run->box.text);
        run->pid =
            reefd_start(&run->box, -1,
                        (const char *const[]){"--pool", run->box.pool, "--source", followed, NULL});
        reefd_await(&run->box, run->pid);
        json_t *status = reefd_ask(&run->box, STATUS);
        for (; json_number_value(json_object_get(status, "bytes_per_s")) <= 0; sleep_ms(20)) {
            status = reefd_ask(&run->box, STATUS);
        }
        json_t *source = json_array_get(json_object_get(status, "sources"), 0);
        assert_int_equal(count_in(source, "bytes"), TEXT_BYTES);
        json_t *left = json_object_get(status, "eta_s");
        assert_true(NEVER_ENDS[i] ? json_is_null(left) : json_number_value(left) > 0);
    }
    assert_trains_on_and_stops(run);
}

static void status_has_every_field(void **state) {
    running *run = *state;
    static const char *const COUNTS[] = {"pid",
                                         "threads",
                                         "queue_bytes",
                                         "step",
                                         "stream_bytes",
                                         "carried_bytes",
                                         "generation",
                                         "generation_step",
                                         "opened_at",
                                         "experts",
                                         "dirty_since_step",
                                         "experts_open",
                                         "pool_file_bytes",
                                         "resident_bytes"};
    static const char *const NUMBERS[] = {
        "uptime_s",        "bytes_per_s",      "learning_rate",     "bits_per_byte",
        "seconds_router",  "seconds_forward",  "seconds_update",    "seconds_commit",
        "seconds_experts", "seconds_backward", "last_bits_per_byte"};
    while (reefd_count(&run->box, "step") < 10) sleep_ms(2);
    json_t *status = reefd_ask(&run->box, STATUS);
    for (size_t i = 0; i < sizeof(COUNTS) / sizeof(*COUNTS); i++)
        assert_true(count_in(status, COUNTS[i]) >= 0);
    for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(*NUMBERS); i++)
        if (!json_is_number(json_object_get(status, NUMBERS[i])))
            fail_msg("no number '%s'", NUMBERS[i]);
    assert_int_equal(count_in(status, "pid"), run->pid);
    assert_string_equal(json_string_value(json_object_get(status, "pool")), run->box.pool);
    assert_string_equal(json_string_value(json_object_get(status, "state")), "training");
    assert_true(json_is_string(json_object_get(status, "version")));
    assert_true(json_is_string(json_object_get(status, "kernels")));
    assert_true(json_is_null(json_object_get(status, "commit_error")));
    json_t *source = json_array_get(json_object_get(status, "sources"), 0);
    assert_string_equal(json_string_value(json_object_get(source, "name")), run->box.text);
    assert_int_equal(count_in(source, "bytes"), TEXT_BYTES);
    assert_int_equal(count_in(source, "cursor"),
                     count_in(status, "stream_bytes") + count_in(status, "carried_bytes"));
    assert_true(json_is_false(json_object_get(source, "ended")));
    json_t *last = json_object_get(status, "last_commit");
    assert_true(count_in(last, "number") >= 1);
    assert_int_equal(strlen(json_string_value(json_object_get(last, "root"))), 2 * REEF_HASH_BYTES);
    assert_trains_on_and_stops(run);
}

static void await_state(const sandbox *box, const char *state) {
    for (unsigned waited = 0; waited < STATE_MS_MAX; waited += 2, sleep_ms(2)) {
        json_t *status = reefd_ask(box, STATUS);
        bool there = strcmp(json_string_value(json_object_get(status, "state")), state) == 0;
        if (there) return;
    }
    fail_msg("it is never %s", state);
}

static void a_pause_stops_training_and_nothing_else(void **state) {
    running *run = *state;
    const sandbox *box = &run->box;
    while (reefd_count(box, "step") < 20) sleep_ms(2);
    json_t *paused = reefd_ask(box, "{\"command\": \"pause\"}");
    int64_t step = count_in(paused, "step");
    await_state(box, "paused");
    json_decref(reefd_ask(box, "{\"command\": \"pause\"}")); // is one pause
    sleep_ms(200);
    assert_int_equal(reefd_count(box, "step"), step);
    assert_int_equal(pool_commit(box).step, step);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"drain\"}"), REEF_ERR_BUSY);
    (void)reefd_ask(box, "{\"command\": \"snapshot\", \"name\": \"paused\"}");
    assert_int_equal(reefd_count(box, "step"), step);
    (void)reefd_ask(box, "{\"command\": \"resume\"}");
    await_state(box, "training");
    assert_trains_on_and_stops(run);
}

static void a_stop_ends_a_pause(void **state) {
    running *run = *state;
    (void)reefd_ask(&run->box, "{\"command\": \"pause\"}");
    (void)reefd_ask(&run->box, "{\"command\": \"stop\"}");
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
    pool_check(&run->box);
}

static void a_drain_waits_for_what_was_read(void **state) {
    running *run = *state;
    const sandbox *box = &run->box;
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    sandbox_make_pool(box);
    write_text(box->text, DRAIN_BYTES, 1);
    run->pid = reefd_start(box, -1,
                           (const char *const[]){"--pool", box->pool, "--source", box->text,
                                                 "--commit-seconds", "0", "--commit-steps", "0",
                                                 "--stay", NULL});
    reefd_await(box, run->pid);
    json_t *drained;
    int64_t read = 0;
    while (read == 0) { // until something was read
        json_t *status = reefd_ask(box, STATUS);
        read = count_in(json_array_get(json_object_get(status, "sources"), 0), "cursor") +
               count_in(status, "queue_bytes");
    }
    drained = reefd_ask(box, "{\"command\": \"drain\"}");
    int64_t trained = count_in(drained, "stream_bytes");
    assert_true(trained + reefd_count(box, "carried_bytes") >= read);
    assert_int_equal(pool_commit(box).stream_bytes, trained);
    (void)reefd_ask(box, "{\"command\": \"stop\"}");
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
    pool_check(box);
}

static void commands_are_done_while_it_trains(void **state) {
    running *run = *state;
    const sandbox *box = &run->box;
    while (reefd_count(box, "step") < 100) sleep_ms(2);

    json_t *answer = reefd_ask(box, "{\"command\": \"commit\"}");
    assert_int_equal(count_in(answer, "stream_bytes"), 32 * count_in(answer, "step"));
    assert_true(count_in(answer, "step") >= 100);
    assert_true(pool_commit(box).number >= (uint64_t)count_in(answer, "number")); // it is on disk

    answer = reefd_ask(
        box,
        "{\"command\": \"freeze\", \"layer\": 0, \"first\": 0, \"last\": 3, \"dry_run\": true}");
    assert_int_equal(count_in(answer, "changed"), 4);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"freeze\", \"first\": 0, \"last\": 9999}"),
                     REEF_ERR_INVALID);
    answer = reefd_ask(box, "{\"command\": \"freeze\", \"layer\": 0, \"first\": 0, \"last\": 3}");
    assert_int_equal(count_in(answer, "changed"), 4); // the dry run had changed nothing
    answer = reefd_ask(box, "{\"command\": \"thaw\", \"first\": 2}");
    assert_int_equal(count_in(answer, "changed"), 2);

    answer = reefd_ask(box, "{\"command\": \"grow\", \"side\": 6}");
    assert_int_equal(count_in(answer, "experts_open"), 2 * 6 * 6);
    answer = reefd_ask(box, "{\"command\": \"snapshot\", \"name\": \"first\"}");
    assert_string_equal(json_string_value(json_object_get(answer, "name")), "first");
    assert_int_equal(count_in(answer, "sealed_generations"), 0);
    answer = reefd_ask(box, "{\"command\": \"seal\", \"seal_dtype\": \"int8\"}");
    assert_int_equal(count_in(answer, "generation"), 1);
    assert_int_equal(count_in(answer, "sealed"), 0);
    assert_string_equal(json_string_value(json_object_get(answer, "dtype")), "int8");
    assert_true(count_in(answer, "loss_bytes") > 0);
    double before = json_real_value(json_object_get(answer, "loss_before"));
    double after = json_real_value(json_object_get(answer, "loss_after"));
    assert_true(before > 0 && after > 0 && before != after);
    assert_int_equal(count_in(answer, "experts"), 2 * (6 * 6 + 4 * 4));

    assert_int_equal(reefd_count(box, "generation"), 1);
    assert_trains_on_and_stops(run);
}

static void commands_that_cannot_be_done_are_refused(void **state) {
    running *run = *state;
    const sandbox *box = &run->box;
    assert_int_equal(reefd_refuses(box, "{\"command\": \"grow\", \"side\": 3}"), REEF_ERR_INVALID);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"grow\", \"side\": 1000000}"),
                     REEF_ERR_INVALID);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"freeze\", \"layer\": 7}"),
                     REEF_ERR_NOT_FOUND);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"snapshot\", \"name\": \"../x\"}"),
                     REEF_ERR_INVALID);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"snapshot\", \"name\": \"12\"}"),
                     REEF_ERR_INVALID);
    (void)reefd_ask(box, "{\"command\": \"snapshot\", \"name\": \"once\"}");
    assert_int_equal(reefd_refuses(box, "{\"command\": \"snapshot\", \"name\": \"once\"}"),
                     REEF_ERR_INVALID);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"status\", \"verbose\": true}"),
                     REEF_ERR_INVALID);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"dance\"}"), REEF_ERR_INVALID);
    assert_trains_on_and_stops(run);
}

// Bytes of standard input that were accepted, of the only source.
static int64_t accepted(const sandbox *box) {
    json_t *status = reefd_ask(box, STATUS);
    int64_t cursor = count_in(json_array_get(json_object_get(status, "sources"), 0), "cursor");
    return cursor;
}

static void say_line(const sandbox *box, int to) {
    int64_t before = accepted(box);
    assert_int_equal(write(to, "a line for the stream\n", 22), 22);
    while (accepted(box) < before + 22) sleep_ms(2);
}

static int start_on_a_pipe(running *run) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    run->pid =
        reefd_start(&run->box, ends[0],
                    (const char *const[]){"--pool", run->box.pool, "--source", "-",
                                          "--commit-steps", "0", "--commit-seconds", "0", NULL});
    close(ends[0]);
    reefd_await(&run->box, run->pid);
    return ends[1];
}

// It commits first, and then finds that there is one of that name.
static void what_a_refused_snapshot_committed_is_no_later_commit(void **state) {
    running *run = *state;
    const sandbox *box = &run->box;
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    sandbox_make_pool(box);
    int to = start_on_a_pipe(run);
    (void)reefd_ask(box, "{\"command\": \"snapshot\", \"name\": \"once\"}");
    say_line(box, to);
    assert_int_equal(reefd_refuses(box, "{\"command\": \"snapshot\", \"name\": \"once\"}"),
                     REEF_ERR_INVALID);
    json_t *status = reefd_ask(box, STATUS);
    assert_int_equal(count_in(json_object_get(status, "last_commit"), "number"),
                     pool_commit(box).number);
    say_line(box, to);
    (void)reefd_ask(box, "{\"command\": \"resume\"}");
    (void)reefd_ask(box, "{\"command\": \"commit\"}");
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    close(to);
    to = start_on_a_pipe(run);
    assert_int_equal(accepted(box), 44);
    close(to);
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
}

static void another_process_evaluates_meanwhile(void **state) {
    running *run = *state;
    const sandbox *box = &run->box;
    size_t bytes = 0;
    char *text = read_text(box->text, &bytes);
    (void)reefd_ask(box, "{\"command\": \"snapshot\", \"name\": \"early\"}");
    double early = 0;
    for (size_t round = 0; round < 8; round++) {
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
    assert_trains_on_and_stops(run);
}

static void it_commits_by_time_while_it_waits(void **state) {
    running *run = *state;
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    sandbox_make_pool(&run->box);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    run->pid =
        reefd_start(&run->box, ends[0],
                    (const char *const[]){"--pool", run->box.pool, "--source", "-",
                                          "--commit-steps", "0", "--commit-seconds", "0.05", NULL});
    close(ends[0]);
    assert_int_equal(write(ends[1], "a few bytes that do not fill two batches", 40), 40);
    reefd_await(&run->box, run->pid);
    while (pool_commit(&run->box).number < 2) sleep_ms(5);
    json_t *status = reefd_ask(&run->box, STATUS);
    assert_string_equal(json_string_value(json_object_get(status, "state")), "waiting");
    assert_int_equal(pool_commit(&run->box).number,
                     2); // without new bytes there is nothing to commit
    close(ends[1]);
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
}

static void with_stay_it_serves_after_the_last_source(void **state) {
    running *run = *state;
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    assert_int_equal(truncate(run->box.text, 5000), 0);
    sandbox_make_pool(&run->box);
    run->pid = reefd_start(
        &run->box, -1,
        (const char *const[]){"--pool", run->box.pool, "--source", run->box.text, "--stay", NULL});
    reefd_await(&run->box, run->pid);
    for (bool ended = false; !ended; sleep_ms(2)) {
        json_t *status = reefd_ask(&run->box, STATUS);
        ended = json_is_true(
            json_object_get(json_array_get(json_object_get(status, "sources"), 0), "ended"));
    }
    (void)reefd_ask(&run->box, "{\"command\": \"seal\"}");
    (void)reefd_ask(&run->box, "{\"command\": \"commit\"}");
    assert_int_equal(reefd_count(&run->box, "generation"), 1);
    assert_int_equal(reefd_count(&run->box, "dirty_since_step"), 0);
    (void)reefd_ask(&run->box, "{\"command\": \"stop\"}");
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
}

// Five bytes are not a batch.
static void a_loss_is_null_before_anything_was_measured(void **state) {
    running *run = *state;
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    assert_int_equal(truncate(run->box.text, 5), 0);
    sandbox_make_pool(&run->box);
    run->pid = reefd_start(
        &run->box, -1,
        (const char *const[]){"--pool", run->box.pool, "--source", run->box.text, "--stay", NULL});
    reefd_await(&run->box, run->pid);
    json_t *status = reefd_ask(&run->box, STATUS);
    assert_int_equal(count_in(status, "step"), 0);
    assert_true(json_is_null(json_object_get(status, "bits_per_byte")));
    assert_true(json_is_null(json_object_get(status, "last_bits_per_byte")));
    (void)reefd_ask(&run->box, "{\"command\": \"stop\"}");
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
}

// ---- raw connections ----------------------------------------------------------------------------

static int try_connect(const sandbox *box) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%.80s/%s", box->pool, REEF_SOCKET_NAME);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) return fd;
    close(fd);
    return -1;
}

static int connect_to(const sandbox *box) {
    int fd = try_connect(box);
    assert_true(fd >= 0);
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
    running *run = *state;
    int fd = connect_to(&run->box), code = 0;
    send_command(fd, STATUS);
    send_command(fd, "{\"command\": \"commit\"}");
    static const char GET[] = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    send_text(fd, GET, sizeof(GET) - 1);
    send_command(fd, "nonsense");
    const char *grow = request_of("{\"command\": \"grow\", \"side\": 5}");
    send_text(fd, grow, strlen(grow) - 10);
    json_t *first = receive(fd, &code), *second = receive(fd, &code), *third = receive(fd, &code);
    assert_int_equal(count_in(first, "pid"), run->pid);
    assert_true(count_in(second, "number") >= 1);
    assert_int_equal(count_in(third, "pid"), run->pid);
    assert_answer(fd, 400);
    send_text(fd, grow + strlen(grow) - 10, 10);
    assert_answer(fd, 200);
    send_command(fd, STATUS);
    assert_answer(fd, 200);
    close(fd);
    assert_trains_on_and_stops(run);
}

static void garbage_is_answered_and_the_connection_stays_usable(void **state) {
    running *run = *state;
    int fd = connect_to(&run->box);
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
    assert_trains_on_and_stops(run);
}

static void what_is_no_http_is_refused_and_closed(void **state) {
    running *run = *state;
    int fd = connect_to(&run->box);
    send_text(fd, STATUS "\n", sizeof(STATUS));
    static const char LONG[] = "POST /v1/command HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 1048577\r\n\r\n{";
    int longer = connect_to(&run->box);
    send_text(longer, LONG, sizeof(LONG) - 1);
    assert_answer(longer, 413);
    char bytes[4096];
    while (recv(fd, bytes, sizeof(bytes), 0) > 0) continue;
    close(fd);
    close(longer);
    assert_trains_on_and_stops(run);
}

static void clients_that_say_nothing_or_vanish_do_not_matter(void **state) {
    running *run = *state;
    for (size_t i = 0; i < 40; i++) {
        int fd = connect_to(&run->box);
        if (i % 3 == 0) send_text(fd, "POST /v1", 8);
        if (i % 3 == 1) send_command(fd, "{\"command\": \"commit\"}"); // gone before the answer
        close(fd);
    }
    int silent[8], code = 0;
    for (size_t i = 0; i < 8; i++) silent[i] = connect_to(&run->box);
    // One that asks and asks and never reads an answer.
    int deaf = connect_to(&run->box);
    assert_int_equal(fcntl(deaf, F_SETFL, O_NONBLOCK), 0);
    const char *request = request_of(STATUS);
    for (size_t i = 0; i < 20000 && send(deaf, request, strlen(request), MSG_NOSIGNAL) > 0; i++) {
    }
    assert_trains_on_and_stops(run);
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
    running *run = *state;
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    sandbox_make_pool(&run->box);
    run->pid =
        reefd_start(&run->box, -1,
                    (const char *const[]){"--pool", run->box.pool, "--source", "push:web", NULL});
    reefd_await(&run->box, run->pid);
    push_batch(&run->box, BACKLOG_BYTES);
    int clients[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i] = connect_to(&run->box);
        send_command(clients[i], "{\"command\": \"drain\"}");
    }
    assert_int_equal(shutdown(clients[0], SHUT_WR), 0);
    for (size_t i = 1; i < CLIENTS; i++) close(clients[i]);
    sleep_ms(TICKS_MS);
    (void)reefd_ask(&run->box, "{\"command\": \"commit\"}");
    assert_true(reefd_count(&run->box, "stream_bytes") <
                BACKLOG_BYTES - WAITING_BYTES); // they were not done before
    assert_answer(clients[0], 200);
    assert_true(reefd_count(&run->box, "stream_bytes") > BACKLOG_BYTES - WAITING_BYTES);
    close(clients[0]);
    (void)reefd_ask(&run->box, "{\"command\": \"stop\"}");
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
    pool_check(&run->box);
}

// Nothing at all, the beginning of a request, one whose reply is never read.
static void clients_that_ask_nothing_are_let_go(void **state) {
    running *run = *state;
    static const char *const OPENINGS[] = {"", "POST /v1/comm",
                                           "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\nGET"};
    enum { COUNT = sizeof(OPENINGS) / sizeof(*OPENINGS) };
    int fds[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = connect_to(&run->box);
        send_text(fds[i], OPENINGS[i], strlen(OPENINGS[i]));
    }
    // For seconds nothing happens: other tests have more use of the processor.
    (void)reefd_ask(&run->box, "{\"command\": \"pause\"}");
    for (size_t i = 0; i < COUNT; i++) {
        struct timeval limit = {.tv_sec = LET_GO_S};
        assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
        char bytes[4096];
        ssize_t count;
        while ((count = recv(fds[i], bytes, sizeof(bytes), 0)) > 0) {
        }
        if (count < 0 && errno != ECONNRESET) fail_msg("client %zu was not let go", i);
        close(fds[i]);
    }
    (void)reefd_ask(&run->box, "{\"command\": \"resume\"}");
    assert_trains_on_and_stops(run);
}

static int ask_on(int fd) {
    int code = 0;
    send_command(fd, STATUS);
    json_decref(receive(fd, &code));
    return code;
}

static void one_client_too_many_is_refused(void **state) {
    running *run = *state;
    int clients[CLIENTS], code = 0;
    // The connection that setup used may still be closing; every slot must be free.
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i] = connect_to(&run->box);
        if (ask_on(clients[i]) == 200) continue;
        close(clients[i--]);
        sleep_ms(2);
    }
    int late = connect_to(&run->box);
    send_command(late, STATUS);
    json_t *answer = receive(late, &code);
    assert_int_equal(code, 429);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(answer, "error"), "status")), "busy");
    assert_null(receive(late, &code));
    close(late);
    int silent = connect_to(&run->box); // one too many as well: the others are served beside it
    sleep_ms(TICKS_MS);
    for (size_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(ask_on(clients[i]), 200);
        close(clients[i]);
    }
    close(silent);
    for (code = 0; code != 200; sleep_ms(2)) { // the slots are free again
        int again = connect_to(&run->box);
        code = ask_on(again);
        close(again);
    }
    assert_trains_on_and_stops(run);
}

// ---- the file -----------------------------------------------------------------------------------

static void the_socket_is_private_and_goes_with_the_daemon(void **state) {
    running *run = *state;
    char path[256];
    struct stat file;
    snprintf(path, sizeof(path), "%s/%s", run->box.pool, REEF_SOCKET_NAME);
    assert_int_equal(lstat(path, &file), 0);
    assert_true(S_ISSOCK(file.st_mode));
    assert_int_equal(file.st_mode & 0777, 0600);
    assert_trains_on_and_stops(run);
    assert_int_not_equal(lstat(path, &file), 0);
}

static void another_file_in_its_place_is_left_alone(void **state) {
    running *run = *state;
    char path[256];
    assert_trains_on_and_stops(run);
    snprintf(path, sizeof(path), "%s/precious", run->box.directory);
    write_text(path, 10, 1);
    assert_int_equal(
        reefd_run(&run->box, -1,
                  (const char *const[]){"--pool", run->box.pool, "--stay", "--socket", path, NULL}),
        64);
    assert_true(reefd_said(&run->box, "precious"));
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_size, 10);
}

static void the_client_tells_absence_from_failure(void **state) {
    running *run = *state;
    reef_error err = {0};
    char *result = NULL;
    char pool[300] = "/tmp/";
    assert_int_equal(reef_daemon_call(run->box.pool, NULL, "not JSON", &result, &err),
                     REEF_ERR_INVALID);
    assert_int_equal(reef_daemon_call(run->box.pool, NULL, "[]", &result, &err), REEF_ERR_INVALID);
    assert_int_equal(
        reef_daemon_call(run->box.pool, NULL, "{\n  \"command\":\n \"status\"\n}", &result, &err),
        REEF_OK);
    free(result);
    memset(pool + 5, 'p', 200);
    assert_int_equal(reef_daemon_call(pool, NULL, STATUS, &result, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "216 bytes"));
    assert_int_equal(reef_daemon_call("/nonexistent", NULL, STATUS, &result, &err),
                     REEF_ERR_NOT_FOUND);
    kill(run->pid, SIGKILL);
    (void)reefd_wait(run->pid);
    run->pid = 0;
    assert_int_equal(reef_daemon_call(run->box.pool, NULL, STATUS, &result, &err),
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

// A drain trains all that waits, a check reads all of a pool: either may take hours.
static void only_a_drain_and_a_check_are_waited_for_without_end(void **state) {
    running *run = *state;
    reef_error err = {0};
    char *result = NULL;
    static const char *const LONG[] = {"{\"command\": \"drain\"}", "{\"command\": \"verify\"}"};
    hurry = true;
    assert_int_equal(kill(run->pid, SIGSTOP), 0);
    reef_status status = reef_daemon_call(run->box.pool, NULL, STATUS, &result, &err);
    assert_int_equal(status, REEF_ERR_BUSY);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(kill(run->pid, SIGSTOP), 0);
        pid_t waker = wake_later(run->pid);
        if (reef_daemon_call(run->box.pool, NULL, LONG[i], &result, &err) != REEF_OK)
            fail_msg("%s: %s", LONG[i], err.message);
        assert_int_equal(reefd_wait(waker), 0);
        free(result);
    }
    hurry = false;
    assert_trains_on_and_stops(run);
}

// In a process group of its own, as a service has one: what is ended by mistake is ended there.
static int start_and_close_a_check(void) {
    uv_loop_t loop;
    reef_error err;
    reef_verify_job job = {.loop = &loop, .pool = "/nonexistent"};
    const struct rlimit none = {0}; // descriptors: nothing can be spawned
    if (setpgid(0, 0) != 0 || uv_loop_init(&loop) != 0) return 1;
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 2;
    if (reef_verify_job_start(&job, &(reef_verify_scope){.percent = 100}, &err) != REEF_ERR_IO)
        return 3;
    reef_verify_job_close(&job);
    return uv_run(&loop, UV_RUN_DEFAULT) != 0 || job.running ? 4 : 0;
}

static void a_check_that_cannot_be_started_ends_nothing(void **state) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(start_and_close_a_check());
    assert_int_equal(reefd_wait(child), 0);
}

TESTS(SET_UP(what_never_ends_has_no_time_left),
      SET_UP(status_has_every_field),
      SET_UP(commands_are_done_while_it_trains),
      SET_UP(a_pause_stops_training_and_nothing_else),
      SET_UP(a_stop_ends_a_pause),
      SET_UP(a_drain_waits_for_what_was_read),
      SET_UP(commands_that_cannot_be_done_are_refused),
      SET_UP(what_a_refused_snapshot_committed_is_no_later_commit),
      SET_UP(another_process_evaluates_meanwhile),
      SET_UP(it_commits_by_time_while_it_waits),
      SET_UP(a_loss_is_null_before_anything_was_measured),
      SET_UP(with_stay_it_serves_after_the_last_source),
      SET_UP(pipelined_and_half_requests_are_answered_in_order),
      SET_UP(garbage_is_answered_and_the_connection_stays_usable),
      SET_UP(what_is_no_http_is_refused_and_closed),
      SET_UP(clients_that_say_nothing_or_vanish_do_not_matter),
      SET_UP(clients_that_have_gone_keep_no_slot),
      SET_UP(clients_that_ask_nothing_are_let_go),
      SET_UP(one_client_too_many_is_refused),
      SET_UP(the_socket_is_private_and_goes_with_the_daemon),
      SET_UP(another_file_in_its_place_is_left_alone),
      SET_UP(the_client_tells_absence_from_failure),
      ALONE(a_check_that_cannot_be_started_ends_nothing),
      SET_UP(only_a_drain_and_a_check_are_waited_for_without_end))
