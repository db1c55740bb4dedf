// Sources and their reader; see input.h.
//
//   resume --> file: uv_fs_read at the offset --> on_file_read --> fill --> resume
//      |                                               '--> 0 bytes --> on_file_stat --> next source
//      |-----> vectors: uv_queue_work, which makes records --> on_vectors_made --> as above
//      '-----> stream: uv_read_start --> on_stream_read --> fill, until the queue is full
//                                               '--> end --> close --> next source
//
// The free space of the queue is lent to the read itself, so bytes are never copied on the way.
#include "input.h"

#include "training.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_HASH_DIGITS 16

// "tcp:host:1" has a kind, "./odd:name" and "data/a:b" are paths.
static size_t kind_length(const char *spec) {
    size_t length = strcspn(spec, ":/");
    if (spec[length] != ':' || !length) return 0;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)spec[i]) && spec[i] != '+' && spec[i] != '-') return 0;
    return length;
}

// FNV-1a, only to tell long paths apart.
static uint64_t path_hash(const char *path) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = path; *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    return hash;
}

// A cursor's name is the path as given. One that is too long for a name, or that JSON could not hold,
// goes by a hash of it and as much of its end as fits.
static void name_source(char name[REEF_INPUT_NAME_BYTES_MAX + 1], const char *path) {
    size_t bytes = strlen(path);
    json_t *text = json_string(path);
    bool plain = text && bytes <= REEF_INPUT_NAME_BYTES_MAX;
    json_decref(text);
    if (plain) {
        memcpy(name, path, bytes + 1);
        return;
    }
    size_t room = REEF_INPUT_NAME_BYTES_MAX - NAME_HASH_DIGITS - 2;
    const char *tail = bytes > room ? path + (bytes - room) : path;
    snprintf(name, REEF_INPUT_NAME_BYTES_MAX + 1, "#%016" PRIx64 "-%s", path_hash(path), tail);
    for (char *at = name; *at; at++)
        if ((unsigned char)*at >= 0x80) *at = '?';
}

static reef_status open_standard_input(reef_input *source, reef_error *err) {
    struct stat state;
    source->name[0] = '-';
    source->fd = STDIN_FILENO;
    source->kind = uv_guess_handle(STDIN_FILENO);
    if (source->kind == UV_FILE || source->kind == UV_NAMED_PIPE || source->kind == UV_TTY ||
        source->kind == UV_TCP) {
        if (fstat(STDIN_FILENO, &state) == 0 && S_ISREG(state.st_mode)) {
            // What is read is appended to the stream, so the total is what the pool has plus the rest.
            off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);
            source->bytes = at >= 0 && at < state.st_size ? (uint64_t)(state.st_size - at) : 0;
        }
        return REEF_OK;
    }
    if (fstat(STDIN_FILENO, &state) == 0 && S_ISDIR(state.st_mode))
        return reef_fail(err, REEF_NOT_FOUND, "standard input is a directory");
    return reef_fail(err, REEF_NOT_FOUND, "standard input is nothing that can be read");
}

static reef_status open_file(reef_input *source, const char *path, reef_error *err) {
    struct stat state;
    // Non-blocking, or a pipe without a writer would hold us here; for files it means nothing.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        const char *check = errno == EACCES ? "its permissions" : "the path";
        return reef_fail(err, REEF_NOT_FOUND, "cannot read '%s': %s; check %s", path,
                         strerror(errno), check);
    }
    source->fd = fd; // closed by reef_input_close from here on
    if (fstat(fd, &state) != 0)
        return reef_fail(err, REEF_IO, "cannot stat '%s': %s", path, strerror(errno));
    if (S_ISDIR(state.st_mode))
        return reef_fail(err, REEF_NOT_FOUND, "cannot read '%s': it is a directory, not a file",
                         path);
    if (!S_ISREG(state.st_mode))
        return reef_fail(
            err, REEF_NOT_FOUND,
            "'%s' is not a regular file and could not be read again from a cursor: give it on "
            "standard input with --source -",
            path);
    source->path = path;
    source->kind = UV_FILE;
    source->bytes = (uint64_t)state.st_size;
    name_source(source->name, path);
    return REEF_OK;
}

static reef_status open_vectors(reef_input *source, const char *spec, reef_error *err) {
    reef_status status = reef_vectors_open(&source->vectors, spec, 0, err);
    if (status != REEF_OK) return status;
    reef_vectors_rest(source->vectors); // until it is its turn
    source->path = spec;
    source->kind = UV_FILE;
    source->bytes = reef_vectors_stream_bytes(source->vectors);
    name_source(source->name, spec);
    return REEF_OK;
}

reef_status reef_input_open(reef_input *source, const char *spec, reef_error *err) {
    *source = (reef_input){.fd = -1, .bytes = REEF_BYTES_UNKNOWN};
    if (!strcmp(spec, "-")) return open_standard_input(source, err);
    if (reef_vectors_is_spec(spec)) return open_vectors(source, spec, err);
    size_t kind = kind_length(spec);
    bool file = kind == 4 && !strncmp(spec, "file", 4);
    if (kind && !file)
        return reef_fail(
            err, REEF_INVALID,
            "unknown kind of source '%.*s' in '%.80s': known are file:PATH and - (standard input), "
            "and for vectors idx:, npy:, csv: and jsonl:",
            (int)kind, spec, spec);
    const char *path = file ? spec + 5 : spec;
    if (!*path) return reef_fail(err, REEF_INVALID, "the source '%s' names no file", spec);
    return open_file(source, path, err);
}

const char *reef_input_label(const reef_input *source) {
    return source->path ? source->path : "standard input";
}

reef_status reef_input_check(const reef_input *source, const reef_config *config, reef_error *err) {
    const char *label = reef_input_label(source);
    bool wanted = reef_config_is_vector(config);
    if (wanted && source->vectors)
        return reef_vectors_check_width(source->vectors, config->inputs, err);
    if (!wanted && !source->vectors) return REEF_OK;
    if (wanted)
        return reef_fail(err, REEF_INVALID,
                         "'%.100s' is text, but the pool has a vector model: give "
                         "idx:IMAGES,LABELS, npy:X.npy,Y.npy, csv:FILE or jsonl:FILE",
                         label);
    return reef_fail(err, REEF_INVALID,
                     "'%.80s' holds vectors, but the pool has a language model: give file:PATH, or "
                     "make a pool with reef init --model vector --inputs %" PRIu32,
                     label, reef_vectors_width(source->vectors));
}

void reef_input_close(reef_input *source) {
    if (source->path && source->fd >= 0) close(source->fd);
    reef_vectors_close(source->vectors);
    source->vectors = NULL;
    source->fd = -1;
}

reef_status reef_input_seek(reef_input *source, uint64_t cursor, reef_error *err) {
    source->offset = cursor;
    if (!source->path && source->bytes != REEF_BYTES_UNKNOWN) source->bytes += cursor;
    if (source->path && source->bytes < cursor)
        return reef_fail(err, REEF_CORRUPT,
                         "'%s' has %" PRIu64 " bytes, but the pool has already read %" PRIu64
                         " of it: it shrank or was replaced (give new content a new name)",
                         source->path, source->bytes, cursor);
    return REEF_OK;
}

// ---- reading -------------------------------------------------------------------------------------

static void reader_end(reef_reader *reader, const reef_error *err) {
    reef_reader_stop(reader);
    reader->on_error(reader->context, err);
}

static void reader_fail(reef_reader *reader, reef_status status, const char *why) {
    reef_error err;
    (void)reef_fail(&err, status, "reading '%s' at byte %" PRIu64 ": %s",
                    reef_input_label(&reader->sources[reader->current]),
                    reader->sources[reader->current].offset, why);
    reader_end(reader, &err);
}

static void next_source(reef_reader *reader) {
    reef_training_source_end(reader->training, reader->current);
    reader->current++;
    reef_reader_resume(reader);
}

static void took(reef_reader *reader, size_t count) {
    reef_input *source = &reader->sources[reader->current];
    source->offset += count;
    if (source->bytes != REEF_BYTES_UNKNOWN && source->bytes < source->offset)
        source->bytes = source->offset;
    reef_training_fill(reader->training, count);
}

static void on_file_stat(uv_fs_t *request) {
    reef_reader *reader = request->data;
    ssize_t result = request->result;
    uint64_t bytes = request->statbuf.st_size;
    uv_fs_req_cleanup(request);
    reader->busy = false;
    if (reader->stopped) return;
    if (result == 0 && bytes < reader->sources[reader->current].offset)
        reader_fail(reader, REEF_CORRUPT, "the file shrank while it was read");
    else
        next_source(reader);
}

// A file that ended may have been cut below what was read, which must not pass for its end.
static void end_file(reef_reader *reader) {
    reef_input *source = &reader->sources[reader->current];
    if (!source->path) {
        next_source(reader);
        return;
    }
    int code = uv_fs_fstat(reader->loop, &reader->request, source->fd, on_file_stat);
    reader->busy = code == 0;
    if (code) reader_fail(reader, REEF_IO, uv_strerror(code));
}

static void on_file_read(uv_fs_t *request) {
    reef_reader *reader = request->data;
    ssize_t count = request->result;
    uv_fs_req_cleanup(request);
    reader->busy = false;
    if (reader->stopped) return;
    if (count < 0) {
        reader_fail(reader, REEF_IO, uv_strerror((int)count));
    } else if (count == 0) {
        end_file(reader);
    } else {
        took(reader, (size_t)count);
        reef_reader_resume(reader);
    }
}

static void read_file(reef_reader *reader) {
    reef_input *source = &reader->sources[reader->current];
    uint8_t *at = NULL;
    size_t room = 0;
    if (!reef_training_space(reader->training, &at, &room)) return; // resumed when there is room
    uv_buf_t buffer = uv_buf_init((char *)at, (unsigned)room);
    int64_t offset = source->path ? (int64_t)source->offset : -1;
    reader->request.data = reader;
    int code =
        uv_fs_read(reader->loop, &reader->request, source->fd, &buffer, 1, offset, on_file_read);
    reader->busy = code == 0;
    if (code) reader_fail(reader, REEF_IO, uv_strerror(code));
}

// On a thread of libuv's: unpacking and parsing may take longer than the loop should wait.
static void make_vectors(uv_work_t *request) {
    reef_reader *reader = request->data;
    reef_input *source = &reader->sources[reader->current];
    reader->vectors.error.status = reef_vectors_read_bytes(
        source->vectors, source->offset, reader->vectors.at, reader->vectors.room,
        &reader->vectors.count, &reader->vectors.error);
}

static void on_vectors_made(uv_work_t *request, int code) {
    reef_reader *reader = request->data;
    reader->busy = false;
    if (reader->stopped) return;
    if (code) {
        reader_fail(reader, REEF_IO, uv_strerror(code));
    } else if (reader->vectors.error.status != REEF_OK) {
        reader_end(reader, &reader->vectors.error);
    } else if (reader->vectors.count == 0) {
        reef_vectors_rest(reader->sources[reader->current].vectors);
        next_source(reader);
    } else {
        took(reader, reader->vectors.count);
        reef_reader_resume(reader);
    }
}

static void read_vectors(reef_reader *reader) {
    if (!reef_training_space(reader->training, &reader->vectors.at, &reader->vectors.room))
        return; // resumed when there is room
    reader->vectors.request.data = reader;
    int code = uv_queue_work(reader->loop, &reader->vectors.request, make_vectors, on_vectors_made);
    reader->busy = code == 0;
    if (code) reader_fail(reader, REEF_IO, uv_strerror(code));
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    (void)suggested;
    reef_reader *reader = handle->data;
    uint8_t *at = NULL;
    size_t room = 0;
    if (!reef_training_space(reader->training, &at, &room)) room = 0; // libuv reports UV_ENOBUFS
    *buffer = uv_buf_init((char *)at, (unsigned)room);
}

static void pause_stream(reef_reader *reader) {
    (void)uv_read_stop(&reader->input.stream); // cannot fail on a stream that was started
    reader->stream_reading = false;
}

static void on_stream_closed(uv_handle_t *handle) {
    reef_reader *reader = handle->data;
    // The flag belongs to the open file, which a shell may share with us.
    if (reader->stream_flags >= 0) (void)fcntl(STDIN_FILENO, F_SETFL, reader->stream_flags);
    reader->stream_open = false;
    if (!reader->stopped) next_source(reader);
}

static void on_stream_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    (void)buffer;
    reef_reader *reader = stream->data;
    if (count > 0) {
        took(reader, (size_t)count);
        uint8_t *at = NULL;
        size_t room = 0;
        if (!reef_training_space(reader->training, &at, &room)) pause_stream(reader);
    } else if (count == UV_EOF) {
        pause_stream(reader);
        uv_close(&reader->input.handle, on_stream_closed);
    } else if (count == UV_ENOBUFS) {
        pause_stream(reader);
    } else if (count < 0) {
        reader_fail(reader, REEF_IO, uv_strerror((int)count));
    }
}

static int open_stream(reef_reader *reader, uv_handle_type kind) {
    int code = 0;
    reader->stream_flags = fcntl(STDIN_FILENO, F_GETFL);
    if (kind == UV_TTY) {
        code = uv_tty_init(reader->loop, &reader->input.tty, STDIN_FILENO, 1);
    } else if (kind == UV_TCP) {
        code = uv_tcp_init(reader->loop, &reader->input.tcp);
        if (!code) code = uv_tcp_open(&reader->input.tcp, STDIN_FILENO);
    } else {
        code = uv_pipe_init(reader->loop, &reader->input.pipe, 0);
        if (!code) code = uv_pipe_open(&reader->input.pipe, STDIN_FILENO);
    }
    reader->stream_open =
        reader->input.handle.loop != NULL && reader->input.handle.type != UV_UNKNOWN_HANDLE;
    reader->input.handle.data = reader;
    return code;
}

static void read_stream(reef_reader *reader) {
    if (reader->stream_reading) return;
    int code = reader->stream_open ? 0 : open_stream(reader, reader->sources[reader->current].kind);
    if (!code) code = uv_read_start(&reader->input.stream, on_alloc, on_stream_read);
    reader->stream_reading = code == 0;
    if (code) reader_fail(reader, REEF_IO, uv_strerror(code));
}

void reef_reader_resume(reef_reader *reader) {
    if (reader->stopped || reader->busy || reader->current == reader->count) return;
    if (reader->sources[reader->current].vectors)
        read_vectors(reader);
    else if (reader->sources[reader->current].kind == UV_FILE)
        read_file(reader);
    else
        read_stream(reader);
}

void reef_reader_stop(reef_reader *reader) {
    if (reader->stopped) return;
    reader->stopped = true;
    if (reader->stream_open && !uv_is_closing(&reader->input.handle))
        uv_close(&reader->input.handle, on_stream_closed);
}
