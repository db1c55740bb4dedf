// reef-lab report: what a pool learned, kept and forgot, domain by domain.
//
// A domain is a held-out text and the offset in the stream where its kind began. It was learned in
// the generation opened at the found boundary nearest to that offset; the first domain in
// generation 0.
#include "cli_format.h"
#include "cli_pool.h"
#include "lab.h"
#include "svg.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BITS_MAX 64.0

static const reef_cli_option OPTIONS[] = {
    {"out", "DIR", "write report.json and report.svg here; made when missing"},
    {"domain", "NAME=FILE", "held-out text of one kind, in stream order; give it several times"},
    {"truth", "OFFSET",
     "stream byte where the next domain really began; once per domain after the first"},
    {"fresh", "NAME=BITS", "bits per byte of a fresh model trained on that domain alone"},
    {"sealed-bits", "NAME[@G]=BITS",
     "bits per byte as of generation G (default: its own), measured when G was sealed"},
    CLI_OPTION_FROZEN,
    {0},
};

const reef_cli_manual reef_lab_report_manual = {
    .about =
        "Evaluates every domain as of every generation and now, and prints the matrix with what\n"
        "was forgotten. As-of forgetting compares with the values given by\n"
        "--sealed-bits; task-free forgetting is the loss now less the loss as of the domain's own\n"
        "generation, averaged over all domains but the last.",
    .options = OPTIONS,
    .example = "reef-lab report reef.pool --out report "
               "--domain english=en.txt --domain code=c.txt --truth 800000",
};

typedef struct domain {
    char *name;
    const char *path;
    reef_cli_file file;
    uint64_t start;    // in the stream
    size_t generation; // in which it was learned
    double fresh;      // bits per byte as given; NaN when not
} domain;

// One measurement made while the pool was young: what evaluation as of a generation gave at the
// time.
typedef struct sealed_bits {
    size_t domain, generation;
    bool own; // the generation is the one in which the domain was learned
    double bits;
} sealed_bits;

typedef struct report {
    domain *domains;
    const char **names; // (count) of the domains
    size_t count;
    uint64_t *truth;
    size_t truth_count;
    uint64_t *found;
    size_t found_count;
    sealed_bits *sealed;
    size_t sealed_count;
    reef_matrix matrix;
    // results
    double asof_forgetting, task_free_forgetting;
} report;

// ---- what was given -----------------------------------------------------------------------------

// NAME=VALUE: the name, printable, and where the value begins. The first "=" separates them, since
// a path may hold that sign too.
static reef_status split(
    const char *option, const char *text, char **name, const char **value, reef_error *err) {
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == '\0')
        return reef_fail(err, REEF_ERR_INVALID, "--%s is '%.64s', but must be NAME=%s", option,
                         text, strcmp(option, "domain") == 0 ? "FILE" : "BITS");
    *name = reef_cli_printable((const uint8_t *)text, (size_t)(equals - text), false);
    *value = equals + 1;
    return REEF_OK;
}

static domain *find_domain(const report *r, const char *name) {
    for (size_t j = 0; j < r->count; j++)
        if (strcmp(r->domains[j].name, name) == 0) return &r->domains[j];
    return NULL;
}

// What an option NAME=VALUE says; the name is its own for the time of the call.
typedef reef_status (*take_named)(
    report *r, const char *text, char *name, const char *value, reef_error *err);

static reef_status read_named(
    report *r, const reef_cli_call *cli, const char *option, take_named take, reef_error *err) {
    size_t cursor = 0;
    const char *text, *value = NULL;
    char *name = NULL;
    reef_status status = REEF_OK;
    while (status == REEF_OK && (text = reef_cli_next(cli, option, &cursor))) {
        status = split(option, text, &name, &value, err);
        if (status != REEF_OK) break;
        status = take(r, text, name, value, err);
        free(name);
    }
    return status;
}

static reef_status take_domain(
    report *r, const char *text, char *name, const char *path, reef_error *err) {
    (void)text;
    if (find_domain(r, name) != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "domain %.64s is given twice", name);
    domain *d = &r->domains[r->count];
    *d = (domain){.name = reef_cli_format("%s", name), .path = path, .fresh = NAN};
    r->names[r->count++] = d->name;
    // Read now: a missing file should be found before an hour of evaluation.
    return reef_cli_text_read(&d->file, path, err);
}

static reef_status read_truth(report *r,
                              const reef_cli_call *cli,
                              const reef_cli_pool *pool,
                              reef_error *err) {
    r->truth = reef_cli_alloc(cli->given_count, sizeof(*r->truth));
    size_t cursor = 0;
    const char *text;
    while ((text = reef_cli_next(cli, "truth", &cursor))) {
        // Checked by hand: strtoull takes signs and leading blanks.
        size_t digits = strspn(text, "0123456789");
        errno = 0;
        uint64_t offset = strtoull(text, NULL, 10);
        if (digits == 0 || text[digits] != '\0' || errno != 0)
            return reef_fail(err, REEF_ERR_INVALID,
                             "--truth is '%.64s', but must be a position in the stream", text);
        // A boundary after the end would count as missed, though it could not be found.
        if (offset > pool->commit.stream_bytes)
            return reef_fail(err, REEF_ERR_INVALID,
                             "--truth %" PRIu64 " lies behind the end of the stream: %" PRIu64
                             " bytes are trained",
                             offset, pool->commit.stream_bytes);
        // Increasing, because position j belongs to domain j + 1.
        if (r->truth_count > 0 && offset <= r->truth[r->truth_count - 1])
            return reef_fail(err, REEF_ERR_INVALID,
                             "--truth %" PRIu64 " does not come after the one before it", offset);
        r->truth[r->truth_count++] = offset;
    }
    // The first domain begins at 0, so it has no position.
    if (r->truth_count + 1 != r->count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%zu domains need %zu --truth positions, but %zu are given", r->count,
                         r->count - 1, r->truth_count);
    for (size_t j = 1; j < r->count; j++) r->domains[j].start = r->truth[j - 1];
    return REEF_OK;
}

static reef_status read_number(
    const char *option, const char *text, const char *value, double *bits, reef_error *err) {
    char *end;
    *bits = strtod(value, &end);
    if (end == value || *end != '\0' || !(*bits >= 0 && *bits <= BITS_MAX))
        return reef_fail(err, REEF_ERR_INVALID, "--%s %.64s must end in bits per byte, 0 to %g",
                         option, text, BITS_MAX);
    return REEF_OK;
}

static reef_status take_fresh(
    report *r, const char *text, char *name, const char *value, reef_error *err) {
    domain *d = find_domain(r, name);
    if (d == NULL) return reef_fail(err, REEF_ERR_INVALID, "--fresh %.64s names no --domain", text);
    return read_number("fresh", text, value, &d->fresh, err);
}

// NAME is the domain's own generation, NAME@G is generation G. A domain may have an "@" in its
// name, so the whole text is tried first.
static reef_status read_sealed_name(
    report *r, const char *text, char *name, sealed_bits *sealed, reef_error *err) {
    domain *d = find_domain(r, name);
    char *at = strrchr(name, '@');
    // Which generation is "its own" is known later, after the boundaries are read.
    sealed->own = d != NULL;
    if (d == NULL && at != NULL && at[1] != '\0' && at[1 + strspn(at + 1, "0123456789")] == '\0') {
        *at = '\0';
        d = find_domain(r, name);
        sealed->generation = strtoul(at + 1, NULL, 10);
    }
    if (d == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "--sealed-bits %.64s names no --domain", text);
    sealed->domain = (size_t)(d - r->domains);
    return REEF_OK;
}

static reef_status take_sealed(
    report *r, const char *text, char *name, const char *value, reef_error *err) {
    sealed_bits *sealed = &r->sealed[r->sealed_count++];
    reef_status status = read_sealed_name(r, text, name, sealed, err);
    return status == REEF_OK ? read_number("sealed-bits", text, value, &sealed->bits, err) : status;
}

static reef_status read_request(report *r,
                                const reef_cli_call *cli,
                                const reef_cli_pool *pool,
                                reef_error *err) {
    r->domains = reef_cli_alloc(cli->given_count, sizeof(*r->domains));
    r->names = reef_cli_alloc(cli->given_count, sizeof(*r->names));
    r->sealed = reef_cli_alloc(cli->given_count, sizeof(*r->sealed));
    if (reef_cli_text(cli, "out") == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "--out DIR is missing: where to write the report");
    reef_status status = read_named(r, cli, "domain", take_domain, err);
    if (status == REEF_OK && r->count == 0)
        status = reef_fail(err, REEF_ERR_INVALID, "no domain is given: --domain NAME=FILE");
    if (status == REEF_OK) status = read_truth(r, cli, pool, err);
    if (status == REEF_OK) status = read_named(r, cli, "fresh", take_fresh, err);
    return status == REEF_OK ? read_named(r, cli, "sealed-bits", take_sealed, err) : status;
}

static void release_report(report *r) {
    for (size_t j = 0; j < r->count; j++) {
        free(r->domains[j].name);
        reef_cli_file_release(&r->domains[j].file);
    }
    free(r->domains);
    free(r->names);
    free(r->truth);
    free(r->found);
    free(r->sealed);
    reef_matrix_release(&r->matrix);
}

// ---- what is computed ---------------------------------------------------------------------------

static int64_t distance(uint64_t found, uint64_t truth) {
    return (int64_t)(found - truth);
}

// Index of the found boundary nearest to a true one; SIZE_MAX when none was found.
static size_t nearest_boundary(const report *r, uint64_t truth) {
    size_t nearest = SIZE_MAX;
    for (size_t i = 0; i < r->found_count; i++)
        if (nearest == SIZE_MAX ||
            llabs(distance(r->found[i], truth)) < llabs(distance(r->found[nearest], truth)))
            nearest = i;
    return nearest;
}

static reef_status assign_generations(report *r, const reef_cli_pool *pool, reef_error *err) {
    r->found = reef_chart_boundaries(pool, &r->found_count);
    for (size_t j = 1; j < r->count; j++) {
        size_t boundary = nearest_boundary(r, r->domains[j].start);
        r->domains[j].generation = boundary == SIZE_MAX ? 0 : boundary + 1;
    }
    for (size_t i = 0; i < r->sealed_count; i++) {
        sealed_bits *sealed = &r->sealed[i];
        if (sealed->own) sealed->generation = r->domains[sealed->domain].generation;
        if (sealed->generation >= pool->generation_count)
            return reef_fail(err, REEF_ERR_NOT_FOUND,
                             "--sealed-bits names generation %zu, but the pool has 0 to %" PRIu32,
                             sealed->generation, pool->generation_count - 1);
    }
    return REEF_OK;
}

static double own_bits(const report *r, size_t j) {
    return reef_matrix_at(&r->matrix, r->domains[j].generation, j);
}

static double now_bits(const report *r, size_t j) {
    return reef_matrix_at(&r->matrix, r->matrix.rows - 1, j);
}

// How much of what a fresh model learns was learned; NaN without one, and where no generation was
// opened for the domain.
static double share_learned(const report *r, size_t j) {
    const domain *d = &r->domains[j];
    if (d->generation == 0) return NAN;
    double before = reef_matrix_at(&r->matrix, d->generation - 1, j);
    return (own_bits(r, j) - before) / (d->fresh - before);
}

// The largest change since generations were sealed; NaN when nothing was measured at the time.
static double asof_forgetting(const report *r) {
    double most = NAN;
    for (size_t i = 0; i < r->sealed_count; i++) {
        const sealed_bits *sealed = &r->sealed[i];
        double change =
            fabs(reef_matrix_at(&r->matrix, sealed->generation, sealed->domain) - sealed->bits);
        if (!(change <= most)) most = change;
    }
    return most;
}

static void compute_report(report *r) {
    size_t old = r->count - 1; // all but the last, which nothing came after
    r->asof_forgetting = asof_forgetting(r);
    r->task_free_forgetting = old > 0 ? 0 : NAN;
    for (size_t j = 0; j < old; j++)
        r->task_free_forgetting += (now_bits(r, j) - own_bits(r, j)) / (double)old;
}

static reef_status measure_domains(report *r,
                                   const reef_cli_call *cli,
                                   reef_cli_pool *pool,
                                   reef_error *err) {
    reef_cli_file *files = reef_cli_alloc(r->count, sizeof(*files));
    for (size_t j = 0; j < r->count; j++) files[j] = r->domains[j].file; // borrowed
    reef_status status = reef_matrix_measure(&r->matrix, cli, pool, files, r->count, err);
    free(files);
    if (status != REEF_OK) return status;
    for (size_t j = 0; j < r->count; j++) r->matrix.learned[j] = r->domains[j].generation;
    compute_report(r);
    return status;
}

// ---- what is written ----------------------------------------------------------------------------

static json_t *errors_json(const report *r) {
    json_t *array = json_array();
    for (size_t i = 0; i < r->truth_count; i++) {
        size_t nearest = nearest_boundary(r, r->truth[i]);
        json_array_append_new(array, nearest == SIZE_MAX
                                         ? json_null()
                                         : json_integer(distance(r->found[nearest], r->truth[i])));
    }
    return array;
}

static json_t *domains_json(const report *r) {
    json_t *array = json_array();
    for (size_t j = 0; j < r->count; j++) {
        const domain *d = &r->domains[j];
        json_array_append_new(
            array, json_pack("{s:s, s:I, s:I, s:o, s:o, s:o}", "name", d->name, "start",
                             (json_int_t)d->start, "generation", (json_int_t)d->generation,
                             "own_bits", reef_cli_real(own_bits(r, j)), "now_bits",
                             reef_cli_real(now_bits(r, j)), "fresh_bits", reef_cli_real(d->fresh)));
    }
    return array;
}

static json_t *sealed_json(const report *r) {
    json_t *array = json_array();
    for (size_t i = 0; i < r->sealed_count; i++)
        json_array_append_new(array, json_pack("{s:s, s:I, s:o}", "name",
                                               r->domains[r->sealed[i].domain].name, "generation",
                                               (json_int_t)r->sealed[i].generation, "bits",
                                               reef_cli_real(r->sealed[i].bits)));
    return array;
}

static json_t *report_json(const report *r, const reef_cli_call *cli, const reef_cli_pool *pool) {
    json_t *names = json_array(), *shares = json_array();
    for (size_t j = 0; j < r->count; j++)
        json_array_append_new(names, json_string(r->domains[j].name));
    // The first domain has no earlier model to gain from.
    for (size_t j = 1; j < r->count; j++)
        json_array_append_new(shares, reef_cli_real(share_learned(r, j)));
    // The names of these members are fixed: scripts that read reports depend on them.
    json_t *document = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "pool", reef_cli_path(cli->pool),
                                 "names", names, "rows", reef_matrix_row_names_json(&r->matrix),
                                 "matrix", reef_matrix_json(&r->matrix), "asof_forgetting_bits",
                                 reef_cli_real(r->asof_forgetting), "task_free_forgetting_bits",
                                 reef_cli_real(r->task_free_forgetting));
    json_object_set_new(document, "boundaries_true",
                        reef_chart_offsets_json(r->truth, r->truth_count));
    json_object_set_new(document, "boundaries_found",
                        reef_chart_offsets_json(r->found, r->found_count));
    json_object_set_new(document, "boundary_error_bytes", errors_json(r));
    json_object_set_new(document, "learned_share", shares);
    json_object_set_new(document, "stream_bytes",
                        json_integer((json_int_t)pool->commit.stream_bytes));
    json_object_set_new(document, "domains", domains_json(r));
    json_object_set_new(document, "sealed_bits", sealed_json(r));
    return document;
}

static reef_status write_json(const json_t *document, const char *directory, reef_error *err) {
    char *path = reef_cli_format("%s/report.json", directory);
    reef_status status = REEF_OK;
    if (json_dump_file(document, path, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0)
        status = reef_cli_write_failed(path, errno, err);
    free(path);
    return status;
}

static char *sentence(const report *r) {
    char *asof = isnan(r->asof_forgetting) ? reef_cli_format("not measured")
                                           : reef_cli_format("%.3g bits", r->asof_forgetting);
    char *now = isnan(r->task_free_forgetting)
                    ? reef_cli_format("none to measure")
                    : reef_cli_format("%+.4f bits per byte", r->task_free_forgetting);
    char *text =
        reef_cli_format("forgetting: %s as of the own generation, %s task-free", asof, now);
    free(asof);
    free(now);
    return text;
}

// Fixed sizes: the picture is made for a page of a document, which grows with the number of states.
#define PAGE_WIDTH 1000.0
#define CHART_TOP 62.0
#define CHART_HEIGHT 420.0
#define MATRIX_TOP (CHART_TOP + CHART_HEIGHT + 24)
#define MATRIX_HEIGHT(rows) (74 + 46.0 * (double)(rows))

typedef struct picture {
    const report *report;
    const reef_loss_chart *chart;
} picture;

static void draw_report(FILE *out, const void *context) {
    const picture *p = context;
    const report *r = p->report;
    const double width = PAGE_WIDTH - 20;
    char *line = sentence(r);
    reef_svg_sentence(out, 74, 36, line);
    // A pool made by `reef init` alone has no loss to draw.
    if (p->chart->count > 0)
        reef_chart_loss_svg(out, p->chart, r->truth, r->truth_count,
                            (reef_chart_box){10, CHART_TOP, width, CHART_HEIGHT});
    reef_chart_matrix_svg(out, &r->matrix, r->names,
                          (reef_chart_box){10, MATRIX_TOP, width, MATRIX_HEIGHT(r->matrix.rows)});
    free(line);
}

static reef_status write_svg(const report *r,
                             const reef_cli_points *points,
                             const char *directory,
                             reef_error *err) {
    // Both kinds of boundaries are drawn: the distance between the lines is the error.
    reef_loss_chart chart = {.points = points->points,
                             .count = points->count,
                             .unit = "byte",
                             .found = r->found,
                             .found_count = r->found_count};
    const double height = MATRIX_TOP + MATRIX_HEIGHT(r->matrix.rows) + 24;
    char *path = reef_cli_format("%s/report.svg", directory);
    reef_status status =
        reef_svg_write(path, PAGE_WIDTH, height, draw_report, &(picture){r, &chart}, err);
    free(path);
    return status;
}

static void print_domains(const report *r) {
    static const char *const HEADING[] = {"domain",   "began at byte", "found at byte",
                                          "off by",   "generation",    "own bits",
                                          "bits now", "learned %"};
    reef_cli_table *table = reef_cli_table_new("<>>>>>>>", HEADING);
    for (size_t j = 0; j < r->count; j++) {
        const domain *d = &r->domains[j];
        // The first domain begins with the stream and cannot be missed.
        size_t nearest = j > 0 ? nearest_boundary(r, d->start) : SIZE_MAX;
        reef_cli_table_cell(table, "%s", d->name);
        reef_cli_table_cells(table, "%s\t%s", CLI_COUNT(d->start),
                             nearest == SIZE_MAX ? "" : CLI_COUNT(r->found[nearest]));
        if (nearest == SIZE_MAX)
            reef_cli_table_cell(table, "%s", j ? "missed" : "");
        else
            // With a sign: a boundary is found late, and a minus would mean too early.
            reef_cli_table_cell(table, "%+" PRId64, distance(r->found[nearest], d->start));
        reef_cli_table_cell(table, "%zu", d->generation);
        reef_cli_table_cells(table, "%.4f\t%.4f", own_bits(r, j), now_bits(r, j));
        reef_cli_table_real(table, 1, j > 0 ? 100 * share_learned(r, j) : NAN, "");
    }
    reef_cli_table_show(table);
}

static void print_report(const report *r, const char *directory) {
    reef_matrix_print(&r->matrix, r->names);
    char *line = sentence(r);
    printf("\n%s\n\n", line);
    free(line);
    print_domains(r);
    printf("\nwrote %s/report.json and %s/report.svg\n", directory, directory);
}

static reef_status write_report(report *r,
                                reef_cli_call *cli,
                                reef_cli_pool *pool,
                                reef_error *err) {
    const char *directory = reef_cli_text(cli, "out");
    // Points of the loss are read after the evaluation: the pool may have moved on, and the picture
    // should show its end.
    reef_cli_points points = {0};
    reef_status status = reef_cli_points_read(&points, pool, err);
    if (status != REEF_OK) return status;
    // The document is written even with --json, as it is part of the report.
    json_t *document = report_json(r, cli, pool);
    status = write_json(document, directory, err);
    if (status == REEF_OK) status = write_svg(r, &points, directory, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, json_incref(document), err);
    else if (status == REEF_OK)
        print_report(r, directory);
    json_decref(document);
    reef_cli_points_release(&points);
    return status;
}

// Make the directory, or accept one that is there and no pool.
static reef_status make_directory(const char *path, reef_error *err) {
    char *whole = reef_cli_format("%s/report.json", path);
    reef_status status = reef_store_check_output(whole, err);
    free(whole);
    if (status == REEF_OK && mkdir(path, 0777) != 0 && errno != EEXIST)
        status = reef_fail(err, REEF_ERR_IO, "cannot make the directory %.160s: %s", path,
                           strerror(errno));
    return status;
}

reef_status reef_lab_report(reef_cli_call *cli, reef_error *err) {
    report r = {0};
    reef_cli_pool pool = {0};
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = read_request(&r, cli, &pool, err);
    // The directory is tried before the evaluation, which may take an hour.
    if (status == REEF_OK) status = make_directory(reef_cli_text(cli, "out"), err);
    if (status == REEF_OK) {
        status = assign_generations(&r, &pool, err);
        if (status == REEF_OK) status = measure_domains(&r, cli, &pool, err);
    }
    if (status == REEF_OK) status = write_report(&r, cli, &pool, err);
    release_report(&r);
    reef_cli_pool_close(&pool);
    return status;
}
