// What reefd was asked to do on its command line.
#ifndef REEF_OPTIONS_H
#define REEF_OPTIONS_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_INPUT_COUNT_MAX 256 // every file source holds a descriptor
#define REEF_THREAD_COUNT_MAX 1024

typedef enum reef_options_action {
    REEF_ACTION_RUN,
    REEF_ACTION_HELP,
    REEF_ACTION_VERSION
} reef_options_action;

typedef struct reef_options {
    reef_options_action action;
    const char *pool;
    const char *sources[REEF_INPUT_COUNT_MAX]; // as given: "file:PATH", "PATH", "-" or vectors
    size_t source_count;
    size_t threads;          // 0: one per core
    uint64_t memory_bytes;   // 0: what the machine has
    uint64_t commit_steps;   // 0: not by steps
    double commit_seconds;   // 0: not by time
    double patience_seconds; // how long others wait for a live source that has nothing
    uint32_t commit_retries;
    const char *socket;     // NULL: inside the pool
    const char *http;       // where to listen, or NULL: nowhere
    const char *http_token; // a file, or NULL
    uint64_t scrub_rate;    // bytes of sealed records a second that are read again; 0: none
    bool stay, json_log, quiet;
} reef_options;

/** Parse the command line; strings are borrowed from `argv`. INVALID names the option at fault. */
REEF_MUST_CHECK reef_status reef_options_parse(reef_options *options,
                                               int argc,
                                               char **argv,
                                               reef_error *err);

/** The text of --help. */
const char *reef_options_help(void);

#endif
