// See bench_machine.h.
#include "bench_machine.h"

#include "bench_layer.h"
#include "cli_table.h"

#include <stdio.h>
#include <string.h>

#define ROW_BYTES_MAX 2147483648.0 // 1024 x 1024 experts of width 256
#define REPEAT 3

// All fields of rates are doubles, in one order.
#define RATE_COUNT (sizeof(reef_bench_rates) / sizeof(double))

static reef_status sample(reef_bench_limits *limits,
                          size_t threads,
                          reef_bench_rates *out,
                          reef_error *err) {
    reef_thread_pool *workers = NULL;
    reef_status status = reef_thread_pool_new(&workers, threads, err);
    if (status != REEF_OK) return status;
    double samples[REPEAT][RATE_COUNT], medians[RATE_COUNT];
    // The machine's speed varies with its neighbours and its temperature: the median of several
    // samples is taken.
    for (size_t i = 0; i < REPEAT; i++) {
        reef_bench_rates rates;
        reef_bench_limits_sample(limits, workers, &rates);
        memcpy(samples[i], &rates, sizeof(rates));
    }
    // A median for each rate by itself, as they are limits of different parts.
    for (size_t r = 0; r < RATE_COUNT; r++)
        medians[r] = reef_bench_median(&samples[0][r], REPEAT, RATE_COUNT);
    memcpy(out, medians, sizeof(*out));
    reef_thread_pool_free(workers);
    return REEF_OK;
}

static size_t bounded_side(const reef_router_shape *shape) {
    size_t side = shape->side;
    double row_bytes = 2 * (double)shape->d_model * sizeof(float);
    while (side / 2 >= shape->topk && (double)side * (double)side * row_bytes > ROW_BYTES_MAX)
        side /= 2;
    return side;
}

reef_status reef_bench_machine_measure(const reef_router_shape *shape,
                                       size_t tokens,
                                       size_t threads,
                                       reef_bench_machine *out,
                                       reef_error *err) {
    reef_thread_pool *workers = NULL;
    reef_layer_bench *layer = NULL;
    reef_bench_limits *limits = NULL;
    reef_layer_bench_options options = {.shape = *shape,
                                        .tokens = tokens,
                                        .piece_tokens = reef_bench_piece_tokens(tokens),
                                        .seed = BENCH_SEED,
                                        .sealed = true};
    // The same shape as the layer that is measured, so that the limits are limits of that layer.
    options.shape.batch_norm = true;
    // The pool is bounded to what memory holds: the rates do not depend on its size beyond the
    // caches.
    options.shape.side = bounded_side(shape);
    *out = (reef_bench_machine){0};
    reef_status status = reef_thread_pool_new(&workers, threads, err);
    if (status == REEF_OK) status = reef_layer_bench_new(&layer, &options, workers, err);
    if (status == REEF_OK)
        status = reef_bench_limits_new(&limits, &options.shape, tokens, options.piece_tokens,
                                       reef_layer_bench_rows(layer), err);
    out->threads = reef_thread_pool_count(workers);
    // One thread and all threads are separate limits: memory bandwidth does not grow with threads.
    if (status == REEF_OK) status = sample(limits, 1, &out->one, err);
    if (status == REEF_OK) status = sample(limits, out->threads, &out->all, err);
    // The limits read the rows of the layer, so they are freed before it.
    reef_bench_limits_free(limits);
    reef_layer_bench_free(layer);
    reef_thread_pool_free(workers);
    return status;
}

json_t *reef_bench_rates_json(const reef_bench_rates *r) {
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o}", "gemm_query_gflops", reef_cli_real(1e-9 * r->project_flops),
        "gemm_scores_gflops", reef_cli_real(1e-9 * r->score_flops), "sequential_gb_per_s",
        reef_cli_real(1e-9 * r->sequential), "gather_gb_per_s", reef_cli_real(1e-9 * r->gather),
        "gather_huge_gb_per_s", reef_cli_real(1e-9 * r->gather_huge));
}

static json_t *with_threads(size_t threads, const reef_bench_rates *rates) {
    json_t *object = reef_bench_rates_json(rates);
    json_object_set_new(object, "threads", json_integer((json_int_t)threads));
    return object;
}

json_t *reef_bench_machine_json(const reef_bench_machine *machine) {
    return json_pack("[o, o]", with_threads(1, &machine->one),
                     with_threads(machine->threads, &machine->all));
}

static void row(reef_cli_table *table, const char *name, double one, double all) {
    reef_cli_table_cell(table, "%s", name);
    reef_cli_table_cell(table, "%.1f", 1e-9 * one);
    reef_cli_table_cell(table, "%.1f", 1e-9 * all);
}

void reef_bench_rates_rows(reef_cli_table *table,
                           const reef_bench_rates *one,
                           const reef_bench_rates *all) {
    row(table, "products, query network, GFLOP/s", one->project_flops, all->project_flops);
    row(table, "products, scores, GFLOP/s", one->score_flops, all->score_flops);
    row(table, "reading in order, GB/s", one->sequential, all->sequential);
    row(table, "random rows, small pages, GB/s", one->gather, all->gather);
    row(table, "random rows, huge pages, GB/s", one->gather_huge, all->gather_huge);
}

void reef_bench_machine_print(const reef_bench_machine *machine) {
    static const char *const HEADING[] = {"what the machine does", "1 thread", "all threads"};
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    reef_bench_rates_rows(table, &machine->one, &machine->all);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}
