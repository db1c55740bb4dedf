// reef train: train a pool on files in this process, and measure on the way what was learned and
// kept.
//
//   files --> reef_train_stream --> reef_trainer_feed ... up to the next point of the plan
//                                     |
//                                  commit --> every domain, task-free and as of the last seal
//                                     |
//                               --results FILE, so that a killed run resumes
//
// Measuring reads the last commit only, so it leaves no trace in the training.
#include "cli_format.h"
#include "cli_model.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_signals.h"
#include "commands.h"
#include "eval_set.h"
#include "reef_clock.h"
#include "reef_pool_json.h"
#include "reef_usage.h"
#include "train_budget.h"
#include "train_record.h"
#include "train_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMIT_STEPS_DEFAULT 50
#define COMMIT_STEPS_MAX 1000000000
#define COMMIT_SECONDS 10.0
#define OFFSET_COUNT_MAX 64
#define COST_REPEATS_DEFAULT 5
#define COST_REPEATS_MAX 1000
#define COST_BYTES_MAX ((size_t)65536) // of each domain, for the comparison of costs
// Of --results: jansson holds the document in memory at several times its size.
#define RESULTS_BYTES_MAX ((off_t)1 << 28)

static const reef_cli_option OPTIONS[] = {
    {"eval", "NAME=FILE", "held-out set of one domain; once per domain, in the files' order"},
    {"eval-at", "BYTES,...", "measure also so many bytes into each file, such as 8K,16K,32K"},
    {"results", "FILE", "keep measurements here; run again, and they are taken up"},
    {"commit-steps", "N", "commit after so many steps (default 50; 0: by time only)"},
    {"open-max", "N",
     "kinds whose context memories are held at once (default 24, or as many as fit in --memory)"},
    {"pool-max", "SIZE", "what the pool's records may take: then the oldest states are given up"},
    {"cost-repeats", "N", "passes that compare the cost of a byte with generation 0 (default 5)"},
    {"flops", "N", "train until so many FLOPs are spent, such as 1e14; the files begin again"},
    {0},
};

const reef_cli_manual reef_train_manual = {
    .about =
        "Trains on the files one after the other as one stream; nobody tells the model where one\n"
        "ends. The bits are those of `reefd "
        "--source` over the same files. No daemon may run on the\n"
        "pool. Before, after each file, and at --eval-at, "
        "every domain is measured as of that moment,\n"
        "task-free; what was sealed is measured then and again at the end. "
        "Domain j belongs to file j,\n"
        "unless there are more domains than files. "
        "Interrupted, it commits; the same command goes on.\n"
        "\n"
        "Files are text, vectors, or with reef init "
        "--vocab token ids of two bytes each, little-endian.\n"
        "\n"
        "With --flops the files are one set of data: "
        "read again from the beginning, in the same order,\n"
        "until the pool has been trained for so many FLOPs in all, "
        "counted as docs/PAPER.md says, in\n"
        "whole steps. Then --eval is measured once, at the end. "
        "It wants a pool whose batches are all\n"
        "trained, made with --boundaries given (no drift test, "
        "no gates), and by\n"
        "the net: --context-memory 0. --rehearse 0 leaves rehearsed windows out.",
    .options = OPTIONS,
    .example =
        "reef train reef.pool english.txt code.c --eval english=held.txt --eval code=held.c\n"
        "reef train reef.pool a.txt b.txt --eval a=a.held "
        "--eval b=b.held --eval-at 8K,64K --results run.json --json\n"
        "reef init lm.pool --ffw dpdd --boundaries given --rehearse 0 "
        "--context-memory 0 && reef train lm.pool train.txt --flops 1e12",
};

typedef struct train {
    reef_cli_call *cli;
    reef_cli_pool pool; // its store is open for writing
    reef_trainer *trainer;
    reef_train_stream stream;
    reef_eval_set set;
    reef_train_record record;
    reef_train_outcome outcome;
    json_t *results; // that an earlier run kept; NULL: none did
    uint64_t offsets[OFFSET_COUNT_MAX];
    size_t offset_count;
    uint64_t commit_steps, cost_repeats, open_max, pool_max;
    uint64_t steps;   // since the last commit
    double committed; // when that was
    bool dirty;       // something was accepted since
    reef_cli_progress progress;
} train;

// ---- what was asked for -------------------------------------------------------------------------

static reef_status read_offsets(train *t, reef_error *err) {
    const char *text = reef_cli_text(t->cli, "eval-at");
    // strtok_r() changes its argument.
    char *copy = reef_cli_format("%s", text != NULL ? text : ""), *rest = copy, *word;
    reef_status status = REEF_OK;
    // Positions are within each file, in increasing order.
    while (status == REEF_OK && text != NULL && (word = strtok_r(rest, ",", &rest))) {
        uint64_t offset = 0;
        if (t->offset_count == OFFSET_COUNT_MAX)
            status = reef_fail(err, REEF_ERR_INVALID, "--eval-at has more than %d positions",
                               OFFSET_COUNT_MAX);
        // Sizes such as 64K are read by the same function as --memory.
        else if (reef_memory_parse(word, &offset, NULL) != REEF_OK ||
                 (t->offset_count > 0 && offset <= t->offsets[t->offset_count - 1]))
            status = reef_fail(err, REEF_ERR_INVALID,
                               "--eval-at is '%.80s', "
                               "but must be rising numbers of bytes such as 8K,16K,32K",
                               text);
        else
            t->offsets[t->offset_count++] = offset;
    }
    // An empty list would silently measure nothing.
    if (status == REEF_OK && text != NULL && t->offset_count == 0)
        status = reef_fail(err, REEF_ERR_INVALID, "--eval-at names no position; try 8K,16K,32K");
    free(copy);
    return status;
}

static reef_status read_request(train *t, reef_error *err) {
    t->commit_steps = COMMIT_STEPS_DEFAULT;
    t->cost_repeats = COST_REPEATS_DEFAULT;
    reef_status status =
        reef_cli_integer(t->cli, "commit-steps", 0, COMMIT_STEPS_MAX, &t->commit_steps, err);
    if (status == REEF_OK)
        status =
            reef_cli_integer(t->cli, "cost-repeats", 0, COST_REPEATS_MAX, &t->cost_repeats, err);
    if (status == REEF_OK)
        status =
            reef_cli_integer(t->cli, "open-max", REEF_OPEN_MIN, REEF_OPEN_MAX, &t->open_max, err);
    const char *pool_max = reef_cli_text(t->cli, "pool-max");
    if (status == REEF_OK && pool_max != NULL &&
        reef_memory_parse(pool_max, &t->pool_max, NULL) != REEF_OK)
        status = reef_fail(err, REEF_ERR_INVALID, "--pool-max %.80s is not a size such as 20G",
                           pool_max);
    return status == REEF_OK ? read_offsets(t, err) : status;
}

static reef_status open_pool(train *t, reef_error *err) {
    reef_error reason;
    reef_status status = reef_store_open(&t->pool.store, t->cli->pool,
                                         &(reef_store_options){.write = !t->cli->dry_run}, &reason);
    if (status == REEF_ERR_BUSY)
        return reef_fail(err, status, "%.180s; stop it first, or push to it with reef ingest",
                         reason.message);
    if (status != REEF_OK) return reef_fail(err, status, "%s", reason.message);
    status = reef_cli_pool_refresh(&t->pool, err);
    return status == REEF_OK ? reef_cli_pool_has_stream(&t->pool, err) : status;
}

static reef_status open_trainer(train *t, reef_error *err) {
    reef_status status =
        reef_trainer_open(&t->trainer, t->pool.store,
                          &(reef_trainer_options){.threads = t->cli->threads,
                                                  .memory_bytes = t->cli->memory_bytes,
                                                  .open_max = (uint32_t)t->open_max,
                                                  .pool_max = t->pool_max},
                          err);
    if (status == REEF_OK) status = reef_train_stream_seek(&t->stream, t->trainer, err);
    if (status == REEF_OK) reef_train_record_position(&t->record, &t->stream);
    return status;
}

// ---- results that are kept ----------------------------------------------------------------------

// Complete or not there at all, whenever the process ends.
static reef_status write_results(const char *path, const json_t *document, reef_error *err) {
    char *beside = reef_cli_format("%s.part", path);
    bool failed = json_dump_file(document, beside, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) != 0;
    if (!failed) failed = rename(beside, path) != 0;
    reef_status status = failed ? reef_cli_write_failed(path, errno, err) : REEF_OK;
    if (failed) (void)unlink(beside);
    free(beside);
    return status;
}

// Before anything is trained: without --eval they are not written before the end. A dry run makes
// no file to find out.
static reef_status check_path(const char *path, reef_error *err) {
    const char *slash = strrchr(path, '/');
    char *folder = reef_cli_format("%.*s.", slash != NULL ? (int)(slash + 1 - path) : 0, path);
    errno = ENOENT;
    bool writable = path[0] && access(folder, W_OK | X_OK) == 0;
    reef_status status = writable ? REEF_OK : reef_cli_write_failed(path, errno, err);
    free(folder);
    return status;
}

// Reads when the pool was made, or 0 if no event says so. A copy or a restored pool keeps that
// time, so it recognises the pool.
static reef_status read_origin(train *t, reef_error *err) {
    reef_txn *txn = NULL;
    json_t *events = json_array();
    reef_status status = reef_txn_begin(&txn, t->pool.store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_timeline_json(txn, events, err);
    reef_txn_abort(txn);
    // The first event of a pool made by `reef init`.
    const json_t *first = json_array_get(events, 0);
    const char *kind = json_string_value(json_object_get(first, "event"));
    if (status == REEF_OK && kind != NULL && strcmp(kind, "init") == 0)
        t->record.pool_unix_ms = (uint64_t)json_integer_value(json_object_get(first, "unix_ms"));
    json_decref(events);
    return status;
}

static reef_status load_results(const char *path, json_t **results, reef_error *err) {
    struct stat state;
    if (stat(path, &state) == 0 && state.st_size > RESULTS_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s holds no results of reef train: it is larger than %" PRIu64
                         " bytes",
                         path, (uint64_t)RESULTS_BYTES_MAX);
    json_error_t reason;
    *results = json_load_file(path, 0, &reason);
    if (*results == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s holds no results of reef train: line %d: %.80s", path, reason.line,
                         reason.text);
    return REEF_OK;
}

static reef_status restore_results(train *t, reef_error *err) {
    const char *path = reef_cli_text(t->cli, "results");
    // Generations before this run were not trained by it.
    t->record.first_generation = t->pool.generation_count - 1;
    reef_status status = path != NULL ? check_path(path, err) : REEF_OK;
    // A new file is written at the first measurement.
    if (status != REEF_OK || path == NULL || access(path, F_OK) != 0) return status;
    status = load_results(path, &t->results, err);
    if (status != REEF_OK) return status;
    // The plan is compared as a whole: another file or domain would mix two experiments.
    json_t *plan = reef_train_plan_json(&t->stream, &t->set, &t->record);
    if (!json_equal(plan, json_object_get(t->results, "plan")))
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.160s is of other files, domains or --eval-at than these; choose "
                           "another --results, or remove it",
                           path);
    // After an interruption: what was measured is not measured again.
    else
        status =
            reef_train_record_restore(&t->record, json_object_get(t->results, "measured"), err);
    json_decref(plan);
    return status;
}

// Results record when their pool was made. Older results do not; for those the root shows that the
// pool is at their position.
static bool results_are_of_this_pool(const train *t) {
    const json_t *measured = json_object_get(t->results, "measured");
    json_int_t made = json_integer_value(json_object_get(measured, "pool_unix_ms"));
    if (made) return (uint64_t)made == t->record.pool_unix_ms;
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(t->pool.commit.root, root);
    json_int_t at = json_integer_value(json_object_get(t->results, "accepted_bytes"));
    const char *theirs = json_string_value(json_object_get(t->results, "root"));
    return (uint64_t)at != t->stream.at || (theirs != NULL && strcmp(theirs, root) == 0);
}

// Refuses results of another pool, or of a later state than this one: they would make the run skip
// training.
static reef_status check_results(const train *t, reef_error *err) {
    const char *path = reef_cli_text(t->cli, "results");
    if (t->results != NULL && !results_are_of_this_pool(t))
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.160s was measured on another pool; choose another --results", path);
    for (size_t i = 0; i < t->record.point_count; i++) {
        const reef_train_point *point = &t->record.points[i];
        // The pool was restored to an earlier state, or is an older copy.
        if (point->done && point->at > t->stream.at)
            return reef_fail(err, REEF_ERR_INVALID,
                             "%.120s has a measurement at byte %" PRIu64
                             ", and this pool has read %" PRIu64
                             ": it is of another pool; choose another --results",
                             path, point->at, t->stream.at);
    }
    return REEF_OK;
}

// ---- training -----------------------------------------------------------------------------------

static reef_status commit(train *t, reef_error *err) {
    reef_commit made;
    if (!t->dirty) return REEF_OK;
    reef_status status = reef_trainer_commit(t->trainer, &made, err);
    reef_usage_compaction done = {.merged = 1};
    while (status == REEF_OK && (done.merged > 0 || done.dropped > 0))
        status = reef_trainer_compact(t->trainer, &done, err);
    t->steps = 0;
    t->committed = reef_seconds();
    t->dirty = false;
    return status;
}

static bool commit_is_due(const train *t) {
    if (t->commit_steps > 0 && t->steps >= t->commit_steps) return true;
    return reef_seconds() - t->committed > COMMIT_SECONDS;
}

static reef_status feed_bytes(
    train *t, const char *name, const uint8_t *bytes, size_t count, reef_error *err) {
    reef_status status = REEF_OK;
    while (status == REEF_OK && count > 0 && !reef_cli_is_stopped()) {
        size_t taken = 0, steps = 0;
        // The trainer takes what fills its batches; the rest is handed over again.
        status = reef_trainer_feed(t->trainer, name, bytes, count, &taken, &steps, err);
        bytes += taken;
        count -= taken;
        t->stream.at += taken;
        t->steps += steps;
        // Something was fed since the last commit.
        t->dirty = true;
        if (status == REEF_OK && commit_is_due(t)) status = commit(t, err);
        // Positions and not steps: the total is known in bytes.
        reef_cli_progress_show(&t->progress, t->stream.at);
    }
    return status;
}

// Batches that were deferred may allow more steps than the bytes that came last.
static reef_status drain(train *t, reef_error *err) {
    // Of the file that was read last: the next one has not begun.
    const char *name = t->stream.files[reef_train_stream_file(&t->stream, t->stream.at - 1)].name;
    reef_status status = REEF_OK;
    for (size_t steps = 1, taken = 0; status == REEF_OK && steps > 0;) {
        status = reef_trainer_feed(t->trainer, name, (const uint8_t *)"", 0, &taken, &steps, err);
        if (steps > 0) t->dirty = true;
    }
    return status;
}

// Trains up to a position of the stream and commits.
static reef_status train_until(train *t, uint64_t position, reef_error *err) {
    double began = reef_seconds(), cpu = reef_process_cpu_seconds();
    reef_status status = REEF_OK;
    // An interrupt ends between batches.
    while (status == REEF_OK && t->stream.at < position && !reef_cli_is_stopped()) {
        const char *name;
        const uint8_t *bytes;
        size_t count;
        status = reef_train_stream_read(&t->stream, position, &name, &bytes, &count, err);
        if (status == REEF_OK) status = feed_bytes(t, name, bytes, count, err);
    }
    // A measurement must include everything read so far, so pending bytes are trained.
    if (status == REEF_OK && !reef_cli_is_stopped() && position > 0) status = drain(t, err);
    if (status == REEF_OK) status = commit(t, err);
    // Training and measuring are timed apart.
    t->record.seconds += reef_seconds() - began;
    t->record.cpu_seconds += reef_process_cpu_seconds() - cpu;
    return status;
}

// ---- measuring ----------------------------------------------------------------------------------

static reef_status open_model(const train *t,
                              const char *as_of,
                              reef_model **model,
                              reef_error *err) {
    return reef_cli_model_open(model, t->cli, t->pool.store, as_of, err);
}

static reef_status measure_state(train *t,
                                 const char *as_of,
                                 reef_eval_score *scores,
                                 reef_error *err) {
    reef_model *model = NULL;
    reef_status status = open_model(t, as_of, &model, err);
    // The bar belongs to training: evaluation is silent.
    reef_cli_progress silent = {0};
    for (size_t j = 0; j < t->set.count && status == REEF_OK; j++) {
        free(scores[j].fire_share);
        status = reef_eval_file_measure(model, &t->set.domains[j].file, &silent, &scores[j], err);
    }
    reef_model_close(model);
    return status;
}

// Measures the state of a sealed generation.
static reef_status measure_sealed(train *t, uint32_t generation, double *values, reef_error *err) {
    reef_eval_score *scores = reef_cli_alloc(t->set.count, sizeof(*scores));
    char *as_of = reef_cli_format("%" PRIu32, generation);
    reef_status status = measure_state(t, as_of, scores, err);
    // All or nothing: a row of mixed states would be wrong.
    for (size_t j = 0; j < t->set.count; j++) {
        values[j] = status == REEF_OK ? scores[j].value : NAN;
        free(scores[j].fire_share);
    }
    free(as_of);
    free(scores);
    return status;
}

// Generations that were sealed since the last point, as they are at this one.
static reef_status measure_newly_sealed(train *t, uint64_t at, reef_error *err) {
    reef_status status = reef_cli_pool_refresh(&t->pool, err);
    for (;;) {
        uint32_t next = t->record.first_generation + (uint32_t)t->record.sealed_count;
        if (status != REEF_OK || next + 1 >= t->pool.generation_count) return status;
        reef_train_sealed *sealed = reef_train_record_add_sealed(&t->record, next, at);
        status = measure_sealed(t, next, sealed->then, err);
    }
}

static reef_status keep_results(train *t, reef_error *err);

static reef_status measure_point(train *t, reef_train_point *point, reef_error *err) {
    double began = reef_seconds();
    reef_status status = measure_state(t, "now", point->scores, err);
    if (status == REEF_OK) status = measure_newly_sealed(t, point->at, err);
    point->done = status == REEF_OK;
    point->seconds = t->record.seconds;
    double passed = reef_seconds() - began;
    t->record.seconds_measuring += passed;
    t->progress.started += passed; // the rate is that of training
    return status == REEF_OK ? keep_results(t, err) : status;
}

static reef_status measure_past(train *t, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t s = 0; s < t->record.sealed_count && status == REEF_OK; s++)
        status = measure_sealed(t, t->record.sealed[s].generation, t->record.sealed[s].now, err);
    return status;
}

// ---- the cost of a byte -------------------------------------------------------------------------

static reef_status time_pass(const train *t, reef_model *model, double *seconds, reef_error *err) {
    double began = reef_seconds();
    reef_status status = REEF_OK;
    for (size_t j = 0; j < t->set.count && status == REEF_OK; j++) {
        // The beginning of each file: the ratio needs no more.
        reef_cli_file part =
            reef_eval_file_beginning(&t->pool.config, &t->set.domains[j].file, COST_BYTES_MAX);
        reef_cli_progress silent = {0};
        reef_eval_score score;
        status = reef_eval_file_measure(model, &part, &silent, &score, err);
        free(score.fire_share);
    }
    *seconds = reef_seconds() - began;
    return status;
}

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof(*values), by_value);
    return (values[count / 2] + values[(count - 1) / 2]) / 2;
}

// Evaluates the held-out sets with the present model and as of generation 0, alternately, so that
// other work on the machine affects both alike. With one generation both are the same model.
static reef_status measure_cost(train *t, reef_error *err) {
    size_t repeats = (size_t)t->cost_repeats;
    // Not a number means "not measured".
    t->outcome.cost_ratio = t->outcome.us_per_byte_now = t->outcome.us_per_byte_first = NAN;
    if (repeats == 0 || t->set.count == 0) return REEF_OK;
    reef_model *models[2] = {NULL, NULL};
    double *seconds = reef_cli_alloc(2 * repeats, sizeof(*seconds)), bytes = 0;
    double *ratios = reef_cli_alloc(repeats, sizeof(*ratios));
    for (size_t j = 0; j < t->set.count; j++)
        bytes += (double)reef_eval_file_beginning(&t->pool.config, &t->set.domains[j].file,
                                                  COST_BYTES_MAX)
                     .count;
    reef_status status = open_model(t, "now", &models[0], err);
    if (status == REEF_OK)
        // Opened together, so that both are of the same commit.
        status = open_model(t, t->pool.generation_count > 1 ? "0" : "now", &models[1], err);
    double warm;
    // One pass each to warm the caches, not counted.
    for (size_t m = 0; m < 2 && status == REEF_OK; m++)
        status = time_pass(t, models[m], &warm, err);
    for (size_t i = 0; i < 2 * repeats && status == REEF_OK; i++)
        // Alternately: now, first, now, first.
        status = time_pass(t, models[i % 2], &seconds[i % 2 * repeats + i / 2], err);
    if (status == REEF_OK) {
        // Of neighbours in time, before the sorting: a slow minute of the machine is in both.
        // Ratios of neighbours in time, before the sorting: a slow minute of the machine is in
        // both.
        for (size_t i = 0; i < repeats; i++) ratios[i] = seconds[i] / seconds[repeats + i];
        t->outcome.cost_ratio = median(ratios, repeats);
        t->outcome.us_per_byte_now = 1e6 * median(seconds, repeats) / bytes;
        t->outcome.us_per_byte_first = 1e6 * median(seconds + repeats, repeats) / bytes;
    }
    reef_model_close(models[0]);
    reef_model_close(models[1]);
    free(seconds);
    free(ratios);
    return status;
}

// ---- the document -------------------------------------------------------------------------------

static reef_status on_moment(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    (void)key;
    (void)err;
    *(uint64_t *)context += view->bytes;
    return REEF_OK;
}

static reef_status read_history(train *t, reef_error *err) {
    reef_txn *txn = NULL;
    // Called after each measurement, so older lists are released.
    json_decref(t->outcome.events);
    t->outcome.events = json_array();
    t->outcome.optimiser_bytes = 0;
    reef_cli_points_release(&t->outcome.points);
    reef_lineage_release(&t->outcome.lineage);
    // The commits of this process are seen only by a new read transaction.
    reef_status status = reef_cli_pool_refresh(&t->pool, err);
    if (status == REEF_OK) status = reef_cli_points_read(&t->outcome.points, &t->pool, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, t->pool.store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_timeline_json(txn, t->outcome.events, err);
    if (status == REEF_OK) status = reef_lineage_read(&t->outcome.lineage, txn, err);
    if (status == REEF_OK)
        // Moments are most of what a pool in training holds beyond its model.
        status = reef_record_scan(txn, REEF_DB_MOMENTS, UINT32_MAX, on_moment,
                                  &t->outcome.optimiser_bytes, err);
    reef_txn_abort(txn);
    return status;
}

static reef_status document(train *t, json_t **out, reef_error *err) {
    struct rusage usage;
    reef_status status = read_history(t, err);
    if (status != REEF_OK) return status;
    t->outcome.threads = t->cli->threads ? t->cli->threads : (size_t)sysconf(_SC_NPROCESSORS_ONLN);
    reef_trainer_status_read(t->trainer, &t->outcome.trainer);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        t->outcome.peak_memory_bytes = (uint64_t)usage.ru_maxrss * 1024;
    *out = reef_train_document(&t->record, &t->stream, &t->set, &t->pool, &t->outcome);
    return *out != NULL ? REEF_OK
                        : reef_fail(err, REEF_ERR_NO_MEMORY, "the document could not be built");
}

static reef_status keep_results(train *t, reef_error *err) {
    const char *path = reef_cli_text(t->cli, "results");
    json_t *made = NULL;
    if (path == NULL) return REEF_OK;
    reef_status status = document(t, &made, err);
    if (status == REEF_OK) status = write_results(path, made, err);
    json_decref(made);
    return status;
}

static reef_status reply_train(train *t, reef_error *err) {
    json_t *made = NULL;
    reef_status status = keep_results(t, err);
    if (status == REEF_OK) status = document(t, &made, err);
    if (status != REEF_OK) return status;
    if (t->cli->json) return reef_cli_reply(t->cli, made, err);
    reef_train_print(made, &t->pool.config);
    json_decref(made);
    return REEF_OK;
}

// ---- the run ------------------------------------------------------------------------------------

static reef_status run_train(train *t, reef_error *err) {
    uint64_t all = reef_train_stream_bytes(&t->stream), already = t->stream.at;
    t->committed = reef_seconds();
    reef_cli_progress_start(&t->progress, "training", all, "B");
    reef_status status = REEF_OK;
    for (size_t i = 0; i < t->record.point_count && status == REEF_OK && !reef_cli_is_stopped();
         i++) {
        // Points are in order of the stream.
        reef_train_point *point = &t->record.points[i];
        // Before the present position nothing can be measured any more.
        if (point->done || point->at < already) continue;
        status = train_until(t, point->at, err);
        // Without domains the run only trains.
        if (status == REEF_OK && !reef_cli_is_stopped() && t->set.count > 0)
            status = measure_point(t, point, err);
    }
    reef_cli_progress_end(&t->progress);
    // Set before the last measurements: they are made only for a whole run.
    t->outcome.finished = !reef_cli_is_stopped() && status == REEF_OK;
    t->outcome.cost_ratio = t->outcome.us_per_byte_now = t->outcome.us_per_byte_first = NAN;
    // Every sealed generation once more, to show that none has changed.
    if (t->outcome.finished) status = measure_past(t, err);
    if (t->outcome.finished && status == REEF_OK) status = measure_cost(t, err);
    if (status == REEF_OK && reef_cli_is_stopped())
        fprintf(stderr,
                "reef train: stopped and committed at byte %" PRIu64 " of %" PRIu64
                "; the same command continues from there\n",
                t->stream.at, all);
    return status;
}

// Reports what a dry run found: which part of the stream is left, and where it would be measured.
static reef_status reply_plan(train *t, reef_error *err) {
    uint64_t all = reef_train_stream_bytes(&t->stream);
    size_t points = 0;
    for (size_t i = 0; i < t->record.point_count; i++)
        // The same conditions as in run_train().
        points += !t->record.points[i].done && t->record.points[i].at >= t->stream.at;
    if (t->set.count == 0) points = 0;
    if (t->cli->json)
        return reef_cli_reply(t->cli,
                              json_pack("{s:b, s:o, s:I, s:I, s:I, s:I}", "done", 0, "pool",
                                        reef_cli_path(t->cli->pool), "files",
                                        (json_int_t)t->stream.count, "stream_bytes",
                                        (json_int_t)all, "trained_bytes", (json_int_t)t->stream.at,
                                        "points", (json_int_t)points),
                              err);
    char left[CLI_WORD_BYTES], words[CLI_WORD_BYTES];
    printf("would train %s of ", reef_cli_bytes(all - t->stream.at, left));
    printf("%s in %zu file%s, and measure %zu domain%s at %zu point%s\n",
           reef_cli_bytes(all, words), t->stream.count, t->stream.count == 1 ? "" : "s",
           t->set.count, t->set.count == 1 ? "" : "s", points, points == 1 ? "" : "s");
    return REEF_OK;
}

static void release_train(train *t) {
    reef_trainer_close(t->trainer);
    reef_train_record_release(&t->record);
    reef_train_stream_release(&t->stream);
    reef_eval_set_release(&t->set);
    reef_cli_points_release(&t->outcome.points);
    reef_lineage_release(&t->outcome.lineage);
    json_decref(t->outcome.events);
    json_decref(t->results);
    reef_cli_pool_close(&t->pool);
}

reef_status reef_cmd_train(reef_cli_call *cli, reef_error *err) {
    // A budget is another way to end: it has its own loop and reply.
    if (reef_cli_text(cli, "flops") != NULL) {
        reef_cli_catch_signals(false);
        return reef_train_budget_command(cli, reef_cli_is_stopped, err);
    }
    train t = {.cli = cli};
    reef_status status = read_request(&t, err);
    if (status == REEF_OK) status = open_pool(&t, err);
    // Everything is read before the trainer is opened, so that a mistake costs nothing.
    if (status == REEF_OK) status = reef_eval_set_read(&t.set, cli, "eval", &t.pool.config, err);
    if (status == REEF_OK)
        status = reef_train_stream_open(&t.stream, cli->operands, cli->operand_count,
                                        &t.pool.config, err);
    if (status == REEF_OK) {
        // The plan follows from files, domains and offsets alone, so a repeated call makes the
        // same.
        reef_train_record_init(&t.record, &t.stream, t.set.count, t.offsets, t.offset_count);
        status = read_origin(&t, err);
        if (status == REEF_OK) status = restore_results(&t, err);
    }
    // Its position in the stream is needed for the next check.
    if (status == REEF_OK) status = open_trainer(&t, err);
    if (status == REEF_OK) status = check_results(&t, err);
    if (status == REEF_OK && cli->dry_run) {
        status = reply_plan(&t, err);
    } else if (status == REEF_OK) {
        // From here on an interrupt commits before it ends.
        reef_cli_catch_signals(false);
        status = run_train(&t, err);
        if (status == REEF_OK) status = reply_train(&t, err);
    }
    release_train(&t);
    return status;
}
