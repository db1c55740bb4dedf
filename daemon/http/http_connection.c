// What every connection is served by: the loop lets libmicrohttpd work, and a response gets its
// headers.
#include "http_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

size_t *reef_http_stream_count(reef_http *http) {
    return &http->stream_count;
}

uint64_t reef_http_now_ms(const reef_http *http) {
    return uv_now(http->options.loop);
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

// ---- the control socket -------------------------------------------------------------------------
//
// A file of the pool's that only our own user and root can connect to.

#define BACKLOG 64

static bool somebody_listens(const struct sockaddr_un *address) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return true; // without knowing, nothing is removed
    bool refused = connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
                   errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

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

reef_status reef_http_listen_socket(int *fd, const struct sockaddr_un *address, reef_error *err) {
    reef_status status = remove_stale(address, err);
    if (status != REEF_OK) return status;
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    // Changed before other threads make files, so the socket never has wider permissions, not even
    // for an instant.
    mode_t before = umask(0177);
    bool bound = *fd >= 0 && bind(*fd, (const struct sockaddr *)address, sizeof(*address)) == 0;
    int code = errno;
    (void)umask(before);
    bool listens = bound && listen(*fd, BACKLOG) == 0;
    if (listens) return REEF_OK;
    if (bound) code = errno;
    if (bound) (void)unlink(address->sun_path);
    if (*fd >= 0) close(*fd);
    return reef_fail(err, REEF_ERR_IO, "cannot listen on the control socket '%s': %s",
                     address->sun_path, strerror(code));
}
