// reef score --follow: real files that grow, are renamed, cut and rotated by logrotate while a real
// process reads them, and scores that are those of the model.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): POSIX owns the name.
#define _XOPEN_SOURCE 700 // a terminal of the test's own

#include "cli_format.h"
#include "reef_system.h"
#include "score_parts.h"
#include "tools_world.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_SECONDS 60
#define PIECE 8 // half of the context of TINY_OPTIONS
#define TEXT_MAX 4096

// ---- a watcher in the background ----------------------------------------------------------------

typedef struct watcher {
    char *log, *out, *err;
    pid_t pid;
} watcher;

static char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = reef_cli_alloc(1 << 20, 1);
    assert_non_null(file);
    (void)!fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return keep(text);
}

static int open_new(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    return fd;
}

static void append(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

// Follow a log of this name, whose text so far is `text`.
static void start(
    watcher *f, const world *w, const char *name, const char *text, const char *last) {
    *f = (watcher){.log = path_in(w->directory, name),
                   .out = formatted("%s/%s.out", w->directory, name),
                   .err = formatted("%s/%s.err", w->directory, name)};
    int out = open_new(f->out), err = open_new(f->err);
    write_file(f->log, text);
    const char *argv[] = {REEF_BINARY, "score", w->pool,     "--follow", f->log, "--json",
                          "--last",    last,    "--threads", "1",        NULL};
    f->pid = fork();
    assert_true(f->pid >= 0);
    if (f->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // a test that fails leaves no process behind
        if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) _exit(126);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(out);
    close(err);
}

static void wait_a_moment(const watcher *f, double deadline, const char *what) {
    if (reef_seconds() > deadline) fail_msg("%s: not in %d s", what, DEADLINE_SECONDS);
    assert_int_equal(waitpid(f->pid, NULL, WNOHANG), 0); // it is alive
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static size_t lines_out(const watcher *f) {
    char *text = read_text(f->out);
    size_t count = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) count++;
    return count;
}

static void wait_for_lines(const watcher *f, size_t count) {
    double deadline = reef_seconds() + DEADLINE_SECONDS;
    while (lines_out(f) < count) wait_a_moment(f, deadline, "a line that was written is shown");
}

static void wait_for_message(const watcher *f, const char *part) {
    double deadline = reef_seconds() + DEADLINE_SECONDS;
    for (bool found = false; !found;) {
        char *text = read_text(f->err);
        found = strstr(text, part) != NULL;
        if (!found) wait_a_moment(f, deadline, part);
    }
}

// Its lines, as an array of objects; the last one is the summary.
static json_t *documents(const char *text) {
    json_t *all = keep(json_array());
    for (const char *at = text, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        assert_non_null(end);
        json_t *one = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(one);
        json_array_append_new(all, one);
    }
    return all;
}

static const char *text_of(const json_t *all, size_t i) {
    return string(json_array_get(all, i), "text");
}

static json_t *stop(watcher *f) {
    int status;
    assert_int_equal(kill(f->pid, SIGINT), 0);
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    char *text = read_text(f->out);
    json_t *all = documents(text);
    size_t count = json_array_size(all);
    assert_true(count > 0);
    const json_t *summary = json_array_get(all, count - 1);
    assert_string_equal(string(summary, "event"), "summary");
    assert_int_equal(integer(summary, "lines"), count - 1);
    return all;
}

static void expect_texts(const json_t *all, const char *const *texts, size_t count) {
    assert_int_equal(json_array_size(all), count + 1);
    for (size_t i = 0; i < count; i++) assert_string_equal(text_of(all, i), texts[i]);
}

// ---- files --------------------------------------------------------------------------------------

#define FIXTURE_TEST(name) TEST_WITH(name, NULL, NULL, void *made)

FIXTURE_TEST(a_growing_file_is_followed_line_by_line) {
    static const char *const WANTED[] = {"two", "three", "four and five", "", "six"};
    watcher f;
    start(&f, made, "growing", "one\ntwo\nthree\n", "2");
    wait_for_lines(&f, 2);
    append(f.log, "four");
    append(f.log, " and five\n\nsix\nno line y");
    wait_for_lines(&f, 5);
    json_t *all = stop(&f);
    expect_texts(all, WANTED, 5);
}

FIXTURE_TEST(a_renamed_file_is_read_to_its_end_and_then_the_new_one) {
    static const char *const WANTED[] = {"old", "late", "half", "new", "newer"};
    watcher f;
    start(&f, made, "renamed", "old\n", "1");
    wait_for_lines(&f, 1);
    char *aside = formatted("%s.1", f.log), *fresh = formatted("%s.new", f.log);
    assert_int_equal(rename(f.log, aside), 0);
    append(aside, "late\nhalf"); // its writer has not noticed yet
    wait_for_lines(&f, 2);
    write_file(fresh, "new\n");
    assert_int_equal(rename(fresh, f.log), 0);
    wait_for_lines(&f, 4);
    wait_for_message(&f, "another file");
    append(aside, "never read\n");
    append(f.log, "newer\n");
    wait_for_lines(&f, 5);
    json_t *all = stop(&f);
    expect_texts(all, WANTED, 5);
}

FIXTURE_TEST(a_file_that_is_cut_is_read_from_its_beginning) {
    static const char *const WANTED[] = {"a long first line", "half of", "again", "more"};
    watcher f;
    start(&f, made, "cut", "a long first line\nhalf of", "5");
    wait_for_lines(&f, 1);
    assert_int_equal(truncate(f.log, 0), 0);
    wait_for_message(&f, "was cut");
    append(f.log, "again\n");
    wait_for_lines(&f, 3);
    append(f.log, "more\n");
    wait_for_lines(&f, 4);
    json_t *all = stop(&f);
    expect_texts(all, WANTED, 4);
}

static void rotate(const watcher *f, const char *how) {
    char *config = formatted("%s.conf", f->log), *memory = formatted("%s.state", f->log);
    char *text = formatted("%s {\n    rotate 3\n    %s\n}\n", f->log, how);
    write_file(config, text);
    assert_int_equal(chmod(config, 0600), 0);
    const char *argv[] = {"/usr/sbin/logrotate", "-f", "-s", memory, config, NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("logrotate: %s", p.err);
}

FIXTURE_TEST(logrotate_loses_no_line) {
    static const char *const HOW[] = {"create 0600", "copytruncate"};
    if (access("/usr/sbin/logrotate", X_OK) != 0) {
        print_message("skipped: there is no logrotate\n");
        skip();
    }
    for (size_t i = 0; i < 2; i++) {
        watcher f;
        start(&f, made, i ? "copied.log" : "created.log", "line 0\n", "all");
        for (size_t n = 1; n < 12; n++) {
            char *line = formatted("line %zu\n", n);
            wait_for_lines(&f, n); // copytruncate itself loses what comes between copy and cut
            if (n % 4 == 0) rotate(&f, HOW[i]);
            append(f.log, line);
        }
        wait_for_lines(&f, 12);
        json_t *all = stop(&f);
        assert_int_equal(json_array_size(all), 13);
        for (size_t n = 0; n < 12; n++) {
            char *line = formatted("line %zu", n);
            assert_string_equal(text_of(all, n), line);
        }
    }
}

// A test inspects what is there before reading on, and asks for the end meanwhile: the line at hand
// is written whole.
WORLD_TEST(a_reader_that_waits_gets_whole_lines_and_the_end) {
    char *log = path_in(w->directory, "much"), *text = keep(reef_cli_alloc(2 * 2000 + 1, 1));
    for (size_t i = 0; i < 2000; i++) strcat(text + 2 * i, "x\n"); // shown, more than a pipe holds
    write_file(log, text);
    int ends[2], status, held = -1, before;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(ends[1], STDOUT_FILENO) < 0) _exit(126);
        close(ends[0]);
        execl(REEF_BINARY, "reef", "score", w->pool, "--follow", log, "--json", "--last", "all",
              NULL);
        _exit(127);
    }
    close(ends[1]);
    do {
        before = held;
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        assert_int_equal(ioctl(ends[0], FIONREAD, &held), 0);
    } while (held == 0 || held != before);
    assert_int_equal(kill(pid, SIGINT), 0);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    FILE *in = fdopen(ends[0], "r");
    char *shown = keep(reef_cli_alloc(1 << 20, 1));
    (void)!fread(shown, 1, (1 << 20) - 1, in);
    fclose(in);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    json_t *all = documents(shown);
    const json_t *summary = json_array_get(all, json_array_size(all) - 1);
    assert_int_equal(integer(summary, "lines"), json_array_size(all) - 1);
    assert_true(json_array_size(all) < 2000); // it was full
}

// ---- scores -------------------------------------------------------------------------------------

// Bits of bytes first .. end of a text, plainly: each byte with its own piece and the one before
// it.
static double plain_bits(reef_model *model, const char *text, size_t first, size_t end) {
    reef_error err;
    double sum = 0;
    for (size_t i = first; i < end; i++) {
        size_t piece = i / PIECE, begin = piece ? (piece - 1) * PIECE : 0;
        float bits[2 * PIECE] = {8};
        reef_score score = {0};
        if (i > 0 && reef_model_score(model, (const uint8_t *)text + begin, i + 1 - begin, bits,
                                      &score, NULL, NULL, &err) != REEF_OK)
            fail_msg("%s", err.message);
        sum += (double)bits[i - begin];
    }
    return sum;
}

// The same where memories answer, which go on from byte to byte: asked byte by byte, from the first
// to the last.
static double adapting_bits(reef_model *model, const char *text, size_t first, size_t end) {
    reef_error err;
    double sum = 0;
    for (size_t i = first; i < end; i++) {
        size_t piece = i / PIECE, begin = piece ? (piece - 1) * PIECE : 0;
        float bits;
        if (reef_model_score_next(model, (const uint8_t *)text + begin, i - begin, 1, &bits,
                                  &err) != REEF_OK)
            fail_msg("%s", err.message);
        sum += (double)bits;
    }
    return sum;
}

static void expect_scores(const world *w,
                          double (*bits_of)(reef_model *, const char *, size_t, size_t),
                          const char *text,
                          const json_t *all) {
    reef_error err;
    reef_store *store = NULL;
    reef_model *model = NULL;
    const char *at = text;
    assert_int_equal(reef_store_open(&store, w->pool, &(reef_store_options){0}, &err), REEF_OK);
    assert_int_equal(reef_model_open(&model, store, NULL, NULL, &err), REEF_OK);
    for (size_t i = 0; *at; i++) {
        const char *end = strchr(at, '\n') + 1;
        const json_t *line = json_array_get(all, i);
        double wanted = bits_of(model, text, (size_t)(at - text), (size_t)(end - text));
        assert_int_equal(integer(line, "bytes"), end - at);
        assert_true(fabs(number(line, "bits") - wanted) < 1e-6);
        assert_true(fabs(number(line, "bits_per_byte") - wanted / (double)(end - at)) < 1e-6);
        at = end;
    }
    reef_model_close(model);
    reef_store_close(store);
}

// In the context of what came before, whether lines come one by one or all at once.
static void expect_the_models_scores(
    const world *w, double (*bits_of)(reef_model *, const char *, size_t, size_t)) {
    static const char *const PARTS[] = {"a\n", "reef grows under\n", "\nthe slow water and light\n",
                                        "int i = 0;\nif (a)\nreturn x;\n"};
    watcher f;
    char text[TEXT_MAX] = "";
    size_t lines = 0;
    start(&f, w, "scores", "", "all");
    for (size_t i = 0; i < 4; i++) {
        append(f.log, PARTS[i]);
        strcat(text, PARTS[i]);
        for (const char *at = PARTS[i]; *at; at++) lines += *at == '\n';
        wait_for_lines(&f, lines);
    }
    json_t *one_by_one = stop(&f);
    expect_scores(w, bits_of, text, one_by_one);

    const char *argv[] = {REEF_BINARY, "score", w->pool, "--follow", "-", "--json", NULL};
    program p;
    program_run(&p, argv, text);
    assert_int_equal(p.code, 0);
    json_t *at_once = documents(p.out);
    assert_true(json_equal(one_by_one, at_once));
}

WORLD_TEST(scores_are_the_models) {
    expect_the_models_scores(w, adapting_bits);
    // A net alone has a context of its own at each byte.
    world net = {.directory = w->directory, .pool = path_in(w->directory, "net")};
    (void)reef_json("init", net.pool, TINY_OPTIONS, "--memory", "0", NULL);
    tiny_pool_train(net.pool);
    expect_the_models_scores(&net, plain_bits);
}

PLAIN_TEST(a_new_commit_is_read) {
    world mine = {.directory = test_directory_new()};
    mine.pool = trained_pool(&mine, "pool");
    watcher f;
    start(&f, &mine, "log", "before\n", "all");
    wait_for_lines(&f, 1);
    char *text = tiny_text("c", 1000), *more = path_in(mine.directory, "more");
    write_file(more, text);
    program p = reef("train", mine.pool, more, NULL);
    assert_int_equal(p.code, 0);
    json_t *status = reef_json("status", mine.pool, NULL);
    json_int_t newest = integer(status, "last_commit.number"), seen = 0;
    double deadline = reef_seconds() + DEADLINE_SECONDS;
    for (size_t count = 2; seen != newest; count++) {
        append(f.log, "x += 1;\n");
        wait_for_lines(&f, count);
        wait_a_moment(&f, deadline, "the newest commit is read");
        char *out = read_text(f.out);
        json_t *all = documents(out);
        seen = integer(json_array_get(all, json_array_size(all) - 1), "commit");
        assert_true(integer(all, "0.commit") < newest);
    }
    (void)stop(&f);
    test_directory_remove(mine.directory);
}

// ---- what stands out ----------------------------------------------------------------------------

// English, a line that is none, and English again.
static char *odd_text(void) {
    char *english = tiny_text("english", 1500),
         *text = formatted("%s\nQZ#%%@!\x01~^&\n%s\n", english, english);
    return text;
}

WORLD_TEST(outliers_are_marked) {
    char *text = odd_text();
    const char *argv[] = {REEF_BINARY, "score", w->pool,       "--follow", "-", "--json",
                          "--as-of",   "0",     "--threshold", "8",        NULL};
    program p;
    program_run(&p, argv, text);
    assert_int_equal(p.code, 0);
    json_t *all = documents(p.out);
    size_t marked = 0, count = json_array_size(all) - 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *line = json_array_get(all, i), *distance = json_at(line, "distance");
        bool outlier = json_is_true(json_at(line, "outlier"));
        assert_int_equal(json_is_null(distance), i < 10);
        assert_int_equal(outlier, json_number_value(distance) > 8);
        if (strncmp(text_of(all, i), "QZ#", 3) == 0) {
            assert_true(outlier);
            assert_string_equal(text_of(all, i), "QZ#%@!\\x01~^&");
        }
        marked += outlier;
    }
    assert_true(marked >= 1 && marked < count / 4);
    assert_int_equal(integer(json_array_get(all, count), "outliers"), marked);

    argv[5] = "--outliers";
    program_run(&p, argv, text);
    assert_int_equal(p.code, 0);
    assert_int_equal(line_count(p.out), marked);
    assert_non_null(strstr(p.out, "QZ#%@!\\x01~^&"));
    for (const char *at = p.out; *at; at = strchr(at, '\n') + 1) assert_int_equal(*at, '!');
    assert_non_null(strstr(p.err, "bits per byte"));
    assert_null(strchr(p.out, '\033'));
}

// Median 2, median distance 1: a surprise of 2 + 1.4826 x 3 lies 3 above.
PLAIN_TEST(distance_is_robust) {
    reef_usual usual;
    reef_usual_init(&usual, 11, 3);
    static const double VALUES[] = {2, 1, 3, 0, 4, 2, 1, 3, 1000};
    for (size_t i = 0; i < 9; i++) reef_usual_add(&usual, VALUES[i]);
    assert_true(isnan(reef_usual_distance(&usual, 5)));
    reef_usual_add(&usual, 2);
    assert_true(fabs(reef_usual_distance(&usual, 2 + 1.4826 * 3) - 3) < 1e-9);
    for (size_t i = 0; i < 11; i++) reef_usual_add(&usual, 7); // the oldest give way; no spread
    assert_true(fabs(reef_usual_distance(&usual, 7.5) - 0.5 / 0.05) < 1e-9);
    reef_usual_release(&usual);
}

static char *on_terminal(const world *w, const char *no_colour) {
    int ours = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0);
    int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY);
    char *text = odd_text(), *log = path_in(w->directory, "terminal");
    assert_true(theirs >= 0);
    write_file(log, text);
    int in = open(log, O_RDONLY);
    const char *argv[] = {REEF_BINARY,  "score",   w->pool, "--follow", "-",
                          "--outliers", "--as-of", "0",     NULL};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("TERM", "xterm", 1);
        (void)setenv("NO_COLOR", no_colour, 1);
        if (dup2(in, STDIN_FILENO) < 0 || dup2(theirs, STDOUT_FILENO) < 0) _exit(126);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(theirs);
    close(in);
    char *out = keep(reef_cli_alloc(TEXT_MAX, 1));
    for (ssize_t used = 0, got; used < TEXT_MAX - 1; used += got) {
        got = read(ours, out + used,
                   (size_t)(TEXT_MAX - 1 - used)); // EIO when the other end is closed
        if (got <= 0) break;
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(ours);
    return out;
}

FIXTURE_TEST(only_a_terminal_gets_colours_and_not_with_no_color) {
    char *out = on_terminal(made, "");
    assert_non_null(strstr(out, "\033[1;31m! "));
    assert_non_null(strstr(out, "QZ#"));
    out = on_terminal(made, "1");
    assert_null(strchr(out, '\033'));
    assert_non_null(strstr(out, "QZ#"));
}

// The lines before the last ones are read, to know what is usual, and not shown.
FIXTURE_TEST(it_knows_what_is_usual_from_the_beginning) {
    watcher f;
    char *english = tiny_text("english", 1200), *text = formatted("%s\nthe last line\n", english);
    start(&f, made, "usual", text, "1");
    wait_for_lines(&f, 1);
    append(f.log, "one more\n");
    wait_for_lines(&f, 2);
    json_t *all = stop(&f);
    assert_string_equal(text_of(all, 0), "the last line");
    assert_true(json_is_number(json_at(all, "0.distance")));
    assert_int_equal(integer(all, "0.line"), 1);
}

WORLD_TEST(what_does_not_go_together_is_refused) {
    answers(64, "--outliers", "score", w->pool, "--follow", "--top", "3", w->english, NULL);
    static const char *const ALONE[] = {"--last=3", "--window=20", "--threshold=3", "--outliers"};
    for (size_t i = 0; i < 4; i++) {
        answers(64, "goes with --follow", "score", w->pool, ALONE[i], w->english, NULL);
    }
    program p = reef("score", w->pool, "--follow", w->missing, NULL);
    assert_int_equal(p.code, 66);
    p = reef("score", w->pool, "--follow", w->directory, NULL);
    assert_int_equal(p.code, 66);
    p = reef("score", w->pool, "--follow", "--last", "some", w->english, NULL);
    assert_int_equal(p.code, 64);
}

RUN_TESTS_IN(world_make, world_remove)
