// See chart_gates.h.
#include "chart_gates.h"

#include "cli_format.h"
#include "svg.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define DECADES 4 // axes go from 0.01 % to 100 %; what is less lies on the edge
#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define LETTER_COUNT (sizeof(LETTERS) - 1)

// Share of an axis at which a rate lies: 0 for 1e-4 and less, 1 for all.
static double along(double rate) {
    return fmin(fmax(1 + log10(fmax(rate, 1e-9)) / DECADES, 0), 1);
}

static const char *const TICKS[DECADES + 1] = {"0.01", "0.1", "1", "10", "100"}; // percent

// ---- in the terminal ----------------------------------------------------------------------------

#define ROWS 17
#define COLUMNS 65

static void put_gates(char grid[ROWS][COLUMNS + 1], double leak, double missed, char letter) {
    size_t x = (size_t)lround(along(leak) * (COLUMNS - 1));
    size_t y = (size_t)lround((1 - along(missed)) * (ROWS - 1));
    char *cell = &grid[y][x];
    if (*cell == ' ' || isupper(letter)) *cell = letter;
}

void reef_chart_gates_print(FILE *out, const reef_gate_curve *curves, size_t count) {
    char grid[ROWS][COLUMNS + 1];
    for (size_t y = 0; y < ROWS; y++) {
        memset(grid[y], ' ', COLUMNS);
        grid[y][COLUMNS] = '\0';
    }
    for (size_t i = 0; i < count; i++) {
        // A gate that was stored without its curve is left out, not drawn as zero.
        if (!curves[i].known) continue;
        for (size_t p = 0; p < GATE_DET_POINTS; p++)
            put_gates(grid, curves[i].leak[p], curves[i].missed[p], LETTERS[i % LETTER_COUNT]);
    }
    // The gates' own thresholds are put in last, so that no other curve hides them.
    for (size_t i = 0; i < count; i++)
        // The same letter as its curve, as a capital.
        if (curves[i].known)
            put_gates(grid, curves[i].own_leak, curves[i].own_missed,
                      (char)toupper(LETTERS[i % LETTER_COUNT]));
    fprintf(out, "missed of its own, %%\n");
    for (size_t y = 0; y < ROWS; y++) {
        // A label for each power of ten; the rows between them have none.
        size_t step = (ROWS - 1) / DECADES;
        const char *label = y % step == 0 ? TICKS[DECADES - y / step] : "";
        fprintf(out, "%7s | %s\n", label, grid[y]);
    }
    fprintf(out, "        +");
    for (size_t x = 0; x <= COLUMNS; x++) fputc('-', out);
    // The labels below the axis have the width of one power of ten each.
    fprintf(out, "\n%14s", TICKS[0]);
    for (size_t d = 1; d <= DECADES; d++) fprintf(out, "%16s", TICKS[d]);
    fprintf(out, "\n%75s\n", "fired on older texts, %");
    // One entry per curve, as the letters alone do not name the generation.
    for (size_t i = 0; i < count; i++)
        if (curves[i].known)
            fprintf(out, "%s%c generation %u", i ? "  " : "", LETTERS[i % LETTER_COUNT],
                    curves[i].generation);
    fprintf(out, "; a capital is the gate's own threshold\n");
}

// ---- as SVG -------------------------------------------------------------------------------------

#define WIDTH 760.0
#define HEIGHT 560.0
#define LEFT 80.0
#define RIGHT 170.0
#define TOP 50.0
#define BOTTOM 70.0
#define SIZE 15.0

// Okabe & Ito's colours, which are distinguishable with any colour vision; without yellow, too pale
// on white.
static const char *const COLOURS[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#56b4e9", "#e69f00", "#000000"};
#define COLOUR_COUNT (sizeof(COLOURS) / sizeof(COLOURS[0]))

static double page_x(double leak) {
    return LEFT + (WIDTH - LEFT - RIGHT) * along(leak);
}

static double page_y(double missed) {
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - along(missed));
}

static void draw_axes(FILE *out) {
    for (int d = 0; d <= DECADES; d++) {
        // The same ticks on both axes, as both are rates from 0 to 1 on the same logarithmic scale.
        double rate = pow(10, d - DECADES);
        reef_svg_line(out, page_x(rate), page_y(0), page_x(rate), page_y(1), SVG_GRID, 1, NULL);
        reef_svg_line(out, page_x(0), page_y(rate), page_x(1), page_y(rate), SVG_GRID, 1, NULL);
        reef_svg_text(out, page_x(rate), HEIGHT - BOTTOM + 22, SIZE, "middle", SVG_INK, TICKS[d]);
        reef_svg_text(out, LEFT - 10, page_y(rate) + 5, SIZE, "end", SVG_INK, TICKS[d]);
    }
    reef_svg_text(out, page_x(0.01), HEIGHT - BOTTOM + 50, SIZE, "middle", SVG_INK,
                  "fired on older texts, %");
    reef_svg_text_upwards(out, 24, page_y(0.01), SIZE, "missed of its own, %");
    reef_svg_text(out, LEFT, TOP - 20, SIZE + 2, "start", SVG_INK,
                  "Gates: detection error trade-off, circles at their own thresholds");
}

static void draw_curve(FILE *out, const reef_gate_curve *curve, size_t number) {
    const char *colour = COLOURS[number % COLOUR_COUNT];
    char label[CLI_WORD_BYTES];
    // A point is joined to the one before it, so the loop begins at the second.
    for (size_t p = 1; p < GATE_DET_POINTS; p++)
        reef_svg_line(out, page_x(curve->leak[p - 1]), page_y(curve->missed[p - 1]),
                      page_x(curve->leak[p]), page_y(curve->missed[p]), colour, 2, NULL);
    // The circle is where the gate really works: at its own threshold.
    fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"6\" fill=\"%s\"/>\n", page_x(curve->own_leak),
            page_y(curve->own_missed), colour);
    // One line of the legend per generation, to the right of the drawing.
    double y = TOP + 20 * (double)number;
    snprintf(label, sizeof(label), "generation %u", curve->generation);
    reef_svg_line(out, WIDTH - RIGHT + 14, y, WIDTH - RIGHT + 34, y, colour, 3, NULL);
    reef_svg_text(out, WIDTH - RIGHT + 40, y + 5, SIZE, "start", SVG_INK, label);
}

void reef_chart_gates_svg(FILE *out, const reef_gate_curve *curves, size_t count) {
    reef_svg_begin(out, WIDTH, HEIGHT);
    draw_axes(out);
    for (size_t i = 0; i < count; i++)
        if (curves[i].known) draw_curve(out, &curves[i], i);
    reef_svg_end(out);
}
