// `reef train` as a user runs it: the bits of the daemon, also after interruptions.
#include "cli_format.h"
#include "reef_system.h"
#include "reefd_run.h"
#include "tools_world.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORD_BYTES 12000
#define FIGURE_BYTES 8000
#define HELD_BYTES 1500
#define PART_BYTES 4096
#define KILLS_FEW 4
#define KILLS_MANY 60

// Two domains, held-out text of both, and a tiny pool.
typedef struct texts {
    sandbox box;
    char *words, *figures, *part, *held_words, *held_figures;
} texts;

static int setup(void **state) {
    unsetenv("REEF_POOL");
    texts *w = (texts *)sandbox_new(state, sizeof(*w));
    w->words = path_in(w->box.directory, "words");
    w->figures = path_in(w->box.directory, "figures");
    w->part = path_in(w->box.directory, "part");
    w->held_words = path_in(w->box.directory, "held_words");
    w->held_figures = path_in(w->box.directory, "held_figures");
    write_text(w->words, WORD_BYTES, 1);
    append_figures(w->figures, FIGURE_BYTES, 2);
    append_figures(w->part, PART_BYTES, 2);
    write_text(w->held_words, HELD_BYTES, 3);
    append_figures(w->held_figures, HELD_BYTES, 4);
    return 0;
}

static json_t *train_all(const texts *w) {
    return reef_json("train", w->box.pool, w->words, w->figures, NULL);
}

static const char *root_of(const json_t *document) {
    return string(document, "root");
}

// ---- the same bits ------------------------------------------------------------------------------

#define FIXTURE_TEST(name) TEST_WITH(name, setup, sandbox_teardown, texts *w)

FIXTURE_TEST(train_ends_with_the_daemons_root) {
    json_t *document = train_all(w);
    assert_true(is_true(document, "finished"));
    assert_int_equal(pool_generations(&w->box), 2); // or nothing was sealed, and less is compared
    pool_check(&w->box);

    sandbox_make_pool(&w->box);
    char *first = formatted("file:%s", w->words), *second = formatted("file:%s", w->figures);
    assert_int_equal(RUN(&w->box, "--source", first, "--source", second, "--threads", "2"), 0);
    char daemon[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(pool_commit(&w->box).root, daemon);
    assert_string_equal(root_of(document), daemon);
    // The daemon's cursors are the tool's: there is nothing left to train on.
    assert_string_equal(root_of(train_all(w)), daemon);
}

static pid_t start_train(const texts *w, const char *out) {
    const char *argv[] = {REEF_BINARY, "train",          w->box.pool, w->words, w->figures,
                          "--json",    "--commit-steps", "5",         NULL};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int file = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int none = open("/dev/null", O_WRONLY);
        if (file < 0 || dup2(file, STDOUT_FILENO) < 0 || dup2(none, STDERR_FILENO) < 0) _exit(126);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    return child;
}

FIXTURE_TEST(interrupted_it_commits_and_goes_on) {
    json_t *whole = train_all(w);
    sandbox_make_pool(&w->box);
    char *out = path_in(w->box.directory, "out.json");
    pid_t child = start_train(w, out);
    while (pool_commit(&w->box).stream_bytes == 0) {
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0); // it is alive
        sleep_ms(1);
    }
    assert_int_equal(kill(child, SIGINT), 0);
    assert_int_equal(reefd_wait(child), 0);
    json_t *stopped = json_of_text(read_text(out, NULL));
    assert_false(is_true(stopped, "finished"));
    assert_true(integer(stopped, "accepted_bytes") < WORD_BYTES + FIGURE_BYTES);
    pool_check(&w->box);
    assert_string_equal(root_of(train_all(w)), root_of(whole));
}

FIXTURE_TEST(killed_at_any_time_it_goes_on) {
    double began = reef_seconds();
    json_t *whole = train_all(w);
    unsigned whole_ms = (unsigned)(1000 * (reef_seconds() - began)) + 2;
    uint64_t seed = 7;
    char *out = path_in(w->box.directory, "out.json");
    for (size_t kills = test_effort(KILLS_FEW, KILLS_MANY), i = 0; i < kills; i++) {
        sandbox_make_pool(&w->box);
        for (size_t lives = 0; lives < 3; lives++) {
            pid_t child = start_train(w, out);
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sleep_ms((unsigned)(seed >> 33) % whole_ms);
            assert_int_equal(kill(child, SIGKILL), 0);
            assert_int_equal(waitpid(child, NULL, 0), child);
        }
        assert_string_equal(root_of(train_all(w)), root_of(whole));
    }
}

static void says(const char *command,
                 const char *pool,
                 const char *file,
                 const char *label,
                 json_int_t number,
                 const char *rest) {
    char digits[CLI_WORD_BYTES];
    answers(0, formatted("%s%s %s", label, reef_cli_count((uint64_t)number, digits), rest), command,
            pool, file, NULL);
}

// A pool that learns its whole stream has no figure of what it did not learn.
FIXTURE_TEST(a_pool_that_learns_all_says_nothing_else) {
    static const char *const MARKS[] = {"", "=== figures ==="};
    char *text = path_in(w->box.directory, "text");
    write_text(text, 3000, 5);
    for (size_t i = 0; i < 2; i++) {
        char *pool = path_in(w->box.directory, i == 0 ? "all" : "marks");
        (void)reef_json("init", pool, "--memory", "4M", "--net-share", "0", "--boundaries", "given",
                        "--boundary-mark", MARKS[i], NULL);
        json_t *train = reef_json("train", pool, text, NULL),
               *status = reef_json("status", pool, NULL);
        json_t *found[] = {json_at(train, "not_learned_bytes"),
                           json_at(status, "not_learned_bytes")};
        for (size_t k = 0; k < 2; k++) assert_int_equal(json_is_integer(found[k]), i == 1);
    }
}

FIXTURE_TEST(what_is_not_learned_is_not_reported_as_trained) {
    char *pool = path_in(w->box.directory, "marked"), *text = path_in(w->box.directory, "text");
    write_text(text, 3000, 5);
    assert_int_equal(system(formatted("printf '\\n=== figures ===\\n' >>%s", text)), 0);
    append_figures(text, 3000, 6);
    (void)reef_json("init", pool, "--memory", "0", "--layers", "1", "--d-model", "8",
                    "--attention-heads", "1", "--context", "16", "--heads", "1", "--topk", "1",
                    "--d-key", "4", "--side", "2", "--boundaries", "given", "--boundary-mark",
                    "=== figures ===", "--seed", "3", NULL);
    json_t *before = reef_json("status", pool, NULL);
    assert_int_equal(integer(before, "not_learned_bytes"), 0);
    program p = answers(0, "recognised, or lay at marker lines", "train", pool, text, NULL);
    json_t *after = reef_json("status", pool, NULL);
    json_int_t recognised = integer(after, "not_learned_bytes");
    json_int_t dealt_with = integer(after, "stream_bytes");
    assert_true(recognised > 16);
    char digits[CLI_WORD_BYTES];
    assert_non_null(strstr(
        p.out, formatted("  %s bytes of the pool's stream were recognised, or lay at marker lines",
                         reef_cli_count((uint64_t)recognised, digits))));
    says("status", pool, NULL, "trained       ", dealt_with - recognised, "bytes\n");
    says("status", pool, NULL, "recognised    ", recognised,
         "bytes of older domains or at marker lines");
}

// ---- other commands that read it ----------------------------------------------------------------

FIXTURE_TEST(eval_matrix_names_both_definitions) {
    (void)train_all(w);
    json_t *document =
        reef_json("eval", "--pool", w->box.pool, "--matrix", w->held_words, w->held_figures, NULL);
    double learned = number(document, "forgetting_learned.0");
    assert_true(fabs(learned - (number(document, "matrix.2.0") - number(document, "matrix.0.0"))) <
                1e-12);
    assert_true(number(document, "forgetting.0") >= learned - 1e-12);
    // Told that the first text was learned in generation 1, there is nothing after it to forget.
    document = reef_json("eval", "--pool", w->box.pool, "--matrix", "--learned", "1,0",
                         w->held_words, w->held_figures, NULL);
    assert_true(number(document, "forgetting_learned.0") == 0);
    answers(64, "--learned is '0,2', but must be one generation, 0 to 1, for each of 2 files",
            "eval", "--pool", w->box.pool, "--matrix", "--learned", "0,2", w->held_words,
            w->held_figures, NULL);
    answers(64, "it needs --matrix", "eval", "--pool", w->box.pool, "--learned", "0", w->held_words,
            NULL);
}

// ---- what goes wrong ----------------------------------------------------------------------------

// All of both was read, so cursors do not show it, but the pool's sources are in the order of their
// reading. A file that is new, or empty, changes nothing of that.
FIXTURE_TEST(files_in_another_order_than_they_were_trained_are_refused) {
    const char *pool = w->box.pool,
               *says = "give the files in the order in which they were trained";
    char *empty = path_in(w->box.directory, "empty");
    write_text(empty, 0, 1);
    (void)reef_json("train", pool, w->words, w->figures, NULL);
    answers(64, says, "train", pool, w->figures, w->words, NULL);
    answers(64, says, "train", pool, w->held_words, w->figures, w->words, NULL);
    (void)reef_json("train", pool, w->words, empty, w->figures, NULL);
    (void)reef_json("train", pool, w->words, w->figures, w->held_words, NULL);
}

FIXTURE_TEST(bad_requests_are_distinguished) {
    const char *pool = w->box.pool;
    char *empty = path_in(w->box.directory, "empty");
    write_text(empty, 0, 1);
    answers(66, "check the path", "train", pool, "/nowhere/at/all", NULL);
    answers(64, "standard input cannot be read again", "train", pool, "-", NULL);
    answers(64, "for reef train the shell does: give *.txt without quotes", "train", pool,
            "glob:*.txt", NULL);
    answers(64, "a source follow: has no end: give files", "train", pool, "follow:x", NULL);
    answers(64, "a source dir: has no end: give files", "train", pool, "dir:/nowhere", NULL);
    answers(64, "a source push: has no end: give files", "train", pool, "push:x", NULL);
    answers(64, "a source redis: has no end: give files", "train", pool,
            "redis://:secret@localhost/x", NULL);
    answers(64, "is given twice", "train", pool, w->words, w->words, NULL);
    answers(66, "the stream is empty", "train", pool, empty, NULL);
    answers(64, "--commit-steps is '-1'", "train", pool, w->words, "--commit-steps", "-1", NULL);
    (void)reef_json("train", pool, w->words, NULL);
    answers(64, "give the files in the order", "train", pool, w->figures, w->words, NULL);
    write_text(w->words, WORD_BYTES / 2, 1);
    answers(65, "it shrank or was replaced", "train", pool, w->words, NULL);
}

FIXTURE_TEST(a_daemon_on_the_pool_is_respected) {
    START(&w->box, "--source", "-", "--stay");
    answers(75, "is already open for writing by process", "train", w->box.pool, w->words, NULL);
    reefd_end(&w->box);
}

// ---- after a restore ----------------------------------------------------------------------------

static void back_to(const texts *w, const char *snapshot) {
    (void)reef_json("snapshot", "restore", w->box.pool, snapshot, "--in-place", "--yes", NULL);
}

static bool last_loss_is_known(const texts *w) {
    return !is_null(reef_json("status", w->box.pool, NULL), "last_bits_per_byte");
}

// The pool learns figures after words, goes back, learns something else, and goes to the figures
// again. Points of the loss that were removed on the way back are not known then.
FIXTURE_TEST(losses_of_another_run_are_not_reported_as_this_ones) {
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
    (void)reef_json("train", pool, w->words, w->held_words, w->figures, w->held_figures, NULL);
    assert_true(last_loss_is_known(w));
    pool_check(&w->box);
}

RUN_TESTS
