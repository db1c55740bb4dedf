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

// ---- standard input -----------------------------------------------------------------------------
//
// A pipe, a socket, a terminal, or a file that is read from where it stands. It cannot be read
// again, so what comes in continues the stream.

typedef struct input_stream {
    uv_handle_type kind; // UV_FILE, or which sort of stream
    int flags;           // of the descriptor, before libuv made it non-blocking; -1: it did not
    bool open;
    bool ending; // closing because it ended, not because of a stop
    uint8_t *at; // lent space of the pending read
    size_t room;
    uv_fs_t request; // of a file
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
        uv_tty_t tty;
    } handle;
} input_stream;

static reef_status stream_open(reef_input *input, const char *rest, reef_error *err) {
    (void)rest;
    struct stat state;
    uv_handle_type kind = uv_guess_handle(STDIN_FILENO);
    bool known = fstat(STDIN_FILENO, &state) == 0;
    // A directory or a device of unknown kind would fail at the first read, long after the start.
    if (kind != UV_FILE && kind != UV_NAMED_PIPE && kind != UV_TTY && kind != UV_TCP)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         known && S_ISDIR(state.st_mode)
                             ? "standard input is a directory"
                             : "standard input is nothing that can be read");
    input_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for standard input");
    *stream = (input_stream){.kind = kind, .flags = -1};
    input->state = stream;
    // Only a redirected file has a size.
    if (!known || !S_ISREG(state.st_mode)) return REEF_OK;
    // What is read is appended to the stream, so the total is what the pool has plus the rest.
    off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);
    input->bytes = at >= 0 && at < state.st_size ? (uint64_t)(state.st_size - at) : 0;
    return REEF_OK;
}

static reef_status stream_seek(reef_input *input,
                               const reef_input_offset *offset,
                               reef_error *err) {
    (void)err;
    if (input->bytes != REEF_BYTES_UNKNOWN) input->bytes += offset->cursor;
    return REEF_OK;
}

static void fail_stream(reef_input *input, const char *why) {
    reef_error err;
    (void)reef_fail(&err, REEF_ERR_IO, "reading standard input: %s", why);
    reef_input_failed(input, &err);
}

// ---- a file -------------------------------------------------------------------------------------

static void on_file_read(uv_fs_t *request) {
    reef_input *input = request->data;
    ssize_t count = request->result;
    uv_fs_req_cleanup(request);
    if (count < 0)
        fail_stream(input, uv_strerror((int)count));
    else if (count == 0)
        reef_input_ended(input);
    else
        reef_input_took(input, (size_t)count, NULL);
}

static void read_file(reef_input *input, input_stream *stream) {
    uv_buf_t buffer = uv_buf_init((char *)stream->at, (unsigned)stream->room);
    stream->request.data = input;
    int code =
        uv_fs_read(input->loop, &stream->request, STDIN_FILENO, &buffer, 1, -1, on_file_read);
    if (code) fail_stream(input, uv_strerror(code));
}

// ---- a stream -----------------------------------------------------------------------------------

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    (void)suggested;
    const input_stream *stream = ((reef_input *)handle->data)->state;
    *buffer = uv_buf_init((char *)stream->at, (unsigned)stream->room);
}

static void on_closed(uv_handle_t *handle) {
    reef_input *input = handle->data;
    input_stream *stream = input->state;
    // The flag belongs to the open file, which a shell may share with us.
    if (stream->flags >= 0) (void)fcntl(STDIN_FILENO, F_SETFL, stream->flags);
    stream->open = false;
    if (stream->ending) reef_input_ended(input);
}

// Exactly one reply: reading stops here and continues on the next request.
static void on_read(uv_stream_t *handle, ssize_t count, const uv_buf_t *buffer) {
    (void)buffer;
    reef_input *input = handle->data;
    input_stream *stream = input->state;
    if (count == 0) return; // nothing yet
    // libuv would continue to read; the queue's room decides when the next piece is wanted.
    (void)uv_read_stop(handle);
    if (count > 0) {
        reef_input_took(input, (size_t)count, NULL);
    } else if (count == UV_EOF) {
        // The handle is closed first: the end is reported from on_closed, when libuv uses it no
        // more.
        stream->ending = true;
        uv_close(&stream->handle.handle, on_closed);
    } else {
        fail_stream(input, uv_strerror((int)count));
    }
}

static int open_handle(reef_input *input, input_stream *stream) {
    int code = 0;
    // libuv makes the descriptor non-blocking. The flags are kept and restored, because a shell may
    // share it.
    stream->flags = fcntl(STDIN_FILENO, F_GETFL);
    if (stream->kind == UV_TTY) {
        code = uv_tty_init(input->loop, &stream->handle.tty, STDIN_FILENO, 1);
    } else if (stream->kind == UV_TCP) {
        code = uv_tcp_init(input->loop, &stream->handle.tcp);
        if (!code) code = uv_tcp_open(&stream->handle.tcp, STDIN_FILENO);
    } else {
        code = uv_pipe_init(input->loop, &stream->handle.pipe, 0);
        if (!code) code = uv_pipe_open(&stream->handle.pipe, STDIN_FILENO);
    }
    // After a failed open the handle may or may not have been registered with the loop; only then
    // must it be closed through it.
    stream->open =
        stream->handle.handle.loop != NULL && stream->handle.handle.type != UV_UNKNOWN_HANDLE;
    stream->handle.handle.data = input;
    return code;
}

static void stream_read(reef_input *input, uint8_t *at, size_t room) {
    input_stream *stream = input->state;
    stream->at = at;
    stream->room = room;
    if (stream->kind == UV_FILE) {
        read_file(input, stream);
        return;
    }
    int code = stream->open ? 0 : open_handle(input, stream);
    if (!code) code = uv_read_start(&stream->handle.stream, on_alloc, on_read);
    if (code) fail_stream(input, uv_strerror(code));
}

static void stream_stop(reef_input *input) {
    input_stream *stream = input->state;
    if (stream->open && !uv_is_closing(&stream->handle.handle))
        uv_close(&stream->handle.handle, on_closed);
}

static void stream_close(reef_input *input) {
    free(input->state);
}

const reef_input_kind reef_input_stream = {.scheme = "-",
                                           .open = stream_open,
                                           .seek = stream_seek,
                                           .read = stream_read,
                                           .stop = stream_stop,
                                           .close = stream_close};
