// One PEER layer by itself, against the machine's limits and against a baseline; see bench_peer.h.
//
// The layer, its limits and the baseline alternate, and every figure is the median of its
// repetitions, so that other load on the machine affects all of them alike. The share of the limit
// is taken within each repetition, from measurements that follow each other.
#include "bench_peer.h"
#include "cli_progress.h"

#include <math.h>
#include <stdlib.h>

#define SAMPLE_FIELDS (sizeof(reef_peer_sample) / sizeof(double))

typedef reef_status (*pass_function)(reef_layer_bench *layer,
                                     reef_thread_pool *workers,
                                     reef_layer_seconds *seconds,
                                     reef_error *err);

static const pass_function PASSES[PASS_COUNT] = {reef_layer_bench_retrieve,
                                                 reef_layer_bench_forward,
                                                 reef_layer_bench_backward, reef_layer_bench_step};

// ---- figures ------------------------------------------------------------------------------------

const reef_peer_run *reef_peer_run_all(const reef_peer_findings *findings) {
    return &findings->runs[findings->run_count - 1];
}

double reef_peer_tokens_per_s(const reef_peer_plan *plan, double seconds) {
    return (double)plan->tokens / seconds;
}

double reef_peer_microseconds(const reef_peer_plan *plan, double seconds) {
    return 1e6 * seconds / (double)plan->tokens;
}

double reef_peer_speedup(const reef_peer_findings *findings, size_t pass) {
    return findings->runs[0].median.pass[pass] / reef_peer_run_all(findings)->median.pass[pass];
}

double reef_peer_baseline_ratio(const reef_peer_plan *plan,
                                const reef_peer_findings *findings,
                                size_t pass,
                                reef_bench_baseline_row row) {
    double ours = reef_peer_tokens_per_s(plan, reef_peer_run_all(findings)->median.pass[pass]);
    const reef_peer_layer *layer = &findings->layer;
    return layer->baseline_count > 0 ? ours / layer->baseline_median.tokens_per_s[row] : NAN;
}

// ---- measuring ----------------------------------------------------------------------------------

static void copy_stages(const reef_layer_seconds *seconds, double stages[PEER_STAGE_COUNT]) {
#define STAGE_COPY(field, text) stages[PEER_STAGE_##field] = seconds->field;
    PEER_STAGE_LIST(STAGE_COPY)
#undef STAGE_COPY
}

static reef_status take_sample(reef_layer_bench *layer,
                               reef_bench_limits *limits,
                               const reef_peer_run *run,
                               reef_peer_sample *out,
                               reef_error *err) {
    *out = (reef_peer_sample){0};
    // The limits are sampled next to the passes they bound, so that both see the same clock and
    // load.
    reef_bench_limits_sample(limits, run->workers, &out->rates);
    for (size_t pass = 0; pass < PASS_COUNT; pass++) {
        reef_layer_seconds seconds;
        reef_status status = PASSES[pass](layer, run->workers, &seconds, err);
        if (status != REEF_OK) return status;
        // The sum of the stages, not the time around the call, which would count the reading of the
        // clock.
        out->pass[pass] = reef_bench_seconds_sum(&seconds);
        if (pass == PASS_FORWARD) copy_stages(&seconds, out->forward_stage);
        if (pass == PASS_STEP) copy_stages(&seconds, out->step_stage);
    }
    out->limit = reef_bench_limits_forward(limits, &out->rates);
    // 1 would be a forward pass that only waits for the machine.
    out->limit_share = out->limit / out->pass[PASS_FORWARD];
    return REEF_OK;
}

// One round: `repeat` repetitions, each with every number of threads.
static reef_status measure_round(const reef_peer_plan *plan,
                                 reef_layer_bench *layer,
                                 reef_bench_limits *limits,
                                 reef_peer_findings *f,
                                 reef_error *err) {
    for (uint64_t i = 0; i < plan->repeat; i++)
        // All numbers of threads in each repetition: a slow minute of the machine then hits all
        // alike.
        for (size_t r = 0; r < f->run_count; r++) {
            reef_peer_run *run = &f->runs[r];
            reef_status status = take_sample(layer, limits, run, &run->samples[run->count], err);
            if (status != REEF_OK) return status;
            run->count++;
        }
    return REEF_OK;
}

static void measure_baseline(const reef_peer_plan *plan, reef_peer_layer *out) {
    if (plan->baseline == NULL || out->baseline_error.status != REEF_OK) return;
    reef_status status = reef_bench_baseline_run(
        plan->baseline, plan->shape.side, plan->shape.d_model, plan->tokens, plan->threads,
        &out->baseline[out->baseline_count], &out->baseline_error);
    if (status == REEF_OK) out->baseline_count++;
}

// Pages, caches, OpenBLAS and the workers settle; nothing of it counts.
static reef_status warm_up(reef_layer_bench *layer,
                           reef_bench_limits *limits,
                           reef_peer_findings *f,
                           reef_error *err) {
    reef_peer_sample ignored;
    for (size_t r = 0; r < f->run_count; r++) {
        reef_status status = take_sample(layer, limits, &f->runs[r], &ignored, err);
        if (status != REEF_OK) return status;
        if (r == 0) f->layer.loss_before = reef_layer_bench_loss(layer);
    }
    return REEF_OK;
}

static reef_status measure_rounds(const reef_peer_plan *plan,
                                  reef_layer_bench *layer,
                                  reef_bench_limits *limits,
                                  reef_peer_findings *f,
                                  reef_error *err) {
    // The first pass pages the pool in and is not counted.
    reef_status status = warm_up(layer, limits, f, err);
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "measuring", plan->rounds, "rounds");
    for (uint64_t round = 0; round < plan->rounds && status == REEF_OK; round++) {
        status = measure_round(plan, layer, limits, f, err);
        // The baseline runs in every round, on the same machine in the same minutes.
        if (status == REEF_OK) measure_baseline(plan, &f->layer);
        reef_cli_progress_show(&progress, round + 1);
    }
    reef_cli_progress_end(&progress);
    if (status != REEF_OK) return status;
    // The loss after training is printed so that a reader sees that the step really trained.
    f->layer.loss_after = reef_layer_bench_loss(layer);
    f->layer.touched = reef_layer_bench_touched(layer);
    f->layer.huge_bytes = reef_bench_huge_bytes();
    return REEF_OK;
}

static void take_medians(reef_peer_findings *f) {
    for (size_t r = 0; r < f->run_count; r++) {
        const double *first = (const double *)f->runs[r].samples;
        double *out = (double *)&f->runs[r].median;
        for (size_t i = 0; i < SAMPLE_FIELDS; i++)
            out[i] = reef_bench_median(first + i, f->runs[r].count, SAMPLE_FIELDS);
    }
    reef_peer_layer *layer = &f->layer;
    for (size_t row = 0; layer->baseline_count > 0 && row < BASELINE_ROW_COUNT; row++)
        layer->baseline_median.tokens_per_s[row] = reef_bench_median(
            &layer->baseline[0].tokens_per_s[row], layer->baseline_count, BASELINE_ROW_COUNT);
}

reef_status reef_peer_layer_measure(const reef_peer_plan *plan,
                                    reef_peer_findings *findings,
                                    reef_error *err) {
    reef_layer_bench *layer = NULL;
    reef_bench_limits *limits = NULL;
    reef_layer_bench_options options = {.shape = plan->shape,
                                        .tokens = plan->tokens,
                                        .piece_tokens = plan->piece_tokens,
                                        .seed = BENCH_SEED};
    // Room for every sample is allocated before, so that nothing allocates between two
    // measurements.
    for (size_t r = 0; r < findings->run_count; r++)
        findings->runs[r].samples =
            reef_cli_alloc((size_t)(plan->rounds * plan->repeat), sizeof(reef_peer_sample));
    findings->layer.baseline =
        reef_cli_alloc((size_t)plan->rounds, sizeof(*findings->layer.baseline));
    // The threads' memory is placed by the run with all of them, as it is in the daemon.
    reef_status status =
        reef_layer_bench_new(&layer, &options, reef_peer_run_all(findings)->workers, err);
    if (status != REEF_OK) goto cleanup;
    status = reef_bench_limits_new(&limits, &plan->shape, plan->tokens, plan->piece_tokens,
                                   reef_layer_bench_rows(layer), err);
    if (status != REEF_OK) goto cleanup;
    status = measure_rounds(plan, layer, limits, findings, err);
    // Medians only when all rounds were measured: of fewer they would not be comparable.
    if (status == REEF_OK) take_medians(findings);

cleanup:
    reef_bench_limits_free(limits);
    reef_layer_bench_free(layer);
    return status;
}

void reef_peer_layer_release(reef_peer_findings *findings) {
    for (size_t r = 0; r < PEER_RUNS_MAX; r++) free(findings->runs[r].samples);
    free(findings->layer.baseline);
}
