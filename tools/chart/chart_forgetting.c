// See chart_forgetting.h. Domains are distinguished by letters and by shapes; colours only help.
#include "chart_forgetting.h"

#include "chart.h"
#include "cli_format.h"
#include "cli_table.h"
#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BITS_SHOWN_MAX 9.0 // a guess among all bytes costs 8; what is worse is drawn at the edge
#define NOTE_BYTES 128
#define ROWS 16
#define LABEL_ROWS 3   // five labels above 0
#define LABEL_STEP 2.5 // of the top of the axis in the terminal, so that they are round
#define COLUMNS 72
#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define LETTER_COUNT (sizeof(LETTERS) - 1)

typedef struct value_range {
    double low, high; // of the axis
    double peak;      // the highest value, which may lie beyond
} value_range;

static value_range range_of(const reef_metrics_matrix *m) {
    value_range range = {.high = m->rising ? 1 : 0.1};
    for (size_t i = 0; i < m->rows * m->columns; i++)
        if (isfinite(m->values[i])) range.peak = fmax(range.peak, m->values[i]);
    range.high = fmax(range.high, fmin(range.peak, BITS_SHOWN_MAX));
    double tick = reef_chart_tick(range.high, 6);
    range.high = tick * ceil(range.high / tick - 1e-9);
    return range;
}

// Share of the axis from the top, for values beyond it at its end.
static double depth(const value_range *range, double value) {
    double share = (value - range->low) / (range->high - range->low);
    return 1 - fmin(fmax(share, 0), 1);
}

// Says what the axis leaves out; false: nothing.
static bool cut_off(const value_range *range, char out[NOTE_BYTES]) {
    snprintf(out, NOTE_BYTES, "cut off at %g; the highest is %.1f", range->high, range->peak);
    return range->peak > range->high;
}

// ---- in the terminal ----------------------------------------------------------------------------

static void put_letter(char *cell, char letter) {
    *cell = *cell == ' ' || *cell == '.' ? letter : letter == '.' ? *cell : '*';
}

// A run of dots from one state to the next, and letters on the states.
static void draw_line(char grid[ROWS][COLUMNS + 1],
                      const reef_metrics_matrix *m,
                      const value_range *range,
                      size_t column) {
    // With one state there are no steps; 1 avoids a division by zero.
    size_t steps = m->rows > 1 ? m->rows - 1 : 1;
    int before_x = -1, before_y = 0;
    for (size_t row = 0; row < m->rows; row++) {
        double value = reef_metrics_at(m, row, column);
        // A domain that was not there yet in this state has no value.
        if (!isfinite(value)) continue;
        int x = (int)lround((double)row * (COLUMNS - 1) / (double)steps);
        int y = (int)lround(depth(range, value) * (ROWS - 1));
        // Dots on the straight line between the two letters, without the letters themselves.
        for (int k = before_x + 1; before_x >= 0 && k < x; k++) {
            double share = (double)(k - before_x) / (x - before_x);
            put_letter(&grid[(int)lround(before_y + share * (y - before_y))][k], '.');
        }
        put_letter(&grid[y][x], LETTERS[column % LETTER_COUNT]);
        before_x = x;
        before_y = y;
    }
}

static void print_legend(FILE *out, const reef_forgetting_chart *chart) {
    static const char *const HEADING[] = {"", "domain", "best before", "now", "forgotten"};
    const reef_metrics_matrix *m = &chart->matrix;
    reef_cli_table *table = reef_cli_table_new("<<>>>", HEADING);
    for (size_t j = 0; j < m->columns; j++) {
        // The best value before is not stored: it follows from the present value and what was
        // forgotten.
        double now = reef_metrics_at(m, m->rows - 1, j), lost = reef_metrics_forgetting_max(m, j);
        // The letter is the one drawn in the grid above.
        reef_cli_table_cell(table, "%c", LETTERS[j % LETTER_COUNT]);
        reef_cli_table_cell(table, "%s", chart->names[j]);
        reef_cli_table_cell(table, "%.4f", m->rising ? now + lost : now - lost);
        reef_cli_table_cell(table, "%.4f", now);
        reef_cli_table_cell(table, "%+.4f", lost);
    }
    reef_cli_table_print(table, out);
    reef_cli_table_free(table);
}

void reef_chart_forgetting_print(FILE *out, const reef_forgetting_chart *chart) {
    const reef_metrics_matrix *m = &chart->matrix;
    value_range range = range_of(m);
    // The upper end is a whole label step, so that the label at the top is a round number. Accuracy
    // ends at 1 and is left as it is.
    if (!m->rising) range.high = LABEL_STEP * ceil(range.high / LABEL_STEP);
    char grid[ROWS][COLUMNS + 1];
    // Every row is a string of its own, so that it can be printed at once.
    for (size_t y = 0; y < ROWS; y++) {
        memset(grid[y], ' ', COLUMNS);
        grid[y][COLUMNS] = '\0';
    }
    for (size_t j = 0; j < m->columns; j++) draw_line(grid, m, &range, j);
    char note[NOTE_BYTES];
    // Values beyond the range are cut off. The heading says so, as the drawing alone would hide it.
    bool cut = cut_off(&range, note);
    fprintf(out, "%s%s%s\n", chart->measure, cut ? ", " : "", cut ? note : "");
    for (size_t y = 0; y < ROWS; y++) {
        double value = range.high - (range.high - range.low) * (double)y / (ROWS - 1);
        // Only every few rows have a number: one on each row would be hard to read.
        if (y % LABEL_ROWS == 0)
            fprintf(out, "%7.2f | %s\n", value, grid[y]);
        else
            fprintf(out, "        | %s\n", grid[y]);
    }
    // The corner and the horizontal axis.
    fprintf(out, "        +");
    for (size_t x = 0; x <= COLUMNS; x++) fputc('-', out);
    // The first and the last state stand below their columns; the others do not fit and are listed.
    const char *first = chart->states[0], *last = chart->states[m->rows - 1];
    // A negative width would push the text to the left in printf.
    int apart = COLUMNS - (int)reef_cli_width(first) - (int)reef_cli_width(last);
    fprintf(out, "\n          %s%*s%s\n", first, apart > 0 ? apart : 0, "", last);
    fprintf(out, "from left to right:");
    for (size_t row = 0; row < m->rows; row++)
        fprintf(out, "%s %s", row ? "," : "", chart->states[row]);
    fprintf(out, "; * where several meet\n\n");
    print_legend(out, chart);
}

// ---- as SVG -------------------------------------------------------------------------------------

#define WIDTH 1000.0
#define HEIGHT 520.0
#define LEFT 70.0
#define RIGHT 210.0 // names at the ends of the lines
#define TOP 58.0
#define BOTTOM 92.0
#define SIZE 15.0
#define LABEL_GAP 19.0 // between two names at the right
#define MARK 5.5

// Okabe & Ito's colours, which are distinguishable with any colour vision; without yellow, too pale
// on white.
static const char *const COLOURS[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#56b4e9", "#e69f00", "#000000"};
static const char *const DASHES[] = {NULL, "8 4", "2 4", "10 3 2 3"};
#define COLOUR_COUNT (sizeof(COLOURS) / sizeof(COLOURS[0]))
#define DASH_COUNT (sizeof(DASHES) / sizeof(DASHES[0]))

static double page_x(const reef_metrics_matrix *m, size_t row) {
    double steps = m->rows > 1 ? (double)(m->rows - 1) : 1;
    return LEFT + (WIDTH - LEFT - RIGHT) * (double)row / steps;
}

static double page_y(const value_range *range, double value) {
    return TOP + (HEIGHT - TOP - BOTTOM) * depth(range, value);
}

// Circle, square, triangle, diamond, empty circle.
static void draw_mark(FILE *out, size_t column, double x, double y) {
    // Shape and colour differ together, so that the curves are distinguishable without colours too.
    const char *colour = COLOURS[column % COLOUR_COUNT];
    switch (column % 5) {
    case 0:
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", x, y, MARK,
                colour);
        break;
    case 1:
        reef_svg_rect(out, x - MARK, y - MARK, 2 * MARK, 2 * MARK, colour, NULL);
        break;
    case 2:
        // A triangle with its centre of gravity on the point.
        fprintf(out, "<path d=\"M%.1f %.1f l%.1f %.1f h%.1f z\" fill=\"%s\"/>\n", x, y - 1.2 * MARK,
                1.2 * MARK, 2.2 * MARK, -2.4 * MARK, colour);
        break;
    case 3:
        // A diamond, as high as it is wide.
        fprintf(out, "<path d=\"M%.1f %.1f l%.1f %.1f l%.1f %.1f l%.1f %.1f z\" fill=\"%s\"/>\n", x,
                y - 1.4 * MARK, 1.4 * MARK, 1.4 * MARK, -1.4 * MARK, 1.4 * MARK, -1.4 * MARK,
                -1.4 * MARK, colour);
        break;
    default:
        fprintf(out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" "
                "fill=\"#ffffff\" stroke=\"%s\" stroke-width=\"2.5\"/>\n",
                x, y, MARK - 1, colour);
    }
}

// Names below the axis: many neighbours alternate between two lines; if that is too close, every
// n-th is shown, among them the last.
static void draw_states(FILE *out, const reef_forgetting_chart *chart, double bottom) {
    const reef_metrics_matrix *m = &chart->matrix;
    // More than four names no longer fit beside one another on one line, and more than six only
    // when they are cut shorter.
    size_t most = m->rows > 6 ? 12 : 18, widest = 0, lines = m->rows > 4 ? 2 : 1;
    for (size_t row = 0; row < m->rows; row++) {
        size_t width = reef_cli_width(chart->states[row]);
        if (width > widest) widest = width < most ? width : most;
    }
    // Two lines give each name the width of two steps.
    double room = (double)lines * (page_x(m, 1) - page_x(m, 0));
    // How many names to pass over so that the longest still fits, one space added.
    size_t each = (size_t)ceil(SVG_CHARACTER * (double)(widest + 1) / room);
    for (size_t row = 0; row < m->rows; row++) {
        // Counted from the last state, because the present state must have its name.
        size_t from_last = m->rows - 1 - row;
        bool named = from_last % each == 0;
        double x = page_x(m, row), line = from_last / each % lines ? 20 : 0;
        // The tick is longer where the name is on the second line, so that the eye finds it.
        reef_svg_line(out, x, bottom, x, bottom + 6 + (named ? line : 0), SVG_PALE, 1, NULL);
        if (!named) continue;
        char *name = reef_cli_cut(chart->states[row], most);
        reef_svg_text(out, x, bottom + 24 + line, SIZE, "middle", SVG_INK, name);
        free(name);
    }
}

static void draw_axes(FILE *out, const reef_forgetting_chart *chart, const value_range *range) {
    const reef_metrics_matrix *m = &chart->matrix;
    double tick = reef_chart_tick(range->high, 6);
    char label[CLI_WORD_BYTES];
    // A little more than the range, as the last tick may miss it by a rounding error.
    for (int i = 0; i * tick <= range->high * 1.0001; i++) {
        double y = page_y(range, i * tick);
        snprintf(label, sizeof(label), "%g", i * tick);
        reef_svg_line(out, LEFT, y, WIDTH - RIGHT, y, SVG_GRID, 1, NULL);
        reef_svg_text(out, LEFT - 12, y + 5, SIZE, "end", SVG_INK, label);
    }
    double bottom = HEIGHT - BOTTOM;
    draw_states(out, chart, bottom);
    reef_svg_text(out, LEFT, 30, 18, "start", SVG_INK,
                  m->rising ? "Accuracy on each domain, in every state"
                            : "What each domain costs, in every state");
    reef_svg_text_upwards(out, LEFT - 48, (TOP + bottom) / 2, SIZE, chart->measure);
    char note[NOTE_BYTES];
    if (cut_off(range, note)) reef_svg_text(out, WIDTH - RIGHT, 30, SIZE, "end", SVG_PALE, note);
}

static void draw_domain(FILE *out,
                        const reef_forgetting_chart *chart,
                        const value_range *range,
                        size_t j) {
    const reef_metrics_matrix *m = &chart->matrix;
    const char *dashes = DASHES[j / COLOUR_COUNT % DASH_COUNT];
    fprintf(out, "<polyline points=\"");
    for (size_t row = 0; row < m->rows; row++)
        if (isfinite(reef_metrics_at(m, row, j)))
            fprintf(out, "%.1f,%.1f ", page_x(m, row), page_y(range, reef_metrics_at(m, row, j)));
    fprintf(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s%s%s/>\n",
            COLOURS[j % COLOUR_COUNT], dashes != NULL ? " stroke-dasharray=\"" : "",
            dashes != NULL ? dashes : "", dashes != NULL ? "\"" : "");
    for (size_t row = 0; row < m->rows; row++)
        if (isfinite(reef_metrics_at(m, row, j)))
            draw_mark(out, j, page_x(m, row), page_y(range, reef_metrics_at(m, row, j)));
}

typedef struct end_label {
    size_t column;
    double y; // where the line ends
} end_label;

static int by_height(const void *a, const void *b) {
    double left = ((const end_label *)a)->y, right = ((const end_label *)b)->y;
    return (left > right) - (left < right);
}

// Names beside the ends of the lines, moved apart where lines end close together.
static void draw_names(FILE *out, const reef_forgetting_chart *chart, const value_range *range) {
    const reef_metrics_matrix *m = &chart->matrix;
    end_label *labels = reef_cli_alloc(m->columns, sizeof(*labels));
    for (size_t j = 0; j < m->columns; j++) {
        double now = reef_metrics_at(m, m->rows - 1, j);
        labels[j] = (end_label){.column = j, .y = page_y(range, isfinite(now) ? now : range->low)};
    }
    qsort(labels, m->columns, sizeof(*labels), by_height);
    // Leave room below for the names that follow; then never closer than a line to the one before.
    double y = 0;
    for (size_t i = 0; i < m->columns; i++) {
        double last = HEIGHT - BOTTOM - LABEL_GAP * (double)(m->columns - 1 - i);
        double at = fmax(fmin(labels[i].y, last), y);
        y = at + LABEL_GAP;
        size_t j = labels[i].column;
        char *name = reef_cli_cut(chart->names[j], 13);
        char *text = reef_cli_format("%s  %.3f", name, reef_metrics_at(m, m->rows - 1, j));
        double x = WIDTH - RIGHT;
        reef_svg_line(out, x + 8, labels[i].y, x + 24, at, SVG_GRID, 1, NULL);
        draw_mark(out, j, x + 32, at);
        reef_svg_text(out, x + 44, at + 5, SIZE, "start", SVG_INK, text);
        free(text);
        free(name);
    }
    free(labels);
}

void reef_chart_forgetting_svg(FILE *out, const reef_forgetting_chart *chart) {
    value_range range = range_of(&chart->matrix);
    reef_svg_begin(out, WIDTH, HEIGHT);
    draw_axes(out, chart, &range);
    for (size_t j = 0; j < chart->matrix.columns; j++) draw_domain(out, chart, &range, j);
    draw_names(out, chart, &range);
    reef_svg_end(out);
}
