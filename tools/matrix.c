// Every text in every state of the pool. The rows are evaluated one after the other, so only one model
// is in memory at a time.
#include "matrix.h"

#include <inttypes.h>
#include <stdlib.h>

static void on_progress(void *context, size_t done) {
    cli_progress_show(context, done);
}

reef_status score_file(reef_model *model,
                       const cli_file *file,
                       cli_progress *progress,
                       float *bits,
                       reef_score *score,
                       reef_error *err) {
    reef_status status =
        reef_model_score(model, file->bytes, file->count, bits, score, on_progress, progress, err);
    progress->done_before += file->count;
    return status;
}

static reef_status measure_row(double *bits,
                               const cli_call *cli,
                               cli_pool *pool,
                               const char *as_of,
                               const cli_file *files,
                               size_t file_count,
                               cli_progress *progress,
                               reef_error *err) {
    reef_model *model = NULL;
    reef_status status = reef_model_open(
        &model, pool->store, as_of,
        &(reef_model_options){.threads = cli->threads, .memory_bytes = cli->memory_bytes}, err);
    for (size_t j = 0; j < file_count && status == REEF_OK; j++) {
        reef_score score = {0};
        status = score_file(model, &files[j], progress, NULL, &score, err);
        bits[j] = score.bits_per_byte;
    }
    reef_model_close(model);
    return status;
}

reef_status matrix_measure(cli_matrix *matrix,
                           const cli_call *cli,
                           cli_pool *pool,
                           const cli_file *files,
                           size_t file_count,
                           reef_error *err) {
    size_t rows = (size_t)pool->generation_count + 1;
    *matrix = (cli_matrix){.rows = rows, .columns = file_count};
    matrix->bits = cli_alloc(rows * file_count, sizeof(*matrix->bits));
    uint64_t total = 0;
    for (size_t j = 0; j < file_count; j++) total += files[j].count;
    cli_progress progress;
    cli_progress_start(&progress, "evaluating", total * rows, "B");
    reef_status status = REEF_OK;
    for (size_t row = 0; row < rows && status == REEF_OK; row++) {
        char *as_of = row + 1 < rows ? cli_format("%zu", row) : cli_format("now");
        status = measure_row(matrix->bits + row * file_count, cli, pool, as_of, files, file_count,
                             &progress, err);
        free(as_of);
    }
    cli_progress_end(&progress);
    if (status != REEF_OK) matrix_release(matrix);
    return status;
}

void matrix_release(cli_matrix *matrix) {
    free(matrix->bits);
    *matrix = (cli_matrix){0};
}

double matrix_at(const cli_matrix *matrix, size_t row, size_t column) {
    return matrix->bits[row * matrix->columns + column];
}

double matrix_forgetting(const cli_matrix *matrix, size_t column) {
    double now = matrix_at(matrix, matrix->rows - 1, column), best = now;
    for (size_t row = 0; row < matrix->rows; row++)
        if (matrix_at(matrix, row, column) < best) best = matrix_at(matrix, row, column);
    return now - best;
}

const char *matrix_row_name(const cli_matrix *matrix, size_t row, char out[CLI_WORD_BYTES]) {
    if (row + 1 == matrix->rows)
        snprintf(out, CLI_WORD_BYTES, "now");
    else
        snprintf(out, CLI_WORD_BYTES, "as of %zu", row);
    return out;
}

void matrix_print(const cli_matrix *matrix, const char *const *names) {
    char *alignment = cli_alloc(matrix->columns + 2, 1);
    const char **headings = cli_alloc(matrix->columns + 1, sizeof(*headings));
    headings[0] = "bits per byte";
    alignment[0] = '<';
    for (size_t j = 0; j < matrix->columns; j++) {
        headings[j + 1] = names[j];
        alignment[j + 1] = '>';
    }
    cli_table *table = cli_table_new(alignment, headings);
    for (size_t row = 0; row < matrix->rows; row++) {
        char name[CLI_WORD_BYTES];
        cli_table_cell(table, "%s", matrix_row_name(matrix, row, name));
        for (size_t j = 0; j < matrix->columns; j++)
            cli_table_cell(table, "%.4f", matrix_at(matrix, row, j));
    }
    cli_table_cell(table, "forgetting");
    for (size_t j = 0; j < matrix->columns; j++)
        cli_table_cell(table, "%.4f", matrix_forgetting(matrix, j));
    cli_table_print(table, stdout);
    cli_table_free(table);
    free(headings);
    free(alignment);
}

json_t *matrix_json(const cli_matrix *matrix) {
    json_t *array = json_array();
    for (size_t row = 0; row < matrix->rows; row++) {
        json_t *numbers = json_array();
        for (size_t j = 0; j < matrix->columns; j++)
            json_array_append_new(numbers, cli_real(matrix_at(matrix, row, j)));
        json_array_append_new(array, numbers);
    }
    return array;
}
