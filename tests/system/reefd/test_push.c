// Sources that clients push into: acknowledged batches are trained exactly once and in order,
// whatever is killed, sent again or refused in between; and no client is acknowledged too early.
#include "http_client.h"
#include "reefd_run.h"

#include "push.h"
#include "reef_trainer.h"

#include <lmdb.h>

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "small_disk.h"
#include "test.h"

#define TOKEN "0123456789abcdef0123456789abcdef"
#define BEARER "Authorization: Bearer " TOKEN "\r\n"
#define LINE_BYTES 14 // of "record 000001\n"

typedef struct running {
    sandbox box;
    sandbox disk; // a pool on a disk of its own, where one could be mounted
    char token[192];
    char filler[192];
    char address[64];
    pid_t pid;
} running;

static void write_token(running *run) {
    snprintf(run->token, sizeof(run->token), "%s/token", run->box.directory);
    FILE *file = fopen(run->token, "w");
    assert_non_null(file);
    fputs(TOKEN "\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(run->token, 0600), 0);
}

static int setup(void **state) {
    running *run = calloc(1, sizeof(*run));
    assert_non_null(run);
    sandbox_make(&run->box);
    sandbox_make_pool(&run->box);
    write_token(run);
    *state = run;
    return 0;
}

static int setup_disk(void **state) {
    setup(state);
    running *run = *state;
    sandbox_make(&run->disk);
    if (!small_disk_mount(run->disk.directory, "8m")) {
        sandbox_remove(&run->disk);
        run->disk.directory[0] = 0;
        return 0;
    }
    sandbox_make_pool(&run->disk);
    snprintf(run->filler, sizeof(run->filler), "%s/filler", run->disk.directory);
    memcpy(run->box.pool, run->disk.pool, sizeof(run->box.pool));
    return 0;
}

static int teardown(void **state) {
    running *run = *state;
    if (run->pid) {
        kill(run->pid, SIGKILL);
        (void)reefd_wait(run->pid);
    }
    if (run->disk.directory[0]) {
        small_disk_unmount(run->disk.directory);
        sandbox_remove(&run->disk);
    }
    assert_int_equal(chdir("/"), 0);
    sandbox_remove(&run->box);
    free(run);
    return 0;
}

// ---- the daemon ---------------------------------------------------------------------------------

/** With up to two sources and one more option and its value; NULL for none. */
static void start(
    running *run, const char *source, const char *other, const char *option, const char *value) {
    const char *arguments[16] = {"--pool",       run->box.pool, "--http",   "127.0.0.1:0",
                                 "--http-token", run->token,    "--source", source};
    size_t count = 8;
    if (other != NULL) {
        arguments[count++] = "--source";
        arguments[count++] = other;
    }
    if (option != NULL) arguments[count++] = option;
    if (value != NULL) arguments[count++] = value;
    run->pid = reefd_start(&run->box, -1, arguments);
    reefd_await(&run->box, run->pid);
    json_t *status = reefd_ask(&run->box, "{\"command\": \"status\"}");
    snprintf(run->address, sizeof(run->address), "%s",
             json_string_value(json_object_get(status, "http")));
}

static void stop(running *run) {
    assert_int_equal(kill(run->pid, SIGTERM), 0);
    int how = reefd_wait(run->pid);
    run->pid = 0;
    if (how != 0) (void)reefd_said(&run->box, "what went wrong");
    assert_int_equal(how, 0);
}

static void kill_it(running *run) {
    assert_int_equal(kill(run->pid, SIGKILL), 0);
    assert_int_equal(reefd_wait(run->pid), REEFD_SIGNALLED + SIGKILL);
    run->pid = 0;
}

static void ask(running *run, const char *request) {
    (void)reefd_ask(&run->box, request);
}

static int64_t of_source(const running *run, const char *name, const char *key) {
    json_t *status = reefd_ask(&run->box, "{\"command\": \"status\"}"), *item;
    size_t i;
    int64_t value = -1;
    json_array_foreach(json_object_get(status, "sources"), i,
                       item) if (strcmp(json_string_value(json_object_get(item, "name")), name) ==
                                 0) value = json_integer_value(json_object_get(item, key));
    return value;
}

// ---- pushing ------------------------------------------------------------------------------------

/** Lines first .. first + count - 1 of the counter stream, on the heap. */
static char *counter(size_t first, size_t count) {
    char *text = malloc(count * LINE_BYTES + 1);
    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        snprintf(text + i * LINE_BYTES, LINE_BYTES + 1, "record %06zu\n", (first + i) % 1000000);
    return keep(text);
}

/** Push over the socket; false without a reply. */
static bool push(running *run, size_t first, size_t count, const char *id, json_t **result) {
    reef_error err;
    char *text = counter(first, count);
    reef_status status = reefd_push(&run->box, NULL, id, text, count * LINE_BYTES, result, &err);
    if (status != REEF_OK && status != REEF_ERR_IO && status != REEF_ERR_NOT_FOUND)
        fail_msg("%s: %s", reef_status_text(status), err.message);
    return status == REEF_OK;
}

static void push_refused(
    running *run, size_t first, size_t count, const char *id, reef_status wanted) {
    reef_error err = {0};
    char *text = counter(first, count);
    assert_int_equal(reefd_push(&run->box, NULL, id, text, count * LINE_BYTES, NULL, &err), wanted);
    assert_true(err.message[0] != 0);
}

static int64_t push_known(running *run, size_t first, size_t count, const char *id, bool again) {
    json_t *result = NULL;
    assert_true(push(run, first, count, id, &result));
    assert_int_equal(json_is_true(json_object_get(result, "duplicate")), again);
    assert_int_equal(json_integer_value(json_object_get(result, "accepted_bytes")),
                     count * LINE_BYTES);
    assert_int_equal(json_integer_value(json_object_get(result, "records")), count);
    int64_t position = json_integer_value(json_object_get(result, "position"));
    json_decref(result);
    return position;
}

static http_answer post(
    const running *run, const char *target, const char *headers, const void *body, size_t bytes) {
    char all[512];
    snprintf(all, sizeof(all), BEARER "%s", headers);
    return http_ask(run->address, "POST", target, all, body, bytes);
}

static json_t *post_ok(
    const running *run, const char *target, const char *headers, const void *body, size_t bytes) {
    http_answer answer = post(run, target, headers, body, bytes);
    if (answer.code != 200) fail_msg("%d: %s", answer.code, answer.body);
    json_t *result = json_loads(answer.body, 0, NULL);
    assert_non_null(result);
    return keep(result);
}

static void post_fails(const running *run,
                       const char *target,
                       const char *headers,
                       const char *body,
                       int code,
                       const char *part) {
    http_answer answer = post(run, target, headers, body, strlen(body));
    if (answer.code != code || strstr(answer.body, part) == NULL)
        fail_msg("%d instead of %d, or \"%s\" is not in: %s", answer.code, code, part, answer.body);
}

// ---- what it comes to ---------------------------------------------------------------------------

/** Root hash of a pool that read the first `count` lines from a file of the source's name. */
static reef_commit trained_from_file(running *run, size_t count) {
    sandbox other;
    sandbox_make(&other);
    sandbox_make_pool(&other);
    assert_int_equal(chdir(other.directory), 0);
    char *text = counter(1, count);
    FILE *file = fopen("push:web", "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, LINE_BYTES, count, file), count);
    assert_int_equal(fclose(file), 0);
    int code = reefd_run(
        &run->box, -1,
        (const char *const[]){"--pool", other.pool, "--source", "file:push:web", "--quiet", NULL});
    assert_int_equal(code, 0);
    reef_commit commit = pool_commit(&other);
    assert_int_equal(chdir("/"), 0);
    sandbox_remove(&other);
    return commit;
}

static void assert_trained_once(running *run, size_t count) {
    ask(run, "{\"command\": \"drain\"}");
    assert_int_equal(of_source(run, "push:web", "cursor"), count * LINE_BYTES);
    stop(run);
    reef_commit wanted = trained_from_file(run, count), got = pool_commit(&run->box);
    assert_int_equal(got.stream_bytes, wanted.stream_bytes);
    assert_memory_equal(got.root, wanted.root, REEF_HASH_BYTES);
    pool_check(&run->box);
}

static void what_is_pushed_is_trained_as_from_a_file(void **state) {
    running *run = *state;
    start(run, "push:web", NULL, NULL, NULL);
    size_t next = 1;
    for (; next < 150; next += 50)
        assert_int_equal(push_known(run, next, 50, NULL, false), (next + 49) * LINE_BYTES);
    char *text = counter(next, 150);
    json_t *result = post_ok(run, "/v1/ingest", "", text, 150 * LINE_BYTES - 1); // its end is added
    assert_int_equal(json_integer_value(json_object_get(result, "accepted_bytes")),
                     150 * LINE_BYTES);
    assert_int_equal(json_integer_value(json_object_get(result, "records")), 150);
    assert_int_equal(json_integer_value(json_object_get(result, "position")), 300 * LINE_BYTES);
    assert_true(json_is_false(json_object_get(result, "duplicate")));
    assert_string_equal(json_string_value(json_object_get(result, "source")), "web");
    assert_trained_once(run, 300);
}

static void a_drain_waits_for_all_that_was_acknowledged(void **state) {
    running *run = *state;
    start(run, "push:web", NULL, NULL, NULL);
    for (size_t i = 0; i < 30; i++) {
        int64_t position = push_known(run, 1 + 10 * i, 10, NULL, false);
        ask(run, "{\"command\": \"drain\"}");
        assert_int_equal(of_source(run, "push:web", "cursor"), position);
    }
    stop(run);
}

// ---- killed -------------------------------------------------------------------------------------

static void what_was_acknowledged_and_not_trained_survives_a_kill(void **state) {
    running *run = *state;
    start(run, "push:web", NULL, NULL, NULL);
    ask(run, "{\"command\": \"pause\"}");
    push_known(run, 1, 100, "a", false); // acknowledged although nothing is trained
    push_known(run, 101, 100, "b", false);
    assert_int_equal(of_source(run, "push:web", "cursor"), 0);
    assert_int_equal(of_source(run, "push:web", "bytes"), 200 * LINE_BYTES);
    kill_it(run);
    start(run, "push:web", NULL, NULL, NULL);
    assert_int_equal(push_known(run, 101, 100, "b", true), 200 * LINE_BYTES);
    push_known(run, 201, 50, "c", false);
    assert_trained_once(run, 250);
}

// The client sends a batch until it is acknowledged, then the next one; the daemon is killed now
// and then.
static void killed_at_any_moment_every_record_is_trained_once(void **state) {
    running *run = *state;
    size_t kills = test_effort(6, 40), next = 1, step = 7, batches = 0;
    uint64_t seed = 3;
    start(run, "push:web", NULL, "--commit-steps", "7");
    while (kills > 0 || next <= 300) {
        char id[32];
        snprintf(id, sizeof(id), "batch-%zu", next);
        if (kills > 0 && batches++ % 5 == 4) {
            // While the batch is on its way, or while what came before is trained.
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            pid_t killer = fork();
            if (killer == 0) {
                sleep_ms((unsigned)(seed >> 33) % 40);
                kill(run->pid, SIGKILL);
                _exit(0);
            }
            (void)push(run, next, step, id, NULL); // its answer is lost, or it never came
            (void)waitpid(killer, NULL, 0);
            assert_int_equal(reefd_wait(run->pid), REEFD_SIGNALLED + SIGKILL);
            kills--;
            start(run, "push:web", NULL, "--commit-steps", "7");
        }
        assert_true(push(run, next, step, id, NULL));
        next += step;
    }
    assert_trained_once(run, next - 1);
}

static void what_waits_when_it_is_stopped_is_for_the_next_run(void **state) {
    running *run = *state;
    start(run, "push:web", NULL, NULL, NULL);
    ask(run, "{\"command\": \"pause\"}");
    push_known(run, 1, 120, "a", false);
    stop(run);
    pool_check(&run->box);
    assert_int_equal(pool_commit(&run->box).stream_bytes, 0);
    start(run, "push:web", NULL, NULL, NULL);
    assert_trained_once(run, 120);
}

// ---- sent again ---------------------------------------------------------------------------------

static void a_batch_sent_again_is_known_before_and_after_training_and_restarts(void **state) {
    running *run = *state;
    start(run, "push:web", NULL, NULL, NULL);
    push_known(run, 1, 60, "a", false);
    push_known(run, 1, 60, "a", true);
    ask(run, "{\"command\": \"drain\"}");
    assert_int_equal(push_known(run, 1, 60, "a", true), 60 * LINE_BYTES);
    stop(run);
    start(run, "push:web", NULL, NULL, NULL);
    push_known(run, 1, 60, "a", true);
    char *text = counter(1, 60);
    json_t *result = post_ok(run, "/v1/ingest/web", "Reef-Batch-Id: a\r\n", text, 60 * LINE_BYTES);
    assert_true(json_is_true(json_object_get(result, "duplicate")));
    post_fails(run, "/v1/ingest/web", "Reef-Batch-Id: a\r\n", "other\n", 400, "other bytes");
    push_known(run, 61, 60, "b", false);
    assert_trained_once(run, 120);
}

// ---- refused ------------------------------------------------------------------------------------

static void a_full_journal_is_busy_until_there_is_room(void **state) {
    running *run = *state;
    start(run, "push:web", NULL, "--journal", "3000");
    ask(run, "{\"command\": \"pause\"}");
    push_known(run, 1, 150, "a", false);
    push_refused(run, 151, 60, "b", REEF_ERR_BUSY);
    char *text = counter(151, 60);
    http_answer answer = post(run, "/v1/ingest", "Reef-Batch-Id: b\r\n", text, 60 * LINE_BYTES);
    assert_int_equal(answer.code, 429);
    assert_non_null(strstr(answer.head, "Retry-After: 1"));
    assert_non_null(strstr(answer.body, "\"retry_ms\":1000"));
    assert_non_null(strstr(answer.body, "\"status\":\"busy\""));
    ask(run, "{\"command\": \"resume\"}");
    ask(run, "{\"command\": \"drain\"}");
    json_decref(post_ok(run, "/v1/ingest", "Reef-Batch-Id: b\r\n", text, 60 * LINE_BYTES));
    assert_trained_once(run, 210);
}

// Nothing else would ask for one, and only a commit removes what is trained.
static void a_journal_that_is_full_of_trained_bytes_is_committed(void **state) {
    running *run = *state;
    const char *const arguments[] = {
        "--pool",         run->box.pool, "--source",         "push:web", "--journal", "3000",
        "--commit-steps", "0",           "--commit-seconds", "0",        NULL};
    run->pid = reefd_start(&run->box, -1, arguments);
    reefd_await(&run->box, run->pid);
    push_known(run, 1, 150, "a", false);
    while (of_source(run, "push:web", "cursor") < 150 * LINE_BYTES) sleep_ms(20);
    assert_int_equal(of_source(run, "push:web", "journal_bytes"), 150 * LINE_BYTES);
    push_refused(run, 151, 60, "b", REEF_ERR_BUSY);
    for (int i = 0; i < 200 && of_source(run, "push:web", "journal_bytes") > 0; i++) sleep_ms(20);
    assert_int_equal(of_source(run, "push:web", "journal_bytes"), 0);
    push_known(run, 151, 60, "b", false);
    assert_trained_once(run, 210);
}

static void a_batch_larger_than_the_journal_is_no_matter_of_time(void **state) {
    running *run = *state;
    start(run, "push:web", NULL, "--journal", "2000");
    push_refused(run, 1, 150, "a", REEF_ERR_INVALID);
    stop(run);
}

static void who_has_no_token_may_not_push(void **state) {
    running *run = *state;
    start(run, "push:web", NULL, NULL, NULL);
    static const char *const HEADERS[] = {"", "Authorization: Bearer " TOKEN "0\r\n"};
    for (size_t i = 0; i < 2; i++) {
        http_answer answer = http_ask(run->address, "POST", "/v1/ingest/web", HEADERS[i], "a\n", 2);
        assert_int_equal(answer.code, 401);
    }
    assert_int_equal(of_source(run, "push:web", "bytes"), 0);
    stop(run);
}

static void what_cannot_be_taken_is_refused_in_words(void **state) {
    running *run = *state;
    start(run, "push:web", NULL, NULL, NULL);
    const char *json = "Content-Type: application/jsonl; charset=utf-8\r\n";
    post_fails(run, "/v1/ingest", json, "{\"text\": \"a\"}\n{\"text\": 1}\n", 400, "line 2");
    post_fails(run, "/v1/ingest", json, "", 400, "empty");
    post_fails(run, "/v1/ingest", "Content-Type: application/x-npy\r\n", "x", 415, "not taken");
    post_fails(run, "/v1/ingest", "Content-Type: image/png\r\n", "x", 415, "is not taken");
    post_fails(run, "/v1/ingest", "Content-Encoding: gzip\r\n", "x", 415, "Content-Encoding");
    post_fails(run, "/v1/ingest", "Reef-Batch-Id: a b\r\n", "x", 400, "Reef-Batch-Id");
    post_fails(run, "/v1/ingest?as=text", "", "x", 400, "'as' in the query");
    post_fails(run, "/v1/ingest/other", "", "x", 404, "no source push:other");
    post_fails(run, "/v1/ingest/web/x", "", "x", 404, "no such route");
    post_fails(run, "/v1/ingest/", "", "x", 404, "there are /livez /readyz /metrics /v1/status ");
    http_answer answer = http_ask(run->address, "GET", "/v1/ingest", BEARER, NULL, 0);
    assert_int_equal(answer.code, 405);
    reef_error err;
    const sandbox *box = &run->box;
    assert_int_equal(reefd_push(box, NULL, NULL, "", 0, NULL, &err), REEF_ERR_INVALID);
    assert_int_equal(reefd_push(box, NULL, "", "a", 1, NULL, &err), REEF_ERR_INVALID);
    assert_int_equal(reefd_push(box, NULL, "a b", "a", 1, NULL, &err), REEF_ERR_INVALID);
    assert_int_equal(reefd_push(box, NULL, "a\r\nX: y", "a", 1, NULL, &err), REEF_ERR_INVALID);
    static const char *const SOURCES[] = {"other", "", "web/x", "web?as=text", "a b"};
    for (size_t i = 0; i < sizeof(SOURCES) / sizeof(*SOURCES); i++)
        assert_int_equal(reefd_push(box, SOURCES[i], NULL, "a", 1, NULL, &err), REEF_ERR_NOT_FOUND);
    assert_int_equal(of_source(run, "push:web", "bytes"), 0); // nothing of all that was taken
    json_t *result = NULL;
    assert_int_equal(reefd_push(box, NULL, NULL, "\0\xff\nr", 4, &result, &err), REEF_OK);
    assert_int_equal(json_integer_value(json_object_get(result, "accepted_bytes")), 5);
    assert_int_equal(json_integer_value(json_object_get(result, "records")), 2);
    json_decref(result);
    assert_int_equal(of_source(run, "push:web", "bytes"), 5);
    // None of it went without a trace: counted each, and some of it logged.
    char *large = calloc((1 << 20) + 2, 1);
    assert_non_null(large);
    memset(large, 'x', (1 << 20) + 1);
    int64_t before = of_source(run, "push:web", "refused");
    assert_true(before >= 8);
    post_fails(run, "/v1/ingest", "Content-Type: image/png\r\n", "x", 415, "is not taken");
    post_fails(run, "/v1/ingest/web", "Content-Encoding: gzip\r\n", "x", 415, "Content-Encoding");
    post_fails(run, "/v1/ingest", "", large, 413, "more than");
    http_answer stranger = http_ask(run->address, "POST", "/v1/ingest", "", "x", 1);
    assert_int_equal(stranger.code, 401);
    assert_int_equal(of_source(run, "push:web", "refused"), before + 4);
    assert_true(reefd_said(box, "a batch pushed to '/v1/ingest' was refused (400): line 2"));
    free(large);
    stop(run);
}

static void without_a_source_to_push_into_nothing_is_taken(void **state) {
    running *run = *state;
    write_text(run->box.text, 3000, 1);
    start(run, run->box.text, NULL, "--stay", NULL);
    post_fails(run, "/v1/ingest", "", "x", 404, "--source push:NAME");
    stop(run);
    for (size_t i = 0; i < 2; i++) {
        const char *spec = i ? "push:a/b" : "push:";
        int code = reefd_run(
            &run->box, -1, (const char *const[]){"--pool", run->box.pool, "--source", spec, NULL});
        assert_int_equal(code, 64);
    }
}

// ---- several ------------------------------------------------------------------------------------

static void several_sources_have_journals_of_their_own(void **state) {
    running *run = *state;
    assert_int_equal(setenv("REEF_TEST_PATIENCE", "0.2", 1), 0);
    start(run, "push:web", "push:app?weight=3", NULL, NULL);
    post_fails(run, "/v1/ingest", "", "x", 400, "name one");
    ask(run, "{\"command\": \"pause\"}");
    json_decref(post_ok(run, "/v1/ingest/web", "Reef-Batch-Id: 1\r\n", "web 1\nweb 2\n", 12));
    json_decref(post_ok(run, "/v1/ingest/app", "Reef-Batch-Id: 1\r\n", "app 1\n", 6));
    assert_int_equal(of_source(run, "push:web", "bytes"), 12);
    assert_int_equal(of_source(run, "push:app", "bytes"), 6);
    kill_it(run);
    start(run, "push:web", "push:app?weight=3", NULL, NULL);
    assert_int_equal(unsetenv("REEF_TEST_PATIENCE"), 0);
    json_t *again = post_ok(run, "/v1/ingest/app", "Reef-Batch-Id: 1\r\n", "app 1\n", 6);
    assert_true(json_is_true(json_object_get(again, "duplicate")));
    (void)reefd_push_ok(&run->box, "app", NULL, "app 2");
    ask(run, "{\"command\": \"drain\"}");
    assert_int_equal(of_source(run, "push:web", "cursor"), 12);
    assert_int_equal(of_source(run, "push:app", "cursor"), 12);
    stop(run);
    pool_check(&run->box);
}

// ---- counted ------------------------------------------------------------------------------------

/** /metrics, checked by promtool; the caller frees it. */
static char *metrics(const running *run) {
    char path[256], line[400];
    http_answer answer = http_ask(run->address, "GET", "/metrics", "", NULL, 0);
    assert_int_equal(answer.code, 200);
    snprintf(path, sizeof(path), "%s/metrics", run->box.directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(answer.body, file);
    assert_int_equal(fclose(file), 0);
    char *text = strdup(answer.body);
    assert_non_null(text);
    snprintf(line, sizeof(line), "promtool check metrics < %s", path);
    if (system("command -v promtool >/dev/null 2>&1") == 0)
        assert_int_equal(system(line), 0);
    else
        print_message("promtool is not installed: what it would say is not checked\n");
    return keep(text);
}

/** The same figure in /metrics and in status. */
static void assert_counted(const running *run, const char *source, const char *key, int64_t value) {
    char line[160];
    const char *total = strcmp(key, "journal_bytes") != 0 ? "_total" : "";
    snprintf(line, sizeof(line), "\nreef_push_%s%s{source=\"%s\"} %lld\n", key, total, source,
             (long long)value);
    char *text = metrics(run);
    if (strstr(text, line) == NULL) fail_msg("no '%s' in:\n%s", line, strstr(text, "reef_push_"));
    assert_int_equal(of_source(run, source, key), value);
}

static void pushes_are_counted_by_source(void **state) {
    running *run = *state;
    start(run, "push:web", "push:app", "--journal", "3000");
    ask(run, "{\"command\": \"pause\"}");
    (void)reefd_push_ok(&run->box, "web", "a", "1\n2\n3");
    (void)reefd_push_ok(&run->box, "web", "b", "4");
    (void)reefd_push_ok(&run->box, "web", "a", "1\n2\n3");
    (void)reefd_push_ok(&run->box, "app", NULL, "x");
    post_fails(run, "/v1/ingest/web", "Reef-Batch-Id: a\r\n", "other\n", 400, "other bytes");
    char *text = counter(1, 170);
    http_answer answer = post(run, "/v1/ingest/web", "", text, 170 * LINE_BYTES);
    assert_int_equal(answer.code, 429);
    assert_counted(run, "push:web", "batches", 2);
    assert_counted(run, "push:web", "records", 4);
    assert_counted(run, "push:web", "duplicates", 1);
    assert_counted(run, "push:web", "refused", 2);
    assert_counted(run, "push:web", "busy", 1);
    assert_counted(run, "push:web", "journal_bytes", 8);
    assert_counted(run, "push:app", "batches", 1);
    assert_counted(run, "push:app", "busy", 0);
    assert_counted(run, "push:app", "journal_bytes", 2);
    // Counts are the process's, the journal is the pool's.
    kill_it(run);
    start(run, "push:web", NULL, "--stay", NULL);
    assert_counted(run, "push:web", "batches", 0);
    ask(run, "{\"command\": \"drain\"}");
    assert_counted(run, "push:web", "journal_bytes", 0);
    stop(run);
}

static int64_t last_commit(const running *run) {
    json_t *status = reefd_ask(&run->box, "{\"command\": \"status\"}");
    json_t *commit = json_object_get(status, "last_commit");
    int64_t number = json_integer_value(json_object_get(commit, "number"));
    return number;
}

// ---- a full disk --------------------------------------------------------------------------------

static void a_full_disk_is_an_error_to_the_pusher_and_passes(void **state) {
    running *run = *state;
    if (!run->disk.directory[0]) skip();
    char *large = counter(1, 30000);
    start(run, "push:web", NULL, NULL, NULL);
    ask(run, "{\"command\": \"pause\"}");
    push_known(run, 1, 100, "a", false);
    int64_t number = last_commit(run);
    small_disk_fill(run->filler);
    http_answer answer = post(run, "/v1/ingest", "Reef-Batch-Id: b\r\n", large + 100 * LINE_BYTES,
                              20000 * LINE_BYTES);
    if (answer.code != 507) fail_msg("%d: %s", answer.code, answer.body);
    assert_non_null(strstr(answer.body, "\"full\""));
    assert_int_equal(of_source(run, "push:web", "bytes"), 100 * LINE_BYTES);
    // Nothing is left that training would have to commit, on a disk that is still full.
    json_t *commit = reefd_ask(&run->box, "{\"command\": \"commit\"}");
    assert_int_equal(json_integer_value(json_object_get(commit, "number")), number);
    assert_int_equal(unlink(run->filler), 0);
    json_decref(post_ok(run, "/v1/ingest", "Reef-Batch-Id: b\r\n", large + 100 * LINE_BYTES,
                        100 * LINE_BYTES));
    ask(run, "{\"command\": \"resume\"}");
    assert_trained_once(run, 200);
}

static bool has_commit_error(const running *run) {
    json_t *status = reefd_ask(&run->box, "{\"command\": \"status\"}");
    bool failing = json_is_string(json_object_get(status, "commit_error"));
    return failing;
}

// Pauses between attempts of a commit are not a reason to let a client wait for its reply.
static void a_pusher_is_answered_while_commits_fail(void **state) {
    running *run = *state;
    if (!run->disk.directory[0]) skip();
    char *text = counter(1, 200);
    start(run, "push:web", NULL, NULL, NULL);
    ask(run, "{\"command\": \"pause\"}");
    push_known(run, 1, 100, NULL, false);
    small_disk_fill(run->filler);
    ask(run, "{\"command\": \"resume\"}");
    while (!has_commit_error(run)) sleep_ms(5);
    http_answer answer =
        post(run, "/v1/ingest", "Reef-Batch-Id: b\r\n", text + 100 * LINE_BYTES, 100 * LINE_BYTES);
    if (answer.code != 507) fail_msg("%d: %s", answer.code, answer.body);
    assert_int_equal(unlink(run->filler), 0);
    json_decref(post_ok(run, "/v1/ingest", "Reef-Batch-Id: b\r\n", text + 100 * LINE_BYTES,
                        100 * LINE_BYTES));
    assert_trained_once(run, 200);
}

/** Send a request whose answer is taken later. */
static int post_later(const running *run, const void *body, size_t bytes) {
    char head[512];
    int fd = http_connect(run->address);
    int count = snprintf(head, sizeof(head),
                         "POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Content-Length: %zu\r\n" BEARER "\r\n",
                         bytes);
    assert_int_equal(send(fd, head, (size_t)count, MSG_NOSIGNAL), count);
    for (size_t sent = 0; sent < bytes;) {
        ssize_t some = send(fd, (const char *)body + sent, bytes - sent, MSG_NOSIGNAL);
        assert_true(some > 0);
        sent += (size_t)some;
    }
    return fd;
}

/** The pool's one writer: while it is held, the daemon's next commit waits. */
static MDB_txn *hold_writer(const running *run, MDB_env **env) {
    MDB_txn *txn = NULL;
    assert_int_equal(mdb_env_create(env), 0);
    assert_int_equal(mdb_env_open(*env, run->box.pool, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(*env, NULL, 0, &txn), 0);
    return txn;
}

// The trainer is busy, so nothing gets into the journal: what waits for it is bounded, and a client
// beyond that is refused at once.
static void what_waits_for_the_journal_is_bounded(void **state) {
    enum { CLIENTS = 8, LINES = 60000 };
    running *run = *state;
    MDB_env *env = NULL;
    char *large = counter(1, LINES);
    start(run, "push:web", NULL, NULL, NULL);
    ask(run, "{\"command\": \"pause\"}");
    MDB_txn *writer = hold_writer(run, &env);
    int clients[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++) clients[i] = post_later(run, large, LINES * LINE_BYTES);
    while (of_source(run, "push:web", "busy") < CLIENTS - 4) sleep_ms(5);
    mdb_txn_abort(writer);
    size_t busy = 0, taken = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        http_answer answer;
        assert_true(http_read_all(clients[i], 60, &answer));
        close(clients[i]);
        busy += answer.code == 429 && strstr(answer.body, "too much waits") != NULL;
        taken += answer.code == 200;
    }
    assert_int_equal(taken, 4);
    assert_int_equal(busy, CLIENTS - 4);
    mdb_env_close(env);
}

int main(void) {
#define DISK(test) cmocka_unit_test_setup_teardown(test, setup_disk, teardown)
    const struct CMUnitTest tests[] = {
        SET_UP(what_is_pushed_is_trained_as_from_a_file),
        SET_UP(a_drain_waits_for_all_that_was_acknowledged),
        SET_UP(what_was_acknowledged_and_not_trained_survives_a_kill),
        SET_UP(killed_at_any_moment_every_record_is_trained_once),
        SET_UP(what_waits_when_it_is_stopped_is_for_the_next_run),
        SET_UP(a_batch_sent_again_is_known_before_and_after_training_and_restarts),
        SET_UP(a_full_journal_is_busy_until_there_is_room),
        SET_UP(a_journal_that_is_full_of_trained_bytes_is_committed),
        SET_UP(a_batch_larger_than_the_journal_is_no_matter_of_time),
        SET_UP(who_has_no_token_may_not_push),
        SET_UP(what_cannot_be_taken_is_refused_in_words),
        SET_UP(without_a_source_to_push_into_nothing_is_taken),
        SET_UP(several_sources_have_journals_of_their_own),
        SET_UP(pushes_are_counted_by_source),
        DISK(a_full_disk_is_an_error_to_the_pusher_and_passes),
        DISK(a_pusher_is_answered_while_commits_fail),
        SET_UP(what_waits_for_the_journal_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
