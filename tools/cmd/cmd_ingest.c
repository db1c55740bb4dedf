// reef ingest: push lines to a running daemon, batch by batch, each with an id.
//
// A batch is sent until it is acknowledged. When an answer is lost the same batch is sent again
// under the same id, by this run or a later one, and the pool takes it once.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_transport.h"
#include "commands.h"
#include "reef_client.h"
#include "reef_log.h"
#include "reef_system.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINES_DEFAULT 1000
#define LINES_MAX 1000000
// A longer line is sent by itself, up to BATCH_LINE_MAX.
#define BATCH_BYTES_MAX ((size_t)512 << 10)
#define BATCH_LINE_MAX ((size_t)REEF_REQUEST_BYTES_MAX)
#define BUFFER_BYTES (BATCH_BYTES_MAX + BATCH_LINE_MAX)
#define AWAY_SECONDS_MAX 30.0 // that a daemon which ended is waited for
#define AWAY_MS 500
#define BUSY_MS 200 // where the daemon gives no time
#define PREFIX_BYTES_MAX 100

static const reef_cli_option OPTIONS[] = {
    {"source", "NAME", "push into the source push:NAME (default: the only one there is)"},
    {"batch", "LINES", "lines of one batch (default: 1000)"},
    {"id-prefix", "P",
     "name batches P-OFFSET, so that the same lines are taken once, however often sent"},
    {"skip", "BYTES", "leave out what comes before this byte of FILE"},
    {"jsonl", NULL, "lines are JSON, such as {\"text\": \"...\"}"},
    {0},
};

const reef_cli_manual reef_ingest_manual = {
    .about =
        "Sends the lines of FILE, or of standard input, to the daemon that runs on the pool, and\n"
        "waits until it has them in its journal. What was acknowledged is trained once, whatever\n"
        "ends in between. Where the journal is full, it waits for training. With --id-prefix the\n"
        "same command can be run again after it was cut off: of the last 1,024 batches none is\n"
        "taken twice. A longer file continues with the --skip that the message names.",
    .options = OPTIONS,
    .example = "reef ingest reef.pool corpus.txt --id-prefix corpus\n"
               "journalctl -f | reef ingest reef.pool --source web",
};

// ---- lines, a batch at a time -------------------------------------------------------------------

#define QUIET_MS 300 // after which lines that are there are a batch

typedef struct feed {
    // set by the caller before feed_open
    const char *path; // "-": standard input
    uint64_t skip;    // bytes at the beginning that are left out
    size_t lines_max; // of a batch
    bool steady;      // batches depend on the content alone, not on when it comes
    // of the batch, written by feed_next
    uint8_t *buffer; // (bytes) good until the next call
    size_t bytes;    // 0: the end
    size_t lines;
    uint64_t offset; // of its first byte
    uint64_t line;   // number of its first line, from 1; counted from where `skip` ended
    // its own
    int fd;
    uint64_t size; // of a file; 0: unknown
    size_t used;
    bool eof;
} feed;

static reef_status skip_bytes(feed *f, reef_error *err) {
    uint64_t left = f->skip;
    // A file is skipped by seeking; the size is checked, because lseek() goes past the end.
    if (left > 0 && f->size > 0 && left <= f->size && lseek(f->fd, (off_t)left, SEEK_CUR) >= 0)
        return REEF_OK;
    while (left > 0) {
        size_t want = left < BATCH_BYTES_MAX ? (size_t)left : BATCH_BYTES_MAX;
        ssize_t got = read(f->fd, f->buffer, want);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return reef_cli_read_failed(f->path, "read", errno, err);
        // The offset was that of another file, or the file was cut.
        if (got == 0)
            return reef_fail(err, REEF_ERR_INVALID,
                             "%.160s has fewer than the %" PRIu64 " bytes to skip", f->path,
                             f->skip);
        left -= (uint64_t)got;
    }
    return REEF_OK;
}

static reef_status feed_open(feed *f, reef_error *err) {
    struct stat state;
    bool standard = strcmp(f->path, "-") == 0;
    if (standard) f->path = "standard input";
    // O_NOCTTY: a terminal named as a file must not become the controlling one.
    f->fd = standard ? STDIN_FILENO : open(f->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    f->buffer = reef_cli_alloc(BUFFER_BYTES, 1);
    // The offset is counted from the beginning, so that it can be given to --skip again.
    f->offset = f->skip;
    f->line = 1;
    if (f->fd < 0) return reef_cli_read_failed(f->path, "open", errno, err);
    if (fstat(f->fd, &state) != 0) return reef_cli_read_failed(f->path, "stat", errno, err);
    // open() succeeds on a directory; read() would fail with a message about the descriptor.
    if (S_ISDIR(state.st_mode))
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read %.160s: it is a directory", f->path);
    f->size = S_ISREG(state.st_mode) ? (uint64_t)state.st_size : 0;
    return skip_bytes(f, err);
}

static void feed_close(feed *f) {
    if (f->fd > STDIN_FILENO) close(f->fd);
    free(f->buffer);
}

// Bytes that a batch may have: a line that is longer than that goes by itself.
static size_t batch_bytes_max(const feed *f) {
    return f->lines == 0 ? BATCH_LINE_MAX : BATCH_BYTES_MAX;
}

// Counts whole lines of the buffer; true if they make a batch.
static bool count_lines(feed *f) {
    f->bytes = f->lines = 0;
    while (f->lines < f->lines_max) {
        const uint8_t *at = f->buffer + f->bytes;
        const uint8_t *end = memchr(at, '\n', f->used - f->bytes);
        if (end == NULL) break;
        size_t bytes = (size_t)(end + 1 - f->buffer);
        if (bytes > batch_bytes_max(f)) return true;
        f->bytes = bytes;
        f->lines++;
    }
    return f->lines == f->lines_max || f->used > batch_bytes_max(f);
}

static bool is_quiet(const feed *f) {
    struct pollfd wait = {.fd = f->fd, .events = POLLIN};
    return !f->steady && f->lines > 0 && poll(&wait, 1, QUIET_MS) == 0;
}

static reef_status read_more(feed *f, reef_error *err) {
    ssize_t got = 0;
    do {
        got = read(f->fd, f->buffer + f->used, BUFFER_BYTES - f->used);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return reef_cli_read_failed(f->path, "read", errno, err);
    f->eof = got == 0;
    f->used += (size_t)got;
    return REEF_OK;
}

// Forget the batch before.
static void move_on(feed *f) {
    memmove(f->buffer, f->buffer + f->bytes, f->used - f->bytes);
    f->used -= f->bytes;
    f->offset += f->bytes;
    f->line += f->lines;
}

// The next whole lines; of the last one the end may be missing. Where lines come slowly a batch is
// smaller, unless it is to be steady.
static reef_status feed_next(feed *f, reef_error *err) {
    move_on(f);
    while (!count_lines(f) && !f->eof && !is_quiet(f)) {
        reef_status status = read_more(f, err);
        if (status != REEF_OK) return status;
    }
    size_t rest = f->used - f->bytes;
    // The last line of the input counts without its newline.
    bool last = f->eof && rest > 0 && f->lines < f->lines_max &&
                memchr(f->buffer + f->bytes, '\n', rest) == NULL;
    if (last && f->used <= batch_bytes_max(f)) {
        f->bytes = f->used;
        f->lines++;
    }
    // An empty batch and an empty buffer are the end.
    if (f->bytes > 0 || f->used == 0) return REEF_OK;
    // One line longer than a batch: cutting it would make two records of one.
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.120s line %" PRIu64 " has more than the %zu bytes that go into one batch",
                     f->path, f->line, BATCH_LINE_MAX);
}

// ---- one batch ----------------------------------------------------------------------------------

typedef struct ingestion {
    reef_cli_call *cli;
    feed feed;
    reef_cli_progress progress;
    const char *source;
    char prefix[PREFIX_BYTES_MAX + 1];
    bool jsonl;
    uint64_t batches, duplicates, records, accepted_bytes, position, waits;
    double drawn;
} ingestion;

// Parsed here, because one invalid line would make the whole batch invalid, and the daemon does not
// know which line of the input it is.
static reef_status check_lines(const ingestion *in, reef_error *err) {
    const uint8_t *at = in->feed.buffer;
    size_t left = in->feed.bytes;
    for (uint64_t line = in->feed.line; in->jsonl && left > 0; line++) {
        const uint8_t *end = memchr(at, '\n', left);
        size_t bytes = end != NULL ? (size_t)(end - at) : left, taken = bytes + (end != NULL);
        json_error_t why;
        // Blank lines are common at the end of exports and hold no record.
        if (!reef_line_is_blank((const char *)at, bytes)) {
            json_t *record =
                json_loadb((const char *)at, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
            json_decref(record);
            if (record == NULL)
                return reef_fail(err, REEF_ERR_INVALID, "%.120s line %" PRIu64 ": no JSON: %.80s",
                                 in->feed.path, line, why.text);
        }
        at += taken;
        left -= taken;
    }
    return REEF_OK;
}

// ---- sending it until it is there ---------------------------------------------------------------

static void sleep_ms(unsigned ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&pause, NULL);
}

static void show_progress(ingestion *in, const char *state) {
    double now = reef_seconds();
    // A file has a total and so a bar; a pipe has a rate only.
    if (in->progress.total > 0) reef_cli_progress_show(&in->progress, in->feed.offset);
    if (in->progress.total > 0 || !in->progress.terminal || now - in->drawn < 0.1) return;
    // Since the start and not since the last line: a pipe comes in bursts.
    double passed = now - in->progress.started;
    in->drawn = now;
    in->progress.visible = true;
    fprintf(stderr, "\r\033[Kingest  %s  %s/s%s", CLI_BYTES(in->feed.offset),
            CLI_BYTES(passed > 0 ? (uint64_t)((double)in->feed.offset / passed) : 0), state);
    fflush(stderr);
}

static void note_reply(ingestion *in, const char *reply) {
    json_t *result = json_loads(reply, 0, NULL);
    in->batches++;
    in->duplicates += json_is_true(json_object_get(result, "duplicate"));
    in->records += reef_cli_count_of(result, "records");
    in->accepted_bytes += reef_cli_count_of(result, "accepted_bytes");
    in->position = reef_cli_count_of(result, "position");
    json_decref(result);
}

// Whether to send it again, after a pause; `since` is when the daemon was last heard of.
static bool is_worth_it(const ingestion *in, reef_status status, unsigned *ms, double since) {
    if (status == REEF_ERR_BUSY) {
        if (*ms == 0) *ms = BUSY_MS;
        return true;
    }
    // If the daemon was never there, or has no such source, waiting does not help.
    bool lost = status == REEF_ERR_IO || (status == REEF_ERR_NOT_FOUND && in->batches > 0);
    *ms = AWAY_MS;
    return lost && reef_seconds() - since < AWAY_SECONDS_MAX;
}

// In a dry run a batch is counted as if it had been taken.
static void count_batch(ingestion *in) {
    in->batches++;
    in->records += in->feed.lines;
    in->accepted_bytes += in->feed.bytes;
}

static reef_status send_batch(ingestion *in, reef_error *err) {
    // The id names the position, so a batch sent twice is recognised by the daemon.
    char id[PREFIX_BYTES_MAX + 32];
    snprintf(id, sizeof(id), "%s-%" PRIu64, in->prefix, in->feed.offset);
    const reef_daemon_batch batch = {.source = in->source,
                                     .id = id,
                                     .type = in->jsonl ? "application/jsonl" : "text/plain",
                                     .bytes = in->feed.buffer,
                                     .count = in->feed.bytes};
    // When the daemon last replied with anything: the limit on waiting counts from there.
    double heard = reef_seconds();
    for (;;) {
        char *reply = NULL;
        unsigned ms = 0;
        reef_status status = reef_daemon_push(in->cli->pool, reef_cli_text(in->cli, "socket"),
                                              &batch, &reply, &ms, err);
        if (status == REEF_OK) {
            note_reply(in, reply);
            free(reply);
            return REEF_OK;
        }
        // Busy is a reply too: a daemon that is full is alive.
        if (status == REEF_ERR_BUSY) heard = reef_seconds();
        // A restarting daemon comes back within a time; an invalid request never succeeds.
        if (!is_worth_it(in, status, &ms, heard)) return status;
        in->waits++;
        // Drawn while waiting as well, so that the program does not seem to hang.
        show_progress(in,
                      status == REEF_ERR_BUSY ? "  waiting for room" : "  waiting for the daemon");
        sleep_ms(ms);
    }
}

// What a person needs to continue: this option beside the same command, --id-prefix too.
static reef_status cut_off(const ingestion *in, const reef_error *reason, reef_error *err) {
    return reef_fail(err, reason->status,
                     "%.150s; acknowledged up to byte %" PRIu64
                     ", to continue: the same with --skip %" PRIu64,
                     reason->message, in->feed.offset, in->feed.offset);
}

static reef_status send_all(ingestion *in, reef_error *err) {
    reef_error reason;
    for (;;) {
        reef_status status = feed_next(&in->feed, &reason);
        if (status == REEF_OK && in->feed.bytes == 0) return REEF_OK;
        if (status == REEF_OK) status = check_lines(in, &reason);
        if (status == REEF_OK && in->cli->dry_run)
            count_batch(in);
        else if (status == REEF_OK)
            status = send_batch(in, &reason);
        // After some batches the message must tell where to continue, or data would be sent twice.
        if (status != REEF_OK)
            return in->batches > 0 ? cut_off(in, &reason, err)
                                   : reef_fail(err, status, "%s", reason.message);
        show_progress(in, "");
    }
}

// ---- the command --------------------------------------------------------------------------------

static reef_status choose_prefix(ingestion *in, reef_error *err) {
    const char *given = reef_cli_text(in->cli, "id-prefix");
    if (given == NULL) {
        snprintf(in->prefix, sizeof(in->prefix), "%" PRIu64 "-%ld", reef_unix_ms(), (long)getpid());
        return REEF_OK;
    }
    if (strlen(given) < 1 || strlen(given) > PREFIX_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "--id-prefix takes 1 to %d bytes",
                         PREFIX_BYTES_MAX);
    // It becomes part of an id, which stands in the header of a request.
    for (const char *c = given; *c; c++)
        if (*c <= ' ' || *c > '~')
            return reef_fail(err, REEF_ERR_INVALID,
                             "--id-prefix takes printable ASCII without a space");
    strcpy(in->prefix, given);
    // A given prefix is a promise to cut batches at the same offsets again.
    in->feed.steady = true;
    return REEF_OK;
}

static reef_status reply(const ingestion *in, double seconds, reef_error *err) {
    // "position" is that in the pool's stream, after the daemon accepted the last batch.
    if (in->cli->json)
        return reef_cli_reply(
            in->cli,
            json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "done", !in->cli->dry_run,
                      "accepted_bytes", (json_int_t)in->accepted_bytes, "records",
                      (json_int_t)in->records, "batches", (json_int_t)in->batches, "duplicates",
                      (json_int_t)in->duplicates, "waits", (json_int_t)in->waits, "end",
                      (json_int_t)in->feed.offset, "position",
                      reef_cli_known(in->batches > 0 && !in->cli->dry_run, in->position), "seconds",
                      reef_cli_real(seconds)),
            err);
    printf("%s %s records, %s, in %" PRIu64 " batch%s and %s\n",
           in->cli->dry_run ? "would send" : "acknowledged", CLI_COUNT(in->records),
           CLI_BYTES(in->accepted_bytes), in->batches, in->batches == 1 ? "" : "es",
           CLI_DURATION(seconds));
    // Not an error: a repeated run sends what it is not sure of.
    if (in->duplicates > 0)
        printf("%" PRIu64 " of these batches the pool had already\n", in->duplicates);
    return REEF_OK;
}

// A dry run sends nothing, but reports a missing daemon like a real one.
static reef_status check_daemon(const reef_cli_call *cli, reef_error *err) {
    json_t *running = NULL;
    reef_status status = reef_cli_daemon_request(cli, "status", &running, err);
    json_decref(running);
    return status;
}

reef_status reef_cmd_ingest(reef_cli_call *cli, reef_error *err) {
    uint64_t lines = LINES_DEFAULT;
    reef_cli_pool pool = {0};
    ingestion in = {.cli = cli,
                    .source = reef_cli_text(cli, "source"),
                    .jsonl = reef_cli_text(cli, "jsonl") != NULL,
                    .feed = {.fd = -1, .path = cli->operand_count ? cli->operands[0] : "-"}};
    reef_status status = reef_cli_integer(cli, "batch", 1, LINES_MAX, &lines, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "skip", 0, INT64_MAX, &in.feed.skip, err);
    if (status == REEF_OK) status = choose_prefix(&in, err);
    // A pool that is none is said to be none, not to have no daemon.
    if (status == REEF_OK) status = reef_cli_pool_open(&pool, cli, err);
    reef_cli_pool_close(&pool);
    in.feed.lines_max = (size_t)lines;
    if (status == REEF_OK && cli->dry_run) status = check_daemon(cli, err);
    if (status == REEF_OK) status = feed_open(&in.feed, err);
    reef_cli_progress_start(&in.progress, "ingest", in.feed.size, "B");
    if (status == REEF_OK) status = send_all(&in, err);
    // Ended before the reply, so that the result begins on a fresh line.
    reef_cli_progress_end(&in.progress);
    if (status == REEF_OK) status = reply(&in, reef_seconds() - in.progress.started, err);
    feed_close(&in.feed);
    return status;
}
