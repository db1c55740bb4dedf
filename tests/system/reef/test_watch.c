// reef watch on past logs: which files are one log, what is said of them, and what is refused.
#include "tools_world.h"

#include <math.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#define DAY_S ((time_t)86400)
#define BEGIN_S ((time_t)1795737600) // 2026-11-27 00:00:00

typedef struct logs {
    char *directory;
    char *rotated;   // a log of four days, in files as logrotate makes them
    uint64_t offset; // of its error, in the file that has it
} logs;

// ---- logs ---------------------------------------------------------------------------------------

// Lines of a day, one sort of each a minute; `extra` at noon (NULL: none). The offset of that.
static char *day_of(size_t day, const char *extra, uint64_t *offset) {
    char *text = room((size_t)1440 * 160 + 2048), *to = text;
    for (size_t minute = 0; minute < 1440; minute++) {
        char time[32];
        time_t now = BEGIN_S + (time_t)day * DAY_S + (time_t)minute * 60;
        struct tm tm;
        assert_non_null(gmtime_r(&now, &tm));
        (void)strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &tm);
        to += sprintf(to, "%s worker %zu finished task t%zu\n", time, 1000 + minute % 7,
                      minute * 37 + day);
        to += sprintf(to, "%s link of port p%zu is up\n", time, minute % 9);
        if (extra == NULL || minute != 720) continue;
        if (offset != NULL) *offset = (uint64_t)(to - text);
        to += sprintf(to, "%s %s\n", time, extra);
    }
    return text;
}

static void write_gz(const char *path, const char *text) {
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzputs(file, text), strlen(text));
    assert_int_equal(gzclose(file), Z_OK);
}

static int logs_make(void **state) {
    logs *l = room(sizeof(*l));
    l->directory = test_directory_new();
    l->rotated = path_in(l->directory, "app.log");
    // By their names alone they would come in another order.
    write_file(formatted("%s-20261130", l->rotated), day_of(0, NULL, NULL));
    write_gz(formatted("%s.2.gz", l->rotated), day_of(1, "error: task has no worker", &l->offset));
    write_file(formatted("%s.1", l->rotated), day_of(2, NULL, NULL));
    write_file(l->rotated, day_of(3, NULL, NULL));
    *state = l;
    return 0;
}

static int logs_remove(void **state) {
    test_directory_remove(((logs *)*state)->directory);
    return 0;
}

#define LOGS_TEST(name) TEST_WITH(name, NULL, NULL, logs *l)

// A log of that name with three days, with `line` at noon of the last.
static char *log_with(const logs *l, const char *name, const char *line) {
    char *path = path_in(l->directory, name);
    write_file(path, formatted("%s%s%s", day_of(0, NULL, NULL), day_of(1, NULL, NULL),
                               day_of(2, line, NULL)));
    return path;
}

// ---- answers ------------------------------------------------------------------------------------

// What `reef watch --replay PATHS.. --json` says: an array of its lines.
static json_t *watched(const char *first, ...) {
    const char *argv[ARGUMENTS_MAX] = {REEF_BINARY, "watch", "--replay", "--json", "--all"};
    size_t count = 5;
    va_list paths;
    va_start(paths, first);
    for (const char *path = first; path != NULL; path = va_arg(paths, const char *))
        argv[count++] = path;
    va_end(paths);
    argv[count] = NULL;
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0 || *p.err != '\0') fail_msg("exit %d: %s", p.code, p.err);
    json_t *lines = keep(json_array());
    char *rest = p.out;
    for (char *line; (line = strtok_r(rest, "\n", &rest)) != NULL;)
        json_array_append(lines, json_of_text(line));
    assert_true(json_array_size(lines) > 0);
    return lines;
}

static const json_t *summary_of(const json_t *lines) {
    const json_t *summary = json_array_get(lines, json_array_size(lines) - 1);
    assert_string_equal(string(summary, "event"), "summary");
    assert_int_equal(integer(summary, "lines"),
                     integer(summary, "usual") + integer(summary, "in_events"));
    assert_int_equal(integer(summary, "incidents"), json_array_size(lines) - 1);
    return summary;
}

// The one incident of the rotated log.
static void expect_rotated(const logs *l, const json_t *lines) {
    const json_t *summary = summary_of(lines), *incident = json_array_get(lines, 0);
    assert_int_equal(integer(summary, "lines"), 4 * 2880 + 1);
    assert_int_equal(integer(summary, "rung"), 1);
    assert_true(number(summary, "first_time") == (double)BEGIN_S);
    assert_true(number(summary, "last_time") == (double)(BEGIN_S + 4 * DAY_S - 60));
    assert_int_equal(json_array_size(lines), 2);
    expect_keys(incident, "incident first_time last_time bits rings title events more_events");
    assert_string_equal(string(incident, "event"), "incident");
    assert_true(is_true(incident, "rings"));
    assert_non_null(strstr(string(incident, "title"), "error: task has no worker"));
    assert_int_equal(length(incident, "events"), 1);
    const json_t *event = json_at(incident, "events.0");
    expect_keys(event, "sort severity source file first_time last_time offset count type bits");
    assert_string_equal(string(event, "sort"), "type");
    assert_string_equal(string(event, "severity"), "error");
    assert_string_equal(string(event, "source"), l->rotated);
    assert_string_equal(string(event, "file"), formatted("%s.2.gz", l->rotated));
    assert_int_equal(integer(event, "offset"), l->offset); // in the file, unpacked
    assert_true(number(event, "first_time") == (double)(BEGIN_S + DAY_S + 720 * 60));
    assert_string_equal(string(event, "first_line"),
                        "2026-11-28 12:00:00 error: task has no worker");
}

LOGS_TEST(files_that_were_rotated_are_one_log_in_the_order_of_its_times) {
    expect_rotated(l, watched(l->rotated, formatted("%s.1", l->rotated),
                              formatted("%s.2.gz", l->rotated),
                              formatted("%s-20261130", l->rotated), NULL));
}

LOGS_TEST(a_directory_or_a_pattern_is_its_files) {
    expect_rotated(l, watched(l->directory, NULL));
    expect_rotated(l, watched(formatted("%s/app*", l->directory), NULL));
}

LOGS_TEST(a_file_that_is_named_twice_is_read_once) {
    expect_rotated(l, watched(l->directory, l->rotated, formatted("%s/app*", l->directory), NULL));
}

LOGS_TEST(people_are_told_what_was_new) {
    program p = answers(0, "error: task has no worker", "watch", "--replay", l->directory, NULL);
    assert_non_null(strstr(p.out, "2026-11-28 12:00"));
    assert_non_null(strstr(p.out, l->rotated));
    assert_non_null(strstr(p.out, "  new       1  error"));
    assert_non_null(
        strstr(p.out, "11,521 lines of 1 source, 2026-11-27 00:00 to 2026-11-30 23:59"));
    assert_non_null(strstr(p.out, "1 incident rang"));
    assert_string_equal(p.err, "");
}

LOGS_TEST(two_logs_are_two_sources) {
    char *other = log_with(l, "other", "fatal: link of port p3 is gone for good");
    json_t *lines = watched(other, formatted("%s.1", l->rotated), NULL);
    assert_int_equal(integer(summary_of(lines), "lines"), 4 * 2880 + 1);
    assert_string_equal(string(lines, "0.events.0.source"), other);
    (void)answers(0, "lines of 2 sources", "watch", "--replay", other, l->rotated, NULL);
    assert_int_equal(unlink(other), 0);
}

LOGS_TEST(a_word_that_is_new_is_marked) {
    char *log = log_with(l, "word", "link of port p3 is down");
    json_t *lines = watched(log, NULL);
    const json_t *event = json_at(lines, "0.events.0");
    assert_string_equal(string(event, "sort"), "word");
    assert_memory_equal(string(event, "first_line") + integer(event, "new.0"), "down", 4);
    assert_int_equal(integer(event, "new.1"), 4);
    program p = answers(0, "link of port p3 is down", "watch", "--replay", "--all", log, NULL);
    const char *line = strstr(p.out, "  word "), *mark = strchr(line, '^');
    size_t at = (size_t)(strstr(line, "down") - line);
    const char *mark_line = strchr(line, '\n') + 1;
    assert_int_equal(mark - mark_line, at);
    assert_memory_equal(mark, "^^^^\n", 5);
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(marks_stand_right_behind_what_takes_other_columns_than_bytes) {
    char *log = path_in(l->directory, "columns"), *text = room(1 << 20), *to = text;
    for (size_t i = 0; i < 3000; i++)
        to += sprintf(to, "2026-11-%02zu %02zu:%02zu:00 m\xc3\xa4rz \x01\x01 port p7 is %s\n",
                      27 + i / 1440, i / 60 % 24, i % 60, i == 2900 ? "down" : "up");
    write_file(log, text);
    program p = answers(0, "\\x01\\x01 port", "watch", "--replay", "--all", log, NULL);
    const char *line = strstr(p.out, "  word "), *mark = strchr(line, '^');
    assert_int_equal(mark - (strchr(line, '\n') + 1), strstr(line, "down") - line - 1); // of the a
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(of_a_long_line_of_json_the_message_is_shown) {
    char *log = path_in(l->directory, "json"), *text = room(1 << 20), *to = text;
    for (size_t i = 0; i < 3000; i++)
        to += sprintf(to,
                      "{\"ts\":\"2026-11-%02zuT%02zu:%02zu:00Z\",\"level\":\"info\",\"logger\":"
                      "\"billing.delivery.service\",\"msg\":\"%s\",\"n\":%zu}\n",
                      27 + i / 1440, i / 60 % 24, i % 60,
                      i == 2900 ? "all volumes of the store are lost" : "invoice sent", i);
    write_file(log, text);
    (void)answers(0, "  new       1  \u2026all volumes of the store are lost\",\"n\":2900}\n",
                  "watch", "--replay", log, NULL);
    assert_int_equal(unlink(log), 0);
}

// ---- names --------------------------------------------------------------------------------------

// A directory of logs, each with one day of the four, or with all of them (-1).
typedef struct named {
    const char *name;
    int day;
} named;

// How many sources they are.
static size_t sources_of(const logs *l, const char *folder, const named *files, size_t count) {
    char *directory = path_in(l->directory, folder);
    assert_int_equal(mkdir(directory, 0700), 0);
    for (size_t i = 0; i < count; i++) {
        const char *text = files[i].day >= 0
                               ? day_of((size_t)files[i].day, NULL, NULL)
                               : formatted("%s%s%s", day_of(0, NULL, NULL), day_of(1, NULL, NULL),
                                           day_of(2, NULL, NULL));
        char *path = path_in(directory, files[i].name);
        if (strstr(path, ".gz") != NULL)
            write_gz(path, text);
        else
            write_file(path, text);
    }
    program p = answers(0, " lines of ", "watch", "--replay", directory, NULL);
    size_t sources = (size_t)atoi(strstr(p.out, " lines of ") + strlen(" lines of "));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(unlink(path_in(directory, files[i].name)), 0);
    assert_int_equal(rmdir(directory), 0);
    return sources;
}
#define SOURCES_OF(...)                                                                            \
    sources_of(l, "names", (const named[]){__VA_ARGS__},                                           \
               sizeof((const named[]){__VA_ARGS__}) / sizeof(named))

LOGS_TEST(a_log_for_each_host_is_not_taken_for_rotated_files) {
    assert_int_equal(SOURCES_OF({"10.0.0.1", 1}, {"10.0.0.2", 0}), 2); // in the order of a rotation
    assert_int_equal(SOURCES_OF({"10.0.0.1", -1}, {"10.0.0.2", -1}, {"10.0.0.3", -1}), 3);
    assert_int_equal(SOURCES_OF({"app-1.2", 1}, {"app-1.3", 0}), 2);
    assert_int_equal(SOURCES_OF({"web.1", -1}, {"web.2", -1}), 2); // at the same time
    assert_int_equal(SOURCES_OF({"web.1", 0}, {"web.2", 1}), 2);   // the larger the younger
    assert_int_equal(SOURCES_OF({"web.1", 2}, {"web.3", 0}), 2);   // a gap
    assert_int_equal(SOURCES_OF({"web.1", 2}, {"cron.2", 0}), 2);
    assert_int_equal(SOURCES_OF({"app-20261127", -1}, {"app-20261128", -1}), 2);
    assert_int_equal(SOURCES_OF({"app-20269927", 0}, {"app-20269928", 1}), 2); // no dates
    assert_int_equal(SOURCES_OF({"run.1234", 1}, {"run.1233", 0}), 2);         // of processes
}

LOGS_TEST(what_logrotate_makes_is_one_log_in_all_its_forms) {
    assert_int_equal(SOURCES_OF({"a", 2}, {"a.1", 1}, {"a.2.gz", 0}), 1);
    assert_int_equal(SOURCES_OF({"a.log", 2}, {"a.log.1", 1}), 1);
    assert_int_equal(SOURCES_OF({"a.log.3", 1}, {"a.log.4.gz", 0}), 1); // others went
    assert_int_equal(SOURCES_OF({"a-20261127", 0}, {"a-20261128.gz", 1}), 1);
    assert_int_equal(SOURCES_OF({"a", 1}, {"a-20261127", 0}), 1);
    assert_int_equal(SOURCES_OF({"a-2026-11-27", 0}, {"a-2026-11-28", 1}), 1);
    assert_int_equal(SOURCES_OF({"10.0.0.1", 2}, {"10.0.0.1.1", 1}, {"10.0.0.1.2.gz", 0}), 1);
    assert_int_equal(SOURCES_OF({"a", 3}, {"a.7", 0}), 1); // the log itself is there
}

LOGS_TEST(a_word_that_is_new_is_marked_in_a_line_that_is_no_utf8) {
    char *log = path_in(l->directory, "latin"), *text = room(1 << 20), *to = text;
    for (size_t i = 0; i < 3000; i++)
        to += sprintf(to, "2026-11-%02zu %02zu:%02zu:00 m\xe4rz \xfc p7 is %s\n", 27 + i / 1440,
                      i / 60 % 24, i % 60, i == 2900 ? "gro\xdf" : "up");
    write_file(log, text);
    json_t *lines = watched(log, NULL);
    const json_t *event = json_at(lines, "0.events.0");
    assert_string_equal(string(event, "first_line"),
                        "2026-11-29 00:20:00 m\\xe4rz \\xfc p7 is gro\\xdf");
    assert_string_equal(string(event, "first_line") + integer(event, "new.0"), "gro\\xdf");
    assert_int_equal(integer(event, "new.1"), 7);
    assert_int_equal(unlink(log), 0);
}

// ---- odd lines ----------------------------------------------------------------------------------

static void expect_harmless(const char *text) {
    for (; *text != '\0'; text++)
        if ((uint8_t)*text < ' ' && *text != '\n') fail_msg("byte %d in the output", *text);
}

LOGS_TEST(escape_sequences_are_printed_harmlessly) {
    char *log = log_with(l, "escape", "error: \x1b[31mred\x1b[0m \x07 \x1b]0;title\x07 case");
    program p = answers(0, "\\x1b[31mred", "watch", "--replay", "--all", log, NULL);
    expect_harmless(p.out);
    (void)watched(log, NULL);
    // A new word of them, far behind in a line.
    char *text = room(1 << 20), *to = text;
    for (size_t i = 0; i < 3000; i++)
        to += sprintf(to, "2026-11-%02zu %02zu:%02zu:00 state %090d of it is %s\n", 27 + i / 1440,
                      i / 60 % 24, i % 60, 7,
                      i == 2900 ? "\x1b"
                                  "c"
                                : "up");
    write_file(log, text);
    p = answers(0, "of it is \\x1bc\n", "watch", "--replay", "--all", log, NULL);
    expect_harmless(p.out);
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(names_of_files_are_printed_harmlessly) {
    char *log = log_with(l, "\x1b[31mred\xff\n.log", "error: task has no worker");
    program p = answers(0, "\\x1b[31mred\\xff\\n.log", "watch", "--replay", "--all", log, NULL);
    expect_harmless(p.out);
    // JSON has UTF-8.
    const char *source = string(watched(log, NULL), "0.events.0.source");
    assert_non_null(strstr(source, "\x1b[31mred\\xff\n.log"));
    assert_int_equal(unlink(log), 0);
    log = path_in(l->directory, "\x1b[32mgreen");
    write_file(log, "first line\n");
    p = answers(0, "", "watch", "--replay", log, NULL);
    assert_non_null(strstr(p.err, "no line of"));
    expect_harmless(p.err);
    write_file(log, "\x7f");
    FILE *file = fopen(log, "a");
    assert_non_null(file);
    assert_int_equal(fwrite("\0\0\n", 1, 3, file), 3);
    assert_int_equal(fclose(file), 0);
    p = answers(66, "", "watch", "--replay", log, NULL);
    assert_non_null(strstr(p.err, "is no text"));
    expect_harmless(p.err);
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(a_nul_in_a_line_does_not_end_what_is_shown_of_it) {
    char *log = log_with(l, "nul", "link of port # is # down"), *text = room(1 << 20);
    FILE *file = fopen(log, "r+");
    assert_non_null(file);
    size_t count = fread(text, 1, 1 << 20, file);
    for (size_t i = 0; i < count; i++)
        if (text[i] == '#') text[i] = '\0';
    rewind(file);
    assert_int_equal(fwrite(text, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    program p =
        answers(0, "link of port \\x00 is \\x00 down", "watch", "--replay", "--all", log, NULL);
    expect_harmless(p.out);
    p = answers(0, "link of port \\u0000 is \\u0000 down", "watch", "--replay", "--all", "--json",
                log, NULL);
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(what_is_new_is_where_json_has_it_though_bytes_before_it_are_escaped) {
    char *log = path_in(l->directory, "shifted"), *text = room(1 << 20), *to = text;
    for (size_t i = 0; i < 3000; i++)
        to += sprintf(to, "2026-11-%02zu %02zu:%02zu:00 m\xe4rz \xff port p7 is %s\n",
                      27 + i / 1440, i / 60 % 24, i % 60, i == 2900 ? "down" : "up");
    write_file(log, text);
    json_t *lines = watched(log, NULL);
    const json_t *event = json_at(lines, "0.events.0");
    assert_memory_equal(string(event, "first_line") + integer(event, "new.0"), "down", 4);
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(a_long_new_word_at_the_beginning_is_no_harm) {
    char *log = path_in(l->directory, "wide"), *text = room(1 << 20), *to = text, word[41] = "";
    memset(word, 0xff, sizeof(word) - 1); // shown as four times as many
    for (size_t i = 0; i < 3000; i++)
        to += sprintf(to, "a %s 2026-11-%02zu %02zu:%02zu:00 says port p7 is up\n",
                      i == 2900 ? word : "b", 27 + i / 1440, i / 60 % 24, i % 60);
    write_file(log, text);
    program p = answers(0, "  word      1  a \\xff", "watch", "--replay", "--all", log, NULL);
    expect_harmless(p.out);
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(what_is_new_far_behind_in_a_line_is_no_harm) {
    char *log = path_in(l->directory, "long"), *text = room(4 << 20), *to = text;
    for (size_t i = 0; i < 3000; i++)
        to += sprintf(to, "2026-11-%02zu %02zu:%02zu:00 state %0900d of it is %s\n", 27 + i / 1440,
                      i / 60 % 24, i % 60, 7, i == 2900 ? "down" : "up");
    write_file(log, text);
    (void)answers(0, "  word ", "watch", "--replay", "--all", log, NULL);
    assert_string_equal(string(watched(log, NULL), "0.events.0.sort"), "word");
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(lines_of_any_bytes_and_lengths_are_read) {
    char *log = log_with(l, "bytes", "\xff\xfe\x80 state \xc3");
    FILE *file = fopen(log, "a");
    assert_non_null(file);
    assert_int_equal(fputs("2026-11-29 23:59:59 x\r\n\r\n\n", file) < 0, 0);
    for (size_t i = 0; i < (3 << 20); i++) assert_int_not_equal(fputc('x', file), EOF);
    assert_int_equal(fclose(file), 0); // no newline at the end
    json_t *lines = watched(log, NULL);
    // A line of three megabytes is three; empty ones are none.
    assert_int_equal(integer(summary_of(lines), "lines"), 3 * 2880 + 2 + 3);
    assert_int_equal(unlink(log), 0);
}

// ---- what is refused, and what is said ----------------------------------------------------------

LOGS_TEST(what_is_no_log_is_refused) {
    char *empty = path_in(l->directory, "nothing");
    assert_int_equal(mkdir(empty, 0700), 0);
    (void)answers(66, "no file /does/not/exist", "watch", "--replay", "/does/not/exist", NULL);
    (void)answers(66, "no file /does/not/*", "watch", "--replay", "/does/not/*", NULL);
    (void)answers(66, "no file", "watch", "--replay", empty, NULL);
    (void)answers(64, "no file and no directory", "watch", "--replay", "/dev/null", NULL);
    (void)answers(64, "", "watch", "--replay", NULL);
    assert_int_equal(rmdir(empty), 0);
}

LOGS_TEST(wrong_options_are_refused) {
    static const char *const WRONG[][3] = {{"--budget", "0", "above 0"},
                                           {"--budget", "x", "incidents a day"},
                                           {"--budget", "-1", "above 0"},
                                           {"--budget", "5/hour", "5/day"},
                                           {"--budget", "nan", "above 0"},
                                           {"--gap", "0s", "a time above 0"},
                                           {"--gap", "5", "such as 60s"},
                                           {"--gap", "-5s", "a time above 0"},
                                           {"--gap", "99999999999d", "a time"},
                                           {"--learn-until-quiet", "soon", "a time"},
                                           {"--forget-after", "1h", "at least 1d"},
                                           {"--forget-after", "25h", "whole days"},
                                           {"--forget-after", "", "a time"},
                                           {"--since", "never", "--since"},
                                           {"--no-such", "1", "no-such"}};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++) {
        program p = reef("watch", "--replay", l->rotated, WRONG[i][0], WRONG[i][1], NULL);
        if (p.code != 64) fail_msg("%s %s: exit %d", WRONG[i][0], WRONG[i][1], p.code);
        if (strstr(p.err, WRONG[i][2]) == NULL) fail_msg("%s: %s", WRONG[i][0], p.err);
        assert_string_equal(p.out, "");
    }
    program p = reef("watch", "--since", "5m", l->rotated, NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "--since goes with --replay"));
}

LOGS_TEST(options_are_heard) {
    char *log = log_with(l, "options", "error: task has no worker");
    (void)answers(0, "1 incident rang", "watch", "--replay", "--budget", "2/day", "--gap", "5m",
                  "--learn-until-quiet", "2h", "--forget-after", "7d", log, NULL);
    (void)answers(0, "0 incidents rang", "watch", "--replay", "--since", "2026-11-29T13:00:00Z",
                  log, NULL);
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(a_file_that_is_no_text_is_left_out_and_that_is_said) {
    char *binary = path_in(l->directory, "binary");
    FILE *file = fopen(binary, "w");
    assert_non_null(file);
    assert_int_equal(fwrite("\x7f\x45LF\0\0\0\1\n\0\0", 1, 11, file), 11);
    assert_int_equal(fclose(file), 0);
    program p = answers(0, "11,521 lines", "watch", "--replay", l->directory, NULL);
    assert_non_null(strstr(p.err, "binary is no text"));
    p = answers(66, "no file of text", "watch", "--replay", binary, NULL);
    assert_non_null(strstr(p.err, "binary is no text"));
    assert_int_equal(unlink(binary), 0);
}

LOGS_TEST(a_log_without_times_is_read_and_that_is_said) {
    char *log = path_in(l->directory, "timeless");
    write_file(log, "first line\nsecond line\n");
    program p = answers(0, "2 lines of 1 source", "watch", "--replay", log, NULL);
    assert_non_null(strstr(p.err, "no line of"));
    assert_non_null(strstr(p.err, "timeless"));
    assert_int_equal(unlink(log), 0);
}

LOGS_TEST(a_compressed_log_that_is_cut_or_damaged_is_refused) {
    char *cut = path_in(l->directory, "cut.gz");
    char *whole = formatted("%s.2.gz", l->rotated);
    FILE *in = fopen(whole, "r"), *out = fopen(cut, "w");
    assert_true(in != NULL && out != NULL);
    char *bytes = room(1 << 20);
    size_t count = fread(bytes, 1, 1 << 20, in);
    assert_in_range(count, 1000, (1 << 20) - 1);
    assert_int_equal(fwrite(bytes, 1, count / 2, out), count / 2);
    assert_int_equal(fclose(in) | fclose(out), 0);
    program p = answers(74, "has no end", "watch", "--replay", cut, NULL);
    assert_non_null(strstr(p.err, cut));
    memset(bytes + count / 2, 0x55, count / 4);
    out = fopen(cut, "w");
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    assert_int_equal(fclose(out), 0);
    p = answers(74, "cannot read", "watch", "--replay", cut, NULL);
    assert_non_null(strstr(p.err, cut));
    assert_int_equal(unlink(cut), 0);
}

RUN_TESTS_IN(logs_make, logs_remove)
