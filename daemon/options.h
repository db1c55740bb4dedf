// What reefd was asked to do: on its command line, in its environment, in its configuration file.
//
//   default  <  FILE:LINE  <  REEF_COMMIT_SECONDS  <  --commit-seconds
//
// Every setting is one row of a table in options.c, from which come all three spellings of it.
#ifndef REEF_OPTIONS_H
#define REEF_OPTIONS_H

#include "reef_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_INPUT_COUNT_MAX 256 // every file source holds a descriptor
#define REEF_THREAD_COUNT_MAX 1024
#define REEF_SETTING_COUNT_MAX 32

typedef enum reef_options_action {
    REEF_ACTION_RUN,
    REEF_ACTION_CHECK,
    REEF_ACTION_HELP,
    REEF_ACTION_VERSION
} reef_options_action;

/** Where a value came from; what stands further down wins. */
typedef enum reef_origin_kind {
    REEF_ORIGIN_DEFAULT,
    REEF_ORIGIN_FILE,
    REEF_ORIGIN_ENVIRONMENT,
    REEF_ORIGIN_FLAG
} reef_origin_kind;

typedef struct reef_origin {
    reef_origin_kind kind;
    unsigned line; // of a file
} reef_origin;

typedef struct reef_options {
    reef_options_action action;
    const char *config; // the configuration file, or NULL
    const char *pool;
    const char *sources[REEF_INPUT_COUNT_MAX]; // as given: "file:PATH", "PATH", "-" or vectors
    size_t source_count;
    uint64_t threads;        // 0: one per core
    uint64_t memory_bytes;   // 0: what the machine has
    uint64_t commit_steps;   // 0: not by steps
    double commit_seconds;   // 0: not by time
    double patience_seconds; // how long others wait for a live source that has nothing
    uint64_t commit_retries;
    const char *socket;     // NULL: inside the pool
    const char *http;       // where to listen, or NULL: nowhere
    const char *http_token; // a file, or NULL
    uint64_t journal_bytes; // of each source that is pushed into
    uint64_t scrub_rate;    // bytes of sealed records a second that are read again; 0: none
    bool stay, json_log, quiet;
    reef_origin origins[REEF_SETTING_COUNT_MAX]; // by setting
    struct reef_options_text *texts;             // what was read from the file
} reef_options;

/**
 * Put all of it together; strings are borrowed from `argv` and the environment. Release it, also after an error.
 *
 * Errors: INVALID names the option, the variable, or file and line at fault; also then `json_log` says how to tell
 * it, as far as that was to be found out. Those of reef_config_file_read.
 */
REEF_MUST_CHECK reef_status reef_options_parse(reef_options *options,
                                               int argc,
                                               char **argv,
                                               reef_error *err);
void reef_options_release(reef_options *options);

/** The text of --help. */
const char *reef_options_help(void);

// ---- the settings one by one ---------------------------------------------------------------------

size_t reef_setting_count(void);
/** "commit-seconds" */
const char *reef_setting_name(size_t setting);
/** Whether it may change while the daemon runs. */
bool reef_setting_is_live(size_t setting);
/** Its value: a number, a word, true or false, a list of sources, or null. */
json_t *reef_setting_value(const reef_options *options, size_t setting);
/** "default", "/etc/reef/news.ini:4", "REEF_COMMIT_SECONDS" or "--commit-seconds"; returns `out`. */
const char *reef_setting_origin(const reef_options *options,
                                size_t setting,
                                char *out,
                                size_t room);
/** Take the settings that may change from `from`. */
void reef_options_take_live(reef_options *options, const reef_options *from);

#endif
