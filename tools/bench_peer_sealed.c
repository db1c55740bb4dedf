// What sealing saves: a training step over ten generations, all of which take part in every token. Once
// all of them are open, once all but the last are sealed, in turns; see bench_peer.h.
//
// The sealed layers read the rows of their open twins, so that both pools fit beside each other; their
// routers are their own, and they have no moments. All layers work on the tokens of the first.
#include "bench_peer.h"

#include <math.h>
#include <stdlib.h>

#define MEMORY_SHARE_MAX 0.9 // of what is available

typedef struct pool {
    reef_layer_bench *open[PEER_GENERATION_COUNT];
    reef_layer_bench *mixed[PEER_GENERATION_COUNT]; // sealed; the last is that of `open`
    const void *rows[PEER_GENERATION_COUNT];        // of `open`
} pool;

// A tenth of the experts in each generation.
static size_t generation_side(const reef_router_shape *shape) {
    double experts = (double)shape->side * (double)shape->side;
    return (size_t)lround(sqrt(experts / PEER_GENERATION_COUNT));
}

// Rows and two moments of each generation; of each of all layers the queries before and after the batch
// norm and their gradients, and the gradients of the sub-keys of sixteen groups of pieces.
static double bytes_wanted(const peer_plan *plan, const reef_router_shape *shape) {
    double rows = (double)shape->side * (double)shape->side * 2 * (double)shape->d_model;
    double queries = (double)plan->tokens * (double)shape->head_count * (double)shape->d_key;
    double keys = (double)shape->side * (double)shape->d_key;
    double layers = 2 * PEER_GENERATION_COUNT - 1;
    return sizeof(float) * (PEER_GENERATION_COUNT * 3 * rows + layers * (3 * queries + 16 * keys));
}

static reef_status check(const peer_plan *plan, const reef_router_shape *shape, reef_error *why) {
    char need[CLI_WORD_BYTES], there[CLI_WORD_BYTES];
    double wanted = bytes_wanted(plan, shape), have = bench_available_bytes();
    if (shape->side < shape->topk)
        return reef_fail(why, REEF_INVALID,
                         "a tenth of the experts is %zu x %zu, too few to choose %zu from",
                         shape->side, shape->side, shape->topk);
    if (have > 0 && wanted > MEMORY_SHARE_MAX * have)
        return reef_fail(why, REEF_NO_MEMORY,
                         "ten generations of %zu x %zu experts that learn take %s, and %s are free",
                         shape->side, shape->side, cli_bytes((uint64_t)wanted, need),
                         cli_bytes((uint64_t)have, there));
    return REEF_OK;
}

static void release(pool *p) {
    for (size_t g = 0; g + 1 < PEER_GENERATION_COUNT; g++) reef_layer_bench_free(p->mixed[g]);
    for (size_t g = PEER_GENERATION_COUNT; g > 0; g--) reef_layer_bench_free(p->open[g - 1]);
}

static reef_status fill(pool *p,
                        const peer_plan *plan,
                        const reef_router_shape *shape,
                        reef_workers *workers,
                        reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t g = 0; g < PEER_GENERATION_COUNT && status == REEF_OK; g++) {
        reef_layer_bench_options options = {.shape = *shape,
                                            .tokens = plan->tokens,
                                            .piece_tokens = plan->piece_tokens,
                                            .seed = BENCH_SEED + g,
                                            .beside = p->open[0]};
        status = reef_layer_bench_new(&p->open[g], &options, workers, err);
        if (status != REEF_OK) return status;
        if (g + 1 == PEER_GENERATION_COUNT) break;
        p->rows[g] = reef_layer_bench_rows(p->open[g]);
        options.sealed = true;
        options.row_blocks = &p->rows[g];
        options.row_block_shift = 32;
        options.beside = p->open[0];
        status = reef_layer_bench_new(&p->mixed[g], &options, workers, err);
    }
    p->mixed[PEER_GENERATION_COUNT - 1] = p->open[PEER_GENERATION_COUNT - 1];
    return status;
}

static reef_status step(reef_layer_bench *const *layers,
                        reef_workers *workers,
                        double *seconds,
                        reef_error *err) {
    reef_layer_seconds parts;
    reef_status status =
        reef_layer_bench_step_all(PEER_GENERATION_COUNT, layers, workers, &parts, err);
    *seconds = bench_seconds_sum(&parts);
    return status;
}

static double moment_bytes(reef_layer_bench *const *layers) {
    double bytes = 0;
    for (size_t g = 0; g < PEER_GENERATION_COUNT; g++)
        bytes += (double)reef_layer_bench_moment_bytes(layers[g]);
    return bytes;
}

// In turns; the first of each only warms up.
static reef_status measure(
    const pool *p, uint64_t repeat, reef_workers *workers, peer_sealed *out, reef_error *err) {
    double(*seconds)[2] = cli_alloc((size_t)repeat + 1, sizeof(*seconds));
    reef_status status = REEF_OK;
    cli_progress progress;
    cli_progress_start(&progress, "sealing nine of ten", repeat + 1, "turns");
    for (uint64_t i = 0; i <= repeat && status == REEF_OK; i++) {
        status = step(p->open, workers, &seconds[i][0], err);
        if (status == REEF_OK) status = step(p->mixed, workers, &seconds[i][1], err);
        cli_progress_show(&progress, i + 1);
    }
    cli_progress_end(&progress);
    if (status == REEF_OK) {
        out->open_seconds = bench_median(&seconds[1][0], (size_t)repeat, 2);
        out->sealed_seconds = bench_median(&seconds[1][1], (size_t)repeat, 2);
        out->open_moment_bytes = moment_bytes(p->open);
        out->sealed_moment_bytes = moment_bytes(p->mixed);
    }
    free(seconds);
    return status;
}

reef_status peer_sealed_measure(const peer_plan *plan,
                                reef_workers *workers,
                                peer_sealed *out,
                                reef_error *err) {
    reef_router_shape shape = plan->shape;
    shape.side = generation_side(&shape);
    *out = (peer_sealed){.side = shape.side};
    if (check(plan, &shape, &out->missing) != REEF_OK) return REEF_OK;
    pool p = {0};
    reef_status status = fill(&p, plan, &shape, workers, err);
    if (status == REEF_OK) status = measure(&p, plan->repeat, workers, out, err);
    release(&p);
    return status;
}
