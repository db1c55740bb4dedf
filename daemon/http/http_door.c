// The two doors, and for whom they open: the address to listen on, the file with the token, and the
// control socket; see http_server.h.
#include "http_internal.h"

#include "reef_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the token ----------------------------------------------------------------------------------

static reef_status token_failure(const char *path, const char *why, reef_error *err) {
    return reef_fail(
        err, REEF_ERR_INVALID,
        "the token file '%.160s' %s; make one with: (umask 077; openssl rand -hex 32 > FILE)", path,
        why);
}

static reef_status check_token_file(int fd, const char *path, reef_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return reef_fail(err, REEF_ERR_IO, "cannot stat the token file '%.160s': %s", path,
                         strerror(errno));
    if (!S_ISREG(info.st_mode)) return token_failure(path, "is not a regular file", err);
    if (info.st_mode & 077)
        return token_failure(path, "may be read or written by others (chmod 600)", err);
    return REEF_OK;
}

static reef_status take_token(reef_http_token *token, int fd, const char *path, reef_error *err) {
    // One byte more than the longest token, so that a longer one is noticed.
    char text[REEF_HTTP_TOKEN_BYTES_MAX + 2]; // with the end of its line, and one more
    ssize_t count = read(fd, text, sizeof(text));
    if (count < 0)
        return reef_fail(err, REEF_ERR_IO, "cannot read the token file '%.160s': %s", path,
                         strerror(errno));
    size_t bytes = (size_t)count;
    // Editors end a file with a newline; it is not part of the token.
    if (bytes && text[bytes - 1] == '\n') bytes--;
    // Shorter tokens can be guessed; longer ones are most likely another file.
    if (bytes < REEF_HTTP_TOKEN_BYTES_MIN || bytes > REEF_HTTP_TOKEN_BYTES_MAX)
        return token_failure(path, "holds no token of 16 to 256 bytes", err);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return token_failure(path, "holds more than one line of printable characters", err);
    memcpy(token->bytes, text, bytes);
    token->count = bytes;
    return REEF_OK;
}

reef_status reef_http_token_read(reef_http_token *token, const char *path, reef_error *err) {
    *token = (reef_http_token){0};
    if (path == NULL) return REEF_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return reef_fail(err, errno == ENOENT ? REEF_ERR_NOT_FOUND : REEF_ERR_IO,
                         "cannot open the token file '%.160s': %s", path, strerror(errno));
    reef_status status = check_token_file(fd, path, err);
    if (status == REEF_OK) status = take_token(token, fd, path, err);
    close(fd);
    return status;
}

// ---- the address --------------------------------------------------------------------------------

bool reef_http_is_loopback(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

reef_status reef_http_access_check(const char *listen,
                                   const char *token_file,
                                   struct sockaddr_storage *address,
                                   reef_http_token *token,
                                   reef_error *err) {
    reef_status status = reef_address_parse(address, listen, err);
    if (status == REEF_OK) status = reef_http_token_read(token, token_file, err);
    // Without a token only loopback is allowed: the interface can stop training and read data.
    if (status == REEF_OK && !reef_http_is_loopback(address) && !token->count)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "--http %.80s can be reached from other machines: "
                           "give --http-token FILE as well",
                           listen);
    return status;
}

reef_status reef_http_check(const char *listen, const char *token_file, reef_error *err) {
    struct sockaddr_storage address = {0};
    reef_http_token token;
    return reef_http_access_check(listen, token_file, &address, &token, err);
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
                     "cannot listen on the control socket '%s': directory '%s' does not exist",
                     path, directory);
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
