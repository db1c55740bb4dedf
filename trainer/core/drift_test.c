// See drift_test.h. The history is a ring; sorting a copy of it costs microseconds beside a
// training step.
#include "drift_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_drift_init(reef_drift *drift, uint32_t window, reef_error *err) {
    *drift = (reef_drift){
        .window = window,
        .history = calloc(window, sizeof(*drift->history)),
        .scratch = calloc(window, sizeof(*drift->scratch)),
    };
    if (drift->history != NULL && drift->scratch != NULL) return REEF_OK;
    reef_drift_release(drift);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a drift window of %u batches", window);
}

void reef_drift_release(reef_drift *drift) {
    free(drift->history);
    free(drift->scratch);
    *drift = (reef_drift){0};
}

void reef_drift_reset(reef_drift *drift) {
    drift->count = 0;
    drift->next = 0;
}

void reef_drift_push(reef_drift *drift, double bits) {
    drift->history[drift->next] = bits;
    drift->next = (drift->next + 1) % drift->window;
    if (drift->count < drift->window) drift->count++;
}

double reef_drift_at(const reef_drift *drift, uint32_t i) {
    return drift->history[(drift->next + drift->window - drift->count + i) % drift->window];
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double reef_median(double *values, uint32_t count) {
    qsort(values, count, sizeof(*values), ascending);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

void reef_drift_level(const reef_drift *drift, double *median, double *spread) {
    *median = *spread = 0.0;
    if (drift->count == 0) return;
    memcpy(drift->scratch, drift->history, drift->count * sizeof(*drift->scratch));
    *median = reef_median(drift->scratch, drift->count);
    for (uint32_t i = 0; i < drift->count; i++)
        drift->scratch[i] = fabs(drift->history[i] - *median);
    *spread = 1.4826 * reef_median(drift->scratch, drift->count);
}

double reef_drift_limit(double median, double spread, const reef_config *config) {
    return median + fmax((double)config->drift_z * spread, (double)config->drift_bits);
}

double reef_drift_cusum(
    double sum, double bits, double median, double spread, const reef_config *config) {
    double reach = reef_drift_limit(median, spread, config) - median;
    double more = sum + bits - median - fmax(spread, (double)config->drift_bits);
    return fmin(fmax(more, 0.0), 2.0 * reach);
}
