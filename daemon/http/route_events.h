// Events that the daemon sends by itself: the status, once a second, to every subscribed client;
// and the pool's stats for metrics, read at intervals by the query thread. On the loop's thread.
#ifndef REEF_ROUTE_EVENTS_H
#define REEF_ROUTE_EVENTS_H

#include "http_server.h"
#include "query_thread.h"
#include "status.h"

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
} reef_events;

/** Reply to a request with events. False when too many listen. */
bool reef_events_listen(reef_events *events, reef_http_request *request, reef_status_view *monitor);
/** The pool's stats, or NULL before the first; they are kept up to date for a while. */
json_t *reef_events_stats(reef_events *events);
/** Call at a steady pace. */
void reef_events_tick(reef_events *events, reef_status_view *monitor, reef_query_thread *queries);
/** Nothing is sent any more. */
void reef_events_release(reef_events *events);

#endif
