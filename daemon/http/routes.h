// The HTTP requests, who may send them, and who replies: the loop at once, the query thread, or the
// trainer between two steps. docs/PROTOCOL.md describes every route.
#ifndef REEF_ROUTES_H
#define REEF_ROUTES_H

#include "http_server.h"
#include "push.h"
#include "query_thread.h"
#include "route_events.h"
#include "status.h"
#include "training_thread.h"

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

#endif
