// See score_parts.h.
//
// A file is asked for more a few times a second. At its end its name is looked up: when another
// file has taken it, what the old one got meanwhile is read first. A file that is shorter than what
// was read of it was truncated (copytruncate): reading restarts. Files that come and go between two
// polls are not seen, and a file that was truncated and has grown beyond its old length by the next
// poll is taken for the old one, as with tail -F.
#include "score_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 200 // from one poll to the next

static reef_status fail_read(const reef_line_reader *reader, const char *doing, reef_error *err) {
    return reef_cli_read_failed(reader->path != NULL ? reader->path : "standard input", doing,
                                errno, err);
}

// ---- opening ------------------------------------------------------------------------------------

static reef_status begin_file(reef_line_reader *reader, int fd, reef_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0) return fail_read(reader, "stat", err);
    if (S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        // open() succeeds on a directory.
        return fail_read(reader, "read", err);
    }
    // Only a regular file can be rotated, cut or read at an offset.
    reader->regular = reader->path != NULL && S_ISREG(info.st_mode);
    // Device and inode recognise the file after a rotation.
    reader->device = info.st_dev;
    reader->inode = info.st_ino;
    reader->offset = 0;
    reader->ended = reader->cut = false;
    return REEF_OK;
}

// Moves to the beginning of the last `lines` lines; one without an end counts.
static reef_status seek_lines(reef_line_reader *reader, size_t *lines, reef_error *err) {
    struct stat info;
    size_t found = 0;
    if (fstat(reader->fd, &info) != 0) return fail_read(reader, "stat", err);
    uint64_t end = (uint64_t)info.st_size, block = LINE_BYTES_MAX;
    reader->offset = end;
    if (*lines == 0) return REEF_OK;
    // Block by block from the end: a log may be larger than memory.
    for (uint64_t at = end; at > 0;) {
        size_t count = (size_t)(at < block ? at : block);
        ssize_t got = pread(reader->fd, reader->bytes, count, (off_t)(at - count));
        if (got < 0) return fail_read(reader, "read", err);
        if ((size_t)got < count) break;
        for (size_t i = count; i-- > 0;) {
            uint64_t after = at - count + i + 1;
            // A newline at the very end ends the last line and begins none.
            if (reader->bytes[i] != '\n' || after == end) continue;
            if (++found < *lines) continue;
            reader->offset = after;
            return REEF_OK;
        }
        at -= count;
    }
    reader->offset = 0;
    *lines = end > 0 ? found + 1 : 0;
    return REEF_OK;
}

reef_status reef_line_reader_open(reef_line_reader *reader,
                                  const char *path,
                                  size_t *lines,
                                  reef_error *err) {
    bool standard = strcmp(path, "-") == 0;
    *reader = (reef_line_reader){.path = standard ? NULL : path, .fd = STDIN_FILENO};
    // Standard input is never opened by name, so it is not followed over a rotation.
    if (!standard) reader->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (reader->fd < 0) return fail_read(reader, "open", err);
    reader->bytes = reef_cli_alloc(LINE_BYTES_MAX, 1);
    reef_status status = begin_file(reader, reader->fd, err);
    if (status == REEF_OK && reader->regular && *lines < SIZE_MAX)
        status = seek_lines(reader, lines, err);
    else
        *lines = 0;
    if (status != REEF_OK) reef_line_reader_close(reader);
    return status;
}

void reef_line_reader_close(reef_line_reader *reader) {
    if (reader->path != NULL && reader->bytes != NULL) close(reader->fd);
    free(reader->bytes);
    *reader = (reef_line_reader){0};
}

// ---- reading ------------------------------------------------------------------------------------

// Hands out the whole lines that are there, up to a bound. At the end of the input the rest is a
// line too.
static bool take_lines(reef_line_reader *reader, bool last, const uint8_t **lines, size_t *bytes) {
    const uint8_t *begin = reader->bytes + reader->taken, *end;
    size_t left = reader->used - reader->taken, whole = 0;
    bool full = left == LINE_BYTES_MAX;
    while (whole < left && (end = memchr(begin + whole, '\n', left - whole))) {
        size_t next = (size_t)(end - begin) + 1;
        // Bounded, so that the caller can show progress and react to signals.
        if (whole > 0 && next > LINES_BYTES) break;
        whole = next;
    }
    if (whole == 0 && (full || last)) whole = left;
    *lines = begin;
    *bytes = whole;
    reader->taken += whole;
    return whole > 0;
}

static reef_status fill_buffer(reef_line_reader *reader, size_t *count, reef_error *err) {
    memmove(reader->bytes, reader->bytes + reader->taken, reader->used - reader->taken);
    reader->used -= reader->taken;
    reader->taken = 0;
    *count = 0;
    // A pipe must not block: the caller also watches for signals and commits.
    if (!reader->regular) {
        struct pollfd ready = {.fd = reader->fd, .events = POLLIN};
        if (poll(&ready, 1, 0) <= 0) return REEF_OK;
    }
    size_t room = LINE_BYTES_MAX - reader->used;
    uint8_t *at = reader->bytes + reader->used;
    // At an offset, so that a file which is cut and written again is noticed.
    ssize_t got = reader->regular ? pread(reader->fd, at, room, (off_t)reader->offset)
                                  : read(reader->fd, at, room);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return REEF_OK;
    if (got < 0) return fail_read(reader, "read", err);
    if (got == 0 && !reader->regular) reader->ended = true;
    reader->used += (size_t)got;
    reader->offset += (uint64_t)got;
    *count = (size_t)got;
    return REEF_OK;
}

// ---- another file -------------------------------------------------------------------------------

static bool was_cut(const reef_line_reader *reader) {
    struct stat info;
    return fstat(reader->fd, &info) == 0 && (uint64_t)info.st_size < reader->offset;
}

// Whether the name stands for another file than the one that is read. A name that stands for none
// just now will.
static bool was_replaced(const reef_line_reader *reader) {
    struct stat info;
    return stat(reader->path, &info) == 0 &&
           (info.st_dev != reader->device || info.st_ino != reader->inode);
}

// The file is at its end and has been replaced.
static reef_status open_next(reef_line_reader *reader, reef_line_event *state, reef_error *err) {
    int fd = open(reader->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return REEF_OK; // gone again: it is looked for
    if (fd < 0) return fail_read(reader, "open", err);
    close(reader->fd);
    reader->fd = fd;
    *state = LINES_ROTATED;
    return begin_file(reader, fd, err);
}

// Nothing was there to read. True if it should be polled again at once.
static bool is_changed(reef_line_reader *reader) {
    if (!reader->regular || reader->ended) return false;
    if (was_cut(reader)) return reader->cut = true;
    return reader->ended = was_replaced(reader); // what it got before that is still to be read
}

reef_status reef_line_reader_next(reef_line_reader *reader,
                                  reef_line_event *state,
                                  const uint8_t **lines,
                                  size_t *bytes,
                                  reef_error *err) {
    size_t count;
    // Nothing can follow the last line of a file that was cut.
    do {
        *state = LINES_READ;
        if (take_lines(reader, reader->cut, lines, bytes)) return REEF_OK;
        *state = LINES_TRUNCATED;
        // Cut: begins again at the top, after the old rest was handed out.
        if (reader->cut) return begin_file(reader, reader->fd, err);
        reef_status status = fill_buffer(reader, &count, err);
        if (status != REEF_OK) return status;
    } while (count > 0 || is_changed(reader));
    *state = LINES_READ;
    // The file was rotated and is read to its end: its last line counts.
    if (reader->ended && take_lines(reader, true, lines, bytes)) return REEF_OK;
    *state = LINES_NONE_NOW;
    if (!reader->ended) return REEF_OK;
    if (reader->regular) return open_next(reader, state, err);
    *state = LINES_END;
    return REEF_OK;
}

void reef_line_reader_wait(const reef_line_reader *reader) {
    struct pollfd ready = {.fd = reader->fd, .events = POLLIN};
    if (reader->regular)
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    else
        (void)poll(&ready, 1, POLL_MS);
}
