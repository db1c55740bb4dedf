// Connections of the HTTP side; see http_server.h.
//
// Time is limited three times, each limit absolute, so a byte now and then buys nothing: from the
// connection or the last reply to the end of a header, from there to the end of the body, and for
// taking the reply. A connection whose time is up is shut down, and MHD, which reads its end,
// forgets it. While a request is deferred nothing is asked of its client but to be there.
#define _GNU_SOURCE // POLLRDHUP, SO_PEERCRED
#include "http_server.h"

#include "http_internal.h"
#include "reef_json_build.h"
#include "reef_pool_json.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define BODY_ROOM_FIRST 4096

// ---- the loop -----------------------------------------------------------------------------------

static void on_timer(uv_timer_t *timer) {
    reef_http_run(((reef_http_door *)timer->data)->http);
}

// MHD works off what is ready and says when it wants to be asked again. It is never entered twice:
// a reply that is given from within it is worked off by the call that is under way.
void reef_http_run(reef_http *http) {
    if (http->running || http->closing) return;
    for (size_t i = 0; i < sizeof(http->doors) / sizeof(*http->doors); i++) {
        reef_http_door *door = &http->doors[i];
        if (door->daemon == NULL) continue;
        http->running = true;
        (void)MHD_run(door->daemon);
        http->running = false;
        MHD_UNSIGNED_LONG_LONG wait_ms;
        if (MHD_get_timeout(door->daemon, &wait_ms) == MHD_YES)
            (void)uv_timer_start(&door->timer, on_timer, wait_ms, 0);
        else
            (void)uv_timer_stop(&door->timer);
    }
}

uint64_t reef_http_now_ms(const reef_http *http) {
    return uv_now(http->options.loop);
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    reef_http_run(((reef_http_door *)poll->data)->http);
}

// ---- requests -----------------------------------------------------------------------------------

static reef_http_connection *peer_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

static reef_http_request *request_new(reef_http *http,
                                      struct MHD_Connection *connection,
                                      const char *method,
                                      const char *path) {
    // A request exists from its first header to on_completed, across suspension.
    reef_http_request *request = calloc(1, sizeof(*request));
    if (request == NULL) return NULL;
    request->http = http;
    request->connection = connection;
    request->method = method;
    request->path = path;
    request->peer = peer_of(connection);
    return request;
}

static void add_headers(struct MHD_Response *response, unsigned code, const char *type) {
    // Status and scores change constantly; a cache would show the past.
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    // A browser must not guess that pushed text is a page.
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    // Nothing but our own page may run here, and it talks to nobody else.
    (void)MHD_add_response_header(response, "Content-Security-Policy",
                                  "default-src 'none'; script-src 'self'; style-src 'self'; "
                                  "connect-src 'self'; img-src data:; base-uri 'none'; "
                                  "form-action 'none'; frame-ancestors 'none'");
    (void)MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    if (code == MHD_HTTP_UNAUTHORIZED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    // Busy and full pass in a second, as a rule.
    if (code == MHD_HTTP_TOO_MANY_REQUESTS || code == MHD_HTTP_SERVICE_UNAVAILABLE)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
}

void reef_http_respond(reef_http_request *request,
                       unsigned code,
                       const char *type,
                       struct MHD_Response *response) {
    // Remembered rather than sent: MHD sends only from within its own callbacks.
    request->code = code;
    request->reply = response;
    request->answered = true;
    if (response != NULL) add_headers(response, code, type);
    // A deferred request was suspended; it is resumed here, and MHD calls on_request once more to
    // send the reply.
    if (!request->deferred) return;
    request->deferred = false;
    if (request->peer != NULL) {
        request->peer->waits_for_us = false;
        request->peer->deferred = NULL;
    }
    MHD_resume_connection(request->connection);
    reef_http_run(request->http);
}

void reef_http_reply(
    reef_http_request *request, unsigned code, const char *type, char *body, size_t bytes) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) free(body);
    reef_http_respond(request, code, type, response);
}

void reef_http_reply_static(reef_http_request *request,
                            const char *type,
                            const unsigned char *body,
                            size_t bytes) {
    // MHD only reads it.
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)body, MHD_RESPMEM_PERSISTENT);
    reef_http_respond(request, MHD_HTTP_OK, type, response);
}

static enum MHD_Result send_reply(reef_http_request *request) {
    request->http
        ->replies[request->reply != NULL && request->code < 600 ? request->code / 100 : 0]++;
    if (request->reply == NULL)
        return MHD_NO; // no memory for it, or nobody to take it: the connection is closed
    if (request->peer != NULL) request->peer->since_ms = reef_http_now_ms(request->http);
    request->http->options.replied(request->http->options.context, request);
    enum MHD_Result result = MHD_queue_response(request->connection, request->code, request->reply);
    MHD_destroy_response(request->reply);
    request->reply = NULL;
    return result;
}

// ---- JSON ---------------------------------------------------------------------------------------

void reef_http_reply_line(reef_http_request *request, unsigned code, char *text) {
    char *line = text != NULL ? realloc(text, strlen(text) + 2) : NULL;
    if (line != NULL)
        strcat(line, "\n");
    else
        free(text);
    reef_http_reply(request, line != NULL ? code : MHD_HTTP_INTERNAL_SERVER_ERROR,
                    "application/json", line, line != NULL ? strlen(line) : 0);
}

void reef_http_reply_json(reef_http_request *request, unsigned code, json_t *object) {
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | REEF_JSON_DIGITS) : NULL;
    json_decref(object);
    reef_http_reply_line(request, code, text);
}

void reef_http_fail(reef_http_request *request,
                    unsigned code,
                    const reef_error *err,
                    unsigned retry_ms) {
    snprintf(request->why, sizeof(request->why), "%s", err->message);
    json_t *reply = reef_reply_error(err);
    if (retry_ms)
        json_object_set_new(json_object_get(reply, "error"), "retry_ms", json_integer(retry_ms));
    reef_http_reply_json(request, code, reply);
}

// ---- bodies -------------------------------------------------------------------------------------

static void release_body(reef_http_request *request) {
    free(request->body);
    request->body = NULL;
    request->body_bytes = request->body_room = 0;
}

static void refuse_body(reef_http_request *request,
                        unsigned code,
                        const reef_error *err,
                        unsigned retry_ms) {
    reef_http_fail(request, code, err, retry_ms);
    request->http->bodies_bytes -= request->body_room;
    release_body(request);
}

static void refuse_long(reef_http_request *request) {
    reef_error err;
    (void)reef_fail(&err, REEF_ERR_INVALID, "the body has more than the %u bytes that are allowed",
                    REEF_HTTP_BODY_BYTES_MAX);
    refuse_body(request, MHD_HTTP_CONTENT_TOO_LARGE, &err, 0);
}

static bool declares_too_much(struct MHD_Connection *connection) {
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return length != NULL && strtoull(length, NULL, 10) > REEF_HTTP_BODY_BYTES_MAX;
}

// False without memory, and when too much of all bodies together is kept: `request` is answered
// then.
static bool make_room(reef_http_request *request, size_t bytes) {
    if (bytes <= request->body_room) return true;
    reef_http *http = request->http;
    // Doubling, from a first size that most requests fit into.
    size_t room = request->body_room ? request->body_room : BODY_ROOM_FIRST;
    while (room < bytes) room *= 2;
    size_t more = room - request->body_room;
    // The bound is for all bodies together: many small requests fill the memory as well as a large
    // one.
    if (more > REEF_HTTP_BODIES_BYTES_MAX - http->bodies_bytes) {
        static const reef_error busy = {REEF_ERR_BUSY, "too many bodies are being sent; try again"};
        refuse_body(request, MHD_HTTP_TOO_MANY_REQUESTS, &busy, 1000);
        return false;
    }
    uint8_t *body = realloc(request->body, room);
    if (body == NULL) return false;
    http->bodies_bytes += more;
    request->body = body;
    request->body_room = room;
    return true;
}

// False without memory.
static bool take_body(reef_http_request *request, const char *bytes, size_t count) {
    if (request->answered)
        return true; // a refused body is discarded, for as long as a body may take
    if (count > REEF_HTTP_BODY_BYTES_MAX - request->body_bytes) {
        refuse_long(request);
        return true;
    }
    if (!make_room(request, request->body_bytes + count)) return request->answered;
    memcpy(request->body + request->body_bytes, bytes, count);
    request->body_bytes += count;
    return true;
}

// ---- what MHD calls -----------------------------------------------------------------------------

// Where a request ends must have one meaning: a proxy before us that took another would pass on two
// as one.
typedef struct framing {
    unsigned hosts, lengths, encodings;
    bool chunked;
} framing;

static enum MHD_Result on_header(void *context,
                                 enum MHD_ValueKind kind,
                                 const char *name,
                                 const char *value) {
    (void)kind;
    // Counted instead of looked up: a request with two lengths or two hosts is read differently by
    // different proxies (request smuggling), and is refused.
    framing *all = context;
    all->hosts += strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
    all->lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) != 0) return MHD_YES;
    all->encodings++;
    all->chunked = value != NULL && strcasecmp(value, "chunked") == 0;
    return MHD_YES;
}

static bool is_ambiguous(struct MHD_Connection *connection) {
    framing all = {0};
    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, on_header, &all);
    return all.hosts > 1 || all.lengths + all.encodings > 1 || (all.encodings && !all.chunked);
}

static int socket_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info != NULL ? info->connect_fd : -1;
}

// Whom the socket trusts is decided by the credentials of its peer, not by what it sends.
static bool is_trusted(int fd) {
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
    return peer.uid == 0 || peer.uid == geteuid();
}

// Nothing is read after it: MHD closes the connection.
static enum MHD_Result refuse_and_close(reef_http_request *request,
                                        unsigned code,
                                        reef_status status,
                                        const char *message) {
    reef_error err;
    (void)reef_fail(&err, status, "%s", message);
    refuse_body(request, code, &err, 0);
    if (request->reply != NULL)
        (void)MHD_add_response_header(request->reply, MHD_HTTP_HEADER_CONNECTION, "close");
    return send_reply(request);
}

// Called by MHD once with the header, then with pieces of the body, then with nothing; and once
// more when a deferred request is resumed.
static enum MHD_Result on_request(void *context,
                                  struct MHD_Connection *connection,
                                  const char *path,
                                  const char *method,
                                  const char *version,
                                  const char *upload,
                                  size_t *upload_bytes,
                                  void **state) {
    (void)version;
    const reef_http_door *door = context;
    reef_http *http = door->http;
    // MHD calls this once per request with headers, then for the body, then to finish.
    reef_http_request *request = *state;
    if (request == NULL) {
        request = *state = request_new(http, connection, method, path);
        if (request == NULL) return MHD_NO;
        if (request->peer != NULL) request->peer->since_ms = reef_http_now_ms(http);
        // Refusals before the body is read: what is not wanted need not be received.
        request->door = door;
        if (door->is_socket && !is_trusted(socket_of(connection)))
            return refuse_and_close(request, MHD_HTTP_FORBIDDEN, REEF_ERR_INVALID,
                                    "only the daemon's own user and root may connect");
        if (request->peer != NULL && request->peer->is_too_many)
            return refuse_and_close(request, MHD_HTTP_TOO_MANY_REQUESTS, REEF_ERR_BUSY,
                                    "too many clients");
        if (is_ambiguous(connection))
            return refuse_and_close(request, MHD_HTTP_BAD_REQUEST, REEF_ERR_INVALID,
                                    "the header has Host or Content-Length twice, or "
                                    "Transfer-Encoding in a way that is not taken");
        if (declares_too_much(connection)) {
            refuse_long(request);
            return send_reply(request);
        }
        http->options.begin(http->options.context, request);
        return MHD_YES;
    }
    // A piece of the body. Setting *upload_bytes to 0 marks it as consumed for MHD.
    if (*upload_bytes) {
        bool taken = take_body(request, upload, *upload_bytes);
        *upload_bytes = 0;
        return taken ? MHD_YES : MHD_NO;
    }
    // Either refused at the header, or resumed after a deferred reply.
    if (request->answered) return send_reply(request);
    http->bodies_bytes -= request->body_room; // who handles it has bounds for what it keeps
    http->options.handle(http->options.context, request);
    release_body(request);
    // A handler that cannot reply at once suspends the connection, so that MHD's thread, which is
    // the loop, continues.
    if (!request->deferred) return send_reply(request);
    if (request->peer != NULL) {
        request->peer->waits_for_us = true;
        request->peer->deferred = request;
    }
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static void on_completed(void *context,
                         struct MHD_Connection *connection,
                         void **state,
                         enum MHD_RequestTerminationCode why) {
    (void)connection;
    (void)why;
    reef_http *http = ((reef_http_door *)context)->http;
    reef_http_request *request = *state;
    if (request == NULL) return;
    // The client went away first: whoever works for it learns that nobody waits.
    if (request->deferred) http->options.forget(http->options.context, request);
    reef_http_stream_gone(request->stream);
    if (request->reply != NULL) MHD_destroy_response(request->reply);
    if (request->peer != NULL) {
        // The next request on this connection gets a time limit of its own.
        request->peer->since_ms = reef_http_now_ms(http);
        request->peer->waits_for_us = false;
        request->peer->deferred = NULL;
    }
    // Handed-over bodies have been subtracted already; body_room is 0 then.
    http->bodies_bytes -= request->body_room;
    release_body(request);
    free(request);
    *state = NULL;
}

// ---- connections --------------------------------------------------------------------------------

static void on_connection(void *context,
                          struct MHD_Connection *connection,
                          void **socket_context,
                          enum MHD_ConnectionNotificationCode what) {
    reef_http_door *door = context;
    reef_http *http = door->http;
    // A connection may have many requests. Its record holds what they share: a time limit and a
    // stream.
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        reef_http_connection *peer = calloc(1, sizeof(*peer));
        *socket_context = peer;
        if (peer == NULL) return; // served, with no limit but MHD's own on silence
        *peer = (reef_http_connection){.connection = connection,
                                       .door = door,
                                       .since_ms = reef_http_now_ms(http),
                                       .next = http->connections};
        if (http->connections != NULL) http->connections->previous = peer;
        http->connections = peer;
        // Those that were there before are served on.
        peer->is_too_many =
            door->is_socket && door->connection_count >= REEF_HTTP_SOCKET_CLIENTS_MAX;
        door->connection_count++;
        return;
    }
    reef_http_connection *peer = *socket_context;
    if (peer == NULL) return;
    // Unlinked from a doubly linked list, so that closing is cheap with any number of connections.
    *(peer->previous != NULL ? &peer->previous->next : &http->connections) = peer->next;
    if (peer->next != NULL) peer->next->previous = peer->previous;
    door->connection_count--;
    free(peer);
    *socket_context = NULL;
}

// While a request is deferred MHD does not read its connection.
static short end_of(const reef_http_connection *peer) {
    struct pollfd end = {.fd = socket_of(peer->connection), .events = POLLRDHUP};
    return poll(&end, 1, 0) > 0 ? end.revents : 0;
}

static void drop_request(reef_http *http, reef_http_request *request) {
    http->options.forget(http->options.context, request);
    reef_http_respond(request, 0, NULL, NULL);
}

// A client that closed the connection looks like one that closed only its own direction, and may
// still listen: it is waited for as long as any client may take for a reply. On the socket the two
// differ.
static void notice_hang_up(reef_http *http, reef_http_connection *peer, uint64_t now) {
    short end = end_of(peer);
    if (peer->door->is_socket) {
        if (end & (POLLHUP | POLLERR)) drop_request(http, peer->deferred);
        return;
    }
    if (!end) return;
    if (!peer->hung_up) peer->since_ms = now;
    peer->hung_up = true;
    if (now - peer->since_ms > REEF_HTTP_PHASE_MS_MAX)
        drop_request(http, peer->deferred);
    else
        http->options.hung_up(http->options.context, peer->deferred);
}

void reef_http_tick(reef_http *http) {
    uint64_t now = reef_http_now_ms(http);
    // MHD must not run, and so must not free connections, while the list is walked.
    http->running = true; // MHD frees none of them meanwhile
    for (reef_http_connection *peer = http->connections; peer != NULL; peer = peer->next) {
        if (peer->deferred != NULL) notice_hang_up(http, peer, now);
        // A connection that waits for us, or whose stream has nothing to send, is not slow.
        bool idle =
            peer->waits_for_us || (peer->stream != NULL && reef_http_stream_is_idle(peer->stream));
        if (idle || now - peer->since_ms <= REEF_HTTP_PHASE_MS_MAX) continue;
        // shutdown, not close: the descriptor belongs to MHD, which then notices the end.
        (void)shutdown(socket_of(peer->connection), SHUT_RDWR);
    }
    http->running = false;
    reef_http_run(http);
}

void *reef_http_context(const reef_http_request *request) {
    return request->http->options.context;
}

size_t reef_http_connection_count(const reef_http *http) {
    return http->doors[0].connection_count + http->doors[1].connection_count;
}

const uint64_t *reef_http_replies(const reef_http *http) {
    return http->replies;
}

// ---- who may ask --------------------------------------------------------------------------------

bool reef_http_set_token(reef_http *http, const reef_http_token *token) {
    bool other = memcmp(&http->token, token, sizeof(*token)) != 0;
    http->token = *token;
    if (!other || !http->is_public) return other;
    for (reef_http_connection *peer = http->connections; peer != NULL; peer = peer->next)
        if (peer->stream != NULL && !peer->door->is_socket)
            (void)shutdown(socket_of(peer->connection), SHUT_RDWR);
    return other;
}

bool reef_http_has_token(const reef_http_request *request) {
    const reef_http *http = request->http;
    const char *given = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
                                                    MHD_HTTP_HEADER_AUTHORIZATION);
    if (!http->token.count || given == NULL || strncasecmp(given, "Bearer ", 7) != 0) return false;
    given += 7;
    // Every byte is looked at, whatever the ones before it were.
    // Constant time: comparing byte by byte until the first difference would tell a guesser how far
    // it was right.
    size_t bytes = strlen(given);
    unsigned differs = bytes != http->token.count;
    for (size_t i = 0; i < http->token.count; i++)
        differs |= http->token.bytes[i] ^ (uint8_t)(i < bytes ? given[i] : 0);
    return differs == 0;
}

// ---- opening ------------------------------------------------------------------------------------

// What is really listened on, for people and for those who asked for any free port.
static void note_address(reef_http *http, const struct sockaddr_storage *asked) {
    char host[INET6_ADDRSTRLEN] = "";
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(http->doors[1].daemon, MHD_DAEMON_INFO_BIND_PORT);
    unsigned port = info != NULL ? info->port : 0;
    bool v4 = asked->ss_family == AF_INET;
    const void *bytes = v4 ? (const void *)&((const struct sockaddr_in *)asked)->sin_addr
                           : (const void *)&((const struct sockaddr_in6 *)asked)->sin6_addr;
    (void)inet_ntop(asked->ss_family, bytes, host, sizeof(host));
    snprintf(http->address, sizeof(http->address), v4 ? "%s:%u" : "[%s]:%u", host, port);
}

// A zero would end the text that it stands in. Such a text is kept as it was sent, and matches no
// known path or value.
static size_t unescape(void *context, struct MHD_Connection *connection, char *text) {
    (void)context;
    (void)connection;
    return strstr(text, "%00") != NULL ? strlen(text) : MHD_http_unescape(text);
}

// Of a listening descriptor, which is MHD's then, or of an address.
static bool start_server(reef_http_door *door, int fd, const struct sockaddr_storage *address) {
    // One epoll descriptor that the loop watches; MHD starts no thread. Suspending is what deferred
    // answers need.
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;
    if (address != NULL && address->ss_family == AF_INET6) flags |= MHD_USE_IPv6;
    const struct MHD_OptionItem where[] = {
        address != NULL
            ? (struct MHD_OptionItem){MHD_OPTION_SOCK_ADDR, 0, (void *)(uintptr_t)address}
            : (struct MHD_OptionItem){MHD_OPTION_LISTEN_SOCKET, fd, NULL},
        {MHD_OPTION_END, 0, NULL}};
    errno = 0;
    door->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, door, MHD_OPTION_ARRAY, where,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)REEF_HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REEF_HTTP_HEADER_BYTES_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(REEF_HTTP_PHASE_MS_MAX / 1000), MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION, on_connection, door,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, door, MHD_OPTION_END);
    return door->daemon != NULL;
}

// The kernel would keep what a client does not read, megabytes a connection, and the reply would
// count as taken. Connections have the bound of the socket that they came by.
static void bound_sending(const reef_http_door *door) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(door->daemon, MHD_DAEMON_INFO_LISTEN_FD);
    int bytes = REEF_HTTP_SENDING_BYTES_MAX;
    if (info != NULL)
        (void)setsockopt(info->listen_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

static reef_status join_loop(reef_http_door *door, reef_error *err) {
    uv_loop_t *loop = door->http->options.loop;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(door->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    // The loop watches MHD's epoll descriptor as one handle.
    int code = info != NULL ? uv_poll_init(loop, &door->poll, info->epoll_fd) : UV_EINVAL;
    bound_sending(door);
    if (!code) {
        // The timer wakes MHD for its own timeouts.
        (void)uv_timer_init(loop, &door->timer); // cannot fail
        door->http->open_handles += 2;
        door->poll.data = door->timer.data = door;
        code = uv_poll_start(&door->poll, UV_READABLE, on_poll);
    }
    if (!code) return REEF_OK;
    return reef_fail(err, REEF_ERR_IO, "cannot watch the HTTP connections: %s", uv_strerror(code));
}

static reef_status open_socket(reef_http *http, reef_error *err) {
    reef_http_door *door = &http->doors[0];
    int fd = -1;
    door->is_socket = true;
    reef_status status = reef_http_listen_socket(&fd, http->options.socket, err);
    if (status != REEF_OK) return status;
    if (start_server(door, fd, NULL)) return join_loop(door, err);
    (void)unlink(http->options.socket->sun_path);
    return reef_fail(err, REEF_ERR_IO, "cannot listen on the control socket '%s'",
                     http->options.socket->sun_path);
}

static reef_status open_address(reef_http *http, reef_error *err) {
    const reef_http_options *options = &http->options;
    struct sockaddr_storage address = {0};
    reef_status status =
        reef_http_access_check(options->listen, options->token_file, &address, &http->token, err);
    if (status != REEF_OK) return status;
    // The usual mistake, a port in use, gets the status that says "try another".
    if (!start_server(&http->doors[1], -1, &address))
        return reef_fail(err, errno == EADDRINUSE ? REEF_ERR_BUSY : REEF_ERR_IO,
                         "cannot listen on --http %.80s: %s", options->listen,
                         errno ? strerror(errno) : "libmicrohttpd refused");
    http->is_public = !reef_http_is_loopback(&address);
    note_address(http, &address);
    return join_loop(&http->doors[1], err);
}

reef_status reef_http_open(reef_http **out, const reef_http_options *options, reef_error *err) {
    *out = NULL;
    reef_http *http = calloc(1, sizeof(*http));
    if (http == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for HTTP");
    http->options = *options;
    http->doors[0].http = http->doors[1].http = http;
    // First the socket: it fails when another daemon is there.
    reef_status status = open_socket(http, err);
    if (status == REEF_OK && options->listen != NULL) status = open_address(http, err);
    // Releases whatever was opened; handles of the loop are closed by the loop.
    if (status != REEF_OK) {
        reef_http_close(http);
        return status;
    }
    *out = http;
    return REEF_OK;
}

const char *reef_http_address(const reef_http *http) {
    return http->address[0] ? http->address : NULL;
}

bool reef_http_is_private(const reef_http_request *request) {
    return request->door->is_socket;
}

bool reef_http_is_public(const reef_http_request *request) {
    return !request->door->is_socket && request->http->is_public;
}

static void on_closed(uv_handle_t *handle) {
    reef_http *http = ((reef_http_door *)handle->data)->http;
    if (--http->open_handles == 0) free(http);
}

void reef_http_close(reef_http *http) {
    if (http == NULL || http->closing) return;
    http->closing = true;
    // MHD_stop_daemon waits for suspended connections for ever, so each is resumed first.
    // MHD wants no suspended connection when it stops.
    for (reef_http_connection *peer = http->connections; peer != NULL; peer = peer->next) {
        if (peer->stream != NULL) {
            reef_http_stream_release(peer->stream);
        } else if (peer->waits_for_us) {
            peer->waits_for_us = false;
            MHD_resume_connection(peer->connection);
        }
    }
    if (http->doors[0].daemon != NULL) (void)unlink(http->options.socket->sun_path);
    for (size_t i = 0; i < 2; i++)
        if (http->doors[i].daemon != NULL) MHD_stop_daemon(http->doors[i].daemon);
    // The token does not stay in freed memory.
    http->token = (reef_http_token){0};
    // Before the loop was joined nothing will call back.
    if (!http->open_handles) {
        free(http);
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        if (http->doors[i].poll.data == NULL) continue;
        (void)uv_poll_stop(&http->doors[i].poll);
        uv_close((uv_handle_t *)&http->doors[i].poll, on_closed);
        uv_close((uv_handle_t *)&http->doors[i].timer, on_closed);
    }
}
