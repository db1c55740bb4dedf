// The gain of the router's first pass: retrieval with it and with all sub-keys scored, alternately,
// and beside them the products of BLAS by themselves; see bench_peer.h.
#include "bench_peer.h"

#include <stdlib.h>
#include <string.h>

enum { WAY_FIRST_PASS, WAY_ALL_SCORES, WAY_COUNT };

// One round: both ways, and the products.
typedef struct sample {
    double seconds[WAY_COUNT], query, scores;
} sample;

#define SAMPLE_FIELDS (sizeof(sample) / sizeof(double))

static reef_status take_sample(reef_layer_bench *layer,
                               reef_bench_limits *limits,
                               reef_thread_pool *workers,
                               sample *out,
                               reef_error *err) {
    reef_bench_rates rates;
    reef_bench_limits_products(limits, workers, &rates);
    out->query = reef_bench_limits_project(limits, &rates);
    out->scores = reef_bench_limits_score(limits, &rates);
    for (size_t way = 0; way < WAY_COUNT; way++) {
        reef_layer_seconds parts;
        reef_layer_bench_score_all(layer, way == WAY_ALL_SCORES);
        reef_status status = reef_layer_bench_retrieve(layer, workers, &parts, err);
        if (status != REEF_OK) return status;
        out->seconds[way] = parts.retrieval;
    }
    return REEF_OK;
}

static reef_status measure_rounds(reef_layer_bench *layer,
                                  reef_bench_limits *limits,
                                  uint64_t repeat,
                                  reef_thread_pool *workers,
                                  reef_peer_retrieval *out,
                                  reef_error *err) {
    sample *samples = reef_cli_alloc((size_t)repeat + 1, sizeof(*samples));
    reef_status status = REEF_OK;
    // One round more than asked for: the first fills the caches and is not counted.
    for (uint64_t i = 0; i <= repeat && status == REEF_OK; i++)
        status = take_sample(layer, limits, workers, &samples[i], err);
    const sample *first = &samples[1];
    const struct {
        const double *values;
        double *median;
    } fields[] = {
        {&first->seconds[WAY_FIRST_PASS], &out->seconds},
        {&first->seconds[WAY_ALL_SCORES], &out->all_scores_seconds},
        {&first->query, &out->query_seconds},
        {&first->scores, &out->scores_seconds},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        *fields[i].median = reef_bench_median(fields[i].values, (size_t)repeat, SAMPLE_FIELDS);
    free(samples);
    return status;
}

// Ids and weights of one way after the other.
static reef_status compare_ways(const reef_peer_plan *plan,
                                reef_layer_bench *layer,
                                reef_thread_pool *workers,
                                bool *same,
                                reef_error *err) {
    const reef_router_tape *tape = reef_layer_bench_tape(layer);
    const size_t count = plan->tokens * plan->shape.head_count * plan->shape.topk;
    reef_expert_id *indices = reef_cli_alloc(count, sizeof(*indices));
    float *gate = reef_cli_alloc(count, sizeof(*gate));
    reef_layer_seconds ignored;
    reef_layer_bench_score_all(layer, true);
    reef_status status = reef_layer_bench_retrieve(layer, workers, &ignored, err);
    memcpy(indices, tape->indices, count * sizeof(*indices));
    memcpy(gate, tape->gate, count * sizeof(*gate));
    reef_layer_bench_score_all(layer, false);
    if (status == REEF_OK) status = reef_layer_bench_retrieve(layer, workers, &ignored, err);
    *same = memcmp(indices, tape->indices, count * sizeof(*indices)) == 0 &&
            memcmp(gate, tape->gate, count * sizeof(*gate)) == 0;
    free(indices);
    free(gate);
    return status;
}

double reef_peer_retrieval_ratio(const reef_peer_retrieval *retrieval) {
    return retrieval->all_scores_seconds / retrieval->seconds;
}

reef_status reef_peer_retrieval_measure(const reef_peer_plan *plan,
                                        reef_thread_pool *workers,
                                        reef_peer_retrieval *out,
                                        reef_error *err) {
    reef_layer_bench *layer = NULL;
    reef_bench_limits *limits = NULL;
    reef_layer_bench_options options = {.shape = plan->shape,
                                        .tokens = plan->tokens,
                                        .piece_tokens = plan->piece_tokens,
                                        .seed = BENCH_SEED,
                                        .sealed = true,
                                        .dtype = REEF_BF16};
    *out = (reef_peer_retrieval){0};
    reef_status status = reef_layer_bench_new(&layer, &options, workers, err);
    if (status != REEF_OK) goto cleanup;
    status =
        reef_bench_limits_new(&limits, &plan->shape, plan->tokens, plan->piece_tokens, NULL, err);
    if (status != REEF_OK) goto cleanup;
    out->first_pass = reef_layer_bench_tape(layer)->coarse != NULL;
    status = measure_rounds(layer, limits, plan->repeat, workers, out, err);
    if (status == REEF_OK) status = compare_ways(plan, layer, workers, &out->same, err);

cleanup:
    reef_bench_limits_free(limits);
    reef_layer_bench_free(layer);
    return status;
}
