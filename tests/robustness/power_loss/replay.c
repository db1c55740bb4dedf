// Replays the writes of watched programs to pools' data files and cuts the power in a thousand
// places: builds what the disk could hold then, and asks `reef_store_verify` which pool it is. It
// must be sound, and one of the two that the run itself told of: the last commit that had been
// acknowledged before the cut, or the one that was on its way. A file that is not in place yet must
// not be read; one that is in place must be whole.
//
// usage: power_loss_replay EVENTS DIRECTORY [--states N] [--go-on N] [--seed N]
//   --states  places and states to try, 1000
//   --go-on   of so many states one is opened for writing, committed to and checked again, 20
// DIRECTORY is for the pool that every state becomes.
#include "no_fork.h"

#include "history.h"

#include "draw.h"
#include "reef_pool_check.h"
#include "reef_store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX 64
#define STAGING_FILE "/unfinished/data.mdb" // a file that is being made

typedef struct pool_file {
    disk_file disk;
    bool in_place, name_durable;
    char directory[512]; // that a sync of makes the name durable
    const event *last;   // commit event so far
    uint64_t writes, commits;
} pool_file;

typedef struct replay {
    history history;
    pool_file files[FILES_MAX];
    size_t file_count;
    uint32_t *states_at; // how many to try after each event
    char *pool, *data;
    content state;
    uint64_t seed, go_on_every;
    uint64_t states, absent, on_last, on_next, went_on, failures, total;
    time_t began;
    bool terminal;
} replay;

static void die(const char *what, const char *on) {
    fprintf(stderr, "power loss: cannot %s %s\n", what, on);
    exit(70);
}

static pool_file *file_of(replay *r, uint64_t id) {
    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].disk.file == id) return r->files + i;
    return NULL;
}

// ---- names --------------------------------------------------------------------------------------

static void set_directory(pool_file *f, const char *path) {
    snprintf(f->directory, sizeof(f->directory), "%s", path);
    char *slash = strrchr(f->directory, '/');
    if (slash != NULL) *slash = '\0';
}

static void on_name(replay *r, const event *e) {
    char path[512];
    if (file_of(r, e->file) != NULL) return; // another program has opened it
    if (r->file_count == FILES_MAX || e->bytes >= sizeof(path)) die("remember", "a file");
    memcpy(path, e->payload, e->bytes);
    path[e->bytes] = '\0';
    pool_file *f = r->files + r->file_count++;
    f->disk.file = e->file;
    size_t suffix = strlen(STAGING_FILE);
    f->in_place = e->bytes < suffix || strcmp(path + e->bytes - suffix, STAGING_FILE) != 0;
    f->name_durable = f->in_place;
    set_directory(f, path);
}

static void on_rename(replay *r, const event *e) {
    char path[512];
    pool_file *f = file_of(r, e->file);
    if (f == NULL || e->bytes >= sizeof(path)) die("follow", "a rename");
    memcpy(path, e->payload, e->bytes);
    path[e->bytes] = '\0';
    f->in_place = true;
    set_directory(f, path);
}

static void on_sync_directory(replay *r, const event *e) {
    for (size_t i = 0; i < r->file_count; i++) {
        pool_file *f = r->files + i;
        if (f->in_place && strlen(f->directory) == e->bytes &&
            memcmp(f->directory, e->payload, e->bytes) == 0)
            f->name_durable = true;
    }
}

static void advance(replay *r, const event *e) {
    if (e->kind == EVENT_NAME) on_name(r, e);
    if (e->kind == EVENT_RENAME) on_rename(r, e);
    if (e->kind == EVENT_SYNC_DIR) on_sync_directory(r, e);
    pool_file *f = file_of(r, e->file);
    if (f == NULL) return;
    disk_file_advance(&f->disk, e);
    if (e->kind == EVENT_COMMIT) {
        if (f->last == NULL || f->last->offset != e->offset) f->commits++;
        f->last = e;
    }
    f->writes += e->kind == EVENT_WRITE || e->kind == EVENT_WRITE_NOW;
}

// ---- one state ----------------------------------------------------------------------------------

static void fail_state(replay *r, size_t at, const char *what) {
    r->failures++;
    fprintf(stderr, "FAILED: state %" PRIu64 ", after event %zu: %s\n", r->states, at, what);
}

static void on_damage(void *context, const char *what) {
    (void)context;
    fprintf(stderr, "  %s\n", what);
}

static void place(const replay *r) {
    int fd = open(r->data, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, r->state.data, r->state.bytes) != (ssize_t)r->state.bytes)
        die("write", r->data);
    close(fd);
}

// The first commit event of a file after `at` that says something new.
static const event *next_commit(const replay *r, const pool_file *f, size_t at) {
    for (size_t i = at + 1; i < r->history.count; i++) {
        const event *e = r->history.events + i;
        if (e->kind == EVENT_COMMIT && e->file == f->disk.file &&
            (f->last == NULL || e->offset != f->last->offset))
            return e;
    }
    return NULL;
}

static const event *next_write(const replay *r, const pool_file *f, size_t at) {
    if (at + 1 >= r->history.count) return NULL;
    const event *e = r->history.events + at + 1;
    bool write = e->kind == EVENT_WRITE || e->kind == EVENT_WRITE_NOW || e->kind == EVENT_TRUNCATE;
    return write && e->file == f->disk.file ? e : NULL;
}

static bool is_commit(const event *e, const reef_check_report *report) {
    return e != NULL && e->offset == report->commits && e->bytes == ROOT_BYTES &&
           memcmp(e->payload, report->root, ROOT_BYTES) == 0;
}

// A pool that survived is a pool: it takes the next commit.
static void go_on(replay *r, size_t at, const reef_check_report *before) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_commit commit = {0};
    reef_check_report report;
    reef_status status =
        reef_store_open(&store, r->pool, &(reef_store_options){.write = true}, &err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err);
    if (status == REEF_OK) {
        status = reef_commit_read(txn, &commit, &err);
        if (status == REEF_ERR_NOT_FOUND) status = REEF_OK; // made, but never trained
    }
    if (status == REEF_OK)
        status = reef_timeline_append(txn, "{\"event\": \"power came back\"}", &err);
    if (status == REEF_OK) {
        status = reef_txn_commit(txn, &commit, &err);
    } else {
        reef_txn_abort(txn);
    }
    reef_store_close(store);
    if (status == REEF_OK)
        status = reef_store_verify(r->pool, &(reef_check_options){.on_damage = on_damage}, &report,
                                   &err);
    if (status != REEF_OK)
        fail_state(r, at, err.message);
    else if (report.damaged > 0 || report.commits != before->commits + 1)
        fail_state(r, at, "the next commit left a damaged pool");
    r->went_on++;
}

static void try_state(replay *r, pool_file *f, size_t at) {
    reef_error err;
    reef_check_report report;
    uint64_t random = r->seed ^ (r->states * UINT64_C(0x9e3779b97f4a7c15)); // of this state alone
    r->states++;
    if (!f->in_place) {
        r->absent++;
        return;
    }
    const event *in_flight = draw_bits(&random) % 2 == 0 ? next_write(r, f, at) : NULL;
    disk_file_cut(&f->disk, in_flight, &random, &r->state);
    place(r);
    reef_status status =
        reef_store_verify(r->pool, &(reef_check_options){.on_damage = on_damage}, &report, &err);
    if (status != REEF_OK) {
        fail_state(r, at, err.message);
        return;
    }
    if (report.damaged > 0) {
        fail_state(r, at, "the pool is damaged");
        return;
    }
    bool last = is_commit(f->last, &report);
    bool next = !last && is_commit(next_commit(r, f, at), &report);
    if (!last && !next) {
        char what[128];
        snprintf(what, sizeof(what),
                 "the pool is as of commit %" PRIu64 ", acknowledged was commit %" PRIu64,
                 report.commits, f->last == NULL ? 0 : f->last->offset);
        fail_state(r, at, what);
        return;
    }
    r->on_last += last;
    r->on_next += next;
    if (r->go_on_every > 0 && r->states % r->go_on_every == 0) go_on(r, at, &report);
}

static void progress(const replay *r) {
    if (!r->terminal || r->states % 16 != 0) return;
    double seconds = difftime(time(NULL), r->began);
    double rate = seconds > 0 ? (double)r->states / seconds : 0;
    fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " states, %.0f/s, %.0f s left ", r->states,
            r->total, rate, rate > 0 ? (double)(r->total - r->states) / rate : 0);
}

// ---- the whole ----------------------------------------------------------------------------------

static bool is_place(const event *e) {
    return e->kind == EVENT_WRITE || e->kind == EVENT_WRITE_NOW || e->kind == EVENT_SYNC ||
           e->kind == EVENT_TRUNCATE || e->kind == EVENT_RENAME || e->kind == EVENT_COMMIT;
}

static void choose_places(replay *r) {
    size_t *places = malloc((r->history.count + 1) * sizeof(*places)), count = 0;
    r->states_at = calloc(r->history.count + 1, sizeof(*r->states_at));
    if (places == NULL || r->states_at == NULL) die("allocate", "places");
    for (size_t i = 0; i < r->history.count; i++)
        if (is_place(r->history.events + i)) places[count++] = i;
    if (count == 0) die("find anything to replay in", "the events");
    uint64_t random = r->seed;
    for (uint64_t i = 0; i < r->total; i++) r->states_at[places[draw_bits(&random) % count]]++;
    free(places);
}

static void run(replay *r) {
    for (size_t i = 0; i < r->history.count; i++) {
        const event *e = r->history.events + i;
        advance(r, e);
        for (uint32_t k = 0; k < r->states_at[i]; k++) {
            try_state(r, file_of(r, e->file), i);
            progress(r);
        }
    }
    if (r->terminal) fprintf(stderr, "\r\033[K");
}

// In the end every file is in place, for good.
static void check_names(replay *r) {
    for (size_t i = 0; i < r->file_count; i++) {
        const pool_file *f = r->files + i;
        printf("%-32s  %6" PRIu64 " writes  %5" PRIu64 " commits  %8zu bytes\n",
               strrchr(f->directory, '/') == NULL ? f->directory : strrchr(f->directory, '/') + 1,
               f->writes, f->commits, f->disk.durable.bytes);
        if (!f->in_place)
            fail_state(r, r->history.count, "a data file was never moved to its place");
        if (!f->name_durable)
            fail_state(r, r->history.count, "the directory of a data file was not synced");
        if (f->disk.pending_count > 0)
            fail_state(r, r->history.count, "something was never synced");
    }
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t value) {
    for (int i = 3; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0) return strtoull(argv[i + 1], NULL, 10);
    return value;
}

int main(int argc, char **argv) {
    static replay r;
    if (argc < 3 || argc % 2 == 0) {
        fprintf(stderr,
                "usage: power_loss_replay EVENTS DIRECTORY [--states N] [--go-on N] [--seed N]\n");
        return 64;
    }
    no_fork_init();
    r.total = option(argc, argv, "--states", 1000);
    r.go_on_every = option(argc, argv, "--go-on", 20);
    r.seed = option(argc, argv, "--seed", 1);
    r.terminal = isatty(STDERR_FILENO);
    r.began = time(NULL);
    if (!history_load(&r.history, argv[1])) return 70;
    size_t bytes = strlen(argv[2]) + sizeof("/replayed/data.mdb");
    r.pool = malloc(bytes);
    r.data = malloc(bytes);
    if (r.pool == NULL || r.data == NULL) die("allocate", "paths");
    snprintf(r.pool, bytes, "%s/replayed", argv[2]);
    snprintf(r.data, bytes, "%s/data.mdb", r.pool);
    if (mkdir(r.pool, 0700) != 0) die("make", r.pool);
    choose_places(&r);
    printf("seed %" PRIu64 ", %zu events\n", r.seed, r.history.count);
    fflush(stdout);
    run(&r);
    check_names(&r);
    printf("%" PRIu64 " states: %" PRIu64 " as of the last commit that was acknowledged, %" PRIu64
           " as of the one on its way, %" PRIu64 " before the file was in place; %" PRIu64
           " went on\n",
           r.states, r.on_last, r.on_next, r.absent, r.went_on);
    printf(r.failures == 0 ? "all as it must be\n" : "FAILED: %" PRIu64 " states\n", r.failures);
    for (size_t i = 0; i < r.file_count; i++) disk_file_release(&r.files[i].disk);
    content_release(&r.state);
    history_release(&r.history);
    free(r.states_at);
    free(r.pool);
    free(r.data);
    return r.failures == 0 ? 0 : 1;
}
