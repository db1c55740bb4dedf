// See bench_limits.h.
//
// Each measurement is one job for the workers with a piece per thread, so that a piece has scratch of its
// own; inside, pieces take chunks of work from one counter until none is left, as the layer's pieces are
// taken. Memory is measured by touching one word in each cache line, which is the least that makes the
// line arrive; rows are prefetched some rows ahead, and the best distance counts.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's name.
#define _DEFAULT_SOURCE // madvise: small pages; getloadavg

#include "bench_limits.h"

#include "cli.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE_BYTES 64
#define PAGE_ALIGNMENT ((size_t)2 << 20)
#define STREAM_BYTES_MAX ((size_t)1 << 30) // read in order
#define STREAM_CHUNK_BYTES ((size_t)1 << 20)
#define GATHER_CHUNK_ROWS 2048

// Rows between the prefetch of a row and its use, all tried.
static const size_t DISTANCES[] = {2, 4, 8, 16};

struct bench_limits {
    reef_router_shape shape;
    size_t tokens, piece_tokens, width;
    size_t tile_rows, tile_stride; // as the router's
    size_t row_bytes, row_count, gather_count;
    const char *rows; // the layer's, huge pages
    char *small_rows; // as many bytes on small pages
    uint32_t *ids;    // (gather_count) random
    float *x, *w_query, *query;
    float *sub_keys; // (2, side, d_key / 2)
    float *tiles;    // (threads, 2, tile_rows, tile_stride)
    size_t tile_threads;
};

// ---- memory --------------------------------------------------------------------------------------

static char *small_pages_new(size_t bytes) {
    size_t size = (bytes + PAGE_ALIGNMENT - 1) / PAGE_ALIGNMENT * PAGE_ALIGNMENT;
    char *block = aligned_alloc(PAGE_ALIGNMENT, size);
    if (!block) return NULL;
#ifdef MADV_NOHUGEPAGE
    (void)madvise(block, size, MADV_NOHUGEPAGE);
#endif
    memset(block, 1, size); // a page that was never written is the one page of zeros
    return block;
}

static float *floats_new(size_t count) {
    float *values = cli_alloc(count, sizeof(float));
    for (size_t i = 0; i < count; i++) values[i] = 1e-3f * (float)(i % 1021);
    return values;
}

static uint32_t *ids_new(size_t count, size_t bound) {
    uint32_t *ids = cli_alloc(count, sizeof(*ids));
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX generator
        ids[i] = (uint32_t)((state >> 33) % bound);
    }
    return ids;
}

// As many queries as the layer scores at a time, and how far apart their scores lie.
static reef_status find_tiles(bench_limits *limits, reef_error *err) {
    reef_router_tape tape;
    reef_status status = reef_router_tape_init(&tape, &limits->shape, limits->piece_tokens,
                                               limits->piece_tokens, false, err);
    if (status != REEF_OK) return status;
    limits->tile_rows = tape.tile_rows;
    limits->tile_stride = tape.tile_stride;
    reef_router_tape_release(&tape);
    return REEF_OK;
}

reef_status bench_limits_new(bench_limits **out,
                             const reef_router_shape *shape,
                             size_t tokens,
                             size_t piece_tokens,
                             const void *rows,
                             reef_error *err) {
    *out = NULL;
    bench_limits *limits = cli_alloc(1, sizeof(*limits));
    *limits = (bench_limits){.shape = *shape,
                             .tokens = tokens,
                             .piece_tokens = piece_tokens,
                             .width = shape->head_count * shape->d_key,
                             .row_bytes = 2 * shape->d_model * sizeof(float),
                             .row_count = shape->side * shape->side,
                             .gather_count = tokens * shape->head_count * shape->topk,
                             .rows = rows};
    reef_status status = find_tiles(limits, err);
    if (status != REEF_OK) goto cleanup;
    if (rows) limits->small_rows = small_pages_new(limits->row_count * limits->row_bytes);
    if (rows && !limits->small_rows) {
        status = reef_fail(err, REEF_NO_MEMORY, "no memory for a second table of %zu rows",
                           limits->row_count);
        goto cleanup;
    }
    limits->ids = ids_new(limits->gather_count, limits->row_count);
    limits->x = floats_new(tokens * shape->d_model);
    limits->w_query = floats_new(shape->d_model * limits->width);
    limits->query = floats_new(tokens * limits->width);
    limits->sub_keys = floats_new(shape->side * shape->d_key);
    *out = limits;
    limits = NULL; // the caller owns it now

cleanup:
    bench_limits_free(limits);
    return status;
}

void bench_limits_free(bench_limits *limits) {
    if (!limits) return;
    free(limits->small_rows);
    free(limits->ids);
    free(limits->x);
    free(limits->w_query);
    free(limits->query);
    free(limits->sub_keys);
    free(limits->tiles);
    free(limits);
}

// ---- jobs ----------------------------------------------------------------------------------------

typedef struct job {
    bench_limits *limits;
    atomic_size_t next; // chunk
    size_t chunk_count;
    void (*chunk)(struct job *job, size_t thread, size_t chunk);
    const char *bytes; // that are read
    size_t byte_count; // in order
    size_t distance;   // at random: rows of prefetch
    atomic_uint seen;  // of what was read, so that it has to be read
} job;

static void run_thread(void *context, size_t thread) {
    job *j = context;
    size_t chunk;
    while ((chunk = atomic_fetch_add(&j->next, 1)) < j->chunk_count) j->chunk(j, thread, chunk);
}

static double run(job *j, reef_workers *workers) {
    double started = cli_clock();
    reef_workers_run(workers, reef_workers_count(workers), run_thread, j);
    return cli_clock() - started;
}

// The products of one piece of tokens, as the router calls them.
static void project_chunk(job *j, size_t thread, size_t chunk) {
    (void)thread;
    const bench_limits *l = j->limits;
    size_t D = l->shape.d_model, first = chunk * l->piece_tokens;
    reef_gemm(false, false, l->piece_tokens, l->width, D, 1, l->x + first * D, D, l->w_query,
              l->width, 0, l->query + first * l->width, l->width);
}

static void score_chunk(job *j, size_t thread, size_t chunk) {
    const bench_limits *l = j->limits;
    size_t d_key = l->shape.d_key, half = d_key / 2, side = l->shape.side;
    size_t queries = l->piece_tokens * l->shape.head_count, first = chunk * queries;
    float *tile = l->tiles + thread * 2 * l->tile_rows * l->tile_stride;
    for (size_t at = 0; at < queries; at += l->tile_rows) {
        size_t count = queries - at < l->tile_rows ? queries - at : l->tile_rows;
        for (size_t table = 0; table < 2; table++)
            reef_gemm(false, true, count, side, half, 1,
                      l->query + (first + at) * d_key + table * half, d_key,
                      l->sub_keys + table * side * half, half, 0,
                      tile + table * l->tile_rows * l->tile_stride, l->tile_stride);
    }
}

static unsigned touch(const char *bytes, size_t count) {
    unsigned seen = 0;
    for (size_t at = 0; at < count; at += LINE_BYTES) {
        unsigned word;
        memcpy(&word, bytes + at, sizeof(word));
        seen ^= word;
    }
    return seen;
}

static void stream_chunk(job *j, size_t thread, size_t chunk) {
    (void)thread;
    size_t at = chunk * STREAM_CHUNK_BYTES, rest = j->byte_count - at;
    unsigned seen = touch(j->bytes + at, rest < STREAM_CHUNK_BYTES ? rest : STREAM_CHUNK_BYTES);
    atomic_fetch_xor_explicit(&j->seen, seen, memory_order_relaxed);
}

static void prefetch(const char *row, size_t bytes) {
    for (size_t at = 0; at < bytes; at += LINE_BYTES) __builtin_prefetch(row + at);
}

static void gather_chunk(job *j, size_t thread, size_t chunk) {
    (void)thread;
    const bench_limits *l = j->limits;
    size_t first = chunk * GATHER_CHUNK_ROWS, rest = l->gather_count - first;
    size_t count = rest < GATHER_CHUNK_ROWS ? rest : GATHER_CHUNK_ROWS;
    const uint32_t *ids = l->ids + first;
    unsigned seen = 0;
    for (size_t i = 0; i < count && i < j->distance; i++)
        prefetch(j->bytes + ids[i] * l->row_bytes, l->row_bytes);
    for (size_t i = 0; i < count; i++) {
        if (i + j->distance < count)
            prefetch(j->bytes + ids[i + j->distance] * l->row_bytes, l->row_bytes);
        seen ^= touch(j->bytes + ids[i] * l->row_bytes, l->row_bytes);
    }
    atomic_fetch_xor_explicit(&j->seen, seen, memory_order_relaxed);
}

// ---- rates ---------------------------------------------------------------------------------------

static double project_flops(const bench_limits *l) {
    return 2.0 * (double)l->tokens * (double)l->shape.d_model * (double)l->width;
}

// Two tables of half the width.
static double score_flops(const bench_limits *l) {
    return 2.0 * (double)l->tokens * (double)l->width * (double)l->shape.side;
}

static double gather_bytes(const bench_limits *l) {
    return (double)l->gather_count * (double)l->row_bytes;
}

static double gather_rate(bench_limits *limits, reef_workers *workers, const char *rows) {
    double best = 0;
    for (size_t i = 0; i < sizeof(DISTANCES) / sizeof(DISTANCES[0]); i++) {
        size_t chunks = (limits->gather_count + GATHER_CHUNK_ROWS - 1) / GATHER_CHUNK_ROWS;
        job j = {.limits = limits,
                 .chunk_count = chunks,
                 .chunk = gather_chunk,
                 .bytes = rows,
                 .distance = DISTANCES[i]};
        double rate = gather_bytes(limits) / run(&j, workers);
        if (rate > best) best = rate;
    }
    return best;
}

static double stream_rate(bench_limits *limits, reef_workers *workers) {
    size_t bytes = limits->row_count * limits->row_bytes;
    if (bytes > STREAM_BYTES_MAX) bytes = STREAM_BYTES_MAX;
    job j = {.limits = limits,
             .chunk_count = (bytes + STREAM_CHUNK_BYTES - 1) / STREAM_CHUNK_BYTES,
             .chunk = stream_chunk,
             .bytes = limits->rows,
             .byte_count = bytes};
    return (double)bytes / run(&j, workers);
}

static void tiles_for(bench_limits *limits, size_t threads) {
    if (threads <= limits->tile_threads) return;
    free(limits->tiles);
    limits->tiles = floats_new(threads * 2 * limits->tile_rows * limits->tile_stride);
    limits->tile_threads = threads;
}

void bench_limits_products(bench_limits *limits, reef_workers *workers, bench_rates *out) {
    tiles_for(limits, reef_workers_count(workers));
    size_t pieces = limits->tokens / limits->piece_tokens;
    job project = {.limits = limits, .chunk_count = pieces, .chunk = project_chunk};
    job score = {.limits = limits, .chunk_count = pieces, .chunk = score_chunk};
    out->project_flops = project_flops(limits) / run(&project, workers);
    out->score_flops = score_flops(limits) / run(&score, workers);
}

void bench_limits_memory(bench_limits *limits, reef_workers *workers, bench_rates *out) {
    assert(limits->rows);
    out->sequential = stream_rate(limits, workers);
    out->gather = gather_rate(limits, workers, limits->small_rows);
    out->gather_huge = gather_rate(limits, workers, limits->rows);
}

void bench_limits_sample(bench_limits *limits, reef_workers *workers, bench_rates *out) {
    bench_limits_products(limits, workers, out);
    bench_limits_memory(limits, workers, out);
}

double bench_limits_project(const bench_limits *limits, const bench_rates *rates) {
    return project_flops(limits) / rates->project_flops;
}

double bench_limits_score(const bench_limits *limits, const bench_rates *rates) {
    return score_flops(limits) / rates->score_flops;
}

double bench_limits_forward(const bench_limits *limits, const bench_rates *rates) {
    return bench_limits_project(limits, rates) + bench_limits_score(limits, rates) +
           gather_bytes(limits) / rates->gather_huge;
}

double bench_huge_bytes(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (!file) return 0;
    char line[160];
    unsigned long long kilobytes = 0;
    while (fgets(line, sizeof(line), file) &&
           sscanf(line, "AnonHugePages: %llu kB", &kilobytes) != 1) {
    }
    fclose(file);
    return 1024.0 * (double)kilobytes;
}

double bench_load(void) {
    double load;
    return getloadavg(&load, 1) == 1 ? load : NAN;
}
