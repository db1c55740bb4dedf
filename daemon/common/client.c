// The client's side of the control socket: one request, one answer, one connection. Blocking, with
// a deadline on every wait but that for the end of a long command, and without a loop, so that a
// tool needs nothing else.
#include "reef_client.h"

#include "reef_address.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define SEND_SECONDS_MAX 10
// a seal or a commit waits for the step that is running and for the disk
#define REPLY_SECONDS_MAX 600
#define REPLY_ROOM_FIRST 4096

static reef_status fail_io(const struct sockaddr_un *address, const char *what, reef_error *err) {
    return reef_fail(err, REEF_ERR_IO, "%s the daemon at '%s': %s", what, address->sun_path,
                     strerror(errno));
}

static reef_status connect_to(int *out, const struct sockaddr_un *address, reef_error *err) {
    // Close-on-exec: a command may start other programs.
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail_io(address, "no socket for", err);
    struct timeval limit = {.tv_sec = SEND_SECONDS_MAX};
    reef_status status = REEF_OK;
    // A daemon that hangs must not hang its clients: sending has a deadline.
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0)
        status = fail_io(address, "cannot set a deadline for", err);
    // These four mean that nobody listens, which the caller handles by opening the pool itself.
    else if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0)
        status =
            errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR || errno == ENOTSOCK
                ? reef_fail(err, REEF_ERR_NOT_FOUND,
                            "no daemon listens at '%s'; reef run starts one", address->sun_path)
                : fail_io(address, "cannot reach", err);
    if (status != REEF_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    return REEF_OK;
}

// A drain trains all that waits and a check reads the whole pool: nobody knows how long that takes.
// A daemon that ends closes the socket.
static bool takes_long(const json_t *request) {
    const char *command = json_string_value(json_object_get(request, "command"));
    return command != NULL && (strcmp(command, "drain") == 0 || strcmp(command, "verify") == 0);
}

// The request as one line, whatever way it was written, and how long its answer may take; -1: for
// ever.
static reef_status compact_request(char **out,
                                   int *reply_ms,
                                   const char *request,
                                   reef_error *err) {
    // Parsed before it is sent. Duplicate keys are refused here as well as there, because the two
    // ends might pick different ones.
    json_error_t why;
    json_t *object = json_loads(request, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(object)) {
        reef_status status =
            reef_fail(err, REEF_ERR_INVALID, "the request is not a JSON object: %s",
                      object != NULL ? "it is something else" : why.text);
        json_decref(object);
        return status;
    }
    // Written again in one line: the protocol is a line per request, and pretty JSON has several.
    *out = json_dumps(object, JSON_COMPACT);
    // Commands that work through the whole pool, such as drain and verify, have no deadline.
    *reply_ms = takes_long(object) ? -1 : REPLY_SECONDS_MAX * 1000;
    json_decref(object);
    return *out != NULL ? REEF_OK : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the request");
}

static reef_status send_line(int fd,
                             const struct sockaddr_un *address,
                             char *line,
                             reef_error *err) {
    size_t bytes = strlen(line) + 1;
    // The daemon would close the connection without a reply; here the message can say why.
    if (bytes > REEF_REQUEST_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "the request has %zu bytes, at most %u are allowed",
                         bytes, REEF_REQUEST_BYTES_MAX);
    line[bytes - 1] = '\n'; // overwrites the final zero
    for (size_t sent = 0; sent < bytes;) {
        // MSG_NOSIGNAL: a daemon that went away is an error of this call, not a signal to the
        // program.
        ssize_t count = send(fd, line + sent, bytes - sent, MSG_NOSIGNAL);
        if (count > 0) sent += (size_t)count;
        // A daemon that refuses a client replies before it reads; the reply says why.
        if (count < 0 && errno == EPIPE) break;
        if (count < 0 && errno != EINTR) return fail_io(address, "cannot write to", err);
    }
    return REEF_OK;
}

static reef_status wait_for_bytes(int fd,
                                  const struct sockaddr_un *address,
                                  int reply_ms,
                                  reef_error *err) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&wait, 1, reply_ms);
        // A signal interrupts poll; the deadline starts over, which only makes it longer.
    } while (ready < 0 && errno == EINTR);
    if (ready < 0) return fail_io(address, "cannot wait for", err);
    if (ready == 0)
        return reef_fail(err, REEF_ERR_BUSY, "the daemon at '%s' has not answered for %d s",
                         address->sun_path, reply_ms / 1000);
    return REEF_OK;
}

typedef struct text {
    char *bytes;
    size_t used, room;
} text;

static reef_status make_room(text *reply, reef_error *err) {
    // One byte stays free for the final zero.
    if (reply->used + 1 < reply->room) return REEF_OK;
    // The bound keeps a confused peer from filling the memory.
    if (reply->room > REEF_REQUEST_BYTES_MAX)
        return reef_fail(err, REEF_ERR_IO, "the daemon's answer is longer than %u bytes",
                         REEF_REQUEST_BYTES_MAX);
    size_t room = reply->room ? reply->room * 2 : REPLY_ROOM_FIRST;
    char *bytes = realloc(reply->bytes, room);
    if (bytes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the daemon's answer");
    reply->bytes = bytes;
    reply->room = room;
    return REEF_OK;
}

static reef_status receive_line(
    int fd, const struct sockaddr_un *address, int reply_ms, text *reply, reef_error *err) {
    for (;;) {
        reef_status status = make_room(reply, err);
        if (status == REEF_OK) status = wait_for_bytes(fd, address, reply_ms, err);
        if (status != REEF_OK) return status;
        // The line may come in pieces; everything that has come is kept.
        ssize_t count = recv(fd, reply->bytes + reply->used, reply->room - reply->used - 1, 0);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_io(address, "cannot read from", err);
        if (count == 0)
            return reef_fail(err, REEF_ERR_IO, "the daemon at '%s' ended before it answered",
                             address->sun_path);
        // Only new bytes can hold the newline.
        char *end = memchr(reply->bytes + reply->used, '\n', (size_t)count);
        reply->used += (size_t)count;
        if (end == NULL) continue;
        *end = 0;
        return REEF_OK;
    }
}

static reef_status status_from_text(const char *name) {
    static const char *const TEXTS[] = {
#define STATUS_TEXT(upper, text, code) text,
        REEF_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    };
    for (size_t i = 1; name != NULL && i < sizeof(TEXTS) / sizeof(*TEXTS); i++)
        if (strcmp(name, TEXTS[i]) == 0) return (reef_status)i;
    return REEF_ERR_IO;
}

static reef_status read_reply(char **result,
                              const char *line,
                              unsigned *retry_ms,
                              reef_error *err) {
    // An answer is {"ok": true, "result": ...} or {"ok": false, "error": {...}}; anything else is
    // not from reefd.
    json_t *reply = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    json_t *ok = json_object_get(reply, "ok");
    json_t *value = json_object_get(reply, "result");
    json_t *error = json_object_get(reply, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    reef_status status = REEF_OK;
    if (json_is_true(ok) && value != NULL) {
        *result = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        if (*result == NULL)
            status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the daemon's answer");
    } else if (json_is_false(ok) && message != NULL) {
        // The status travels by name. An unknown name, from a newer daemon, becomes a general
        // failure.
        status =
            reef_fail(err, status_from_text(json_string_value(json_object_get(error, "status"))),
                      "%s", message);
        // A hint how long to wait before trying again, sent with BUSY.
        json_int_t hint = json_integer_value(json_object_get(error, "retry_ms"));
        *retry_ms = hint > 0 && hint < UINT_MAX ? (unsigned)hint : 0;
    } else {
        status = reef_fail(err, REEF_ERR_IO, "the daemon's answer is not understood: %.80s", line);
    }
    json_decref(reply);
    return status;
}

reef_status reef_daemon_call(const char *pool,
                             const char *socket_path,
                             const char *request,
                             char **result,
                             reef_error *err) {
    unsigned retry_ms;
    return reef_daemon_call_hinted(pool, socket_path, request, result, &retry_ms, err);
}

reef_status reef_daemon_call_hinted(const char *pool,
                                    const char *socket_path,
                                    const char *request,
                                    char **result,
                                    unsigned *retry_ms,
                                    reef_error *err) {
    *result = NULL;
    *retry_ms = 0;
    struct sockaddr_un address;
    int fd = -1, reply_ms = 0;
    char *line = NULL;
    text reply = {0};

    // Every step may fail, and each leaves something to release: one exit for all.
    reef_status status = reef_address_init(&address, pool, socket_path, err);
    if (status != REEF_OK) goto cleanup;
    status = compact_request(&line, &reply_ms, request, err);
    if (status != REEF_OK) goto cleanup;
    status = connect_to(&fd, &address, err);
    if (status != REEF_OK) goto cleanup;
    status = send_line(fd, &address, line, err);
    if (status != REEF_OK) goto cleanup;
    status = receive_line(fd, &address, reply_ms, &reply, err);
    if (status != REEF_OK) goto cleanup;
    status = read_reply(result, reply.bytes, retry_ms, err);

cleanup:
    if (fd >= 0) close(fd);
    free(reply.bytes);
    free(line);
    return status;
}
