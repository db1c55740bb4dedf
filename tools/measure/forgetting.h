// The figures of continual learning: pure functions on a matrix of measurements.
//
// Row i of the matrix R is a state of the model, column j a domain; what stands there is a loss
// (bits per byte). Every figure is written so that "forgetting" is bad when positive, and
// "transfer" good. NaN stands for what was not measured and makes only the figures unknown that need it.
#ifndef REEF_FORGETTING_H
#define REEF_FORGETTING_H

#include <stdbool.h>
#include <stddef.h>

#define METRICS_UNKNOWN ((size_t)-1)

typedef struct reef_metrics_matrix {
    size_t rows, columns;
    const double *values; // (rows, columns)
    // (columns): the row right after domain j was learned, or METRICS_UNKNOWN; NULL when no row is
    // known
    const size_t *learned;
} reef_metrics_matrix;

/** Means over domains; NaN over none. */
typedef struct reef_metrics_summary {
    double final_mean;         // of the last row, all domains
    double forgetting_max;     // Chaudhry et al. 2018, over old domains
    double forgetting_learned; // Lopez-Paz & Ranzato 2017: the negative of backward_transfer
    double backward_transfer;  // Lopez-Paz & Ranzato 2017, over old domains
} reef_metrics_summary;

/** Mean of the values that are not NaN; NaN of none. */
double reef_metrics_mean(size_t count, const double *values);

double reef_metrics_at(const reef_metrics_matrix *matrix, size_t row, size_t column);
/** The value in the row right after domain `column` was learned; NaN when that row is not known. */
double reef_metrics_learned(const reef_metrics_matrix *matrix, size_t column);
/** Domains whose forgetting counts: those learned before the one learned last. */
bool reef_metrics_is_old(const reef_metrics_matrix *matrix, size_t column);
/** The best value of all rows but the last, less the last one; Chaudhry et al. 2018, eq. 3. */
double reef_metrics_forgetting_max(const reef_metrics_matrix *matrix, size_t column);
/** The value right after learning, less the last one; a term of Lopez-Paz & Ranzato 2017, eq. 3. */
double reef_metrics_forgetting_learned(const reef_metrics_matrix *matrix, size_t column);
reef_metrics_summary reef_metrics_summarise(const reef_metrics_matrix *matrix);

/**
 * The share of a baseline's gain on a domain that was reached: (own - before) / (baseline -
 * before).
 */
double reef_metrics_learned_share(double before, double own, double baseline);

#endif
