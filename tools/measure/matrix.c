// Every text in every state of the pool. The rows are evaluated one after the other, so only one
// model is in memory at a time.
#include "matrix.h"
#include "cli_pool.h"

#include "cli_format.h"
#include "cli_progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static reef_status measure_row(double *bits,
                               const reef_cli_call *cli,
                               reef_cli_pool *pool,
                               const char *as_of,
                               const reef_cli_file *files,
                               size_t file_count,
                               reef_cli_progress *progress,
                               reef_error *err) {
    reef_model *model = NULL;
    reef_status status = reef_cli_model_open(&model, cli, pool->store, as_of, err);
    // All files with one open model: opening is dearer than a short file.
    for (size_t j = 0; j < file_count && status == REEF_OK; j++) {
        reef_score score = {0};
        status = reef_score_file(model, &files[j], progress, NULL, &score, err);
        bits[j] = score.bits_per_byte;
    }
    reef_model_close(model);
    return status;
}

reef_status reef_matrix_measure(reef_cli_matrix *matrix,
                                const reef_cli_call *cli,
                                reef_cli_pool *pool,
                                const reef_cli_file *files,
                                size_t file_count,
                                reef_error *err) {
    // A row for each generation's state, and one for the present.
    size_t rows = (size_t)pool->generation_count + 1;
    *matrix = (reef_cli_matrix){.rows = rows, .columns = file_count};
    matrix->bits = reef_cli_alloc(rows * file_count, sizeof(*matrix->bits));
    matrix->learned = reef_cli_alloc(file_count, sizeof(*matrix->learned));
    // Set by the caller, if it knows.
    for (size_t j = 0; j < file_count; j++) matrix->learned[j] = METRICS_UNKNOWN;
    bool *kept = NULL;
    uint64_t total = 0;
    for (size_t j = 0; j < file_count; j++) total += files[j].count;
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "evaluating", total * rows, "B");
    reef_status status = reef_cli_states_kept(pool, &kept, err);
    for (size_t row = 0; row < rows && status == REEF_OK; row++) {
        // There is no state where the pool was pruned of it.
        if (row + 1 < rows && !kept[row]) {
            for (size_t j = 0; j < file_count; j++) matrix->bits[row * file_count + j] = NAN;
            // The bar jumps over what is left out.
            progress.done_before += total;
            continue;
        }
        char *as_of = row + 1 < rows ? reef_cli_format("%zu", row) : reef_cli_format("now");
        status = measure_row(matrix->bits + row * file_count, cli, pool, as_of, files, file_count,
                             &progress, err);
        free(as_of);
    }
    free(kept);
    reef_cli_progress_end(&progress);
    // A matrix with missing rows must not be shown.
    if (status != REEF_OK) reef_matrix_release(matrix);
    return status;
}

void reef_matrix_release(reef_cli_matrix *matrix) {
    free(matrix->bits);
    free(matrix->learned);
    *matrix = (reef_cli_matrix){0};
}

double reef_matrix_at(const reef_cli_matrix *matrix, size_t row, size_t column) {
    return matrix->bits[row * matrix->columns + column];
}

reef_metrics_matrix reef_matrix_metrics(const reef_cli_matrix *matrix) {
    return (reef_metrics_matrix){.rows = matrix->rows,
                                 .columns = matrix->columns,
                                 .values = matrix->bits,
                                 .learned = matrix->learned};
}

const char *reef_matrix_row_name(const reef_cli_matrix *matrix,
                                 size_t row,
                                 char out[CLI_WORD_BYTES]) {
    if (row + 1 == matrix->rows)
        snprintf(out, CLI_WORD_BYTES, "now");
    else
        snprintf(out, CLI_WORD_BYTES, "as of %zu", row);
    return out;
}

// Prints a row of one figure for each column; no row if it is known for none.
static void print_figure(reef_cli_table *table,
                         const char *label,
                         const reef_metrics_matrix *figures,
                         double (*figure)(const reef_metrics_matrix *, size_t)) {
    bool known = false;
    for (size_t j = 0; j < figures->columns; j++) known |= !isnan(figure(figures, j));
    if (!known) return;
    reef_cli_table_cell(table, "%s", label);
    for (size_t j = 0; j < figures->columns; j++) {
        double value = figure(figures, j);
        // A dash is "does not apply"; zero would be a result.
        if (isnan(value))
            reef_cli_table_cell(table, "-");
        else
            reef_cli_table_cell(table, "%.4f", value);
    }
}

static void cell(reef_cli_table *table, double value) {
    if (isnan(value))
        reef_cli_table_cell(table, "-"); // there is no such state
    else
        reef_cli_table_cell(table, "%.4f", value);
}

void reef_matrix_print(const reef_cli_matrix *matrix, const char *const *names) {
    char *alignment = reef_cli_alloc(matrix->columns + 2, 1);
    const char **headings = reef_cli_alloc(matrix->columns + 1, sizeof(*headings));
    headings[0] = "bits per byte";
    alignment[0] = '<';
    // Numbers are right-aligned.
    for (size_t j = 0; j < matrix->columns; j++) {
        headings[j + 1] = names[j];
        alignment[j + 1] = '>';
    }
    reef_cli_table *table = reef_cli_table_new(alignment, headings);
    for (size_t row = 0; row < matrix->rows; row++) {
        char name[CLI_WORD_BYTES];
        reef_cli_table_cell(table, "%s", reef_matrix_row_name(matrix, row, name));
        // Cells that were not measured stay empty.
        for (size_t j = 0; j < matrix->columns; j++) cell(table, reef_matrix_at(matrix, row, j));
    }
    // Figures stand below the states they are computed from.
    reef_metrics_matrix figures = reef_matrix_metrics(matrix);
    print_figure(table, "forgotten since best", &figures, reef_metrics_forgetting_max);
    print_figure(table, "forgotten since learned", &figures, reef_metrics_forgetting_learned);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    free(headings);
    free(alignment);
}

json_t *reef_matrix_json(const reef_cli_matrix *matrix) {
    json_t *array = json_array();
    for (size_t row = 0; row < matrix->rows; row++) {
        json_t *numbers = json_array();
        for (size_t j = 0; j < matrix->columns; j++)
            json_array_append_new(numbers, reef_cli_real(reef_matrix_at(matrix, row, j)));
        json_array_append_new(array, numbers);
    }
    return array;
}

static void on_progress(void *context, size_t done) {
    reef_cli_progress_show(context, done);
}

reef_status reef_score_file(reef_model *model,
                            const reef_cli_file *file,
                            reef_cli_progress *progress,
                            float *bits,
                            reef_score *score,
                            reef_error *err) {
    reef_status status =
        reef_model_score(model, file->bytes, file->count, bits, score, on_progress, progress, err);
    progress->done_before += file->count;
    return status;
}
