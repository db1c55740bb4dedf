// reef plot forgetting: what each domain costs in every state, in the terminal or as SVG.
#include "chart_forgetting.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_tokens.h"
#include "commands.h"
#include "eval_set.h"
#include "matrix.h"
#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const reef_cli_option OPTIONS[] = {
    {"eval", "NAME=FILE", "held-out set of one domain; give it several times"},
    {"results", "FILE", "instead: what `reef train --results` kept, with no evaluation"},
    {"svg", "FILE", "write a picture instead of drawing in the terminal"},
    {0},
};

const reef_cli_manual reef_plot_forgetting_manual = {
    .about =
        "With --eval: every domain as of every generation and now. "
        "With --results: every domain before\n"
        "the training and after each of its files, which is the way to see what models without\n"
        "generations forget. The pool is then not read.",
    .options = OPTIONS,
    .example = "reef plot forgetting reef.pool --eval english=en.txt --eval code=c.txt\n"
               "reef plot forgetting reef.pool --results run.json --svg forgetting.svg",
};

// A matrix with the names of its rows and columns, all of it on the heap.
typedef struct plot {
    double *values;
    char **names, **states;
    size_t rows, columns;
    bool ids; // losses are of tokens that are not bytes
    bool rising;
} plot;

static void plot_init(plot *p, size_t rows, size_t columns) {
    *p = (plot){.values = reef_cli_alloc(rows * columns, sizeof(double)),
                .names = reef_cli_alloc(columns, sizeof(char *)),
                .states = reef_cli_alloc(rows, sizeof(char *)),
                .rows = rows,
                .columns = columns};
}

static void plot_release(plot *p) {
    for (size_t j = 0; j < p->columns; j++) free(p->names[j]);
    for (size_t i = 0; i < p->rows; i++) free(p->states[i]);
    free(p->values);
    free(p->names);
    free(p->states);
}

// ---- where the matrix comes from ----------------------------------------------------------------

static reef_status measure_set(plot *p,
                               const reef_cli_call *cli,
                               reef_cli_pool *pool,
                               const reef_eval_set *set,
                               reef_error *err) {
    reef_cli_matrix matrix;
    reef_cli_file *files = reef_cli_alloc(set->count, sizeof(*files));
    // Borrowed: the evaluation set keeps its files and releases them.
    for (size_t j = 0; j < set->count; j++) files[j] = set->domains[j].file; // borrowed
    // Evaluates each snapshot on each file; this is what takes the time.
    reef_status status = reef_matrix_measure(&matrix, cli, pool, files, set->count, err);
    free(files);
    if (status != REEF_OK) return status;
    // The plot owns copies, so that it can also be read from a document.
    plot_init(p, matrix.rows, matrix.columns);
    // Accuracy rises with learning, bits a byte fall: the chart turns its axis.
    p->rising = matrix.rising;
    p->ids = reef_cli_has_ids(&pool->config);
    memcpy(p->values, matrix.bits, p->rows * p->columns * sizeof(double));
    for (size_t j = 0; j < p->columns; j++)
        p->names[j] = reef_cli_format("%s", set->domains[j].name);
    for (size_t i = 0; i < p->rows; i++) {
        char words[CLI_WORD_BYTES];
        // States of the pool are named as --as-of takes them.
        p->states[i] = reef_cli_format("%s", reef_matrix_row_name(&matrix, i, words));
    }
    reef_matrix_release(&matrix);
    return REEF_OK;
}

static reef_status measure_pool(plot *p, const reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    reef_eval_set set = {0};
    // The pool is open while it is measured, so that all rows belong to one commit.
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_eval_set_read(&set, cli, "eval", &pool.config, err);
    // Without an evaluation set there is nothing to plot.
    if (status == REEF_OK && set.count == 0)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "nothing to plot: give --eval NAME=FILE for each domain, or --results");
    if (status == REEF_OK) status = measure_set(p, cli, &pool, &set, err);
    reef_eval_set_release(&set);
    reef_cli_pool_close(&pool);
    return status;
}

// The file's own name, without where it lies.
static const char *file_name(const char *path) {
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    return slash != NULL && slash[1] ? slash + 1 : path != NULL ? path : "?";
}

static reef_status read_document(plot *p,
                                 const json_t *document,
                                 const char *path,
                                 reef_error *err) {
    // The document is that of `reef lifelong`, written possibly by an earlier version.
    const json_t *plan = json_object_get(document, "plan");
    const json_t *files = json_object_get(plan, "files");
    const json_t *domains = json_object_get(plan, "domains");
    const json_t *matrix = json_object_get(document, "matrix");
    const char *measure = json_string_value(json_object_get(document, "measure"));
    size_t rows = json_array_size(matrix), columns = json_array_size(domains);
    // One row before any training and one after each file: anything else is another document.
    if (rows == 0 || columns == 0 || rows != json_array_size(files) + 1 || measure == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.160s is not what `reef train --results` writes, or has no --eval",
                         path);
    // Sizes are checked above, so the loops cannot run over.
    plot_init(p, rows, columns);
    // The measure is a word of the document: its sense of "better" follows from it.
    p->rising = strcmp(measure, "accuracy") == 0;
    p->ids = strcmp(measure, "bits_per_token") == 0;
    for (size_t i = 0; i < rows; i++) {
        // Where each file has a domain of its own, the domain's name is the shorter one.
        const json_t *file = json_object_get(json_array_get(files, i - 1), "file");
        const json_t *domain = json_object_get(json_array_get(domains, i - 1), "name");
        bool paired = columns < rows && i <= columns;
        const char *name = paired ? json_string_value(domain) : file_name(json_string_value(file));
        // Row 0 is the state before the first file.
        p->states[i] = i > 0 ? reef_cli_format("after %s", name != NULL ? name : "?")
                             : reef_cli_format("before");
        for (size_t j = 0; j < columns; j++) {
            const json_t *value = json_array_get(json_array_get(matrix, i), j);
            // A cell may be null: what was not measured is not drawn.
            p->values[i * columns + j] = json_is_number(value) ? json_number_value(value) : NAN;
        }
    }
    // Missing names do not make the numbers useless.
    for (size_t j = 0; j < columns; j++) {
        const char *name = json_string_value(json_object_get(json_array_get(domains, j), "name"));
        p->names[j] = reef_cli_format("%s", name != NULL ? name : "?");
    }
    return REEF_OK;
}

static reef_status read_results(plot *p, const char *path, reef_error *err) {
    json_error_t reason;
    json_t *document = json_load_file(path, 0, &reason);
    if (document == NULL)
        return reef_fail(err, access(path, R_OK) == 0 ? REEF_ERR_INVALID : REEF_ERR_NOT_FOUND,
                         "cannot read results from %.120s: %.120s", path, reason.text);
    reef_status status = read_document(p, document, path, err);
    json_decref(document);
    return status;
}

// ---- what comes out -----------------------------------------------------------------------------

static reef_forgetting_chart chart_of(const plot *p) {
    return (reef_forgetting_chart){.matrix = {.rows = p->rows,
                                              .columns = p->columns,
                                              .values = p->values,
                                              .rising = p->rising},
                                   .names = (const char *const *)p->names,
                                   .states = (const char *const *)p->states,
                                   .measure = p->rising ? "accuracy"
                                              : p->ids  ? "bits per token"
                                                        : "bits per byte"};
}

static void draw_chart(FILE *out, const void *chart) {
    reef_chart_forgetting_svg(out, chart);
}

static json_t *texts_json(char *const *texts, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(array, reef_cli_path(texts[i]));
    return array;
}

static json_t *chart_json(const plot *p, const reef_metrics_matrix *matrix) {
    json_t *rows = json_array(), *forgetting = json_array();
    for (size_t i = 0; i < p->rows; i++) {
        json_t *row = json_array();
        // Values of the chart, not of the pool, so that the document shows what is drawn.
        for (size_t j = 0; j < p->columns; j++)
            json_array_append_new(row, reef_cli_real(reef_metrics_at(matrix, i, j)));
        json_array_append_new(rows, row);
    }
    for (size_t j = 0; j < p->columns; j++)
        // The largest loss of each column since its best row (Chaudhry et al. 2018, eq. 3).
        json_array_append_new(forgetting, reef_cli_real(reef_metrics_forgetting_max(matrix, j)));
    // The name of the measure carries the unit, as in `reef plot loss`.
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "measure",
                     p->rising ? "accuracy"
                     : p->ids  ? "bits_per_token"
                               : "bits_per_byte",
                     "domains", texts_json(p->names, p->columns), "states",
                     texts_json(p->states, p->rows), "matrix", rows, "forgetting", forgetting);
}

static reef_status print_chart(reef_cli_call *cli, const plot *p, reef_error *err) {
    reef_forgetting_chart chart = chart_of(p);
    const char *path = reef_cli_text(cli, "svg");
    // The file is written before anything is printed, so that an error comes alone.
    if (path != NULL) {
        reef_status status = reef_svg_write(path, draw_chart, &chart, err);
        if (status != REEF_OK) return status;
    }
    // With both options the document goes to standard output, and the drawing to its file.
    if (cli->json) return reef_cli_reply(cli, chart_json(p, &chart.matrix), err);
    if (path != NULL)
        printf("wrote %s\n", path);
    else
        reef_chart_forgetting_print(stdout, &chart);
    return REEF_OK;
}

reef_status reef_cmd_plot_forgetting(reef_cli_call *cli, reef_error *err) {
    plot p = {0};
    const char *results = reef_cli_text(cli, "results");
    if (results != NULL && reef_cli_text(cli, "eval") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--results is already measured: it takes no --eval");
    reef_status status =
        results != NULL ? read_results(&p, results, err) : measure_pool(&p, cli, err);
    if (status == REEF_OK) status = print_chart(cli, &p, err);
    plot_release(&p);
    return status;
}
