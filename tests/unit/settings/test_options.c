// The command line of reefd: what is accepted, and that refused words are named.
#include "redis_url.h"
#include "reef_settings.h"
#include "temp_dir.h"
#include "test.h"

#include <jansson.h>

#define PARSE(options, err, ...)                                                                   \
    parse(options, err, (const char *const[]){"reefd", __VA_ARGS__, NULL})

static reef_status parse(reef_options *options, reef_error *err, const char *const *list) {
    static char *arguments[64];
    int count = 0;
    for (; list[count] != NULL; count++) arguments[count] = (char *)(uintptr_t)list[count];
    arguments[count] = NULL;
    return reef_options_parse(options, count, arguments, err);
}

PLAIN_TEST(options_have_their_documented_defaults) {
    reef_options options;
    reef_error err;
    assert_int_equal(PARSE(&options, &err, "--pool", "p", "--source", "file:a"), REEF_OK);
    assert_string_equal(options.pool, "p");
    assert_int_equal(options.source_count, 1);
    assert_string_equal(options.sources[0], "file:a");
    assert_int_equal(options.threads, 0);
    assert_int_equal(options.commit_steps, 50);
    assert_true(options.commit_seconds == 10.0);
    assert_int_equal(options.snapshot_every_ms, 0);
    assert_string_equal(options.keep, "hourly=24,daily=30,weekly=52");
    assert_null(options.socket);
    assert_false(options.stay || options.json_log || options.quiet);
}

PLAIN_TEST(every_option_is_taken) {
    reef_options options;
    reef_error err;
    assert_int_equal(PARSE(&options, &err, "--pool=p", "--source", "a", "--source=-", "--threads",
                           "3", "--pool-max", "2G", "--commit-steps", "7", "--commit-seconds",
                           "0.5", "--snapshot-every", "2h", "--keep", "daily=7", "--socket", "s",
                           "--stay", "--json-log", "--quiet"),
                     REEF_OK);
    assert_int_equal(options.source_count, 2);
    assert_string_equal(options.sources[1], "-");
    assert_int_equal(options.threads, 3);
    assert_int_equal(options.pool_max, UINT64_C(2) << 30);
    assert_int_equal(options.commit_steps, 7);
    assert_true(options.commit_seconds == 0.5);
    assert_int_equal(options.snapshot_every_ms, 7200000);
    assert_string_equal(options.keep, "daily=7");
    assert_string_equal(options.socket, "s");
    assert_true(options.stay && options.json_log && options.quiet);
}

PLAIN_TEST(a_stay_needs_no_source) {
    reef_options options;
    reef_error err;
    assert_int_equal(PARSE(&options, &err, "--pool", "p", "--stay"), REEF_OK);
    assert_int_equal(PARSE(&options, &err, "--pool", "p"), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "--source"));
}

PLAIN_TEST(help_and_version_need_nothing_else) {
    reef_options options;
    reef_error err;
    assert_int_equal(PARSE(&options, &err, "--help", "--nonsense"), REEF_OK);
    assert_int_equal(options.action, REEF_ACTION_HELP);
    assert_int_equal(PARSE(&options, &err, "--version"), REEF_OK);
    assert_int_equal(options.action, REEF_ACTION_VERSION);
    // Every option is in the help.
    static const char *const NAMES[] = {
        "--pool",     "--source", "--threads",  "--commit-steps", "--commit-seconds",
        "--socket",   "--stay",   "--json-log", "--quiet",        "--keep",
        "--version",  "REEF_ISA", "--config",   "--check",        "--no-stay",
        "--pool-max", "SIGHUP"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++)
        assert_non_null(strstr(reef_options_help(), NAMES[i]));
}

PLAIN_TEST(what_is_refused_is_named) {
    static const struct {
        const char *arguments[4];
        const char *named;
    } CASES[] = {
        {{"--frobnicate"}, "'--frobnicate'"},
        {{"--comit-steps=4"}, "'--comit-steps=4'; did you mean --commit-steps?"},
        {{"--no-sty"}, "did you mean --no-stay?"},
        {{"-x"}, "'-x'"},
        {{"--pool"}, "'--pool'"},
        {{"--stay=yes"}, "'--stay=yes'"},
        {{"stray", "--pool", "p"}, "'stray'"},
        {{"--source", "a"}, "--pool"},
        {{"--pool", "", "--stay"}, "--pool"},
        {{"--threads", "0"}, "--threads '0'"},
        {{"--threads", "1025"}, "--threads '1025'"},
        {{"--threads", "-1"}, "--threads '-1'"},
        {{"--threads", "2x"}, "--threads '2x'"},
        {{"--threads", ""}, "--threads ''"},
        {{"--commit-steps", "99999999999999999999999"}, "--commit-steps"},
        {{"--commit-seconds", "nan"}, "--commit-seconds 'nan'"},
        {{"--commit-seconds", "-1"}, "--commit-seconds '-1'"},
        {{"--commit-seconds", "soon"}, "--commit-seconds 'soon'"},
        {{"--pool-max", "large"}, "--pool-max 'large'"},
        {{"--pool-max", "-1"}, "--pool-max '-1'"},
        {{"--scrub-rate", "1M"}, "'reefd --scrub-rate' is gone"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        reef_options options;
        reef_error err = {0};
        const char *list[6] = {"reefd"};
        memcpy(list + 1, CASES[i].arguments, sizeof(CASES[i].arguments));
        assert_int_equal(parse(&options, &err, list), REEF_ERR_INVALID);
        if (strstr(err.message, CASES[i].named) == NULL)
            fail_msg("'%s' does not name %s", err.message, CASES[i].named);
    }
}

PLAIN_TEST(too_many_sources_are_refused) {
    static char *arguments[2 * REEF_INPUT_COUNT_MAX + 8];
    int count = 0;
    reef_options options;
    reef_error err;
    static char words[][16] = {"reefd", "--pool", "p", "--source"};
    static char names[REEF_INPUT_COUNT_MAX + 1][16];
    for (int i = 0; i < 3; i++) arguments[count++] = words[i];
    for (int i = 0; i < REEF_INPUT_COUNT_MAX + 1; i++) {
        snprintf(names[i], sizeof(names[i]), "none-%d", i);
        arguments[count++] = words[3];
        arguments[count++] = names[i];
    }
    assert_int_equal(reef_options_parse(&options, count - 2, arguments, &err), REEF_OK);
    assert_int_equal(options.source_count, REEF_INPUT_COUNT_MAX);
    assert_int_equal(reef_options_parse(&options, count, arguments, &err), REEF_ERR_INVALID);
}

PLAIN_TEST(a_pattern_is_its_files_in_the_order_of_names) {
    static reef_options options; // what a pattern becomes lives as long as the process
    reef_error err = {0};
    char folder[TEMP_DIR_BYTES], pattern[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES];
    char argument[TEMP_DIR_BYTES + 8], expected[TEMP_DIR_BYTES + 8];
    temp_dir_new(folder);
    temp_dir_join(pattern, folder, "*.txt");
    snprintf(argument, sizeof(argument), "glob:%s", pattern);
    assert_int_equal(PARSE(&options, &err, "--pool", "p", "--source", argument),
                     REEF_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "*.txt"));
    const char *const names[] = {"b.txt", "a.txt", "c.log", "10.txt"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        temp_dir_join(path, folder, names[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fclose(file);
    }
    temp_dir_join(path, folder, "folder.txt");
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(
        PARSE(&options, &err, "--pool", "p", "--source", "first", "--source", argument), REEF_OK);
    const char *const order[] = {"10.txt", "a.txt", "b.txt"};
    assert_int_equal(options.source_count, 4);
    assert_string_equal(options.sources[0], "first");
    for (size_t i = 0; i < 3; i++) {
        snprintf(expected, sizeof(expected), "file:%.400s/%s", folder, order[i]);
        assert_string_equal(options.sources[i + 1], expected);
    }
    temp_dir_remove(folder);
}

// Rotated copies that are packed, and the link that a rotation leaves to the present file.
PLAIN_TEST(a_pattern_takes_each_file_once_and_text_only) {
    reef_options options;
    reef_error err = {0};
    char folder[TEMP_DIR_BYTES], line[4 * TEMP_DIR_BYTES], argument[TEMP_DIR_BYTES + 8];
    temp_dir_new(folder);
    snprintf(argument, sizeof(argument), "glob:%.400s/*", folder);
    snprintf(line, sizeof(line),
             "cd '%s' && echo a line > app.log && gzip -c app.log > app.log.1.gz", folder);
    assert_int_equal(system(line), 0);
    assert_int_equal(PARSE(&options, &err, "--pool", "p", "--source", argument), REEF_OK);
    assert_int_equal(options.source_count, 1);
    assert_non_null(strstr(options.passed_over, "app.log.1.gz' is packed by gzip"));
    reef_options_release(&options);
    snprintf(line, sizeof(line), "cd '%s' && rm *.gz && ln -s app.log now && ln app.log same",
             folder);
    assert_int_equal(system(line), 0);
    assert_int_equal(PARSE(&options, &err, "--pool", "p", "--source", argument), REEF_OK);
    assert_int_equal(options.source_count, 1);
    assert_non_null(strstr(options.passed_over, "2 names of files that it has already"));
    reef_options_release(&options);
    snprintf(line, sizeof(line), "cd '%s' && rm now same && xz app.log", folder);
    assert_int_equal(system(line), 0);
    assert_int_equal(PARSE(&options, &err, "--pool", "p", "--source", argument),
                     REEF_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "1 files that are no text"));
    reef_options_release(&options);
    temp_dir_remove(folder);
}

PLAIN_TEST(a_pattern_that_fits_too_many_files_says_how_many) {
    reef_options options;
    reef_error err;
    char folder[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES], argument[TEMP_DIR_BYTES + 8];
    temp_dir_new(folder);
    for (int i = 0; i < REEF_INPUT_COUNT_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%03d", i);
        temp_dir_join(path, folder, name);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fclose(file);
    }
    snprintf(argument, sizeof(argument), "glob:%s/f*", folder);
    assert_int_equal(PARSE(&options, &err, "--pool", "p", "--source", argument), REEF_OK);
    assert_int_equal(options.source_count, REEF_INPUT_COUNT_MAX);
    reef_options_release(&options);
    assert_int_equal(
        PARSE(&options, &err, "--pool", "p", "--source", "first", "--source", argument),
        REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "fits 256 files"));
    assert_non_null(strstr(err.message, "at most 256 sources"));
    assert_non_null(strstr(err.message, "dir:PATH/PATTERN"));
    reef_options_release(&options);
    temp_dir_remove(folder);
}

// What --check says may go into a log.
PLAIN_TEST(settings_are_shown_without_passwords) {
    reef_options options;
    reef_error err;
    assert_int_equal(PARSE(&options, &err, "--pool", "p", "--source",
                           "redis://reef:secr:et@of@host:1/events?group=a:b@c", "--source",
                           "redis://:secret@host/events", "--source", "redis://reef@host/others",
                           "--source", "redis:///run/redis:1@2/events", "--source",
                           "redis://host/a:b@c", "--source", "file:a:b@c", "--source",
                           "redis://reef:secret@host/events?db=2&weight=3"),
                     REEF_OK);
    json_t *settings = reef_settings_json(&options), *sources = NULL, *one;
    size_t i;
    json_array_foreach(settings, i, one) if (strcmp(json_string_value(json_object_get(one, "name")),
                                                    "source") == 0) sources =
        json_object_get(one, "value");
    const char *const expected[] = {"redis://reef:***@host:1/events?group=a:b@c",
                                    "redis://:***@host/events",
                                    "redis://reef@host/others",
                                    "redis:///run/redis:1@2/events",
                                    "redis://host/a:b@c",
                                    "file:a:b@c",
                                    "redis://reef:***@host/events?db=2&weight=3"};
    assert_int_equal(json_array_size(sources), 7);
    for (i = 0; i < 7; i++)
        assert_string_equal(json_string_value(json_array_get(sources, i)), expected[i]);
    json_decref(settings);
}

// It cannot be said which part of it is one.
PLAIN_TEST(of_a_redis_url_that_is_none_nothing_is_shown) {
    static const char *const URLS[] = {
        "redis://:sec/ret@host/events",  "redis://reef:sec?ret@host/events",
        "redis://reef:secret/s",         "redis://host/s?password=secret",
        "redis:reef:secret@host/events", "redis://u:secret@host:x/events"};
    for (size_t i = 0; i < sizeof(URLS) / sizeof(*URLS); i++) {
        char *shown = reef_redis_url_mask(URLS[i]);
        assert_string_equal(shown, "redis:***");
        free(shown);
    }
    char *shown = reef_redis_url_mask("rediss://:secret@host/events");
    assert_string_equal(shown, "rediss:***");
    free(shown);
    shown = reef_redis_url_mask("redis/a:b@c");
    assert_string_equal(shown, "redis/a:b@c");
    free(shown);
}

RUN_TESTS
