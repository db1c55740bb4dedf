// See bench_roofline.h.
//
// Each measurement is one job for the workers with a piece per thread, so that a piece has scratch
// of its own; inside, pieces take chunks of work from one counter until none is left, as the
// layer's pieces are taken. Memory is measured by touching one word in each cache line, which is
// the least that makes the line arrive. What can be done in several ways is done in all of them,
// and the best counts: a limit that the layer passes would be none.
//
// Which rows are gathered, and in which order, is the choice of a router with random weights as
// those of the layer, so that rows come back within a pass as often and as late as the layer's.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's name.
#define _DEFAULT_SOURCE // madvise: small pages; getloadavg

#include "bench_roofline.h"

#include "scratch_pool.h"

#include "cli.h"
#include "cli_format.h"
#include "reef_clock.h"

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

// How rows are gathered: how many rows ahead they are prefetched, into which cache, and in how many
// parts the rows of a token are used: the first part of each, then the next. In one part a row is
// used at once; in two, as the layer does, what a full queue of misses did not prefetch has longer
// to arrive.
typedef struct gather_form {
    size_t distance, parts;
    bool second_level;
} gather_form;

static const gather_form GATHER_FORMS[] = {{4, 1, false}, {8, 1, true},  {8, 2, false},
                                           {8, 2, true},  {16, 2, true}, {8, 4, true}};

struct reef_bench_limits {
    reef_router_shape shape;
    size_t tokens, piece_tokens, width;
    size_t row_bytes, row_count, gather_count;
    const char *rows;      // the layer's, huge pages
    char *small_rows;      // as many bytes on small pages
    reef_router_tape tape; // queries; tiles as the router's; the choice, if rows are given
    float *x, *w_query, *query_bias;
    float *sub_keys; // (2, side, d_key / 2)
};

// ---- memory -------------------------------------------------------------------------------------

static char *small_pages_new(size_t bytes) {
    size_t size = (bytes + PAGE_ALIGNMENT - 1) / PAGE_ALIGNMENT * PAGE_ALIGNMENT;
    char *block = aligned_alloc(PAGE_ALIGNMENT, size);
    if (block == NULL) return NULL;
#ifdef MADV_NOHUGEPAGE
    (void)madvise(block, size, MADV_NOHUGEPAGE);
#endif
    memset(block, 1, size); // a page that was never written is the one page of zeros
    return block;
}

// Uniform values of variance `scale` squared.
static float *floats_new(size_t count, float scale, uint64_t seed) {
    float *values = reef_cli_alloc(count, sizeof(float));
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX generator
        values[i] = scale * sqrtf(3) * ((float)(state >> 40) / 8388608.0f - 1.0f);
    }
    return values;
}

// The rows that are gathered.
static reef_status choose_rows(reef_bench_limits *limits, reef_error *err) {
    const reef_router_shape *shape = &limits->shape;
    reef_router_params params = {.w_query = limits->w_query,
                                 .query_bias = limits->query_bias,
                                 .sub_keys_a = limits->sub_keys,
                                 .sub_keys_b = limits->sub_keys + shape->side * shape->d_key / 2};
    return reef_router_forward(shape, &params, REEF_ROUTER_FOLDED, NULL, limits->tokens, limits->x,
                               NULL, &limits->tape, err);
}

static reef_status add_rows(reef_bench_limits *limits, const void *rows, reef_error *err) {
    limits->rows = rows;
    limits->small_rows = small_pages_new(limits->row_count * limits->row_bytes);
    if (limits->small_rows == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a second table of %zu rows",
                         limits->row_count);
    return choose_rows(limits, err);
}

reef_status reef_bench_limits_new(reef_bench_limits **out,
                                  const reef_router_shape *shape,
                                  size_t tokens,
                                  size_t piece_tokens,
                                  const void *rows,
                                  reef_error *err) {
    *out = NULL;
    reef_bench_limits *limits = reef_cli_alloc(1, sizeof(*limits));
    // Only the sizes of the layer count here: the numbers multiplied are random.
    *limits = (reef_bench_limits){.shape = *shape,
                                  .tokens = tokens,
                                  .piece_tokens = piece_tokens,
                                  .width = shape->head_count * shape->d_key,
                                  .row_bytes = 2 * shape->d_model * sizeof(float),
                                  .row_count = shape->side * shape->side,
                                  .gather_count = tokens * shape->head_count * shape->topk};
    // Random input, because zeros let some processors finish early and save power.
    limits->x = floats_new(tokens * shape->d_model, 1, 1);
    // Scaled by the root of the width, so that the scores have the size that real ones have.
    limits->w_query =
        floats_new(shape->d_model * limits->width, 1 / sqrtf((float)shape->d_model), 2);
    limits->query_bias = reef_cli_alloc(limits->width, sizeof(float));
    limits->sub_keys =
        floats_new(shape->side * shape->d_key, 1 / sqrtf(3 * (float)shape->d_key), 3);
    reef_status status =
        reef_router_tape_init(&limits->tape, shape, tokens, piece_tokens, false, err);
    // The rates of products alone need no rows, so a caller may leave them out.
    if (status == REEF_OK && rows != NULL) status = add_rows(limits, rows, err);
    if (status != REEF_OK) goto cleanup;
    *out = limits;
    limits = NULL; // the caller owns it now

cleanup:
    reef_bench_limits_free(limits);
    return status;
}

void reef_bench_limits_free(reef_bench_limits *limits) {
    if (limits == NULL) return;
    free(limits->small_rows);
    reef_router_tape_release(&limits->tape);
    free(limits->x);
    free(limits->w_query);
    free(limits->query_bias);
    free(limits->sub_keys);
    free(limits);
}

// ---- jobs ---------------------------------------------------------------------------------------

typedef struct job {
    reef_bench_limits *limits;
    atomic_size_t next; // chunk
    size_t chunk_count;
    void (*chunk)(struct job *job, size_t thread, size_t chunk);
    size_t tile_rows;  // of scores
    const char *bytes; // that are read
    size_t byte_count; // in order
    gather_form form;  // at random
    atomic_uint seen;  // of what was read, so that it has to be read
} job;

static void run_thread(void *context, size_t thread) {
    job *j = context;
    size_t chunk;
    while ((chunk = atomic_fetch_add(&j->next, 1)) < j->chunk_count) j->chunk(j, thread, chunk);
}

// The router, too, works on no more pieces at once than its tape has room for.
static double run_roofline(job *j, reef_thread_pool *workers) {
    size_t threads = reef_thread_pool_count(workers), room = j->limits->tape.slot_count;
    double started = reef_seconds();
    reef_thread_pool_run(workers, threads < room ? threads : room, run_thread, j);
    return reef_seconds() - started;
}

// The products of one piece of tokens, as the router calls them.
static void project_chunk(job *j, size_t thread, size_t chunk) {
    (void)thread;
    const reef_bench_limits *l = j->limits;
    size_t D = l->shape.d_model, first = chunk * l->piece_tokens;
    reef_gemm(false, false, l->piece_tokens, l->width, D, 1, l->x + first * D, D, l->w_query,
              l->width, 0, l->tape.query + first * l->width, l->width);
}

static void score_chunk(job *j, size_t thread, size_t chunk) {
    const reef_bench_limits *l = j->limits;
    size_t d_key = l->shape.d_key, half = d_key / 2, side = l->shape.side;
    // All heads of a piece of tokens are queries of the same products.
    size_t queries = l->piece_tokens * l->shape.head_count, first = chunk * queries;
    float *tiles = l->tape.scratch + thread * l->tape.slot_floats; // two, one for each table
    // In tiles, as the router does it: the scores of a tile stay in the cache between scoring and
    // choosing.
    for (size_t at = 0; at < queries; at += j->tile_rows) {
        size_t count = queries - at < j->tile_rows ? queries - at : j->tile_rows;
        for (size_t table = 0; table < 2; table++)
            reef_gemm(false, true, count, side, half, 1,
                      l->tape.query + (first + at) * d_key + table * half, d_key,
                      l->sub_keys + table * side * half, half, 0,
                      tiles + table * l->tape.tile_rows * l->tape.tile_stride, l->tape.tile_stride);
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

REEF_PREFETCH_ONLY static inline void prefetch(const char *row, size_t bytes, bool second_level) {
    if (second_level)
        for (size_t at = 0; at < bytes; at += LINE_BYTES) __builtin_prefetch(row + at, 0, 2);
    else
        for (size_t at = 0; at < bytes; at += LINE_BYTES) __builtin_prefetch(row + at, 0, 3);
}

// One part of each row of a token; with the first part the rows after them are prefetched.
//
// ids  `left` rows up to the end of the chunk; the first `count` are of this token
static unsigned gather_part(
    const job *j, const reef_expert_id *ids, size_t count, size_t left, size_t part) {
    // Rows are read in cache lines, so a part is a whole number of lines.
    size_t row_bytes = j->limits->row_bytes, lines = (row_bytes + LINE_BYTES - 1) / LINE_BYTES;
    size_t part_bytes = (lines + j->form.parts - 1) / j->form.parts * LINE_BYTES;
    size_t at = part * part_bytes;
    // With rows of few lines the last parts are empty.
    if (at >= row_bytes) return 0;
    size_t bytes = row_bytes - at < part_bytes ? row_bytes - at : part_bytes;
    unsigned seen = 0;
    for (size_t i = 0; i < count; i++) {
        // Prefetching ahead by a fixed number of rows hides the latency of memory; each row only
        // once, with its first part.
        if (part == 0 && i + j->form.distance < left)
            prefetch(j->bytes + ids[i + j->form.distance] * row_bytes, row_bytes,
                     j->form.second_level);
        // The bytes are combined and kept, or the compiler would leave the reading out.
        seen ^= touch(j->bytes + ids[i] * row_bytes + at, bytes);
    }
    return seen;
}

// The rows of one piece of tokens, in the layer's order.
static void gather_chunk(job *j, size_t thread, size_t chunk) {
    (void)thread;
    const reef_bench_limits *l = j->limits;
    size_t chosen = l->shape.head_count * l->shape.topk, count = l->piece_tokens * chosen;
    const reef_expert_id *ids = l->tape.indices + chunk * count;
    unsigned seen = 0;
    // The first rows of the piece have no earlier row that could have prefetched them.
    for (size_t i = 0; i < count && i < j->form.distance; i++)
        prefetch(j->bytes + ids[i] * l->row_bytes, l->row_bytes, j->form.second_level);
    // Token by token and part by part: the order in which the layer reads them.
    for (size_t i = 0; i < count; i += chosen)
        for (size_t part = 0; part < j->form.parts; part++)
            seen ^= gather_part(j, ids + i, chosen, count - i, part);
    // One atomic operation per piece, so that its cost does not show in the rate.
    atomic_fetch_xor_explicit(&j->seen, seen, memory_order_relaxed);
}

// ---- rates --------------------------------------------------------------------------------------

static double project_flops(const reef_bench_limits *l) {
    return 2.0 * (double)l->tokens * (double)l->shape.d_model * (double)l->width;
}

// Two tables of half the width.
static double score_flops(const reef_bench_limits *l) {
    return 2.0 * (double)l->tokens * (double)l->width * (double)l->shape.side;
}

// Of all selections: a row that comes back counts again, and where it is still in a cache, the
// layer finds it there as well.
static double gather_bytes(const reef_bench_limits *l) {
    return (double)l->gather_count * (double)l->row_bytes;
}

static double gather_rate(reef_bench_limits *limits, reef_thread_pool *workers, const char *rows) {
    double best = 0;
    // The best of several ways to read: a limit must not depend on one choice of prefetch distance.
    for (size_t i = 0; i < sizeof(GATHER_FORMS) / sizeof(GATHER_FORMS[0]); i++) {
        job j = {.limits = limits,
                 .chunk_count = limits->tokens / limits->piece_tokens,
                 .chunk = gather_chunk,
                 .bytes = rows,
                 .form = GATHER_FORMS[i]};
        double rate = gather_bytes(limits) / run_roofline(&j, workers);
        if (rate > best) best = rate;
    }
    return best;
}

static double stream_rate(reef_bench_limits *limits, reef_thread_pool *workers) {
    size_t bytes = limits->row_count * limits->row_bytes;
    if (bytes > STREAM_BYTES_MAX) bytes = STREAM_BYTES_MAX;
    job j = {.limits = limits,
             .chunk_count = (bytes + STREAM_CHUNK_BYTES - 1) / STREAM_CHUNK_BYTES,
             .chunk = stream_chunk,
             .bytes = limits->rows,
             .byte_count = bytes};
    return (double)bytes / run_roofline(&j, workers);
}

// In tiles as high as the router's and in tiles of half the height, which suit another cache
// better.
static double score_rate(reef_bench_limits *limits, reef_thread_pool *workers) {
    double best = 0;
    for (size_t part = 1; part <= 2; part++) {
        job j = {.limits = limits,
                 .chunk_count = limits->tokens / limits->piece_tokens,
                 .chunk = score_chunk,
                 .tile_rows = (limits->tape.tile_rows + part - 1) / part};
        double rate = score_flops(limits) / run_roofline(&j, workers);
        if (rate > best) best = rate;
    }
    return best;
}

void reef_bench_limits_products(reef_bench_limits *limits,
                                reef_thread_pool *workers,
                                reef_bench_rates *out) {
    size_t pieces = limits->tokens / limits->piece_tokens;
    job project = {.limits = limits, .chunk_count = pieces, .chunk = project_chunk};
    out->project_flops = project_flops(limits) / run_roofline(&project, workers);
    out->score_flops = score_rate(limits, workers); // of the queries that the line above made
}

void reef_bench_limits_memory(reef_bench_limits *limits,
                              reef_thread_pool *workers,
                              reef_bench_rates *out) {
    assert(limits->rows != NULL);
    out->sequential = stream_rate(limits, workers);
    out->gather = gather_rate(limits, workers, limits->small_rows);
    out->gather_huge = gather_rate(limits, workers, limits->rows);
}

void reef_bench_limits_sample(reef_bench_limits *limits,
                              reef_thread_pool *workers,
                              reef_bench_rates *out) {
    reef_bench_limits_products(limits, workers, out);
    reef_bench_limits_memory(limits, workers, out);
}

double reef_bench_limits_project(const reef_bench_limits *limits, const reef_bench_rates *rates) {
    return project_flops(limits) / rates->project_flops;
}

double reef_bench_limits_score(const reef_bench_limits *limits, const reef_bench_rates *rates) {
    return score_flops(limits) / rates->score_flops;
}

double reef_bench_limits_forward(const reef_bench_limits *limits, const reef_bench_rates *rates) {
    return reef_bench_limits_project(limits, rates) + reef_bench_limits_score(limits, rates) +
           gather_bytes(limits) / rates->gather_huge;
}

double reef_bench_huge_bytes(void) {
    return reef_bench_proc_bytes("/proc/self/smaps_rollup", "AnonHugePages");
}

double reef_bench_load(void) {
    double load;
    return getloadavg(&load, 1) == 1 ? load : NAN;
}
