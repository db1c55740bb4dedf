// What came out: tables, CSV and the pictures of the paper.
#include "chart_curves.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_table.h"
#include "cli_tokens.h"
#include "experiment.h"
#include "svg.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL_WIDTH 620.0
#define PANEL_HEIGHT 470.0

static bool is_done(const json_t *results, const reef_experiment_cell *cell) {
    return json_object_get(results, cell->id) != NULL;
}

// What the curves of a kind have in common with each other, and of what they are made.
static bool is_shown(reef_experiment_kind kind, const reef_experiment_cell *cell) {
    return !cell->tuning && (kind == EXPERIMENT_DATASETS) == cell->sets;
}

// ---- points and curves --------------------------------------------------------------------------

static bool retrieves(const reef_experiment_cell *cell) {
    return reef_experiment_retrieves(&cell->config);
}

static double x_of(reef_experiment_kind kind,
                   const reef_experiment_cell *cell,
                   const json_t *results) {
    // Each kind of experiment has one axis that it varies.
    switch (kind) {
    case EXPERIMENT_EXPERTS:
    case EXPERIMENT_BATCHNORM:
        // Experts are counted per layer, as in the paper's figure.
        return (double)cell->config.side * cell->config.side;
    case EXPERIMENT_ACTIVE:
        return cell->config.heads;
    // Counted, not configured: systems of one width differ in parameters.
    default:
        return reef_experiment_figure(results, cell, "parameters");
    }
}

static char *curve_name(reef_experiment_kind kind, const reef_experiment_cell *cell) {
    if (kind == EXPERIMENT_BATCHNORM)
        return reef_cli_format("%s, batch norm %s", cell->system,
                               cell->config.batch_norm ? "on" : "off");
    if (kind == EXPERIMENT_ACTIVE && retrieves(cell))
        return reef_cli_format("%s, hk = %" PRIu32, cell->system,
                               cell->config.heads * cell->config.topk);
    return reef_cli_format("%s", cell->system);
}

static reef_chart_curve *curve_in(reef_chart_curves *chart, char *name, bool level) {
    for (size_t c = 0; c < chart->count; c++)
        if (strcmp(chart->curves[c].name, name) == 0) {
            free(name);
            return &chart->curves[c];
        }
    chart->curves[chart->count] = (reef_chart_curve){.name = name, .level = level};
    return &chart->curves[chart->count++];
}

// Values of equal x, of several seeds, become one point: their mean, and their range.
typedef struct sums {
    double x, sum, low, high;
    size_t count;
} sums;

// The figures of all seeds at one position of one curve.
static sums same_position(reef_experiment_kind kind,
                          const reef_experiment_cells *cells,
                          const json_t *results,
                          const reef_experiment_cell *like) {
    // Infinite bounds, so that the first value sets both.
    sums s = {.x = x_of(kind, like, results), .low = INFINITY, .high = -INFINITY};
    char *name = curve_name(kind, like);
    for (size_t i = 0; i < cells->count; i++) {
        const reef_experiment_cell *cell = &cells->items[i];
        double y = reef_experiment_figure(results, cell, reef_cli_perplexity_name(&cell->config));
        // Cells that are not trained, or that diverged, take no part.
        if (!is_shown(kind, cell) || isnan(y) || cell->budget != like->budget) continue;
        char *other = curve_name(kind, cell);
        // A dense system has no x of its own in an ablation: all its cells are one level.
        bool same = strcmp(name, other) == 0 && strcmp(cell->size, like->size) == 0 &&
                    (!retrieves(cell) || x_of(kind, cell, results) == s.x);
        free(other);
        if (!same) continue;
        s.sum += y;
        s.low = fmin(s.low, y);
        s.high = fmax(s.high, y);
        s.count++;
    }
    free(name);
    return s;
}

static void add_point(reef_chart_curve *curve, const sums *s) {
    size_t at = curve->count;
    // Points are kept in order of x, as a line needs them.
    while (at > 0 && curve->points[at - 1].x > s->x) at--;
    // Another seed of the same point was added before; a level has one point only.
    if (at > 0 && (curve->points[at - 1].x == s->x || curve->level)) return;
    reef_chart_point *grown = reef_cli_alloc(curve->count + 1, sizeof(*grown));
    if (at > 0) memcpy(grown, curve->points, at * sizeof(*grown));
    if (at < curve->count)
        memcpy(grown + at + 1, curve->points + at, (curve->count - at) * sizeof(*grown));
    // Mean of the seeds, with the range as an error bar.
    grown[at] = (reef_chart_point){s->x, s->sum / (double)s->count, s->low, s->high};
    free(curve->points);
    curve->points = grown;
    curve->count++;
}

// The same order, and so the same colours, in every panel: shorter names first, as 8 comes before
// 16.
static int by_name(const void *a, const void *b) {
    const char *left = ((const reef_chart_curve *)a)->name,
               *right = ((const reef_chart_curve *)b)->name;
    size_t left_bytes = strlen(left), right_bytes = strlen(right);
    if (left_bytes != right_bytes) return left_bytes < right_bytes ? -1 : 1;
    return strcmp(left, right);
}

static reef_chart_curves make_curves(reef_experiment_kind kind,
                                     const reef_experiment_cells *cells,
                                     const json_t *results,
                                     double budget) {
    // One axis title fits all, because an experiment has one vocabulary.
    reef_chart_curves chart = {.curves = reef_cli_alloc(cells->count + 1, sizeof(*chart.curves)),
                               .y_title =
                                   cells->count > 0 && reef_cli_has_ids(&cells->items[0].config)
                                       ? "perplexity per token, held out"
                                       : "perplexity per byte, held out"};
    // In an ablation a dense system is a horizontal line.
    bool isoflop = kind == EXPERIMENT_ISOFLOP || kind == EXPERIMENT_DATASETS;
    for (size_t i = 0; i < cells->count; i++) {
        const reef_experiment_cell *cell = &cells->items[i];
        if (!is_shown(kind, cell) || cell->budget != budget || !is_done(results, cell)) continue;
        // Computed for the first cell of each position; add_point() ignores the others.
        sums s = same_position(kind, cells, results, cell);
        // All of its losses are not a number.
        if (s.count == 0) continue;
        add_point(curve_in(&chart, curve_name(kind, cell), !isoflop && !retrieves(cell)), &s);
    }
    // A fixed order keeps colours stable while results come in.
    qsort(chart.curves, chart.count, sizeof(*chart.curves), by_name);
    return chart;
}

static void release_curves(reef_chart_curves *chart) {
    for (size_t c = 0; c < chart->count; c++) {
        free(chart->curves[c].name);
        free(chart->curves[c].points);
    }
    free(chart->curves);
}

// ---- SVG ----------------------------------------------------------------------------------------

static const char *x_title(reef_experiment_kind kind) {
    switch (kind) {
    case EXPERIMENT_EXPERTS:
    case EXPERIMENT_BATCHNORM:
        return "experts, N (log)";
    case EXPERIMENT_ACTIVE:
        return "heads, h (log)";
    default:
        return "parameters in total (log)";
    }
}

static void draw_report(FILE *out,
                        const experiment *e,
                        reef_experiment_kind kind,
                        const reef_experiment_cells *cells,
                        const json_t *results) {
    reef_svg_begin(out, PANEL_WIDTH * (double)e->budgets.count, PANEL_HEIGHT);
    // One panel for each budget, side by side: scales differ too much for one.
    for (size_t b = 0; b < e->budgets.count; b++) {
        reef_chart_curves chart = make_curves(kind, cells, results, e->budgets.values[b]);
        // The budget is the title, as in the paper's figures.
        char *title = reef_cli_format("%.3g FLOPs", e->budgets.values[b]);
        chart.title = title;
        chart.x_title = x_title(kind);
        reef_chart_curves_svg(
            out, &chart, (reef_chart_box){PANEL_WIDTH * (double)b, 0, PANEL_WIDTH, PANEL_HEIGHT});
        free(title);
        // The points are copies of figures, so they are released with the chart.
        release_curves(&chart);
    }
    reef_svg_end(out);
}

static reef_status close_file(FILE *out, const char *path, reef_error *err) {
    bool failed = ferror(out) != 0;
    failed |= fclose(out) != 0;
    return failed ? reef_cli_write_failed(path, errno, err) : REEF_OK;
}

reef_status reef_experiment_write_svg(const char *path,
                                      const experiment *e,
                                      reef_experiment_kind kind,
                                      const reef_experiment_cells *cells,
                                      const json_t *results,
                                      reef_error *err) {
    FILE *out = fopen(path, "w");
    if (out == NULL) return reef_cli_write_failed(path, errno, err);
    draw_report(out, e, kind, cells, results);
    return close_file(out, path, err);
}

// ---- CSV and JSON -------------------------------------------------------------------------------

static const char *const FIGURES[] = {"parameters",    "parameters_active",   "flops_per_token",
                                      "steps",         "trained_tokens",      "epochs",
                                      "bits_per_byte", "perplexity_per_byte", "perplexity_per_word",
                                      "usage_percent", "unevenness",          "seconds"};
#define FIGURE_COUNT (sizeof(FIGURES) / sizeof(FIGURES[0]))

// As a row has it: token ids have no bytes.
static const char *figure_name(const reef_config *config, size_t f) {
    if (strcmp(FIGURES[f], "bits_per_byte") == 0) return reef_cli_bits_name(config);
    if (strcmp(FIGURES[f], "perplexity_per_byte") == 0) return reef_cli_perplexity_name(config);
    return FIGURES[f];
}

static void csv_number(FILE *out, double value) {
    if (isfinite(value))
        fprintf(out, ",%.10g", value);
    else
        fputc(',', out);
}

// Names come from a file that may hold anything: quoted, and quotes doubled (RFC 4180).
static void csv_text(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void csv_row(FILE *out,
                    const experiment *e,
                    const reef_experiment_cell *cell,
                    const json_t *results) {
    const reef_config *c = &cell->config;
    // Columns of retrieval stay empty for dense systems.
    bool pairs = retrieves(cell);
    csv_text(out, cell->system);
    fputc(',', out);
    csv_text(out, cell->size);
    fprintf(out, ",%d", cell->tuning);
    csv_number(out, cell->budget);
    // A float: more digits would be noise.
    fprintf(out, ",%g", (double)c->learning_rate);
    csv_number(out, (double)c->seed);
    // Not a number becomes an empty field.
    csv_number(out, pairs ? (double)c->side : (double)NAN);
    csv_number(out, pairs ? (double)c->heads : (double)NAN);
    csv_number(out, pairs ? (double)c->topk : (double)NAN);
    csv_number(out, pairs ? (double)c->batch_norm : (double)NAN);
    // One table of names for header and rows keeps them in step.
    for (size_t f = 0; f < FIGURE_COUNT; f++)
        csv_number(out, reef_experiment_figure(results, cell, figure_name(c, f)));
    const json_t *sets = json_object_get(json_object_get(results, cell->id), "datasets");
    // Only some cells have data sets; others have empty fields.
    for (size_t i = 0; i < e->set_count; i++) {
        const json_t *value = json_object_get(json_object_get(sets, e->sets[i].name),
                                              reef_cli_perplexity_name(&e->first));
        csv_number(out, json_is_number(value) ? json_number_value(value) : NAN);
    }
    fputc('\n', out);
}

reef_status reef_experiment_write_csv(const char *path,
                                      const experiment *e,
                                      const reef_experiment_cells *cells,
                                      const json_t *results,
                                      reef_error *err) {
    FILE *out = fopen(path, "w");
    if (out == NULL) return reef_cli_write_failed(path, errno, err);
    // Written in full each time, from the stored rows: the table can always be made again.
    fputs("system,size,tuning,budget,learning_rate,seed,side,heads,topk,batch_norm", out);
    for (size_t f = 0; f < FIGURE_COUNT; f++) fprintf(out, ",%s", figure_name(&e->first, f));
    for (size_t i = 0; i < e->set_count; i++) {
        fputc(',', out);
        csv_text(out, e->sets[i].name);
    }
    fputc('\n', out);
    // Tuning cells are in the file as well, marked as such.
    for (size_t i = 0; i < cells->count; i++)
        if (is_done(results, &cells->items[i])) csv_row(out, e, &cells->items[i], results);
    return close_file(out, path, err);
}

// A cell with the same configuration under another name has the same row; the names shown are this
// experiment's.
json_t *reef_experiment_json(const reef_experiment_cells *cells, const json_t *results) {
    json_t *array = json_array();
    for (size_t i = 0; i < cells->count; i++) {
        const reef_experiment_cell *cell = &cells->items[i];
        const json_t *row = json_object_get(results, cell->id);
        // A cell that is not done appears with its name, so a reader sees what is missing.
        json_t *object = row != NULL ? json_deep_copy(row) : json_pack("{s:s}", "id", cell->id);
        json_object_set_new(object, "done", json_boolean(row != NULL));
        json_object_set_new(object, "system", json_string(cell->system));
        json_object_set_new(object, "size", json_string(cell->size));
        json_object_set_new(object, "budget", reef_cli_real(cell->budget));
        json_object_set_new(object, "tuning", json_boolean(cell->tuning));
        json_array_append_new(array, object);
    }
    return array;
}

// ---- tables -------------------------------------------------------------------------------------

static void figure_cell(reef_cli_table *table, const char *format, double value) {
    char text[CLI_WORD_BYTES] = "-";
    // Formats are this file's own.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (isfinite(value)) snprintf(text, sizeof(text), format, value);
#pragma GCC diagnostic pop
    reef_cli_table_cell(table, "%s", text);
}

static void count_cell(reef_cli_table *table, double value) {
    char words[CLI_WORD_BYTES];
    reef_cli_table_cell(table, "%s",
                        isfinite(value) ? reef_cli_count((uint64_t)value, words) : "-");
}

static void print_cells(reef_experiment_kind kind,
                        const reef_experiment_cells *cells,
                        const json_t *results) {
    // The columns of the paper's tables, as far as they apply.
    const char *heading[] = {"system", "size",      "FLOPs",    "rate",   "seed",
                             "N",      "h x k",     "norm",     "params", "active",
                             "epochs", "bits/byte", "ppl/byte", "used %", "unevenness"};
    // Two headings depend on the vocabulary.
    if (cells->count > 0 && reef_cli_has_ids(&cells->items[0].config)) {
        heading[11] = "bits/token";
        heading[12] = "ppl/token";
    }
    reef_cli_table *table = reef_cli_table_new("<<>>>>>>>>>>>>>", heading);
    for (size_t i = 0; i < cells->count; i++) {
        const reef_experiment_cell *cell = &cells->items[i];
        const reef_config *c = &cell->config;
        // For data sets only the best models are of interest.
        if ((kind == EXPERIMENT_DATASETS && !cell->sets) || !is_done(results, cell)) continue;
        bool pairs = retrieves(cell);
        // Tuning is marked, since its budget is smaller.
        reef_cli_table_cell(table, "%s%s", cell->system, cell->tuning ? " (tuning)" : "");
        reef_cli_table_cell(table, "%s", cell->size);
        reef_cli_table_cell(table, "%.3g", cell->budget);
        reef_cli_table_cell(table, "%g", (double)c->learning_rate);
        reef_cli_table_cell(table, "%" PRIu64, c->seed);
        // A dash where the column does not apply: zero would be a value.
        count_cell(table, pairs ? (double)c->side * c->side : NAN);
        if (pairs)
            reef_cli_table_cell(table, "%" PRIu32 " x %" PRIu32, c->heads, c->topk);
        else
            // Dense layers have no heads.
            reef_cli_table_cell(table, "-");
        reef_cli_table_cell(table, "%s", !pairs ? "-" : c->batch_norm ? "yes" : "no");
        // All and active parameters: the second is what a token costs.
        count_cell(table, reef_experiment_figure(results, cell, "parameters"));
        count_cell(table, reef_experiment_figure(results, cell, "parameters_active"));
        // More than one epoch means that text was repeated.
        figure_cell(table, "%.2f", reef_experiment_figure(results, cell, "epochs"));
        figure_cell(table, "%.4f", reef_experiment_figure(results, cell, reef_cli_bits_name(c)));
        figure_cell(table, "%.3f",
                    reef_experiment_figure(results, cell, reef_cli_perplexity_name(c)));
        figure_cell(table, "%.2f", reef_experiment_figure(results, cell, "usage_percent"));
        figure_cell(table, "%.4f", reef_experiment_figure(results, cell, "unevenness"));
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

// What each system reaches: its best size, as mean and range of its seeds.
static void print_best(const experiment *e,
                       const reef_experiment_cells *cells,
                       const json_t *results) {
    const char *const heading[] = {"best",
                                   "FLOPs",
                                   "size",
                                   "params",
                                   "rate",
                                   "seeds",
                                   reef_cli_has_ids(&e->first) ? "ppl/token" : "ppl/byte",
                                   "lowest",
                                   "highest"};
    reef_cli_table *table = reef_cli_table_new("<><>>>>>>", heading);
    // Ordered by budget, so that systems of equal compute stand together.
    for (size_t b = 0; b < e->budgets.count; b++)
        for (size_t i = 0; i < e->system_count; i++) {
            const reef_experiment_cell *best =
                reef_experiment_best(e, cells, results, e->systems[i].name, e->budgets.values[b]);
            // Nothing is trained yet for this pair.
            if (best == NULL) continue;
            sums s = same_position(EXPERIMENT_ISOFLOP, cells, results, best);
            reef_cli_table_cell(table, "%s", best->system);
            reef_cli_table_cell(table, "%.3g", best->budget);
            reef_cli_table_cell(table, "%s", best->size);
            // The size that was best, in parameters.
            count_cell(table, s.x);
            reef_cli_table_cell(table, "%g", (double)best->config.learning_rate);
            // The number of seeds says how much the range means.
            reef_cli_table_cell(table, "%zu", s.count);
            figure_cell(table, "%.3f", s.sum / (double)s.count);
            figure_cell(table, "%.3f", s.low);
            figure_cell(table, "%.3f", s.high);
        }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

// The paper's Table 1: a row for each system and budget, a column for each data set.
static void print_sets(const experiment *e,
                       const reef_experiment_cells *cells,
                       const json_t *results) {
    // Columns follow from the file, so both strings are built here.
    char *columns = reef_cli_alloc(e->set_count + 3, 1);
    const char **headings = reef_cli_alloc(e->set_count + 2, sizeof(*headings));
    columns[0] = columns[1] = '<';
    headings[0] = reef_cli_has_ids(&e->first) ? "perplexity per token" : "perplexity per byte";
    headings[1] = "size";
    for (size_t i = 0; i < e->set_count; i++) {
        columns[i + 2] = '>';
        headings[i + 2] = e->sets[i].name;
    }
    reef_cli_table *table = reef_cli_table_new(columns, headings);
    for (size_t i = 0; i < cells->count; i++) {
        const reef_experiment_cell *cell = &cells->items[i];
        const json_t *sets = json_object_get(json_object_get(results, cell->id), "datasets");
        // Only the best models were evaluated on the data sets.
        if (!cell->sets || sets == NULL) continue;
        reef_cli_table_cell(table, "%s (%.3g)", cell->system, cell->budget);
        reef_cli_table_cell(table, "%s", cell->size);
        for (size_t j = 0; j < e->set_count; j++) {
            const json_t *value = json_object_get(json_object_get(sets, e->sets[j].name),
                                                  reef_cli_perplexity_name(&e->first));
            // A text that could not be scored shows a dash.
            figure_cell(table, "%.3f", json_is_number(value) ? json_number_value(value) : NAN);
        }
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    free(headings);
    free(columns);
}

void reef_experiment_print(const experiment *e,
                           reef_experiment_kind kind,
                           const reef_experiment_cells *cells,
                           const json_t *results) {
    print_cells(kind, cells, results);
    if (kind == EXPERIMENT_ISOFLOP) print_best(e, cells, results);
    if (kind == EXPERIMENT_DATASETS) print_sets(e, cells, results);
}
