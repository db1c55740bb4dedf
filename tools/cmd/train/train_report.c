// The document of `reef train`: from what was measured to the figures of forgetting.h.
#include "train_record.h"

#include "cli_format.h"
#include "cli_pool.h"
#include "cli_table.h"
#include "forgetting.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the matrix ---------------------------------------------------------------------------------

// Rows are the states between files; domain j was learned in file j, if each has a file.
typedef struct rows {
    reef_metrics_matrix matrix;
    double *values;
    size_t *learned;
} rows;

static rows rows_make(const reef_train_record *record,
                      const reef_train_stream *stream,
                      bool rising) {
    size_t columns = record->domain_count, count = stream->count + 1;
    // Points that were not measured hold NaN, so every cell is written below.
    rows r = {.values = reef_cli_alloc(count * columns, sizeof(double)),
              .learned = reef_cli_alloc(columns, sizeof(size_t))};
    for (size_t i = 0; i < record->point_count; i++) {
        const reef_train_point *point = &record->points[i];
        // Only rows make the matrix; the points between them make the stability gap.
        for (size_t j = 0; point->row && j < columns; j++)
            r.values[point->file * columns + j] = point->scores[j].value;
    }
    for (size_t j = 0; j < columns; j++)
        // With one domain for each file, domain j was learned by file j + 1.
        r.learned[j] = columns <= stream->count ? j + 1 : METRICS_UNKNOWN;
    r.matrix = (reef_metrics_matrix){.rows = count,
                                     .columns = columns,
                                     .values = r.values,
                                     .learned = r.learned,
                                     .rising = rising};
    return r;
}

static void rows_release(rows *r) {
    free(r->values);
    free(r->learned);
}

static json_t *matrix_values_json(const reef_metrics_matrix *matrix) {
    json_t *array = json_array();
    for (size_t row = 0; row < matrix->rows; row++) {
        json_t *numbers = json_array();
        for (size_t j = 0; j < matrix->columns; j++)
            json_array_append_new(numbers, reef_cli_real(reef_metrics_at(matrix, row, j)));
        json_array_append_new(array, numbers);
    }
    return array;
}

static json_t *by_domain(const reef_metrics_matrix *matrix,
                         double (*figure)(const reef_metrics_matrix *, size_t)) {
    json_t *array = json_array();
    for (size_t j = 0; j < matrix->columns; j++)
        json_array_append_new(array, reef_cli_real(figure(matrix, j)));
    return array;
}

// ---- stability gap ------------------------------------------------------------------------------

// The worst that old domain j became between the beginning and the end of file `file`.
static double domain_gap(const reef_train_record *record, const rows *r, size_t file, size_t j) {
    double *after = reef_cli_alloc(record->point_count, sizeof(*after));
    size_t count = 0;
    for (size_t i = 0; i < record->point_count; i++) {
        const reef_train_point *point = &record->points[i];
        if (point->file == (point->row ? file + 1 : file)) after[count++] = point->scores[j].value;
    }
    double gap = reef_metrics_stability_gap(r->matrix.rising, reef_metrics_at(&r->matrix, file, j),
                                            count, after);
    free(after);
    return gap;
}

static json_t *stability_json(const reef_train_record *record,
                              const reef_train_stream *stream,
                              const rows *r,
                              double *mean,
                              double *worst) {
    size_t columns = r->matrix.columns, known = 0;
    // At most one gap for each file and domain.
    double *gaps = reef_cli_alloc(stream->count * columns, sizeof(*gaps));
    json_t *array = json_array();
    *worst = NAN;
    for (size_t file = 1; file < stream->count; file++) {
        json_t *domains = json_array();
        for (size_t j = 0; j < columns; j++) {
            // A domain can only be disturbed after it was learned.
            bool old = r->learned[j] != METRICS_UNKNOWN && r->learned[j] <= file;
            double gap = old ? domain_gap(record, r, file, j) : NAN;
            json_array_append_new(domains, reef_cli_real(gap));
            gaps[known++] = gap;
            // Written so that the first value replaces the NaN.
            if (!isnan(gap) && !(gap <= *worst)) *worst = gap;
        }
        json_array_append_new(array,
                              json_pack("{s:I, s:o}", "file", (json_int_t)file, "worst", domains));
    }
    // The mean ignores gaps that were not measured.
    *mean = reef_metrics_mean(known, gaps);
    free(gaps);
    return array;
}

static json_t *figures_json(const reef_train_record *record,
                            const reef_train_stream *stream,
                            const rows *r) {
    double mean, worst;
    json_t *stability = stability_json(record, stream, r, &mean, &worst);
    reef_metrics_summary s = reef_metrics_summarise(&r->matrix);
    // Definitions stand in docs/RESULTS.md, with their sources.
    json_t *figures = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "final_mean", reef_cli_real(s.final_mean),
        "forgetting_max", reef_cli_real(s.forgetting_max), "forgetting_learned",
        reef_cli_real(s.forgetting_learned), "backward_transfer",
        reef_cli_real(s.backward_transfer), "forward_transfer", reef_cli_real(s.forward_transfer),
        "stability_gap_mean", reef_cli_real(mean), "stability_gap_worst", reef_cli_real(worst));
    // Means hide which domain was forgotten.
    json_object_set_new(figures, "forgetting_max_by_domain",
                        by_domain(&r->matrix, reef_metrics_forgetting_max));
    json_object_set_new(figures, "forgetting_learned_by_domain",
                        by_domain(&r->matrix, reef_metrics_forgetting_learned));
    json_object_set_new(figures, "learned_by_domain", by_domain(&r->matrix, reef_metrics_learned));
    json_object_set_new(figures, "forward_transfer_by_domain",
                        by_domain(&r->matrix, reef_metrics_forward_transfer));
    json_object_set_new(figures, "stability", stability);
    return figures;
}

// ---- the stream ---------------------------------------------------------------------------------

// Mean loss of a file's batches, each before it was trained on (prequential). A batch counts at its
// end, as does an older point that stands for several. Not a number if it is unknown which batches
// are the file's, or a restore removed some.
static double prequential(const reef_train_record *record,
                          const reef_train_stream *stream,
                          const reef_train_outcome *outcome,
                          size_t file) {
    // What was read before this run cannot be placed.
    if (stream->starts[file] < record->placed_from) return NAN;
    const reef_cli_points *points = &outcome->points;
    uint64_t start = stream->base + stream->starts[file];
    uint64_t end = stream->base + stream->starts[file + 1];
    double sum = 0, count = 0;
    if (!reef_lineage_knows_losses(&outcome->lineage, start, end)) return NAN;
    for (size_t i = 0; i < points->count; i++) {
        const reef_point *point = &points->points[i];
        double batches = (double)reef_cli_point_batches(point);
        // Points lie at the end of their batch, hence the half-open range.
        if (point->stream_bytes <= start || point->stream_bytes > end) continue;
        // Weighted by batches: older points are means.
        sum += batches * (double)point->bits_per_byte;
        count += batches;
    }
    return count > 0 ? sum / count : NAN;
}

static json_t *prequential_json(const reef_train_record *record,
                                const reef_train_stream *stream,
                                const reef_train_outcome *outcome) {
    json_t *array = json_array();
    for (size_t i = 0; i < stream->count; i++)
        json_array_append_new(array, reef_cli_real(prequential(record, stream, outcome, i)));
    return array;
}

// The file whose beginning is nearest to a position.
static size_t nearest_start(const reef_train_stream *stream, uint64_t position) {
    size_t file = reef_train_stream_file(stream, position);
    bool next = file + 1 < stream->count &&
                stream->starts[file + 1] - position < position - stream->starts[file];
    return file + next;
}

// Lists the boundaries in these files: what the timeline says, and how far after the beginning of a
// file they lie (negative if before).
static json_t *boundaries_json(const reef_train_record *record,
                               const reef_train_stream *stream,
                               const json_t *events) {
    json_t *array = json_array();
    uint64_t from = stream->base + record->placed_from;
    size_t index;
    const json_t *event;
    json_array_foreach((json_t *)events, index, event) {
        const char *kind = json_string_value(json_object_get(event, "event"));
        const json_t *reason = json_object_get(event, "reason");
        uint64_t at = (uint64_t)json_integer_value(json_object_get(event, "stream_bytes"));
        // "boundary" is written by pools with another strategy, "open" by generations.
        bool opens = kind != NULL && (strcmp(kind, "open") == 0 || strcmp(kind, "boundary") == 0);
        // A restore may have taken it back.
        if (!opens || reason == NULL || at < from || json_object_get(event, "undone") != NULL)
            continue;
        uint64_t position = at - stream->base;
        // To the nearest beginning: a drift is found a little late.
        size_t file = nearest_start(stream, position);
        json_array_append_new(
            array, json_pack("{s:O?, s:O, s:I, s:I, s:I}", "generation",
                             json_object_get(event, "generation"), "reason", reason, "position",
                             (json_int_t)position, "file", (json_int_t)file, "offset",
                             (json_int_t)position - (json_int_t)stream->starts[file]));
    }
    return array;
}

// ---- the past -----------------------------------------------------------------------------------

// The largest change of any domain as of any sealed generation; NaN when nothing can be compared.
static double asof_forgetting(const reef_train_record *record) {
    double most = NAN;
    for (size_t s = 0; s < record->sealed_count; s++) {
        const reef_train_sealed *sealed = &record->sealed[s];
        for (size_t j = 0; j < record->domain_count; j++) {
            double change = fabs(sealed->now[j] - sealed->then[j]);
            if (!isnan(change) && !(change <= most)) most = change;
        }
    }
    return most;
}

json_t *reef_train_document(const reef_train_record *record,
                            const reef_train_stream *stream,
                            const reef_eval_set *set,
                            const reef_cli_pool *pool,
                            const reef_train_outcome *outcome) {
    // One flag turns losses into accuracies in all figures.
    bool rising = reef_eval_is_accuracy(&pool->config);
    rows r = rows_make(record, stream, rising);
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(pool->commit.root, root);
    // Built in two calls: one format string of all members could not be read.
    json_t *document = json_pack(
        "{s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "finished", outcome->finished, "measure",
        reef_eval_measure_name(&pool->config), "plan", reef_train_plan_json(stream, set, record),
        "matrix", matrix_values_json(&r.matrix), "figures", figures_json(record, stream, &r),
        "prequential", prequential_json(record, stream, outcome), "boundaries",
        boundaries_json(record, stream, outcome->events), "asof_forgetting",
        reef_cli_real(asof_forgetting(record)));
    // What is needed to continue, and what describes the run.
    json_t *rest =
        json_pack("{s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
                  "s:I, s:s}",
                  "measured", reef_train_record_json(record), "seconds",
                  reef_cli_real(record->seconds), "cpu_seconds", reef_cli_real(record->cpu_seconds),
                  "seconds_measuring", reef_cli_real(record->seconds_measuring), "threads",
                  (json_int_t)outcome->threads, "cost_ratio", reef_cli_real(outcome->cost_ratio),
                  "us_per_byte_now", reef_cli_real(outcome->us_per_byte_now), "us_per_byte_first",
                  reef_cli_real(outcome->us_per_byte_first), "steps",
                  (json_int_t)outcome->trainer.step, "accepted_bytes", (json_int_t)stream->at,
                  "stream_bytes", (json_int_t)outcome->trainer.stream_bytes, "carried_bytes",
                  (json_int_t)outcome->trainer.pending_bytes, "generations",
                  (json_int_t)pool->generation_count, "pool_bytes", (json_int_t)pool->file_bytes,
                  "optimiser_bytes", (json_int_t)outcome->optimiser_bytes, "peak_memory_bytes",
                  (json_int_t)outcome->peak_memory_bytes, "root", root);
    if (!outcome->trainer.learns_all)
        json_object_set_new(rest, "not_learned_bytes",
                            json_integer((json_int_t)outcome->trainer.not_learned_bytes));
    // One flat object, as scripts expect.
    json_object_update(document, rest);
    json_decref(rest);
    rows_release(&r);
    return document;
}

// ---- for people ---------------------------------------------------------------------------------

static const char *domain_name(const json_t *document, size_t j) {
    const json_t *domains = json_object_get(json_object_get(document, "plan"), "domains");
    return json_string_value(json_object_get(json_array_get(domains, j), "name"));
}

// Where there is a domain for each file its name, which is shorter.
static const char *file_name(const json_t *document, size_t i) {
    const json_t *plan = json_object_get(document, "plan");
    size_t domains = json_array_size(json_object_get(plan, "domains"));
    if (domains <= json_array_size(json_object_get(plan, "files")) && i < domains)
        return domain_name(document, i);
    const json_t *files = json_object_get(json_object_get(document, "plan"), "files");
    return json_string_value(json_object_get(json_array_get(files, i), "file"));
}

static void number_cell(reef_cli_table *table, const json_t *value) {
    if (json_is_number(value))
        reef_cli_table_cell(table, "%.4f", json_number_value(value));
    else
        reef_cli_table_cell(table, "-");
}

static void figure_row(reef_cli_table *table,
                       const json_t *document,
                       const char *label,
                       const char *key) {
    const json_t *values = json_object_get(json_object_get(document, "figures"), key);
    reef_cli_table_cell(table, "%s", label);
    for (size_t j = 0; j < json_array_size(values); j++)
        number_cell(table, json_array_get(values, j));
}

// Printed from the document, so that table and file cannot disagree.
static void print_matrix(const json_t *document) {
    const json_t *matrix = json_object_get(document, "matrix");
    size_t columns = json_array_size(json_array_get(matrix, 0));
    // Without domains there is no matrix.
    if (columns == 0) return;
    char *alignment = reef_cli_alloc(columns + 2, 1);
    const char **headings = reef_cli_alloc(columns + 1, sizeof(*headings));
    const char *measure = json_string_value(json_object_get(document, "measure"));
    headings[0] = strcmp(measure, "bits_per_byte") == 0    ? "bits per byte"
                  : strcmp(measure, "bits_per_token") == 0 ? "bits per token"
                                                           : "accuracy";
    alignment[0] = '<';
    for (size_t j = 0; j < columns; j++) {
        headings[j + 1] = domain_name(document, j);
        // Numbers are right-aligned.
        alignment[j + 1] = '>';
    }
    reef_cli_table *table = reef_cli_table_new(alignment, headings);
    for (size_t row = 0; row < json_array_size(matrix); row++) {
        // The first row is the state before training.
        reef_cli_table_cell(table, "%s%s", row ? "after " : "before",
                            row ? file_name(document, row - 1) : "");
        for (size_t j = 0; j < columns; j++)
            number_cell(table, json_array_get(json_array_get(matrix, row), j));
    }
    // Two definitions, because the literature uses both.
    figure_row(table, document, "forgetting (best before, less now)", "forgetting_max_by_domain");
    figure_row(table, document, "forgetting (once learned, less now)",
               "forgetting_learned_by_domain");
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    free(headings);
    free(alignment);
}

static void print_figure(const char *label, const json_t *value, const char *unit) {
    if (json_is_number(value)) printf("  %-38s%.4g%s\n", label, json_number_value(value), unit);
}

static void print_boundaries(const json_t *document, const reef_config *config) {
    size_t index;
    const json_t *boundary;
    // One line each: there are few.
    json_array_foreach(json_object_get(document, "boundaries"), index, boundary) {
        char words[CLI_WORD_BYTES];
        json_int_t offset = json_integer_value(json_object_get(boundary, "offset"));
        size_t file = (size_t)json_integer_value(json_object_get(boundary, "file"));
        uint64_t units = reef_cli_stream_units(config, (uint64_t)llabs(offset));
        // In words, as a sign is easily misread.
        printf("  boundary (%s) %s %ss %s the beginning of %s\n",
               json_string_value(json_object_get(boundary, "reason")), reef_cli_count(units, words),
               reef_cli_stream_unit(config), offset < 0 ? "before" : "after",
               file_name(document, file));
    }
}

// Reports what was read and what is not trained yet: less than a batch, or what a drift test has
// not decided about.
static void print_extent(const json_t *document, const reef_config *config) {
    char words[CLI_WORD_BYTES];
    uint64_t read = (uint64_t)json_integer_value(json_object_get(document, "accepted_bytes"));
    uint64_t waits = (uint64_t)json_integer_value(json_object_get(document, "carried_bytes"));
    const char *unit = reef_cli_stream_unit(config);
    printf("%s %s %ss",
           json_is_true(json_object_get(document, "finished")) ? "read all" : "stopped after",
           reef_cli_count(reef_cli_stream_units(config, read), words), unit);
    printf(" in %s",
           reef_cli_duration(json_number_value(json_object_get(document, "seconds")), words));
    // Not lost: it is in the journal of the pool.
    if (waits > 0)
        printf("; the last %s wait for what comes next",
               reef_cli_count(reef_cli_stream_units(config, waits), words));
    printf("\n");
    uint64_t recognised =
        (uint64_t)json_integer_value(json_object_get(document, "not_learned_bytes"));
    // Recognised text and marker lines are part of the position, but not of training.
    if (recognised > 0)
        printf(
            "  %s %ss of the pool's stream were recognised, or lay at marker lines: not trained\n",
            reef_cli_count(reef_cli_stream_units(config, recognised), words), unit);
}

void reef_train_print(const json_t *document, const reef_config *config) {
    // Missing figures print no line.
    const json_t *figures = json_object_get(document, "figures");
    print_matrix(document);
    print_extent(document, config);
    print_boundaries(document, config);
    print_figure("mean at the end", json_object_get(figures, "final_mean"), "");
    print_figure("forgetting (Chaudhry 2018)", json_object_get(figures, "forgetting_max"), "");
    print_figure("forgetting (Lopez-Paz 2017, -BWT)",
                 json_object_get(figures, "forgetting_learned"), "");
    print_figure("forward transfer", json_object_get(figures, "forward_transfer"), "");
    print_figure("stability gap, mean", json_object_get(figures, "stability_gap_mean"), "");
    print_figure("stability gap, worst", json_object_get(figures, "stability_gap_worst"), "");
    // Zero if nothing sealed has changed, which is the promise.
    print_figure("change as of sealed generations", json_object_get(document, "asof_forgetting"),
                 "");
    print_figure("cost of a byte, against generation 0", json_object_get(document, "cost_ratio"),
                 " times");
    // The root identifies the state: two runs over the same files have the same.
    printf("  root %s\n", json_string_value(json_object_get(document, "root")));
}
