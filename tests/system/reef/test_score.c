// reef score by sessions, with a threshold from what was learned, and with reasons.
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

// ---- alarms -------------------------------------------------------------------------------------

// What is shown is what lies above the threshold, in the order of the text.
static json_t *expect_alarms(const char *pool, const char *log, const char *percent) {
    json_t *all = reef_json("score", pool, log, "--frozen", "--top", "0", NULL);
    json_t *found = reef_json("score", pool, log, "--frozen", "--alarms", percent, NULL);
    json_t *alarms = json_at(found, "alarms");
    const json_t *lines = json_at(found, "lines"), *line;
    double threshold = number(alarms, "threshold");
    size_t i, shown = 0;
    json_array_foreach(json_at(all, "lines"), i, line) {
        if (!(number(line, "score") > threshold)) continue;
        const json_t *same = json_array_get(lines, shown++);
        assert_int_equal(integer(same, "line"), integer(line, "line"));
        assert_true(is_true(same, "alarm"));
    }
    assert_int_equal(json_array_size(lines), shown);
    assert_int_equal(integer(alarms, "count"), shown);
    assert_true(number(alarms, "percent") == atof(percent));
    return found;
}

FIXTURE_TEST(alarms_lie_above_what_learned_lines_reach) {
    json_t *found = expect_alarms(l->pool, l->fresh, "1%");
    const json_t *alarms = json_at(found, "alarms"), *line;
    // A fifth of the lines that were learned; what does not fill a batch was not.
    assert_in_range(integer(alarms, "learned"), LOG_LINES / 5 - 10, LOG_LINES / 5 + 1);
    size_t i, strange = 0;
    json_array_foreach(json_at(found, "lines"), i, line) strange +=
        strstr(string(line, "text"), "PANIC") != NULL;
    assert_int_equal(strange, 4);
    // Lines as those that were learned: few of them, as was asked for.
    assert_in_range(integer(alarms, "count"), 4, 4 + 30);
    double high = number(alarms, "threshold");
    found = expect_alarms(l->pool, l->fresh, "20%");
    alarms = json_at(found, "alarms");
    assert_true(number(alarms, "threshold") < high);
    assert_in_range(integer(alarms, "count"), 20, 120);
    // At most so many, the highest first.
    found =
        reef_json("score", l->pool, l->fresh, "--frozen", "--alarms", "20%", "--top", "3", NULL);
    const json_t *lines = json_at(found, "lines");
    assert_int_equal(json_array_size(lines), 3);
    assert_true(number(lines, "0.score") >= number(lines, "1.score"));
    program p = answers(0, "learned lines exceed it", "score", l->pool, l->fresh, "--frozen",
                        "--alarms", "1%", NULL);
    assert_non_null(strstr(p.out, "KERNEL PANIC"));
}

FIXTURE_TEST(lines_can_be_listed_by_score) {
    static const char *const NAMES[] = {"score", "surplus"};
    for (size_t by = 0; by < 2; by++) {
        json_t *found =
            reef_json("score", l->pool, l->fresh, "--by", NAMES[by], "--top", "9", NULL);
        const json_t *lines = json_at(found, "lines");
        const char *name = by == 0 ? "score" : "surplus_bits";
        for (size_t i = 1; i < 9; i++)
            assert_true(number(json_array_get(lines, i - 1), name) >=
                        number(json_array_get(lines, i), name));
    }
}

FIXTURE_TEST(a_pool_without_memories_goes_by_its_reservoir) {
    json_t *found = expect_alarms(l->w->pool, l->w->english, "5%");
    assert_true(integer(found, "alarms.learned") > 0);
}

FIXTURE_TEST(sessions_have_a_threshold_of_their_own) {
    json_t *found = reef_json("score", l->pool, l->fresh, "--frozen", "--session", "r[0-9]+ ",
                              "--alarms", "10%", NULL);
    const json_t *alarms = json_at(found, "alarms"), *session;
    size_t i;
    assert_int_equal(integer(alarms, "learned"), 40);
    assert_int_equal(integer(alarms, "count"), length(found, "sessions"));
    json_array_foreach(json_at(found, "sessions"), i, session) {
        assert_true(number(session, "score") > number(alarms, "threshold"));
        assert_true(is_true(session, "alarm"));
    }
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

// ---- as it is written ---------------------------------------------------------------------------

FIXTURE_TEST(a_followed_text_has_the_same_threshold) {
    json_t *found = reef_json("score", l->pool, l->fresh, "--frozen", "--alarms", "1%", NULL);
    double threshold = number(found, "alarms.threshold");
    char *command = formatted("%s score %s --follow - --frozen --alarms 1%% --explain --json <%s",
                              REEF_BINARY, l->pool, l->fresh);
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    program p;
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 0);
    size_t outliers = 0, lines = 0;
    char *rest = NULL;
    for (char *one = strtok_r(p.out, "\n", &rest); one; one = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_of_text(one);
        if (strcmp(string(object, "event"), "line") == 0) {
            bool outlier = json_is_true(json_at(object, "outlier"));
            assert_true(outlier == (number(object, "score") > threshold));
            assert_true(json_is_array(json_at(object, "surprising")));
            outliers += outlier;
            lines++;
        } else {
            const json_t *alarms = json_at(object, "alarms");
            assert_true(fabs(number(alarms, "threshold") - threshold) < 1e-9);
            assert_int_equal(integer(alarms, "count"), outliers);
        }
    }
    assert_int_equal(lines, 200);
    assert_true(outliers >= 4);
    command = formatted("%s score %s --follow - --frozen --alarms 1%% --explain --outliers <%s",
                        REEF_BINARY, l->pool, l->fresh);
    argv[2] = command;
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "nearest learned line"));
    assert_non_null(strstr(p.err, "learned lines exceed"));
    // A line that is explained is shown once, with its marks: its figures stand alone.
    rest = NULL;
    for (char *line = strtok_r(p.out, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest))
        if (line[0] == '!') assert_true(strlen(line) < 24);
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
    static const char *const PERCENTS[] = {"0.01", "0%",   "100%", "-1%", "1", "1%%",
                                           "one%", "nan%", "inf%", "",    "%", "1 %x"};
    for (size_t i = 0; i < sizeof(PERCENTS) / sizeof(*PERCENTS); i++) {
        const char *options[6] = {"--alarms", PERCENTS[i]};
        expect_refused("must be a percentage between 0% and 100%", l->pool, l->fresh, options);
    }
    const struct {
        const char *says, *options[6];
    } mistakes[] = {
        {"is no POSIX extended regular expression", {"--session", "blk_("}},
        {"is no POSIX extended regular expression", {"--session", "["}},
        {"--session matches no learned line", {"--session", "PANIC", "--alarms", "1%"}},
        {"--follow goes line by line", {"--follow", "--session", "r[0-9]"}},
        {"--threshold by the last lines", {"--follow", "--alarms", "1%", "--threshold", "4"}},
        {"--window by the last lines", {"--follow", "--alarms", "1%", "--window", "40"}},
        {"must be a percentage", {"--follow", "--alarms", "1"}},
        {"must be surplus or score", {"--by", "bits"}},
        {"--by is about --top", {"--follow", "--by", "score"}},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(*mistakes); i++)
        expect_refused(mistakes[i].says, l->pool, l->fresh, mistakes[i].options);
    static const char *const ALARMS[6] = {"--alarms", "1%"};
    static const char *const FOLLOWED[6] = {"--follow", "--alarms", "1%"};
    expect_refused("keeps none: let it learn first", l->unmade, l->fresh, ALARMS);
    expect_refused("keeps none: let it learn first", l->unmade, l->fresh, FOLLOWED);
}

RUN_TESTS_IN(logs_make, logs_remove)
