// `reef train` as a user runs it: the bits of the daemon, also after interruptions, and a document
// that says what separate evaluations say.
#include "cli.h"
#include "cli_format.h"
#include "program.h"
#include "reef_clock.h"
#include "reefd_run.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WORD_BYTES 12000
#define FIGURE_BYTES 8000
#define HELD_BYTES 1500
#define PART_BYTES 4096 // of the second file, at which is measured too
#define ARGUMENTS_MAX 40
#define KILLS_FEW 4
#define KILLS_MANY 60
#define AWAIT_MS_MAX 60000

// Two domains, held-out text of both, and a tiny pool.
typedef struct world {
    sandbox box;
    char *words, *figures, *part, *held_words, *held_figures, *results;
} world;

static char *path_in(const world *w, const char *name) {
    return reef_cli_format("%s/%s", w->box.directory, name);
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
    w->results = path_in(w, "results.json");
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
    free(w->results);
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
    program_release(&p);
    return document;
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
    program_release(&p);
}

// The whole stream with both domains measured.
static json_t *train_all(const world *w, const char *results) {
    char *words = reef_cli_format("words=%s", w->held_words);
    char *figures = reef_cli_format("figures=%s", w->held_figures);
    json_t *document = reef_json("train", w->box.pool, w->words, w->figures, "--eval", words,
                                 "--eval", figures, "--eval-at", "4K", "--cost-repeats", "1",
                                 results != NULL ? "--results" : NULL, results, NULL);
    free(words);
    free(figures);
    return document;
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

// What `reef eval` says of both held-out texts, to the bit.
static void expect_bits(const world *w, const char *as_of, double words, double figures) {
    json_t *document = reef_json("eval", "--pool", w->box.pool, "--as-of", as_of, w->held_words,
                                 w->held_figures, NULL);
    const json_t *files = json_object_get(document, "files");
    const double expected[] = {words, figures};
    for (size_t j = 0; j < 2; j++) {
        const json_t *bits = json_object_get(json_array_get(files, j), "bits_per_byte");
        if (json_real_value(bits) != expected[j])
            fail_msg("as of %s: %.17g, but training said %.17g", as_of, json_real_value(bits),
                     expected[j]);
    }
    json_decref(document);
}

// ---- the same bits ------------------------------------------------------------------------------

static void train_ends_with_the_daemons_root(void **state) {
    world *w = *state;
    json_t *document = train_all(w, NULL);
    assert_true(json_is_true(json_object_get(document, "finished")));
    char *root = reef_cli_format("%s", root_of(document));
    assert_int_equal(pool_generations(&w->box), 2); // or nothing was sealed, and less is compared
    pool_check(&w->box);
    json_decref(document);

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
    json_t *again = train_all(w, NULL);
    assert_string_equal(root_of(again), root);
    json_decref(again);
    free(root);
    free(first);
    free(second);
}

static void start_train(const world *w, pid_t *child, const char *out) {
    char *words = reef_cli_format("words=%s", w->held_words);
    char *figures = reef_cli_format("figures=%s", w->held_figures);
    const char *argv[] = {REEF_BINARY, "train",     w->box.pool,      w->words, w->figures,
                          "--eval",    words,       "--eval",         figures,  "--eval-at",
                          "4K",        "--json",    "--commit-steps", "5",      "--cost-repeats",
                          "1",         "--results", w->results,       NULL};
    *child = fork();
    assert_true(*child >= 0);
    if (*child == 0) {
        int file = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int none = open("/dev/null", O_WRONLY);
        if (file < 0 || dup2(file, STDOUT_FILENO) < 0 || dup2(none, STDERR_FILENO) < 0) _exit(126);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    free(words);
    free(figures);
}

static void await_file(const char *path, pid_t child) {
    for (unsigned waited = 0; access(path, F_OK) != 0; waited++) {
        assert_true(waited < AWAIT_MS_MAX);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0); // it is alive
        sleep_ms(1);
    }
}

static void interrupted_it_commits_and_goes_on(void **state) {
    world *w = *state;
    json_t *whole = train_all(w, NULL);
    sandbox_make_pool(&w->box);
    char *out = path_in(w, "out.json");
    pid_t child;
    start_train(w, &child, out);
    await_file(w->results, child); // the first measurement is made, training begins
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

    json_t *rest = train_all(w, w->results);
    assert_string_equal(root_of(rest), root_of(whole));
    assert_true(json_equal(json_object_get(rest, "matrix"), json_object_get(whole, "matrix")));
    json_decref(stopped);
    json_decref(rest);
    json_decref(whole);
    free(out);
}

static void killed_at_any_time_it_goes_on(void **state) {
    world *w = *state;
    double began = reef_seconds();
    json_t *whole = train_all(w, NULL);
    unsigned whole_ms = (unsigned)(1000 * (reef_seconds() - began)) + 2;
    uint64_t seed = 7;
    char *out = path_in(w, "out.json");
    for (size_t kills = test_effort(KILLS_FEW, KILLS_MANY), i = 0; i < kills; i++) {
        sandbox_make_pool(&w->box);
        (void)unlink(w->results);
        for (size_t lives = 0; lives < 3; lives++) {
            pid_t child;
            start_train(w, &child, out);
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sleep_ms((unsigned)(seed >> 33) % whole_ms);
            assert_int_equal(kill(child, SIGKILL), 0);
            assert_int_equal(waitpid(child, NULL, 0), child);
        }
        json_t *rest = train_all(w, w->results);
        assert_string_equal(root_of(rest), root_of(whole));
        if (!json_equal(json_object_get(rest, "matrix"), json_object_get(whole, "matrix")) ||
            !json_equal(json_object_get(rest, "boundaries"), json_object_get(whole, "boundaries")))
            fail_msg("after kill %zu the measurements differ", i);
        json_decref(rest);
    }
    json_decref(whole);
    free(out);
}

// ---- what was measured --------------------------------------------------------------------------

static void rows_are_what_separate_evaluations_say(void **state) {
    world *w = *state;
    json_t *whole = train_all(w, NULL);
    sandbox_make_pool(&w->box);
    expect_bits(w, "now", matrix_value(whole, 0, 0), matrix_value(whole, 0, 1));
    json_decref(reef_json("train", w->box.pool, w->words, NULL));
    expect_bits(w, "now", matrix_value(whole, 1, 0), matrix_value(whole, 1, 1));
    // Going on without what was measured: what the pool is beyond is not made up, the rest is
    // there.
    json_t *rest = train_all(w, NULL);
    const json_t *first = json_array_get(json_object_get(rest, "matrix"), 0);
    assert_true(json_is_null(json_array_get(first, 0)));
    assert_true(matrix_value(rest, 1, 0) == matrix_value(whole, 1, 0));
    json_decref(rest);
    expect_bits(w, "now", matrix_value(whole, 2, 0), matrix_value(whole, 2, 1));

    const json_t *sealed =
        json_array_get(json_object_get(json_object_get(whole, "measured"), "sealed"), 0);
    const json_t *then = json_object_get(sealed, "then");
    assert_true(json_equal(then, json_object_get(sealed, "now")));
    expect_bits(w, "0", json_real_value(json_array_get(then, 0)),
                json_real_value(json_array_get(then, 1)));
    assert_true(json_real_value(json_object_get(whole, "asof_forgetting")) == 0);
    json_decref(whole);
}

// The point inside the second file is the state of a pool that has seen no more than that.
static void points_inside_a_file_are_states_of_their_own(void **state) {
    world *w = *state;
    json_t *whole = train_all(w, NULL);
    const json_t *points = json_object_get(json_object_get(whole, "measured"), "points");
    const json_t *point = json_array_get(points, 3); // before, 4K, after words, 4K, after figures
    assert_string_equal(json_string_value(json_object_get(point, "kind")), "transient");
    assert_int_equal(json_integer_value(json_object_get(point, "at")), WORD_BYTES + PART_BYTES);
    const json_t *values = json_object_get(point, "values");
    sandbox_make_pool(&w->box);
    json_decref(reef_json("train", w->box.pool, w->words, w->part, NULL));
    expect_bits(w, "now", json_real_value(json_array_get(values, 0)),
                json_real_value(json_array_get(values, 1)));
    double gap = fmax(json_real_value(json_array_get(values, 0)), matrix_value(whole, 2, 0)) -
                 matrix_value(whole, 1, 0);
    const json_t *worst = json_object_get(json_object_get(whole, "figures"), "stability_gap_worst");
    assert_true(fabs(json_real_value(worst) - gap) < 1e-12);
    json_decref(whole);
}

static void boundaries_and_losses_are_placed_in_the_files(void **state) {
    world *w = *state;
    json_t *whole = train_all(w, NULL);
    const json_t *boundaries = json_object_get(whole, "boundaries");
    assert_int_equal(json_array_size(boundaries), 1);
    const json_t *one = json_array_get(boundaries, 0);
    json_int_t position = json_integer_value(json_object_get(one, "position"));
    assert_int_equal(json_integer_value(json_object_get(one, "file")), 1);
    assert_int_equal(json_integer_value(json_object_get(one, "offset")), position - WORD_BYTES);
    json_t *generations = reef_json("generations", w->box.pool, NULL);
    const json_t *second = json_array_get(json_object_get(generations, "generations"), 1);
    assert_int_equal(json_integer_value(json_object_get(second, "opened_at")), position);
    // Row by row the loss before training, which is above what was learned in the end.
    const json_t *before = json_object_get(whole, "prequential");
    for (size_t j = 0; j < 2; j++) {
        double loss = json_real_value(json_array_get(before, j));
        assert_true(loss > matrix_value(whole, j + 1, j) && loss < 10);
    }
    double forgotten =
        json_real_value(json_object_get(json_object_get(whole, "figures"), "forgetting_learned"));
    assert_true(fabs(forgotten - (matrix_value(whole, 2, 0) - matrix_value(whole, 1, 0))) < 1e-12);
    assert_true(json_real_value(json_object_get(whole, "cost_ratio")) > 0);
    assert_true(json_integer_value(json_object_get(whole, "optimiser_bytes")) > 0);
    json_decref(generations);
    json_decref(whole);
}

// Of many batches the older ones are kept as means of several, and count as several.
static void the_loss_of_a_file_stays_when_more_is_read(void **state) {
    world *w = *state;
    char *pool = path_in(w, "many"), *text = path_in(w, "text");
    write_text(text, 8 * (REEF_SERIES_POINTS_MAX - 20), 5);
    json_decref(reef_json("init", pool, "--context-memory", "0", "--layers", "1", "--d-model", "8",
                          "--attention-heads", "1", "--context", "8", "--batch", "1", "--rehearse",
                          "0", "--heads", "1", "--topk", "1", "--d-key", "4", "--side", "2",
                          "--boundaries", "given", NULL));
    json_t *one = reef_json("train", pool, text, "--commit-steps", "0", "--threads", "1", NULL);
    json_t *both =
        reef_json("train", pool, text, w->words, "--commit-steps", "0", "--threads", "1", NULL);
    double first = json_real_value(json_array_get(json_object_get(one, "prequential"), 0));
    double again = json_real_value(json_array_get(json_object_get(both, "prequential"), 0));
    assert_true(first > 0 && fabs(first - again) < 0.005);
    json_t *plot = reef_json("plot", "loss", pool, NULL), *point;
    json_int_t batches = 0;
    size_t i;
    json_array_foreach(json_object_get(plot, "points"), i, point) batches +=
        json_integer_value(json_object_get(point, "batches"));
    assert_int_equal(batches, json_integer_value(json_object_get(both, "steps")));
    assert_true(json_array_size(json_object_get(plot, "points")) < (size_t)batches);
    json_decref(one);
    json_decref(both);
    json_decref(plot);
    free(pool);
    free(text);
}

static char *said(const char *command, const char *pool, const char *file) {
    const char *argv[] = {REEF_BINARY, command, pool, file, NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("reef %s: exit %d: %s", command, p.code, p.err);
    char *text = reef_cli_format("%s", p.out);
    program_release(&p);
    return text;
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
        json_decref(train);
        json_decref(status);
        free(pool);
    }
    free(text);
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
    free(words);
    words = said("status", pool, NULL);
    expect(words, "trained       ", dealt_with - recognised, "bytes\n");
    expect(words, "recognised    ", recognised, "bytes of older domains or at marker lines");
    free(words);
    json_decref(before);
    json_decref(after);
    free(pool);
    free(text);
}

static void other_files_of_the_pool_are_not_taken_for_these(void **state) {
    world *w = *state;
    json_decref(reef_json("train", w->box.pool, w->part, NULL));
    // Behind others: the file is placed, and taken up with its results it stays so.
    json_t *first = reef_json("train", w->box.pool, w->words, "--results", w->results, NULL);
    const json_t *loss = json_array_get(json_object_get(first, "prequential"), 0);
    assert_true(json_real_value(loss) > 0);
    json_t *again = reef_json("train", w->box.pool, w->words, "--results", w->results, NULL);
    assert_true(
        json_equal(json_object_get(again, "prequential"), json_object_get(first, "prequential")));
    assert_true(
        json_equal(json_object_get(again, "boundaries"), json_object_get(first, "boundaries")));
    json_decref(again);
    // With others behind it too nothing says where it lies; what comes now does.
    json_decref(reef_json("train", w->box.pool, w->figures, NULL));
    for (int results = 0; results < 2; results++) {
        again = reef_json("train", w->box.pool, w->words, results ? "--results" : NULL, w->results,
                          NULL);
        assert_true(json_is_null(json_array_get(json_object_get(again, "prequential"), 0)));
        assert_int_equal(json_array_size(json_object_get(again, "boundaries")), 0);
        json_decref(again);
    }
    again = reef_json("train", w->box.pool, w->words, w->held_words, NULL);
    const json_t *losses = json_object_get(again, "prequential");
    assert_true(json_is_null(json_array_get(losses, 0)));
    assert_true(json_real_value(json_array_get(losses, 1)) > 0);
    json_decref(again);
    json_decref(first);
}

// ---- vectors ------------------------------------------------------------------------------------

// Points of two classes around centres of their own, the label last.
static void write_points(const char *path, int first_class, size_t count, uint64_t seed) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i < count; i++) {
        int label = first_class + (int)(i % 2);
        for (int d = 0; d < 4; d++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            double noise = (double)(seed >> 33) / 0x80000000u;
            fprintf(file, "%.4f,", (d == label ? 3 : 0) + noise);
        }
        fprintf(file, "%d\n", label);
    }
    assert_int_equal(fclose(file), 0);
}

static void vectors_are_trained_and_measured_alike(void **state) {
    world *w = *state;
    char *first = path_in(w, "first.csv"), *second = path_in(w, "second.csv");
    write_points(first, 0, 300, 1);
    write_points(second, 2, 300, 2);
    char *specs[] = {reef_cli_format("csv:%s", first), reef_cli_format("csv:%s", second)};
    char *evals[] = {reef_cli_format("a=%s", specs[0]), reef_cli_format("b=%s", specs[1])};
    sandbox_remove_pool(&w->box);
    json_decref(
        reef_json("init", w->box.pool, "--model", "vector", "--inputs", "4", "--side", "8", NULL));
    json_t *document = reef_json("train", w->box.pool, specs[0], specs[1], "--eval", evals[0],
                                 "--eval", evals[1], "--cost-repeats", "1", NULL);
    assert_string_equal(json_string_value(json_object_get(document, "measure")), "accuracy");
    double old = matrix_value(document, 2, 0), now = matrix_value(document, 2, 1);
    assert_true(old > 0.8 && now > 0.8);            // chance is a quarter
    assert_true(matrix_value(document, 1, 1) == 0); // classes that were never shown before
    assert_true(matrix_value(document, 0, 0) == 0);
    json_t *answer = reef_json("eval", "--pool", w->box.pool, specs[0], NULL);
    const json_t *file = json_array_get(json_object_get(answer, "files"), 0);
    assert_true(json_real_value(json_object_get(file, "accuracy")) == old);
    json_decref(answer);
    char *root = reef_cli_format("%s", root_of(document));
    json_decref(document);

    sandbox_remove_pool(&w->box);
    json_decref(
        reef_json("init", w->box.pool, "--model", "vector", "--inputs", "4", "--side", "8", NULL));
    reef_fails(64, "is text, but the pool has", "train", w->box.pool, w->words, NULL);
    const char *arguments[] = {"--pool",   w->box.pool, "--source", specs[0],
                               "--source", specs[1],    NULL};
    assert_int_equal(reefd_run(&w->box, -1, arguments), 0);
    char daemon[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(pool_commit(&w->box).root, daemon);
    assert_string_equal(root, daemon);
    for (size_t i = 0; i < 2; i++) {
        free(specs[i]);
        free(evals[i]);
    }
    free(root);
    free(first);
    free(second);
}

// ---- other commands that read it ----------------------------------------------------------------

static void eval_matrix_names_both_definitions(void **state) {
    world *w = *state;
    json_decref(train_all(w, NULL));
    json_t *document =
        reef_json("eval", "--pool", w->box.pool, "--matrix", w->held_words, w->held_figures, NULL);
    double now = matrix_value(document, 2, 0), then = matrix_value(document, 0, 0);
    const json_t *learned = json_array_get(json_object_get(document, "forgetting_learned"), 0);
    const json_t *most = json_array_get(json_object_get(document, "forgetting"), 0);
    assert_true(fabs(json_real_value(learned) - (now - then)) < 1e-12);
    assert_true(json_real_value(most) >= json_real_value(learned) - 1e-12);
    json_decref(document);
    // Told that the first text was learned in generation 1, there is nothing after it to forget.
    document = reef_json("eval", "--pool", w->box.pool, "--matrix", "--learned", "1,0",
                         w->held_words, w->held_figures, NULL);
    learned = json_array_get(json_object_get(document, "forgetting_learned"), 0);
    assert_true(json_real_value(learned) == 0);
    json_decref(document);
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
    json_t *first = reef_json("train", pool, w->words, w->figures, NULL);
    reef_fails(64, says, "train", pool, w->figures, w->words, NULL);
    reef_fails(64, says, "train", pool, w->held_words, w->figures, w->words, NULL);
    json_t *again = reef_json("train", pool, w->words, empty, w->figures, NULL);
    assert_true(json_equal(json_array_get(json_object_get(again, "prequential"), 2),
                           json_array_get(json_object_get(first, "prequential"), 1)));
    json_decref(again);
    again = reef_json("train", pool, w->words, w->figures, w->held_words, NULL);
    assert_true(
        json_equal(json_object_get(again, "boundaries"), json_object_get(first, "boundaries")));
    json_decref(again);
    json_decref(first);
    free(empty);
}

static void bad_requests_are_distinguished(void **state) {
    world *w = *state;
    const char *pool = w->box.pool;
    char *eval = reef_cli_format("a=%s", w->held_words), *empty = path_in(w, "empty");
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
    reef_fails(64, "must be NAME=FILE", "train", pool, w->words, "--eval", "a", NULL);
    reef_fails(64, "--eval a is given twice", "train", pool, w->words, "--eval", eval, "--eval",
               eval, NULL);
    reef_fails(64, "rising numbers of bytes", "train", pool, w->words, "--eval-at", "8K,4K", NULL);
    reef_fails(64, "rising numbers of bytes", "train", pool, w->words, "--eval-at", "soon", NULL);
    reef_fails(64, "--commit-steps is '-1'", "train", pool, w->words, "--commit-steps", "-1", NULL);
    json_decref(reef_json("train", pool, w->words, NULL));
    reef_fails(64, "give the files in the order", "train", pool, w->figures, w->words, NULL);
    write_text(w->words, WORD_BYTES / 2, 1);
    reef_fails(65, "it shrank or was replaced", "train", pool, w->words, NULL);
    free(eval);
    free(empty);
}

static void results_that_cannot_be_written_are_reported_before_anything_is_trained(void **state) {
    world *w = *state;
    char *missing = path_in(w, "missing/results.json"), *file = path_in(w, "words/results.json");
    const char *paths[] = {missing, file, "/missing.json/", ""};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        for (int dry = 0; dry < 2; dry++)
            reef_fails(74, "cannot write", "train", w->box.pool, w->words, "--results", paths[i],
                       dry ? "--dry-run" : NULL, NULL);
    assert_true(pool_commit(&w->box).stream_bytes == 0);
    free(missing);
    free(file);
}

static void results_of_another_run_are_refused(void **state) {
    world *w = *state;
    json_decref(train_all(w, w->results));
    char *eval = reef_cli_format("words=%s", w->held_words);
    reef_fails(64, "is of other files, domains or --eval-at", "train", w->box.pool, w->words,
               "--eval", eval, "--results", w->results, NULL);
    reef_fails(64, "holds no results of reef train: line 1", "train", w->box.pool, w->words,
               "--eval", eval, "--results", w->held_words, NULL);
    free(eval);
}

static void results_that_are_too_large_are_refused(void **state) {
    world *w = *state;
    char *eval = reef_cli_format("words=%s", w->held_words);
    // A sparse file: a byte more than the bound, on disk nothing.
    json_decref(train_all(w, w->results));
    assert_int_equal(truncate(w->results, ((off_t)1 << 28) + 1), 0);
    reef_fails(64, "holds no results of reef train: it is larger than 268435456 bytes", "train",
               w->box.pool, w->words, "--eval", eval, "--results", w->results, NULL);
    free(eval);
}

static json_t *train_measured(const world *w, const char *pool) {
    char *eval = reef_cli_format("words=%s", w->held_words);
    json_t *document =
        reef_json("train", pool, w->words, "--eval", eval, "--results", w->results, NULL);
    free(eval);
    return document;
}

static void results_are_refused(const world *w, const char *pool, const char *says) {
    char *eval = reef_cli_format("words=%s", w->held_words);
    for (int dry = 0; dry < 2; dry++)
        reef_fails(64, says, "train", pool, w->words, "--eval", eval, "--results", w->results,
                   dry ? "--dry-run" : NULL, NULL);
    free(eval);
}

// As they were before results recorded their pool.
static void make_results_old(const world *w) {
    json_t *document = json_load_file(w->results, 0, NULL);
    json_t *measured = json_object_get(document, "measured");
    assert_int_equal(json_object_del(measured, "pool_unix_ms"), 0);
    assert_int_equal(json_dump_file(document, w->results, 0), 0);
    json_decref(document);
}

// The measurements of another pool are not its own, though files and domains are the same, and it
// may have read as far.
static void results_of_another_pool_are_refused(void **state) {
    world *w = *state;
    char *another = path_in(w, "another"), *copy = path_in(w, "copy");
    sandbox box = w->box;
    snprintf(box.pool, sizeof(box.pool), "%s", another);
    sandbox_make_pool(&box);
    json_t *first = train_measured(w, w->box.pool);
    results_are_refused(w, another, "was measured on another pool; choose another --results");
    make_results_old(w);
    results_are_refused(
        w, another, ", and this pool has read 0: it is of another pool; choose another --results");
    // Its own are taken up as before, and those of a copy.
    json_decref(train_measured(w, w->box.pool));
    json_decref(reef_json("export", "pool", w->box.pool, copy, NULL));
    json_t *again = train_measured(w, copy);
    assert_true(json_equal(json_object_get(again, "matrix"), json_object_get(first, "matrix")));
    json_decref(again);
    // It has read as much of the same file, but began elsewhere.
    json_decref(reef_json("train", another, w->part, w->words, NULL));
    results_are_refused(w, another, "was measured on another pool; choose another --results");
    make_results_old(w);
    results_are_refused(w, another, "was measured on another pool; choose another --results");
    json_decref(train_measured(w, w->box.pool));
    json_decref(first);
    free(another);
    free(copy);
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

static const json_t *loss_of_file(const json_t *document, size_t file) {
    return json_array_get(json_object_get(document, "prequential"), file);
}

static bool last_loss_is_known(const world *w) {
    json_t *status = reef_json("status", w->box.pool, NULL);
    const json_t *last = json_object_get(status, "last_bits_per_byte");
    assert_non_null(last);
    bool known = json_is_number(last);
    json_decref(status);
    return known;
}

// The pool learns figures after two files of words, goes back, learns something else, and goes to
// the figures again. Points of the loss that were removed on the way back are not known then; those
// of the other run are not theirs. Of the second file the last batch is not trained as of the
// snapshot: it waits for what comes next.
static void losses_of_another_run_are_not_reported_as_this_ones(void **state) {
    world *w = *state;
    const char *pool = w->box.pool;
    json_decref(reef_json("train", pool, w->words, w->held_words, NULL));
    json_decref(reef_json("snapshot", "create", pool, "words", NULL));
    json_t *first = reef_json("train", pool, w->words, w->held_words, w->figures, NULL);
    assert_true(last_loss_is_known(w));
    back_to(w, "words");
    assert_true(last_loss_is_known(w)); // that of the words
    json_t *other = reef_json("train", pool, w->words, w->held_words, w->part, NULL);
    assert_true(json_is_real(loss_of_file(other, 1)));
    assert_true(json_is_real(loss_of_file(other, 2)));
    assert_true(last_loss_is_known(w));
    back_to(w, "before-restore");
    assert_false(last_loss_is_known(w));

    json_t *again = reef_json("train", pool, w->words, w->held_words, w->figures, NULL);
    assert_string_equal(root_of(again), root_of(first));
    assert_true(json_is_real(loss_of_file(again, 0)));
    assert_true(json_equal(loss_of_file(again, 0), loss_of_file(first, 0)));
    assert_true(json_is_null(loss_of_file(again, 1)));
    assert_true(json_is_null(loss_of_file(again, 2)));
    json_decref(again);
    again = reef_json("train", pool, w->words, w->held_words, w->figures, w->held_figures, NULL);
    assert_true(json_is_null(loss_of_file(again, 2)));
    assert_true(json_is_real(loss_of_file(again, 3)));
    assert_true(last_loss_is_known(w));
    json_decref(again);
    json_decref(other);
    json_decref(first);
    pool_check(&w->box);
}

static void undone_boundaries_are_none_of_the_present_stream(void **state) {
    world *w = *state;
    const char *pool = w->box.pool;
    json_t *before = reef_json("train", pool, w->words, NULL);
    json_decref(reef_json("snapshot", "create", pool, "words", NULL));
    json_decref(reef_json("train", pool, w->words, w->held_words, NULL));
    json_decref(reef_json("seal", pool, NULL)); // opens a generation behind both
    back_to(w, "words");
    json_t *after = reef_json("train", pool, w->words, NULL);
    assert_true(
        json_equal(json_object_get(after, "boundaries"), json_object_get(before, "boundaries")));
    json_decref(before);
    json_decref(after);
    back_to(w, "before-restore");
    after = reef_json("train", pool, w->words, w->held_words, NULL);
    const json_t *boundaries = json_object_get(after, "boundaries"),
                 *last = json_array_get(boundaries, json_array_size(boundaries) - 1);
    assert_string_equal(json_string_value(json_object_get(last, "reason")), "command");
    json_decref(after);
}

int main(void) {
#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        EACH(train_ends_with_the_daemons_root),
        EACH(interrupted_it_commits_and_goes_on),
        EACH(killed_at_any_time_it_goes_on),
        EACH(rows_are_what_separate_evaluations_say),
        EACH(points_inside_a_file_are_states_of_their_own),
        EACH(boundaries_and_losses_are_placed_in_the_files),
        EACH(the_loss_of_a_file_stays_when_more_is_read),
        EACH(what_is_not_learned_is_not_reported_as_trained),
        EACH(a_pool_that_learns_all_says_nothing_else),
        EACH(other_files_of_the_pool_are_not_taken_for_these),
        EACH(vectors_are_trained_and_measured_alike),
        EACH(eval_matrix_names_both_definitions),
        EACH(files_in_another_order_than_they_were_trained_are_refused),
        EACH(bad_requests_are_distinguished),
        EACH(results_that_cannot_be_written_are_reported_before_anything_is_trained),
        EACH(results_of_another_run_are_refused),
        EACH(results_that_are_too_large_are_refused),
        EACH(results_of_another_pool_are_refused),
        EACH(a_daemon_on_the_pool_is_respected),
        EACH(losses_of_another_run_are_not_reported_as_this_ones),
        EACH(undone_boundaries_are_none_of_the_present_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
