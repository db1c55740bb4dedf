// See top_view.h.
#include "top_view.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"
#include "reef_pool_json.h"
#include "reef_system.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define STALL_SECONDS 10.0
#define SILENT_SECONDS 3.0
#define LABEL_COLUMNS 11
#define VALUE_COLUMNS 22 // of a line with a curve
#define CURVE_COLUMNS_MIN 8
#define BAR_COLUMNS 10

typedef struct view {
    const reef_top_data *data;
    size_t columns, rows, used;
    bool hinted;
    reef_top_on_line line;
    void *context;
} view;

// ---- lines --------------------------------------------------------------------------------------

static void put_line(view *v, top_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void put_line(view *v, top_style style, const char *format, ...) {
    // Rows that do not fit are left out, but a row for the hint is kept.
    if (v->rows > 0 && v->used + v->hinted >= v->rows) return;
    char *text = NULL;
    size_t bytes = 0;
    // Without memory a line is missing, which is better than ending the view.
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(out, format, arguments);
    va_end(arguments);
    if (fclose(out) == 0) {
        // Names of files may hold anything, and a terminal would obey it.
        char *safe = reef_cli_printable((const uint8_t *)text, bytes, false);
        char *shown = reef_cli_cut(safe, v->columns);
        v->line(v->context, style, shown);
        free(shown);
        free(safe);
        v->used++;
    }
    free(text);
}

static size_t rows_left(const view *v) {
    size_t taken = v->used + v->hinted;
    return v->rows == 0 ? SIZE_MAX : v->rows > taken ? v->rows - taken : 0;
}

// ---- curves -------------------------------------------------------------------------------------

char *reef_top_sparkline(const double *values, size_t count, size_t columns) {
    static const char *const BLOCKS[] = {"\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83",
                                         "\xe2\x96\x84", "\xe2\x96\x85", "\xe2\x96\x86",
                                         "\xe2\x96\x87", "\xe2\x96\x88"};
    size_t first = count > columns ? count - columns : 0;
    double low = INFINITY, high = -INFINITY;
    for (size_t i = first; i < count; i++) {
        if (!isfinite(values[i])) continue;
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    char *text = reef_cli_alloc(3 * columns + 1, 1), *at = text;
    for (size_t i = first; i < count; i++) {
        // A constant curve lies at the bottom.
        double share = high > low ? (values[i] - low) / (high - low) : 0;
        const char *block = isfinite(values[i]) ? BLOCKS[(size_t)fmin(7, floor(8 * share))] : " ";
        at = stpcpy(at, block);
    }
    return text;
}

// Means over equal parts of the stream, so that all of it fits. An old point is the mean of many
// batches and may span several parts.
static double *resample(const reef_point *points, size_t count, size_t parts) {
    double *means = reef_cli_alloc(parts, sizeof(*means)),
           *weights = reef_cli_alloc(parts, sizeof(*weights));
    uint64_t all = 0, before = 0;
    // Equal parts are of batches, because points have different weights.
    for (size_t i = 0; i < count; i++) all += reef_cli_point_batches(&points[i]);
    for (size_t i = 0; i < count; i++) {
        uint64_t batches = reef_cli_point_batches(&points[i]), end = before + batches;
        double loss = (double)points[i].bits_per_byte;
        // A batch without a loss has no weight, but keeps its position.
        double weight = isfinite(loss) ? (double)batches : 0;
        for (uint64_t p = before * parts / all; weight > 0 && p <= (end - 1) * parts / all; p++) {
            means[p] += weight * loss;
            weights[p] += weight;
        }
        before = end;
    }
    for (size_t p = 0; p < parts; p++) means[p] = weights[p] > 0 ? means[p] / weights[p] : NAN;
    free(weights);
    return means;
}

static size_t curve_columns(const view *v) {
    size_t taken = LABEL_COLUMNS + VALUE_COLUMNS;
    return v->columns > taken + CURVE_COLUMNS_MIN ? v->columns - taken : CURVE_COLUMNS_MIN;
}

// ---- the parts ----------------------------------------------------------------------------------

// A part of the stream: bytes of text as a size, examples and rows as so many of them.
static const char *stream_words(const reef_top_data *d,
                                uint64_t bytes,
                                char words[CLI_WORD_BYTES]) {
    return strcmp(reef_cli_stream_unit(&d->config), "byte") == 0 ? reef_cli_bytes(bytes, words)
                                                                 : reef_cli_count(bytes, words);
}

static void put_head(view *v) {
    const reef_top_data *d = v->data;
    if (d->daemon)
        put_line(v, TOP_BOLD, "%s   reefd %" PRIu64 "   %s   up %s", d->pool,
                 reef_cli_count_of(d->status, "pid"), reef_cli_text_of(d->status, "state"),
                 CLI_DURATION(reef_cli_real_of(d->status, "uptime_s")));
    else
        // Before the first reply there is no status at all.
        put_line(v, TOP_BOLD, "%s   %s", d->pool, d->status != NULL ? "as of its last commit" : "");
    if (d->trouble != NULL) put_line(v, TOP_ALARM, "%s", d->trouble);
    if (!d->daemon) return;
    if (d->age > SILENT_SECONDS)
        put_line(v, TOP_ALARM, "the daemon has not answered for %s", CLI_DURATION(d->age));
    else if (d->still > STALL_SECONDS)
        put_line(v, TOP_ALARM, "training has not advanced for %s", CLI_DURATION(d->still));
    // Commits that fail are the worst: what is trained now could be lost.
    if (reef_cli_text_of(d->status, "commit_error")[0])
        put_line(v, TOP_ALARM, "commits fail: %s", reef_cli_text_of(d->status, "commit_error"));
    const json_t *scrub = json_object_get(d->status, "scrub");
    if (reef_cli_text_of(scrub, "damage")[0])
        put_line(v, TOP_ALARM, "DAMAGED: %s", reef_cli_text_of(scrub, "damage"));
}

static void put_loss(view *v) {
    const reef_top_data *d = v->data;
    // A daemon reports a median of recent batches, an idle pool its last batch.
    const json_t *now = json_object_get(d->status, "bits_per_byte");
    if (!json_is_number(now)) now = json_object_get(d->status, "last_bits_per_byte");
    size_t columns = curve_columns(v);
    // No more parts than points: the curve would have gaps.
    size_t parts = d->point_count < columns ? d->point_count : columns;
    double *means = resample(d->points, d->point_count, parts);
    char *curve = reef_top_sparkline(means, parts, columns);
    char *value = !json_is_number(now)
                      ? reef_cli_format("nothing yet")
                      : reef_cli_format("%.3f %s", json_number_value(now), "bits per byte");
    put_line(v, TOP_PLAIN, "loss       %-*s%s", VALUE_COLUMNS, value, curve);
    free(value);
    free(curve);
    free(means);
}

static void put_speed(view *v) {
    const reef_top_data *d = v->data;
    const json_t *rate = json_object_get(d->status, "bytes_per_s");
    if (!json_is_number(rate)) return;
    char *curve = reef_top_sparkline(d->speed, d->speed_count, curve_columns(v));
    char *value = reef_cli_format("%s/s", CLI_BYTES((uint64_t)json_number_value(rate)));
    put_line(v, TOP_PLAIN, "speed      %-*s%s", VALUE_COLUMNS, value, curve);
    free(value);
    free(curve);
}

static void put_stream(view *v) {
    const reef_top_data *d = v->data;
    const char *unit = reef_cli_stream_unit(&d->config);
    bool bytes = strcmp(unit, "byte") == 0;
    // Recognised text is counted in the stream, but not trained; it is where all is learned.
    bool all = json_object_get(d->status, "not_learned_bytes") == NULL;
    uint64_t recognised = reef_cli_count_of(d->status, "not_learned_bytes");
    uint64_t learned = reef_cli_count_of(d->status, "stream_bytes") - recognised;
    // One line, as wide as a terminal of 80 columns takes.
    put_line(v, TOP_PLAIN, "%-*s%s%s%s%s in %s steps; %s pending%s%s%s", LABEL_COLUMNS, "trained",
             stream_words(d, learned, CLI_WORDS), bytes ? "" : " ", bytes ? "" : unit,
             bytes ? "" : "s", CLI_COUNT(reef_cli_count_of(d->status, "step")),
             stream_words(d, reef_cli_count_of(d->status, "carried_bytes"), CLI_WORDS),
             all ? "" : ", ", all ? "" : stream_words(d, recognised, CLI_WORDS),
             all ? "" : " recognised");
}

static void put_commit(view *v) {
    const reef_top_data *d = v->data;
    const json_t *commit = json_object_get(d->status, "last_commit");
    if (!json_is_object(commit)) return;
    uint64_t now = reef_unix_ms(), then = reef_cli_count_of(commit, "unix_ms");
    // An idle pool does not know how long its commit took.
    char *took = json_is_number(json_object_get(commit, "ms"))
                     ? reef_cli_format(", took %.0f ms", reef_cli_real_of(commit, "ms"))
                     : reef_cli_format("%s", "");
    // The clock may have been set back: a commit of the future is 0 seconds old.
    put_line(v, TOP_PLAIN, "commit     number %s at step %s, %s ago%s",
             CLI_COUNT(reef_cli_count_of(commit, "number")),
             CLI_COUNT(reef_cli_count_of(commit, "step")),
             CLI_DURATION(now > then ? (double)(now - then) / 1000 : 0), took);
    free(took);
}

static void put_memory(view *v) {
    const json_t *status = v->data->status;
    uint64_t bytes = reef_cli_count_of(status, v->data->daemon ? "pool_file_bytes" : "file_bytes");
    if (v->data->daemon)
        put_line(v, TOP_PLAIN, "size       %s on disk, %s resident", CLI_BYTES(bytes),
                 CLI_BYTES(reef_cli_count_of(status, "resident_bytes")));
    else
        put_line(v, TOP_PLAIN, "size       %s on disk", CLI_BYTES(bytes));
}

// The context memory of the kind that is being learned, where the pool has such.
static void put_context_memory(view *v) {
    const json_t *memory = json_object_get(v->data->status, "kind_memory");
    if (!json_is_object(memory)) return;
    put_line(v, TOP_PLAIN, "memory     %s learned, %s of %s, %.1f %% of its slots in use",
             CLI_BYTES(reef_cli_count_of(memory, "learned_bytes")),
             CLI_BYTES(reef_cli_count_of(memory, "bytes")),
             CLI_BYTES(reef_cli_count_of(memory, "bytes_max")),
             100 * reef_cli_real_of(memory, "used_share"));
}

// A line in words (taken over), where there are any.
static void put_words(view *v, const char *label, char *words) {
    if (words != NULL) put_line(v, TOP_PLAIN, "%-*s%s", LABEL_COLUMNS, label, words);
    free(words);
}

static void put_source(view *v, const json_t *source) {
    const json_t *behind = json_object_get(source, "lag_bytes"),
                 *loss = json_object_get(source, "bits_per_byte");
    // The name takes what the other columns leave.
    char *name =
        reef_cli_cut(reef_cli_text_of(source, "name"), v->columns > 60 ? v->columns - 44 : 16);
    char *shown = json_is_number(loss) ? reef_cli_format("%.3f", json_number_value(loss))
                                       : reef_cli_format("%s", "");
    put_line(v, TOP_PLAIN, "  %10s %10s/s %8s  %s  %s",
             json_is_integer(behind) ? CLI_BYTES((uint64_t)json_integer_value(behind)) : "?",
             CLI_BYTES((uint64_t)reef_cli_real_of(source, "bytes_per_s")), shown, name,
             json_is_true(json_object_get(source, "ended"))      ? "ended"
             : json_is_true(json_object_get(source, "sits_out")) ? "is idle"
                                                                 : "");
    free(shown);
    free(name);
}

static void put_sources(view *v) {
    const json_t *sources = json_object_get(v->data->status, "sources");
    size_t i;
    json_t *source;
    if (json_array_size(sources) == 0) return;
    put_line(v, TOP_FAINT, "  %10s %12s %8s  source", "lag", "rate", "loss");
    json_array_foreach(sources, i, source) put_source(v, source);
}

// How its experts are used.
static char *usage_words(const view *v, uint32_t g) {
    const reef_usage_summary *usage = &v->data->usage[g];
    char bar[BAR_COLUMNS + 1] = "";
    long filled = lround(usage->used_percent * BAR_COLUMNS / 100);
    for (long i = 0; i < filled && i < BAR_COLUMNS; i++) bar[i] = '#';
    return reef_cli_format(" %5.1f %-*s %6.3f %12s", usage->used_percent, BAR_COLUMNS, bar,
                           usage->unevenness, CLI_COUNT(usage->selections));
}

static void put_generation(view *v, uint32_t g) {
    const reef_top_data *d = v->data;
    const reef_generation_record *one = &d->generations[g];
    char *usage = usage_words(v, g);
    uint64_t count = (uint64_t)one->side * one->side * reef_config_retrieving_layers(&d->config);
    put_line(v, one->sealed ? TOP_PLAIN : TOP_BOLD, "  %10" PRIu32 " %-6s %10s %9s%s", g,
             one->sealed ? "sealed" : "open", CLI_COUNT(count),
             stream_words(d, one->opened_at, CLI_WORDS), usage);
    free(usage);
}

static void put_generations(view *v) {
    const reef_top_data *d = v->data;
    if (d->generation_count == 0) return;
    if (!reef_cli_has_net(&d->config)) {
        put_line(v, TOP_FAINT, "no net, and so no experts");
        return;
    }
    put_line(v, TOP_FAINT, "  %10s %-6s %10s %9s %5s %-*s %6s %12s", "generation", "", "experts",
             "opened", "used%", BAR_COLUMNS, "", "uneven", "selections");
    size_t left = rows_left(v);
    uint32_t first = left < d->generation_count ? d->generation_count - (uint32_t)left : 0;
    for (uint32_t g = first; g < d->generation_count; g++) put_generation(v, g);
}

void reef_top_view(const reef_top_data *data,
                   size_t columns,
                   size_t rows,
                   const char *hint,
                   reef_top_on_line line,
                   void *context) {
    view v = {.data = data,
              .columns = columns,
              .rows = rows,
              .hinted = hint != NULL,
              .line = line,
              .context = context};
    put_head(&v);
    if (data->status != NULL) {
        put_loss(&v);
        put_speed(&v);
        put_stream(&v);
        put_commit(&v);
        put_memory(&v);
        put_words(&v, "kind", reef_kind_words(data->status));
        put_context_memory(&v);
        put_words(&v, "ranks", reef_ranks_words(data->status));
        put_words(&v, "joins", reef_joins_words(data->status));
        put_sources(&v);
        put_generations(&v);
    }
    v.hinted = false;
    if (hint != NULL) put_line(&v, TOP_FAINT, "%s", hint);
}
