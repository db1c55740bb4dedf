// Shared by the files of HTTP: its two doors, one connection, how the loop learns of work, and who
// may ask.
#ifndef REEF_HTTP_INTERNAL_H
#define REEF_HTTP_INTERNAL_H

#include "http_server.h"

#include <microhttpd.h>
#include <sys/socket.h>
#include <uv.h>

#define REEF_HTTP_ADDRESS_BYTES_MAX 80

/** Where connections come in. */
typedef struct reef_http_door {
    reef_http *http;
    struct MHD_Daemon *daemon; // NULL: not open
    uv_poll_t poll;
    uv_timer_t timer;
    bool is_socket; // the control socket: of this user alone
    size_t connection_count;
} reef_http_door;

struct reef_http_connection {
    struct MHD_Connection *connection;
    reef_http_door *door;
    uint64_t since_ms; // when its phase began
    bool is_too_many;  // all connections were taken: it gets one reply, and is closed
    // nothing is asked of its client: a request is deferred, or a stream has nothing
    bool waits_for_us;
    bool hung_up;                // while a request was deferred: seen since `since_ms`
    reef_http_request *deferred; // the one that waits for its reply, or NULL
    reef_http_stream *stream;    // its reply, where it is one
    reef_http_connection *next, *previous;
};

struct reef_http {
    reef_http_options options;
    reef_http_door doors[2]; // the control socket, and --http
    char address[REEF_HTTP_ADDRESS_BYTES_MAX];
    reef_http_token token;
    reef_http_connection *connections;
    size_t stream_count;   // that are open; counted by http_stream.c
    uint64_t replies[6];   // by hundreds of the code; [0]: none was sent
    size_t bodies_bytes;   // of requests that are being read
    unsigned open_handles; // of the loop
    bool running, closing;
    bool is_public; // --http can be reached from other machines
};

/** Reply with a response, which is consumed; a deferred request continues here. */
void reef_http_respond(reef_http_request *request,
                       unsigned code,
                       const char *type,
                       struct MHD_Response *response);
/** Let MHD work off what is ready. */
void reef_http_run(reef_http *http);
uint64_t reef_http_now_ms(const reef_http *http);

/** Where to listen, and the token; INVALID when others could reach that without one. */
REEF_MUST_CHECK reef_status reef_http_access_check(const char *listen,
                                                   const char *token_file,
                                                   struct sockaddr_storage *address,
                                                   reef_http_token *token,
                                                   reef_error *err);
bool reef_http_is_loopback(const struct sockaddr_storage *address);
/**
 * Listen on the control socket, for our own user only. A socket that nobody listens on any more is
 * replaced. `fd` is the caller's.
 *
 * Errors: BUSY another process listens there; INVALID the path exists and is not a socket;
 * NOT_FOUND its directory is not there; IO.
 */
REEF_MUST_CHECK reef_status reef_http_listen_socket(int *fd,
                                                    const struct sockaddr_un *address,
                                                    reef_error *err);

/** The request is over: the feeder of its stream is notified. Accepts NULL. */
void reef_http_stream_gone(reef_http_stream *stream);
/** MHD stops: the stream's connection must not be suspended. */
void reef_http_stream_release(reef_http_stream *stream);

#endif
