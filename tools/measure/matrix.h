// Bits per byte of several texts as of every generation, and now: the table from which forgetting is
// read.
#ifndef REEF_MATRIX_H
#define REEF_MATRIX_H

#include "cli.h"
#include "forgetting.h"

/** Rows 0 .. generation_count - 1 are as of that generation; the last row is now, task-free. */
typedef struct cli_matrix {
    size_t rows, columns;
    double *bits;        // (rows, columns) bits per byte or token, or accuracies
    bool rising;         // accuracies, of which more is better
    const char *measure; // what they are, in words
    size_t *
        learned; // (columns) row right after a text was learned, or METRICS_UNKNOWN; for callers to set
} cli_matrix;

/** Evaluate every file in every state of the pool. Release with matrix_release. */
REEF_MUST_CHECK reef_status matrix_measure(cli_matrix *matrix,
                                           const cli_call *cli,
                                           cli_pool *pool,
                                           const cli_file *files,
                                           size_t file_count,
                                           reef_error *err);
void matrix_release(cli_matrix *matrix); // accepts the zeroed matrix

double matrix_at(const cli_matrix *matrix, size_t row, size_t column);
/** For the figures of metrics.h; lends the matrix. */
metrics_matrix matrix_metrics(const cli_matrix *matrix);
/** "as of 0" ... or "now" */
const char *matrix_row_name(const cli_matrix *matrix, size_t row, char out[CLI_WORD_BYTES]);
void matrix_print(const cli_matrix *matrix, const char *const *names);
/** Rows of numbers. */
json_t *matrix_json(const cli_matrix *matrix);

/** One text on one model, with a progress bar that counts on through several of them. */
REEF_MUST_CHECK reef_status score_file(reef_model *model,
                                       const cli_file *file,
                                       cli_progress *progress,
                                       float *bits,
                                       reef_score *score,
                                       reef_error *err);

#endif
