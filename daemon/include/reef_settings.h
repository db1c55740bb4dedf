// What reefd was asked to do: on its command line and in its configuration file.
//
//   default  <  FILE:LINE  <  --commit-seconds
//
// Every setting is one row of the table in settings_table.c, from which come both spellings of it.
#ifndef REEF_SETTINGS_H
#define REEF_SETTINGS_H

#include "reef_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- config_file.c ------------------------------------------------------------------------------
//
// A configuration file: keys and values of one section, with the line that each stands on.
//
//   # a comment; so is what follows a blank and a semicolon
//   [reefd]
//   commit-seconds = 5
//
// inih reads the form. Stricter here: keys stand in the section, blanks before a key mean nothing,
// a line that is too long is reported instead of cut, and the file is a regular one of bounded
// size.

#define REEF_CONFIG_FILE_BYTES_MAX (1u << 20)

/**
 * Receives one key and its value, both valid for the call; what it refuses is reported with file
 * and line.
 */
typedef reef_status (*reef_config_entry)(
    void *context, const char *key, const char *value, unsigned line, reef_error *err);

/**
 * Read the keys of `section` in the order of the file. Continues after a mistake, so that every key
 * is seen once; the first mistake is the error.
 *
 * Errors: INVALID with "FILE:LINE: ..."; NOT_FOUND when the file is not there; IO.
 */
REEF_MUST_CHECK reef_status reef_config_file_read(
    const char *path, const char *section, reef_config_entry entry, void *context, reef_error *err);

// ---- settings -----------------------------------------------------------------------------------

#define REEF_INPUT_COUNT_MAX 256 // every file source holds a descriptor
#define REEF_THREAD_COUNT_MAX 1024
#define REEF_SETTING_COUNT_MAX 24

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
    REEF_ORIGIN_FLAG
} reef_origin_kind;

typedef struct reef_option_origin {
    reef_origin_kind kind;
    unsigned line; // of a file
} reef_option_origin;

typedef struct reef_options {
    reef_options_action action;
    const char *config; // the configuration file, or NULL
    const char *pool;
    const char *sources[REEF_INPUT_COUNT_MAX]; // as given: "file:PATH", "PATH", "-"
    size_t source_count;
    uint64_t threads;           // 0: one per core
    uint64_t memory_bytes;      // 0: what the machine has
    uint64_t pool_max;          // bytes that the pool may take; 0: no bound
    uint64_t snapshot_every_ms; // a state is kept so often; 0: none
    const char *keep;           // which of these stay: see kept_states.h
    uint64_t commit_steps;      // 0: not by steps
    double commit_seconds;      // 0: not by time
    const char *socket;         // NULL: inside the pool
    const char *http;           // where to listen, or NULL: nowhere
    const char *http_token;     // a file, or NULL
    const char *alarm_exec;     // a shell command to run for each incident, or NULL
    const char *alarm_hook;     // a URL, or NULL
    uint64_t journal_bytes;     // of each source that is pushed into
    uint64_t join_every;        // bytes after which ranks that learn apart join; 0: they share one
    bool stay, json_log, quiet;
    // No settings: other values are for tests, where fail points are compiled in.
    double patience_seconds;      // how long others wait for a live source that has nothing
    double progress_seconds;      // between two lines of where it is
    double rank_deadline_seconds; // how long another rank may take to answer
    uint64_t commit_retries;
    uint64_t scrub_rate; // bytes of sealed records a second that are read again; 0: none
    reef_option_origin origins[REEF_SETTING_COUNT_MAX]; // by setting
    const char *passed_over; // which files of a pattern are no sources, as a sentence; or NULL
    struct reef_options_text *texts; // what was read from the file
} reef_options;

/**
 * Put all of it together; strings are borrowed from `argv`. Release it, also after an error.
 *
 * Errors: INVALID names the option, or file and line at fault; also then `json_log`
 * says in which form to report it, as far as that was read. Those of reef_config_file_read.
 */
REEF_MUST_CHECK reef_status reef_options_parse(reef_options *options,
                                               int argc,
                                               char **argv,
                                               reef_error *err);
void reef_options_release(reef_options *options);

/** The text of --help. */
const char *reef_options_help(void);

/** What help says of one option. */
typedef struct reef_option_text {
    const char *name;  // without the dashes
    const char *value; // what the value is called; NULL for a switch
    const char *help;  // one paragraph in one line
} reef_option_text;

/** All options, those that are not settings last. */
const reef_option_text *reef_option_texts(size_t *count);

// ---- the settings one by one --------------------------------------------------------------------

size_t reef_setting_count(void);
/** "commit-seconds" */
const char *reef_setting_name(size_t index);
/** Whether it may change while the daemon runs. */
bool reef_setting_is_live(size_t index);
/** Its value: a number, a word, true or false, a list of sources, or null. */
json_t *reef_setting_value(const reef_options *options, size_t index);
/**
 * "default", "/etc/reef/news.ini:4" or "--commit-seconds"; returns `out`.
 */
const char *reef_setting_origin(const reef_options *options, size_t index, char *out, size_t room);
/** All of them: `name`, `value` (without passwords), `origin`, `live`. */
json_t *reef_settings_json(const reef_options *options);
/** Take the settings that may change from `from`. */
void reef_options_take_live(reef_options *options, const reef_options *from);

#endif
