// The control socket: a file of the pool's that only our own user and root can connect to.
#include "http_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
