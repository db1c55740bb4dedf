// HTTP on the loop's thread: libmicrohttpd driven by libuv. This file knows connections and their
// limits; what is asked and answered is routes.c's. It has two doors: the control socket, for
// processes of our own user and root, and the address of --http.
//
//   epoll descriptor of MHD --- uv_poll ---> MHD_run <--- uv_timer --- MHD_get_timeout
//
// A request whose header is allowed is read whole (bounded), then answered at once, or suspended
// until a thread has its reply (query_thread.h), or answered bit by bit as a stream. A client
// costs bounded memory, and a bounded time of not doing its part, whatever it sends or leaves
// undone.
#ifndef REEF_HTTP_SERVER_H
#define REEF_HTTP_SERVER_H

#include "reef_error.h"

#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

#define REEF_HTTP_CONNECTIONS_MAX 256    // of each door; one more waits until one has gone
#define REEF_HTTP_SOCKET_CLIENTS_MAX 64  // of the socket; one more is answered that it is busy
#define REEF_HTTP_HEADER_BYTES_MAX 32768 // of one request, its line included
#define REEF_HTTP_BODY_BYTES_MAX (1u << 20)
#define REEF_HTTP_BODIES_BYTES_MAX ((size_t)32 << 20) // of all requests that are being read
#define REEF_HTTP_SENDING_BYTES_MAX (128 * 1024)      // sent and not read yet, for each connection
// to send the header; again for the body; again to take the reply
#define REEF_HTTP_PHASE_MS_MAX 6000
#define REEF_HTTP_STREAMS_MAX 32          // at once, of the connections
#define REEF_HTTP_STREAM_BYTES_MAX 131072 // that wait for one client, of several sendings
#define REEF_HTTP_TOKEN_BYTES_MIN 16
#define REEF_HTTP_TOKEN_BYTES_MAX 256

typedef struct reef_http reef_http;
typedef struct reef_http_connection reef_http_connection;
typedef struct reef_http_stream reef_http_stream;

/** A request: its header, and its body once that has been read. */
typedef struct reef_http_request {
    reef_http *http;
    const struct reef_http_door *door; // by which it came
    struct MHD_Connection *connection;
    const char *method, *path;
    uint8_t *body; // on the heap, the request's; freed once it was handled
    size_t body_bytes, body_room;
    struct MHD_Response *reply; // with `code`, until it is sent; NULL without memory for it
    unsigned code;
    char why[256]; // it was refused; or empty
    bool answered;
    bool deferred; // suspended: reef_http_reply comes later
    // of who handles it
    const void *route;
    void *work; // what a deferred request waits for
    void (*forget)(void *work);
    void (*hung_up)(void *work); // or NULL
    reef_http_connection *peer;
    reef_http_stream *stream; // its reply, where it is one
} reef_http_request;

typedef struct reef_http_options {
    uv_loop_t *loop;
    const struct sockaddr_un *socket; // the control socket
    const char *listen;     // "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT"; port 0: any that is free;
                            // NULL: the socket alone
    const char *token_file; // NULL: none
    /** The header is there. What is answered now is refused: its body is passed over. */
    void (*begin)(void *context, reef_http_request *request);
    /** The body too: reply by reef_http_reply, or set `deferred` and do it later. */
    void (*handle)(void *context, reef_http_request *request);
    /** The client of a deferred request went away; its reply must not be sent any more. */
    void (*forget)(void *context, reef_http_request *request);
    /**
     * The client of a deferred request has closed its side: work that was not begun need not be. It
     * is answered all the same if that comes soon, as it may still listen; where libmicrohttpd
     * comes to read the end first, it gets nothing. Called at any tick until then; after
     * REEF_HTTP_PHASE_MS_MAX the request is forgotten.
     */
    void (*hung_up)(void *context, reef_http_request *request);
    /** A reply is sent, with `code`. */
    void (*replied)(void *context, const reef_http_request *request);
    void *context;
} reef_http_options;

/**
 * Listen. An address that is not of this machine alone needs a token. The file mode mask, which
 * keeps the socket private, belongs to the whole process: call it before other threads make files.
 *
 * Errors: INVALID an address that is none, a token file with permissions for others, a token too
 * short or too long, or another file in the place of the socket; NOT_FOUND no token file, or no
 * directory for the socket; BUSY the port is taken, or another process listens on the socket; IO.
 */
REEF_MUST_CHECK reef_status reef_http_open(reef_http **out,
                                           const reef_http_options *options,
                                           reef_error *err);
/** What a token file holds. */
typedef struct reef_http_token {
    uint8_t bytes[REEF_HTTP_TOKEN_BYTES_MAX];
    size_t count; // 0: none
} reef_http_token;

/** Read a token file; NULL means that no token is required. Errors as of reef_http_open. */
REEF_MUST_CHECK reef_status reef_http_token_read(reef_http_token *token,
                                                 const char *path,
                                                 reef_error *err);
/**
 * From now on this token counts. True when it is another one: streams that were asked for with the
 * old one end.
 */
bool reef_http_set_token(reef_http *http, const reef_http_token *token);
/** Whether reef_http_open would take these: address, token file, and the two together. */
REEF_MUST_CHECK reef_status reef_http_check(const char *listen,
                                            const char *token_file,
                                            reef_error *err);
/** "127.0.0.1:8080", with the port that is really listened on; NULL: the socket alone. */
const char *reef_http_address(const reef_http *http);
/** Whether other machines can reach what answers this request. */
bool reef_http_is_public(const reef_http_request *request);
/** Whether it came by the control socket, and so from our own user or root. */
bool reef_http_is_private(const reef_http_request *request);
/** Of the options. */
void *reef_http_context(const reef_http_request *request);
size_t reef_http_connection_count(const reef_http *http);
/**
 * Six counts of replies, by hundreds of their code; at [0] of requests that got none. MHD's own are
 * not among them.
 */
const uint64_t *reef_http_replies(const reef_http *http);
/** Disconnect clients whose time is up; call at a steady pace. */
void reef_http_tick(reef_http *http);
/** Accepts NULL. Deferred requests are forgotten, and the socket's file goes. */
void reef_http_close(reef_http *http);

/** Whether the request has the token; false if it has none. In constant time. */
bool reef_http_has_token(const reef_http_request *request);
/**
 * Reply with `bytes` of `body`, which must be on the heap and is taken. On the loop's thread; a
 * deferred request continues here.
 */
void reef_http_reply(
    reef_http_request *request, unsigned code, const char *type, char *body, size_t bytes);

/** The same of bytes that stay where they are. */
void reef_http_reply_static(reef_http_request *request,
                            const char *type,
                            const unsigned char *body,
                            size_t bytes);

/** The same of a line of JSON, which is on the heap and is taken; its end is added. NULL: 500. */
void reef_http_reply_line(reef_http_request *request, unsigned code, char *text);
void reef_http_reply_json(reef_http_request *request, unsigned code, json_t *object); // taken
/**
 * Reply with an error, {"error": ...}.
 *
 * retry_ms  after how long to try again; 0: nothing is said of it
 */
void reef_http_fail(reef_http_request *request,
                    unsigned code,
                    const reef_error *err,
                    unsigned retry_ms);

// ---- streams ------------------------------------------------------------------------------------

/**
 * Reply with bytes that come later, as by reef_http_reply with 200. NULL when there are too many
 * streams, or no memory: nothing is answered then.
 *
 * on_gone  called with `owner` when the client is gone; the stream must not be used any more
 */
reef_http_stream *reef_http_stream_begin(reef_http_request *request,
                                         const char *type,
                                         void (*on_gone)(void *owner),
                                         void *owner);
/** All of it or, when the client has left too much untaken, nothing. */
void reef_http_stream_send(reef_http_stream *stream, const char *bytes, size_t count);
/** Nothing waits to be taken. */
bool reef_http_stream_is_idle(const reef_http_stream *stream);

#endif
