// See chart_curves.h.
#include "chart_curves.h"

#include "cli_format.h"
#include "svg.h"

#include <math.h>
#include <stdlib.h>

#define TEXT_SIZE 15.0
#define TITLE_SIZE 18.0
#define LEFT_MARGIN 76.0
#define RIGHT_MARGIN 24.0
#define TOP_MARGIN 74.0 // title and legend
#define BOTTOM_MARGIN 60.0
#define MARK 4.0      // half the side of a point's square
#define X_TICKS_MAX 9 // that fit beside each other
#define LEVEL_DASHES "8 6"

// Told apart also without colour: marks, and in the legend names.
static const char *const COLOURS[] = {"#1d5fa3", "#c8402f", "#2e8b57", "#8a5ab0",
                                      "#c98a1b", "#4a4a4a", "#2aa1a1", "#a3446b"};
#define COLOUR_COUNT (sizeof(COLOURS) / sizeof(COLOURS[0]))

typedef struct axes {
    double left, top, width, height;
    double x_low, x_high, y_low, y_high; // x in logarithms
} axes;

static double page_x(const axes *a, double x) {
    return a->left + a->width * (log10(x) - a->x_low) / (a->x_high - a->x_low);
}

static double page_y(const axes *a, double y) {
    return a->top + a->height * (1 - (y - a->y_low) / (a->y_high - a->y_low));
}

// A margin around what there is, also around a single value.
static void widen_range(double *low, double *high, double share, double least) {
    double margin = fmax(share * (*high - *low), least);
    *low -= margin;
    *high += margin;
}

static axes fit_axes(const reef_chart_curves *chart, reef_chart_box box) {
    // The limits begin at infinity, so that the first point of any curve sets them.
    axes a = {.left = box.x + LEFT_MARGIN,
              .top = box.y + TOP_MARGIN,
              .width = box.width - LEFT_MARGIN - RIGHT_MARGIN,
              .height = box.height - TOP_MARGIN - BOTTOM_MARGIN,
              .x_low = INFINITY,
              .x_high = -INFINITY,
              .y_low = INFINITY,
              .y_high = -INFINITY};
    for (size_t c = 0; c < chart->count; c++)
        for (size_t i = 0; i < chart->curves[c].count; i++) {
            // The error bar belongs to what is shown: its ends count, not only the middle.
            const reef_chart_point *point = &chart->curves[c].points[i];
            a.y_low = fmin(a.y_low, point->low);
            a.y_high = fmax(a.y_high, point->high);
            // A level is a horizontal line over the whole chart and has no x of its own.
            if (chart->curves[c].level) continue;
            a.x_low = fmin(a.x_low, log10(point->x));
            a.x_high = fmax(a.x_high, log10(point->x));
        }
    // The negated comparison also catches a chart without points, whose limits are still infinite.
    if (!(a.x_low <= a.x_high)) a.x_low = a.x_high = 0;
    if (!(a.y_low <= a.y_high)) a.y_low = a.y_high = 1;
    // Points at the very edge would be drawn over by the axes. A curve of constant height would
    // have a range of zero, so the range gets a smallest width.
    widen_range(&a.x_low, &a.x_high, 0.04, 0.02);
    widen_range(&a.y_low, &a.y_high, 0.08, 0.005 * fabs(a.y_high));
    return a;
}

// 20k, 1.5M
static void short_number(double value, char out[CLI_WORD_BYTES]) {
    if (value >= 1e9)
        snprintf(out, CLI_WORD_BYTES, "%gG", value / 1e9);
    else if (value >= 1e6)
        snprintf(out, CLI_WORD_BYTES, "%gM", value / 1e6);
    else if (value >= 1e4)
        snprintf(out, CLI_WORD_BYTES, "%gk", value / 1e3);
    else
        snprintf(out, CLI_WORD_BYTES, "%g", value);
}

static void x_tick(FILE *out, const axes *a, double x) {
    char label[CLI_WORD_BYTES];
    double bottom = a->top + a->height;
    short_number(x, label);
    reef_svg_line(out, page_x(a, x), bottom, page_x(a, x), bottom + 6, SVG_PALE, 1, NULL);
    reef_svg_text(out, page_x(a, x), bottom + 23, TEXT_SIZE, "middle", SVG_INK, label);
}

// The steps within a power of ten: as many as there is room for.
static void draw_x_ticks(FILE *out, const axes *a) {
    static const double STEPS[3][9] = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 5}, {1}};
    static const size_t COUNTS[3] = {9, 3, 1};
    // From the power of ten below the data to the one above it.
    int first = (int)floor(a->x_low), last = (int)ceil(a->x_high);
    // Try all nine steps of a power first, then 1, 2 and 5, then the powers alone.
    for (size_t kind = 0; kind < 3; kind++) {
        size_t shown = 0;
        // The first pass only counts, so that no tick is drawn before it is known that all of them
        // fit.
        for (int draw = 0; draw < 2; draw++)
            for (int power = first; power <= last; power++)
                for (size_t s = 0; s < COUNTS[kind]; s++) {
                    double x = STEPS[kind][s] * pow(10, power);
                    if (log10(x) < a->x_low || log10(x) > a->x_high) continue;
                    if (draw == 0) shown++;
                    // The powers alone are drawn even if they are too many: an axis needs ticks.
                    else if (shown <= X_TICKS_MAX || kind == 2)
                        x_tick(out, a, x);
                }
        if (shown <= X_TICKS_MAX) return;
    }
}

static void draw_axes(FILE *out, const axes *a, const reef_chart_curves *chart) {
    // Whole multiples of a round step, so that the labels are short numbers.
    double tick = reef_chart_tick(a->y_high - a->y_low, 6);
    for (int i = (int)ceil(a->y_low / tick); i * tick <= a->y_high; i++) {
        double y = i * tick;
        char label[CLI_WORD_BYTES];
        snprintf(label, sizeof(label), "%.6g", y);
        // The grid line is drawn before the curves, which lie on top of it.
        reef_svg_line(out, a->left, page_y(a, y), a->left + a->width, page_y(a, y), SVG_GRID, 1,
                      NULL);
        reef_svg_text(out, a->left - 10, page_y(a, y) + 5, TEXT_SIZE, "end", SVG_INK, label);
    }
    draw_x_ticks(out, a);
    reef_svg_text(out, a->left + a->width / 2, a->top + a->height + 48, TEXT_SIZE, "middle",
                  SVG_INK, chart->x_title);
    reef_svg_text_upwards(out, a->left - 58, a->top + a->height / 2, TEXT_SIZE, chart->y_title);
}

static void draw_curve(FILE *out,
                       const axes *a,
                       const reef_chart_curve *curve,
                       const char *colour) {
    for (size_t i = 0; i < curve->count; i++) {
        const reef_chart_point *point = &curve->points[i];
        double y = page_y(a, point->y);
        // A level has one value, drawn from edge to edge and dashed to tell it from a measured
        // curve.
        if (curve->level) {
            reef_svg_line(out, a->left, y, a->left + a->width, y, colour, 2, LEVEL_DASHES);
            continue;
        }
        double x = page_x(a, point->x);
        // Joined to the previous point; the first point has none.
        if (i > 0)
            reef_svg_line(out, page_x(a, point[-1].x), page_y(a, point[-1].y), x, y, colour, 2.5,
                          NULL);
        // The bar is left out where only one run was measured, as low and high are then the same.
        if (point->high > point->low)
            reef_svg_line(out, x, page_y(a, point->low), x, page_y(a, point->high), colour, 1.5,
                          NULL);
        reef_svg_rect(out, x - MARK, y - MARK, 2 * MARK, 2 * MARK, colour, NULL);
    }
}

static void draw_legend(FILE *out, const axes *a, const reef_chart_curves *chart) {
    double x = a->left, y = a->top - 26;
    for (size_t c = 0; c < chart->count; c++) {
        // The width of the entry is estimated from the width of a character, as SVG gives no
        // measure before it is rendered.
        double width = 58 + SVG_CHARACTER * (double)reef_cli_width(chart->curves[c].name);
        // A new line begins before an entry that would not fit, but never before the first one.
        if (x > a->left && x + width > a->left + a->width + RIGHT_MARGIN) {
            x = a->left;
            y += 19;
        }
        reef_svg_line(out, x, y, x + 28, y, COLOURS[c % COLOUR_COUNT], 2.5,
                      chart->curves[c].level ? LEVEL_DASHES : NULL);
        reef_svg_text(out, x + 35, y + 5, TEXT_SIZE, "start", SVG_INK, chart->curves[c].name);
        x += width;
    }
}

void reef_chart_curves_svg(FILE *out, const reef_chart_curves *chart, reef_chart_box box) {
    axes a = fit_axes(chart, box);
    reef_svg_text(out, a.left, box.y + 22, TITLE_SIZE, "start", SVG_INK, chart->title);
    draw_axes(out, &a, chart);
    for (size_t c = 0; c < chart->count; c++)
        draw_curve(out, &a, &chart->curves[c], COLOURS[c % COLOUR_COUNT]);
    draw_legend(out, &a, chart);
}
