// Archives and texts as files. A name has the whole file, or what it had before.
#include "reef_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (1u << 20) // written, or read, between two looks at `stopped`

static reef_status failed(reef_error *err, int code, const char *doing, const char *path) {
    reef_status status = code == ENOSPC || code == EDQUOT    ? REEF_ERR_FULL
                         : code == ENOENT || code == ENOTDIR ? REEF_ERR_NOT_FOUND
                         : code == EACCES || code == EISDIR  ? REEF_ERR_NOT_FOUND
                                                             : REEF_ERR_IO;
    return reef_fail(err, status, "cannot %s %.160s: %s", doing, path, strerror(code));
}

static reef_status no_memory(reef_error *err, const char *path) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the file %.160s", path);
}

// ---- writing ------------------------------------------------------------------------------------

reef_status reef_archive_file_check(const char *path, bool replace, reef_error *err) {
    struct stat info;
    reef_status status = reef_store_check_output(path, err);
    if (status != REEF_OK || stat(path, &info) != 0) return status; // or creating says why not
    if (!S_ISREG(info.st_mode))
        return reef_fail(err, REEF_ERR_INVALID, "%.160s exists and is not a regular file", path);
    return replace ? REEF_OK
                   : reef_fail(err, REEF_ERR_INVALID,
                               "%.160s exists; it is replaced only if that is asked for (--force)",
                               path);
}

static reef_status write_all(
    int fd, const uint8_t *bytes, size_t count, bool (*stopped)(void), int *code) {
    for (size_t at = 0; at < count;) {
        if (stopped != NULL && stopped()) return REEF_ERR_BUSY;
        size_t piece = count - at < PIECE_BYTES ? count - at : PIECE_BYTES;
        ssize_t written = write(fd, bytes + at, piece);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            *code = errno;
            return REEF_ERR_IO;
        }
        at += (size_t)written;
    }
    // Data on the disk before the name: a crash leaves the old file or the new one, never a part.
    if (fsync(fd) == 0) return REEF_OK;
    *code = errno;
    return REEF_ERR_IO;
}

static reef_status sync_parent(const char *path, reef_error *err) {
    char *copy = strdup(path); // dirname may cut it
    if (copy == NULL) return no_memory(err, path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Some file systems refuse to sync a directory (EINVAL): then there is nothing to be done.
    int code = fd < 0 || (fsync(fd) != 0 && errno != EINVAL) ? errno : 0;
    if (fd >= 0) close(fd);
    free(copy);
    return code == 0 ? REEF_OK : failed(err, code, "write", path);
}

static reef_status write_part(const char *path,
                              const char *part,
                              const uint8_t *bytes,
                              size_t count,
                              bool (*stopped)(void),
                              reef_error *err) {
    int code = 0, fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.160s exists: another command is writing it, or one was killed while it "
                         "did; remove it in the second case",
                         part);
    if (fd < 0) return failed(err, errno, "create", part);
    // The file gets its name only when all of it is on the disk (write_all syncs), and the name is
    // safe when its folder is synced. Whatever fails before leaves nothing.
    reef_status status = write_all(fd, bytes, count, stopped, &code);
    if (close(fd) != 0 && status == REEF_OK) {
        code = errno;
        status = REEF_ERR_IO;
    }
    if (status == REEF_OK && rename(part, path) != 0) {
        code = errno;
        status = REEF_ERR_IO;
    }
    if (status == REEF_OK) return sync_parent(path, err);
    (void)unlink(part);
    return status == REEF_ERR_BUSY ? reef_fail(err, status, "stopped; nothing of the file is left")
                                   : failed(err, code, "write", part);
}

reef_status reef_archive_file_write(const char *path,
                                    bool replace,
                                    const uint8_t *bytes,
                                    size_t count,
                                    bool (*stopped)(void),
                                    reef_error *err) {
    reef_status status = reef_archive_file_check(path, replace, err);
    if (status != REEF_OK) return status;
    size_t room = strlen(path) + sizeof(".part");
    char *part = malloc(room);
    if (part == NULL) return no_memory(err, path);
    snprintf(part, room, "%s.part", path);
    status = write_part(path, part, bytes, count, stopped, err);
    free(part);
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

// The file may grow or shrink meanwhile: what was there first is read, or it is an error.
static reef_status read_all(
    int fd, const char *path, uint8_t *bytes, size_t count, reef_error *err) {
    for (size_t at = 0; at < count;) {
        size_t piece = count - at < PIECE_BYTES ? count - at : PIECE_BYTES;
        ssize_t got = read(fd, bytes + at, piece);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed(err, errno, "read", path);
        if (got == 0)
            return reef_fail(err, REEF_ERR_IO, "%.160s became shorter while it was read", path);
        at += (size_t)got;
    }
    return REEF_OK;
}

reef_status reef_archive_file_read(const char *path,
                                   uint8_t **bytes,
                                   size_t *count,
                                   reef_error *err) {
    struct stat info;
    reef_status status = REEF_OK;
    *bytes = NULL;
    *count = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not be waited for
    if (fd < 0) return failed(err, errno, "open", path);
    if (fstat(fd, &info) != 0)
        status = failed(err, errno, "read", path);
    else if (!S_ISREG(info.st_mode))
        status = reef_fail(err, REEF_ERR_INVALID, "%.160s is not a regular file", path);
    else if ((uint64_t)info.st_size > REEF_ARCHIVE_FILE_BYTES_MAX)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.160s has %" PRIu64 " bytes: an archive has room for %" PRIu64, path,
                           (uint64_t)info.st_size, REEF_ARCHIVE_TEXT_BYTES_MAX);
    // One more, so that no file is empty.
    if (status == REEF_OK && (*bytes = malloc((size_t)info.st_size + 1)) == NULL)
        status = no_memory(err, path);
    if (status == REEF_OK) status = read_all(fd, path, *bytes, (size_t)info.st_size, err);
    close(fd);
    if (status == REEF_OK) {
        *count = (size_t)info.st_size;
        return REEF_OK;
    }
    free(*bytes);
    *bytes = NULL;
    return status;
}
