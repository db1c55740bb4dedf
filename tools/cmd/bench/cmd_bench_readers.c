// reef bench readers: whether training and evaluation in another process make each other wait.
//
// Two processes on a temporary pool, as reefd and `reef eval` are. The trainer, a forked child,
// trains and commits for a while alone and then for as long beside the reader; the reader evaluates
// a snapshot over and over. Both compute, so on few or busy cores both get slower beside each other
// without waiting for each other. Therefore each also reports what it waited: time in which it
// neither ran nor stood in line for a processor, but was blocked by a lock, the disk or anything
// else. That is exact with one thread each; with more, a process also waits for its own threads.
#include "cli_format.h"
#include "cli_table.h"
#include "commands.h"
#include "reef_clock.h"
#include "reef_snapshot.h"
#include "scratch_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS_DEFAULT 5
#define COMMIT_STEPS_DEFAULT 5
#define WARMUP_STEPS 5
#define TEXT_BYTES ((size_t)1 << 20) // trained on alternately
#define SCORED_BYTES 4096
#define SNAPSHOT "bench"

static const reef_cli_option OPTIONS[] = {
    {"seconds", "S", "how long to train alone, and again beside the reader (default: 5)"},
    {"commit-steps", "N", "commit after N steps (default: 5)"},
    {0},
};

const reef_cli_manual reef_bench_readers_manual = {
    .about =
        "Trains a temporary pool in one process, first alone and then while another process opens\n"
        "and evaluates a snapshot of it over and over, and prints how long each took at most, and\n"
        "for how long it was blocked, which is neither computing nor queueing for a processor.\n"
        "--threads counts for each of the two (default: 1).",
    .options = OPTIONS,
    .example = "reef bench readers\n"
               "reef bench readers --seconds 0.5 --layers 1 --d-model 32 --side 16\n"
               "reef bench readers --seconds 20 --json",
};

// ---- times --------------------------------------------------------------------------------------

/** Durations of one kind, in seconds. */
typedef struct times {
    double *seconds;
    size_t count, capacity;
} times;

typedef struct summary {
    uint64_t count;
    double median_ms, max_ms;
} summary;

static void note_time(times *t, double seconds) {
    if (t->count == t->capacity) {
        times larger = {.capacity = t->capacity ? 2 * t->capacity : 256};
        larger.seconds = reef_cli_alloc(larger.capacity, sizeof(double));
        larger.count = t->count;
        if (t->count) memcpy(larger.seconds, t->seconds, t->count * sizeof(double));
        free(t->seconds);
        *t = larger;
    }
    t->seconds[t->count++] = seconds;
}

/** A point in time, and how much of it this thread has spent running or ready to run. */
typedef struct moment {
    double wall, busy; // seconds; busy is NaN where the system does not tell
} moment;

static moment moment_now(void) {
    moment now = {.wall = reef_seconds(), .busy = NAN};
    unsigned long long ran = 0, queued = 0; // nanoseconds
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (file == NULL) return now;
    if (fscanf(file, "%llu %llu", &ran, &queued) == 2) now.busy = 1e-9 * (double)(ran + queued);
    fclose(file);
    return now;
}

// The system counts running time by ticks of some milliseconds, so a short wait can come out
// negative.
static double waited_between(moment from, moment to) {
    double waited = to.wall - from.wall - (to.busy - from.busy);
    return waited < 0 ? 0 : waited; // NaN stays
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Uses the times up.
static summary summarise(times *t) {
    summary s = {.count = t->count, .median_ms = NAN, .max_ms = NAN};
    if (t->count) {
        qsort(t->seconds, t->count, sizeof(double), by_size);
        s.median_ms = 1e3 * t->seconds[t->count / 2];
        s.max_ms = 1e3 * t->seconds[t->count - 1];
    }
    free(t->seconds);
    *t = (times){0};
    return s;
}

static json_t *summary_json(const summary *s) {
    return json_pack("{s:I, s:o, s:o}", "count", (json_int_t)s->count, "median_ms",
                     reef_cli_real(s->median_ms), "max_ms", reef_cli_real(s->max_ms));
}

// ---- the trainer's process ----------------------------------------------------------------------

typedef struct phase {
    summary step, commit;
    summary waited; // in each step and commit
} phase;

/** What the trainer's process reports after each phase, or after a failure. */
typedef struct message {
    reef_error error;
    phase phase;
} message;

typedef struct plan {
    const char *path; // of the pool
    double seconds;
    uint64_t commit_steps;
    size_t threads;
} plan;

static reef_status step(reef_trainer *trainer, const uint8_t *text, size_t *at, reef_error *err) {
    for (size_t taken = 0, ran = 0; ran == 0; *at = (*at + taken) % TEXT_BYTES) {
        reef_status status =
            reef_trainer_feed(trainer, "bench", text + *at, TEXT_BYTES - *at, &taken, &ran, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

static reef_status train_for(const plan *p,
                             reef_trainer *trainer,
                             const uint8_t *text,
                             size_t *at,
                             phase *out,
                             reef_error *err) {
    times steps = {0}, commits = {0}, waited = {0};
    reef_status status = REEF_OK;
    reef_commit commit;
    moment begin = moment_now(), last = begin;
    // By the clock, not by steps: both phases last equally long.
    while (status == REEF_OK && last.wall < begin.wall + p->seconds) {
        // A commit whenever so many steps have passed, as in the daemon.
        bool due = steps.count >= p->commit_steps * (commits.count + 1);
        status = due ? reef_trainer_commit(trainer, &commit, err) : step(trainer, text, at, err);
        moment now = moment_now();
        // Steps and commits are kept apart: a reader may slow one and not the other.
        note_time(due ? &commits : &steps, now.wall - last.wall);
        // Time that passed without using the CPU, which is what waiting for another process looks
        // like.
        note_time(&waited, waited_between(last, now));
        last = now;
    }
    *out = (phase){
        .step = summarise(&steps), .commit = summarise(&commits), .waited = summarise(&waited)};
    return status;
}

static reef_status warm_up(reef_trainer *trainer,
                           const uint8_t *text,
                           size_t *at,
                           reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; i < WARMUP_STEPS && status == REEF_OK; i++)
        status = step(trainer, text, at, err);
    reef_snapshot snapshot;
    return status == REEF_OK ? reef_trainer_snapshot(trainer, SNAPSHOT, &snapshot, err) : status;
}

static void send_message(int fd, const message *m) {
    // Less than PIPE_BUF: whole or not at all. A parent that is gone needs no answer.
    if (write(fd, m, sizeof(*m)) != (ssize_t)sizeof(*m)) _exit(REEF_ERR_IO);
}

static reef_status train_alone_and_beside(const plan *p, int fd, message *m) {
    // A process of its own: reader and trainer share nothing but the file, as in real use.
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    size_t at = 0;
    uint8_t *text = reef_bench_text(TEXT_BYTES);
    reef_status status =
        reef_store_open(&store, p->path, &(reef_store_options){.write = true}, &m->error);
    if (status != REEF_OK) goto cleanup;
    status = reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = p->threads},
                               &m->error);
    if (status != REEF_OK) goto cleanup;
    // The first steps page memory in and belong to neither phase.
    status = warm_up(trainer, text, &at, &m->error);
    if (status != REEF_OK) goto cleanup;
    status = train_for(p, trainer, text, &at, &m->phase, &m->error);
    if (status != REEF_OK) goto cleanup;
    m->error.status = REEF_OK; // whatever was tried on the way
    send_message(fd, m);       // alone; the reader begins now
    status = train_for(p, trainer, text, &at, &m->phase, &m->error);

cleanup:
    // All closes accept NULL.
    reef_trainer_close(trainer);
    reef_store_close(store);
    free(text);
    return status;
}

static void run_trainer(const plan *p, int fd) {
    message m = {0};
    m.error.status = train_alone_and_beside(p, fd, &m);
    send_message(fd, &m);
    close(fd);
}

static reef_status receive_message(int fd, message *m, reef_error *err) {
    ssize_t count = 0;
    do {
        count = read(fd, m, sizeof(*m));
    } while (count < 0 && errno == EINTR);
    if (count != (ssize_t)sizeof(*m))
        return reef_fail(err, REEF_ERR_IO, "the training process ended without an answer");
    if (m->error.status != REEF_OK) *err = m->error;
    return m->error.status;
}

// ---- the reader's process -----------------------------------------------------------------------

typedef struct reader {
    times begin, open, score;
    times waited;      // in each of them
    double first_bits; // of the first evaluation
    bool same_bits;    // so far
} reader;

// How long a read transaction takes to begin, by itself.
static reef_status begin_once(reader *r, reef_store *store, reef_error *err) {
    reef_txn *txn = NULL;
    moment begin = moment_now();
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    moment begun = moment_now();
    reef_txn_abort(txn);
    note_time(&r->begin, begun.wall - begin.wall);
    note_time(&r->waited, waited_between(begin, begun));
    return status;
}

static reef_status evaluate_once(
    const plan *p, reader *r, reef_store *store, const uint8_t *text, reef_error *err) {
    reef_model *model = NULL;
    reef_score score = {0};
    // Opening copies the snapshot, evaluating uses the copy: each has its own row in the table.
    moment begin = moment_now();
    reef_status status =
        reef_model_open(&model, store, SNAPSHOT, &(reef_model_options){.threads = p->threads}, err);
    moment opened = moment_now();
    if (status == REEF_OK)
        status = reef_model_score(model, text, SCORED_BYTES, NULL, &score, NULL, NULL, err);
    moment scored = moment_now();
    // The copy is freed before the next one is made.
    reef_model_close(model);
    note_time(&r->open, opened.wall - begin.wall);
    note_time(&r->score, scored.wall - opened.wall);
    note_time(&r->waited, waited_between(begin, opened));
    note_time(&r->waited, waited_between(opened, scored));
    // The first evaluation is what all the others are compared with.
    if (r->score.count == 1) r->first_bits = score.bits;
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are what must be the same.
    r->same_bits = r->same_bits && memcmp(&r->first_bits, &score.bits, sizeof(double)) == 0;
    return status;
}

// Until the trainer's process has something to tell.
static reef_status evaluate_on(const plan *p, int fd, reader *r, reef_error *err) {
    reef_store *store = NULL;
    uint8_t *text = reef_bench_text(SCORED_BYTES);
    struct pollfd pipe = {.fd = fd, .events = POLLIN};
    reef_status status = reef_store_open(&store, p->path, &(reef_store_options){0}, err);
    // The loop checks the pipe only between evaluations, so none is interrupted.
    while (status == REEF_OK && poll(&pipe, 1, 0) == 0) {
        // A transaction is begun and ended by itself first, as its cost is what LMDB's readers pay.
        status = begin_once(r, store, err);
        if (status == REEF_OK) status = evaluate_once(p, r, store, text, err);
    }
    reef_store_close(store);
    free(text);
    return status;
}

// ---- both ---------------------------------------------------------------------------------------

typedef struct findings {
    phase alone, beside;
    summary begin, open, score, waited;
    bool same_bits;
} findings;

static reef_status read_beside(const plan *p, int fd, findings *out, reef_error *err) {
    message alone, beside;
    reader r = {.same_bits = true};
    // The first message: the trainer has measured itself alone and is about to train on.
    reef_status status = receive_message(fd, &alone, err);
    if (status == REEF_OK) status = evaluate_on(p, fd, &r, err);
    // The second message has been waiting since the reader stopped.
    if (status == REEF_OK) status = receive_message(fd, &beside, err);
    // The trainer's figures are taken only when both phases were complete.
    if (status == REEF_OK) {
        out->alone = alone.phase;
        out->beside = beside.phase;
    }
    out->begin = summarise(&r.begin);
    out->open = summarise(&r.open);
    out->score = summarise(&r.score);
    out->waited = summarise(&r.waited);
    out->same_bits = r.same_bits;
    return status;
}

static reef_status measure_both(const plan *p, findings *out, reef_error *err) {
    int ends[2];
    if (pipe(ends) != 0)
        return reef_fail(err, REEF_ERR_IO, "cannot make a pipe: %s", strerror(errno));
    // Standard output and error are shared with the child.
    fflush(NULL); // or the child would print what is buffered again
    pid_t child = fork();
    if (child == 0) {
        // The child only writes.
        close(ends[0]);
        run_trainer(p, ends[1]);
        // No handlers at exit: they belong to the parent.
        _exit(0);
    }
    // Or the end of file would never come when the child dies.
    close(ends[1]);
    reef_status status = child < 0 ? reef_fail(err, REEF_ERR_NO_MEMORY,
                                               "cannot start a process: %s", strerror(errno))
                                   : read_beside(p, ends[0], out, err);
    close(ends[0]); // a child that is still at it ends with SIGPIPE
    // Waited for, so that the benchmark leaves no process behind.
    if (child > 0) (void)waitpid(child, NULL, 0);
    return status;
}

static json_t *phase_json(const phase *ph) {
    return json_pack("{s:o, s:o, s:o}", "step", summary_json(&ph->step), "commit",
                     summary_json(&ph->commit), "waited", summary_json(&ph->waited));
}

static json_t *findings_json(const plan *p, const findings *f) {
    json_t *trainer =
        json_pack("{s:o, s:o}", "alone", phase_json(&f->alone), "beside", phase_json(&f->beside));
    json_t *evaluation = json_pack("{s:o, s:o, s:o, s:o, s:b}", "begin", summary_json(&f->begin),
                                   "open", summary_json(&f->open), "score", summary_json(&f->score),
                                   "waited", summary_json(&f->waited), "same_bits", f->same_bits);
    return json_pack("{s:o, s:I, s:s, s:o, s:o}", "seconds", reef_cli_real(p->seconds), "threads",
                     (json_int_t)p->threads, "kernels", reef_kernels_name(), "trainer", trainer,
                     "reader", evaluation);
}

static void print_row(reef_cli_table *table, const char *name, const summary *s) {
    char words[CLI_WORD_BYTES];
    reef_cli_table_cell(table, "%s", name);
    reef_cli_table_cell(table, "%s", reef_cli_count(s->count, words));
    reef_cli_table_cell(table, "%.2f", s->median_ms);
    reef_cli_table_cell(table, "%.2f", s->max_ms);
}

static void print_findings(const findings *f) {
    static const char *const HEADING[] = {"", "count", "median ms", "longest ms"};
    reef_cli_table *table = reef_cli_table_new("<>>>", HEADING);
    print_row(table, "training alone: a step", &f->alone.step);
    // Indented rows belong to the row above them.
    print_row(table, "  a commit", &f->alone.commit);
    print_row(table, "  blocked in one of them", &f->alone.waited);
    print_row(table, "beside the reader: a step", &f->beside.step);
    print_row(table, "  a commit", &f->beside.commit);
    print_row(table, "  blocked in one of them", &f->beside.waited);
    print_row(table, "reader: begin a transaction", &f->begin);
    print_row(table, "  copy the snapshot", &f->open); // holds a transaction for part of it
    print_row(table, "  evaluate the copy", &f->score);
    print_row(table, "  blocked in one of them", &f->waited);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    // A change would break the promise of snapshots, so it is printed as what it is.
    printf("the snapshot %s\n", f->same_bits ? "gave the same bits every time"
                                             : "CHANGED between evaluations: this is a bug");
}

reef_status reef_cmd_bench_readers(reef_cli_call *cli, reef_error *err) {
    plan p = {.seconds = SECONDS_DEFAULT,
              .commit_steps = COMMIT_STEPS_DEFAULT,
              // One thread unless asked for, so that trainer and reader fit on a machine with two
              // cores.
              .threads = cli->threads ? cli->threads : 1};
    findings found = {0};
    reef_config config;
    reef_bench_directory directory = {0};
    reef_status status = reef_cli_number(cli, "seconds", 0.01, 3600, &p.seconds, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "commit-steps", 1, 1000000, &p.commit_steps, err);
    if (status == REEF_OK) status = reef_cli_config(cli, &config, err);
    // The text is generated, so a configuration for vectors is refused.
    if (status == REEF_OK) status = reef_bench_wants_text(&config, err);
    if (status != REEF_OK) return status;
    // No boundary of its own accord: a seal in one of the phases would not be comparable.
    if (reef_cli_text(cli, "boundaries") == NULL) config.boundaries = REEF_BOUNDARIES_GIVEN;
    status = reef_bench_directory_new(&directory, err);
    if (status != REEF_OK) return status;
    char *path = reef_cli_format("%s/pool", directory.path);
    p.path = path;
    status = reef_pool_init(path, &config, err);
    if (status == REEF_OK) status = measure_both(&p, &found, err);
    free(path);
    reef_bench_directory_remove(&directory);
    // The directory is removed before any answer, also after a failure.
    if (status != REEF_OK) return status;
    if (cli->json) return reef_cli_reply(cli, findings_json(&p, &found), err);
    print_findings(&found);
    return REEF_OK;
}
