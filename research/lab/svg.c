// See svg.h.
#include "svg.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// ---- shapes -------------------------------------------------------------------------------------
//
// The SVG that the charts need, and no more. Nothing here knows what is drawn.

#define SVG_INK "#222222"
#define SVG_PALE "#6b6b6b"
#define SVG_GRID "#e4e4e4"

#define TEXT_SIZE 15.0
#define TITLE_SIZE 18.0
#define LEFT_MARGIN 64.0
#define RIGHT_MARGIN 24.0
#define TOP_MARGIN 74.0 // title, legend and the names of generations
#define BOTTOM_MARGIN 56.0
#define LABEL_ROOM 112.0 // for "generation 99"
#define NUMBER_ROOM 28.0
#define SVG_CHARACTER 8.2 // width of one in text of size 15, rather more than less

void reef_svg_line(FILE *out,
                   double x1,
                   double y1,
                   double x2,
                   double y2,
                   const char *colour,
                   double width,
                   const char *dashes) {
    fprintf(
        out,
        "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\" stroke-width=\"%.2f\"",
        x1, y1, x2, y2, colour, width);
    if (dashes != NULL) fprintf(out, " stroke-dasharray=\"%s\"", dashes);
    fputs("/>\n", out);
}

static void put_rect(FILE *out,
                     double x,
                     double y,
                     double width,
                     double height,
                     const char *fill,
                     const char *stroke) {
    fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x, y,
            width, height, fill);
    if (stroke != NULL) fprintf(out, " stroke=\"%s\" stroke-width=\"2.5\"", stroke);
    fputs("/>\n", out);
}

// Made printable, as XML bears neither control characters nor what is not UTF-8; what it reserves
// as entities.
static void escape(FILE *out, const char *text) {
    char *printable = reef_cli_printable((const uint8_t *)text, strlen(text), false);
    for (const char *at = printable; *at; at++) {
        const char *entity = *at == '&'   ? "&amp;"
                             : *at == '<' ? "&lt;"
                             : *at == '>' ? "&gt;"
                             : *at == '"' ? "&quot;"
                                          : NULL;
        if (entity != NULL)
            fputs(entity, out);
        else
            fputc(*at, out);
    }
    free(printable);
}

void reef_svg_text(FILE *out,
                   double x,
                   double y,
                   double size,
                   const char *anchor,
                   const char *colour,
                   const char *text) {
    fprintf(out, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%.0f\" text-anchor=\"%s\" fill=\"%s\">",
            x, y, size, anchor, colour);
    escape(out, text);
    fputs("</text>\n", out);
}

static void put_text_upwards(FILE *out, double x, double y, double size, const char *text) {
    fprintf(out,
            "<text transform=\"translate(%.2f %.2f) rotate(-90)\" font-size=\"%.0f\" "
            "text-anchor=\"middle\" fill=\"" SVG_INK "\">",
            x, y, size);
    escape(out, text);
    fputs("</text>\n", out);
}

void reef_svg_sentence(FILE *out, double x, double y, const char *text) {
    reef_svg_text(out, x, y, 17, "start", SVG_PALE, text);
}

reef_status reef_svg_write(const char *path,
                           double width,
                           double height,
                           void (*draw)(FILE *out, const void *context),
                           const void *context,
                           reef_error *err) {
    reef_status status = reef_store_check_output(path, err);
    if (status != REEF_OK) return status;
    FILE *out = fopen(path, "w");
    if (out == NULL) return reef_cli_write_failed(path, errno, err);
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
        width, height, width, height);
    draw(out, context);
    fputs("</svg>\n", out);
    bool failed = ferror(out) != 0;
    failed |= fclose(out) != 0;
    return failed ? reef_cli_write_failed(path, errno, err) : REEF_OK;
}

// ---- loss over the stream -----------------------------------------------------------------------

#define PATH_POINTS_MAX 3000 // more would not be seen
// a guess among all bytes costs 8; the first batches of unknown bytes 30
#define BITS_SHOWN_MAX 10.0
#define RAW_COLOUR "#a9c6e3"
#define SMOOTH_COLOUR "#1d5fa3"
#define FOUND_COLOUR "#c8402f"
#define TRUTH_COLOUR "#222222"

// From data to the page.
typedef struct axes {
    double left, top, width, height; // of the plot itself
    double x_max, y_max;             // bytes; loss. Both begin at 0
    double peak;                     // the highest loss; above y_max it is cut off
    const char *title;               // of the loss
} axes;

static double page_x(const axes *a, double bytes) {
    return a->left + a->width * bytes / a->x_max;
}

static double page_y(const axes *a, double bits) {
    return a->top + a->height * (1 - (bits < a->y_max ? bits : a->y_max) / a->y_max);
}

static axes fit_axes(const reef_loss_chart *chart, reef_chart_box box) {
    axes a = {.left = box.x + LEFT_MARGIN,
              .top = box.y + TOP_MARGIN,
              .width = box.width - LEFT_MARGIN - RIGHT_MARGIN,
              .height = box.height - TOP_MARGIN - BOTTOM_MARGIN,
              // Both axes begin at 1, so that an empty chart has no range of zero.
              .x_max = 1,
              .y_max = 1,
              .title = "loss (bits per byte)"};
    for (size_t i = 0; i < chart->count; i++) {
        a.x_max = fmax(a.x_max, (double)chart->points[i].stream_bytes);
        a.y_max = fmax(a.y_max, (double)chart->points[i].bits_per_byte);
    }
    a.peak = a.y_max;
    // The first batches of an untrained model cost 8 bits and more; shown whole, they would press
    // the rest of the curve flat.
    a.y_max = fmin(a.y_max, BITS_SHOWN_MAX);
    // Up to a whole tick, so that the topmost grid line is also the upper edge.
    double tick = reef_chart_tick(a.y_max, 6);
    a.y_max = tick * ceil(a.y_max / tick);
    return a;
}

// What the axis of the stream is counted in, in thousands or millions where that gives short
// numbers.
static double name_unit(const reef_loss_chart *chart, double x_max, char out[CLI_WORD_BYTES]) {
    double count = x_max;
    size_t thousands = count >= 1e6 ? 2 : count >= 1e3 ? 1 : 0;
    static const char *const BYTES[] = {"bytes", "kB", "MB"}, *const MANY[] = {"", "thousands of ",
                                                                               "millions of "};
    if (strcmp(chart->unit, "byte") == 0)
        snprintf(out, CLI_WORD_BYTES, "%s", BYTES[thousands]);
    else
        snprintf(out, CLI_WORD_BYTES, "%s%ss", MANY[thousands], chart->unit);
    return pow(1000, (double)thousands);
}

static void draw_axes(FILE *out, const axes *a, const reef_loss_chart *chart) {
    char label[CLI_WORD_BYTES], units[CLI_WORD_BYTES];
    // Bytes are shown as kB, MB or GB, whichever gives numbers of one to three digits.
    double unit = name_unit(chart, a->x_max, units);
    double x_tick = reef_chart_tick(a->x_max / unit, 8), y_tick = reef_chart_tick(a->y_max, 6);
    // Half a tick more than the range, as the last line may miss it by a rounding error.
    for (int i = 0; i * y_tick <= a->y_max + y_tick / 2; i++) {
        double bits = i * y_tick;
        snprintf(label, sizeof(label), "%g", bits);
        reef_svg_line(out, a->left, page_y(a, bits), a->left + a->width, page_y(a, bits), SVG_GRID,
                      1, NULL);
        reef_svg_text(out, a->left - 10, page_y(a, bits) + 5, TEXT_SIZE, "end", SVG_INK, label);
    }
    for (int i = 0; i * x_tick * unit <= a->x_max * 1.0001; i++) {
        double at = i * x_tick;
        double x = page_x(a, at * unit);
        snprintf(label, sizeof(label), "%g", at);
        reef_svg_line(out, x, a->top + a->height, x, a->top + a->height + 6, SVG_PALE, 1, NULL);
        reef_svg_text(out, x, a->top + a->height + 23, TEXT_SIZE, "middle", SVG_INK, label);
    }
    char *title = reef_cli_format("position in the stream (%s)", units);
    reef_svg_text(out, a->left + a->width / 2, a->top + a->height + 48, TEXT_SIZE, "middle",
                  SVG_INK, title);
    free(title);
    put_text_upwards(out, a->left - 46, a->top + a->height / 2, TEXT_SIZE, a->title);
    if (a->peak <= a->y_max) return;
    char note[512];
    snprintf(note, sizeof(note), "cut off at %g; the highest is %.1f", a->y_max, a->peak);
    reef_svg_text(out, a->left + a->width, a->top - 56, TEXT_SIZE, "end", SVG_PALE, note);
}

static void draw_curve(FILE *out,
                       const axes *a,
                       const reef_loss_chart *chart,
                       const double *bits,
                       const char *colour,
                       double width) {
    // At most so many points as the drawing has room for: a path of a million points takes a
    // browser seconds.
    size_t stride = (chart->count + PATH_POINTS_MAX - 1) / PATH_POINTS_MAX;
    fputs("<polyline points=\"", out);
    for (size_t i = 0; i < chart->count; i += stride) {
        double value = bits != NULL ? bits[i] : (double)chart->points[i].bits_per_byte;
        // NaN ends up as text in the path, which browsers then drop as a whole.
        if (!isfinite(value)) continue;
        fprintf(out, "%.1f,%.1f ", page_x(a, (double)chart->points[i].stream_bytes),
                page_y(a, value));
    }
    fprintf(out,
            "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-linejoin=\"round\"/>\n",
            colour, width);
}

// The middle of a label over a boundary, that keeps within the picture.
static double label_x(const axes *a, const reef_loss_chart *chart, size_t i, double room) {
    double edge = a->left + a->width + RIGHT_MARGIN;
    return fmin(page_x(a, (double)chart->found[i]), edge - room / 2);
}

// Whether there is room for the word beside each number.
static bool labels_fit(const axes *a, const reef_loss_chart *chart) {
    for (size_t i = 1; i < chart->found_count; i++)
        if (label_x(a, chart, i, LABEL_ROOM) - label_x(a, chart, i - 1, LABEL_ROOM) < LABEL_ROOM)
            return false;
    return true;
}

static void draw_boundaries(FILE *out,
                            const axes *a,
                            const reef_loss_chart *chart,
                            const uint64_t *truth,
                            size_t truth_count) {
    // Names where there is room, else numbers only: overlapping labels cannot be read.
    bool fit = labels_fit(a, chart);
    double bottom = a->top + a->height, room = fit ? LABEL_ROOM : NUMBER_ROOM, labelled = -INFINITY;
    for (size_t i = 0; i < chart->found_count; i++) {
        double x = page_x(a, (double)chart->found[i]), middle = label_x(a, chart, i, room);
        char label[CLI_WORD_BYTES];
        reef_svg_line(out, x, a->top - 8, x, bottom, FOUND_COLOUR, 2.5, NULL);
        if (middle - labelled < room) continue; // the next number would lie on this one
        snprintf(label, sizeof(label), "%s%zu", fit ? "generation " : "", i + 1);
        reef_svg_text(out, middle, a->top - 14, TEXT_SIZE, "middle", FOUND_COLOUR, label);
        labelled = middle;
    }
    // Dashed and on top: where both fall together, both are seen.
    for (size_t i = 0; i < truth_count; i++) {
        double x = page_x(a, (double)truth[i]);
        reef_svg_line(out, x, a->top, x, bottom + 6, TRUTH_COLOUR, 2, "7 9");
    }
}

static void draw_legend(FILE *out,
                        const axes *a,
                        const reef_loss_chart *chart,
                        size_t truth_count) {
    const struct {
        const char *colour, *dashes, *text;
        double width;
        bool shown;
    } items[] = {
        {RAW_COLOUR, NULL, "each batch", 1.5, true},
        {SMOOTH_COLOUR, NULL, "running median", 3, true},
        {FOUND_COLOUR, NULL,
         labels_fit(a, chart) ? "boundary found" : "boundary found (number: generation)", 2.5,
         chart->found_count > 0},
        {TRUTH_COLOUR, "7 9", "true boundary", 2, truth_count > 0},
    };
    double x = a->left, y = a->top - 40;
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        if (!items[i].shown) continue;
        reef_svg_line(out, x, y, x + 32, y, items[i].colour, items[i].width, items[i].dashes);
        reef_svg_text(out, x + 40, y + 5, TEXT_SIZE, "start", SVG_INK, items[i].text);
        x += 70 + SVG_CHARACTER * (double)reef_cli_width(items[i].text);
    }
}

void reef_chart_loss_svg(FILE *out,
                         const reef_loss_chart *chart,
                         const uint64_t *truth,
                         size_t truth_count,
                         reef_chart_box box) {
    axes a = fit_axes(chart, box);
    double *smooth = reef_chart_smooth(chart->points, chart->count);
    reef_svg_text(out, a.left, box.y + 18, TITLE_SIZE, "start", SVG_INK,
                  "Loss over the stream, before each batch is trained on");
    draw_axes(out, &a, chart);
    draw_curve(out, &a, chart, NULL, RAW_COLOUR, 1);
    draw_curve(out, &a, chart, smooth, SMOOTH_COLOUR, 2.5);
    draw_boundaries(out, &a, chart, truth, truth_count);
    draw_legend(out, &a, chart, truth_count);
    free(smooth);
}

// ---- the matrix ---------------------------------------------------------------------------------

#define ROW_NAME_WIDTH 110.0
#define HEAD_HEIGHT 74.0

// Where a number lies between the lowest and the highest of the table. Logarithmic: a text that an
// old state has never seen may cost ten times the rest, and would leave no colours for them.
static double cell_share(double bits, double low, double high) {
    return !isnan(bits) && low > 0 && high > low ? log(bits / low) / log(high / low) : 0;
}

// From pale to deep blue.
static void cell_colour(double share, char out[8]) {
    const double low[3] = {237, 244, 251}, high[3] = {22, 67, 120};
    int mixed[3];
    for (int c = 0; c < 3; c++) mixed[c] = (int)(low[c] + (high[c] - low[c]) * share + 0.5);
    snprintf(out, 8, "#%02x%02x%02x", mixed[0] & 255, mixed[1] & 255, mixed[2] & 255);
}

static void draw_cell(FILE *out, reef_chart_box cell, double bits, double share, bool own) {
    char colour[8], text[CLI_WORD_BYTES] = "-"; // of a state that is gone
    cell_colour(share, colour);
    if (!isnan(bits)) snprintf(text, sizeof(text), "%.3f", bits);
    double inset = own ? 3 : 1;
    put_rect(out, cell.x + inset, cell.y + inset, cell.width - 2 * inset, cell.height - 2 * inset,
             colour, own ? FOUND_COLOUR : NULL);
    reef_svg_text(out, cell.x + cell.width / 2, cell.y + cell.height / 2 + 6, TEXT_SIZE + 2,
                  "middle", share > 0.45 ? "#ffffff" : SVG_INK, text);
}

void reef_chart_matrix_svg(FILE *out,
                           const reef_matrix *matrix,
                           const char *const *names,
                           reef_chart_box box) {
    // The range of colours is that of the whole matrix, so that cells of different rows compare.
    double low = reef_matrix_at(matrix, 0, 0), high = low;
    for (size_t i = 0; i < matrix->rows * matrix->columns; i++) {
        low = fmin(low, matrix->bits[i]);
        high = fmax(high, matrix->bits[i]);
    }
    reef_svg_text(out, box.x + LEFT_MARGIN, box.y + 18, TITLE_SIZE, "start", SVG_INK,
                  "Bits per byte on held-out text, by state of the model");
    reef_svg_text(out, box.x + LEFT_MARGIN, box.y + 42, TEXT_SIZE, "start", SVG_PALE,
                  "outlined: the generation in which the domain was learned; "
                  "below it, anything above its number is forgotten");
    double left = box.x + LEFT_MARGIN + ROW_NAME_WIDTH, top = box.y + HEAD_HEIGHT;
    double width =
        (box.width - LEFT_MARGIN - ROW_NAME_WIDTH - RIGHT_MARGIN) / (double)matrix->columns;
    double height = (box.height - HEAD_HEIGHT) / (double)matrix->rows;
    for (size_t j = 0; j < matrix->columns; j++) {
        // Cut to the width of a column: names of kinds can be long.
        char *name = reef_cli_cut(names[j], (size_t)(width / SVG_CHARACTER));
        reef_svg_text(out, left + width * ((double)j + 0.5), top - 8, TEXT_SIZE, "middle", SVG_INK,
                      name);
        free(name);
    }
    for (size_t row = 0; row < matrix->rows; row++) {
        char name[CLI_WORD_BYTES];
        double y = top + height * (double)row;
        reef_svg_text(out, left - 12, y + height / 2 + 5, TEXT_SIZE, "end", SVG_INK,
                      reef_matrix_row_name(matrix, row, name));
        for (size_t j = 0; j < matrix->columns; j++) {
            double bits = reef_matrix_at(matrix, row, j);
            reef_chart_box cell = {left + width * (double)j, y, width, height};
            // The cell of a domain's own generation is framed: the diagonal is what the reader
            // looks for.
            draw_cell(out, cell, bits, cell_share(bits, low, high), matrix->learned[j] == row);
        }
    }
}
