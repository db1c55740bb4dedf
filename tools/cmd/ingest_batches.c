// See ingest_batches.h.
#include "ingest_batches.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUIET_MS 300 // after which lines that are there are a batch

static reef_status open_failed(const reef_ingest_feed *feed, const char *what, reef_error *err) {
    return reef_fail(err, errno == ENOENT || errno == EACCES ? REEF_ERR_NOT_FOUND : REEF_ERR_IO,
                     "cannot %s %.160s: %s", what, feed->path, strerror(errno));
}

static size_t room(const reef_ingest_feed *feed) {
    return feed->bytes_max + feed->line_max;
}

static reef_status skip_bytes(reef_ingest_feed *feed, reef_error *err) {
    uint64_t left = feed->skip;
    // A file is skipped by seeking; the size is checked, because lseek() goes past the end.
    if (left > 0 && feed->size > 0 && left <= feed->size &&
        lseek(feed->fd, (off_t)left, SEEK_CUR) >= 0)
        return REEF_OK;
    // A pipe can only be read.
    while (left > 0) {
        size_t want = left < feed->bytes_max ? (size_t)left : feed->bytes_max;
        ssize_t got = read(feed->fd, feed->buffer, want);
        // A signal is not the end of input.
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return open_failed(feed, "read", err);
        // The offset was that of another file, or the file was cut.
        if (got == 0)
            return reef_fail(err, REEF_ERR_INVALID,
                             "%.160s has fewer than the %" PRIu64 " bytes to skip", feed->path,
                             feed->skip);
        left -= (uint64_t)got;
    }
    return REEF_OK;
}

reef_status reef_ingest_feed_open(reef_ingest_feed *feed, reef_error *err) {
    struct stat state;
    bool standard = strcmp(feed->path, "-") == 0;
    if (standard) feed->path = "standard input";
    // O_NOCTTY: a terminal named as a file must not become the controlling one.
    feed->fd = standard ? STDIN_FILENO : open(feed->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    feed->buffer = reef_cli_alloc(room(feed), 1);
    // The offset is counted from the beginning, so that it can be given to --skip again.
    feed->offset = feed->skip;
    feed->line = 1;
    if (feed->fd < 0) return open_failed(feed, "open", err);
    if (fstat(feed->fd, &state) != 0) return open_failed(feed, "stat", err);
    // open() succeeds on a directory; read() would fail with a message about the descriptor.
    if (S_ISDIR(state.st_mode))
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read %.160s: it is a directory",
                         feed->path);
    // Zero is "unknown", as for a pipe.
    feed->size = S_ISREG(state.st_mode) ? (uint64_t)state.st_size : 0;
    return skip_bytes(feed, err);
}

void reef_ingest_feed_close(reef_ingest_feed *feed) {
    if (feed->fd > STDIN_FILENO) close(feed->fd);
    free(feed->buffer);
}

// Bytes that a batch may have: a line that is longer than that goes by itself.
static size_t ingest_batches_most(const reef_ingest_feed *feed) {
    return feed->lines == 0 ? feed->line_max : feed->bytes_max;
}

/**
 * Whole lines at the beginning of the buffer, as many as a batch takes; whether no more could go
 * into it.
 */
// Counts whole lines of the buffer; true if they make a batch.
static bool count_lines(reef_ingest_feed *feed) {
    feed->bytes = feed->lines = 0;
    while (feed->lines < feed->lines_max) {
        const uint8_t *at = feed->buffer + feed->bytes;
        const uint8_t *end = memchr(at, '\n', feed->used - feed->bytes);
        // A line without its end waits for more input.
        if (end == NULL) break;
        size_t bytes = (size_t)(end + 1 - feed->buffer);
        // The next line goes into the next batch: a batch has a limit of bytes.
        if (bytes > ingest_batches_most(feed)) return true;
        feed->bytes = bytes;
        feed->lines++;
    }
    // Enough lines, or so many bytes that one line is too long.
    return feed->lines == feed->lines_max || feed->used > ingest_batches_most(feed);
}

static bool is_quiet(const reef_ingest_feed *feed) {
    struct pollfd wait = {.fd = feed->fd, .events = POLLIN};
    return !feed->steady && feed->lines > 0 && poll(&wait, 1, QUIET_MS) == 0;
}

static reef_status read_more(reef_ingest_feed *feed, reef_error *err) {
    ssize_t got = 0;
    do {
        got = read(feed->fd, feed->buffer + feed->used, room(feed) - feed->used);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return open_failed(feed, "read", err);
    feed->eof = got == 0;
    feed->used += (size_t)got;
    return REEF_OK;
}

// Forget the batch before.
static void move_on(reef_ingest_feed *feed) {
    memmove(feed->buffer, feed->buffer + feed->bytes, feed->used - feed->bytes);
    feed->used -= feed->bytes;
    feed->offset += feed->bytes;
    feed->line += feed->lines;
}

reef_status reef_ingest_feed_next(reef_ingest_feed *feed, reef_error *err) {
    // The bytes of the last batch are dropped, and the rest moved to the front.
    move_on(feed);
    // Reads until a batch is full, the input ends, or a pipe is quiet for a while.
    while (!count_lines(feed) && !feed->eof && !is_quiet(feed)) {
        reef_status status = read_more(feed, err);
        if (status != REEF_OK) return status;
    }
    size_t rest = feed->used - feed->bytes;
    // The last line of the input counts without its newline.
    bool last = feed->eof && rest > 0 && feed->lines < feed->lines_max &&
                memchr(feed->buffer + feed->bytes, '\n', rest) == NULL;
    if (last && feed->used <= ingest_batches_most(feed)) {
        feed->bytes = feed->used;
        feed->lines++;
    }
    feed->batch = feed->buffer;
    // An empty batch and an empty buffer are the end.
    if (feed->bytes > 0 || feed->used == 0) return REEF_OK;
    // One line longer than a batch: cutting it would make two records of one.
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.120s line %" PRIu64 " has more than the %zu bytes that go into one batch",
                     feed->path, feed->line, feed->line_max);
}
