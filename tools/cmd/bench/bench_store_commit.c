// A commit against the disk: the same bytes as blocks of a pool and as a plain file; and what
// commits take of a training's time.
#include "bench_layer.h"
#include "bench_store.h"
#include "reef_clock.h"
#include "scratch_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REEFD_COMMIT_SECONDS 10 // what reefd does unless told otherwise
#define TRAINED_SECONDS 1       // between two commits here: enough to change nearly every block
#define TEXT_BYTES ((size_t)1 << 20)

// ---- against a file -----------------------------------------------------------------------------

// Other bytes each round, at the speed of memory: a record that is equal to the stored one is not
// written.
static void fill_words(uint64_t *words, size_t bytes, uint64_t round) {
    uint64_t value = round * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < bytes / sizeof(*words); i++) words[i] = value += 0xBF58476D1CE4E5B9u;
}

static reef_status write_raw(
    int fd, const char *path, const uint8_t *bytes, size_t count, reef_error *err) {
    for (size_t at = 0; at < count;) {
        ssize_t wrote = pwrite(fd, bytes + at, count - at, (off_t)at);
        if (wrote < 0 && errno != EINTR)
            return reef_fail(err, REEF_ERR_IO, "cannot write %s: %s", path, strerror(errno));
        if (wrote > 0) at += (size_t)wrote;
    }
    if (fdatasync(fd) == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_IO, "cannot sync %s: %s", path, strerror(errno));
}

static reef_status put_blocks(reef_txn *txn, const uint8_t *bytes, size_t count, reef_error *err) {
    const reef_generation_record open = {.dtype = REEF_F32, .side = 1};
    reef_status status = reef_generation_put(txn, &open, err);
    for (size_t at = 0; status == REEF_OK && at < count; at += REEF_BLOCK_BYTES_MAX) {
        const reef_key key = {.db = REEF_DB_EXPERTS,
                              .block = (uint32_t)(at / REEF_BLOCK_BYTES_MAX)};
        size_t size = count - at < REEF_BLOCK_BYTES_MAX ? count - at : REEF_BLOCK_BYTES_MAX;
        status = reef_record_put(txn, &key, REEF_F32, bytes + at, size, err);
    }
    return status;
}

static reef_status commit_blocks(
    reef_store *store, uint64_t round, const uint8_t *bytes, size_t count, reef_error *err) {
    reef_txn *txn = NULL;
    reef_commit commit = {.step = round};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status == REEF_OK) status = put_blocks(txn, bytes, count, err);
    if (status == REEF_OK) return reef_txn_commit(txn, &commit, err);
    reef_txn_abort(txn);
    return status;
}

typedef struct rounds {
    double *raw, *commit, *ratio; // (rounds) seconds, seconds, and the first by the second
} rounds;

// The first two rounds are not counted: both files grow in them, and later pages are used again.
#define WARMUP_ROUNDS 2

static reef_status run_rounds(const reef_store_plan *plan,
                              reef_store *store,
                              int fd,
                              const char *file,
                              rounds *r,
                              reef_error *err) {
    uint8_t *bytes = reef_cli_alloc((size_t)plan->commit_bytes, 1);
    reef_status status = REEF_OK;
    for (uint64_t i = 0; i < plan->rounds + WARMUP_ROUNDS && status == REEF_OK; i++) {
        // New bytes in every round, so that no file system can save itself the writing.
        fill_words((uint64_t *)(void *)bytes, (size_t)plan->commit_bytes, i + 1);
        double begin = reef_seconds();
        // The plain write and the commit alternate: the same disk in the same second.
        status = write_raw(fd, file, bytes, (size_t)plan->commit_bytes, err);
        double between = reef_seconds();
        if (status == REEF_OK)
            status = commit_blocks(store, i, bytes, (size_t)plan->commit_bytes, err);
        double end = reef_seconds();
        // The first rounds create the file and grow it; they are not counted.
        if (i < WARMUP_ROUNDS) continue;
        r->raw[i - WARMUP_ROUNDS] = between - begin;
        r->commit[i - WARMUP_ROUNDS] = end - between;
        // The ratio is formed within each round, as the speed of a shared disk changes between
        // rounds.
        r->ratio[i - WARMUP_ROUNDS] = (between - begin) / (end - between);
    }
    free(bytes);
    return status;
}

reef_status reef_bench_store_commit(const reef_store_plan *plan,
                                    reef_store_commit *out,
                                    reef_error *err) {
    char *path = reef_cli_format("%s/commit", plan->directory);
    char *file = reef_cli_format("%s/raw", plan->directory);
    size_t count = (size_t)plan->rounds;
    // One allocation for three columns.
    rounds r = {.raw = reef_cli_alloc(3 * count, sizeof(double))};
    r.commit = r.raw + count;
    r.ratio = r.commit + count;
    reef_store *store = NULL;
    reef_status status =
        reef_store_open(&store, path, &(reef_store_options){.create = true, .write = true}, err);
    // The plain file lies in the same directory, so on the same disk.
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (status == REEF_OK && fd < 0)
        status = reef_fail(err, REEF_ERR_IO, "cannot make %s: %s", file, strerror(errno));
    if (status == REEF_OK) status = run_rounds(plan, store, fd, file, &r, err);
    // The ratio is the median of ratios, not the ratio of medians.
    if (status == REEF_OK)
        *out = (reef_store_commit){.commit_ms = 1e3 * reef_bench_median(r.commit, count, 1),
                                   .raw_ms = 1e3 * reef_bench_median(r.raw, count, 1),
                                   .rate_vs_raw = reef_bench_median(r.ratio, count, 1)};
    if (fd >= 0) close(fd);
    reef_store_close(store);
    free(r.raw);
    free(file);
    free(path);
    return status;
}

// ---- in a training ------------------------------------------------------------------------------

// Of an open generation: rows, their averages and two moments, and the count of updates.
static uint64_t expert_bytes(const reef_config *config) {
    return (uint64_t)config->layers * (4 * 2 * config->d_model * sizeof(float) + 4);
}

// The default model with as many experts as make rows and moments of about `bytes`.
static void size_model(reef_config *config, uint64_t bytes) {
    reef_config_default(config);
    config->boundaries = REEF_BOUNDARIES_GIVEN;
    config->side = 1;
    while ((uint64_t)(config->side + 1) * (config->side + 1) * expert_bytes(config) <= bytes)
        config->side++;
    if (config->side < config->topk) config->side = config->topk;
}

static reef_status train_for(
    reef_trainer *trainer, const uint8_t *text, size_t *at, double seconds, reef_error *err) {
    double end = reef_seconds() + seconds;
    while (reef_seconds() < end) {
        size_t taken = 0, steps = 0;
        reef_status status =
            reef_trainer_feed(trainer, "bench", text + *at, TEXT_BYTES - *at, &taken, &steps, err);
        if (status != REEF_OK) return status;
        *at = (*at + taken) % TEXT_BYTES;
    }
    return REEF_OK;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// LMDB uses pages that a commit gave up from the second one after it on: until then each enlarges
// the file. That costs what the system takes for pages no file had before, and happens once. Not
// part of the percentile, but reported.
#define GROWING_COMMITS 3

static reef_status grow_file(reef_trainer *trainer,
                             const uint8_t *text,
                             size_t *at,
                             reef_store_training *out,
                             reef_error *err) {
    reef_commit commit;
    // While the file still grows, a commit also writes new metadata of the file system, so it takes
    // longer.
    reef_status status = REEF_OK;
    for (int i = 0; status == REEF_OK && i < GROWING_COMMITS; i++) {
        status = train_for(trainer, text, at, TRAINED_SECONDS, err);
        double begin = reef_seconds();
        if (status == REEF_OK) status = reef_trainer_commit(trainer, &commit, err);
        double ms = 1e3 * (reef_seconds() - begin);
        // The worst of them is reported.
        if (ms > out->commit_growing_ms) out->commit_growing_ms = ms;
    }
    return status;
}

static reef_status train_and_commit(const reef_store_plan *plan,
                                    reef_trainer *trainer,
                                    reef_store_training *out,
                                    reef_error *err) {
    // As many commits as the time asked for holds.
    size_t room = (size_t)(plan->seconds / TRAINED_SECONDS) + 1, at = 0;
    double *seconds = reef_cli_alloc(room, sizeof(*seconds)), sum = 0;
    uint8_t *text = reef_bench_text(TEXT_BYTES);
    uint64_t written = 0;
    reef_commit commit;
    // The growing phase comes first and is reported apart.
    reef_status status = grow_file(trainer, text, &at, out, err);
    while (status == REEF_OK && out->commits < room) {
        // The time of training is part of the interval, but not of the commit.
        status = train_for(trainer, text, &at, TRAINED_SECONDS, err);
        double begin = reef_seconds();
        if (status == REEF_OK) status = reef_trainer_commit(trainer, &commit, err);
        seconds[out->commits] = reef_seconds() - begin;
        sum += seconds[out->commits++];
        written += commit.bytes_written;
    }
    if (status == REEF_OK) {
        // Sorted for the median and for the 99th percentile, which is the last but one in a
        // hundred.
        qsort(seconds, room, sizeof(*seconds), by_size);
        out->commit_ms = 1e3 * seconds[room / 2];
        out->commit_p99_ms = 1e3 * seconds[(room * 99 + 99) / 100 - 1];
        // The share of the daemon's time that committing costs, at its usual interval.
        out->overhead_share = sum / (double)room / (REEFD_COMMIT_SECONDS + sum / (double)room);
        out->written_bytes = written / room;
    }
    free(text);
    free(seconds);
    return status;
}

reef_status reef_bench_store_training(const reef_store_plan *plan,
                                      reef_store_training *out,
                                      reef_error *err) {
    char *path = reef_cli_format("%s/training", plan->directory);
    reef_config config;
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    // The model is sized so that a commit changes about the bytes asked for.
    size_model(&config, plan->commit_bytes);
    *out = (reef_store_training){.interval = REEFD_COMMIT_SECONDS,
                                 .open_bytes =
                                     (uint64_t)config.side * config.side * expert_bytes(&config)};
    reef_status status = reef_pool_init(path, &config, err);
    // A real pool on disk: the commit is the trainer's own.
    if (status == REEF_OK)
        status = reef_store_open(&store, path, &(reef_store_options){.write = true}, err);
    if (status == REEF_OK)
        status = reef_trainer_open(&trainer, store, &(reef_trainer_options){0}, err);
    if (status == REEF_OK) status = train_and_commit(plan, trainer, out, err);
    reef_trainer_close(trainer);
    reef_store_close(store);
    free(path);
    return status;
}
