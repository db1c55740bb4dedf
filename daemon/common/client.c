// The client's side of the control socket: one request, one reply, one connection. Blocking, with a
// deadline on every wait but that for the end of a long command, and without a loop, so that a tool
// needs nothing else.
#include "reef_client.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define SEND_SECONDS_MAX 10
// a seal or a commit waits for the step that is running and for the disk
#define REPLY_SECONDS_MAX 600
#define REPLY_ROOM_FIRST 4096
#define HEAD_BYTES_MAX 1024

typedef struct call {
    struct sockaddr_un address;
    int fd;
    char head[HEAD_BYTES_MAX]; // of the request
    const void *body;
    size_t body_bytes;
    int reply_ms; // how long the reply may take; -1: for ever
    char *reply;
    size_t used, room;
} call;

static reef_status fail_io(const call *c, const char *what, reef_error *err) {
    return reef_fail(err, REEF_ERR_IO, "%s the daemon at '%s': %s", what, c->address.sun_path,
                     strerror(errno));
}

static reef_status connect_to(call *c, reef_error *err) {
    // Close-on-exec: a command may start other programs.
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) return fail_io(c, "no socket for", err);
    // A daemon that hangs must not hang its clients: sending has a deadline.
    struct timeval limit = {.tv_sec = SEND_SECONDS_MAX};
    if (setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0)
        return fail_io(c, "cannot set a deadline for", err);
    if (connect(c->fd, (const struct sockaddr *)&c->address, sizeof(c->address)) == 0)
        return REEF_OK;
    // These four mean that nobody listens, which the caller handles by opening the pool itself.
    if (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR || errno == ENOTSOCK)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "no daemon listens at '%s'; reefd starts one",
                         c->address.sun_path);
    return fail_io(c, "cannot reach", err);
}

static reef_status send_bytes(call *c, const char *bytes, size_t count, reef_error *err) {
    for (size_t sent = 0; sent < count;) {
        // MSG_NOSIGNAL: a daemon that went away is an error of this call, not a signal to the
        // program.
        ssize_t now = send(c->fd, bytes + sent, count - sent, MSG_NOSIGNAL);
        if (now > 0) sent += (size_t)now;
        // A daemon that refuses a client replies before it reads; the reply says why.
        if (now < 0 && errno == EPIPE) break;
        if (now < 0 && errno != EINTR) return fail_io(c, "cannot write to", err);
    }
    return REEF_OK;
}

static reef_status wait_for_bytes(const call *c, reef_error *err) {
    struct pollfd wait = {.fd = c->fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&wait, 1, c->reply_ms);
        // A signal interrupts poll; the deadline starts over, which only makes it longer.
    } while (ready < 0 && errno == EINTR);
    if (ready < 0) return fail_io(c, "cannot wait for", err);
    if (ready == 0)
        return reef_fail(err, REEF_ERR_BUSY, "the daemon at '%s' has not answered for %d s",
                         c->address.sun_path, c->reply_ms / 1000);
    return REEF_OK;
}

static reef_status make_room(call *c, reef_error *err) {
    // One byte stays free for the final zero.
    if (c->used + 1 < c->room) return REEF_OK;
    // The bound keeps a confused peer from filling the memory.
    if (c->room > REEF_REQUEST_BYTES_MAX)
        return reef_fail(err, REEF_ERR_IO, "the daemon's answer is longer than %u bytes",
                         REEF_REQUEST_BYTES_MAX);
    size_t room = c->room ? c->room * 2 : REPLY_ROOM_FIRST;
    char *bytes = realloc(c->reply, room);
    if (bytes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the daemon's answer");
    c->reply = bytes;
    c->room = room;
    return REEF_OK;
}

// The connection ends with the reply.
static reef_status receive_all(call *c, reef_error *err) {
    for (;;) {
        reef_status status = make_room(c, err);
        if (status == REEF_OK) status = wait_for_bytes(c, err);
        if (status != REEF_OK) return status;
        ssize_t count = recv(c->fd, c->reply + c->used, c->room - c->used - 1, 0);
        if (count < 0 && errno == EINTR) continue;
        // A daemon that did not read all of what it refuses resets the connection after its reply.
        if (count < 0 && (errno != ECONNRESET || c->used == 0))
            return fail_io(c, "cannot read from", err);
        if (count <= 0) break;
        c->used += (size_t)count;
    }
    c->reply[c->used] = 0;
    return REEF_OK;
}

// The body of a whole reply; NULL of what is none.
static const char *body_of(const call *c) {
    static const char LENGTH[] = "\r\nContent-Length: ";
    const char *end = strstr(c->reply, "\r\n\r\n");
    const char *length = strstr(c->reply, LENGTH);
    if (strncmp(c->reply, "HTTP/1.1 ", 9) != 0 || end == NULL || length == NULL || length > end)
        return NULL;
    const char *body = end + 4;
    size_t bytes = strtoul(length + strlen(LENGTH), NULL, 10);
    return c->used - (size_t)(body - c->reply) == bytes ? body : NULL;
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

static reef_status read_reply(const call *c, char **result, unsigned *retry_ms, reef_error *err) {
    const char *body = body_of(c);
    if (body == NULL)
        return reef_fail(err, REEF_ERR_IO, "the daemon at '%s' ended before it answered",
                         c->address.sun_path);
    json_t *reply =
        json_loads(body, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    const json_t *error = json_object_get(reply, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    bool good = strncmp(c->reply + 9, "200", 3) == 0;
    reef_status status = REEF_OK;
    if (good && reply != NULL) {
        *result = strdup(body);
        if (*result == NULL)
            status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the daemon's answer");
    } else if (!good && message != NULL) {
        // The status travels by name. An unknown name, from a newer daemon, becomes a general
        // failure.
        status =
            reef_fail(err, status_from_text(json_string_value(json_object_get(error, "status"))),
                      "%s", message);
        // A hint how long to wait before trying again, sent with BUSY.
        json_int_t hint = json_integer_value(json_object_get(error, "retry_ms"));
        *retry_ms = hint > 0 && hint < UINT_MAX ? (unsigned)hint : 0;
    } else {
        status = reef_fail(err, REEF_ERR_IO, "the daemon's answer is not understood: %.80s", body);
    }
    json_decref(reply);
    return status;
}

// `headers` are lines of their own.
static reef_status post(call *c,
                        const char *path,
                        const char *headers,
                        char **result,
                        unsigned *retry_ms,
                        reef_error *err) {
    *result = NULL;
    *retry_ms = 0;
    // The daemon would refuse it after it was sent; here the message can say why.
    if (c->body_bytes > REEF_REQUEST_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "the request has %zu bytes, at most %u are allowed",
                         c->body_bytes, REEF_REQUEST_BYTES_MAX);
    int bytes = snprintf(c->head, sizeof(c->head),
                         "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Content-Length: %zu\r\n%s\r\n",
                         path, c->body_bytes, headers);
    if (bytes < 0 || (size_t)bytes >= sizeof(c->head))
        return reef_fail(err, REEF_ERR_INVALID, "the name of the source or the batch is too long");
    reef_status status = connect_to(c, err);
    if (status == REEF_OK) status = send_bytes(c, c->head, (size_t)bytes, err);
    if (status == REEF_OK) status = send_bytes(c, c->body, c->body_bytes, err);
    if (status == REEF_OK) status = receive_all(c, err);
    if (status == REEF_OK) status = read_reply(c, result, retry_ms, err);
    if (c->fd >= 0) close(c->fd);
    free(c->reply);
    return status;
}

// A drain trains all that waits: nobody knows how long that takes. A daemon that ends closes the
// socket.
static bool takes_long(const json_t *request) {
    const char *command = json_string_value(json_object_get(request, "command"));
    return command != NULL && strcmp(command, "drain") == 0;
}

reef_status reef_daemon_call(const char *pool,
                             const char *socket_path,
                             const char *command,
                             char **result,
                             reef_error *err) {
    unsigned retry_ms;
    json_error_t why;
    call c = {.fd = -1, .body = command, .body_bytes = strlen(command)};
    *result = NULL;
    // Duplicate keys are refused here as well as there, because the two ends might pick different
    // ones.
    json_t *object = json_loads(command, JSON_REJECT_DUPLICATES, &why);
    c.reply_ms = takes_long(object) ? -1 : REPLY_SECONDS_MAX * 1000;
    reef_status status = REEF_OK;
    if (!json_is_object(object))
        status = reef_fail(err, REEF_ERR_INVALID, "the request is not a JSON object: %s",
                           object != NULL ? "it is something else" : why.text);
    json_decref(object);
    if (status == REEF_OK) status = reef_address_init(&c.address, pool, socket_path, err);
    if (status != REEF_OK) return status;
    return post(&c, "/v1/command", "Content-Type: application/json\r\n", result, &retry_ms, err);
}

// Of characters that stand for themselves in the header of a request, without these.
static bool is_word(const char *text, const char *without) {
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~' || strchr(without, *c) != NULL) return false;
    return *text != 0;
}

reef_status reef_daemon_push(const char *pool,
                             const char *socket_path,
                             const reef_daemon_batch *batch,
                             char **result,
                             unsigned *retry_ms,
                             reef_error *err) {
    char path[HEAD_BYTES_MAX], headers[HEAD_BYTES_MAX];
    call c = {.fd = -1,
              .body = batch->bytes,
              .body_bytes = batch->count,
              .reply_ms = REPLY_SECONDS_MAX * 1000};
    *result = NULL;
    *retry_ms = 0;
    if (batch->source != NULL && !is_word(batch->source, "/?%#"))
        return reef_fail(err, REEF_ERR_NOT_FOUND, "reefd has no source push:%.60s", batch->source);
    if (batch->id != NULL && !is_word(batch->id, ""))
        return reef_fail(err, REEF_ERR_INVALID,
                         "the id of a batch is printable ASCII without a space");
    reef_status status = reef_address_init(&c.address, pool, socket_path, err);
    if (status != REEF_OK) return status;
    snprintf(path, sizeof(path), "/v1/ingest%s%s", batch->source != NULL ? "/" : "",
             batch->source != NULL ? batch->source : "");
    snprintf(headers, sizeof(headers), "Content-Type: %s\r\n%s%s%s", batch->type,
             batch->id != NULL ? "Reef-Batch-Id: " : "", batch->id != NULL ? batch->id : "",
             batch->id != NULL ? "\r\n" : "");
    return post(&c, path, headers, result, retry_ms, err);
}

// ---- addresses ----------------------------------------------------------------------------------
//
// A socket path has to fit into sun_path (107 bytes on Linux): bind() and libuv would cut a longer
// one silently and listen somewhere else.

#define HOST_BYTES_MAX 80 // an IPv6 address, with a zone

// Several ranks train the pools in one directory, and rank 0 answers for all.
static bool is_held_by_rank_0(const char *pool) {
    char path[PATH_MAX];
    struct stat info;
    int bytes = snprintf(path, sizeof(path), "%s/data.mdb", pool);
    if (bytes >= (int)sizeof(path) || stat(path, &info) == 0) return false;
    bytes = snprintf(path, sizeof(path), "%s/rank-0/data.mdb", pool);
    return bytes < (int)sizeof(path) && stat(path, &info) == 0;
}

reef_status reef_address_init(struct sockaddr_un *address,
                              const char *pool,
                              const char *socket_path,
                              reef_error *err) {
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    // A command without a pool may still name a socket; without both there is nowhere to go.
    if (socket_path == NULL && pool == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "neither a pool nor a socket was named");
    // "pool/" and "pool" are the same directory, and must give the same socket path.
    int length = pool != NULL ? (int)strlen(pool) : 0;
    while (length > 1 && pool[length - 1] == '/') length--;
    bool held = socket_path == NULL && is_held_by_rank_0(pool);
    int bytes = socket_path != NULL
                    ? snprintf(address->sun_path, sizeof(address->sun_path), "%s", socket_path)
                    : snprintf(address->sun_path, sizeof(address->sun_path), "%.*s/%s%s", length,
                               pool, held ? "rank-0/" : "", REEF_SOCKET_NAME);
    if (bytes <= 0) return reef_fail(err, REEF_ERR_INVALID, "the socket path is empty");
    // sun_path holds 107 characters. A longer path would be cut silently and reach another socket.
    if ((size_t)bytes >= sizeof(address->sun_path))
        return reef_fail(err, REEF_ERR_INVALID,
                         "the socket path has %d bytes, a socket takes at most %zu: "
                         "give a shorter one with --socket (%.60s...)",
                         bytes, sizeof(address->sun_path) - 1, address->sun_path);
    return REEF_OK;
}

static reef_status listen_failure(const char *listen, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.80s' is not an address: PORT, ADDRESS:PORT or [ADDRESS]:PORT", listen);
}

reef_status reef_address_parse(struct sockaddr_storage *out, const char *listen, reef_error *err) {
    // A port alone listens on loopback: opening a pool to the network takes an explicit address.
    char host[HOST_BYTES_MAX] = "127.0.0.1";
    const char *colon = strrchr(listen, ':'), *port = colon != NULL ? colon + 1 : listen;
    if (colon != NULL) {
        // An IPv6 address contains colons, so it is written in brackets; the port follows the last
        // colon.
        bool brackets = listen[0] == '[' && colon > listen + 1 && colon[-1] == ']';
        const char *begin = listen + brackets, *end = colon - brackets;
        if (end <= begin || (size_t)(end - begin) >= sizeof(host))
            return listen_failure(listen, err);
        snprintf(host, sizeof(host), "%.*s", (int)(end - begin), begin);
    }
    char *end = NULL;
    unsigned long number = strtoul(port, &end, 10);
    // strtoul takes signs and blanks; a port starts with a digit.
    if (port[0] < '0' || port[0] > '9' || *end || number > 65535)
        return listen_failure(listen, err);
    // Numeric only: a name would be looked up over the network at start, and could resolve to
    // something unexpected.
    struct addrinfo *found = NULL, hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                            .ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, port, &hints, &found) != 0) return listen_failure(listen, err);
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return REEF_OK;
}
