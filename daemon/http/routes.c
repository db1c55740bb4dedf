// Routes; see routes.h.
//
// The control socket is our own user's and root's, who may do everything. Over loopback everyone on
// the machine may read; a change needs the token, wherever it comes from.
// Where other machines can reach the address every route but the two for orchestrators needs it. A
// page of another site must not reach the loopback address under a name of its own, so there the
// Host is checked.
#include "routes.h"
#include "reef_pool_json.h"

#include "dashboard_files.h"
#include "query_thread.h"
#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define REFUSED_NS 60000000000u // between two messages about refused batches
#define SCRIPT "text/javascript; charset=utf-8"
#define STYLE "text/css; charset=utf-8"
#define TEXT "text/plain; charset=utf-8"
#define PROMETHEUS "text/plain; version=0.0.4; charset=utf-8"

typedef enum route_access { ACCESS_ALL, ACCESS_READ, ACCESS_CHANGE } route_access;
typedef void (*handler)(reef_routes *routes, reef_http_request *request);

typedef struct route {
    const char *method, *path;
    route_access needs;
    handler handle;     // answered by the loop, or
    reef_query_run run; // by the query thread
    const char *query;  // names of what may stand in the query, each followed by a space
} route;

// ---- replies ------------------------------------------------------------------------------------

static void send_text(reef_http_request *request, unsigned code, const char *type, char *text) {
    reef_http_reply(request, code, type, text, text != NULL ? strlen(text) : 0);
}

static unsigned code_of(reef_status status) {
    switch (status) {
    case REEF_OK:
        return MHD_HTTP_OK;
    case REEF_ERR_INVALID:
        return MHD_HTTP_BAD_REQUEST;
    case REEF_ERR_NOT_FOUND:
        return MHD_HTTP_NOT_FOUND;
    case REEF_ERR_BUSY:
        // A full queue is temporary, so clients are asked to retry.
        return MHD_HTTP_TOO_MANY_REQUESTS;
    // The disk or the pool is full: trying again does not help.
    case REEF_ERR_FULL:
        return MHD_HTTP_INSUFFICIENT_STORAGE;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

static void send_failure(reef_http_request *request, const reef_error *err) {
    reef_http_fail(request, code_of(err->status), err, 0);
}

static void send_refusal(reef_http_request *request, unsigned code, const char *message) {
    reef_error err = {.status = REEF_ERR_INVALID};
    snprintf(err.message, sizeof(err.message), "%s", message);
    reef_http_fail(request, code, &err, 0);
}

// ---- answered by the loop -----------------------------------------------------------------------

static void livez(reef_routes *routes, reef_http_request *request) {
    (void)routes;
    send_text(request, MHD_HTTP_OK, TEXT, strdup("ok\n"));
}

// Ready: it trains, or waits for a stream, and what it trained can be committed.
static void readyz(reef_routes *routes, reef_http_request *request) {
    reef_training_view view;
    reef_training_view_read(routes->training, &view, NULL);
    bool ready = !view.failing[0] && !view.ended && view.state < REEF_STATE_DRAINING;
    const char *text = view.failing[0] ? "commits fail\n" : ready ? "ready\n" : "ending\n";
    send_text(request, ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, TEXT, strdup(text));
}

static void metrics(reef_routes *routes, reef_http_request *request) {
    char *text =
        reef_prometheus_text(routes->monitor, reef_http_connection_count(request->http),
                             reef_http_replies(request->http), reef_events_stats(&routes->events));
    send_text(request, text != NULL ? MHD_HTTP_OK : MHD_HTTP_INTERNAL_SERVER_ERROR, PROMETHEUS,
              text);
}

static void status(reef_routes *routes, reef_http_request *request) {
    reef_http_reply_json(request, MHD_HTTP_OK, reef_status_view_status(routes->monitor));
}

// The dashboard's files, which are part of the program; made of daemon/dashboard/ by
// cmake/embed.cmake.
static const struct {
    const char *path, *type;
    const unsigned char *bytes;
    const unsigned *count;
} PAGES[] = {
    {"/", "text/html; charset=utf-8", reef_page_index, &reef_page_index_bytes},
    {"/dashboard.css", STYLE, reef_page_style, &reef_page_style_bytes},
    {"/dashboard.js", SCRIPT, reef_page_script, &reef_page_script_bytes},
    {"/charts.js", SCRIPT, reef_page_charts, &reef_page_charts_bytes},
    {"/incidents.js", SCRIPT, reef_page_incidents, &reef_page_incidents_bytes},
    {"/uplot.css", STYLE, reef_page_uplot_style, &reef_page_uplot_style_bytes},
    {"/uplot.js", SCRIPT, reef_page_uplot, &reef_page_uplot_bytes},
};

static void page(reef_routes *routes, reef_http_request *request) {
    (void)routes;
    size_t i = 0;
    while (strcmp(request->path, PAGES[i].path) != 0) i++; // it is the path of a route
    reef_http_reply_static(request, PAGES[i].type, PAGES[i].bytes, *PAGES[i].count);
}

static void events(reef_routes *routes, reef_http_request *request) {
    if (reef_events_listen(&routes->events, request, routes->monitor)) return;
    reef_error err;
    (void)reef_fail(&err, REEF_ERR_BUSY, "%d clients listen already; try again", REEF_EVENTS_MAX);
    send_failure(request, &err);
}

void reef_routes_tick(reef_routes *routes) {
    reef_events_tick(&routes->events, routes->monitor, routes->queries);
}

void reef_routes_release(reef_routes *routes) {
    reef_events_release(&routes->events);
}

// ---- commands -----------------------------------------------------------------------------------

static void on_command_reply(reef_request *served) {
    reef_http_request *request = served->owner;
    request->work = NULL;
    if (served->error.status != REEF_OK) {
        send_failure(request, &served->error);
        return;
    }
    // Scores that are asked for after this reply are not as of an older state.
    reef_routes *routes = reef_http_context(request);
    reef_query_thread_expect(routes->queries, served->last.commit.number);
    reef_http_reply_json(request, MHD_HTTP_OK, reef_command_result(served));
}

static void forget_command(void *work) {
    ((reef_request *)work)->owner = NULL; // the trainer still has it
}

static reef_status give_to(reef_routes *routes,
                           reef_command_kind to,
                           reef_request *request,
                           reef_error *err) {
    if (to == REEF_COMMAND_SERVICE) return routes->on_request(routes->context, request, err);
    return reef_training_request(routes->training, request, err);
}

static void hand_over(reef_routes *routes, reef_http_request *request, reef_command *command) {
    reef_request *parsed = &command->request;
    reef_error err = {.status = REEF_ERR_NO_MEMORY, .message = "no memory for the request"};
    // The trainer's thread answers later; until then the request lives on the heap.
    reef_request *copy = malloc(sizeof(*copy));
    if (copy != NULL) {
        *copy = *parsed;
        copy->owner = request;
        copy->on_reply = on_command_reply;
        // From here on the connection is suspended and `forget` is called if the client goes away.
        if (give_to(routes, command->kind, copy, &err) == REEF_OK) {
            request->deferred = true;
            request->work = copy;
            request->forget = forget_command;
            return;
        }
    }
    // Nobody took it over: what it holds is released here.
    reef_request_release(parsed);
    free(copy);
    send_failure(request, &err);
}

// ---- what is pushed -----------------------------------------------------------------------------

static void send_taken(reef_http_request *request, const reef_push_batch *batch) {
    if (batch->format == REEF_INGEST_LOKI) {
        reef_http_reply(request, MHD_HTTP_NO_CONTENT, "application/json", NULL, 0);
    } else if (batch->format == REEF_INGEST_OTLP && batch->empty_count == 0) {
        reef_http_reply_json(request, MHD_HTTP_OK, json_pack("{s:{}}", "partialSuccess"));
    } else if (batch->format == REEF_INGEST_OTLP) {
        // OpenTelemetry's JSON has 64-bit numbers in quotes.
        char count[24];
        snprintf(count, sizeof(count), "%llu", (unsigned long long)batch->empty_count);
        reef_http_reply_json(request, MHD_HTTP_OK,
                             json_pack("{s:{s:s, s:s}}", "partialSuccess", "rejectedLogRecords",
                                       count, "errorMessage", "records without a body"));
    } else {
        reef_http_reply_json(request, MHD_HTTP_OK,
                             json_pack("{s:s, s:I, s:I, s:b, s:I}", "source",
                                       batch->input->name + strlen(REEF_PUSH_PREFIX),
                                       "accepted_bytes", (json_int_t)batch->accepted_bytes,
                                       "records", (json_int_t)batch->record_count, "duplicate",
                                       batch->duplicate, "position", (json_int_t)batch->position));
    }
}

static void refuse_push(reef_http_request *request,
                        const reef_push_batch *batch,
                        const reef_error *err) {
    unsigned code = batch->too_large ? MHD_HTTP_CONTENT_TOO_LARGE : code_of(err->status);
    // What Loki and OpenTelemetry define to mean that the same may be sent again: of other codes
    // shippers drop what they have.
    if (batch->format >= REEF_INGEST_LOKI && code >= MHD_HTTP_INTERNAL_SERVER_ERROR)
        code = MHD_HTTP_SERVICE_UNAVAILABLE;
    reef_http_fail(request, code, err, batch->retry_ms);
}

static void on_pushed(reef_push_batch *batch) {
    reef_http_request *request = batch->owner;
    request->work = NULL;
    if (batch->error.status == REEF_OK)
        send_taken(request, batch);
    else
        refuse_push(request, batch, &batch->error);
}

static void forget_push(void *work) {
    ((reef_push_batch *)work)->owner = NULL; // it is on its way to the journal
}

static void push_batch(reef_routes *routes, reef_http_request *request, reef_push_batch *batch) {
    reef_error err;
    batch->owner = request;
    batch->on_reply = on_pushed;
    // The pusher journals first and trains later; its reply comes when the batch is safe on disk.
    reef_status result = reef_push_submit(routes->pusher, batch, &err);
    if (result != REEF_OK) {
        refuse_push(request, batch, &err);
        reef_push_batch_free(batch);
        return;
    }
    request->deferred = true;
    request->work = batch;
    request->forget = forget_push;
}

static void ingest(reef_routes *routes, reef_http_request *request) {
    unsigned code;
    reef_error err;
    reef_push_batch *batch;
    if (reef_http_ingest(&batch, request, &code, &err) == REEF_OK)
        push_batch(routes, request, batch);
    else
        reef_http_fail(request, code, &err, 0);
}

static reef_push_refusal refusal_of(unsigned code) {
    switch (code) {
    case MHD_HTTP_UNAUTHORIZED:
    case MHD_HTTP_FORBIDDEN:
    case MHD_HTTP_MISDIRECTED_REQUEST:
        return REEF_PUSH_DENIED;
    case MHD_HTTP_NOT_FOUND:
        return REEF_PUSH_NO_SOURCE;
    case MHD_HTTP_CONTENT_TOO_LARGE:
        return REEF_PUSH_TOO_LARGE;
    case MHD_HTTP_UNSUPPORTED_MEDIA_TYPE:
        return REEF_PUSH_TYPE;
    case MHD_HTTP_TOO_MANY_REQUESTS:
        return REEF_PUSH_BUSY;
    default:
        return code < MHD_HTTP_INTERNAL_SERVER_ERROR ? REEF_PUSH_MALFORMED : REEF_PUSH_FAILED;
    }
}

// A sender that nobody looks after shows here: every refused batch is counted, and some are logged.
// Nobody made a mistake where the daemon is busy.
void reef_routes_replied(void *context, const reef_http_request *request) {
    reef_routes *routes = context;
    if (!reef_http_is_push(request->path) || request->code < 400) return;
    const reef_push_refusal why = refusal_of(request->code);
    const char *name = reef_http_push_source(request);
    reef_push_count_refused(routes->pusher, name != NULL ? name : "", why == REEF_PUSH_BUSY);
    routes->monitor->push_refusals[why]++;
    if (why == REEF_PUSH_BUSY) return;
    uint64_t now = uv_hrtime();
    if (routes->told_ns > 0 && now - routes->told_ns < REFUSED_NS) {
        routes->refused_silent++;
        return;
    }
    reef_report_warning(routes->report, "push_refused",
                        "a batch pushed to '%.60s' was refused (%u): %s; %zu more since the last "
                        "such message",
                        request->path, request->code, request->why, routes->refused_silent);
    routes->told_ns = now;
    routes->refused_silent = 0;
}

static void command(reef_routes *routes, reef_http_request *request) {
    reef_command parsed;
    reef_error err;
    // An empty body is refused by the parser with a clear message.
    if (reef_command_parse(&parsed, request->body_bytes ? (const char *)request->body : "",
                           request->body_bytes, &err) != REEF_OK) {
        send_failure(request, &err);
        return;
    }
    switch (parsed.kind) {
    case REEF_COMMAND_STATUS:
        status(routes, request);
        break;
    case REEF_COMMAND_TRAINER:
    case REEF_COMMAND_SERVICE:
        hand_over(routes, request, &parsed);
        break;
    case REEF_COMMAND_STOP:
        routes->on_stop(routes->context);
        reef_http_reply_json(request, MHD_HTTP_OK, json_pack("{s:s}", "state", "draining"));
        break;
    }
}

// ---- answered by the query thread ---------------------------------------------------------------

static void forget_query(void *work) {
    reef_query *query = work;
    query->owner = NULL;
    atomic_store(&query->abandoned, true);
}

static void drop_query(void *work) {
    reef_query *query = work;
    atomic_store(&query->unwanted, true);
}

static void reply_query(reef_query *query) {
    // Queries of the daemon itself, such as statistics, have no HTTP request.
    if (query->on_done != NULL) {
        query->on_done(query);
        return;
    }
    // Nobody waits any more.
    reef_http_request *request = query->owner;
    if (request == NULL) return;
    request->work = NULL;
    if (query->error.status == REEF_OK) {
        reef_http_reply_line(request, MHD_HTTP_OK, query->text);
        query->text = NULL; // taken
    } else {
        send_failure(request, &query->error);
    }
}

void reef_routes_reply(reef_routes *routes) {
    for (reef_query *query = reef_query_thread_replied(routes->queries), *next; query != NULL;
         query = next) {
        next = query->next;
        reply_query(query);
        reef_query_free(query);
    }
}

static void submit(reef_routes *routes,
                   reef_http_request *request,
                   const route *found,
                   json_t *arguments) {
    reef_error err = {.status = REEF_ERR_NO_MEMORY, .message = "no memory for the request"};
    reef_query *query = calloc(1, sizeof(*query));
    reef_status result = REEF_ERR_NO_MEMORY;
    if (query != NULL) {
        // The query holds copies of everything it needs; the request may die first.
        const char *as_of = json_string_value(json_object_get(arguments, "as_of"));
        snprintf(query->as_of, sizeof(query->as_of), "%s", as_of != NULL ? as_of : "now");
        query->arguments = json_incref(arguments);
        query->run = found->run;
        query->asks_now = found->run == reef_query_score && strcmp(query->as_of, "now") == 0;
        query->owner = request;
        query->body = request->body;
        query->body_bytes = request->body_bytes;
        // The body moves, as with a pushed batch.
        request->body = NULL; // the query's now
        request->body_bytes = request->body_room = 0;
        result = reef_query_thread_submit(routes->queries, query, &err);
    }
    if (result != REEF_OK) {
        reef_query_free(query);
        send_failure(request, &err);
        return;
    }
    request->deferred = true;
    request->work = query;
    request->forget = forget_query;
    // A client that hangs up while its query waits takes the query out of the queue.
    request->hung_up = drop_query;
}

// ---- what stands in the query -------------------------------------------------------------------

typedef struct query {
    json_t *arguments;
    const char *allowed, *unknown;
    const char *empty;
    const char *broken; // whose value is not UTF-8
    const char *twice;
} query;

static bool is_allowed(const char *allowed, const char *name) {
    size_t bytes = strlen(name);
    for (const char *at = allowed; bytes && at != NULL && *at; at = strchr(at, ' ') + 1)
        if (strncmp(at, name, bytes) == 0 && at[bytes] == ' ') return true;
    return false;
}

static enum MHD_Result on_query(void *context,
                                enum MHD_ValueKind kind,
                                const char *name,
                                const char *value) {
    (void)kind;
    query *all = context;
    // One pass notes the first fault of each sort; the message is made afterwards, outside of MHD's
    // callback.
    if (!is_allowed(all->allowed, name))
        all->unknown = name;
    else if (value == NULL || !*value)
        all->empty = name;
    else if (json_object_get(all->arguments, name) != NULL)
        all->twice = name;
    else if (json_object_set_new(all->arguments, name, json_string(value)))
        all->broken = name;
    return MHD_YES;
}

// Into the object `arguments`.
static reef_status take_query(const reef_http_request *request,
                              const char *allowed,
                              json_t *arguments,
                              reef_error *err) {
    // Parameters that a route does not know are refused: a typo must not change nothing silently.
    query all = {.arguments = arguments, .allowed = allowed};
    (void)MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, on_query, &all);
    if (all.unknown != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "'%.40s' in the query is not known; %s takes %s",
                         all.unknown, request->path, *allowed ? allowed : "none");
    if (all.empty != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "%s in the query has no value", all.empty);
    if (all.twice != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "%s stands twice in the query; give it once",
                         all.twice);
    if (all.broken != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "%s in the query is not UTF-8", all.broken);
    // A state's name indexes a fixed buffer later.
    const char *as_of = json_string_value(json_object_get(arguments, "as_of"));
    if (as_of != NULL && strlen(as_of) > REEF_NAME_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "as_of has more than %d bytes",
                         REEF_NAME_BYTES_MAX);
    return REEF_OK;
}

// ---- which route --------------------------------------------------------------------------------

static const route ROUTES[] = {
    {"GET", "/", ACCESS_ALL, page, NULL, ""}, // it holds nothing of the pool, and asks with a token
    {"GET", "/dashboard.css", ACCESS_ALL, page, NULL, ""},
    {"GET", "/dashboard.js", ACCESS_ALL, page, NULL, ""},
    {"GET", "/charts.js", ACCESS_ALL, page, NULL, ""},
    {"GET", "/incidents.js", ACCESS_ALL, page, NULL, ""},
    {"GET", "/uplot.css", ACCESS_ALL, page, NULL, ""},
    {"GET", "/uplot.js", ACCESS_ALL, page, NULL, ""},
    {"GET", "/livez", ACCESS_ALL, livez, NULL, ""},
    {"GET", "/readyz", ACCESS_ALL, readyz, NULL, ""},
    {"GET", "/metrics", ACCESS_READ, metrics, NULL, ""},
    {"GET", "/v1/status", ACCESS_READ, status, NULL, ""},
    {"GET", "/v1/generations", ACCESS_READ, NULL, reef_query_generations, ""},
    {"GET", "/v1/kinds", ACCESS_READ, NULL, reef_query_kinds, "visits "},
    {"GET", "/v1/snapshots", ACCESS_READ, NULL, reef_query_snapshots, ""},
    {"GET", "/v1/timeline", ACCESS_READ, NULL, reef_query_timeline, "last "},
    {"GET", "/v1/incidents", ACCESS_READ, NULL, reef_query_incidents, "last "},
    {"GET", "/v1/series", ACCESS_READ, NULL, reef_query_series, "points from to "},
    {"GET", "/v1/usage", ACCESS_READ, NULL, reef_query_usage, "generation layer since until "},
    {"GET", "/v1/forgetting", ACCESS_READ, NULL, reef_query_forgetting, ""},
    {"GET", "/v1/events", ACCESS_READ, events, NULL, ""},
    {"POST", "/v1/score", ACCESS_READ, NULL, reef_query_score, "as_of frozen per_byte "},
    {"POST", "/v1/generate", ACCESS_READ, NULL, reef_query_generate, "as_of "},
    {"POST", "/v1/command", ACCESS_CHANGE, command, NULL, ""},
    {"POST", REEF_HTTP_INGEST_PATH, ACCESS_CHANGE, ingest, NULL, "field "},
    {"POST", REEF_HTTP_INGEST_PATH "/*", ACCESS_CHANGE, ingest, NULL, "field "},
    {"POST", REEF_HTTP_LOKI_PATH, ACCESS_CHANGE, ingest, NULL, "source "},
    {"POST", REEF_HTTP_OTLP_PATH, ACCESS_CHANGE, ingest, NULL, "source "},
};

// A star at the end stands for one more word.
static bool is_path(const char *pattern, const char *path) {
    size_t bytes = strlen(pattern);
    if (pattern[bytes - 1] != '*') return strcmp(pattern, path) == 0;
    return strncmp(pattern, path, bytes - 1) == 0 && path[bytes - 1] &&
           strchr(path + bytes - 1, '/') == NULL;
}

static const route *find_route(const reef_http_request *request, bool *path_known) {
    *path_known = false;
    bool head = strcmp(request->method, "HEAD") == 0; // MHD leaves the body out
    for (size_t i = 0; i < sizeof(ROUTES) / sizeof(*ROUTES); i++) {
        if (!is_path(ROUTES[i].path, request->path)) continue;
        *path_known = true;
        if (strcmp(request->method, head ? "HEAD" : ROUTES[i].method) == 0 &&
            (!head || strcmp(ROUTES[i].method, "GET") == 0))
            return &ROUTES[i];
    }
    return NULL;
}

static bool is_own_host(const reef_http_request *request) {
    const char *host =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    // HTTP/1.0 clients send no Host, and no browser is one.
    if (host == NULL) return true;
    // DNS rebinding: a foreign page may resolve its own name to 127.0.0.1. Its Host gives it away.
    static const char *const OWN[] = {"localhost", "127.", "[::1]"};
    for (size_t i = 0; i < sizeof(OWN) / sizeof(*OWN); i++) {
        size_t bytes = strlen(OWN[i]);
        if (strncasecmp(host, OWN[i], bytes) != 0) continue;
        if (i == 1) return strspn(host, "0123456789.:") == strlen(host);
        if (!host[bytes] || host[bytes] == ':') return true;
    }
    return false;
}

// A page of another site cannot read the reply, but its request would be executed: a score is work.
// Browsers say where a request comes from, and no page can change that.
static bool is_of_another_site(const reef_http_request *request) {
    const char *site =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, "Sec-Fetch-Site");
    return strcmp(request->method, "POST") == 0 && site != NULL &&
           strcasecmp(site, "cross-site") == 0;
}

static bool may_query(const route *found, reef_http_request *request) {
    bool needs = found->needs == ACCESS_CHANGE ||
                 (found->needs == ACCESS_READ && reef_http_is_public(request));
    return !needs || reef_http_is_private(request) || reef_http_has_token(request);
}

// Only pushed bodies are unpacked. Other routes would read packed bytes as text.
static bool may_be_packed_so(const route *found, const reef_http_request *request) {
    reef_packing packing;
    return reef_http_packing(&packing, request) &&
           (packing == REEF_PACKING_NONE || found->handle == ingest);
}

// A body that says of itself that it wraps the text would be scored with its wrapping. Forms are
// what curl calls text.
static bool is_wrapped(const route *found, const reef_http_request *request) {
    static const char *const WRAPPED[] = {"application/json", "multipart/form-data"};
    const char *type = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
                                                   MHD_HTTP_HEADER_CONTENT_TYPE);
    if (found->run != reef_query_score || type == NULL) return false;
    size_t bytes = strcspn(type, "; \t");
    for (size_t i = 0; i < sizeof(WRAPPED) / sizeof(*WRAPPED); i++)
        if (strlen(WRAPPED[i]) == bytes && strncasecmp(type, WRAPPED[i], bytes) == 0) return true;
    return false;
}

// Whoever has only curl learns what there is.
static void refuse_path(reef_http_request *request) {
    reef_error err = {.status = REEF_ERR_NOT_FOUND};
    size_t used = (size_t)snprintf(err.message, sizeof(err.message), "no such route; there are");
    for (size_t i = 0; i < sizeof(ROUTES) / sizeof(*ROUTES); i++)
        if (ROUTES[i].handle != page && used < sizeof(err.message))
            used += (size_t)snprintf(err.message + used, sizeof(err.message) - used, " %s",
                                     ROUTES[i].path);
    send_failure(request, &err);
}

void reef_routes_begin(void *context, reef_http_request *request) {
    (void)context;
    // Checks from the cheapest to the most particular; the first that fails answers.
    bool path_known;
    const route *found = find_route(request, &path_known);
    request->route = found;
    bool local = !reef_http_is_private(request) && !reef_http_is_public(request);
    if (local && !is_own_host(request))
        send_refusal(request, MHD_HTTP_MISDIRECTED_REQUEST,
                     "this address is for programs of this machine: ask for localhost");
    // A page of another site could otherwise post commands with the user's browser.
    else if (is_of_another_site(request))
        send_refusal(request, MHD_HTTP_FORBIDDEN, "pages of other sites may send nothing here");
    else if (found == NULL && path_known)
        send_refusal(request, MHD_HTTP_METHOD_NOT_ALLOWED, "the route has another method");
    else if (found == NULL)
        refuse_path(request);
    // After the route is known: health checks are open, everything else wants the token.
    else if (!may_query(found, request))
        send_refusal(request, MHD_HTTP_UNAUTHORIZED,
                     "this needs the token of --http-token: Authorization: Bearer TOKEN");
    else if (!may_be_packed_so(found, request))
        send_refusal(request, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE,
                     found->handle == ingest
                         ? "this Content-Encoding is not taken: send gzip, zstd or none"
                         : "a body with a Content-Encoding, such as gzip, is not taken here: send "
                           "it as it is");
    else if (is_wrapped(found, request))
        send_refusal(
            request, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE,
            "the body of /v1/score is the text itself: send it as text/plain; as_of, frozen and "
            "per_byte stand in the query");
}

void reef_routes_handle(void *context, reef_http_request *request) {
    reef_routes *routes = context;
    const route *found = request->route;
    reef_error err;
    json_t *arguments = json_object();
    reef_status result = take_query(request, found->query, arguments, &err);
    // Handlers that need no model reply at once; the others become queries.
    if (result != REEF_OK)
        send_failure(request, &err);
    else if (found->handle != NULL)
        found->handle(routes, request);
    else
        submit(routes, request, found, arguments);
    json_decref(arguments);
}

void reef_routes_forget(void *context, reef_http_request *request) {
    (void)context;
    if (request->work != NULL) request->forget(request->work);
    request->work = NULL;
}

void reef_routes_hung_up(void *context, reef_http_request *request) {
    (void)context;
    if (request->work != NULL && request->hung_up != NULL) request->hung_up(request->work);
}
