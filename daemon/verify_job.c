// A check for a client; see service.h.
#include "service.h"

#include "reef_log.h"
#include "reef_pool_check.h"
#include "reef_pool_json.h"
#include "reef_process.h"
#include "reef_system.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define DAMAGE_REPORTED_MAX 1000 // lines; counting continues
#define REPLY_BYTES_MAX (1u << 20)
#define ROOM_FIRST 65536
#define DESCRIPTORS_MAX 4096 // more than a daemon with all its clients and sources has

// ---- the other life -----------------------------------------------------------------------------

static void on_damage(void *context, const char *what) {
    json_t *lines = context;
    if (json_array_size(lines) < DAMAGE_REPORTED_MAX)
        json_array_append_new(lines, reef_json_text(what));
}

// The document of `reef verify --json`. What the check could not get past is one more damage.
static json_t *check_pool(const char *pool, const reef_verify_scope *scope) {
    json_t *lines = json_array();
    reef_error err = {.status = REEF_OK};
    reef_check_report report = {0};
    // The same options as `reef verify`: size checks included, damage collected instead of printed.
    const reef_check_options options = {.quick = scope->quick,
                                        .sample = scope->percent / 100,
                                        .seed = scope->seed,
                                        .also = reef_pool_check_sizes,
                                        .on_damage = on_damage,
                                        .context = lines};
    uint64_t begin = uv_hrtime();
    reef_status status = reef_store_verify(pool, &options, &report, &err);
    double seconds = (double)(uv_hrtime() - begin) / 1e9;
    // Damage is a result of a check, not an error. Anything else means that the check could not be
    // done.
    if (status != REEF_OK && status != REEF_ERR_CORRUPT) {
        json_decref(lines);
        return reef_reply_error(&err);
    }
    if (status == REEF_ERR_CORRUPT) {
        // What stopped the walk is one more damage.
        on_damage(lines, err.message);
        report.damaged++;
    }
    return reef_check_json(reef_json_text(pool), &options, &report, lines, scope->percent, seconds);
}

// LMDB's descriptor of the pool, open for writing, comes along with an exec.
static void close_inherited(void) {
    for (int fd = STDERR_FILENO + 1; fd < DESCRIPTORS_MAX; fd++) (void)close(fd);
}

// Arguments: pool, quick (0 or 1), percent, seed.
int reef_verify_job_main(int argc, char **argv) {
    if (argc != 6) return reef_status_exit_code(REEF_ERR_INVALID);
    // The daemon's sockets and the writer's lock must not live on in this process.
    close_inherited();
    // If the daemon dies nobody would read the reply.
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Training has priority over a check.
    reef_thread_give_way(REEF_NICENESS_CHECK);
    const reef_verify_scope scope = {.quick = argv[3][0] == '1',
                                     .percent = strtod(argv[4], NULL),
                                     .seed = strtoull(argv[5], NULL, 10)};
    json_t *reply = check_pool(argv[2], &scope);
    // The reply is one JSON document on standard output, which is a pipe to the daemon.
    int failed = json_dumpf(reply, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(reply);
    return failed || fflush(stdout) != 0 ? reef_status_exit_code(REEF_ERR_IO) : 0;
}

// ---- the reply ----------------------------------------------------------------------------------

static json_t *read_result(const reef_verify_job *job, reef_error *err) {
    json_t *reply =
        job->used ? json_loadb(job->text, job->used, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const json_t *error = json_object_get(reply, "error");
    if (json_is_object(reply) && error == NULL) return reply;
    const char *message = json_string_value(json_object_get(error, "message"));
    (void)reef_fail(err, REEF_ERR_IO, "%s",
                    message != NULL ? message : "the check ended before it answered");
    json_decref(reply);
    return NULL;
}

static void finish_job(reef_verify_job *job) {
    reef_error err = {.status = REEF_OK};
    json_t *result = job->untold ? NULL : read_result(job, &err);
    free(job->text);
    job->text = NULL;
    job->used = job->room = 0;
    job->running = false;
    if (!job->untold) job->on_done(job->context, result, &err);
}

static void on_closed(uv_handle_t *handle) {
    reef_verify_job *job = handle->data;
    if (--job->open == 0) finish_job(job);
}

static void close_when_done(reef_verify_job *job) {
    if (!job->exited || !job->ended) return;
    uv_close((uv_handle_t *)&job->process, on_closed);
    uv_close((uv_handle_t *)&job->pipe, on_closed);
}

static void on_exit_of(uv_process_t *process, int64_t code, int number) {
    reef_verify_job *job = process->data;
    (void)code; // the reply says more
    (void)number;
    job->exited = true;
    close_when_done(job);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    (void)suggested;
    reef_verify_job *job = handle->data;
    // Bounded: a pool damaged everywhere could fill any memory with reports.
    if (job->used == job->room && job->room < REPLY_BYTES_MAX) {
        size_t room = job->room ? 2 * job->room : ROOM_FIRST;
        char *text = realloc(job->text, room);
        if (text != NULL) {
            job->text = text;
            job->room = room;
        }
    }
    // Without room libuv reports UV_ENOBUFS, and the output is not JSON.
    *buffer = uv_buf_init(job->text + job->used, (unsigned)(job->room - job->used));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    (void)buffer;
    reef_verify_job *job = stream->data;
    if (count > 0) job->used += (size_t)count;
    if (count >= 0) return;
    (void)uv_read_stop(stream);
    job->ended = true;
    close_when_done(job);
}

// ---- the process --------------------------------------------------------------------------------

static int spawn_reefd(reef_verify_job *job, const reef_verify_scope *scope) {
    char quick[2], percent[40], seed[24];
    // The running program itself: its file may have been replaced by an upgrade.
    char path[] = "/proc/self/exe";
    snprintf(quick, sizeof(quick), "%d", scope->quick);
    snprintf(percent, sizeof(percent), "%.17g", scope->percent);
    snprintf(seed, sizeof(seed), "%" PRIu64, scope->seed);
    char name[] = "reefd", argument[] = REEF_VERIFY_ARGUMENT, *pool = strdup(job->pool);
    if (pool == NULL) return UV_ENOMEM;
    char *arguments[] = {name, argument, pool, quick, percent, seed, NULL};
    uv_stdio_container_t streams[] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data = {.stream = (uv_stream_t *)&job->pipe}},
        // Messages of libraries on standard error are not part of the reply.
        {.flags = UV_IGNORE},
    };
    // In a group of its own: it has a child itself, and both are to end at once.
    const uv_process_options_t options = {.exit_cb = on_exit_of,
                                          .file = path,
                                          .args = arguments,
                                          .flags = UV_PROCESS_DETACHED,
                                          .stdio = streams,
                                          .stdio_count = 3};
    int code = uv_spawn(job->loop, &job->process, &options);
    free(pool);
    return code;
}

reef_status reef_verify_job_start(reef_verify_job *job,
                                  const reef_verify_scope *scope,
                                  reef_error *err) {
    // One check at a time: two would only slow each other and training.
    if (job->running)
        return reef_fail(err, REEF_ERR_BUSY, "the pool is being checked already; ask again later");
    job->process.data = job->pipe.data = job;
    job->exited = job->ended = job->untold = false;
    // The process and its pipe end in any order; the job is done when both have.
    int code = uv_pipe_init(job->loop, &job->pipe, 0); // cannot fail
    if (code == 0) code = spawn_reefd(job, scope);
    if (code == 0) code = uv_read_start((uv_stream_t *)&job->pipe, on_alloc, on_read);
    job->running = true;
    job->open = 2;
    if (code == 0) return REEF_OK;
    // A handle that libuv has seen is closed by libuv, also after a failed start; nobody is
    // notified twice.
    job->untold = true;
    uv_close((uv_handle_t *)&job->process, on_closed);
    uv_close((uv_handle_t *)&job->pipe, on_closed);
    return reef_fail(err, REEF_ERR_IO, "cannot start a process to check pool %.120s: %s", job->pool,
                     uv_strerror(code));
}

void reef_verify_job_close(reef_verify_job *job) {
    if (!job->running) return;
    bool started = !job->untold; // no process was started then, and group 0 is our own
    job->untold = true;
    if (started && !job->exited) (void)kill(-job->process.pid, SIGKILL);
    // Its end is still to be seen by the loop, which then closes both handles.
}
