// A point of `reef bench scale` whose rows do not fit into memory: they are written to a temporary
// pool and read in place, first with none of them in the system's cache, then again; see
// bench_scale.h.
//
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): POSIX owns the name.
#define _XOPEN_SOURCE 700 // posix_fadvise

#include "bench_scale.h"
#include "cli_progress.h"
#include "reef_clock.h"
#include "scratch_pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DISK_SHARE_MAX 0.43 // of what is free: 17 GB of rows want 40 GB

// ---- the process --------------------------------------------------------------------------------

// The largest size of this process in memory since the last reset; 0 where the system does not
// tell.
static double peak_bytes(void) {
    return reef_bench_proc_bytes("/proc/self/status", "VmHWM");
}

static void reset_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file == NULL) return;
    fputs("5", file);
    fclose(file);
}

// ---- the disk -----------------------------------------------------------------------------------

static double free_bytes(const char *path) {
    struct statvfs disk;
    if (statvfs(path, &disk) != 0) return 0;
    return (double)disk.f_bavail * (double)disk.f_frsize;
}

// What is clean and mapped nowhere leaves the system's cache.
static void forget_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void show_written(void *context, uint64_t bytes) {
    reef_cli_progress_show(context, bytes);
}

static reef_status write_pool(const char *path,
                              const reef_router_shape *shape,
                              reef_scale_point *point,
                              reef_thread_pool *workers,
                              reef_error *err) {
    reef_cli_progress progress;
    // The writing takes minutes for the largest pools, so its time is reported as well.
    double started = reef_seconds();
    reef_cli_progress_start(&progress, "writing rows", (uint64_t)point->wanted_bytes, "bytes");
    reef_status status =
        reef_layer_pool_write(path, shape, BENCH_SEED, workers, show_written, &progress, err);
    reef_cli_progress_end(&progress);
    point->write_seconds = reef_seconds() - started;
    return status;
}

// ---- passes -------------------------------------------------------------------------------------

typedef struct passes {
    reef_layer_pool *pool;
    reef_layer_bench *layer;
    reef_thread_pool *workers;
    uint64_t repeat;
    double *all, *retrieval, *experts; // (repeat) seconds
} passes;

// Tokens of their own for each pass: its rows are in memory only where an earlier pass had them.
static reef_status run_passes(const passes *p, reef_error *err) {
    for (uint64_t r = 0; r < p->repeat; r++) {
        reef_layer_seconds seconds;
        // The same seeds in the first and the second series: the second one asks for the same rows.
        reef_layer_bench_draw_tokens(p->layer, BENCH_SEED + r);
        reef_status status = reef_layer_bench_forward(p->layer, p->workers, &seconds, err);
        // The pool drops rows that it holds too many of, as a reader with a memory limit does after
        // each request.
        reef_layer_pool_finish(p->pool);
        if (status != REEF_OK) return status;
        p->all[r] = reef_bench_seconds_sum(&seconds);
        p->retrieval[r] = seconds.retrieval;
        p->experts[r] = seconds.experts;
    }
    return REEF_OK;
}

static double median_us(const double *seconds, const reef_scale_plan *plan) {
    return 1e6 * reef_bench_median(seconds, (size_t)plan->repeat, 1) / (double)plan->tokens;
}

static reef_status measure_cold_and_warm(const reef_scale_plan *plan,
                                         const passes *p,
                                         reef_scale_point *point,
                                         reef_error *err) {
    // The peak of writing must not count for reading.
    reset_peak();
    // The first series finds nothing in memory and is reported by itself.
    reef_status status = run_passes(p, err);
    if (status != REEF_OK) return status;
    point->us_cold = median_us(p->all, plan);
    // The second series finds what the limit allowed to stay.
    status = run_passes(p, err);
    if (status != REEF_OK) return status;
    point->us = median_us(p->all, plan);
    point->us_retrieval = median_us(p->retrieval, plan);
    point->us_experts = median_us(p->experts, plan);
    point->tokens_per_s = 1e6 / point->us;
    // The peak shows that the limit was kept.
    point->peak_bytes = peak_bytes();
    point->drops = reef_layer_pool_drops(p->pool);
    point->measured = true;
    point->first_pass = reef_layer_bench_tape(p->layer)->coarse != NULL;
    return REEF_OK;
}

static reef_status read_pool(const char *path,
                             const reef_scale_plan *plan,
                             const reef_router_shape *shape,
                             reef_scale_point *point,
                             reef_thread_pool *workers,
                             reef_error *err) {
    passes p = {.workers = workers, .repeat = plan->repeat};
    uint32_t block_shift = 0;
    // Opened as a reader with limited memory would open it.
    reef_status status =
        reef_layer_pool_open(&p.pool, path, shape, (uint64_t)point->limit_bytes, err);
    if (status != REEF_OK) return status;
    reef_layer_bench_options options = {.shape = *shape,
                                        .tokens = plan->tokens,
                                        .piece_tokens = plan->piece_tokens,
                                        .seed = BENCH_SEED,
                                        .sealed = true,
                                        .dtype = REEF_BF16,
                                        // The layer reads its rows in place, in the blocks of the
                                        // memory map.
                                        .row_blocks = reef_layer_pool_blocks(p.pool, &block_shift),
                                        // Called with the experts chosen, so that the pool can
                                        // prefetch and count them.
                                        .chosen = reef_layer_pool_chosen,
                                        .chosen_context = p.pool};
    options.row_block_shift = block_shift;
    status = reef_layer_bench_new(&p.layer, &options, workers, err);
    // One allocation for three columns.
    double *seconds = reef_cli_alloc(3 * (size_t)plan->repeat, sizeof(*seconds));
    p.all = seconds;
    p.retrieval = seconds + plan->repeat;
    p.experts = seconds + 2 * plan->repeat;
    if (status == REEF_OK) status = measure_cold_and_warm(plan, &p, point, err);
    free(seconds);
    reef_layer_bench_free(p.layer);
    reef_layer_pool_close(p.pool);
    return status;
}

reef_status reef_scale_measure_disk(const reef_scale_plan *plan,
                                    reef_scale_point *point,
                                    reef_thread_pool *workers,
                                    reef_error *err) {
    reef_router_shape shape = plan->shape;
    shape.side = point->side;
    shape.d_model = point->d_model;
    reef_bench_directory directory = {0};
    reef_status status = reef_bench_directory_new(&directory, err);
    if (status != REEF_OK) return status;
    // Printed when the pool does not fit, so that a user knows what to free.
    point->free_bytes = free_bytes(directory.path);
    char *path = reef_cli_format("%s/pool", directory.path),
         *file = reef_cli_format("%s/data.mdb", path);
    // Not the whole disk: a full disk would hurt other programs.
    if (point->wanted_bytes <= DISK_SHARE_MAX * point->free_bytes) {
        status = write_pool(path, &shape, point, workers, err);
        // Written pages are still in the page cache; without this the cold figure would be warm.
        forget_file(file);
        if (status == REEF_OK) status = read_pool(path, plan, &shape, point, workers, err);
    }
    free(file);
    free(path);
    reef_bench_directory_remove(&directory);
    return status;
}
