// reefd as a service: reloading its configuration, and messages to the service manager. On the
// loop's thread.
//
//   SIGHUP, reload -> read and check everything -> the trainer, between two steps: commit policy
//                                               -> here: log, scrubbing, token; then the reply
//
// A reload is applied as a whole or not at all: whatever can be wrong is checked before anything
// changes.
#ifndef REEF_SERVICE_H
#define REEF_SERVICE_H

#include "http_server.h"
#include "reef_log.h"
#include "reef_settings.h"
#include "scrubber.h"
#include "status.h"
#include "training_thread.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/** What the service manager was told. */
typedef struct reef_notify {
    uv_timer_t timer;
    bool started, stopping;
    bool watched;         // there is a watchdog
    uint64_t fed;         // `advances` when it was fed last
    char status[512];     // reported last
    uint64_t reported_ns; // and when
} reef_notify;

/** A reload that waits for a step boundary. */
typedef struct reef_reload {
    bool running;
    reef_options options;
    reef_http_token token;
    json_t *changed, *restart; // names of settings
    reef_request *request;     // who asked; NULL for a signal
} reef_reload;

typedef struct reef_service {
    // set by the caller before reef_service_start
    int argc;
    char **argv;
    uv_loop_t *loop;
    reef_options *options; // as they are in force
    reef_report *report;
    reef_training *training;
    reef_status_view *monitor;
    reef_scrubber *scrubber;
    reef_http *http; // or NULL
    // its own
    uv_signal_t hangup;
    reef_notify notify;
    reef_reload reload;
} reef_service;

/**
 * Before anything is made: private files, and no end by a signal that means something else later.
 */
void reef_service_prepare(void);
/**
 * `reefd --check`: prints every setting after all checks that need no training.
 */
REEF_MUST_CHECK reef_status reef_service_check(const reef_options *options, reef_error *err);
/** When training commits, and which states it keeps, by the options. */
reef_commit_policy reef_service_commit_policy(const reef_options *options);
/** Training runs: take signals, and say so. */
void reef_service_start(reef_service *service);
/**
 * Take a request of REEF_COMMAND_SERVICE; `on_reply` is called when it is done, while it has an
 * owner. BUSY while another of its kind is under way; the request is then still the caller's.
 */
REEF_MUST_CHECK reef_status reef_service_request(void *service,
                                                 reef_request *request,
                                                 reef_error *err);
/** The end has begun. */
void reef_service_stopping(reef_service *service);
/** The loop is to end: clients are gone. */
void reef_service_close(reef_service *service);

#endif
