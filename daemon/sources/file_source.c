// Sources that are read from files, to their end.
#include "reef_source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct disk_file {
    int fd;
} disk_file;

static reef_status check_is_file(const char *path, const struct stat *state, reef_error *err) {
    if (S_ISDIR(state->st_mode))
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read '%s': it is a directory, not a file",
                         path);
    if (S_ISREG(state->st_mode)) return REEF_OK;
    return reef_fail(
        err, REEF_ERR_NOT_FOUND,
        "'%s' is not a regular file and could not be read again from a cursor: give it on "
        "standard input with --source -",
        path);
}

static reef_status file_open(reef_input *input, const char *path, reef_error *err) {
    struct stat state;
    // Non-blocking, or a pipe without a writer would hold us here; for files it means nothing.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        // The most frequent reason deserves its own advice.
        const char *check = errno == EACCES ? "its permissions" : "the path";
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read '%s': %s; check %s", path,
                         strerror(errno), check);
    }
    disk_file *file = malloc(sizeof(*file));
    reef_status status = REEF_OK;
    if (file == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    else if (fstat(fd, &state) != 0)
        status = reef_fail(err, REEF_ERR_IO, "cannot stat '%s': %s", path, strerror(errno));
    // A directory can be opened and stat'ed; only its kind shows that it cannot be a source.
    else
        status = check_is_file(path, &state, err);
    if (status != REEF_OK) {
        free(file);
        close(fd);
        return status;
    }
    // The size now is the source's end; a file that grows later is a case for follow:.
    file->fd = fd;
    input->state = file;
    input->bytes = (uint64_t)state.st_size;
    return REEF_OK;
}

static reef_status file_seek(reef_input *input, const reef_input_offset *offset, reef_error *err) {
    if (input->bytes >= offset->cursor) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "'%s' has %" PRIu64 " bytes, but the pool has already read %" PRIu64
                     " of it: it shrank or was replaced (give new content a new name)",
                     input->label, input->bytes, offset->cursor);
}

static reef_status fail_read(const reef_input *input,
                             uint64_t offset,
                             reef_status status,
                             const char *why,
                             reef_error *err) {
    return reef_fail(err, status, "reading '%.160s' at byte %" PRIu64 ": %s", input->label, offset,
                     why);
}

// A file that ended may have been cut below what was read, which must not pass for its end.
static reef_status file_read_now(
    reef_input *input, uint64_t offset, uint8_t *at, size_t room, size_t *count, reef_error *err) {
    const disk_file *file = input->state;
    struct stat state;
    ssize_t got;
    // pread: the offset is the caller's, so a retry reads the same bytes.
    do got = pread(file->fd, at, room, (off_t)offset);
    while (got < 0 && errno == EINTR);
    if (got < 0) return fail_read(input, offset, REEF_ERR_IO, strerror(errno), err);
    *count = (size_t)got;
    if (got > 0) return REEF_OK;
    // Nothing was read. Either this is the end, or the file has been cut below what was trained.
    if (fstat(file->fd, &state) != 0)
        return fail_read(input, offset, REEF_ERR_IO, strerror(errno), err);
    if ((uint64_t)state.st_size >= offset) return REEF_OK;
    return fail_read(input, offset, REEF_ERR_CORRUPT, "the file shrank while it was read", err);
}

static void file_close(reef_input *input) {
    disk_file *file = input->state;
    close(file->fd);
    free(file);
}

const reef_input_kind reef_input_file = {.scheme = "file",
                                         .again = true,
                                         .open = file_open,
                                         .seek = file_seek,
                                         .read_now = file_read_now,
                                         .close = file_close};
