// The settings of reefd, in their layers. Nothing here touches the file system but for the
// configuration file.
//
// The layers are applied one over the other, the weakest first, so a mistake in a value is reported
// even where a stronger layer would hide it.
#include "settings_internal.h"

#include "kept_states.h"
#include "push.h"
#include "reef_gone.h"
#include "reef_settings.h"
#include "reef_source.h"
#include "scrubber.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_STEPS_DEFAULT 50
#define COMMIT_SECONDS_DEFAULT 10
#define PATIENCE_SECONDS 5
#define PROGRESS_SECONDS 10
#define RANK_DEADLINE_SECONDS 300
#define COMMIT_RETRIES 5 // with pauses of 1, 2, 4, 8 and 16 seconds
#define SECTION "reefd"
#define LABEL_BYTES_MAX 200

// ---- the file -----------------------------------------------------------------------------------

// commit_steps is commit-steps.
static bool is_key(const char *key, const char *name) {
    for (; *key && *name; key++, name++)
        if (*key != *name && !(*key == '_' && *name == '-')) return false;
    return *key == *name;
}

static reef_status refuse_key(const reef_options *options,
                              const char *key,
                              unsigned line,
                              reef_error *err) {
    reef_error gone;
    if (reef_gone_report("reefd", key, &gone))
        return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: %s", options->config, line,
                         gone.message);
    const char *guess = NULL;
    for (size_t i = 0; i < reef_setting_count(); i++)
        reef_guess(key, reef_settings[i].name, &guess);
    return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: unknown key '%.40s'%s%s%s", options->config,
                     line, key, guess != NULL ? "; did you mean " : "; see reefd --help",
                     guess != NULL ? guess : "", guess != NULL ? "?" : "");
}

static reef_status on_entry(
    void *context, const char *key, const char *value, unsigned line, reef_error *err) {
    reef_options *options = context;
    size_t i = 0;
    while (i < reef_setting_count() && !is_key(key, reef_settings[i].name)) i++;
    if (i == reef_setting_count()) return refuse_key(options, key, line, err);
    // An empty value is most likely an unfinished edit.
    if (*value == '\0')
        return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: %s needs a value", options->config,
                         line, reef_settings[i].name);
    // Sources may be given several times; any other key twice in one file is a mistake.
    if (reef_settings[i].kind != SETTING_SOURCE && options->origins[i].kind == REEF_ORIGIN_FILE)
        return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: %s stands on line %u already",
                         options->config, line, reef_settings[i].name, options->origins[i].line);
    char label[LABEL_BYTES_MAX];
    snprintf(label, sizeof(label), "%.120s:%u: %s", options->config, line, reef_settings[i].name);
    // Strings live as long as the options; inih's buffers do not.
    const char *kept = reef_option_keep(options, value);
    if (kept == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the configuration");
    return reef_option_take(options, i, (reef_option_origin){REEF_ORIGIN_FILE, line}, label, kept,
                            err);
}

static reef_status take_file(reef_options *options, reef_error *err) {
    if (options->config == NULL) return REEF_OK;
    return reef_config_file_read(options->config, SECTION, on_entry, options, err);
}

// ---- all of it ----------------------------------------------------------------------------------

static reef_status check_complete(const reef_options *options, reef_error *err) {
    if (options->pool == NULL || !*options->pool)
        return reef_fail(err, REEF_ERR_INVALID, "which pool? give --pool DIR; see reefd --help");
    if (!options->source_count && !options->stay)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "nothing to read: give --source file:PATH or --source -; see reefd --help");
    if (options->http_token != NULL && options->http == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--http-token without --http: say where to listen; see reefd --help");
    return reef_input_check_distinct(options->sources, options->source_count, err);
}

// A mistake is reported in the requested format, whichever layer requests it; the file was read
// already.
static void find_log_form(reef_options *options, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json-log") == 0 || strcmp(argv[i], "--no-json-log") == 0)
            options->json_log = argv[i][2] == 'j';
}

// Tests cannot wait as long as an operator does.
static double for_tests(const char *variable, double value) {
#ifdef REEF_FAIL_POINTS
    const char *text = getenv(variable);
    if (text != NULL) return strtod(text, NULL);
#endif
    (void)variable;
    return value;
}

static void set_defaults(reef_options *options) {
    *options = (reef_options){.commit_steps = COMMIT_STEPS_DEFAULT,
                              .commit_seconds = COMMIT_SECONDS_DEFAULT,
                              .journal_bytes = REEF_PUSH_JOURNAL_BYTES,
                              .keep = REEF_KEEP_DEFAULT};
    options->patience_seconds = for_tests("REEF_TEST_PATIENCE", PATIENCE_SECONDS);
    options->progress_seconds = for_tests("REEF_TEST_PROGRESS", PROGRESS_SECONDS);
    options->rank_deadline_seconds = for_tests("REEF_TEST_RANK_DEADLINE", RANK_DEADLINE_SECONDS);
    options->commit_retries = (uint64_t)for_tests("REEF_TEST_COMMIT_RETRIES", COMMIT_RETRIES);
    options->scrub_rate = (uint64_t)for_tests("REEF_TEST_SCRUB_RATE", REEF_SCRUB_RATE_DEFAULT);
}

static reef_status read_layers(reef_options *options, int argc, char **argv, reef_error *err) {
    reef_option_flags table;
    reef_option_flags_init(&table);
    set_defaults(options);
    // The flags are read twice: first for --config and --help, then for their values, which outrank
    // the file's.
    reef_status status = reef_option_flags_scan(options, &table, argc, argv, err);
    if (options->action == REEF_ACTION_HELP || options->action == REEF_ACTION_VERSION)
        return REEF_OK;
    // The first error wins, but the file is read in any case: it may name the form of the log.
    reef_status of_file = take_file(options, status == REEF_OK ? err : NULL);
    if (status == REEF_OK) status = of_file;
    if (status == REEF_OK) status = reef_option_flags_take(options, &table, argc, argv, err);
    // The error itself should appear in the form that was asked for, wherever that was asked.
    if (status != REEF_OK) find_log_form(options, argc, argv);
    return status;
}

reef_status reef_options_parse(reef_options *options, int argc, char **argv, reef_error *err) {
    reef_status status = read_layers(options, argc, argv, err);
    if (status != REEF_OK || options->action == REEF_ACTION_HELP ||
        options->action == REEF_ACTION_VERSION)
        return status;
    return check_complete(options, err);
}
