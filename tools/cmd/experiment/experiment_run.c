// Cells in processes of their own, and the file of results.
//
//   parent  starts up to `jobs` children, shows their progress, adds rows to results.jsonl
//   child   is this program again, with --cell ID: runs it; tells its progress through a pipe;
//           leaves ID.row, or what went wrong, and ends; without one it was stopped
//
// What always holds: results.jsonl is replaced as a whole, so it has complete rows only. A child
// dies with its parent; its pool is then as its last commit left it, and the next run continues
// from there.
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_signals.h"
#include "experiment.h"
#include "reef_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS_MAX 64
#define POLL_MS 200
#define PROGRESS_SECONDS 0.2
#define PROGRESS_FD 3 // where a child writes how far it is
#define ARGUMENTS_MAX 32

// ---- the file of results ------------------------------------------------------------------------

static char *results_path(const char *directory) {
    return reef_cli_format("%s/results.jsonl", directory);
}

static reef_status read_line(json_t *results,
                             const char *path,
                             const char *line,
                             size_t bytes,
                             size_t number,
                             reef_error *err) {
    json_error_t reason;
    json_t *row = json_loadb(line, bytes, 0, &reason);
    const char *id = json_string_value(json_object_get(row, "id"));
    // The id is the key; a row without one cannot be found again.
    bool failed = id == NULL || json_object_set(results, id, row) != 0;
    json_decref(row);
    if (!failed) return REEF_OK;
    // A damaged line must not silently cost hours of training again.
    return reef_fail(err, REEF_ERR_CORRUPT, "%.160s:%zu: no row of results; remove that line", path,
                     number);
}

reef_status reef_experiment_results_read(const char *directory, json_t **results, reef_error *err) {
    char *path = results_path(directory);
    reef_cli_file file = {0};
    *results = json_object();
    // No file yet is the start of an experiment.
    reef_status status = access(path, F_OK) == 0 ? reef_cli_file_read(&file, path, err) : REEF_OK;
    size_t number = 1;
    // One row a line, so that an interrupted write damages one row at most.
    for (size_t at = 0; status == REEF_OK && at < file.count; number++) {
        const char *line = (const char *)file.bytes + at;
        const char *end = memchr(line, '\n', file.count - at);
        size_t bytes = end != NULL ? (size_t)(end - line) : file.count - at;
        status = read_line(*results, path, line, bytes, number, err);
        at += bytes + 1;
    }
    reef_cli_file_release(&file);
    free(path);
    return status;
}

// Writes a file that is complete or unchanged, whenever the machine stops: fsync before rename.
static reef_status write_whole(const char *path, const char *text, size_t bytes, reef_error *err) {
    char *beside = reef_cli_format("%s.part", path);
    FILE *out = fopen(beside, "w");
    bool failed = out == NULL || fwrite(text, 1, bytes, out) != bytes || fflush(out) != 0 ||
                  fsync(fileno(out)) != 0;
    // Kept before fclose() can overwrite it.
    int why = errno;
    if (out != NULL && fclose(out) != 0) failed = true;
    if (!failed && rename(beside, path) != 0) {
        failed = true;
        why = errno;
    }
    reef_status status = failed ? reef_cli_write_failed(path, why, err) : REEF_OK;
    // A half-written file must not be found by the next run.
    if (failed) (void)unlink(beside);
    free(beside);
    return status;
}

static reef_status write_results(const char *directory, const json_t *results, reef_error *err) {
    char *text = NULL, *path = results_path(directory);
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    bool ok = out != NULL;
    const char *id;
    json_t *row;
    // All rows each time: the file is small next to a model.
    json_object_foreach((json_t *)results, id, row) {
        // 17 digits give back the same double, so tables do not depend on restarts.
        char *line = ok ? json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
        ok = line != NULL && fprintf(out, "%s\n", line) > 0;
        free(line);
    }
    if (out != NULL && fclose(out) != 0) ok = false;
    reef_status status = ok ? write_whole(path, text, bytes, err)
                            : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the results");
    free(text);
    free(path);
    return status;
}

reef_status reef_experiment_lock(const char *directory, int *lock, reef_error *err) {
    // No lock is the value for release after a failure.
    *lock = -1;
    reef_status status = reef_cli_output_directory(directory, "results.jsonl", err);
    if (status != REEF_OK) return status;
    char *path = reef_cli_format("%s/lock", directory);
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    // An fcntl lock ends with the process, so a crash leaves nothing to clean up.
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (*lock < 0)
        status = reef_fail(err, REEF_ERR_IO, "cannot open %.160s: %s", path, strerror(errno));
    // Two runs in one directory would train the same cells twice.
    else if (fcntl(*lock, F_SETLK, &whole) != 0)
        status = reef_fail(err, REEF_ERR_BUSY,
                           "another experiment is at work in %.160s: "
                           "wait for it, or choose another --work",
                           directory);
    free(path);
    return status;
}

// ---- the child ----------------------------------------------------------------------------------

static void report_share(void *context, double share) {
    double *reported = context, now = reef_seconds();
    if (now - *reported < PROGRESS_SECONDS) return;
    *reported = now;
    if (write(PROGRESS_FD, &share, sizeof(share)) < 0) return; // without a reader nothing is lost
}

static char *row_path(const reef_experiment_work *work, const reef_experiment_cell *cell) {
    return reef_cli_format("%s/%s.row", work->directory, cell->id);
}

static reef_status leave_row(const reef_experiment_work *work,
                             const reef_experiment_cell *cell,
                             const json_t *row,
                             reef_error *err) {
    // The parent reads the file; a pipe could break in the middle of a row.
    char *path = row_path(work, cell);
    char *text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17));
    reef_status status = text != NULL
                             ? write_whole(path, text, strlen(text), err)
                             : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a row of results");
    free(text);
    free(path);
    return status;
}

reef_status reef_experiment_cell_leave(const experiment *e,
                                       const reef_experiment_work *given,
                                       const reef_experiment_cell *cell,
                                       reef_error *err) {
    double reported = 0;
    reef_experiment_work work = *given;
    // If started by hand it has no pipe, and the next file opened would get its number.
    struct stat info;
    // Only a pipe is taken for the parent's.
    bool is_heard = fstat(PROGRESS_FD, &info) == 0 && S_ISFIFO(info.st_mode);
    work.stopped = reef_cli_is_stopped;
    work.progress = is_heard ? report_share : NULL;
    work.context = &reported;
    // An interrupt lets the trainer commit before it ends.
    reef_cli_catch_signals(false);
    json_t *row = NULL;
    reef_error reason = {0};
    reef_status status = reef_experiment_cell_run(e, &work, cell, &row, &reason);
    // Stopped before its budget was used: no row is written, and the pool stays.
    if (status == REEF_OK && row == NULL) return REEF_OK;
    // A failure is a row too: the parent shows its message.
    if (status != REEF_OK)
        row = json_pack("{s:i, s:s}", "status", (int)status, "error", reason.message);
    status = leave_row(&work, cell, row, err);
    json_decref(row);
    return status;
}

// ---- the parent ---------------------------------------------------------------------------------

typedef struct job {
    pid_t pid; // 0: free
    int fd;
    const reef_experiment_cell *cell;
    double share;
} job;

typedef struct runner {
    const experiment *e;
    const reef_experiment_work *work;
    const reef_experiment_cells *cells;
    json_t *results;
    job jobs[JOBS_MAX];
    size_t job_count, running;
    double done; // FLOPs
    reef_cli_progress progress;
} runner;

// Runs in the child: executes this program again, for one cell.
static void exec_cell(const reef_experiment_work *work,
                      const reef_experiment_cell *cell,
                      pid_t parent,
                      int fd) {
    const char *argv[ARGUMENTS_MAX];
    size_t count = 0;
    // The arguments of the run, with the cell's name added.
    for (; work->arguments[count] != NULL && count + 3 < ARGUMENTS_MAX; count++)
        argv[count] = work->arguments[count];
    argv[count++] = "--cell";
    argv[count++] = cell->id;
    argv[count] = NULL;
    // If the parent dies, the row would never be read.
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before prctl().
    if (getppid() != parent || (fd != PROGRESS_FD && dup2(fd, PROGRESS_FD) < 0)) _exit(1);
    // The very program that runs, even if its file was replaced meanwhile.
    execv("/proc/self/exe", (char *const *)argv);
    // Without exit handlers: they belong to the parent.
    _exit(1);
}

static reef_status start_run(runner *r, job *j, const reef_experiment_cell *cell, reef_error *err) {
    int fds[2];
    pid_t parent = getpid();
    // A row left by a run that was killed before taking it would be taken for the new one.
    char *stale = row_path(r->work, cell);
    (void)unlink(stale);
    free(stale);
    if (pipe(fds) != 0)
        return reef_fail(err, REEF_ERR_IO, "cannot make a pipe: %s", strerror(errno));
    // The child executes at once, so no lock of the parent is held there.
    pid_t pid = fork();
    if (pid == 0) exec_cell(r->work, cell, parent, fds[1]);
    // Only the child keeps this end, so the pipe closes when it ends.
    (void)close(fds[1]);
    if (pid < 0) {
        (void)close(fds[0]);
        return reef_fail(err, REEF_ERR_IO, "cannot start a process: %s", strerror(errno));
    }
    // The parent reads what is there and must never wait for one child.
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    *j = (job){.pid = pid, .fd = fds[0], .cell = cell};
    r->running++;
    return REEF_OK;
}

static void remove_tree(const char *path) {
    static const char *const FILES[] = {"data.mdb", "lock.mdb", "writer.lock"};
    for (size_t i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
        char *file = reef_cli_format("%s/%s", path, FILES[i]);
        (void)unlink(file);
        free(file);
    }
    (void)rmdir(path);
}

// Is a cell that has no row yet, running or to be run, of the same pool?
static bool is_needed(const runner *r, const char *pool) {
    for (size_t i = 0; i < r->cells->count; i++) {
        const reef_experiment_cell *cell = &r->cells->items[i];
        if (strcmp(cell->pool, pool) == 0 && json_object_get(r->results, cell->id) == NULL)
            return true;
    }
    return false;
}

// Pools are as large as their models: of those of one system and budget only the best is kept, for
// the table of data sets.
static void drop_pools(const runner *r) {
    for (size_t i = 0; !r->work->keep_pools && i < r->cells->count; i++) {
        const reef_experiment_cell *cell = &r->cells->items[i];
        const reef_experiment_cell *best =
            reef_experiment_best(r->e, r->cells, r->results, cell->system, cell->budget);
        if (best == NULL || strcmp(best->pool, cell->pool) == 0 || is_needed(r, cell->pool))
            continue;
        char *path = reef_experiment_pool_path(r->work, cell);
        if (access(path, F_OK) == 0) remove_tree(path);
        free(path);
    }
}

static reef_status take_row(runner *r, const reef_experiment_cell *cell, reef_error *err) {
    char *path = row_path(r->work, cell);
    json_error_t reason;
    // Absent if the process was killed.
    json_t *row = json_load_file(path, 0, &reason);
    reef_status status = REEF_OK;
    const char *message = json_string_value(json_object_get(row, "error"));
    // Stored at once: the next crash must not cost this row.
    if (row != NULL && message == NULL) {
        json_object_set(r->results, cell->id, row);
        status = write_results(r->work->directory, r->results, err);
        // A pool is kept only while its row is missing, unless --keep-pools is given.
        if (status == REEF_OK) drop_pools(r);
    } else {
        json_int_t kind = json_integer_value(json_object_get(row, "status"));
        char *pool = reef_experiment_pool_path(r->work, cell);
        // The cell's own status is passed on, so that the exit code tells what happened.
        // A cell without a message was most likely killed by the kernel: memory is the usual
        // reason.
        status =
            reef_fail(err, message != NULL ? (reef_status)kind : REEF_ERR_IO,
                      "system %.24s, size %.24s, %.3g FLOPs, pool %.60s: %.120s", cell->system,
                      cell->size, cell->budget, pool,
                      message != NULL ? message : "its process ended without a word; run it again");
        free(pool);
    }
    (void)unlink(path);
    json_decref(row);
    free(path);
    return status;
}

// The child's end of the pipe is closed, so it has ended or is about to.
static reef_status finish_run(runner *r, job *j, reef_error *err) {
    int state = 0;
    pid_t ended;
    // A signal may interrupt the wait; the child is there until it is waited for.
    do ended = waitpid(j->pid, &state, 0);
    while (ended < 0 && errno == EINTR);
    const reef_experiment_cell *cell = j->cell;
    (void)close(j->fd);
    *j = (job){0};
    r->running--;
    char *path = row_path(r->work, cell);
    // A row that was left is taken, however the process ended.
    bool left = access(path, F_OK) == 0;
    free(path);
    bool ended_well = ended > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    // An interrupt may also reach the child before it can catch the signal.
    bool stopped = !left && (ended_well || reef_cli_is_stopped());
    if (stopped) return REEF_OK;
    // Progress counts FLOPs, so unequal cells advance the bar by what they cost.
    r->done += cell->budget;
    return take_row(r, cell, err);
}

static reef_status listen_to(runner *r, job *j, reef_error *err) {
    for (;;) {
        double share;
        ssize_t got = read(j->fd, &share, sizeof(share));
        if (got == (ssize_t)sizeof(share))
            j->share = share;
        else if (got == 0)
            return finish_run(r, j, err);
        else
            return REEF_OK; // nothing new
    }
}

static void print_run(runner *r) {
    double flops = r->done;
    for (size_t i = 0; i < r->job_count; i++)
        if (r->jobs[i].pid) flops += r->jobs[i].share * r->jobs[i].cell->budget;
    reef_cli_progress_show(&r->progress, (uint64_t)(flops / 1e6));
}

static reef_status wait_for_any(runner *r, reef_error *err) {
    struct pollfd fds[JOBS_MAX];
    nfds_t count = 0;
    for (size_t i = 0; i < r->job_count; i++)
        if (r->jobs[i].pid) fds[count++] = (struct pollfd){.fd = r->jobs[i].fd, .events = POLLIN};
    // With a time limit, so that an interrupt of this process is noticed.
    (void)poll(fds, count, POLL_MS);
    reef_status status = REEF_OK;
    for (size_t i = 0; i < r->job_count; i++) {
        if (!r->jobs[i].pid) continue;
        // All are served in every poll; the first error is the one reported.
        reef_error *first = status == REEF_OK ? err : NULL;
        reef_status one = listen_to(r, &r->jobs[i], first);
        // The first failure stays; the others end normally.
        if (status == REEF_OK) status = one;
    }
    // After each poll, so that the rate stays current while nothing ends.
    print_run(r);
    return status;
}

// They commit what they have and end.
static void stop_children(const runner *r) {
    for (size_t i = 0; i < r->job_count; i++)
        if (r->jobs[i].pid) (void)kill(r->jobs[i].pid, SIGTERM);
}

static const reef_experiment_cell *next_cell(const runner *r, size_t *next) {
    while (*next < r->cells->count) {
        const reef_experiment_cell *cell = &r->cells->items[(*next)++];
        if (json_object_get(r->results, cell->id) == NULL) return cell;
    }
    return NULL;
}

static job *free_job(runner *r) {
    for (size_t i = 0; i < r->job_count; i++)
        if (!r->jobs[i].pid) return &r->jobs[i];
    return NULL;
}

// Two cells that differ in what is measured alone share a pool: the second waits for the first.
static bool pool_is_taken(const runner *r, const reef_experiment_cell *cell) {
    for (size_t i = 0; i < r->job_count; i++)
        if (r->jobs[i].pid && strcmp(r->jobs[i].cell->pool, cell->pool) == 0) return true;
    return false;
}

static double wanted_flops(const reef_experiment_cells *cells, const json_t *results) {
    double flops = 0;
    for (size_t i = 0; i < cells->count; i++)
        if (json_object_get(results, cells->items[i].id) == NULL) flops += cells->items[i].budget;
    return flops;
}

reef_status reef_experiment_run(const experiment *e,
                                const reef_experiment_work *work,
                                const reef_experiment_cells *cells,
                                size_t jobs,
                                json_t *results,
                                bool *stopped,
                                reef_error *err) {
    runner r = {.e = e,
                .work = work,
                .cells = cells,
                .results = results,
                .job_count = jobs < JOBS_MAX ? jobs : JOBS_MAX};
    size_t next = 0;
    reef_status status = REEF_OK;
    // From here on an interrupt stops the children, and then this process.
    reef_cli_catch_signals(false);
    // In millions, because a total may exceed 2^64 FLOPs.
    reef_cli_progress_start(&r.progress, "experiment",
                            (uint64_t)(wanted_flops(cells, results) / 1e6), "MFLOP");
    const reef_experiment_cell *cell = next_cell(&r, &next);
    bool stopping = false;
    // Children that run are always waited for, also after a failure.
    while (r.running > 0 || (cell != NULL && !stopping)) {
        job *j = free_job(&r);
        // Two cells of one pool must not train at the same time.
        bool starts = !stopping && cell != NULL && j != NULL && !pool_is_taken(&r, cell);
        if (starts) {
            status = start_run(&r, j, cell, err);
            cell = next_cell(&r, &next);
            // Wait only if nothing could be started.
        } else {
            reef_status one = wait_for_any(&r, status == REEF_OK ? err : NULL);
            if (status == REEF_OK) status = one;
        }
        // After the first failure no new cell starts; running ones commit and end.
        if (stopping || (status == REEF_OK && !reef_cli_is_stopped())) continue;
        stopping = true;
        stop_children(&r);
    }
    reef_cli_progress_end(&r.progress);
    *stopped = reef_cli_is_stopped();
    return status;
}
