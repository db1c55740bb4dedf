// See line_reader.h.
//
// A file is asked for more a few times a second. At its end its name is looked up: when another
// file has taken it, what the old one got meanwhile is read first. A file that is shorter than what
// was read of it was truncated (copytruncate): reading restarts. Files that come and go between two
// polls are not seen, and a file that was truncated and has grown beyond its old length by the next
// poll is taken for the old one, as with tail -F.
#include "line_reader.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 200 // from one poll to the next

static reef_status fail_read(const reef_follow_input *input, const char *doing, reef_error *err) {
    bool missing = errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == EISDIR;
    return reef_fail(err, missing ? REEF_ERR_NOT_FOUND : REEF_ERR_IO, "cannot %s %.160s: %s", doing,
                     input->path != NULL ? input->path : "standard input", strerror(errno));
}

// ---- opening ------------------------------------------------------------------------------------

static reef_status begin_file(reef_follow_input *input, int fd, reef_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0) return fail_read(input, "stat", err);
    if (S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        // open() succeeds on a directory.
        return fail_read(input, "read", err);
    }
    // Only a regular file can be rotated, cut or read at an offset.
    input->regular = input->path != NULL && S_ISREG(info.st_mode);
    // Device and inode recognise the file after a rotation.
    input->device = info.st_dev;
    input->inode = info.st_ino;
    input->offset = 0;
    input->ended = input->cut = false;
    return REEF_OK;
}

// Moves to the beginning of the last `lines` lines; one without an end counts.
static reef_status seek_lines(reef_follow_input *input, size_t *lines, reef_error *err) {
    struct stat info;
    size_t found = 0;
    if (fstat(input->fd, &info) != 0) return fail_read(input, "stat", err);
    uint64_t end = (uint64_t)info.st_size, block = FOLLOW_LINE_BYTES_MAX;
    // With no line wanted, reading begins at the end.
    input->offset = end;
    if (*lines == 0) return REEF_OK;
    // Block by block from the end: a log may be larger than memory.
    for (uint64_t at = end; at > 0;) {
        size_t count = (size_t)(at < block ? at : block);
        ssize_t got = pread(input->fd, input->bytes, count, (off_t)(at - count));
        if (got < 0) return fail_read(input, "read", err);
        // It was cut meanwhile.
        if ((size_t)got < count) break;
        for (size_t i = count; i-- > 0;) {
            uint64_t after = at - count + i + 1;
            // A newline at the very end ends the last line and begins none.
            if (input->bytes[i] != '\n' || after == end) continue;
            if (++found < *lines) continue;
            input->offset = after;
            return REEF_OK;
        }
        at -= count;
    }
    // Fewer lines than asked for: all of them.
    input->offset = 0;
    *lines = end > 0 ? found + 1 : 0;
    return REEF_OK;
}

reef_status reef_follow_open(reef_follow_input *input,
                             const char *path,
                             size_t *lines,
                             reef_error *err) {
    bool standard = strcmp(path, "-") == 0;
    *input = (reef_follow_input){.path = standard ? NULL : path, .fd = STDIN_FILENO};
    // Standard input is never opened by name, so it is not followed over a rotation.
    if (!standard) input->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0) return fail_read(input, "open", err);
    input->bytes = reef_cli_alloc(FOLLOW_LINE_BYTES_MAX, 1);
    reef_status status = begin_file(input, input->fd, err);
    // Everything from the beginning needs no search.
    if (status == REEF_OK && input->regular && *lines < SIZE_MAX)
        status = seek_lines(input, lines, err);
    else
        *lines = 0;
    if (status != REEF_OK) reef_follow_close(input);
    return status;
}

void reef_follow_close(reef_follow_input *input) {
    if (input->path != NULL && input->bytes != NULL) close(input->fd);
    free(input->bytes);
    *input = (reef_follow_input){0};
}

// ---- reading ------------------------------------------------------------------------------------

// Hands out the whole lines that are there, up to a bound. At the end of the input the rest is a
// line too.
static bool take_lines(reef_follow_input *input, bool last, const uint8_t **lines, size_t *bytes) {
    const uint8_t *begin = input->bytes + input->taken, *end;
    size_t left = input->used - input->taken, whole = 0;
    // A line longer than the buffer is handed out in parts.
    bool full = left == FOLLOW_LINE_BYTES_MAX;
    while (whole < left && (end = memchr(begin + whole, '\n', left - whole))) {
        size_t next = (size_t)(end - begin) + 1;
        // Bounded, so that the caller can show progress and react to signals.
        if (whole > 0 && next > FOLLOW_LINES_BYTES) break;
        whole = next;
    }
    if (whole == 0 && (full || last)) whole = left;
    *lines = begin;
    *bytes = whole;
    input->taken += whole;
    return whole > 0;
}

static reef_status fill_buffer(reef_follow_input *input, size_t *count, reef_error *err) {
    // The rest of the last line moves to the front.
    memmove(input->bytes, input->bytes + input->taken, input->used - input->taken);
    input->used -= input->taken;
    input->taken = 0;
    *count = 0;
    // A pipe must not block: the caller also watches for signals and commits.
    if (!input->regular) {
        struct pollfd ready = {.fd = input->fd, .events = POLLIN};
        if (poll(&ready, 1, 0) <= 0) return REEF_OK;
    }
    size_t room = FOLLOW_LINE_BYTES_MAX - input->used;
    uint8_t *at = input->bytes + input->used;
    // At an offset, so that a file which is cut and written again is noticed.
    ssize_t got = input->regular ? pread(input->fd, at, room, (off_t)input->offset)
                                 : read(input->fd, at, room);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return REEF_OK;
    if (got < 0) return fail_read(input, "read", err);
    // A pipe ends; a file may grow.
    if (got == 0 && !input->regular) input->ended = true;
    input->used += (size_t)got;
    input->offset += (uint64_t)got;
    *count = (size_t)got;
    return REEF_OK;
}

// ---- another file -------------------------------------------------------------------------------

static bool was_cut(const reef_follow_input *input) {
    struct stat info;
    return fstat(input->fd, &info) == 0 && (uint64_t)info.st_size < input->offset;
}

// Whether the name stands for another file than the one that is read. A name that stands for none
// just now will.
static bool was_replaced(const reef_follow_input *input) {
    struct stat info;
    return stat(input->path, &info) == 0 &&
           (info.st_dev != input->device || info.st_ino != input->inode);
}

// The file is at its end and has been replaced.
static reef_status open_next(reef_follow_input *input, reef_follow_state *state, reef_error *err) {
    int fd = open(input->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return REEF_OK; // gone again: it is looked for
    if (fd < 0) return fail_read(input, "open", err);
    close(input->fd);
    input->fd = fd;
    *state = FOLLOW_ROTATED;
    return begin_file(input, fd, err);
}

// Nothing was there to read. True if it should be polled again at once.
static bool is_changed(reef_follow_input *input) {
    if (!input->regular || input->ended) return false;
    if (was_cut(input)) return input->cut = true;
    return input->ended = was_replaced(input); // what it got before that is still to be read
}

reef_status reef_follow_next(reef_follow_input *input,
                             reef_follow_state *state,
                             const uint8_t **lines,
                             size_t *bytes,
                             reef_error *err) {
    size_t count;
    // Nothing can follow the last line of a file that was cut.
    do {
        *state = FOLLOW_LINES;
        if (take_lines(input, input->cut, lines, bytes)) return REEF_OK;
        *state = FOLLOW_TRUNCATED;
        // Cut: begins again at the top, after the old rest was handed out.
        if (input->cut) return begin_file(input, input->fd, err);
        reef_status status = fill_buffer(input, &count, err);
        if (status != REEF_OK) return status;
    } while (count > 0 || is_changed(input));
    *state = FOLLOW_LINES;
    // The file was rotated and is read to its end: its last line counts.
    if (input->ended && take_lines(input, true, lines, bytes)) return REEF_OK;
    *state = FOLLOW_NOTHING;
    if (!input->ended) return REEF_OK;
    // The new file under the old name.
    if (input->regular) return open_next(input, state, err);
    *state = FOLLOW_END;
    return REEF_OK;
}

void reef_follow_wait(const reef_follow_input *input) {
    struct pollfd ready = {.fd = input->fd, .events = POLLIN};
    if (input->regular)
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    else
        (void)poll(&ready, 1, POLL_MS);
}
