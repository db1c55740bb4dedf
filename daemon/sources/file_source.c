// Sources that are read from files, to their end: text, and vectors as the bytes of their records.
#include "reef_source.h"
#include "reef_vectors.h"
#include "vector_spec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- text ---------------------------------------------------------------------------------------

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

static reef_status file_check(reef_input *input, const reef_config *config, reef_error *err) {
    return reef_input_check_text(input, config, err);
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
                                         .check = file_check,
                                         .seek = file_seek,
                                         .read_now = file_read_now,
                                         .close = file_close};

// ---- vectors ------------------------------------------------------------------------------------

bool reef_input_vectors_is_spec(const char *spec) {
    return reef_vectors_is_spec(spec);
}

static reef_status vectors_check_spec(const reef_input *input, const char *spec, reef_error *err) {
    (void)input;
    reef_vector_spec parts = {0};
    reef_status status = reef_vector_spec_parse(&parts, spec, err);
    reef_vector_spec_release(&parts);
    return status;
}

static reef_status vectors_open(reef_input *input, const char *spec, reef_error *err) {
    reef_vectors *vectors = NULL;
    reef_status status = reef_vectors_open(&vectors, spec, 0, 0, err);
    if (status != REEF_OK) return status;
    reef_vectors_rest(vectors); // until the sources before it have ended
    input->state = vectors;
    input->bytes = reef_vectors_stream_bytes(vectors);
    return REEF_OK;
}

static reef_status vectors_check(reef_input *input, const reef_config *config, reef_error *err) {
    const reef_vectors *vectors = input->state;
    if (reef_config_is_vector(config))
        return reef_vectors_check_width(vectors, config->inputs, config->image_columns, err);
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.80s' holds vectors, but the pool has a language model: give file:PATH, or "
                     "make a pool with reef init --model vector --inputs %" PRIu32,
                     input->label, reef_vectors_width(vectors));
}

static reef_status vectors_read_now(
    reef_input *input, uint64_t offset, uint8_t *at, size_t room, size_t *count, reef_error *err) {
    reef_status status = reef_vectors_read_bytes(input->state, offset, at, room, count, err);
    // What it unpacked is not needed any more.
    if (status == REEF_OK && offset + *count >= input->bytes) reef_vectors_rest(input->state);
    return status;
}

static void vectors_close(reef_input *input) {
    reef_vectors_close(input->state);
}

const reef_input_kind reef_input_vectors = {.scheme = "vectors",
                                            .again = true,
                                            .check_spec = vectors_check_spec,
                                            .open = vectors_open,
                                            .check = vectors_check,
                                            .seek = file_seek,
                                            .read_now = vectors_read_now,
                                            .close = vectors_close};
