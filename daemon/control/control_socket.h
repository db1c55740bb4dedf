// The control socket: connections, lines and answers, on the loop's thread.
//
// A client's lines are answered one after another, in order. While one is with the trainer the
// client is not read from, so a client costs bounded memory whatever it sends, and never a step of
// training.
#ifndef REEF_CONTROL_SOCKET_H
#define REEF_CONTROL_SOCKET_H

#include "push.h"
#include "reef_address.h"
#include "reef_error.h"
#include "status.h"
#include "training_thread.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#define REEF_CLIENT_COUNT_MAX 64
#define REEF_CLIENT_IDLE_MS_MAX 10000 // a client that neither sends nor reads is disconnected

typedef struct reef_client reef_client;

typedef struct reef_control {
    // set by the caller before reef_control_open
    uv_loop_t *loop;
    reef_training *training; // may be set later, before the loop runs
    reef_status_view *monitor;
    reef_pusher *pusher;
    void (*on_stop)(void *context); // a client asked for the end
    /** Takes a request of REEF_COMMAND_SERVICE, as reef_training_request does. */
    reef_status (*on_request)(void *context, reef_request *request, reef_error *err);
    void *context;
    // its own
    uv_pipe_t listener;
    bool listening;
    reef_client *clients;
    size_t client_count;
} reef_control;

/**
 * Listen at `address`, for our own user only. A socket that nobody listens on any more is replaced.
 *
 * Errors: BUSY another process listens there; INVALID the path exists and is not a socket; IO.
 */
REEF_MUST_CHECK reef_status reef_control_open(reef_control *control,
                                              const struct sockaddr_un *address,
                                              reef_error *err);
/**
 * Disconnect clients that have been idle for too long, or have gone; their requests are still
 * carried out.
 */
void reef_control_tick(reef_control *control);
/** Close the socket and every client; requests that are still out are forgotten. */
void reef_control_close(reef_control *control);

#endif
