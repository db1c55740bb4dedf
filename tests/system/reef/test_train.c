// `reef train` as a user runs it: the bits of the daemon, also after interruptions.
#include "cli.h"
#include "cli_format.h"
#include "program.h"
#include "reef_system.h"
#include "reefd_run.h"
#include "test.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORD_BYTES 12000
#define FIGURE_BYTES 8000
#define HELD_BYTES 1500
#define PART_BYTES 4096
#define ARGUMENTS_MAX 40
#define KILLS_FEW 4
#define KILLS_MANY 60
#define AWAIT_MS_MAX 60000

// Two domains, held-out text of both, and a tiny pool.
typedef struct world {
    sandbox box;
    char *words, *figures, *part, *held_words, *held_figures;
} world;

static char *path_in(const world *w, const char *name) {
    return keep(reef_cli_format("%s/%s", w->box.directory, name));
}

static int setup(void **state) {
    unsetenv("REEF_POOL");
    world *w = reef_cli_alloc(1, sizeof(*w));
    sandbox_make(&w->box);
    sandbox_make_pool(&w->box);
    w->words = path_in(w, "words");
    w->figures = path_in(w, "figures");
    w->part = path_in(w, "part");
    w->held_words = path_in(w, "held_words");
    w->held_figures = path_in(w, "held_figures");
    write_text(w->words, WORD_BYTES, 1);
    append_figures(w->figures, FIGURE_BYTES, 2);
    append_figures(w->part, PART_BYTES, 2);
    write_text(w->held_words, HELD_BYTES, 3);
    append_figures(w->held_figures, HELD_BYTES, 4);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    sandbox_remove(&w->box);
    free(w->words);
    free(w->figures);
    free(w->part);
    free(w->held_words);
    free(w->held_figures);
    free(w);
    return 0;
}

// reef's command line up to a NULL.
static void collect(const char **argv, va_list arguments) {
    size_t count = 1;
    const char *argument;
    argv[0] = REEF_BINARY;
    while ((argument = va_arg(arguments, const char *))) {
        assert_true(count + 1 < ARGUMENTS_MAX);
        argv[count++] = argument;
    }
    argv[count] = NULL;
}

static json_t *reef_json(const char *first, ...) {
    const char *argv[ARGUMENTS_MAX] = {NULL};
    va_list arguments;
    va_start(arguments, first);
    collect(argv, arguments);
    va_end(arguments);
    memmove(argv + 2, argv + 1, (ARGUMENTS_MAX - 2) * sizeof(*argv));
    argv[1] = first;
    size_t count = 0;
    while (argv[count] != NULL) count++;
    assert_true(count + 1 < ARGUMENTS_MAX);
    argv[count] = "--json";
    argv[count + 1] = NULL;
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("reef %s: exit %d: %s", first, p.code, p.err);
    json_t *document = json_loads(p.out, 0, NULL);
    assert_non_null(document);
    return keep(document);
}

// It must fail with this exit code and say this.
static void reef_fails(int code, const char *says, const char *first, ...) {
    const char *argv[ARGUMENTS_MAX] = {NULL};
    va_list arguments;
    va_start(arguments, first);
    collect(argv, arguments);
    va_end(arguments);
    memmove(argv + 2, argv + 1, (ARGUMENTS_MAX - 2) * sizeof(*argv));
    argv[1] = first;
    program p;
    program_run(&p, argv, NULL);
    if (p.code != code || strstr(p.err, says) == NULL)
        fail_msg("reef %s: exit %d instead of %d, or no '%s' in: %s", first, p.code, code, says,
                 p.err);
    assert_int_equal(line_count(p.err), 1);
}

static json_t *train_all(const world *w) {
    return reef_json("train", w->box.pool, w->words, w->figures, NULL);
}

static const char *root_of(const json_t *document) {
    return json_string_value(json_object_get(document, "root"));
}

static double matrix_value(const json_t *document, size_t row, size_t column) {
    const json_t *value =
        json_array_get(json_array_get(json_object_get(document, "matrix"), row), column);
    assert_true(json_is_real(value));
    return json_real_value(value);
}

// ---- the same bits ------------------------------------------------------------------------------

static void train_ends_with_the_daemons_root(void **state) {
    world *w = *state;
    json_t *document = train_all(w);
    assert_true(json_is_true(json_object_get(document, "finished")));
    char *root = reef_cli_format("%s", root_of(document));
    assert_int_equal(pool_generations(&w->box), 2); // or nothing was sealed, and less is compared
    pool_check(&w->box);

    sandbox_make_pool(&w->box);
    char *first = reef_cli_format("file:%s", w->words),
         *second = reef_cli_format("file:%s", w->figures);
    const char *arguments[] = {"--pool", w->box.pool, "--source", first, "--source",
                               second,   "--threads", "2",        NULL};
    assert_int_equal(reefd_run(&w->box, -1, arguments), 0);
    char daemon[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(pool_commit(&w->box).root, daemon);
    assert_string_equal(root, daemon);
    // The daemon's cursors are the tool's: there is nothing left to train on.
    json_t *again = train_all(w);
    assert_string_equal(root_of(again), root);
    free(root);
    free(first);
    free(second);
}

static void start_train(const world *w, pid_t *child, const char *out) {
    const char *argv[] = {REEF_BINARY, "train",          w->box.pool, w->words, w->figures,
                          "--json",    "--commit-steps", "5",         NULL};
    *child = fork();
    assert_true(*child >= 0);
    if (*child == 0) {
        int file = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int none = open("/dev/null", O_WRONLY);
        if (file < 0 || dup2(file, STDOUT_FILENO) < 0 || dup2(none, STDERR_FILENO) < 0) _exit(126);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
}

static void await_commit(const world *w, pid_t child) {
    for (unsigned waited = 0; pool_commit(&w->box).stream_bytes == 0; waited++) {
        assert_true(waited < AWAIT_MS_MAX);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0); // it is alive
        sleep_ms(1);
    }
}

static void interrupted_it_commits_and_goes_on(void **state) {
    world *w = *state;
    json_t *whole = train_all(w);
    sandbox_make_pool(&w->box);
    char *out = path_in(w, "out.json");
    pid_t child;
    start_train(w, &child, out);
    await_commit(w, child);
    assert_int_equal(kill(child, SIGINT), 0);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
    json_t *stopped = json_load_file(out, 0, NULL);
    assert_non_null(stopped);
    assert_true(json_is_false(json_object_get(stopped, "finished")));
    json_int_t at = json_integer_value(json_object_get(stopped, "accepted_bytes"));
    assert_true(at < WORD_BYTES + FIGURE_BYTES);
    pool_check(&w->box);

    json_t *rest = train_all(w);
    assert_string_equal(root_of(rest), root_of(whole));
    json_decref(stopped);
}

static void killed_at_any_time_it_goes_on(void **state) {
    world *w = *state;
    double began = reef_seconds();
    json_t *whole = train_all(w);
    unsigned whole_ms = (unsigned)(1000 * (reef_seconds() - began)) + 2;
    uint64_t seed = 7;
    char *out = path_in(w, "out.json");
    for (size_t kills = test_effort(KILLS_FEW, KILLS_MANY), i = 0; i < kills; i++) {
        sandbox_make_pool(&w->box);
        for (size_t lives = 0; lives < 3; lives++) {
            pid_t child;
            start_train(w, &child, out);
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sleep_ms((unsigned)(seed >> 33) % whole_ms);
            assert_int_equal(kill(child, SIGKILL), 0);
            assert_int_equal(waitpid(child, NULL, 0), child);
        }
        json_t *rest = train_all(w);
        assert_string_equal(root_of(rest), root_of(whole));
    }
}

static char *said(const char *command, const char *pool, const char *file) {
    const char *argv[] = {REEF_BINARY, command, pool, file, NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("reef %s: exit %d: %s", command, p.code, p.err);
    char *text = reef_cli_format("%s", p.out);
    return keep(text);
}

static void expect(const char *text, const char *label, json_int_t number, const char *rest) {
    char digits[CLI_WORD_BYTES];
    char *words = reef_cli_format("%s%s %s", label, reef_cli_count((uint64_t)number, digits), rest);
    if (strstr(text, words) == NULL) fail_msg("expected '%s' in: %s", words, text);
    free(words);
}

// A pool that learns its whole stream has no figure of what it did not learn.
static void a_pool_that_learns_all_says_nothing_else(void **state) {
    world *w = *state;
    static const char *const MARKS[] = {"", "=== figures ==="};
    char *text = path_in(w, "text");
    write_text(text, 3000, 5);
    for (size_t i = 0; i < 2; i++) {
        char *pool = path_in(w, i == 0 ? "all" : "marks");
        json_decref(reef_json("init", pool, "--context-memory", "4M", "--net-share", "0",
                              "--boundaries", "given", "--boundary-mark", MARKS[i], NULL));
        json_t *train = reef_json("train", pool, text, NULL),
               *status = reef_json("status", pool, NULL);
        json_t *found[] = {json_object_get(train, "not_learned_bytes"),
                           json_object_get(status, "not_learned_bytes")};
        for (size_t k = 0; k < 2; k++) assert_int_equal(json_is_integer(found[k]), i == 1);
    }
}

static void what_is_not_learned_is_not_reported_as_trained(void **state) {
    world *w = *state;
    char *pool = path_in(w, "marked"), *text = path_in(w, "text");
    write_text(text, 3000, 5);
    FILE *file = fopen(text, "a");
    assert_non_null(file);
    assert_true(fputs("\n=== figures ===\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    append_figures(text, 3000, 6);
    json_decref(reef_json("init", pool, "--context-memory", "0", "--layers", "1", "--d-model", "8",
                          "--attention-heads", "1", "--context", "16", "--heads", "1", "--topk",
                          "1", "--d-key", "4", "--side", "2", "--side-new", "2", "--boundaries",
                          "given", "--boundary-mark", "=== figures ===", "--seed", "3", NULL));
    json_t *before = reef_json("status", pool, NULL);
    assert_int_equal(json_integer_value(json_object_get(before, "not_learned_bytes")), 0);
    char *words = said("train", pool, text);
    json_t *after = reef_json("status", pool, NULL);
    json_int_t recognised = json_integer_value(json_object_get(after, "not_learned_bytes"));
    json_int_t dealt_with = json_integer_value(json_object_get(after, "stream_bytes"));
    assert_true(recognised > 16);
    expect(words, "  ", recognised,
           "bytes of the pool's stream were recognised, or lay at marker lines");
    words = said("status", pool, NULL);
    expect(words, "trained       ", dealt_with - recognised, "bytes\n");
    expect(words, "recognised    ", recognised, "bytes of older domains or at marker lines");
}

// ---- other commands that read it ----------------------------------------------------------------

static void eval_matrix_names_both_definitions(void **state) {
    world *w = *state;
    json_decref(train_all(w));
    json_t *document =
        reef_json("eval", "--pool", w->box.pool, "--matrix", w->held_words, w->held_figures, NULL);
    double now = matrix_value(document, 2, 0), then = matrix_value(document, 0, 0);
    const json_t *learned = json_array_get(json_object_get(document, "forgetting_learned"), 0);
    const json_t *most = json_array_get(json_object_get(document, "forgetting"), 0);
    assert_true(fabs(json_real_value(learned) - (now - then)) < 1e-12);
    assert_true(json_real_value(most) >= json_real_value(learned) - 1e-12);
    // Told that the first text was learned in generation 1, there is nothing after it to forget.
    document = reef_json("eval", "--pool", w->box.pool, "--matrix", "--learned", "1,0",
                         w->held_words, w->held_figures, NULL);
    learned = json_array_get(json_object_get(document, "forgetting_learned"), 0);
    assert_true(json_real_value(learned) == 0);
    reef_fails(64, "--learned is '0,2', but must be one generation, 0 to 1, for each of 2 files",
               "eval", "--pool", w->box.pool, "--matrix", "--learned", "0,2", w->held_words,
               w->held_figures, NULL);
    reef_fails(64, "it needs --matrix", "eval", "--pool", w->box.pool, "--learned", "0",
               w->held_words, NULL);
}

// ---- what goes wrong ----------------------------------------------------------------------------

// All of both was read, so cursors do not show it, but the pool's sources are in the order of their
// reading. A file that is new, or empty, changes nothing of that.
static void files_in_another_order_than_they_were_trained_are_refused(void **state) {
    world *w = *state;
    const char *pool = w->box.pool,
               *says = "give the files in the order in which they were trained";
    char *empty = path_in(w, "empty");
    write_text(empty, 0, 1);
    (void)reef_json("train", pool, w->words, w->figures, NULL);
    reef_fails(64, says, "train", pool, w->figures, w->words, NULL);
    reef_fails(64, says, "train", pool, w->held_words, w->figures, w->words, NULL);
    (void)reef_json("train", pool, w->words, empty, w->figures, NULL);
    (void)reef_json("train", pool, w->words, w->figures, w->held_words, NULL);
}

static void bad_requests_are_distinguished(void **state) {
    world *w = *state;
    const char *pool = w->box.pool;
    char *empty = path_in(w, "empty");
    write_text(empty, 0, 1);
    reef_fails(66, "check the path", "train", pool, "/nowhere/at/all", NULL);
    reef_fails(64, "standard input cannot be read again", "train", pool, "-", NULL);
    reef_fails(64, "for reef train the shell does: give *.txt without quotes", "train", pool,
               "glob:*.txt", NULL);
    reef_fails(64, "a source follow: has no end: give files", "train", pool, "follow:x", NULL);
    reef_fails(64, "a source dir: has no end: give files", "train", pool, "dir:/nowhere", NULL);
    reef_fails(64, "a source push: has no end: give files", "train", pool, "push:x", NULL);
    reef_fails(64, "a source redis: has no end: give files", "train", pool,
               "redis://:secret@localhost/x", NULL);
    reef_fails(64, "is given twice", "train", pool, w->words, w->words, NULL);
    reef_fails(66, "the stream is empty", "train", pool, empty, NULL);
    reef_fails(64, "--commit-steps is '-1'", "train", pool, w->words, "--commit-steps", "-1", NULL);
    (void)reef_json("train", pool, w->words, NULL);
    reef_fails(64, "give the files in the order", "train", pool, w->figures, w->words, NULL);
    write_text(w->words, WORD_BYTES / 2, 1);
    reef_fails(65, "it shrank or was replaced", "train", pool, w->words, NULL);
}

static void a_daemon_on_the_pool_is_respected(void **state) {
    world *w = *state;
    const char *arguments[] = {"--pool", w->box.pool, "--source", "-", "--stay", NULL};
    pid_t daemon = reefd_start(&w->box, -1, arguments);
    reefd_await(&w->box, daemon);
    reef_fails(75, "is already open for writing by process", "train", w->box.pool, w->words, NULL);
    assert_int_equal(kill(daemon, SIGTERM), 0);
    assert_int_equal(reefd_wait(daemon), 0);
}

// ---- after a restore ----------------------------------------------------------------------------

static void back_to(const world *w, const char *snapshot) {
    json_decref(
        reef_json("snapshot", "restore", w->box.pool, snapshot, "--in-place", "--yes", NULL));
}

static bool last_loss_is_known(const world *w) {
    json_t *status = reef_json("status", w->box.pool, NULL);
    const json_t *last = json_object_get(status, "last_bits_per_byte");
    assert_non_null(last);
    bool known = json_is_number(last);
    return known;
}

// The pool learns figures after words, goes back, learns something else, and goes to the figures
// again. Points of the loss that were removed on the way back are not known then.
static void losses_of_another_run_are_not_reported_as_this_ones(void **state) {
    world *w = *state;
    const char *pool = w->box.pool;
    (void)reef_json("train", pool, w->words, w->held_words, NULL);
    (void)reef_json("snapshot", "create", pool, "words", NULL);
    json_t *first = reef_json("train", pool, w->words, w->held_words, w->figures, NULL);
    assert_true(last_loss_is_known(w));
    back_to(w, "words");
    assert_true(last_loss_is_known(w)); // that of the words
    (void)reef_json("train", pool, w->words, w->held_words, w->part, NULL);
    assert_true(last_loss_is_known(w));
    back_to(w, "before-restore");
    assert_false(last_loss_is_known(w));

    json_t *again = reef_json("train", pool, w->words, w->held_words, w->figures, NULL);
    assert_string_equal(root_of(again), root_of(first));
    json_decref(
        reef_json("train", pool, w->words, w->held_words, w->figures, w->held_figures, NULL));
    assert_true(last_loss_is_known(w));
    pool_check(&w->box);
}

TESTS(SET_UP(train_ends_with_the_daemons_root),
      SET_UP(interrupted_it_commits_and_goes_on),
      SET_UP(killed_at_any_time_it_goes_on),
      SET_UP(what_is_not_learned_is_not_reported_as_trained),
      SET_UP(a_pool_that_learns_all_says_nothing_else),
      SET_UP(eval_matrix_names_both_definitions),
      SET_UP(files_in_another_order_than_they_were_trained_are_refused),
      SET_UP(bad_requests_are_distinguished),
      SET_UP(a_daemon_on_the_pool_is_respected),
      SET_UP(losses_of_another_run_are_not_reported_as_this_ones))
