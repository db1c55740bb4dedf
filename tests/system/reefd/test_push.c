// Sources that clients push into: acknowledged batches are trained exactly once and in order,
// whatever is killed, sent again or refused in between; and no client is acknowledged too early.
#include "http_run.h"

#include "push.h"

#include <lmdb.h>

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "small_disk.h"
#include "test.h"

#define LINE_BYTES 14 // of "record 000001\n"

// A pool on a disk of its own, where one could be mounted; else `filler` is empty.
static sandbox disk;
static char filler[192];

static int setup_disk(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    sandbox_make(&disk);
    filler[0] = '\0';
    if (!small_disk_mount(disk.directory, "8m")) return 0;
    sandbox_make_pool(&disk);
    snprintf(filler, sizeof(filler), "%s/filler", disk.directory);
    memcpy(box->pool, disk.pool, sizeof(box->pool));
    return 0;
}

static int teardown_disk(void **state) {
    reefd_kill(*state);
    if (filler[0]) small_disk_unmount(disk.directory);
    sandbox_remove(&disk);
    return sandbox_teardown(state);
}

// ---- the daemon ---------------------------------------------------------------------------------

#define START_WEB(box, ...)                                                                        \
    START(box, "--http", "127.0.0.1:0", "--http-token", (box)->token, "--source", "push:web",      \
          __VA_ARGS__)

static int64_t of_source(const sandbox *box, const char *name, const char *key) {
    json_t *sources = json_at(reefd_status(box), "sources"), *item;
    size_t i;
    json_array_foreach(sources, i,
                       item) if (strcmp(string(item, "name"), name) == 0) return integer(item, key);
    fail_msg("no source %s", name);
    return -1;
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
static bool push(sandbox *box, size_t first, size_t count, const char *id, json_t **result) {
    reef_error err;
    char *text = counter(first, count);
    reef_status status = reefd_push(box, NULL, id, text, count * LINE_BYTES, result, &err);
    if (status != REEF_OK && status != REEF_ERR_IO && status != REEF_ERR_NOT_FOUND)
        fail_msg("%s: %s", reef_status_text(status), err.message);
    return status == REEF_OK;
}

static void push_refused(
    sandbox *box, size_t first, size_t count, const char *id, reef_status wanted) {
    reef_error err = {0};
    char *text = counter(first, count);
    assert_int_equal(reefd_push(box, NULL, id, text, count * LINE_BYTES, NULL, &err), wanted);
    assert_true(err.message[0] != 0);
}

static int64_t push_known(sandbox *box, size_t first, size_t count, const char *id, bool again) {
    json_t *result = NULL;
    assert_true(push(box, first, count, id, &result));
    assert_int_equal(is_true(result, "duplicate"), again);
    assert_int_equal(integer(result, "accepted_bytes"), count * LINE_BYTES);
    assert_int_equal(integer(result, "records"), count);
    return integer(result, "position");
}

static http_answer post_batch(
    const sandbox *box, const char *target, const char *headers, const void *body, size_t bytes) {
    char all[512];
    snprintf(all, sizeof(all), BEARER "%s", headers);
    return http_ask(box->address, "POST", target, all, body, bytes);
}

static json_t *post_ok(
    const sandbox *box, const char *target, const char *headers, const void *body, size_t bytes) {
    http_answer answer = post_batch(box, target, headers, body, bytes);
    assert_code(answer, 200);
    return json_of_text(answer.body);
}

static void post_fails(const sandbox *box,
                       const char *target,
                       const char *headers,
                       const char *body,
                       int code,
                       const char *part) {
    http_answer answer = post_batch(box, target, headers, body, strlen(body));
    if (answer.code != code || strstr(answer.body, part) == NULL)
        fail_msg("%d instead of %d, or \"%s\" is not in: %s", answer.code, code, part, answer.body);
}

// ---- what it comes to ---------------------------------------------------------------------------

/** Root hash of a pool that read the first `count` lines from a file of the source's name. */
static reef_commit trained_from_file(size_t count) {
    sandbox other;
    sandbox_make(&other);
    sandbox_make_pool(&other);
    assert_int_equal(chdir(other.directory), 0);
    write_mode("push:web", counter(1, count), 0600);
    assert_int_equal(RUN(&other, "--source", "file:push:web", "--quiet"), 0);
    reef_commit commit = pool_commit(&other);
    assert_int_equal(chdir("/"), 0);
    sandbox_remove(&other);
    return commit;
}

static void assert_trained_once(sandbox *box, size_t count) {
    (void)reefd_tell(box, "drain");
    assert_int_equal(of_source(box, "push:web", "cursor"), count * LINE_BYTES);
    reefd_end(box);
    reef_commit wanted = trained_from_file(count), got = pool_commit(box);
    assert_same(&got, &wanted);
}

NEW_BOX_TEST(what_is_pushed_is_trained_as_from_a_file) {
    START_WEB(box, NULL);
    size_t next = 1;
    for (; next < 150; next += 50)
        assert_int_equal(push_known(box, next, 50, NULL, false), (next + 49) * LINE_BYTES);
    char *text = counter(next, 150);
    json_t *result = post_ok(box, "/v1/ingest", "", text, 150 * LINE_BYTES - 1); // its end is added
    assert_int_equal(integer(result, "accepted_bytes"), 150 * LINE_BYTES);
    assert_int_equal(integer(result, "records"), 150);
    assert_int_equal(integer(result, "position"), 300 * LINE_BYTES);
    assert_false(is_true(result, "duplicate"));
    assert_string_equal(string(result, "source"), "web");
    assert_trained_once(box, 300);
}

NEW_BOX_TEST(a_drain_waits_for_all_that_was_acknowledged) {
    START_WEB(box, NULL);
    for (size_t i = 0; i < 30; i++) {
        int64_t position = push_known(box, 1 + 10 * i, 10, NULL, false);
        (void)reefd_tell(box, "drain");
        assert_int_equal(of_source(box, "push:web", "cursor"), position);
    }
    reefd_end(box);
}

// ---- killed -------------------------------------------------------------------------------------

NEW_BOX_TEST(what_was_acknowledged_and_not_trained_survives_a_kill) {
    START_WEB(box, NULL);
    (void)reefd_tell(box, "pause");
    push_known(box, 1, 100, "a", false); // acknowledged although nothing is trained
    push_known(box, 101, 100, "b", false);
    assert_int_equal(of_source(box, "push:web", "cursor"), 0);
    assert_int_equal(of_source(box, "push:web", "bytes"), 200 * LINE_BYTES);
    reefd_kill(box);
    START_WEB(box, NULL);
    assert_int_equal(push_known(box, 101, 100, "b", true), 200 * LINE_BYTES);
    push_known(box, 201, 50, "c", false);
    assert_trained_once(box, 250);
}

// The client sends a batch until it is acknowledged, then the next one; the daemon is killed now
// and then.
NEW_BOX_TEST(killed_at_any_moment_every_record_is_trained_once) {
    size_t kills = test_effort(6, 40), next = 1, step = 7, batches = 0;
    uint64_t seed = 3;
    START_WEB(box, "--commit-steps", "7");
    while (kills > 0 || next <= 300) {
        char id[32];
        snprintf(id, sizeof(id), "batch-%zu", next);
        if (kills > 0 && batches++ % 5 == 4) {
            // While the batch is on its way, or while what came before is trained.
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            pid_t killer = fork();
            if (killer == 0) {
                sleep_ms((unsigned)(seed >> 33) % 40);
                kill(box->pid, SIGKILL);
                _exit(0);
            }
            (void)push(box, next, step, id, NULL); // its answer is lost, or it never came
            (void)waitpid(killer, NULL, 0);
            assert_int_equal(reefd_wait(box->pid), REEFD_SIGNALLED + SIGKILL);
            box->pid = 0;
            kills--;
            START_WEB(box, "--commit-steps", "7");
        }
        assert_true(push(box, next, step, id, NULL));
        next += step;
    }
    assert_trained_once(box, next - 1);
}

NEW_BOX_TEST(what_waits_when_it_is_stopped_is_for_the_next_run) {
    START_WEB(box, NULL);
    (void)reefd_tell(box, "pause");
    push_known(box, 1, 120, "a", false);
    reefd_end(box);
    assert_int_equal(pool_commit(box).stream_bytes, 0);
    START_WEB(box, NULL);
    assert_trained_once(box, 120);
}

// ---- sent again ---------------------------------------------------------------------------------

NEW_BOX_TEST(a_batch_sent_again_is_known_before_and_after_training_and_restarts) {
    START_WEB(box, NULL);
    push_known(box, 1, 60, "a", false);
    push_known(box, 1, 60, "a", true);
    (void)reefd_tell(box, "drain");
    assert_int_equal(push_known(box, 1, 60, "a", true), 60 * LINE_BYTES);
    reefd_end(box);
    START_WEB(box, NULL);
    push_known(box, 1, 60, "a", true);
    char *text = counter(1, 60);
    json_t *result = post_ok(box, "/v1/ingest/web", "Reef-Batch-Id: a\r\n", text, 60 * LINE_BYTES);
    assert_true(is_true(result, "duplicate"));
    post_fails(box, "/v1/ingest/web", "Reef-Batch-Id: a\r\n", "other\n", 400, "other bytes");
    push_known(box, 61, 60, "b", false);
    assert_trained_once(box, 120);
}

// ---- refused ------------------------------------------------------------------------------------

NEW_BOX_TEST(a_full_journal_is_busy_until_there_is_room) {
    START_WEB(box, "--journal", "3000");
    (void)reefd_tell(box, "pause");
    push_known(box, 1, 150, "a", false);
    push_refused(box, 151, 60, "b", REEF_ERR_BUSY);
    char *text = counter(151, 60);
    http_answer answer =
        post_batch(box, "/v1/ingest", "Reef-Batch-Id: b\r\n", text, 60 * LINE_BYTES);
    assert_int_equal(answer.code, 429);
    assert_non_null(strstr(answer.head, "Retry-After: 1"));
    assert_non_null(strstr(answer.body, "\"retry_ms\":1000"));
    assert_non_null(strstr(answer.body, "\"status\":\"busy\""));
    (void)reefd_tell(box, "resume");
    (void)reefd_tell(box, "drain");
    (void)post_ok(box, "/v1/ingest", "Reef-Batch-Id: b\r\n", text, 60 * LINE_BYTES);
    assert_trained_once(box, 210);
}

// Nothing else would ask for one, and only a commit removes what is trained.
NEW_BOX_TEST(a_journal_that_is_full_of_trained_bytes_is_committed) {
    START_WEB(box, "--journal", "3000", "--commit-steps", "0", "--commit-seconds", "0");
    push_known(box, 1, 150, "a", false);
    while (of_source(box, "push:web", "cursor") < 150 * LINE_BYTES) sleep_ms(20);
    assert_int_equal(of_source(box, "push:web", "journal_bytes"), 150 * LINE_BYTES);
    push_refused(box, 151, 60, "b", REEF_ERR_BUSY);
    for (int i = 0; i < 200 && of_source(box, "push:web", "journal_bytes") > 0; i++) sleep_ms(20);
    assert_int_equal(of_source(box, "push:web", "journal_bytes"), 0);
    push_known(box, 151, 60, "b", false);
    assert_trained_once(box, 210);
}

NEW_BOX_TEST(a_batch_larger_than_the_journal_is_no_matter_of_time) {
    START_WEB(box, "--journal", "2000");
    push_refused(box, 1, 150, "a", REEF_ERR_INVALID);
    reefd_end(box);
}

NEW_BOX_TEST(who_has_no_token_may_not_push) {
    START_WEB(box, NULL);
    static const char *const HEADERS[] = {"", "Authorization: Bearer " TOKEN "0\r\n"};
    for (size_t i = 0; i < 2; i++) {
        http_answer answer = http_ask(box->address, "POST", "/v1/ingest/web", HEADERS[i], "a\n", 2);
        assert_int_equal(answer.code, 401);
    }
    assert_int_equal(of_source(box, "push:web", "bytes"), 0);
    reefd_end(box);
}

NEW_BOX_TEST(what_cannot_be_taken_is_refused_in_words) {
    START_WEB(box, NULL);
    const char *json = "Content-Type: application/jsonl; charset=utf-8\r\n";
    post_fails(box, "/v1/ingest", json, "{\"text\": \"a\"}\n{\"text\": 1}\n", 400, "line 2");
    post_fails(box, "/v1/ingest", json, "", 400, "empty");
    post_fails(box, "/v1/ingest", "Content-Type: application/x-npy\r\n", "x", 415, "not taken");
    post_fails(box, "/v1/ingest", "Content-Type: image/png\r\n", "x", 415, "is not taken");
    post_fails(box, "/v1/ingest", "Content-Encoding: br\r\n", "x", 415, "Content-Encoding");
    post_fails(box, "/v1/ingest", "Reef-Batch-Id: a b\r\n", "x", 400, "Reef-Batch-Id");
    post_fails(box, "/v1/ingest?as=text", "", "x", 400, "'as' in the query");
    post_fails(box, "/v1/ingest/other", "", "x", 404, "no source push:other");
    post_fails(box, "/v1/ingest/web/x", "", "x", 404, "no such route");
    post_fails(box, "/v1/ingest/", "", "x", 404, "there are /livez /readyz /metrics /v1/status ");
    http_answer answer = http_ask(box->address, "GET", "/v1/ingest", BEARER, NULL, 0);
    assert_int_equal(answer.code, 405);
    reef_error err;
    assert_int_equal(reefd_push(box, NULL, NULL, "", 0, NULL, &err), REEF_ERR_INVALID);
    assert_int_equal(reefd_push(box, NULL, "", "a", 1, NULL, &err), REEF_ERR_INVALID);
    assert_int_equal(reefd_push(box, NULL, "a b", "a", 1, NULL, &err), REEF_ERR_INVALID);
    assert_int_equal(reefd_push(box, NULL, "a\r\nX: y", "a", 1, NULL, &err), REEF_ERR_INVALID);
    static const char *const SOURCES[] = {"other", "", "web/x", "web?as=text", "a b"};
    for (size_t i = 0; i < sizeof(SOURCES) / sizeof(*SOURCES); i++)
        assert_int_equal(reefd_push(box, SOURCES[i], NULL, "a", 1, NULL, &err), REEF_ERR_NOT_FOUND);
    assert_int_equal(of_source(box, "push:web", "bytes"), 0); // nothing of all that was taken
    json_t *result = NULL;
    assert_int_equal(reefd_push(box, NULL, NULL, "\0\xff\nr", 4, &result, &err), REEF_OK);
    assert_int_equal(integer(result, "accepted_bytes"), 5);
    assert_int_equal(integer(result, "records"), 2);
    assert_int_equal(of_source(box, "push:web", "bytes"), 5);
    // None of it went without a trace: counted each, and some of it logged.
    char *large = calloc((1 << 20) + 2, 1);
    assert_non_null(large);
    memset(large, 'x', (1 << 20) + 1);
    int64_t before = of_source(box, "push:web", "refused");
    assert_true(before >= 8);
    post_fails(box, "/v1/ingest", "Content-Type: image/png\r\n", "x", 415, "is not taken");
    post_fails(box, "/v1/ingest/web", "Content-Encoding: br\r\n", "x", 415, "Content-Encoding");
    post_fails(box, "/v1/ingest", "", large, 413, "more than");
    http_answer stranger = http_ask(box->address, "POST", "/v1/ingest", "", "x", 1);
    assert_int_equal(stranger.code, 401);
    assert_int_equal(of_source(box, "push:web", "refused"), before + 4);
    assert_true(reefd_said(box, "a batch pushed to '/v1/ingest' was refused (400): line 2"));
    free(large);
    reefd_end(box);
}

NEW_BOX_TEST(without_a_source_to_push_into_nothing_is_taken) {
    write_text(box->text, 3000, 1);
    START(box, "--http", "0", "--http-token", box->token, "--source", box->text, "--stay");
    post_fails(box, "/v1/ingest", "", "x", 404, "--source push:NAME");
    reefd_end(box);
    for (size_t i = 0; i < 2; i++) {
        const char *spec = i ? "push:a/b" : "push:";
        assert_int_equal(RUN(box, "--source", spec), 64);
    }
}

// ---- several ------------------------------------------------------------------------------------

NEW_BOX_TEST(several_sources_have_journals_of_their_own) {
    assert_int_equal(setenv("REEF_TEST_PATIENCE", "0.2", 1), 0);
    START_WEB(box, "--source", "push:app?weight=3");
    post_fails(box, "/v1/ingest", "", "x", 400, "name one");
    (void)reefd_tell(box, "pause");
    (void)post_ok(box, "/v1/ingest/web", "Reef-Batch-Id: 1\r\n", "web 1\nweb 2\n", 12);
    (void)post_ok(box, "/v1/ingest/app", "Reef-Batch-Id: 1\r\n", "app 1\n", 6);
    assert_int_equal(of_source(box, "push:web", "bytes"), 12);
    assert_int_equal(of_source(box, "push:app", "bytes"), 6);
    reefd_kill(box);
    START_WEB(box, "--source", "push:app?weight=3");
    assert_int_equal(unsetenv("REEF_TEST_PATIENCE"), 0);
    json_t *again = post_ok(box, "/v1/ingest/app", "Reef-Batch-Id: 1\r\n", "app 1\n", 6);
    assert_true(is_true(again, "duplicate"));
    (void)reefd_push_ok(box, "app", NULL, "app 2");
    (void)reefd_tell(box, "drain");
    assert_int_equal(of_source(box, "push:web", "cursor"), 12);
    assert_int_equal(of_source(box, "push:app", "cursor"), 12);
    reefd_end(box);
}

// ---- counted ------------------------------------------------------------------------------------

static char *metrics(const sandbox *box) {
    http_answer answer = get(box, "/metrics");
    assert_code(answer, 200);
    assert_metrics(box, answer.body);
    return answer.body;
}

/** The same figure in /metrics and in status. */
static void assert_counted(const sandbox *box, const char *source, const char *key, int64_t value) {
    char line[160];
    const char *total = strcmp(key, "journal_bytes") != 0 ? "_total" : "";
    snprintf(line, sizeof(line), "\nreef_push_%s%s{source=\"%s\"} %lld\n", key, total, source,
             (long long)value);
    char *text = metrics(box);
    if (strstr(text, line) == NULL) fail_msg("no '%s' in:\n%s", line, strstr(text, "reef_push_"));
    assert_int_equal(of_source(box, source, key), value);
}

NEW_BOX_TEST(pushes_are_counted_by_source) {
    START_WEB(box, "--source", "push:app", "--journal", "3000");
    (void)reefd_tell(box, "pause");
    (void)reefd_push_ok(box, "web", "a", "1\n2\n3");
    (void)reefd_push_ok(box, "web", "b", "4");
    (void)reefd_push_ok(box, "web", "a", "1\n2\n3");
    (void)reefd_push_ok(box, "app", NULL, "x");
    post_fails(box, "/v1/ingest/web", "Reef-Batch-Id: a\r\n", "other\n", 400, "other bytes");
    char *text = counter(1, 170);
    http_answer answer = post_batch(box, "/v1/ingest/web", "", text, 170 * LINE_BYTES);
    assert_int_equal(answer.code, 429);
    assert_counted(box, "push:web", "batches", 2);
    assert_counted(box, "push:web", "records", 4);
    assert_counted(box, "push:web", "duplicates", 1);
    assert_counted(box, "push:web", "refused", 2);
    assert_counted(box, "push:web", "busy", 1);
    assert_counted(box, "push:web", "journal_bytes", 8);
    assert_counted(box, "push:app", "batches", 1);
    assert_counted(box, "push:app", "busy", 0);
    assert_counted(box, "push:app", "journal_bytes", 2);
    // Counts are the process's, the journal is the pool's.
    reefd_kill(box);
    START_WEB(box, "--stay");
    assert_counted(box, "push:web", "batches", 0);
    (void)reefd_tell(box, "drain");
    assert_counted(box, "push:web", "journal_bytes", 0);
    reefd_end(box);
}

static int64_t last_commit(const sandbox *box) {
    return reefd_count(box, "last_commit.number");
}

// ---- a full disk --------------------------------------------------------------------------------

TEST_WITH(a_full_disk_is_an_error_to_the_pusher_and_passes,
          setup_disk,
          teardown_disk,
          sandbox *box) {
    if (!filler[0]) skip();
    char *large = counter(1, 30000);
    START_WEB(box, NULL);
    (void)reefd_tell(box, "pause");
    push_known(box, 1, 100, "a", false);
    int64_t number = last_commit(box);
    small_disk_fill(filler);
    http_answer answer = post_batch(box, "/v1/ingest", "Reef-Batch-Id: b\r\n",
                                    large + 100 * LINE_BYTES, 20000 * LINE_BYTES);
    assert_code(answer, 507);
    assert_non_null(strstr(answer.body, "\"full\""));
    // A shipper keeps what it has only where it is told that the same may be sent again.
    char *loki = malloc(300000);
    assert_non_null(loki);
    memset(loki, 'x', 300000);
    static const char BEGIN[] = "{\"streams\":[{\"stream\":{},\"values\":[[\"0\",\"",
                      END[] = "\"]]}]}";
    memcpy(loki, BEGIN, strlen(BEGIN));
    memcpy(loki + 300000 - strlen(END), END, strlen(END));
    answer =
        post_batch(box, "/loki/api/v1/push", "Content-Type: application/json\r\n", loki, 300000);
    assert_code(answer, 503);
    assert_non_null(strstr(answer.head, "Retry-After: 1"));
    free(loki);
    assert_int_equal(of_source(box, "push:web", "bytes"), 100 * LINE_BYTES);
    // Nothing is left that training would have to commit, on a disk that is still full.
    assert_int_equal(integer(reefd_tell(box, "commit"), "number"), number);
    assert_int_equal(unlink(filler), 0);
    (void)post_ok(box, "/v1/ingest", "Reef-Batch-Id: b\r\n", large + 100 * LINE_BYTES,
                  100 * LINE_BYTES);
    (void)reefd_tell(box, "resume");
    assert_trained_once(box, 200);
}

// Pauses between attempts of a commit are not a reason to let a client wait for its reply.
TEST_WITH(a_pusher_is_answered_while_commits_fail, setup_disk, teardown_disk, sandbox *box) {
    if (!filler[0]) skip();
    char *text = counter(1, 200);
    START_WEB(box, NULL);
    (void)reefd_tell(box, "pause");
    push_known(box, 1, 100, NULL, false);
    small_disk_fill(filler);
    (void)reefd_tell(box, "resume");
    while (is_null(reefd_status(box), "commit_error")) sleep_ms(5);
    http_answer answer = post_batch(box, "/v1/ingest", "Reef-Batch-Id: b\r\n",
                                    text + 100 * LINE_BYTES, 100 * LINE_BYTES);
    assert_code(answer, 507);
    assert_int_equal(unlink(filler), 0);
    (void)post_ok(box, "/v1/ingest", "Reef-Batch-Id: b\r\n", text + 100 * LINE_BYTES,
                  100 * LINE_BYTES);
    assert_trained_once(box, 200);
}

/** The pool's one writer: while it is held, the daemon's next commit waits. */
static MDB_txn *hold_writer(const sandbox *box, MDB_env **env) {
    MDB_txn *txn = NULL;
    assert_int_equal(mdb_env_create(env), 0);
    assert_int_equal(mdb_env_open(*env, box->pool, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(*env, NULL, 0, &txn), 0);
    return txn;
}

// The trainer is busy, so nothing gets into the journal: what waits for it is bounded, and a client
// beyond that is refused at once.
NEW_BOX_TEST(what_waits_for_the_journal_is_bounded) {
    enum { CLIENTS = 8, LINES = 60000 };
    MDB_env *env = NULL;
    char *large = counter(1, LINES);
    START_WEB(box, NULL);
    (void)reefd_tell(box, "pause");
    MDB_txn *writer = hold_writer(box, &env);
    int clients[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++)
        clients[i] =
            http_begin(box->address, "POST", "/v1/ingest", BEARER, large, LINES * LINE_BYTES, 0);
    while (of_source(box, "push:web", "busy") < CLIENTS - 4) sleep_ms(5);
    mdb_txn_abort(writer);
    size_t busy = 0, taken = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        http_answer answer = http_end(clients[i]);
        busy += answer.code == 429 && strstr(answer.body, "too much waits") != NULL;
        taken += answer.code == 200;
    }
    assert_int_equal(taken, 4);
    assert_int_equal(busy, CLIENTS - 4);
    mdb_env_close(env);
}

RUN_TESTS
