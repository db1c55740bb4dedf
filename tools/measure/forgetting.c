// See forgetting.h.
#include "forgetting.h"

#include <math.h>

double reef_metrics_mean(size_t count, const double *values) {
    double sum = 0;
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        if (isnan(values[i])) continue;
        sum += values[i];
        known++;
    }
    return known > 0 ? sum / (double)known : NAN;
}

double reef_metrics_at(const reef_metrics_matrix *matrix, size_t row, size_t column) {
    return matrix->values[row * matrix->columns + column];
}

static size_t learned_row(const reef_metrics_matrix *matrix, size_t column) {
    size_t row = matrix->learned != NULL ? matrix->learned[column] : METRICS_UNKNOWN;
    return row < matrix->rows ? row : METRICS_UNKNOWN;
}

double reef_metrics_learned(const reef_metrics_matrix *matrix, size_t column) {
    size_t row = learned_row(matrix, column);
    return row == METRICS_UNKNOWN ? NAN : reef_metrics_at(matrix, row, column);
}

bool reef_metrics_is_old(const reef_metrics_matrix *matrix, size_t column) {
    size_t row = learned_row(matrix, column);
    if (row == METRICS_UNKNOWN) return false;
    for (size_t j = 0; j < matrix->columns; j++) {
        size_t other = learned_row(matrix, j);
        if (other != METRICS_UNKNOWN && other > row) return true;
    }
    return false;
}

double reef_metrics_forgetting_max(const reef_metrics_matrix *matrix, size_t column) {
    double now = reef_metrics_at(matrix, matrix->rows - 1, column), most = NAN;
    for (size_t row = 0; row + 1 < matrix->rows; row++) {
        double lost = now - reef_metrics_at(matrix, row, column);
        if (!isnan(lost) && !(lost <= most)) most = lost;
    }
    return most;
}

double reef_metrics_forgetting_learned(const reef_metrics_matrix *matrix, size_t column) {
    return reef_metrics_at(matrix, matrix->rows - 1, column) - reef_metrics_learned(matrix, column);
}

static void add_known(double *sum, size_t *count, double value) {
    if (isnan(value)) return;
    *sum += value;
    ++*count;
}

reef_metrics_summary reef_metrics_summarise(const reef_metrics_matrix *matrix) {
    double most = 0, learned = 0;
    size_t most_count = 0, learned_count = 0;
    for (size_t j = 0; j < matrix->columns; j++) {
        // A domain that was never learned cannot be forgotten.
        if (reef_metrics_is_old(matrix, j)) {
            add_known(&most, &most_count, reef_metrics_forgetting_max(matrix, j));
            add_known(&learned, &learned_count, reef_metrics_forgetting_learned(matrix, j));
        }
    }
    // Means over the domains for which the figure is defined.
    reef_metrics_summary summary = {
        .final_mean = reef_metrics_mean(matrix->columns,
                                        matrix->values + (matrix->rows - 1) * matrix->columns),
        .forgetting_max = most_count > 0 ? most / (double)most_count : NAN,
        .forgetting_learned = learned_count > 0 ? learned / (double)learned_count : NAN,
    };
    // Backward transfer is forgetting with the sign of the literature (Lopez-Paz 2017).
    summary.backward_transfer = -summary.forgetting_learned;
    return summary;
}

double reef_metrics_learned_share(double before, double own, double baseline) {
    return (own - before) / (baseline - before);
}
