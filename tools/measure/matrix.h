// Bits per byte of several texts as of every generation, and now: the table from which forgetting
// is read.
#ifndef REEF_MATRIX_H
#define REEF_MATRIX_H

#include "cli.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "forgetting.h"

/** Rows 0 .. generation_count - 1 are as of that generation; the last row is now, task-free. */
typedef struct reef_cli_matrix {
    size_t rows, columns;
    double *bits; // (rows, columns) bits per byte
    // (columns) row right after a text was learned, or METRICS_UNKNOWN; for callers to set
    size_t *learned;
} reef_cli_matrix;

/** Evaluate every file in every state of the pool. Release with reef_matrix_release. */
REEF_MUST_CHECK reef_status reef_matrix_measure(reef_cli_matrix *matrix,
                                                const reef_cli_call *cli,
                                                reef_cli_pool *pool,
                                                const reef_cli_file *files,
                                                size_t file_count,
                                                reef_error *err);
void reef_matrix_release(reef_cli_matrix *matrix); // accepts the zeroed matrix

double reef_matrix_at(const reef_cli_matrix *matrix, size_t row, size_t column);
/** For the figures of forgetting.h; lends the matrix. */
reef_metrics_matrix reef_matrix_metrics(const reef_cli_matrix *matrix);
/** "as of 0" ... or "now" */
const char *reef_matrix_row_name(const reef_cli_matrix *matrix,
                                 size_t row,
                                 char out[CLI_WORD_BYTES]);
void reef_matrix_print(const reef_cli_matrix *matrix, const char *const *names);
/** Rows of numbers. */
json_t *reef_matrix_json(const reef_cli_matrix *matrix);

/** One text on one model, with a progress bar that counts on through several of them. */
REEF_MUST_CHECK reef_status reef_score_file(reef_model *model,
                                            const reef_cli_file *file,
                                            reef_cli_progress *progress,
                                            float *bits,
                                            reef_score *score,
                                            reef_error *err);

#endif
