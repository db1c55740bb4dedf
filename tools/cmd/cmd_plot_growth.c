// reef plot growth: how many experts a pool has had along its stream, in the terminal or as SVG.
//
// A step is a generation that opened with the experts that it has now, less those added later by
// growing in place; these are steps of their own, from the timeline. A consolidated generation
// counts as the one that it was merged into.
#include "chart.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_table.h"
#include "commands.h"
#include "reef_pool_json.h"
#include "svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BAR_COLUMNS 36
#define LEFT 96.0
#define TOP 88.0
#define WIDTH 860.0
#define HEIGHT 280.0
#define CURVE_COLOUR "#1d5fa3"
#define FILL_COLOUR "#dbe8f5"
#define GENERATION_COLOUR "#c8402f"

static const reef_cli_option OPTIONS[] = {
    {"svg", "FILE", "write a picture instead of drawing in the terminal"},
    {0},
};

const reef_cli_manual reef_plot_growth_manual = {
    .about = "The experts of a pool, in all layers and generations together, "
             "along its stream: a step where a generation\n"
             "opened, or grew in place.",
    .options = OPTIONS,
    .example = "reef plot growth reef.pool\n"
               "reef plot growth reef.pool --svg growth.svg",
};

// From here on the pool has so many experts.
typedef struct growth_step {
    uint64_t stream_bytes, experts; // experts: at first those that are added
    uint32_t generation;
    bool grew; // in place; otherwise the generation opened
} growth_step;

typedef struct growth {
    growth_step *steps;
    size_t count;
    uint64_t stream_bytes; // where the stream stands
    const char *unit;      // byte, or what else the stream is counted in
    size_t record_bytes;
} growth;

// ---- reading ------------------------------------------------------------------------------------

static uint64_t plot_growth_member(const json_t *object, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

// Experts that a generation got by growing in place, each time as a step of its own.
static uint64_t add_grown(growth *g,
                          const reef_cli_pool *pool,
                          const json_t *events,
                          const reef_generation_record *generation) {
    // The record holds only the present size; the log of events has the history.
    uint64_t layers = reef_cli_peer_layers(&pool->config), sum = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        const char *name = json_string_value(json_object_get(event, "event"));
        // An event that a restore took back did not happen in this line of states.
        if (name == NULL || strcmp(name, "grow") != 0 || json_object_get(event, "undone") != NULL ||
            plot_growth_member(event, "generation") != generation->generation)
            continue;
        // Each event has both sides, so no state is needed between events.
        uint64_t side = plot_growth_member(event, "side"),
                 before = plot_growth_member(event, "side_before");
        uint64_t added = (side * side - before * before) * layers;
        // The list was allocated for one step per generation and one per event.
        g->steps[g->count++] = (growth_step){plot_growth_member(event, "stream_bytes"), added,
                                             generation->generation, .grew = true};
        sum += added;
    }
    return sum;
}

static int by_position(const void *a, const void *b) {
    const growth_step *left = a, *right = b;
    if (left->stream_bytes != right->stream_bytes)
        return left->stream_bytes < right->stream_bytes ? -1 : 1;
    return (left->generation > right->generation) - (left->generation < right->generation);
}

static void collect_steps(growth *g, const reef_cli_pool *pool, const json_t *events) {
    // An upper bound: not every event is a growth.
    g->steps = reef_cli_alloc(pool->generation_count + json_array_size(events), sizeof(*g->steps));
    for (uint32_t i = 0; i < pool->generation_count; i++) {
        const reef_generation_record *one = &pool->generations[i];
        uint64_t experts = reef_cli_generation_experts(pool, one);
        // Consolidated generations are empty, and their experts stand in the merged one.
        if (reef_generation_is_empty(one)) continue;
        uint64_t grown = add_grown(g, pool, events, one);
        // What it had when it was opened: today's size less what growing added. Clamped, as the log
        // may have been cut.
        g->steps[g->count++] =
            (growth_step){one->opened_at, experts > grown ? experts - grown : 0, i, .grew = false};
    }
    // Growth comes between openings, so the steps are sorted before they are added up.
    qsort(g->steps, g->count, sizeof(*g->steps), by_position);
    // From here on the counts are cumulative, as the curve needs them.
    for (size_t i = 1; i < g->count; i++) g->steps[i].experts += g->steps[i - 1].experts;
    // The curve ends where the stream is now, not at the last step.
    g->stream_bytes = pool->commit.stream_bytes;
    g->unit = reef_cli_stream_unit(&pool->config);
    g->record_bytes = reef_cli_stream_unit_bytes(&pool->config);
}

static reef_status read_growth(reef_cli_pool *pool, growth *g, reef_error *err) {
    reef_txn *txn = NULL;
    json_t *events = json_array();
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_timeline_json(txn, events, err);
    reef_txn_abort(txn);
    if (status == REEF_OK) collect_steps(g, pool, events);
    json_decref(events);
    return status;
}

// ---- showing ------------------------------------------------------------------------------------

static bool is_bytes(const growth *g) {
    return strcmp(g->unit, "byte") == 0;
}

static const char *position(const growth *g, uint64_t bytes, char words[CLI_WORD_BYTES]) {
    return is_bytes(g) ? reef_cli_bytes(bytes, words)
                       : reef_cli_count(bytes / g->record_bytes, words);
}

// Of a pool without experts, all of whose blocks are dense, the axis is that of one.
static double most_experts(const growth *g) {
    return fmax((double)g->steps[g->count - 1].experts, 1);
}

static json_t *growth_json(const growth *g) {
    json_t *steps = json_array();
    for (size_t i = 0; i < g->count; i++)
        json_array_append_new(steps, json_pack("{s:I, s:I, s:I, s:s}", "stream_bytes",
                                               (json_int_t)g->steps[i].stream_bytes, "experts",
                                               (json_int_t)g->steps[i].experts, "generation",
                                               (json_int_t)g->steps[i].generation, "event",
                                               g->steps[i].grew ? "grow" : "open"));
    return json_pack("{s:o, s:I}", "steps", steps, "stream_bytes", (json_int_t)g->stream_bytes);
}

static void print_growth(const growth *g) {
    // A stream of bytes has a unit in each cell, others have theirs in the heading.
    const char *const heading[] = {is_bytes(g) ? "stream" : g->unit, "experts", "", "what"};
    reef_cli_table *table = reef_cli_table_new(">><<", heading);
    // Bars are relative to the largest value, so that the last one fills the column.
    double most = most_experts(g);
    for (size_t i = 0; i < g->count; i++) {
        const growth_step *one = &g->steps[i];
        char words[CLI_WORD_BYTES], bar[BAR_COLUMNS + 1] = "";
        long length = lround((double)one->experts / most * BAR_COLUMNS);
        // ASCII, because this is also piped into mails and logs.
        for (long k = 0; k < length && k < BAR_COLUMNS; k++) bar[k] = '#';
        reef_cli_table_cell(table, "%s", position(g, one->stream_bytes, words));
        reef_cli_table_cell(table, "%s", reef_cli_count(one->experts, words));
        reef_cli_table_cell(table, "%s", bar);
        reef_cli_table_cell(table, "generation %" PRIu32 " %s", one->generation,
                            one->grew ? "grows" : "opens");
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    // The last line: nothing happened there, so it is not a row.
    char words[CLI_WORD_BYTES];
    (void)position(g, g->stream_bytes, words);
    if (is_bytes(g))
        printf("the stream stands at %s\n", words);
    else
        printf("the stream stands at %s %ss\n", words, g->unit);
}

typedef struct axes {
    double x_max, y_max; // in units of the labels
    double x_unit;
} axes;

static double page_x(const axes *a, double units) {
    return LEFT + WIDTH * units / a->x_max;
}

static double page_y(const axes *a, double experts) {
    return TOP + HEIGHT * (1 - experts / a->y_max);
}

static axes fit(const growth *g) {
    double bytes = fmax((double)g->stream_bytes / (double)g->record_bytes, 1);
    double unit = bytes >= 1e6 ? 1e6 : bytes >= 1e3 ? 1e3 : 1;
    double most = most_experts(g), tick = reef_chart_tick(most, 5);
    return (axes){.x_max = bytes / unit, .y_max = tick * ceil(most / tick), .x_unit = unit};
}

static void draw_axes(FILE *out, const growth *g, const axes *a) {
    // About eight marks across and five up keep labels from touching.
    double x_tick = reef_chart_tick(a->x_max, 8), y_tick = reef_chart_tick(a->y_max, 5);
    char label[CLI_WORD_BYTES];
    // A little above the end, since the last mark may be rounded just over it.
    for (int i = 0; i * y_tick <= a->y_max * 1.0001; i++) {
        double y = page_y(a, i * y_tick);
        reef_svg_line(out, LEFT, y, LEFT + WIDTH, y, SVG_GRID, 1, NULL);
        reef_svg_text(out, LEFT - 10, y + 5, 15, "end", SVG_INK,
                      reef_cli_count((uint64_t)(i * y_tick), label));
    }
    // The x values are scaled by x_unit, so that labels stay short.
    for (int i = 0; i * x_tick <= a->x_max * 1.0001; i++) {
        double x = page_x(a, i * x_tick);
        snprintf(label, sizeof(label), "%g", i * x_tick);
        reef_svg_line(out, x, TOP + HEIGHT, x, TOP + HEIGHT + 6, SVG_PALE, 1, NULL);
        reef_svg_text(out, x, TOP + HEIGHT + 23, 15, "middle", SVG_INK, label);
    }
    // The scale is named in the title of the axis.
    const char *thousands = a->x_unit >= 1e6   ? "millions of "
                            : a->x_unit >= 1e3 ? "thousands of "
                                               : "";
    snprintf(label, sizeof(label), "stream (%s%ss)", thousands, g->unit);
    reef_svg_text(out, LEFT + WIDTH / 2, TOP + HEIGHT + 48, 15, "middle", SVG_INK, label);
    // Turned by 90 degrees: a wide title would take the plot's width.
    reef_svg_text_upwards(out, 18, TOP + HEIGHT / 2, 15, "experts");
}

static double step_x(const growth *g, const axes *a, size_t i) {
    uint64_t bytes = i < g->count ? g->steps[i].stream_bytes : g->stream_bytes;
    return page_x(a, (double)bytes / (double)g->record_bytes / a->x_unit);
}

static void put_steps(FILE *out, const growth *g, const axes *a) {
    for (size_t i = 0; i < g->count; i++) {
        double y = page_y(a, (double)g->steps[i].experts);
        fprintf(out, "%.1f,%.1f %.1f,%.1f ", step_x(g, a, i), y, step_x(g, a, i + 1), y);
    }
}

static void draw_growth(FILE *out, const void *context) {
    const growth *g = context;
    // Scale and drawing are apart, so that print_growth and this one agree on sizes.
    axes a = fit(g);
    reef_svg_begin(out, LEFT + WIDTH + 24, TOP + HEIGHT + 64);
    reef_svg_text(out, LEFT, 28, 18, "start", SVG_INK, "Experts of the pool along its stream");
    draw_axes(out, g, &a);
    // The area under the curve first, so that the line and the marks lie above it.
    fprintf(out, "<polygon points=\"%.1f,%.1f ", step_x(g, &a, 0), TOP + HEIGHT);
    put_steps(out, g, &a);
    fprintf(out, "%.1f,%.1f\" fill=\"%s\"/>\n<polyline points=\"", step_x(g, &a, g->count),
            TOP + HEIGHT, FILL_COLOUR);
    put_steps(out, g, &a);
    // The same steps once more, as an outline.
    fprintf(out,
            "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\" stroke-linejoin=\"round\"/>\n",
            CURVE_COLOUR);
    // Position of the last label drawn.
    double labelled = -1e9;
    for (size_t i = 0; i < g->count; i++) {
        double x = step_x(g, &a, i);
        char label[CLI_WORD_BYTES];
        // Dashed where a generation grew, solid where one opened.
        reef_svg_line(out, x, TOP - 6, x, TOP + HEIGHT, GENERATION_COLOUR, 1,
                      g->steps[i].grew ? "3 4" : NULL);
        // The next label would lie on this one.
        if (x - labelled < 26) continue;
        // A plus sign marks growing in place.
        snprintf(label, sizeof(label), "%" PRIu32 "%s", g->steps[i].generation,
                 g->steps[i].grew ? "+" : "");
        reef_svg_text(out, x, TOP - 12, 14, "middle", GENERATION_COLOUR, label);
        labelled = x;
    }
    reef_svg_text(out, LEFT, 48, 14, "start", SVG_PALE,
                  "numbers: generations where they opened; +: grown in place");
    reef_svg_end(out);
}

static reef_status print_chart(reef_cli_call *cli, const growth *g, reef_error *err) {
    const char *path = reef_cli_text(cli, "svg");
    // The file is written before anything is printed, so that an error comes alone.
    if (path != NULL) {
        reef_status status = reef_svg_write(path, draw_growth, g, err);
        if (status != REEF_OK) return status;
    }
    // With both options the document goes to standard output, and the drawing to its file.
    if (cli->json) return reef_cli_reply(cli, growth_json(g), err);
    if (path != NULL)
        printf("wrote %s\n", path);
    else
        print_growth(g);
    return REEF_OK;
}

reef_status reef_cmd_plot_growth(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    growth g = {0};
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = read_growth(&pool, &g, err);
    if (status == REEF_OK) status = print_chart(cli, &g, err);
    free(g.steps);
    reef_cli_pool_close(&pool);
    return status;
}
