// `reef` beside a running reefd: reading continues, changes go through the daemon, and afterwards
// the tool does them itself.
#include "cli.h"
#include "cli_format.h"
#include "program.h"
#include "reef_system.h"
#include "test.h"
#include "tiny_pool.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_SECONDS 60
#define STREAM_BYTES 4000
#define LONG_STREAM_BYTES 8000000 // never trained to its end here
#define EVALUATIONS 3

typedef struct world {
    char *directory, *pool, *stream;
    pid_t daemon; // 0 when none runs
} world;

static json_t *reef_json(const char *command,
                         const char *second,
                         const world *w,
                         const char *argument) {
    const char *argv[] = {REEF_BINARY, command, NULL, NULL, NULL, NULL, NULL, NULL};
    size_t count = 2;
    if (second != NULL) argv[count++] = second;
    argv[count++] = "--pool";
    argv[count++] = w->pool;
    argv[count++] = "--json";
    if (argument != NULL) argv[count++] = argument;
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("reef %s: exit %d: %s", command, p.code, p.err);
    json_t *document = json_loads(p.out, 0, NULL);
    assert_non_null(document);
    return keep(document);
}

static void write_stream(const char *path, size_t bytes) {
    char *text = tiny_text("english", STREAM_BYTES);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t written = 0; written < bytes; written += STREAM_BYTES)
        assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void start_daemon(world *w) {
    char *source = reef_cli_format("file:%s", w->stream),
         *log = reef_cli_format("%s/log", w->directory);
    const char *argv[] = {REEFD_BINARY, "--pool",    w->pool, "--source", source,
                          "--stay",     "--threads", "1",     NULL};
    w->daemon = fork();
    assert_true(w->daemon >= 0);
    if (w->daemon == 0) {
        int file = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (file < 0 || dup2(file, STDERR_FILENO) < 0) _exit(126);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    free(source);
    free(log);
}

static void stop_daemon(world *w) {
    assert_int_equal(kill(w->daemon, SIGTERM), 0);
    int status;
    assert_int_equal(waitpid(w->daemon, &status, 0), w->daemon);
    w->daemon = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool daemon_runs(const world *w) {
    json_t *status = reef_json("status", NULL, w, NULL);
    bool runs = json_is_true(json_object_get(status, "daemon"));
    return runs;
}

static json_int_t trained_bytes(const world *w) {
    json_t *status = reef_json("status", NULL, w, NULL);
    json_int_t bytes = json_integer_value(json_object_get(status, "stream_bytes"));
    return bytes;
}

// Until the daemon answers and has trained this much of the stream.
static void wait_until_trained_to(const world *w, json_int_t bytes) {
    double deadline = reef_seconds() + DEADLINE_SECONDS;
    while (!daemon_runs(w) || trained_bytes(w) < bytes) {
        if (reef_seconds() > deadline)
            fail_msg("the daemon has not trained %d bytes in %d s", (int)bytes, DEADLINE_SECONDS);
        assert_int_equal(waitpid(w->daemon, NULL, WNOHANG), 0); // it is alive
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}

// All that can be trained of the short stream: what follows waits to be judged with more.
static void wait_until_trained(const world *w) {
    wait_until_trained_to(w, STREAM_BYTES / 2);
}

static int world_make(void **state) {
    unsetenv("REEF_POOL");
    world *w = reef_cli_alloc(1, sizeof(*w));
    w->directory = test_directory_new();
    w->pool = reef_cli_format("%s/pool", w->directory);
    w->stream = reef_cli_format("%s/stream", w->directory);
    write_stream(w->stream, STREAM_BYTES);
    const char *argv[] = {REEF_BINARY, "init", w->pool, TINY_OPTIONS, NULL};
    program p;
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 0);
    *state = w;
    return 0;
}

static int world_remove(void **state) {
    world *w = *state;
    if (w->daemon > 0) {
        kill(w->daemon, SIGKILL);
        waitpid(w->daemon, NULL, 0);
    }
    test_directory_remove(w->directory);
    free(w->pool);
    free(w->stream);
    free(w);
    return 0;
}

static size_t generation_count(const world *w) {
    json_t *document = reef_json("generations", NULL, w, NULL);
    size_t count = json_array_size(json_object_get(document, "generations"));
    return count;
}

static void expect_verbose(const world *w, const char *says) {
    const char *argv[] = {REEF_BINARY, "freeze", w->pool, "--dry-run", "--verbose", NULL};
    program p;
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 0);
    char *first = reef_cli_format("reef: using the %s", says);
    assert_int_equal(strncmp(p.err, first, strlen(first)), 0); // nothing stands before it
    free(first);
}

static void changes_go_through_the_daemon_while_it_runs(void **state) {
    world *w = *state;
    assert_false(daemon_runs(w));
    expect_verbose(w, "pool ");
    start_daemon(w);
    wait_until_trained(w);

    expect_verbose(w, "socket ");
    json_t *sealed = reef_json("seal", NULL, w, "--seal-dtype=int8");
    const json_t *generation = json_object_get(sealed, "sealed");
    assert_string_equal(json_string_value(json_object_get(generation, "dtype")), "int8");
    assert_true(json_real_value(json_object_get(sealed, "loss_before")) > 0.0);
    assert_true(json_real_value(json_object_get(sealed, "loss_after")) > 0.0);
    assert_int_equal(generation_count(w), 2);
    json_t *frozen = reef_json("freeze", NULL, w, NULL);
    assert_int_equal(json_integer_value(json_object_get(frozen, "changed")),
                     TINY_SIDE_NEW * TINY_SIDE_NEW);
    (void)reef_json("grow", NULL, w, "--side=5");
    (void)reef_json("snapshot", "create", w, "beside");

    stop_daemon(w);
    assert_false(daemon_runs(w));
    (void)reef_json("snapshot", "create", w, "after");
    assert_int_equal(generation_count(w), 2);
}

static void reading_continues_beside_the_daemon(void **state) {
    world *w = *state;
    start_daemon(w);
    wait_until_trained(w);
    (void)reef_json("eval", NULL, w, w->stream);
    (void)reef_json("timeline", NULL, w, NULL);
    (void)reef_json("plot", "loss", w, NULL);
    json_t *sound = reef_json("verify", NULL, w, NULL);
    assert_true(json_is_true(json_object_get(sound, "sound")));
    stop_daemon(w);
}

static json_t *eval_snapshot(const world *w, const char *text) {
    const char *argv[] = {REEF_BINARY, "eval",    "--pool", w->pool, "--json",
                          "--as-of",   "running", text,     NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("eval: exit %d: %s", p.code, p.err);
    json_t *document = json_loads(p.out, 0, NULL);
    return keep(document);
}

static void a_snapshot_gives_the_same_bits_while_the_daemon_trains_on(void **state) {
    world *w = *state;
    char *text = reef_cli_format("%s/text", w->directory);
    write_stream(text, STREAM_BYTES);
    write_stream(w->stream, LONG_STREAM_BYTES);
    start_daemon(w);
    wait_until_trained_to(w, 1000);
    (void)reef_json("snapshot", "create", w, "running");
    json_t *first = eval_snapshot(w, text);
    for (size_t i = 0; i < EVALUATIONS; i++) {
        wait_until_trained_to(w, trained_bytes(w) + 1); // it does continue
        json_t *again = eval_snapshot(w, text);
        assert_true(json_equal(first, again));
    }
    stop_daemon(w);
    json_t *sound = reef_json("verify", NULL, w, NULL);
    assert_true(json_is_true(json_object_get(sound, "sound")));
    free(text);
}

static size_t snapshot_count(const world *w) {
    json_t *document = reef_json("snapshot", "list", w, NULL);
    size_t count = json_array_size(json_object_get(document, "snapshots"));
    return count;
}

static void snapshots_are_restored_and_removed_while_the_daemon_trains_on(void **state) {
    world *w = *state;
    write_stream(w->stream, LONG_STREAM_BYTES);
    start_daemon(w);
    wait_until_trained_to(w, 1000);
    (void)reef_json("snapshot", "create", w, "one");
    (void)reef_json("snapshot", "create", w, "two");
    (void)reef_json("snapshot", "create", w, "three");
    char *out = reef_cli_format("%s/restored", w->directory);
    const char *copy[] = {REEF_BINARY, "snapshot", "restore", w->pool, "on", out, NULL};
    program p;
    program_run(&p, copy, NULL);
    if (p.code != 0) fail_msg("restore: exit %d: %s", p.code, p.err);
    const char *in_place[] = {REEF_BINARY, "snapshot",   "restore", w->pool,
                              "one",       "--in-place", NULL};
    program_run(&p, in_place, NULL);
    assert_int_equal(p.code, 75);
    assert_non_null(strstr(p.err, "stop it first"));

    json_t *removed = reef_json("snapshot", "remove", w, "tw");
    assert_int_equal(json_array_size(json_object_get(removed, "removed")), 1);
    assert_int_equal(snapshot_count(w), 2);
    (void)reef_json("snapshot", "prune", w, "--keep-last=1");
    assert_int_equal(snapshot_count(w), 1);
    wait_until_trained_to(w, trained_bytes(w) + 1); // it does continue
    stop_daemon(w);
    json_t *sound = reef_json("verify", NULL, w, NULL);
    assert_true(json_is_true(json_object_get(sound, "sound")));
    const char *verify[] = {REEF_BINARY, "verify", out, NULL};
    program_run(&p, verify, NULL);
    assert_int_equal(p.code, 0);
    free(out);
}

// Run `reef COMMAND POOL [more]`; what it says on standard error, on the heap.
static char *verbose_words(const world *w, const char *command, const char *more) {
    const char *argv[] = {REEF_BINARY, command, w->pool, "--verbose", more, NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("%s: exit %d: %s", command, p.code, p.err);
    char *words = reef_cli_format("%s|%s", p.out, p.err);
    return keep(words);
}

static void every_command_of_the_daemon_is_one_of_reef_and_says_that_it_waited(void **state) {
    static const char *const COMMANDS[][2] = {
        {"commit", NULL}, {"pause", NULL},  {"resume", NULL},        {"drain", NULL},
        {"seal", NULL},   {"reload", NULL}, {"freeze", "--first=0"}, {"thaw", NULL}};
    world *w = *state;
    start_daemon(w);
    wait_until_trained(w);
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS); i++) {
        char *words = verbose_words(w, COMMANDS[i][0], COMMANDS[i][1]);
        if (strstr(words, "when the step under way was done") == NULL)
            fail_msg("%s does not say that it waited: %s", COMMANDS[i][0], words);
    }
    static const char *const ASKED[] = {"commit", "pause", "resume", "drain", "reload", "stop"};
    for (size_t i = 0; i < sizeof(ASKED) / sizeof(*ASKED); i++) {
        json_t *plan = reef_json(ASKED[i], NULL, w, "--dry-run");
        assert_true(json_is_false(json_object_get(plan, "done")));
        assert_int_equal(json_integer_value(json_object_get(plan, "pid")), w->daemon);
        assert_string_equal(json_string_value(json_object_get(plan, "command")), ASKED[i]);
    }
    char *words = verbose_words(w, "reload", NULL);
    assert_non_null(strstr(words, "changed        nothing\nneeds restart  nothing\n"));
    stop_daemon(w);
    const char *argv[] = {REEF_BINARY, "reload", w->pool, NULL};
    program p;
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 66); // no person can be asked
}

static void what_the_daemon_refuses_is_reported_as_its_own_error(void **state) {
    world *w = *state;
    start_daemon(w);
    wait_until_trained(w);
    const char *argv[] = {REEF_BINARY, "freeze", w->pool, "--layer", "1", NULL}; // a dense block
    program p;
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 64);
    assert_int_equal(line_count(p.err), 1);
    assert_non_null(strstr(p.err, "layer"));
    stop_daemon(w);
}

// Two columns in every line of `reef status` but the first: the label, and from column 17 on the
// value.
static void expect_two_columns(const world *w, const char *last) {
    program p;
    program_run(&p, (const char *const[]){REEF_BINARY, "status", w->pool, NULL}, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, last)); // all is known that can be
    for (const char *line = strchr(p.out, '\n'); line != NULL && line[1];
         line = strchr(line + 1, '\n'))
        if (strcspn(line + 1, "\n") < 17 || line[16] != ' ' || line[17] == ' ')
            fail_msg("no two columns in: %s", p.out);
}

static void the_columns_of_status_line_up(void **state) {
    world *w = *state;
    start_daemon(w);
    wait_until_trained(w);
    expect_two_columns(w, "bits per byte (median of recent batches)");
    stop_daemon(w);
    expect_two_columns(w, "on disk");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_make, world_remove)

TESTS(TEST(the_columns_of_status_line_up),
      TEST(changes_go_through_the_daemon_while_it_runs),
      TEST(reading_continues_beside_the_daemon),
      TEST(a_snapshot_gives_the_same_bits_while_the_daemon_trains_on),
      TEST(snapshots_are_restored_and_removed_while_the_daemon_trains_on),
      TEST(every_command_of_the_daemon_is_one_of_reef_and_says_that_it_waited),
      TEST(what_the_daemon_refuses_is_reported_as_its_own_error))
