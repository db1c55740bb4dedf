// What sealing saves: a training step over ten generations; all take part in every token.
// First all of them open, then all but the last sealed, then those with rows in bf16, alternately;
// see bench_peer.h.
//
// The sealed layers in float read the rows of their open twins, so that the pools fit beside each
// other; those in bf16 have rows of their own. Routers are their own, and moments are left out. All
// layers work on the tokens of the first.
#include "bench_peer.h"
#include "cli_format.h"
#include "cli_progress.h"

#include <math.h>
#include <stdlib.h>

#define MEMORY_SHARE_MAX 0.9 // of what is available

typedef struct pool {
    // The last generation is the same open layer in all of them.
    reef_layer_bench *layers[POOL_COUNT][PEER_GENERATION_COUNT];
    const void *rows[PEER_GENERATION_COUNT]; // of the open ones
} pool;

double reef_peer_sealed_ratio(const reef_peer_sealed *sealed, reef_peer_pool which) {
    return sealed->seconds[POOL_OPEN] / sealed->seconds[which];
}

// A tenth of the experts in each generation.
static size_t generation_side(const reef_router_shape *shape) {
    double experts = (double)shape->side * (double)shape->side;
    return (size_t)lround(sqrt(experts / PEER_GENERATION_COUNT));
}

// Rows and two moments of each generation, and half as many bytes of rows again in bf16; of each of
// all layers the queries before and after the batch norm and their gradients, and the gradients of
// the sub-keys of sixteen groups of pieces.
static double bytes_wanted(const reef_peer_plan *plan, const reef_router_shape *shape) {
    double rows = (double)shape->side * (double)shape->side * 2 * (double)shape->d_model;
    double queries = (double)plan->tokens * (double)shape->head_count * (double)shape->d_key;
    double keys = (double)shape->side * (double)shape->d_key;
    double layers = POOL_COUNT * (PEER_GENERATION_COUNT - 1) + 1;
    return sizeof(float) *
           (PEER_GENERATION_COUNT * 3.5 * rows + layers * (3 * queries + 16 * keys));
}

static reef_status check_memory(const reef_peer_plan *plan,
                                const reef_router_shape *shape,
                                reef_error *why) {
    char need[CLI_WORD_BYTES], there[CLI_WORD_BYTES];
    double wanted = bytes_wanted(plan, shape), have = reef_bench_available_bytes();
    // A head cannot pick more experts than a table has sub-keys.
    if (shape->side < shape->topk)
        return reef_fail(why, REEF_ERR_INVALID,
                         "a tenth of the experts is %zu x %zu, too few to choose %zu from",
                         shape->side, shape->side, shape->topk);
    // Refused before anything is allocated: a benchmark that swaps measures the disk.
    if (have > 0 && wanted > MEMORY_SHARE_MAX * have)
        return reef_fail(why, REEF_ERR_NO_MEMORY,
                         "ten generations of %zu x %zu experts that learn take %s, and %s are free",
                         shape->side, shape->side, reef_cli_bytes((uint64_t)wanted, need),
                         reef_cli_bytes((uint64_t)have, there));
    return REEF_OK;
}

// Those beside another one first.
static void release_pools(pool *p) {
    for (size_t g = 0; g + 1 < PEER_GENERATION_COUNT; g++) {
        reef_layer_bench_free(p->layers[POOL_BF16][g]);
        reef_layer_bench_free(p->layers[POOL_SEALED][g]);
    }
    for (size_t g = PEER_GENERATION_COUNT; g > 0; g--)
        reef_layer_bench_free(p->layers[POOL_OPEN][g - 1]);
}

// One generation of every pool, drawn alike.
static reef_status fill_generation(pool *p,
                                   size_t g,
                                   reef_layer_bench_options options,
                                   reef_thread_pool *workers,
                                   reef_error *err) {
    // Each generation has its own weights, but the three pools have the same ones.
    options.seed = BENCH_SEED + g;
    options.beside = p->layers[POOL_OPEN][0];
    reef_status status = reef_layer_bench_new(&p->layers[POOL_OPEN][g], &options, workers, err);
    if (status != REEF_OK) return status;
    // The last generation is the open one, which all three pools share.
    if (g + 1 == PEER_GENERATION_COUNT) {
        p->layers[POOL_SEALED][g] = p->layers[POOL_BF16][g] = p->layers[POOL_OPEN][g];
        return REEF_OK;
    }
    // Sealed generations need no moments of the optimiser: that is the memory they save.
    options.sealed = true;
    options.beside = p->layers[POOL_OPEN][0];
    options.dtype = REEF_BF16;
    status = reef_layer_bench_new(&p->layers[POOL_BF16][g], &options, workers, err);
    if (status != REEF_OK) return status;
    // The sealed f32 pool reads the rows of the open one, so that the weights are held once.
    p->rows[g] = reef_layer_bench_rows(p->layers[POOL_OPEN][g]);
    options.dtype = REEF_F32;
    options.row_blocks = &p->rows[g];
    // One block of all rows: no row number reaches the next block.
    options.row_block_shift = 32;
    return reef_layer_bench_new(&p->layers[POOL_SEALED][g], &options, workers, err);
}

static reef_status fill_pools(pool *p,
                              const reef_peer_plan *plan,
                              const reef_router_shape *shape,
                              reef_thread_pool *workers,
                              reef_error *err) {
    reef_layer_bench_options options = {
        .shape = *shape, .tokens = plan->tokens, .piece_tokens = plan->piece_tokens};
    reef_status status = REEF_OK;
    for (size_t g = 0; g < PEER_GENERATION_COUNT && status == REEF_OK; g++)
        status = fill_generation(p, g, options, workers, err);
    return status;
}

// One round of one pool.
typedef struct sample {
    double seconds;
    double stage[PEER_STAGE_COUNT]; // of the first generation alone, where it is sealed
} sample;

#define SAMPLE_FIELDS (sizeof(sample) / sizeof(double))

static void take_stages(const reef_layer_seconds *seconds, double stages[PEER_STAGE_COUNT]) {
#define STAGE_TAKE(field, text) stages[PEER_STAGE_##field] = seconds->field;
    PEER_STAGE_LIST(STAGE_TAKE)
#undef STAGE_TAKE
}

// The pool's step, and then one of a sealed generation by itself, which shows where the time goes.
static reef_status run_round(
    const pool *p, size_t which, reef_thread_pool *workers, sample *out, reef_error *err) {
    reef_layer_bench *const *layers = p->layers[which];
    reef_layer_seconds parts;
    // A step over all generations, as the trainer takes it.
    reef_status status =
        reef_layer_bench_step_all(PEER_GENERATION_COUNT, layers, workers, &parts, err);
    if (status != REEF_OK) return status;
    out->seconds = reef_bench_seconds_sum(&parts);
    // All generations of the open pool are alike, so one by itself shows nothing new.
    if (which == POOL_OPEN) return REEF_OK;
    status = reef_layer_bench_step(layers[0], workers, &parts, err);
    take_stages(&parts, out->stage);
    return status;
}

static double moment_bytes(reef_layer_bench *const *layers) {
    double bytes = 0;
    for (size_t g = 0; g < PEER_GENERATION_COUNT; g++)
        bytes += (double)reef_layer_bench_moment_bytes(layers[g]);
    return bytes;
}

// The rounds of one pool lie POOL_COUNT entries apart.
static void take_medians(
    const pool *p, size_t which, const sample *first, size_t count, reef_peer_sealed *out) {
    const size_t stride = POOL_COUNT * SAMPLE_FIELDS;
    out->seconds[which] = reef_bench_median(&first->seconds, count, stride);
    for (size_t i = 0; i < PEER_STAGE_COUNT; i++)
        out->sealed_stage[which][i] = reef_bench_median(&first->stage[i], count, stride);
    out->moment_bytes[which] = moment_bytes(p->layers[which]);
}

// Alternately; the first of each only warms up.
static reef_status measure_rounds(const pool *p,
                                  uint64_t repeat,
                                  reef_thread_pool *workers,
                                  reef_peer_sealed *out,
                                  reef_error *err) {
    sample(*samples)[POOL_COUNT] = reef_cli_alloc((size_t)repeat + 1, sizeof(*samples));
    reef_status status = REEF_OK;
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "sealing nine of ten", repeat + 1, "samples");
    // One round more than asked for, for the warm-up; the pools alternate within each.
    for (uint64_t i = 0; i <= repeat && status == REEF_OK; i++) {
        for (size_t which = 0; which < POOL_COUNT && status == REEF_OK; which++)
            status = run_round(p, which, workers, &samples[i][which], err);
        reef_cli_progress_show(&progress, i + 1);
    }
    reef_cli_progress_end(&progress);
    // From index 1: the warm-up is left out.
    for (size_t which = 0; which < POOL_COUNT && status == REEF_OK; which++)
        take_medians(p, which, &samples[1][which], (size_t)repeat, out);
    free(samples);
    return status;
}

reef_status reef_peer_sealed_measure(const reef_peer_plan *plan,
                                     reef_thread_pool *workers,
                                     reef_peer_sealed *out,
                                     reef_error *err) {
    reef_router_shape shape = plan->shape;
    shape.side = generation_side(&shape);
    *out = (reef_peer_sealed){.side = shape.side};
    // Too little memory is an answer of its own, not a failure of the whole benchmark.
    if (check_memory(plan, &shape, &out->missing) != REEF_OK) return REEF_OK;
    pool p = {0};
    reef_status status = fill_pools(&p, plan, &shape, workers, err);
    if (status == REEF_OK) status = measure_rounds(&p, plan->repeat, workers, out, err);
    release_pools(&p);
    return status;
}
