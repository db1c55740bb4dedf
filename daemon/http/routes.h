// The HTTP requests, who may send them, and who replies: the loop at once, the query thread, or the
// trainer between two steps. docs/PROTOCOL.md describes every route.
#ifndef REEF_ROUTES_H
#define REEF_ROUTES_H

#include "http_server.h"
#include "push.h"
#include "query_thread.h"
#include "reef_error.h"
#include "status.h"
#include "training_thread.h"

#include <jansson.h>
#include <stddef.h>

// ---- command.c ----------------------------------------------------------------------------------
//
// The commands of POST /v1/command: from JSON to what is to be done, and from what was done to
// JSON. docs/PROTOCOL.md describes them.

typedef enum reef_command_kind {
    REEF_COMMAND_STATUS,  // answered from a copy
    REEF_COMMAND_STOP,    // answered at once; the end follows
    REEF_COMMAND_TRAINER, // queued to the trainer, answered when done
    REEF_COMMAND_SERVICE, // handed to the service, answered when done
} reef_command_kind;

typedef struct reef_command {
    reef_command_kind kind;
    reef_request request; // of REEF_COMMAND_TRAINER and REEF_COMMAND_SERVICE
} reef_command;

/**
 * INVALID says what is wrong with the text; arguments that a command does not know are refused.
 * reef_request_release what it holds, after success.
 */
REEF_MUST_CHECK reef_status reef_command_parse(reef_command *command,
                                               const char *text,
                                               size_t bytes,
                                               reef_error *err);

/** What a request that was served without an error is answered with. */
json_t *reef_command_result(const reef_request *request);

// ---- route_events.c -----------------------------------------------------------------------------
//
// Events that the daemon sends by itself: the status, once a second, to every subscribed client;
// and the pool's stats for metrics, read at intervals by the query thread. On the loop's thread.

#define REEF_EVENTS_MAX 24 // who listens at once

typedef struct reef_listener {
    reef_http_stream *stream; // NULL: free
} reef_listener;

typedef struct reef_events {
    reef_listener listeners[REEF_EVENTS_MAX];
    uint64_t ticks;
    json_t *stats; // of reef_query_stats, or NULL before the first
    bool asked;    // for new ones
    uint64_t stats_ns;
    uint64_t wanted_ns; // when somebody looked at them last
    uint64_t next;      // event of the timeline behind which changes of incidents are to be sent
    uint64_t commit;    // they were read as of it
    bool reading;       // them
} reef_events;

/** Reply to a request with events. False when too many listen. */
bool reef_events_listen(reef_events *events, reef_http_request *request, reef_status_view *monitor);
/** The pool's stats, or NULL before the first; they are kept up to date for a while. */
json_t *reef_events_stats(reef_events *events);
/** Call at a steady pace. */
void reef_events_tick(reef_events *events, reef_status_view *monitor, reef_query_thread *queries);
/** Nothing is sent any more. */
void reef_events_release(reef_events *events);

// ---- routes.c -----------------------------------------------------------------------------------

typedef struct reef_routes {
    // set by the caller
    reef_status_view *monitor;
    reef_training *training;
    reef_query_thread *queries;
    reef_pusher *pusher;
    reef_report *report;
    void (*on_stop)(void *context); // a client asked for the end
    /** Takes a request of REEF_COMMAND_SERVICE, as reef_training_request does. */
    reef_status (*on_request)(void *context, reef_request *request, reef_error *err);
    void *context;
    // its own
    reef_events events;
    uint64_t told_ns;      // when a refused batch was logged last
    size_t refused_silent; // since then
} reef_routes;

/** For reef_http_options: `context` is a reef_routes. */
void reef_routes_begin(void *context, reef_http_request *request);
void reef_routes_handle(void *context, reef_http_request *request);
void reef_routes_forget(void *context, reef_http_request *request);
void reef_routes_hung_up(void *context, reef_http_request *request);
void reef_routes_replied(void *context, const reef_http_request *request);
/** Send the replies that the query thread has ready. */
void reef_routes_reply(reef_routes *routes);
/** Send what is sent without being asked for; call at a steady pace. */
void reef_routes_tick(reef_routes *routes);
void reef_routes_release(reef_routes *routes);

// ---- route_ingest.c -----------------------------------------------------------------------------
//
// POST /v1/ingest, /v1/ingest/NAME, and those of Loki and OpenTelemetry: from a request to a batch
// (push.h).

#define REEF_HTTP_INGEST_PATH "/v1/ingest"
#define REEF_HTTP_LOKI_PATH "/loki/api/v1/push"
#define REEF_HTTP_OTLP_PATH "/v1/logs"

bool reef_http_is_push(const char *path);
/** How its body is packed. False: in a way that is not known. */
bool reef_http_packing(reef_packing *out, const reef_http_request *request);
/** The source that a push names, or NULL. */
const char *reef_http_push_source(const reef_http_request *request);
/**
 * The batch that a request contains, with its body. What is wrong goes into `code` and `err`.
 *
 * Errors: INVALID with 400, or 415 for a Content-Type that is not known; NO_MEMORY with 500.
 */
REEF_MUST_CHECK reef_status reef_http_ingest(reef_push_batch **out,
                                             reef_http_request *request,
                                             unsigned *code,
                                             reef_error *err);

#endif
