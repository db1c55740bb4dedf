// The check in a child process, so that a damaged map costs the child and not the daemon.
//
//   parent                          child
//     fork  ------------------------> opens the pool itself, checks
//     reads frames until the end <--- DAMAGE text, ..., RESULT report
//     waitpid                         _exit
//
// A child that dies before its RESULT died of the pool: of a page that is not in the file (SIGBUS),
// or of LMDB following a broken page (SIGSEGV, SIGABRT).

#include "check.h"
#include "reef_pool_check.h"
#include "shard_view.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum frame_kind { DAMAGE = 1, RESULT = 2 } frame_kind;

// A fixed size below PIPE_BUF: frames are written and read whole. Parent and child are one program.
typedef struct frame {
    frame_kind kind;
    reef_status status;
    reef_check_report report; // with RESULT
    char text[sizeof(((reef_error *)0)->message)];
} frame;
_Static_assert(sizeof(frame) < 4096, "a frame fits the pipe");

static bool write_all(int fd, const void *data, size_t bytes) {
    const char *p = data;
    while (bytes > 0) {
        ssize_t done = write(fd, p, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done;
        bytes -= (size_t)done;
    }
    return true;
}

// False at the end of the pipe.
static bool read_all(int fd, void *data, size_t bytes) {
    char *p = data;
    while (bytes > 0) {
        ssize_t done = read(fd, p, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done;
        bytes -= (size_t)done;
    }
    return true;
}

// ---- the child ----------------------------------------------------------------------------------

static void child_send(int fd, const frame *f) {
    if (!write_all(fd, f, sizeof(*f))) _exit(1); // nobody listens any more
}

// Padding is cleared too: these bytes leave the process.
static void child_on_damage(void *context, const char *what) {
    frame f;
    memset(&f, 0, sizeof(f));
    f.kind = DAMAGE;
    snprintf(f.text, sizeof(f.text), "%s", what);
    child_send(*(int *)context, &f);
}

// Signals end the child, whatever the program does about them, and leave no core file behind.
static void child_signals(void) {
    static const int signals[] = {SIGBUS, SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGPIPE};
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)sigaction(signals[i], &standard, NULL);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
}

static void child_run(int fd,
                      const char *path,
                      reef_verify_work work,
                      const reef_check_options *options) {
    frame f;
    reef_error reason = {0};
    reef_check_options here = *options;
    here.context = &fd;
    here.on_damage = child_on_damage;
    // Padding is written to the pipe too, so no byte may be uninitialised.
    memset(&f, 0, sizeof(f));
    f.kind = RESULT;
    child_signals();
    f.status = work(path, &here, &f.report, &reason);
    memcpy(f.text, reason.message, sizeof(f.text));
    _exit(write_all(fd, &f, sizeof(f)) ? 0 : 1);
}

// ---- the parent ---------------------------------------------------------------------------------

static const char *signal_text(int number) {
    switch (number) {
    case SIGBUS:
        return "SIGBUS: its file is shorter than its trees, or the disk failed";
    case SIGSEGV:
        return "SIGSEGV: a page of its trees is damaged";
    case SIGABRT:
        return "SIGABRT: a page of its trees is damaged";
    default:
        return "a signal";
    }
}

static reef_status child_died(pid_t child, const char *path, reef_error *err) {
    int how = 0;
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    // A signal from outside proves nothing about the pool.
    bool stopped = WIFSIGNALED(how) && (WTERMSIG(how) == SIGKILL || WTERMSIG(how) == SIGTERM);
    if (stopped)
        return reef_fail(err, REEF_ERR_IO, "checking pool %s ended early: its process was stopped",
                         path);
    if (WIFSIGNALED(how))
        return reef_fail(err, REEF_ERR_CORRUPT, "checking pool %s ended with %s", path,
                         signal_text(WTERMSIG(how)));
    // A program may end itself where it has no memory: see reef_program_begin.
    if (WEXITSTATUS(how) == reef_status_exit_code(REEF_ERR_NO_MEMORY))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "checking pool %s ended for want of memory",
                         path);
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "checking pool %s ended without a result, exit status %d", path,
                     WEXITSTATUS(how));
}

static void child_wait(pid_t child) {
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
}

reef_status reef_verify_in_child(const char *path,
                                 reef_verify_work work,
                                 const reef_check_options *options,
                                 reef_check_report *report,
                                 reef_error *err) {
    int ends[2];
    frame f;
    uint64_t damaged = 0;
    // Valid also if the child dies: the caller prints what was found until then.
    *report = (reef_check_report){0};
    if (pipe(ends) != 0)
        return reef_fail(err, REEF_ERR_IO, "cannot make a pipe: %s", strerror(errno));
    // A damaged page can crash LMDB, so the check runs in a process of its own.
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        child_run(ends[1], path, work, options);
    }
    // The child's end, so that reading ends when the child does.
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return reef_fail(err, REEF_ERR_IO, "cannot start a process to check pool %s: %s", path,
                         strerror(errno));
    }
    bool finished = false;
    // Findings are passed on as they come; the result is the last frame.
    while (!finished && read_all(ends[0], &f, sizeof(f))) {
        finished = f.kind == RESULT;
        if (finished) break;
        damaged++;
        if (options->on_damage != NULL) options->on_damage(options->context, f.text);
    }
    close(ends[0]);
    // Died in the middle: the number of findings so far is all that is known.
    if (!finished) {
        report->damaged = damaged;
        return child_died(child, path, err);
    }
    child_wait(child);
    *report = f.report;
    return f.status == REEF_OK ? REEF_OK : reef_fail(err, f.status, "%s", f.text);
}

// ---- all shards ---------------------------------------------------------------------------------
//
// Each by itself, and then whether they are one pool. What a shard has of others, their entries in
// `sums`, is under the roots that each check takes; so shards with one root agree about all rows.

typedef struct shard_findings {
    const reef_check_options *options; // of who asked
    uint32_t rank;
} shard_findings;

static void on_shard_damage(void *context, const char *what) {
    const shard_findings *f = context;
    char line[sizeof(((reef_error *)0)->message) + 32];
    if (f->options->on_damage == NULL) return;
    (void)snprintf(line, sizeof(line), "rank-%" PRIu32 ": %s", f->rank, what);
    f->options->on_damage(f->options->context, line);
}

static uint64_t greater(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// What lies in every shard is counted in each of them, as it was checked there.
static void add_report(reef_check_report *all, const reef_check_report *one) {
    all->records += one->records;
    all->bytes += one->bytes;
    all->damaged += one->damaged;
    all->file_bytes += one->file_bytes;
    all->used_bytes += one->used_bytes;
    all->sealed_records += one->sealed_records;
    all->sealed_bytes += one->sealed_bytes;
    all->hashed_records += one->hashed_records;
    all->hashed_bytes += one->hashed_bytes;
    all->usage_windows += one->usage_windows;
    all->pages += one->pages;
    all->pages_used += one->pages_used;
    all->pages_free += one->pages_free;
    all->pages_lost += one->pages_lost;
    all->reads += one->reads;
    all->generations = greater(all->generations, one->generations);
    all->snapshots = greater(all->snapshots, one->snapshots);
    all->commits = greater(all->commits, one->commits);
    if (one->longest_read_ms > all->longest_read_ms) all->longest_read_ms = one->longest_read_ms;
    memcpy(all->root, one->root, sizeof(all->root));
    if (one->remedy.kind > all->remedy.kind) all->remedy = one->remedy;
}

static reef_status check_shard(const char *path,
                               reef_verify_work check,
                               shard_findings *findings,
                               reef_check_report *report,
                               reef_error *err) {
    reef_check_report one = {0};
    reef_check_options options = *findings->options;
    options.on_damage = on_shard_damage;
    options.context = findings;
    char *shard = reef_view_shard_path(path, findings->rank);
    if (shard == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to check the shards of %s", path);
    reef_status status = check(shard, &options, &one, err);
    add_report(report, &one);
    free(shard);
    return status;
}

static reef_status shards_verify(const char *path,
                                 reef_verify_work check,
                                 const reef_check_options *options,
                                 reef_check_report *report,
                                 reef_error *err) {
    uint32_t count = 0;
    reef_store *store = NULL;
    shard_findings findings = {.options = options};
    *report = (reef_check_report){0};
    reef_status status = reef_view_count(path, &count, err);
    if (status != REEF_OK) return status;
    for (; status == REEF_OK && findings.rank < count; findings.rank++)
        status = check_shard(path, check, &findings, report, err);
    if (status == REEF_OK && report->damaged == 0)
        status = reef_store_open(&store, path, NULL, err);
    reef_store_close(store);
    return status;
}

// ---- the whole ----------------------------------------------------------------------------------

static reef_status open_and_check(const char *path,
                                  const reef_check_options *options,
                                  reef_check_report *report,
                                  reef_error *err) {
    reef_store *store = NULL;
    reef_status status = reef_store_open(&store, path, &(reef_store_options){.damaged = true}, err);
    if (status != REEF_OK) return status;
    status = reef_store_check(store, options, report, err);
    reef_store_close(store);
    return status;
}

static reef_status check_in_child(const char *path,
                                  const reef_check_options *options,
                                  reef_check_report *report,
                                  reef_error *err) {
    reef_status status = reef_verify_in_child(path, open_and_check, options, report, err);
    // LMDB cannot open it, or opening it ended the child: check its pages alone, without a map.
    if (status == REEF_ERR_CORRUPT && report->damaged == 0)
        (void)!reef_check_pages_of(path, options, report, NULL);
    return status;
}

reef_status reef_store_verify(const char *path,
                              const reef_check_options *options,
                              reef_check_report *report,
                              reef_error *err) {
    static const reef_check_options none = {0};
    if (options == NULL) options = &none;
    if (reef_view_is_at(path)) return shards_verify(path, check_in_child, options, report, err);
    return check_in_child(path, options, report, err);
}
