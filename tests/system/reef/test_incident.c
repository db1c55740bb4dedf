// reef incident: what rang in a pool's logs, and what a person says, with and without a reefd.
#include "reefd_run.h"
#include "tools_world.h"

enum { LINES = 2400, LINE_BYTES = 128, SECONDS = 10 };

#define FAULTS 3

// Hours of requests, and three faults; one has a NUL and an escape sequence in it.
static void write_log(const char *path) {
    static const char *const FAULT[FAULTS] = {
        "error: disk is full", "fatal: \x1b[31mtask @ of @ lost", "panic: no shop is left"};
    char *text = room((size_t)LINES * LINE_BYTES), *to = text;
    for (size_t i = 0; i < LINES; i++) {
        const size_t now = i * SECONDS;
        const char *head =
            formatted("2026-11-30T%02zu:%02zu:%02zu app[12]:", now / 3600, now / 60 % 60, now % 60);
        to += sprintf(to, "%s request %zu took %zu ms\n", head, i, i * 7 % 90);
        for (size_t fault = 0; fault < FAULTS; fault++)
            if (i == 900 + 500 * fault) to += sprintf(to, "%s %s\n", head, FAULT[fault]);
    }
    for (char *at = text; at < to; at++)
        if (*at == '@') *at = '\0';
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, (size_t)(to - text), file), (size_t)(to - text));
    assert_int_equal(fclose(file), 0);
}

// The lines of a service, and one that is new: in another file for each `fault`.
static void append_hours(const char *path, size_t from, size_t hours, const char *fault) {
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    for (size_t now = from * 3600; now < (from + hours) * 3600; now += SECONDS) {
        fprintf(file, "2026-11-30T%02zu:%02zu:%02zu app[12]: request %zu took %zu ms\n", now / 3600,
                now / 60 % 60, now % 60, now, now * 7 % 90);
        if (fault != NULL && now == from * 3600 + 600)
            fprintf(file, "2026-11-30T%02zu:%02zu:%02zu app[12]: %s\n", now / 3600, now / 60 % 60,
                    now % 60, fault);
    }
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    unsetenv("REEF_POOL");
    sandbox *box = sandbox_new(state, sizeof(*box));
    sandbox_remove_pool(box);
    write_log(box->text);
    (void)answers(0, "", "init", box->pool, "--net-share", "0", "--memory", "4M", "--watch", "true",
                  NULL);
    (void)answers(0, "", "train", box->pool, box->text, NULL);
    return 0;
}

static void expect_harmless(const char *text) {
    for (; *text != '\0'; text++)
        if ((uint8_t)*text < ' ' && *text != '\n') fail_msg("byte %d in the output", *text);
}

BOX_TEST(what_rang_is_listed_and_shown_whole_and_harmlessly) {
    program p = answers(0, "\\x1b[31mtask \\x00 of \\x00 lost", "incident", box->pool, NULL);
    expect_harmless(p.out);
    assert_null(strstr(p.out, "earlier"));
    (void)answers(0, "\n2 earlier ones: --last 3 shows all\n", "incident", box->pool, "list",
                  "--last", "1", NULL);
    (void)answers(0, "\n1 earlier one: --last 3 shows all\n", "incident", box->pool, "list",
                  "--last", "2", NULL);
    p = answers(0, "task \\u0000 of \\u0000 lost", "incident", box->pool, "show", "2", "--json",
                NULL);
    // The timeline has it, and whoever reads that.
    p = answers(0, "\\x00 of \\x00 lost", "timeline", box->pool, NULL);
    expect_harmless(p.out);
    (void)answers(0, "task \\u0000 of", "timeline", box->pool, "--json", NULL);
    assert_true(is_sound(box->pool));
    (void)answers(0, "", "seal", box->pool, NULL);
    (void)answers(0, "", "snapshot", "create", box->pool, "then", NULL);
    (void)answers(0, "", "train", box->pool, box->text, NULL);
    (void)answers(0, "", "snapshot", "restore", box->pool, "then", "--in-place", NULL);
    (void)answers(0, "", "kind", "list", box->pool, NULL);
    (void)answers(0, "", "eval", box->pool, box->text, "--as-of", "0", NULL);
    (void)answers(0, "\\x00 of \\x00 lost", "incident", box->pool, NULL);
}

BOX_TEST(what_is_muted_is_shown_with_its_end_by_the_times_of_lines) {
    (void)answers(0, "incident 1 is muted", "incident", box->pool, "mute", "1", "--for", "3d",
                  NULL);
    (void)answers(0, "#1 muted until 2026-12-03 06:39\n", "incident", box->pool, "list", NULL);
    (void)answers(0, "#1 muted until 2026-12-03 06:39\n", "incident", box->pool, "show", "1", NULL);
    const json_t *one = reef_json("incident", box->pool, "show", "1", NULL);
    assert_string_equal(string(one, "decision"), "mute");
    assert_true(number(one, "muted_until") == 1796279990.0);
    (void)answers(0, "incident 1 is normal", "incident", box->pool, "normal", "1", NULL);
    (void)answers(0, "#1 normal\n", "incident", box->pool, "list", NULL);
    one = reef_json("incident", box->pool, "show", "1", NULL);
    assert_null(json_at(one, "muted_until"));
}

// The line lies at the byte that its event says, of the file that it says, which may have another
// name by now.
static void expect_line_at(const sandbox *box,
                           const char *fault,
                           const char *name,
                           const char *name_now) {
    size_t index, bytes;
    json_t *one;
    bool found = false;
    json_t *list = json_at(reef_json("incident", box->pool, "list", NULL), "incidents");
    json_array_foreach(list, index, one) {
        const json_t *event = json_array_get(json_object_get(one, "events"), 0);
        const char *line = string(event, "first_line"), *file = string(event, "file");
        if (strstr(line, fault) == NULL) continue;
        assert_string_equal(file, path_in(box->directory, name));
        const char *text = read_text(path_in(box->directory, name_now), &bytes);
        const size_t offset = (size_t)integer(event, "offset");
        assert_true(offset + strlen(line) < bytes);
        assert_memory_equal(text + offset, line, strlen(line));
        (void)answers(0, formatted("%s, byte %zu\n", file, offset), "incident", box->pool, "show",
                      formatted("%zu", (size_t)integer(one, "incident")), NULL);
        found = true;
    }
    if (!found) fail_msg("'%s' did not ring", fault);
}

static void await_lines(const sandbox *box, json_int_t lines) {
    for (unsigned ms = 0; ms < 60000; ms += 50) {
        const json_t *status = reef_json("status", box->pool, NULL);
        if (integer(status, "watch.lines") >= lines) return;
        sleep_ms(50);
    }
    fail_msg("fewer than %d lines were read", (int)lines);
}

// Killed after the second part was read, and begun again after the file was renamed.
BOX_TEST(a_line_of_a_directory_is_found_in_its_file_after_kills_and_rotation) {
    sandbox_remove_pool(box);
    (void)answers(0, "", "init", box->pool, "--net-share", "0", "--memory", "4M", "--watch", "true",
                  NULL);
    assert_int_equal(mkdir(path_in(box->directory, "logs"), 0755), 0);
    const char *a = path_in(box->directory, "logs/a.log"),
               *b = path_in(box->directory, "logs/b.log");
    const char *source = formatted("dir:%s/*.log*", path_in(box->directory, "logs"));
    append_hours(a, 0, 3, NULL);
    append_hours(b, 0, 3, NULL);
    START(box, "--source", source, "--commit-seconds", "0.5");
    await_lines(box, 2 * 3 * 360);
    append_hours(a, 3, 1, "error: disk is full");
    await_lines(box, 7 * 360 + 1);
    reefd_kill(box);
    append_hours(b, 3, 1, "fatal: task of shop lost");
    assert_int_equal(rename(b, path_in(box->directory, "logs/b.log.1")), 0);
    START(box, "--source", source, "--commit-seconds", "0.5");
    await_lines(box, 8 * 360 + 2);
    append_hours(b, 4, 1, "panic: no shop is left");
    await_lines(box, 9 * 360 + 3);
    reefd_end(box);
    expect_line_at(box, "disk is full", "logs/a.log", "logs/a.log");
    expect_line_at(box, "task of shop lost", "logs/b.log", "logs/b.log.1");
    expect_line_at(box, "no shop is left", "logs/b.log", "logs/b.log");
    assert_true(is_sound(box->pool));
}

static void expect_changes(const sandbox *box) {
    json_t *answer = reef_json("incident", box->pool, "budget", "2/day", NULL);
    assert_true(is_true(answer, "done") && number(answer, "budget") == 2.0);
    assert_int_equal(integer(answer, "gap_s"), 60);
    (void)answers(0, "2 incidents a day may ring; events less than 5 min 0 s apart are one\n",
                  "incident", box->pool, "gap", "5m", NULL);
    answer = reef_json("incident", box->pool, "budget", "0.5", NULL);
    assert_int_equal(integer(answer, "gap_s"), 300); // it is known on
    const char *timeline = answers(0, "watch_changed", "timeline", box->pool, NULL).out;
    assert_int_equal(times_in(timeline, "watch_changed"), 3);
    assert_int_equal(times_in(timeline, "gap_s=300"), 2);
}

BOX_TEST(budget_and_gap_are_changed_and_stay) {
    expect_changes(box);
    (void)answers(0, "", "train", box->pool, box->text, NULL);
    assert_true(number(reef_json("incident", box->pool, "gap", "10m", NULL), "budget") == 0.5);
    (void)answers(0, "1 incident a day may ring;", "incident", box->pool, "budget", "1/day", NULL);
    assert_true(is_sound(box->pool));
}

BOX_TEST(quiet_and_forget_are_changed_and_stay) {
    json_t *answer = reef_json("incident", box->pool, "quiet", "20m", NULL);
    assert_int_equal(integer(answer, "quiet_s"), 1200);
    assert_int_equal(integer(answer, "forget_days"), 30);
    (void)answers(0,
                  "nothing new came for 20 min 0 s; what did not come for 56 days is new again\n",
                  "incident", box->pool, "forget", "8w", NULL);
    START(box, "--source", box->text, "--stay", "--threads", "1");
    answer = reef_json("incident", box->pool, "quiet", "30m", NULL);
    assert_int_equal(integer(answer, "forget_days"), 56);
    assert_int_equal(integer(reef_json("status", box->pool, NULL), "watch.quiet_s"), 1800);
    reefd_end(box);
    assert_int_equal(integer(reef_json("incident", box->pool, "gap", "5m", NULL), "quiet_s"), 1800);
}

BOX_TEST(a_running_reefd_changes_them_and_they_stay) {
    START(box, "--source", box->text, "--stay", "--threads", "1");
    expect_changes(box);
    const json_t *status = reef_json("status", box->pool, NULL);
    assert_true(number(status, "watch.budget") == 0.5);
    assert_int_equal(integer(status, "watch.gap_s"), 300);
    assert_int_equal(integer(status, "watch.quiet_s"), 3600);
    assert_int_equal(integer(status, "watch.forget_days"), 30);
    reefd_end(box);
    START(box, "--source", box->text, "--stay", "--threads", "1");
    json_t *answer = reef_json("incident", box->pool, "gap", "10m", NULL);
    assert_true(number(answer, "budget") == 0.5);
    reefd_end(box);
    assert_int_equal(integer(reef_json("incident", box->pool, "budget", "9", NULL), "gap_s"), 600);
}

BOX_TEST(what_is_no_budget_or_gap_is_refused) {
    static const char *const WRONG[][3] = {
        {"budget", "", "such as 5/day"}, {"budget", "0", "above 0"},
        {"budget", "nan", "above 0"},    {"gap", "", "such as 60s"},
        {"gap", "0s", "above 0"},        {"gap", "8d", "at most 7d"},
        {"gap", "5", "such as 60s"},     {"quiet", "25h", "at most 1d"},
        {"quiet", "0", "above 0"},       {"forget", "36h", "whole days"},
        {"forget", "3651d", "3650"},     {"forget", "", "such as 60s"}};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++)
        (void)answers(64, WRONG[i][2], "incident", box->pool, WRONG[i][0], WRONG[i][1], NULL);
    (void)answers(64, "such as 5/day", "incident", box->pool, "budget", NULL);
    (void)answers(64, "--for goes with mute", "incident", box->pool, "gap", "5m", "--for", "3d",
                  NULL);
    (void)answers(64, "budget, gap, quiet and forget", "incident", box->pool, "mutter", "1", NULL);
    program p = answers(0, "", "timeline", box->pool, NULL);
    assert_null(strstr(p.out, "watch_changed"));
}

RUN_TESTS
