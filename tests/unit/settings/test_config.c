// Where the settings of reefd come from: file and command line, one over the other;
// and that a mistake in the file is reported with its line.
#include "reef_settings.h"

#include "temp_dir.h"
#include "test.h"

typedef struct config_fixture {
    char directory[TEMP_DIR_BYTES];
    char path[TEMP_DIR_BYTES + 16];
} config_fixture;

static int setup(void **state) {
    config_fixture *f = calloc(1, sizeof(*f));
    temp_dir_new(f->directory);
    snprintf(f->path, sizeof(f->path), "%s/reefd.ini", f->directory);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    config_fixture *f = *state;
    temp_dir_remove(f->directory);
    free(f);
    return 0;
}

static void write_config(const config_fixture *f, const char *text) {
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

// `more` are arguments after --config FILE, ended by NULL.
static reef_status parse(reef_options *options,
                         const config_fixture *f,
                         const char *const *more,
                         reef_error *err) {
    static char *arguments[32];
    int count = 0;
    arguments[count++] = (char *)(uintptr_t) "reefd";
    arguments[count++] = (char *)(uintptr_t) "--config";
    arguments[count++] = (char *)(uintptr_t)f->path;
    for (; more != NULL && *more != NULL; more++) arguments[count++] = (char *)(uintptr_t)*more;
    arguments[count] = NULL;
    return reef_options_parse(options, count, arguments, err);
}

static size_t setting(const char *name) {
    for (size_t i = 0; i < reef_setting_count(); i++)
        if (strcmp(reef_setting_name(i), name) == 0) return i;
    fail_msg("no setting %s", name);
    return 0;
}

static void assert_origin(const reef_options *options, const char *name, const char *origin) {
    char text[600];
    assert_string_equal(reef_setting_origin(options, setting(name), text, sizeof(text)), origin);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, config_fixture *f)

FIXTURE_TEST(every_setting_can_stand_in_the_file) {
    reef_options options;
    reef_error err = {0};
    write_config(f, "; a comment\n"
                    "[reefd]\n"
                    "pool = p\n"
                    "  source = file:a\n" // an indented line does not continue the one above
                    "source = -\n"
                    "threads = 3\n"
                    "rows-memory = 2G\n"
                    "commit_steps = 7 ; and why\n"
                    "commit-seconds: 0.5\n"
                    "journal = 3M\n"
                    "socket = s\n"
                    "http = 8080\n"
                    "http-token = t\n"
                    "alarm-exec = mail -s reef root\n"
                    "alarm-hook = https://h:9093/p?q=1\n"
                    "stay = yes\n"
                    "join-every = 64M\n"
                    "json-log = on\n"
                    "quiet = false\n"
                    "pool-max = 5G\n"
                    "snapshot-every = 30m\n"
                    "keep = hourly=3,weekly=2\n");
    if (parse(&options, f, NULL, &err) != REEF_OK) fail_msg("%s", err.message);
    assert_string_equal(options.pool, "p");
    assert_int_equal(options.source_count, 2);
    assert_string_equal(options.sources[0], "file:a");
    assert_string_equal(options.sources[1], "-");
    assert_int_equal(options.threads, 3);
    assert_int_equal(options.memory_bytes, UINT64_C(2) << 30);
    assert_int_equal(options.commit_steps, 7);
    assert_true(options.commit_seconds == 0.5);
    assert_int_equal(options.journal_bytes, 3 << 20);
    assert_int_equal(options.pool_max, UINT64_C(5) << 30);
    assert_int_equal(options.snapshot_every_ms, 1800000);
    assert_string_equal(options.keep, "hourly=3,weekly=2");
    assert_string_equal(options.socket, "s");
    assert_string_equal(options.http, "8080");
    assert_string_equal(options.http_token, "t");
    assert_string_equal(options.alarm_exec, "mail -s reef root");
    assert_string_equal(options.alarm_hook, "https://h:9093/p?q=1");
    assert_true(options.stay && options.json_log && !options.quiet);
    // All of them: a new one has to be added here.
    for (size_t i = 0; i < reef_setting_count(); i++)
        if (options.origins[i].kind != REEF_ORIGIN_FILE)
            fail_msg("%s does not come from the file", reef_setting_name(i));
    char origin[600];
    snprintf(origin, sizeof(origin), "%s:8", f->path);
    assert_origin(&options, "commit-steps", origin);
    reef_options_release(&options);
}

FIXTURE_TEST(options_win_over_the_file_and_the_environment_is_not_read) {
    reef_options options;
    reef_error err = {0};
    write_config(f, "[reefd]\npool = p\nsource = a\nsource = b\ncommit-seconds = 1\nstay = yes\n"
                    "quiet = yes\n");
    assert_int_equal(setenv("REEF_COMMIT_SECONDS", "2", 1), 0);
    assert_int_equal(setenv("REEF_SOURCE", "c", 1), 0);
    assert_int_equal(setenv("REEF_STAY", "no", 1), 0);
    assert_int_equal(parse(&options, f, NULL, &err), REEF_OK);
    assert_int_equal(
        unsetenv("REEF_COMMIT_SECONDS") | unsetenv("REEF_SOURCE") | unsetenv("REEF_STAY"), 0);
    assert_true(options.commit_seconds == 1);
    assert_int_equal(options.source_count, 2);
    assert_string_equal(options.sources[0], "a");
    assert_true(options.stay && options.quiet);
    assert_origin(&options, "commit-steps", "default");
    reef_options_release(&options);

    const char *flags[] = {"--commit-seconds", "3",          "--source", "d", "--source", "e",
                           "--stay",           "--no-quiet", NULL};
    assert_int_equal(parse(&options, f, flags, &err), REEF_OK);
    assert_true(options.commit_seconds == 3);
    assert_int_equal(options.source_count, 2);
    assert_string_equal(options.sources[0], "d");
    assert_true(options.stay && !options.quiet);
    assert_origin(&options, "commit-seconds", "--commit-seconds");
    assert_origin(&options, "quiet", "--quiet");
    reef_options_release(&options);
}

FIXTURE_TEST(a_mistake_in_the_file_is_reported_with_its_line) {
    char name[201];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    char *long_line = calloc(1, 300);
    snprintf(long_line, 300, "[reefd]\npool = %s\n", name);
    const struct {
        const char *text, *told;
    } CASES[] = {
        {"[reefd]\npool = p\ncomit-steps = 3\n",
         ":3: unknown key 'comit-steps'; did you mean commit-steps?"},
        {"[reefd]\nentirely_different = 3\n", ":2: unknown key 'entirely_different'; see"},
        {"pool = p\n", ":1: a key before any section: begin with [reefd]"},
        {"[reef]\npool = p\n", ":2: there is no section [reef]; did you mean [reefd]?"},
        {"[reefd]\npool = p\npool = q\n", ":3: pool stands on line 2 already"},
        {"[reefd]\npool =\n", ":2: pool needs a value"},
        {"[reefd]\npool\n", ":2: neither [SECTION] nor KEY = VALUE"},
        {"[reefd]\nthreads = 0\n", ":2: threads '0' is not a whole number from 1 to 1024"},
        {"[reefd]\nstay = maybe\n", ":2: stay 'maybe' is neither yes nor no"},
        {"[reefd]\nsnapshot-every = 1\n", ":2: snapshot-every '1' is not a period: 0, or a "},
        {"[reefd]\nsnapshot-every = 1h30m\n", ":2: snapshot-every '1h30m' is not a period"},
        {"[reefd]\nsnapshot-every = 0s\n", ":2: snapshot-every '0s' is not a period"},
        {"[reefd]\nkeep = hour=1\n", ":2: keep 'hour=1' is not what to keep: rules such as "},
        {"[reefd]\ncommit_seconds = -1\n", ":2: commit-seconds '-1' is not"},
        {"[reefd]\nrows-memory = all\n", ":2: rows-memory 'all' is not an amount"},
        {"[reefd]\nmemory = 4G\n", ":2: 'reefd --memory' is gone: reef init --memory is for"},
        {"[reefd]\nsource = pusch:web\n", ":2: unknown kind of source 'pusch'"},
        {"[reefd]\nsource = push:web?weight=0\n", ":2: a source's weight, '0'"},
        {"[reefd]\nsource = redis://host/log?grup=a\n", ":2: 'grup' is not an option"},
        {"[reefd]\nsource = journal:unti=nginx\n", ":2: journal: does not know 'unti'"},
        {"[reefd]\nsource = syslog:udp://web1:514\n", ":2: syslog: listens on udp://ADDRESS:PORT"},
        {"[reefd]\nsource = kafka:host:9092\n", ":2: 'kafka:host:9092' is not kafka:HOST:PORT"},
        {"[reefd]\nsource = follow:\n", "names nothing after its colon"},
        {"[reefd]\nhttp = x:y\n", "'x:y' is not an address"},
        {long_line, ":2: the line is too long"},
        // The first mistake is reported, whichever check finds it.
        {"[reefd]\nthreads = 0\nnonsense\n", ":2: threads '0'"},
        {"[reefd]\nnonsense\nthreads = 0\n", ":2: neither"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        reef_options options;
        reef_error err = {0};
        write_config(f, CASES[i].text);
        assert_int_equal(parse(&options, f, NULL, &err), REEF_ERR_INVALID);
        if (strstr(err.message, CASES[i].told) == NULL || strstr(err.message, f->path) == NULL)
            fail_msg("'%s' does not tell '%s'", err.message, CASES[i].told);
        reef_options_release(&options);
    }
    free(long_line);
}

FIXTURE_TEST(a_wrong_value_is_reported_although_a_stronger_one_hides_it) {
    reef_options options;
    reef_error err = {0};
    const char *flags[] = {"--threads", "2", NULL};
    write_config(f, "[reefd]\npool = p\nstay = yes\nthreads = many\n");
    assert_int_equal(parse(&options, f, flags, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, ":4: threads 'many'"));
    reef_options_release(&options);
}

FIXTURE_TEST(a_file_that_is_none_is_refused) {
    reef_options options;
    reef_error err = {0};
    assert_int_equal(parse(&options, f, NULL, &err), REEF_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, f->path));
    snprintf(f->path, sizeof(f->path), "%s", f->directory);
    assert_int_equal(parse(&options, f, NULL, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "not a regular file"));
    snprintf(f->path, sizeof(f->path), "/dev/zero");
    assert_int_equal(parse(&options, f, NULL, &err), REEF_ERR_INVALID);
}

FIXTURE_TEST(a_mistake_is_reported_in_the_form_that_was_asked_for) {
    reef_options options;
    reef_error err = {0};
    write_config(f, "[reefd]\nthreads = 0\njson-log = yes\n"); // below the mistake
    assert_int_equal(parse(&options, f, NULL, &err), REEF_ERR_INVALID);
    assert_true(options.json_log);
    reef_options_release(&options);
    const char *unknown[] = {"--frobnicate", NULL};
    assert_int_equal(parse(&options, f, unknown, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "--frobnicate"));
    assert_true(options.json_log);
    reef_options_release(&options);
    const char *other[] = {"--no-json-log", NULL};
    assert_int_equal(parse(&options, f, other, &err), REEF_ERR_INVALID);
    assert_false(options.json_log);
    reef_options_release(&options);
}

FIXTURE_TEST(only_what_may_change_is_taken_over) {
    reef_options before, after;
    reef_error err = {0};
    write_config(f, "[reefd]\npool = p\nstay = yes\n");
    assert_int_equal(parse(&before, f, NULL, &err), REEF_OK);
    write_config(f, "[reefd]\npool = q\nstay = yes\nthreads = 5\ncommit-steps = 1\n"
                    "commit-seconds = 2\njson-log = yes\n"
                    "quiet = yes\npool-max = 1G\nsnapshot-every = 1d\nkeep = daily=1\n");
    assert_int_equal(parse(&after, f, NULL, &err), REEF_OK);
    reef_options_take_live(&before, &after);
    for (size_t i = 0; i < reef_setting_count(); i++) {
        json_t *here = reef_setting_value(&before, i), *there = reef_setting_value(&after, i);
        bool same = json_equal(here, there) != 0,
             untouched = strcmp(reef_setting_name(i), "stay") == 0;
        json_decref(here);
        json_decref(there);
        bool given = after.origins[i].kind != REEF_ORIGIN_DEFAULT;
        if (given && !untouched && same != reef_setting_is_live(i))
            fail_msg("%s was %s", reef_setting_name(i), same ? "taken" : "left");
    }
    assert_string_equal(before.pool, "p");
    assert_int_equal(before.threads, 0);
    assert_int_equal(before.commit_steps, 1);
    assert_int_equal(before.pool_max, UINT64_C(1) << 30);
    reef_options_release(&after);
    reef_options_release(&before);
}

RUN_TESTS
