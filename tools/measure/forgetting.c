// See metrics.h.
#include "forgetting.h"

#include <math.h>

double metrics_gain(bool rising, double before, double after) {
    return rising ? after - before : before - after;
}

double metrics_mean(size_t count, const double *values) {
    double sum = 0;
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        if (isnan(values[i])) continue;
        sum += values[i];
        known++;
    }
    return known > 0 ? sum / (double)known : NAN;
}

double metrics_at(const metrics_matrix *matrix, size_t row, size_t column) {
    return matrix->values[row * matrix->columns + column];
}

static size_t learned_row(const metrics_matrix *matrix, size_t column) {
    size_t row = matrix->learned ? matrix->learned[column] : METRICS_UNKNOWN;
    return row < matrix->rows ? row : METRICS_UNKNOWN;
}

double metrics_learned(const metrics_matrix *matrix, size_t column) {
    size_t row = learned_row(matrix, column);
    return row == METRICS_UNKNOWN ? NAN : metrics_at(matrix, row, column);
}

bool metrics_is_old(const metrics_matrix *matrix, size_t column) {
    size_t row = learned_row(matrix, column);
    if (row == METRICS_UNKNOWN) return false;
    for (size_t j = 0; j < matrix->columns; j++) {
        size_t other = learned_row(matrix, j);
        if (other != METRICS_UNKNOWN && other > row) return true;
    }
    return false;
}

double metrics_forgetting_max(const metrics_matrix *matrix, size_t column) {
    double now = metrics_at(matrix, matrix->rows - 1, column), most = NAN;
    for (size_t row = 0; row + 1 < matrix->rows; row++) {
        double lost = metrics_gain(matrix->rising, now, metrics_at(matrix, row, column));
        if (!isnan(lost) && !(lost <= most)) most = lost;
    }
    return most;
}

double metrics_forgetting_learned(const metrics_matrix *matrix, size_t column) {
    double now = metrics_at(matrix, matrix->rows - 1, column);
    return metrics_gain(matrix->rising, now, metrics_learned(matrix, column));
}

double metrics_forward_transfer(const metrics_matrix *matrix, size_t column) {
    size_t row = learned_row(matrix, column);
    if (row == METRICS_UNKNOWN || row == 0) return NAN;
    return metrics_gain(matrix->rising, metrics_at(matrix, 0, column),
                        metrics_at(matrix, row - 1, column));
}

// The first domain learned had nothing to be transferred to it.
static bool is_first(const metrics_matrix *matrix, size_t column) {
    size_t row = learned_row(matrix, column);
    for (size_t j = 0; j < matrix->columns; j++)
        if (learned_row(matrix, j) < row) return false;
    return true;
}

static void add(double *sum, size_t *count, double value) {
    if (isnan(value)) return;
    *sum += value;
    ++*count;
}

metrics_summary metrics_summarise(const metrics_matrix *matrix) {
    double most = 0, learned = 0, forward = 0;
    size_t most_count = 0, learned_count = 0, forward_count = 0;
    for (size_t j = 0; j < matrix->columns; j++) {
        if (metrics_is_old(matrix, j)) {
            add(&most, &most_count, metrics_forgetting_max(matrix, j));
            add(&learned, &learned_count, metrics_forgetting_learned(matrix, j));
        }
        if (!is_first(matrix, j))
            add(&forward, &forward_count, metrics_forward_transfer(matrix, j));
    }
    metrics_summary summary = {
        .final_mean =
            metrics_mean(matrix->columns, matrix->values + (matrix->rows - 1) * matrix->columns),
        .forgetting_max = most_count > 0 ? most / (double)most_count : NAN,
        .forgetting_learned = learned_count > 0 ? learned / (double)learned_count : NAN,
        .forward_transfer = forward_count > 0 ? forward / (double)forward_count : NAN,
    };
    summary.backward_transfer = -summary.forgetting_learned;
    return summary;
}

double metrics_stability_gap(bool rising, double before, size_t count, const double *after) {
    double worst = NAN;
    for (size_t i = 0; i < count; i++) {
        double lost = metrics_gain(rising, after[i], before);
        if (!isnan(lost) && !(lost <= worst)) worst = lost;
    }
    return worst;
}

double metrics_learned_share(double before, double own, double baseline) {
    return (own - before) / (baseline - before);
}
