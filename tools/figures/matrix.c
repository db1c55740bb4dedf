// See matrix.h. Rows are evaluated one after the other, so only one model is in memory at a time.
#include "matrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

// ---- measuring ----------------------------------------------------------------------------------

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

// One state: all files with one open model, as opening is dearer than a short file.
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
    for (size_t j = 0; j < file_count && status == REEF_OK; j++) {
        reef_score score = {0};
        status = reef_score_file(model, &files[j], progress, NULL, &score, err);
        bits[j] = score.bits_per_byte;
    }
    reef_model_close(model);
    return status;
}

reef_status reef_matrix_measure(reef_matrix *matrix,
                                const reef_cli_call *cli,
                                reef_cli_pool *pool,
                                const reef_cli_file *files,
                                size_t file_count,
                                reef_error *err) {
    size_t rows = (size_t)pool->generation_count + 1;
    *matrix = (reef_matrix){.rows = rows, .columns = file_count};
    matrix->bits = reef_cli_alloc(rows * file_count, sizeof(*matrix->bits));
    matrix->learned = reef_cli_alloc(file_count, sizeof(*matrix->learned));
    bool *kept = NULL;
    uint64_t total = 0;
    for (size_t j = 0; j < file_count; j++) {
        matrix->learned[j] = MATRIX_UNKNOWN;
        total += files[j].count;
    }
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "evaluating", total * rows, "B");
    reef_status status = reef_cli_states_kept(pool, &kept, err);
    for (size_t row = 0; row < rows && status == REEF_OK; row++) {
        double *bits = matrix->bits + row * file_count;
        bool is_now = row + 1 == rows;
        // There is no state where the pool was pruned of it: the bar jumps over it.
        if (!is_now && !kept[row]) {
            for (size_t j = 0; j < file_count; j++) bits[j] = NAN;
            progress.done_before += total;
            continue;
        }
        char *as_of = is_now ? reef_cli_format("now") : reef_cli_format("%zu", row);
        status = measure_row(bits, cli, pool, as_of, files, file_count, &progress, err);
        free(as_of);
    }
    free(kept);
    reef_cli_progress_end(&progress);
    if (status != REEF_OK) reef_matrix_release(matrix);
    return status;
}

void reef_matrix_release(reef_matrix *matrix) {
    free(matrix->bits);
    free(matrix->learned);
    *matrix = (reef_matrix){0};
}

// ---- figures ------------------------------------------------------------------------------------

double reef_matrix_at(const reef_matrix *matrix, size_t row, size_t column) {
    return matrix->bits[row * matrix->columns + column];
}

static size_t learned_row(const reef_matrix *matrix, size_t column) {
    size_t row = matrix->learned != NULL ? matrix->learned[column] : MATRIX_UNKNOWN;
    return row < matrix->rows ? row : MATRIX_UNKNOWN;
}

double reef_matrix_learned(const reef_matrix *matrix, size_t column) {
    size_t row = learned_row(matrix, column);
    return row == MATRIX_UNKNOWN ? NAN : reef_matrix_at(matrix, row, column);
}

static double value_now(const reef_matrix *matrix, size_t column) {
    return reef_matrix_at(matrix, matrix->rows - 1, column);
}

double reef_matrix_forgetting_max(const reef_matrix *matrix, size_t column) {
    double most = NAN;
    for (size_t row = 0; row + 1 < matrix->rows; row++) {
        double lost = value_now(matrix, column) - reef_matrix_at(matrix, row, column);
        if (!isnan(lost) && !(lost <= most)) most = lost;
    }
    return most;
}

double reef_matrix_forgetting_learned(const reef_matrix *matrix, size_t column) {
    return value_now(matrix, column) - reef_matrix_learned(matrix, column);
}

// Was one learned after it? What was never learned cannot be forgotten.
static bool is_old(const reef_matrix *matrix, size_t column) {
    size_t row = learned_row(matrix, column);
    for (size_t j = 0; row != MATRIX_UNKNOWN && j < matrix->columns; j++) {
        size_t other = learned_row(matrix, j);
        if (other != MATRIX_UNKNOWN && other > row) return true;
    }
    return false;
}

// Over the columns for which the figure is known.
static double mean_of(const reef_matrix *matrix,
                      double (*figure)(const reef_matrix *, size_t),
                      bool old_alone) {
    double sum = 0;
    size_t known = 0;
    for (size_t j = 0; j < matrix->columns; j++) {
        double value = figure(matrix, j);
        if (isnan(value) || (old_alone && !is_old(matrix, j))) continue;
        sum += value;
        known++;
    }
    return known > 0 ? sum / (double)known : NAN;
}

reef_matrix_summary reef_matrix_summarise(const reef_matrix *matrix) {
    double learned = mean_of(matrix, reef_matrix_forgetting_learned, true);
    return (reef_matrix_summary){
        .final_mean = mean_of(matrix, value_now, false),
        .forgetting_max = mean_of(matrix, reef_matrix_forgetting_max, true),
        .forgetting_learned = learned,
        .backward_transfer = -learned, // with the sign of the literature (Lopez-Paz 2017)
    };
}

// ---- showing ------------------------------------------------------------------------------------

const char *reef_matrix_row_name(const reef_matrix *matrix, size_t row, char out[CLI_WORD_BYTES]) {
    if (row + 1 == matrix->rows)
        snprintf(out, CLI_WORD_BYTES, "now");
    else
        snprintf(out, CLI_WORD_BYTES, "as of %zu", row);
    return out;
}

// A row of one figure for each column; no row if it is known for none.
static void add_figure(reef_cli_table *table,
                       const char *label,
                       const reef_matrix *matrix,
                       double (*figure)(const reef_matrix *, size_t)) {
    if (isnan(mean_of(matrix, figure, false))) return;
    reef_cli_table_cell(table, "%s", label);
    for (size_t j = 0; j < matrix->columns; j++)
        reef_cli_table_real(table, 4, figure(matrix, j), "-");
}

void reef_matrix_print(const reef_matrix *matrix, const char *const *names) {
    char *alignment = reef_cli_alloc(matrix->columns + 2, 1);
    const char **headings = reef_cli_alloc(matrix->columns + 1, sizeof(*headings));
    headings[0] = "bits per byte";
    alignment[0] = '<';
    for (size_t j = 0; j < matrix->columns; j++) {
        headings[j + 1] = names[j];
        alignment[j + 1] = '>';
    }
    reef_cli_table *table = reef_cli_table_new(alignment, headings);
    for (size_t row = 0; row < matrix->rows; row++) {
        reef_cli_table_cell(table, "%s", reef_matrix_row_name(matrix, row, CLI_WORDS));
        for (size_t j = 0; j < matrix->columns; j++)
            reef_cli_table_real(table, 4, reef_matrix_at(matrix, row, j), "-");
    }
    add_figure(table, "forgotten since best", matrix, reef_matrix_forgetting_max);
    add_figure(table, "forgotten since learned", matrix, reef_matrix_forgetting_learned);
    reef_cli_table_show(table);
    free(headings);
    free(alignment);
}

json_t *reef_matrix_json(const reef_matrix *matrix) {
    json_t *array = json_array();
    for (size_t row = 0; row < matrix->rows; row++) {
        json_t *numbers = json_array();
        for (size_t j = 0; j < matrix->columns; j++)
            json_array_append_new(numbers, reef_cli_real(reef_matrix_at(matrix, row, j)));
        json_array_append_new(array, numbers);
    }
    return array;
}

json_t *reef_matrix_row_names_json(const reef_matrix *matrix) {
    json_t *array = json_array();
    for (size_t row = 0; row < matrix->rows; row++) {
        json_array_append_new(array, json_string(reef_matrix_row_name(matrix, row, CLI_WORDS)));
    }
    return array;
}
