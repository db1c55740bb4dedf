// Events; see routes.h. An event is the whole status, so a client that missed some has missed
// nothing, and one that is too slow to take one is simply left out. They come once a second,
// whether anything has changed or not: that shows a client that the daemon's loop runs.
//
// Between them come incidents as they begin to ring and end, once they are in a commit. Who missed
// one finds it in /v1/incidents.
#include "routes.h"

#include "query_thread.h"
#include "reef_json_build.h"
#include "reef_system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVERY_TICKS 2                 // of 500 ms
#define STATS_SHARE 20                // of the time at most one part in so many goes to stats
#define STATS_PAUSE_NS 2000000000u    // between them at least
#define STATS_AGE_NS_MAX 60000000000u // they are read again although nothing was committed
#define WANTED_NS 300000000000u       // once somebody has looked at them

// ---- status -------------------------------------------------------------------------------------

// On the heap, or NULL without memory.
static char *status_event(reef_events *events, reef_status_view *monitor) {
    // The same document as /v1/status, with the statistics beside it.
    json_t *object = reef_status_view_status(monitor);
    json_t *stats = reef_events_stats(events);
    json_object_set_new(object, "facts", stats != NULL ? json_incref(stats) : json_null());
    json_object_set_new(object, "unix_ms", reef_json_count(reef_unix_ms()));
    char *text = json_dumps(object, JSON_COMPACT | REEF_JSON_DIGITS);
    json_decref(object);
    // The format of server-sent events: a name, one line of data, an empty line.
    static const char FORMAT[] = "event: status\ndata: %s\n\n";
    size_t room = text != NULL ? strlen(text) + sizeof(FORMAT) : 0;
    char *event = text != NULL ? malloc(room) : NULL;
    if (event != NULL) snprintf(event, room, FORMAT, text);
    free(text);
    return event;
}

static void on_gone(void *owner) {
    ((reef_listener *)owner)->stream = NULL;
}

bool reef_events_listen(reef_events *events,
                        reef_http_request *request,
                        reef_status_view *monitor) {
    // A fixed number of listeners, so that no client can make the daemon build events for
    // thousands.
    reef_listener *listener = events->listeners;
    while (listener < events->listeners + REEF_EVENTS_MAX && listener->stream != NULL) listener++;
    if (listener == events->listeners + REEF_EVENTS_MAX) return false;
    listener->stream = reef_http_stream_begin(request, "text/event-stream", on_gone, listener);
    if (listener->stream == NULL) return false;
    // The first event comes at once; a page that opens need not wait for the next tick.
    char *event = status_event(events, monitor);
    if (event != NULL) reef_http_stream_send(listener->stream, event, strlen(event));
    free(event);
    return true;
}

static void send_status(reef_events *events, reef_status_view *monitor) {
    char *event = NULL;
    for (size_t i = 0; i < REEF_EVENTS_MAX; i++) {
        if (events->listeners[i].stream == NULL) continue;
        if (event == NULL) event = status_event(events, monitor);
        if (event != NULL) reef_http_stream_send(events->listeners[i].stream, event, strlen(event));
    }
    free(event);
}

// ---- stats --------------------------------------------------------------------------------------

// What fails is tried again, like everything else here.
static void on_stats(reef_query *query) {
    reef_events *events = query->owner;
    events->asked = false;
    events->stats_ns = uv_hrtime();
    if (query->error.status != REEF_OK) return;
    json_decref(events->stats);
    events->stats = query->result;
    query->result = NULL;
}

json_t *reef_events_stats(reef_events *events) {
    events->wanted_ns = uv_hrtime();
    return events->stats;
}

static bool stats_are_due(const reef_events *events, reef_status_view *monitor) {
    if (events->asked) return false;
    if (events->stats == NULL) return true;
    if (uv_hrtime() - events->wanted_ns > WANTED_NS) return false;
    uint64_t age = uv_hrtime() - events->stats_ns;
    double took = json_number_value(json_object_get(events->stats, "took_s"));
    if (age < STATS_PAUSE_NS || (double)age < STATS_SHARE * took * 1e9) return false;
    reef_training_view view;
    reef_training_view_read(monitor->training, &view, NULL);
    uint64_t known = (uint64_t)json_integer_value(json_object_get(events->stats, "commit"));
    return known != view.last.commit.number || age > STATS_AGE_NS_MAX;
}

static void request_stats(reef_events *events, reef_query_thread *queries) {
    reef_error err;
    reef_query *query = calloc(1, sizeof(*query));
    if (query == NULL) return;
    query->run = reef_query_stats;
    query->owner = events;
    query->on_done = on_stats;
    if (reef_query_thread_submit(queries, query, &err) == REEF_OK)
        events->asked = true;
    else
        reef_query_free(query); // too many queries wait: next time
}

// ---- incidents ----------------------------------------------------------------------------------

static void send_change(reef_events *events, const json_t *change) {
    static const char FORMAT[] = "event: incident\ndata: %s\n\n";
    char *text = json_dumps(change, JSON_COMPACT | REEF_JSON_DIGITS);
    const size_t room = text != NULL ? strlen(text) + sizeof(FORMAT) : 0;
    char *event = text != NULL ? malloc(room) : NULL;
    if (event != NULL) snprintf(event, room, FORMAT, text);
    for (size_t i = 0; event != NULL && i < REEF_EVENTS_MAX; i++)
        if (events->listeners[i].stream != NULL)
            reef_http_stream_send(events->listeners[i].stream, event, strlen(event));
    free(event);
    free(text);
}

// What came before anybody listened is not sent.
static void on_changes(reef_query *query) {
    reef_events *events = query->owner;
    size_t index;
    json_t *change;
    events->reading = false;
    if (query->error.status != REEF_OK) return;
    const json_t *changes = json_object_get(query->result, "changes");
    if (events->next > 0) json_array_foreach(changes, index, change) send_change(events, change);
    events->next = (uint64_t)json_integer_value(json_object_get(query->result, "next"));
}

static void request_changes(reef_events *events,
                            reef_status_view *monitor,
                            reef_query_thread *queries) {
    reef_error err;
    reef_training_view view;
    reef_training_view_read(monitor->training, &view, NULL);
    if (!view.committed.watches || events->reading || view.last.commit.number == events->commit)
        return;
    reef_query *query = calloc(1, sizeof(*query));
    if (query == NULL) return;
    query->run = reef_query_changes;
    query->owner = events;
    query->on_done = on_changes;
    char next[24];
    snprintf(next, sizeof(next), "%llu", (unsigned long long)(events->next > 0 ? events->next : 1));
    query->arguments = json_pack("{s:s}", "next", next);
    if (reef_query_thread_submit(queries, query, &err) != REEF_OK) {
        reef_query_free(query); // too many queries wait: next time
        return;
    }
    events->reading = true;
    events->commit = view.last.commit.number;
}

void reef_events_tick(reef_events *events, reef_status_view *monitor, reef_query_thread *queries) {
    if (++events->ticks % EVERY_TICKS == 0) send_status(events, monitor);
    if (stats_are_due(events, monitor)) request_stats(events, queries);
    request_changes(events, monitor, queries);
}

void reef_events_release(reef_events *events) {
    json_decref(events->stats);
    events->stats = NULL;
}
