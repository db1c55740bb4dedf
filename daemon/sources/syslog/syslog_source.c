// The kind of source `syslog:`: its sockets on the loop; see syslog_internal.h.
//
//   datagrams    readable --> one message each --> queue
//   connections  accept --> bytes --> messages --> queue       once a second: who is silent
//
// What was read from its journal is push_source.c's.
#define _GNU_SOURCE // SO_MEMINFO, SO_RCVBUFFORCE

#include "syslog_counts.h"
#include "syslog_internal.h"

#include "reef_system.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256
#define CONNECTION_BYTES (REEF_SYSLOG_MESSAGE_BYTES_MAX + 16) // a message and its count
#define ADDRESS_TEXT_BYTES 64
#define RECEIVE_BYTES (8 << 20)  // the system's buffer, if it allows so much
#define TURN_MESSAGES 1024       // read at once, before others have their turn
#define STOP_MESSAGES (1u << 16) // that may wait in the system's buffer when the source stops
#define BACKLOG 128
#define TICK_MS 1000
#define SILENCE_MS 60000 // within a message; and what makes room for another connection
#define ALIVE_S 60       // after which a silent client is asked whether it is there
#define REPORT_MS 60000

typedef struct connection connection;

typedef struct syslog_source {
    reef_push_source push; // first: push_source.c's
    reef_input *input;
    reef_syslog_spec spec;
    int fd;        // until the loop has it; -1
    bool is_bound; // to a path that is to be removed
    bool is_open;  // handles are on the loop
    bool is_full;  // nothing is read
    reef_syslog_queue queue;
    uv_poll_t datagrams;
    uv_tcp_t listener;
    uv_timer_t tick, retry;
    connection *connections;
    uint32_t system_drops; // of the socket, as was read last
    reef_syslog_counts counts, reported;
    char denied_from[ADDRESS_TEXT_BYTES]; // the last one
    uint64_t reported_ms;                 // 0: never
    reef_syslog_minute minute;
    uint8_t *datagram; // (REEF_SYSLOG_MESSAGE_BYTES_MAX)
    uint8_t *line;     // (REEF_SYSLOG_LINE_BYTES_MAX)
} syslog_source;

struct connection {
    uv_tcp_t handle;
    syslog_source *source;
    connection *before, *next;
    reef_syslog_frames frames;
    char from[ADDRESS_TEXT_BYTES];
    uint64_t heard_ms;
    size_t count; // bytes that are not used yet
    uint8_t bytes[CONNECTION_BYTES];
};

// ---- opening ------------------------------------------------------------------------------------

static reef_status on_check_spec(reef_input *input, const char *rest, reef_error *err) {
    reef_syslog_spec spec;
    reef_status status = reef_syslog_spec_parse(&spec, rest, err);
    if (status != REEF_OK) return status;
    // Who may send is no part of the name: what waits in the journal stays this source's.
    strcpy(input->name, REEF_PUSH_PREFIX);
    reef_source_name(input->name + strlen(REEF_PUSH_PREFIX),
                     REEF_NAME_BYTES_MAX - strlen(REEF_PUSH_PREFIX), input->spec,
                     strlen("syslog:") + spec.place_bytes);
    return REEF_OK;
}

static socklen_t address_bytes(const struct sockaddr_storage *address) {
    return address->ss_family == AF_INET    ? sizeof(struct sockaddr_in)
           : address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                            : sizeof(struct sockaddr_un);
}

// A socket that a process left behind when it was killed answers nobody.
static void remove_stale(const struct sockaddr_un *place) {
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)place, sizeof(*place)) != 0 && errno == ECONNREFUSED)
        (void)unlink(place->sun_path);
    (void)close(fd);
}

static int bind_socket(syslog_source *source) {
    const reef_syslog_spec *spec = &source->spec;
    const struct sockaddr *address = (const struct sockaddr *)&spec->address;
    const struct sockaddr_un *place = (const struct sockaddr_un *)(const void *)address;
    const bool is_tcp = spec->transport == REEF_SYSLOG_TCP;
    const int yes = 1, bytes = RECEIVE_BYTES;
    source->fd = socket(spec->address.ss_family,
                        (is_tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (source->fd < 0) return errno;
    if (is_tcp) (void)setsockopt(source->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    // Beyond net.core.rmem_max where that may be done.
    if (!is_tcp && setsockopt(source->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0)
        (void)setsockopt(source->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    if (spec->transport == REEF_SYSLOG_UNIX) remove_stale(place);
    if (bind(source->fd, address, address_bytes(&spec->address)) != 0) return errno;
    source->is_bound = spec->transport == REEF_SYSLOG_UNIX;
    // Any user's programs may log, as to /dev/log; who may not is kept out of the directory.
    if (source->is_bound && chmod(place->sun_path, 0666) != 0) return errno;
    return is_tcp && listen(source->fd, BACKLOG) != 0 ? errno : 0;
}

static reef_status on_open(reef_input *input, const char *rest, reef_error *err) {
    syslog_source *source = calloc(1, sizeof(*source));
    if (source == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    source->input = source->queue.input = input;
    source->fd = -1;
    input->state = source;
    reef_status status = reef_syslog_spec_parse(&source->spec, rest, err);
    if (status != REEF_OK) return status;
    source->datagram = malloc(REEF_SYSLOG_MESSAGE_BYTES_MAX);
    source->line = malloc(REEF_SYSLOG_LINE_BYTES_MAX);
    if (source->datagram == NULL || source->line == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    const int code = bind_socket(source);
    if (code == 0) return REEF_OK;
    return reef_fail(err, code == EADDRINUSE ? REEF_ERR_BUSY : REEF_ERR_IO,
                     "cannot listen on '%.160s': %s", input->spec, strerror(code));
}

static void on_close(reef_input *input) {
    syslog_source *source = input->state;
    if (source->is_bound)
        (void)unlink(((struct sockaddr_un *)(void *)&source->spec.address)->sun_path);
    if (source->fd >= 0) (void)close(source->fd);
    reef_syslog_queue_release(&source->queue);
    free(source->datagram);
    free(source->line);
    free(source);
}

// ---- messages -----------------------------------------------------------------------------------

static void take_message(syslog_source *source,
                         const uint8_t *bytes,
                         size_t count,
                         const char *from) {
    const size_t line =
        reef_syslog_line_write(source->line, bytes, count, from, reef_unix_ms(), &source->minute);
    if (line > 0) reef_syslog_queue_add(&source->queue, source->line, line);
}

static void address_text(const struct sockaddr_storage *from, char out[ADDRESS_TEXT_BYTES]) {
    static const char MAPPED[] = "::ffff:";
    const size_t mapped = strlen(MAPPED);
    out[0] = '\0';
    if (from->ss_family == AF_INET)
        (void)uv_ip4_name((const struct sockaddr_in *)(const void *)from, out, ADDRESS_TEXT_BYTES);
    else if (from->ss_family == AF_INET6)
        (void)uv_ip6_name((const struct sockaddr_in6 *)(const void *)from, out, ADDRESS_TEXT_BYTES);
    if (strncmp(out, MAPPED, mapped) == 0) memmove(out, out + mapped, strlen(out + mapped) + 1);
}

static void deny(syslog_source *source, const struct sockaddr_storage *from) {
    source->counts.denied++;
    address_text(from, source->denied_from);
}

// ---- datagrams ----------------------------------------------------------------------------------

static void receive(syslog_source *source, size_t message_count_max) {
    char text[ADDRESS_TEXT_BYTES];
    int fd = -1;
    (void)uv_fileno((const uv_handle_t *)&source->datagrams, &fd);
    for (size_t i = 0; i < message_count_max && !reef_syslog_queue_is_full(&source->queue); i++) {
        struct sockaddr_storage from = {0};
        socklen_t bytes = sizeof(from);
        const ssize_t count = recvfrom(fd, source->datagram, REEF_SYSLOG_MESSAGE_BYTES_MAX,
                                       MSG_TRUNC, (struct sockaddr *)&from, &bytes);
        if (count < 0 && errno != EAGAIN) continue; // a fault of one that was sent
        if (count < 0) break;
        if (!reef_syslog_may_send(&source->spec, &from)) {
            deny(source, &from);
            continue;
        }
        const bool is_cut = (size_t)count > REEF_SYSLOG_MESSAGE_BYTES_MAX;
        source->counts.cut += is_cut;
        address_text(&from, text);
        take_message(source, source->datagram,
                     is_cut ? REEF_SYSLOG_MESSAGE_BYTES_MAX : (size_t)count, text);
    }
}

static void on_readable(uv_poll_t *handle, int code, int events) {
    syslog_source *source = handle->data;
    (void)code, (void)events; // errors are those of a read
    receive(source, TURN_MESSAGES);
    if (!reef_syslog_queue_is_full(&source->queue)) return;
    source->is_full = true;
    (void)uv_poll_stop(handle);
}

// ---- connections --------------------------------------------------------------------------------

static void on_connection_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void close_connection(connection *c) {
    if (c->before != NULL)
        c->before->next = c->next;
    else
        c->source->connections = c->next;
    if (c->next != NULL) c->next->before = c->before;
    c->source->counts.connections--;
    c->source->counts.cut += c->frames.cut;
    uv_close((uv_handle_t *)&c->handle, on_connection_closed);
}

// The messages that its bytes have. What came before an end is taken also into a full queue.
static void take_messages(connection *c, bool ended) {
    size_t at = 0;
    while (ended || !reef_syslog_queue_is_full(&c->source->queue)) {
        const uint8_t *message = NULL;
        size_t bytes = 0;
        const size_t used = reef_syslog_frame_next(&c->frames, c->bytes + at, c->count - at, ended,
                                                   &message, &bytes);
        if (used == 0) break;
        if (bytes > 0) take_message(c->source, message, bytes, c->from);
        at += used;
    }
    memmove(c->bytes, c->bytes + at, c->count - at);
    c->count -= at;
}

static void on_bytes_wanted(uv_handle_t *handle, size_t hint, uv_buf_t *out) {
    connection *c = handle->data;
    (void)hint;
    *out = uv_buf_init((char *)c->bytes + c->count, (unsigned)(CONNECTION_BYTES - c->count));
}

static void pause_all(syslog_source *source) {
    source->is_full = true;
    for (connection *c = source->connections; c != NULL; c = c->next)
        (void)uv_read_stop((uv_stream_t *)&c->handle);
}

static void on_bytes(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    connection *c = stream->data;
    syslog_source *source = c->source;
    (void)buffer;
    if (count == 0) return;
    c->heard_ms = uv_now(source->input->loop);
    if (count > 0) c->count += (size_t)count;
    take_messages(c, count < 0);
    if (count < 0) close_connection(c);
    if (reef_syslog_queue_is_full(&source->queue)) pause_all(source);
}

// The one that was silent longest makes room, if it was silent for long.
static bool make_room(syslog_source *source) {
    connection *oldest = source->connections;
    if (source->counts.connections < CONNECTIONS_MAX) return true;
    for (connection *c = oldest; c != NULL; c = c->next)
        if (c->heard_ms < oldest->heard_ms) oldest = c;
    if (uv_now(source->input->loop) - oldest->heard_ms < SILENCE_MS || source->is_full)
        return false;
    take_messages(oldest, true);
    close_connection(oldest);
    return true;
}

static void add_connection(connection *c) {
    syslog_source *source = c->source;
    c->next = source->connections;
    if (c->next != NULL) c->next->before = c;
    source->connections = c;
    source->counts.connections++;
    c->heard_ms = uv_now(source->input->loop);
    (void)uv_tcp_keepalive(&c->handle, 1, ALIVE_S);
    if (!source->is_full) (void)uv_read_start((uv_stream_t *)&c->handle, on_bytes_wanted, on_bytes);
}

static void on_client(uv_stream_t *listener, int code) {
    syslog_source *source = listener->data;
    struct sockaddr_storage from = {0};
    int bytes = sizeof(from);
    connection *c = code == 0 ? malloc(sizeof(*c)) : NULL;
    if (c == NULL) return; // it waits until the next one comes
    memset(c, 0, offsetof(connection, bytes));
    c->source = source;
    c->handle.data = c;
    (void)uv_tcp_init(source->input->loop, &c->handle); // cannot fail
    const bool is_accepted = uv_accept(listener, (uv_stream_t *)&c->handle) == 0 &&
                             uv_tcp_getpeername(&c->handle, (struct sockaddr *)&from, &bytes) == 0;
    if (is_accepted && reef_syslog_may_send(&source->spec, &from) && make_room(source)) {
        address_text(&from, c->from);
        add_connection(c);
        return;
    }
    if (is_accepted) deny(source, &from);
    uv_close((uv_handle_t *)&c->handle, on_connection_closed);
}

// ---- on the loop --------------------------------------------------------------------------------

static void on_room(reef_input *input) {
    syslog_source *source = input->state;
    if (!source->is_full || input->stopped) return;
    source->is_full = false;
    if (source->spec.transport != REEF_SYSLOG_TCP)
        (void)uv_poll_start(&source->datagrams, UV_READABLE, on_readable);
    for (connection *c = source->connections; c != NULL && !source->is_full; c = c->next) {
        c->heard_ms = uv_now(input->loop);
        take_messages(c, false);
        if (reef_syslog_queue_is_full(&source->queue))
            pause_all(source);
        else
            (void)uv_read_start((uv_stream_t *)&c->handle, on_bytes_wanted, on_bytes);
    }
}

// What the system could not hold, of datagrams.
static void count_drops(syslog_source *source) {
    uint32_t figures[SK_MEMINFO_VARS] = {0};
    socklen_t bytes = sizeof(figures);
    int fd = -1;
    if (source->spec.transport != REEF_SYSLOG_UDP) return;
    if (uv_fileno((const uv_handle_t *)&source->datagrams, &fd) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_MEMINFO, figures, &bytes) != 0)
        return;
    source->counts.dropped += figures[SK_MEMINFO_DROPS] - source->system_drops;
    source->system_drops = figures[SK_MEMINFO_DROPS];
}

// One line of each kind a minute.
static void report(syslog_source *source) {
    const reef_syslog_counts *now = &source->counts;
    reef_syslog_counts *before = &source->reported;
    const uint64_t dropped = now->dropped + source->queue.dropped - before->dropped;
    if (dropped > 0 || now->cut > before->cut)
        reef_input_warn(source->input, "source_loss",
                        "'%.150s': %" PRIu64 " messages were dropped, because they came faster "
                        "than they were journalled; %" PRIu64 " were cut",
                        source->input->spec, dropped, now->cut - before->cut);
    if (now->denied > before->denied)
        reef_input_warn(source->input, "source_denied",
                        "'%.150s': %" PRIu64 " were refused, the last from %s: see ?from=",
                        source->input->spec, now->denied - before->denied, source->denied_from);
    *before = *now;
    before->dropped += source->queue.dropped;
}

static void close_silent(syslog_source *source) {
    const uint64_t now = uv_now(source->input->loop);
    for (connection *c = source->connections, *next = NULL; c != NULL && !source->is_full;
         c = next) {
        next = c->next;
        if ((c->count == 0 && c->frames.skip_bytes == 0) || now - c->heard_ms < SILENCE_MS)
            continue;
        c->frames.cut++;
        take_messages(c, true);
        close_connection(c);
    }
}

static void on_tick(uv_timer_t *timer) {
    syslog_source *source = timer->data;
    const uint64_t now = uv_now(source->input->loop);
    count_drops(source);
    close_silent(source);
    reef_syslog_counts all = source->counts;
    all.dropped += source->queue.dropped;
    const bool is_new = all.dropped > source->reported.dropped || all.cut > source->reported.cut ||
                        all.denied > source->reported.denied;
    if (!is_new || (source->reported_ms > 0 && now - source->reported_ms < REPORT_MS)) return;
    report(source);
    source->reported_ms = now;
}

static void fail(syslog_source *source, int code) {
    reef_error err;
    (void)reef_fail(&err, REEF_ERR_IO, "cannot listen on '%.160s': %s", source->input->spec,
                    uv_strerror(code));
    reef_input_failed(source->input, &err);
}

static int open_handles(syslog_source *source) {
    uv_loop_t *loop = source->input->loop;
    const bool is_tcp = source->spec.transport == REEF_SYSLOG_TCP;
    source->listener.data = source->datagrams.data = source->tick.data = source;
    int code = is_tcp ? uv_tcp_init(loop, &source->listener)
                      : uv_poll_init(loop, &source->datagrams, source->fd);
    if (code != 0) return code;
    source->is_open = true; // all handles are, from here on: timers cannot fail
    (void)uv_timer_init(loop, &source->tick);
    (void)uv_timer_init(loop, &source->retry);
    (void)uv_timer_start(&source->tick, on_tick, TICK_MS, TICK_MS);
    source->retry.data = &source->queue;
    source->queue.retry = &source->retry;
    source->queue.on_room = on_room;
    if (!is_tcp) return uv_poll_start(&source->datagrams, UV_READABLE, on_readable);
    code = uv_tcp_open(&source->listener, source->fd);
    if (code == 0) source->fd = -1; // the handle's
    return code == 0 ? uv_listen((uv_stream_t *)&source->listener, BACKLOG, on_client) : code;
}

static void on_read(reef_input *input, uint8_t *at, size_t room) {
    syslog_source *source = input->state;
    const int code = source->is_open ? 0 : open_handles(source);
    if (code == 0)
        reef_push_read(input, at, room);
    else
        fail(source, code);
}

static void on_stop(reef_input *input) {
    syslog_source *source = input->state;
    reef_push_stop(input);
    if (!source->is_open) return;
    source->is_open = false;
    const bool is_tcp = source->spec.transport == REEF_SYSLOG_TCP;
    if (!is_tcp) receive(source, STOP_MESSAGES);
    while (source->connections != NULL) {
        take_messages(source->connections, false);
        close_connection(source->connections);
    }
    reef_syslog_queue_end(&source->queue);
    count_drops(source);
    uv_close(is_tcp ? (uv_handle_t *)&source->listener : (uv_handle_t *)&source->datagrams, NULL);
    uv_close((uv_handle_t *)&source->tick, NULL);
    uv_close((uv_handle_t *)&source->retry, NULL);
}

// ---- figures ------------------------------------------------------------------------------------

bool reef_syslog_counts_read(const reef_input *input, reef_syslog_counts *out) {
    const syslog_source *source = input->state;
    if (input->kind != &reef_syslog_kind) return false;
    *out = source->counts;
    out->dropped += source->queue.dropped;
    for (const connection *c = source->connections; c != NULL; c = c->next)
        out->cut += c->frames.cut;
    return true;
}

static json_t *on_status(const reef_input *input) {
    reef_syslog_counts counts = {0};
    reef_push_counts pushed = {0};
    (void)reef_syslog_counts_read(input, &counts);
    (void)reef_push_counts_read(input, &pushed);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "records", (json_int_t)pushed.records,
                     "journal_bytes", (json_int_t)pushed.journal_bytes, "connections",
                     (json_int_t)counts.connections, "dropped", (json_int_t)counts.dropped,
                     "denied", (json_int_t)counts.denied, "cut", (json_int_t)counts.cut);
}

const reef_input_kind reef_syslog_kind = {.scheme = "syslog",
                                          .live = true,
                                          .again = true,
                                          .promised = true,
                                          .check_spec = on_check_spec,
                                          .open = on_open,
                                          .seek = reef_push_seek,
                                          .read = on_read,
                                          .stop = on_stop,
                                          .committed = reef_push_committed,
                                          .settled = reef_push_settled,
                                          .close = on_close,
                                          .status = on_status};
