// reef score by lines and by sessions, and with reasons.
#include "tools_world.h"

#include <math.h>
#include <unistd.h>

#define LOG_LINES 1500
#define LOG_BYTES ((size_t)LOG_LINES * 80)

typedef struct logs {
    world *w;
    char *pool;    // with a context memory, which learned `learned`
    char *learned; // a log
    char *fresh;   // more of it, and some lines of another kind
    char *unmade;  // a pool that has learned nothing
} logs;

static uint32_t draw(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

// Requests of sessions; of every fifth line one of another kind where that is asked for.
static void write_log(const char *path, size_t lines, uint32_t seed, bool strange) {
    static const char *const VERBS[] = {"get", "put", "list"};
    static const char *const NAMES[] = {"users", "orders", "carts", "prices"};
    char *text = reef_cli_alloc(LOG_BYTES, 1), *to = text;
    for (size_t i = 0; i < lines; i++) {
        uint32_t session = draw(&seed, 40);
        if (strange && i % 50 == 7)
            to += sprintf(to, "KERNEL PANIC %x: r%u not in fstab\n", draw(&seed, 9999), session);
        else
            to += sprintf(to, "app[%u] r%u %s /%s took %u ms\n", draw(&seed, 9), session,
                          VERBS[draw(&seed, 3)], NAMES[draw(&seed, 4)], draw(&seed, 60));
    }
    write_file(path, text);
    free(text);
}

static int logs_make(void **state) {
    logs *l = keep(reef_cli_alloc(1, sizeof(*l)));
    void *made = NULL;
    if (world_make(&made) != 0) return 1;
    l->w = made;
    l->pool = path_in(l->w->directory, "logs");
    l->learned = path_in(l->w->directory, "learned.log");
    l->fresh = path_in(l->w->directory, "fresh.log");
    l->unmade = path_in(l->w->directory, "unmade");
    write_log(l->learned, LOG_LINES, 1, false);
    write_log(l->fresh, 200, 2, true);
    (void)reef_json("init", l->pool, TINY_OPTIONS, "--net-share", "0", NULL);
    (void)reef_json("train", l->pool, l->learned, NULL);
    (void)reef_json("init", l->unmade, TINY_OPTIONS, "--net-share", "0", NULL);
    *state = l;
    return 0;
}

static int logs_remove(void **state) {
    const logs *l = *state;
    test_directory_remove(l->w->directory);
    return 0;
}

// ---- sessions -----------------------------------------------------------------------------------

static void expect_session(const json_t *session, const json_t *lines) {
    size_t i, count = 0, first = 0;
    double worst[5] = {0};
    char *id = formatted(" %s ", string(session, "session"));
    const json_t *line;
    json_array_foreach(lines, i, line) {
        char *text = formatted("%s ", string(line, "text"));
        if (strstr(text, id) != NULL) {
            double score = number(line, "score");
            if (count++ == 0) first = i + 1;
            for (size_t k = 0; k < 5; k++)
                if (score > worst[k] || k >= count) {
                    double before = worst[k];
                    worst[k] = score;
                    score = before;
                }
        }
    }
    assert_int_equal(integer(session, "line_count"), count);
    assert_int_equal(integer(session, "first_line"), first);
    const json_t *numbers = json_at(session, "worst_lines");
    size_t made = json_array_size(numbers);
    assert_int_equal(made, count < 5 ? count : 5);
    double sum = 0;
    for (size_t k = 0; k < made; k++) sum += worst[k];
    assert_true(fabs(number(session, "score") - sum / (double)made) < 1e-9);
    const json_t *best = json_array_get(lines, (size_t)integer(numbers, "0") - 1);
    assert_true(fabs(number(best, "score") - worst[0]) < 1e-9);
}

#define FIXTURE_TEST(name) TEST_WITH(name, NULL, NULL, logs *l)

FIXTURE_TEST(sessions_are_made_of_their_lines) {
    json_t *all = reef_json("score", l->pool, l->fresh, "--frozen", "--top", "0", NULL);
    json_t *found = reef_json("score", l->pool, l->fresh, "--frozen", "--top", "0", "--session",
                              "[] ](r[0-9]+)( |$)", NULL);
    const json_t *lines = json_at(all, "lines"), *session;
    const json_t *sessions = json_at(found, "sessions");
    size_t i, before = 0, held = 0;
    assert_int_equal(json_array_size(sessions), integer(found, "session_count"));
    assert_int_equal(integer(found, "lines_left_out"), 0);
    json_array_foreach(sessions, i, session) {
        expect_session(session, lines);
        // All of them come in the order of the text.
        assert_true((size_t)integer(session, "first_line") > before);
        before = (size_t)integer(session, "first_line");
        held += (size_t)integer(session, "line_count");
    }
    assert_int_equal(held, 200);
    // The highest first, and the lines that make them.
    found = reef_json("score", l->pool, l->fresh, "--frozen", "--top", "2", "--session", "r[0-9]+ ",
                      NULL);
    sessions = json_at(found, "sessions");
    assert_int_equal(json_array_size(sessions), 2);
    assert_true(number(sessions, "0.score") >= number(sessions, "1.score"));
    size_t made = 0;
    json_array_foreach(sessions, i, session) made += length(session, "worst_lines");
    assert_int_equal(length(found, "lines"), made);
}

FIXTURE_TEST(lines_in_which_nothing_matches_are_left_out) {
    json_t *found = reef_json("score", l->pool, l->fresh, "--session", "PANIC", NULL);
    assert_int_equal(integer(found, "session_count"), 1);
    assert_int_equal(integer(found, "lines_left_out"), 196);
    answers(0, "1 session; 196 lines left out, in which nothing matches", "score", l->pool,
            l->fresh, "--session", "PANIC", NULL);
    // None at all is an answer, too.
    found = reef_json("score", l->pool, l->fresh, "--session", "no such words", NULL);
    assert_int_equal(integer(found, "session_count"), 0);
    assert_int_equal(integer(found, "lines_left_out"), 200);
}

// ---- what stands out ----------------------------------------------------------------------------

FIXTURE_TEST(lines_are_listed_by_score) {
    json_t *found = reef_json("score", l->pool, l->fresh, "--frozen", "--top", "9", NULL);
    const json_t *lines = json_at(found, "lines"), *line;
    size_t i, strange = 0;
    for (i = 1; i < 9; i++)
        assert_true(number(json_array_get(lines, i - 1), "score") >=
                    number(json_array_get(lines, i), "score"));
    json_array_foreach(lines, i, line) strange += strstr(string(line, "text"), "PANIC") != NULL;
    assert_int_equal(strange, 4); // all of them
}

FIXTURE_TEST(a_text_that_no_kind_knows_is_told) {
    static const char *const TOLD = "no kind of this pool knows this text";
    static const char *const READINGS[] = {NULL, "--frozen"};
    for (size_t i = 0; i < 2; i++) {
        answers(0, TOLD, "score", l->pool, l->w->english, READINGS[i], NULL);
        answers(0, TOLD, "score", l->unmade, l->fresh, READINGS[i], NULL);
        program p = answers(0, "200 lines", "score", l->pool, l->fresh, READINGS[i], NULL);
        assert_null(strstr(p.out, TOLD));
    }
    assert_false(is_true(reef_json("score", l->pool, l->w->english, NULL), "known"));
    assert_true(is_true(reef_json("score", l->pool, l->fresh, NULL), "known"));
}

// ---- reasons ------------------------------------------------------------------------------------

static bool is_line_of(const char *file, const char *line) {
    char command[512];
    (void)snprintf(command, sizeof(command), "grep -qxF -- '%s' %s", line, file);
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    program p;
    program_run(&p, argv, NULL);
    return p.code == 0;
}

FIXTURE_TEST(a_line_is_explained) {
    json_t *found =
        reef_json("score", l->pool, l->fresh, "--frozen", "--top", "3", "--explain", NULL);
    const json_t *line, *span;
    size_t i, k;
    json_array_foreach(json_at(found, "lines"), i, line) {
        const char *text = string(line, "text");
        const json_t *spans = json_at(line, "surprising");
        size_t behind = 0;
        double bits = 0;
        assert_true(json_array_size(spans) > 0);
        json_array_foreach(spans, k, span) {
            size_t offset = (size_t)integer(span, "offset"), bytes = (size_t)integer(span, "bytes");
            assert_true(offset >= behind && offset + bytes <= strlen(text));
            assert_int_equal(strlen(string(span, "text")), bytes);
            assert_memory_equal(string(span, "text"), text + offset, bytes);
            assert_true(number(span, "bits") >= 4);
            bits += number(span, "bits");
            behind = offset + bytes;
        }
        assert_true(bits <= number(line, "bits") + 1e-3);
        const json_t *nearest = json_at(line, "nearest");
        assert_true(is_line_of(l->learned, string(nearest, "text")));
        assert_true(number(nearest, "likeness") >= 0 && number(nearest, "likeness") < 1);
    }
    // A line that was learned is nearest to itself.
    char *known = path_in(l->w->directory, "known.log");
    write_log(known, 3, 1, false);
    found = reef_json("score", l->pool, known, "--top", "0", "--explain", NULL);
    json_array_foreach(json_at(found, "lines"), i, line) {
        assert_string_equal(string(line, "nearest.text"), string(line, "text"));
        assert_true(fabs(number(line, "nearest.likeness") - 1) < 1e-9);
    }
}

FIXTURE_TEST(people_see_marks) {
    program p = reef("score", l->pool, l->fresh, "--frozen", "--top", "1", "--explain", NULL);
    assert_int_equal(p.code, 0);
    char *shown = strstr(p.out, "  KERNEL PANIC");
    assert_non_null(shown);
    assert_non_null(strstr(shown, "\n  ^^"));
    assert_non_null(strstr(shown, "  nearest learned line, "));
    assert_null(strchr(p.out, '\033')); // no terminal
    answers(0, "no learned line that the pool keeps", "score", l->unmade, l->fresh, "--top", "1",
            "--explain", NULL);
    json_t *found = reef_json("score", l->unmade, l->fresh, "--top", "1", "--explain", NULL);
    assert_true(is_null(found, "lines.0.nearest"));
    // Sessions are explained by the lines that make them.
    p = answers(0, "session  ", "score", l->pool, l->fresh, "--session", "r[0-9]+ ", "--top", "1",
                "--explain", NULL);
    assert_non_null(strstr(p.out, "\nline "));
}

// ---- mistakes -----------------------------------------------------------------------------------

static void expect_refused(const char *says,
                           const char *pool,
                           const char *log,
                           const char *const options[6]) {
    program p = answers(64, says, "score", pool, log, options[0], options[1], options[2],
                        options[3], options[4], NULL);
    assert_string_equal(p.out, "");
}

FIXTURE_TEST(mistakes_are_named) {
    const struct {
        const char *says, *options[6];
    } mistakes[] = {
        {"is no POSIX extended regular expression", {"--session", "blk_("}},
        {"is no POSIX extended regular expression", {"--session", "["}},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(*mistakes); i++)
        expect_refused(mistakes[i].says, l->pool, l->fresh, mistakes[i].options);
}

RUN_TESTS_IN(logs_make, logs_remove)
