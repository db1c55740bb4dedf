// The gain of fewer bytes: the forward pass of one sealed layer with rounded rows and of its twin
// with the same rows in float, alternately; see bench_peer.h.
#include "bench_peer.h"

#include <math.h>
#include <stdlib.h>

static double largest_difference(const reef_peer_plan *plan, const float *y, const float *exact) {
    double largest = 0;
    for (size_t t = 0; t < plan->tokens; t++) {
        double difference = 0, norm = 0;
        // The error is relative to the length of the row, as rows differ in scale.
        for (size_t i = t * plan->shape.d_model; i < (t + 1) * plan->shape.d_model; i++) {
            double apart = (double)y[i] - (double)exact[i];
            difference += apart * apart;
            norm += (double)exact[i] * (double)exact[i];
        }
        // A row of zeros has no relative error.
        if (norm > 0) largest = fmax(largest, sqrt(difference / norm));
    }
    return largest;
}

// One round: of both layers the whole pass and its experts.
typedef struct sample {
    double seconds[2], experts[2];
} sample;

#define SAMPLE_FIELDS (sizeof(sample) / sizeof(double))

static reef_status forward(
    reef_layer_bench *layer, reef_thread_pool *workers, size_t n, sample *out, reef_error *err) {
    reef_layer_seconds parts;
    reef_status status = reef_layer_bench_forward(layer, workers, &parts, err);
    out->seconds[n] = reef_bench_seconds_sum(&parts);
    out->experts[n] = parts.experts;
    return status;
}

// Alternately; the first of each only warms up.
static reef_status measure_rounds(reef_layer_bench *const layers[2],
                                  uint64_t repeat,
                                  reef_thread_pool *workers,
                                  reef_peer_rounded *out,
                                  reef_error *err) {
    sample *samples = reef_cli_alloc((size_t)repeat + 1, sizeof(*samples));
    reef_status status = REEF_OK;
    // One round more than asked for: the first fills the caches and is not counted.
    for (uint64_t i = 0; i <= repeat; i++)
        for (size_t n = 0; n < 2 && status == REEF_OK; n++)
            status = forward(layers[n], workers, n, &samples[i], err);
    const sample *first = &samples[1];
    out->f32_seconds = reef_bench_median(&first->seconds[0], (size_t)repeat, SAMPLE_FIELDS);
    out->seconds = reef_bench_median(&first->seconds[1], (size_t)repeat, SAMPLE_FIELDS);
    out->f32_experts_seconds = reef_bench_median(&first->experts[0], (size_t)repeat, SAMPLE_FIELDS);
    out->experts_seconds = reef_bench_median(&first->experts[1], (size_t)repeat, SAMPLE_FIELDS);
    free(samples);
    return status;
}

reef_status reef_peer_rounded_measure(const reef_peer_plan *plan,
                                      reef_dtype dtype,
                                      reef_thread_pool *workers,
                                      reef_peer_rounded *out,
                                      reef_error *err) {
    reef_layer_bench *layers[2] = {NULL, NULL};
    reef_layer_bench_options options = {.shape = plan->shape,
                                        .tokens = plan->tokens,
                                        .piece_tokens = plan->piece_tokens,
                                        .seed = BENCH_SEED,
                                        .sealed = true,
                                        .dtype = REEF_F32};
    *out = (reef_peer_rounded){0};
    // The same seed for both layers: they hold the same weights and differ in their rounding only.
    reef_status status = reef_layer_bench_new(&layers[0], &options, workers, err);
    if (status != REEF_OK) goto cleanup;
    options.dtype = dtype;
    status = reef_layer_bench_new(&layers[1], &options, workers, err);
    if (status != REEF_OK) goto cleanup;
    status = measure_rounds(layers, plan->repeat, workers, out, err);
    if (status != REEF_OK) goto cleanup;
    // What one row costs on disk and in memory is reported beside the speed.
    out->f32_bytes = (double)reef_layer_bench_row_bytes(layers[0]);
    out->bytes = (double)reef_layer_bench_row_bytes(layers[1]);
    // Both layers have run on the same input, so their outputs can be compared.
    out->difference = largest_difference(plan, reef_layer_bench_output(layers[1]),
                                         reef_layer_bench_output(layers[0]));

cleanup:
    reef_layer_bench_free(layers[0]);
    reef_layer_bench_free(layers[1]);
    return status;
}
