// reef plot usage: how much of the work the most used experts of each generation do, in the
// terminal or as SVG.
//
// Experts of all layers of a generation are put in the order of their use, most used first. The
// curve is the share of all selections that the first x per cent of them had: a straight line where
// all are used alike.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_table.h"
#include "cli_vectors.h"
#include "commands.h"
#include "svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define CURVE_POINTS 101 // 0 % to 100 % of the experts
#define BAR_COLUMNS 30
#define COLOUR_COUNT 8
#define LEFT 74.0
#define TOP 62.0
#define SIDE 460.0 // of the square
#define TICKS 5
#define KEY_GAP 24.0 // from one line of the key to the next
#define KEY_ROWS 19  // that stand beside the square

static const reef_cli_option OPTIONS[] = {
    {"svg", "FILE", "write a picture instead of drawing in the terminal"},
    {0},
};

const reef_cli_manual reef_plot_usage_manual = {
    .about = "For each generation: the share of its experts that were ever chosen, "
             "and which share of all selections its\n"
             "most used 1, 10 and 50 % had. The picture has the whole curves; "
             "a straight line from corner to corner is\n"
             "even use. `reef usage` has the numbers of one generation layer by layer.",
    .options = OPTIONS,
    .example = "reef plot usage reef.pool\n"
               "reef plot usage reef.pool --svg usage.svg",
};

typedef struct usage_curve {
    uint32_t generation;
    bool sealed;
    reef_usage_summary summary;
    double share[CURVE_POINTS];
} usage_curve;

// ---- reading ------------------------------------------------------------------------------------

static int most_first(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left < right) - (left > right);
}

static void fill_curve(usage_curve *curve, uint64_t *counts, size_t count) {
    double total = 0, sum = 0;
    qsort(counts, count, sizeof(*counts), most_first);
    for (size_t i = 0; i < count; i++) total += (double)counts[i];
    size_t at = 0;
    for (size_t p = 0; p < CURVE_POINTS; p++) {
        size_t end = count * p / (CURVE_POINTS - 1);
        for (; at < end; at++) sum += (double)counts[at];
        curve->share[p] = total > 0 ? sum / total : NAN;
    }
}

static reef_status read_curve(reef_cli_pool *pool,
                              uint32_t g,
                              usage_curve *curve,
                              reef_error *err) {
    // One curve for all layers of a generation: experts of different layers are comparable, because
    // each layer chooses equally often.
    const reef_generation_record *generation = &pool->generations[g];
    // Dense layers are not in the array.
    size_t each = (size_t)generation->side * generation->side, count = 0;
    curve->generation = g;
    curve->sealed = generation->sealed;
    // The percentages of the legend are those of `reef generations`.
    reef_status status = reef_cli_usage_summary(pool, generation, &curve->summary, err);
    uint64_t *counts = reef_cli_alloc(each * reef_cli_peer_layers(&pool->config), sizeof(*counts));
    for (uint32_t layer = 0; status == REEF_OK && layer < pool->config.layers; layer++) {
        reef_usage *usage = NULL;
        if (!reef_cli_layer_is_peer(&pool->config, layer)) continue;
        status = reef_cli_usage_read(pool, generation, layer, &usage, err);
        // Only the count; weights of selections would need another axis.
        for (size_t i = 0; status == REEF_OK && i < each; i++) counts[count++] = usage[i].count;
        free(usage);
    }
    // Sorted and summed to the fixed points of the curve, so memory does not grow with the pool.
    if (status == REEF_OK) fill_curve(curve, counts, count);
    free(counts);
    return status;
}

// *curves is the caller's; consolidated generations have none.
static reef_status read_curves(reef_cli_pool *pool,
                               usage_curve **curves,
                               size_t *count,
                               reef_error *err) {
    reef_status status = REEF_OK;
    *count = 0;
    *curves = reef_cli_alloc(pool->generation_count, sizeof(**curves));
    for (uint32_t g = 0; status == REEF_OK && g < pool->generation_count; g++)
        if (!reef_generation_is_empty(&pool->generations[g]))
            status = read_curve(pool, g, &(*curves)[(*count)++], err);
    return status;
}

// ---- showing ------------------------------------------------------------------------------------

static json_t *curves_json(const usage_curve *curves, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        // Shares at the same points for every generation, as the picture has them.
        json_t *shares = json_array();
        for (size_t p = 0; p < CURVE_POINTS; p++)
            json_array_append_new(shares, reef_cli_real(curves[i].share[p]));
        // The summary travels along, so that one document answers both questions.
        const reef_usage_summary *s = &curves[i].summary;
        json_array_append_new(list,
                              json_pack("{s:I, s:b, s:I, s:o, s:o, s:I, s:o}", "generation",
                                        (json_int_t)curves[i].generation, "sealed",
                                        curves[i].sealed, "experts", (json_int_t)s->expert_count,
                                        "used_percent", reef_cli_real(s->used_percent),
                                        "unevenness", reef_cli_real(s->unevenness), "selections",
                                        (json_int_t)s->selections, "share", shares));
    }
    return json_pack("{s:o}", "generations", list);
}

static void print_share(reef_cli_table *table, double share) {
    if (isfinite(share))
        reef_cli_table_cell(table, "%.1f", 100 * share);
    else
        reef_cli_table_cell(table, "%s", "");
}

static void print_curves(const usage_curve *curves, size_t count) {
    static const char *const HEADING[] = {"generation", "experts",   "used %",   "",
                                          "1 % do %",   "10 % do %", "50 % do %"};
    reef_cli_table *table = reef_cli_table_new(">>><>>>", HEADING);
    for (size_t i = 0; i < count; i++) {
        char words[CLI_WORD_BYTES], bar[BAR_COLUMNS + 1] = "";
        // The bar is of the used experts; the shares stand in columns of their own.
        long length = lround(curves[i].summary.used_percent * BAR_COLUMNS / 100);
        for (long k = 0; k < length && k < BAR_COLUMNS; k++) bar[k] = '#';
        reef_cli_table_cell(table, "%" PRIu32, curves[i].generation);
        reef_cli_table_cell(table, "%s", reef_cli_count(curves[i].summary.expert_count, words));
        reef_cli_table_cell(table, "%.1f", curves[i].summary.used_percent);
        reef_cli_table_cell(table, "%s", bar);
        // Three points tell the shape: with even use, 10 % of the experts do 10 %.
        print_share(table, curves[i].share[1]);
        print_share(table, curves[i].share[10]);
        print_share(table, curves[i].share[50]);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static double page_x(double share) {
    return LEFT + SIDE * share;
}

static double page_y(double share) {
    return TOP + SIDE * (1 - share);
}

static void draw_axes(FILE *out) {
    // Both axes run from 0 to 100 %, so they share their marks.
    for (int i = 0; i <= TICKS; i++) {
        double share = (double)i / TICKS;
        char label[CLI_WORD_BYTES];
        snprintf(label, sizeof(label), "%d", 100 * i / TICKS);
        reef_svg_line(out, LEFT, page_y(share), LEFT + SIDE, page_y(share), SVG_GRID, 1, NULL);
        reef_svg_text(out, LEFT - 10, page_y(share) + 5, 15, "end", SVG_INK, label);
        reef_svg_text(out, page_x(share), TOP + SIDE + 23, 15, "middle", SVG_INK, label);
    }
    // The diagonal is even use; a curve above it is unevenness.
    reef_svg_line(out, page_x(0), page_y(0), page_x(1), page_y(1), SVG_PALE, 1.5, "6 6");
    reef_svg_text(out, LEFT + SIDE / 2, TOP + SIDE + 48, 15, "middle", SVG_INK,
                  "experts, most used first (%)");
    reef_svg_text_upwards(out, LEFT - 50, TOP + SIDE / 2, 15, "share of all selections (%)");
}

static void draw_curve(FILE *out, const usage_curve *curve, const char *colour) {
    fputs("<polyline points=\"", out);
    for (size_t p = 0; p < CURVE_POINTS; p++)
        if (isfinite(curve->share[p]))
            fprintf(out, "%.1f,%.1f ", page_x((double)p / (CURVE_POINTS - 1)),
                    page_y(curve->share[p]));
    fprintf(out,
            "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\" stroke-linejoin=\"round\"%s/>\n",
            colour, curve->sealed ? "" : " stroke-dasharray=\"9 5\"");
}

static const char *const COLOURS[COLOUR_COUNT] = {"#1d5fa3", "#c8402f", "#2f8a4c", "#8a5bb0",
                                                  "#c98a1b", "#1b9aa0", "#7a4a2b", "#555555"};

// The newest generations get the rows; older ones are counted in the first row.
static void draw_key(FILE *out, const usage_curve *curves, size_t count) {
    char label[CLI_WORD_BYTES + 64];
    double x = LEFT + SIDE + 30, y = TOP + 14;
    // One row of the key is needed to say how many are left out.
    size_t left_out = count > KEY_ROWS ? count - (KEY_ROWS - 1) : 0;
    if (left_out > 0) {
        snprintf(label, sizeof(label), "%zu older generations, and", left_out);
        reef_svg_text(out, x, y, 14, "start", SVG_PALE, label);
        y += KEY_GAP;
    }
    for (size_t i = left_out; i < count; i++, y += KEY_GAP) {
        // The open generation is still changing, so it is marked.
        snprintf(label, sizeof(label), "generation %" PRIu32 "%s: %.1f %% used",
                 curves[i].generation, curves[i].sealed ? "" : " (open)",
                 curves[i].summary.used_percent);
        // Colours repeat after COLOUR_COUNT; the order of the key tells them apart.
        reef_svg_line(out, x, y - 5, x + 26, y - 5, COLOURS[i % COLOUR_COUNT], 2.5,
                      curves[i].sealed ? NULL : "9 5");
        reef_svg_text(out, x + 34, y, 14, "start", SVG_INK, label);
    }
}

static void draw_picture(FILE *out, const usage_curve *curves, size_t count) {
    reef_svg_begin(out, LEFT + SIDE + 300, TOP + SIDE + 64);
    reef_svg_text(out, LEFT, 28, 18, "start", SVG_INK, "Use of experts, by generation");
    reef_svg_text(out, LEFT, 48, 14, "start", SVG_PALE, "the straight line: all used alike");
    draw_axes(out);
    for (size_t i = 0; i < count; i++) draw_curve(out, &curves[i], COLOURS[i % COLOUR_COUNT]);
    draw_key(out, curves, count);
    reef_svg_end(out);
}

typedef struct usage_picture {
    const usage_curve *curves;
    size_t count;
} usage_picture;

static void draw_usage(FILE *out, const void *context) {
    const usage_picture *picture = context;
    draw_picture(out, picture->curves, picture->count);
}

static reef_status print_chart(reef_cli_call *cli,
                               const usage_curve *curves,
                               size_t count,
                               reef_error *err) {
    const char *path = reef_cli_text(cli, "svg");
    const usage_picture picture = {curves, count};
    // The file is written before anything is printed, so that an error comes alone.
    if (path != NULL) {
        reef_status status = reef_svg_write(path, draw_usage, &picture, err);
        if (status != REEF_OK) return status;
    }
    if (cli->json) return reef_cli_reply(cli, curves_json(curves, count), err);
    // With both options the document goes to standard output, and the drawing to its file.
    if (path != NULL)
        printf("wrote %s\n", path);
    else
        print_curves(curves, count);
    return REEF_OK;
}

reef_status reef_cmd_plot_usage(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    usage_curve *curves = NULL;
    size_t count = 0;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK)
        // Vector generations keep no usage records.
        status = reef_cli_pool_wants(&pool, false,
                                     "there every expert sees every input, "
                                     "and reef eval shows which generation answers",
                                     err);
    if (status == REEF_OK) status = read_curves(&pool, &curves, &count, err);
    if (status == REEF_OK) status = print_chart(cli, curves, count, err);
    free(curves);
    reef_cli_pool_close(&pool);
    return status;
}
