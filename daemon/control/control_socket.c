// Connections of the control socket; see control_socket.h. A client is made in on_connect and freed
// only in on_closed. In between it is in one of these states:
//
//   reading --line--> status, stop, error: writing --written--> next line, or reading
//                |--> for the trainer:     pending --answered--> writing
//                \--> a batch:             pushing --answered--> writing
#include "control_socket.h"
#include "reply_json.h"

#include "command.h"
#include "peer_cred.h"
#include "reef_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_ROOM_FIRST 4096
#define BACKLOG 64

struct reef_client {
    uv_pipe_t pipe;
    reef_control *control;
    char *line; // bytes received; from `begin` on not yet served
    size_t begin, used, room;
    size_t scanned; // up to here there is no newline from `begin` on
    reef_request *pending;
    reef_push_batch *pushing;
    uv_write_t write;
    char *reply; // being written
    bool last;   // close after the answer
    bool eof;    // the client will send no more
    uint64_t active_ms;
    struct reef_client *next;
};

static void serve_lines(reef_client *client);

// ---- closing ------------------------------------------------------------------------------------

static void on_closed(uv_handle_t *handle) {
    reef_client *client = handle->data;
    free(client->line);
    free(client->reply);
    free(client);
}

static void unlink_client(reef_client *client) {
    reef_client **link = &client->control->clients;
    while (*link != client) link = &(*link)->next;
    *link = client->next;
    client->control->client_count--;
}

static void disconnect_client(reef_client *client) {
    if (uv_is_closing((uv_handle_t *)&client->pipe)) return;
    if (client->pending != NULL) client->pending->owner = NULL; // the trainer still has it
    if (client->pushing != NULL) client->pushing->owner = NULL; // and the pusher
    unlink_client(client);
    uv_close((uv_handle_t *)&client->pipe, on_closed);
}

// ---- answering ----------------------------------------------------------------------------------

static void on_written(uv_write_t *write, int code) {
    reef_client *client = write->data;
    free(client->reply);
    client->reply = NULL;
    if (uv_is_closing((uv_handle_t *)&client->pipe)) return;
    if (code || client->last)
        disconnect_client(client);
    else
        serve_lines(client);
}

static void reply(reef_client *client, json_t *object) {
    // 12 digits: a double in a status, not an exact value.
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(object);
    if (text == NULL) { // out of memory; the client sees the end of the connection
        disconnect_client(client);
        return;
    }
    size_t bytes = strlen(text);
    text[bytes] = '\n'; // overwrites the final zero
    client->reply = text;
    // The client's time limit for taking the reply starts now.
    client->active_ms = uv_now(client->control->loop);
    client->write.data = client;
    uv_buf_t buffer = uv_buf_init(text, (unsigned)(bytes + 1));
    // libuv owns the buffer until on_written; the client keeps it in `reply`.
    if (uv_write(&client->write, (uv_stream_t *)&client->pipe, &buffer, 1, on_written))
        disconnect_client(client);
}

static void reply_failure(reef_client *client, const reef_error *err) {
    reply(client, reef_reply_error(err));
}

static void on_reply(reef_request *request) {
    reef_client *client = request->owner;
    client->pending = NULL;
    reply(client, reef_command_reply(request));
}

static reef_status pass_on(reef_control *control,
                           reef_command_kind to,
                           reef_request *request,
                           reef_error *err) {
    if (to == REEF_COMMAND_SERVICE) return control->on_request(control->context, request, err);
    return reef_training_request(control->training, request, err);
}

static void hand_over(reef_client *client, reef_command_kind to, reef_request *request) {
    reef_error err = {.status = REEF_ERR_NO_MEMORY};
    // The request outlives this call and the client: the trainer's thread works on a heap copy.
    reef_request *copy = malloc(sizeof(*copy));
    reef_status status = REEF_OK;
    if (copy != NULL) {
        *copy = *request;
        copy->owner = client;
        copy->on_reply = on_reply;
        // While a request is pending the client's next line is not read: answers come in the order
        // of requests.
        client->pending = copy;
        status = pass_on(client->control, to, copy, &err);
    } else {
        status = reef_fail(&err, REEF_ERR_NO_MEMORY, "no memory for the request");
    }
    if (status == REEF_OK) return;
    // A queue was full or stopping; whatever the request held is released here.
    client->pending = NULL;
    reef_request_release(request);
    free(copy);
    reply_failure(client, &err);
}

static void on_pushed(reef_push_batch *batch) {
    reef_client *client = batch->owner;
    client->pushing = NULL;
    reply(client, batch->error.status == REEF_OK
                      ? reef_reply_result(reef_push_result(batch))
                      : reef_push_failure(&batch->error, batch->retry_ms));
}

static void push_batch(reef_client *client, reef_push_batch *batch) {
    reef_error err;
    batch->owner = client;
    batch->on_reply = on_pushed;
    if (reef_push_submit(client->control->pusher, batch, &err) == REEF_OK) {
        client->pushing = batch;
        return;
    }
    reply(client, reef_push_failure(&err, batch->retry_ms));
    reef_push_batch_free(batch);
}

// ---- lines --------------------------------------------------------------------------------------

static void serve_line(reef_client *client, const char *line, size_t bytes) {
    reef_control *control = client->control;
    reef_command command;
    reef_error err;
    // A complete line is a sign of life.
    client->active_ms = uv_now(control->loop);
    if (reef_command_parse(&command, line, bytes, &err) != REEF_OK) {
        reply_failure(client, &err);
        return;
    }
    switch (command.kind) {
    case REEF_COMMAND_STATUS:
        // Status is answered from the loop's own copy. It never waits for training.
        reply(client, reef_reply_result(reef_status_view_status(control->monitor)));
        break;
    case REEF_COMMAND_TRAINER:
    case REEF_COMMAND_SERVICE:
        hand_over(client, command.kind, &command.request); // and what it holds
        break;
    case REEF_COMMAND_INGEST:
        // The weight bounds how much pushed data may wait in memory.
        command.batch->weight = bytes;
        push_batch(client, command.batch);
        break;
    case REEF_COMMAND_STOP:
        // Stopping begins at once; the reply says that it began, not that it is over.
        control->on_stop(control->context);
        reply(client, reef_reply_result(json_pack("{s:s}", "state", "draining")));
        break;
    }
}

// Length of the first line, or SIZE_MAX when it is not complete. A line without an end is complete
// when the client has closed its direction.
static size_t first_line(reef_client *client) {
    char *end = client->used > client->scanned
                    ? memchr(client->line + client->scanned, '\n', client->used - client->scanned)
                    : NULL;
    if (end != NULL) return (size_t)(end - client->line) - client->begin;
    client->scanned = client->used;
    return client->eof && client->used > client->begin ? client->used - client->begin : SIZE_MAX;
}

static void remove_line(reef_client *client, size_t length) {
    client->begin += length;
    if (client->begin < client->used) client->begin++; // its newline
    client->scanned = client->begin;
}

// What is left moves to the front once a read, and not once a line: there may be very many.
static void make_room(reef_client *client) {
    if (client->begin == 0) return;
    memmove(client->line, client->line + client->begin, client->used - client->begin);
    client->used -= client->begin;
    client->scanned -= client->begin;
    client->begin = 0;
}

static void refuse_long_line(reef_client *client) {
    reef_error err;
    client->last = true;
    (void)reef_fail(&err, REEF_ERR_INVALID, "the request is longer than %u bytes",
                    REEF_REQUEST_BYTES_MAX);
    reply_failure(client, &err);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    (void)suggested;
    reef_client *client = handle->data;
    make_room(client);
    // The line buffer doubles up to the limit of a request.
    if (client->used == client->room) {
        size_t room = client->room ? client->room * 2 : LINE_ROOM_FIRST;
        char *line = realloc(client->line, room);
        if (line != NULL) {
            client->line = line;
            client->room = room;
        }
    }
    // Without memory the buffer is empty, libuv reports UV_ENOBUFS and the client is dropped.
    *buffer = uv_buf_init(client->line + client->used, (unsigned)(client->room - client->used));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    (void)buffer;
    reef_client *client = stream->data;
    if (count == 0) return;
    // A reset by the client, or no memory in on_alloc: the connection is over.
    if (count < 0 && count != UV_EOF) {
        disconnect_client(client);
        return;
    }
    // One line at a time: reading stops until it is served.
    (void)uv_read_stop(stream);
    if (count == UV_EOF)
        client->eof = true;
    else
        client->used += (size_t)count;
    serve_lines(client);
}

// Serve until a line is in someone else's hands or none is complete; then read on.
static void serve_lines(reef_client *client) {
    // Nothing of this client may be under way: no request, no push, no reply being written.
    while (client->pending == NULL && client->pushing == NULL && client->reply == NULL &&
           !uv_is_closing((uv_handle_t *)&client->pipe)) {
        size_t length = first_line(client);
        if (length == SIZE_MAX) {
            // More than a request without a newline is not ours.
            if (client->used - client->begin > REEF_REQUEST_BYTES_MAX)
                refuse_long_line(client);
            else if (client->eof || uv_read_start((uv_stream_t *)&client->pipe, on_alloc, on_read))
                disconnect_client(client);
            return;
        }
        if (length > REEF_REQUEST_BYTES_MAX) {
            refuse_long_line(client);
            return;
        }
        const char *line = client->line + client->begin;
        if (!reef_line_is_blank(line, length)) serve_line(client, line, length);
        // The line is removed only now; commands point into it while they are parsed.
        if (!uv_is_closing((uv_handle_t *)&client->pipe)) remove_line(client, length);
    }
}

// ---- connections --------------------------------------------------------------------------------

// NULL when the client may stay; otherwise why not.
static const char *refusal(const reef_control *control, reef_client *client, reef_status *status) {
    uv_os_fd_t fd = -1;
    *status = REEF_ERR_INVALID;
    if (uv_fileno((uv_handle_t *)&client->pipe, &fd) || !reef_peer_is_trusted(fd))
        return "only the daemon's own user and root may connect";
    *status = REEF_ERR_BUSY;
    if (control->client_count > REEF_CLIENT_COUNT_MAX) return "too many clients";
    return NULL;
}

static void on_connect(uv_stream_t *listener, int code) {
    reef_control *control = listener->data;
    // libuv reports errors of accept here; the listener continues.
    if (code) return; // the client is gone already
    reef_client *client = calloc(1, sizeof(*client));
    if (client == NULL) return; // stays in the backlog until the next one
    if (uv_pipe_init(control->loop, &client->pipe, 0)) {
        free(client);
        return;
    }
    client->control = control;
    client->pipe.data = client;
    client->active_ms = uv_now(control->loop);
    client->next = control->clients;
    control->clients = client;
    control->client_count++;

    // Accepted before the checks below: refusing without accepting would leave the client waiting.
    reef_error err;
    if (uv_accept(listener, (uv_stream_t *)&client->pipe)) {
        disconnect_client(client);
        return;
    }
    // Whom the socket trusts is decided by the credentials of its peer, not by what it sends.
    const char *why = refusal(control, client, &err.status);
    if (why == NULL) {
        serve_lines(client);
        return;
    }
    // It gets one reply, which says why, and then the end of the connection.
    client->last = true;
    (void)reef_fail(&err, err.status, "%s", why);
    reply_failure(client, &err);
}

// Both directions are closed: nobody reads a reply. A client that only closed its sending side
// still waits for it.
static bool has_gone(const reef_client *client) {
    struct pollfd peer = {.fd = -1};
    (void)uv_fileno((const uv_handle_t *)&client->pipe, &peer.fd);
    return poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR));
}

void reef_control_tick(reef_control *control) {
    uint64_t now = uv_now(control->loop);
    for (reef_client *client = control->clients, *next; client != NULL; client = next) {
        next = client->next;
        bool waits = client->pending != NULL || client->pushing != NULL;
        if (waits ? has_gone(client) : now - client->active_ms > REEF_CLIENT_IDLE_MS_MAX)
            disconnect_client(client);
    }
}

// ---- opening ------------------------------------------------------------------------------------

static bool somebody_listens(const struct sockaddr_un *address) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return true; // without knowing, nothing is removed
    bool refused = connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
                   errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

// libuv calls a directory that is not there "permission denied".
static reef_status check_directory(const char *path, reef_error *err) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) return REEF_OK;
    char directory[sizeof(((struct sockaddr_un *)0)->sun_path)];
    snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
    if (access(directory, F_OK) == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_NOT_FOUND,
                     "cannot listen on the control socket '%s': there is no directory '%s'", path,
                     directory);
}

static reef_status remove_stale(const struct sockaddr_un *address, reef_error *err) {
    const char *path = address->sun_path;
    struct stat state;
    // lstat, not stat: a link under this name was made on purpose.
    if (lstat(path, &state) != 0) {
        if (errno == ENOENT) return check_directory(path, err);
        return reef_fail(err, REEF_ERR_IO, "cannot stat the control socket '%s': %s", path,
                         strerror(errno));
    }
    if (!S_ISSOCK(state.st_mode))
        // A file that is not a socket is not removed.
        return reef_fail(err, REEF_ERR_INVALID,
                         "the control socket '%s' cannot be made: another file has its name", path);
    // A connection that succeeds means that another daemon runs on this pool.
    if (somebody_listens(address))
        return reef_fail(err, REEF_ERR_BUSY, "another process listens on the control socket '%s'",
                         path);
    // A socket without a listener is left over from a process that was killed.
    if (unlink(path) != 0 && errno != ENOENT)
        return reef_fail(err, REEF_ERR_IO, "cannot remove the stale control socket '%s': %s", path,
                         strerror(errno));
    return REEF_OK;
}

reef_status reef_control_open(reef_control *control,
                              const struct sockaddr_un *address,
                              reef_error *err) {
    reef_status status = remove_stale(address, err);
    if (status != REEF_OK) return status;
    int code = uv_pipe_init(control->loop, &control->listener, 0);
    if (code)
        return reef_fail(err, REEF_ERR_IO, "cannot make the control socket: %s", uv_strerror(code));
    control->listening = true; // from here on reef_control_close has something to close
    control->listener.data = control;
    // The umask belongs to the whole process. It is changed before other threads make files, so the
    // socket never has wider permissions, not even for an instant.
    mode_t before = umask(0177);
    code = uv_pipe_bind(&control->listener, address->sun_path);
    umask(before);
    if (!code) code = uv_listen((uv_stream_t *)&control->listener, BACKLOG, on_connect);
    if (code)
        return reef_fail(err, REEF_ERR_IO, "cannot listen on the control socket '%s': %s",
                         address->sun_path, uv_strerror(code));
    return REEF_OK;
}

void reef_control_close(reef_control *control) {
    while (control->clients != NULL) disconnect_client(control->clients);
    if (control->listening)
        uv_close((uv_handle_t *)&control->listener, NULL); // removes the file, too
    control->listening = false;
}
