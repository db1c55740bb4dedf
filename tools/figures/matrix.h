// Bits per byte of several texts as of every generation, and now; and the figures of continual
// learning that are read from that matrix.
//
// Row i is a state of the model, column j a text, which stands for a domain. Every figure is
// written so that "forgetting" is bad when positive, and "transfer" good. NaN stands for what was
// not measured, and makes only those figures unknown that need it.
#ifndef REEF_MATRIX_H
#define REEF_MATRIX_H

#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"

#define MATRIX_UNKNOWN ((size_t)-1)

/** Rows 0 .. generation_count - 1 are as of that generation; the last row is now, task-free. */
typedef struct reef_matrix {
    size_t rows, columns;
    double *bits; // (rows, columns) bits per byte
    // (columns) row right after a text was learned, or MATRIX_UNKNOWN; for callers to set
    size_t *learned;
} reef_matrix;

// ---- measuring ----------------------------------------------------------------------------------

/** Evaluate every file in every state of the pool. Release with reef_matrix_release. */
REEF_MUST_CHECK reef_status reef_matrix_measure(reef_matrix *matrix,
                                                const reef_cli_call *cli,
                                                reef_cli_pool *pool,
                                                const reef_cli_file *files,
                                                size_t file_count,
                                                reef_error *err);
void reef_matrix_release(reef_matrix *matrix); // accepts the zeroed matrix

/** One text on one model, with a progress bar that counts on through several of them. */
REEF_MUST_CHECK reef_status reef_score_file(reef_model *model,
                                            const reef_cli_file *file,
                                            reef_cli_progress *progress,
                                            float *bits,
                                            reef_score *score,
                                            reef_error *err);

// ---- figures ------------------------------------------------------------------------------------

/** Means over texts; NaN over none. */
typedef struct reef_matrix_summary {
    double final_mean;         // of the last row, all texts
    double forgetting_max;     // Chaudhry et al. 2018, over old texts
    double forgetting_learned; // Lopez-Paz & Ranzato 2017: the negative of backward_transfer
    double backward_transfer;  // Lopez-Paz & Ranzato 2017, over old texts
} reef_matrix_summary;

double reef_matrix_at(const reef_matrix *matrix, size_t row, size_t column);
/** The value in the row right after a text was learned; NaN when that row is not known. */
double reef_matrix_learned(const reef_matrix *matrix, size_t column);
/** The best value of all rows but the last, less the last one; Chaudhry et al. 2018, eq. 3. */
double reef_matrix_forgetting_max(const reef_matrix *matrix, size_t column);
/** The value right after learning, less the last one; a term of Lopez-Paz & Ranzato 2017, eq. 3. */
double reef_matrix_forgetting_learned(const reef_matrix *matrix, size_t column);
/** Old texts, whose forgetting counts, are those learned before the one learned last. */
reef_matrix_summary reef_matrix_summarise(const reef_matrix *matrix);

// ---- showing ------------------------------------------------------------------------------------

/** "as of 0" ... or "now" */
const char *reef_matrix_row_name(const reef_matrix *matrix, size_t row, char out[CLI_WORD_BYTES]);
void reef_matrix_print(const reef_matrix *matrix, const char *const *names);
/** Rows of numbers; and the names of the rows. */
json_t *reef_matrix_json(const reef_matrix *matrix);
json_t *reef_matrix_row_names_json(const reef_matrix *matrix);

#endif
