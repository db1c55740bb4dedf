// See lab_stream.h: curves as text and as SVG. What is frozen lies far above the rest, where
// differences of the rest could not be seen: it has a panel of its own.
#include "lab_stream.h"
#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *rival, *field, *colour, *dashes;
    char letter;
} CURVES[] = {
    {"adapting", "", "held_out_bits_per_byte", "#1d5fa3", NULL, 'o'},
    {"zpaq", "zpaq", "held_out_bits_per_byte", "#3a7d44", "7 6", 'z'},
    {"ppmd", "ppmd", "held_out_bits_per_byte", "#8a5fb0", "7 6", 'p'},
    {"xz", "xz", "held_out_bits_per_byte", "#b07a1e", "7 6", 'x'},
    {"frozen", "", "frozen_bits_per_byte", "#c8402f", NULL, 'f'},
};
#define CURVE_COUNT (sizeof(CURVES) / sizeof(CURVES[0]))
#define PANEL_COUNT 2

// The next point of a curve, from row *i on; false: there is none.
static bool next(const json_t *rows, size_t curve, size_t *i, double *bytes, double *bits) {
    const json_t *row;
    while ((row = json_array_get(rows, (*i)++)) != NULL) {
        if (strcmp(reef_cli_text_of(row, "rival"), CURVES[curve].rival) != 0) continue;
        *bytes = reef_cli_real_of(row, "bytes");
        *bits = reef_cli_real_of(row, CURVES[curve].field);
        return true;
    }
    return false;
}

static const struct {
    const char *title;
    size_t first, end; // of CURVES
} PANELS[PANEL_COUNT] = {{"adapting", 0, CURVE_COUNT - 1},
                         {"frozen", CURVE_COUNT - 1, CURVE_COUNT}};

typedef struct range {
    double log_min, log_max, bits_min, bits_max, tick;
} range;

// Bytes are those of all panels.
static range fit(const json_t *rows, size_t panel, int ticks) {
    range r = {.log_min = INFINITY, .log_max = -INFINITY, .bits_min = INFINITY, .bits_max = 0};
    double bytes, bits;
    for (size_t c = 0; c < CURVE_COUNT; c++)
        for (size_t i = 0; next(rows, c, &i, &bytes, &bits);) {
            r.log_min = fmin(r.log_min, log(bytes));
            r.log_max = fmax(r.log_max, log(bytes));
            if (c < PANELS[panel].first || c >= PANELS[panel].end) continue;
            r.bits_min = fmin(r.bits_min, bits);
            r.bits_max = fmax(r.bits_max, bits);
        }
    r.tick = reef_chart_tick(r.bits_max - r.bits_min, ticks);
    r.bits_min = r.tick * floor(r.bits_min / r.tick);
    r.bits_max = r.tick * ceil(r.bits_max / r.tick);
    // A single point, or bits that are all one number, have a range too.
    if (!(r.log_max > r.log_min)) r.log_max = r.log_min + 1;
    if (!(r.bits_max > r.bits_min)) r.bits_max = r.bits_min + r.tick;
    return r;
}

static double share_x(const range *r, double bytes) {
    return (log(bytes) - r->log_min) / (r->log_max - r->log_min);
}

static double share_y(const range *r, double bits) {
    return (r->bits_max - bits) / (r->bits_max - r->bits_min);
}

// ---- text ---------------------------------------------------------------------------------------

#define COLUMNS 64
#define ROWS 13

static void print_panel(const json_t *rows, size_t panel) {
    char cells[ROWS][COLUMNS + 1], left[CLI_WORD_BYTES], right[CLI_WORD_BYTES];
    const range r = fit(rows, panel, 4);
    memset(cells, ' ', sizeof(cells));
    printf("\nbits per byte, held out:");
    for (size_t c = PANELS[panel].first; c < PANELS[panel].end; c++) {
        double bytes, bits;
        size_t i = 0, count = 0;
        for (; next(rows, c, &i, &bytes, &bits); count++) {
            char *cell = &cells[lround((ROWS - 1) * share_y(&r, bits))]
                               [lround((COLUMNS - 1) * share_x(&r, bytes))];
            if (*cell == ' ') *cell = CURVES[c].letter; // the first stays on top
        }
        if (count > 0) printf("  %c %s", CURVES[c].letter, CURVES[c].name);
    }
    printf("\n");
    for (int row = 0; row < ROWS; row++) {
        double bits = r.bits_max - (r.bits_max - r.bits_min) * row / (ROWS - 1);
        char *label = row % 4 == 0 ? reef_cli_format("%.3f", bits) : NULL;
        printf("%8s | %.*s\n", label != NULL ? label : "", COLUMNS, cells[row]);
        free(label);
    }
    reef_cli_bytes((uint64_t)llround(exp(r.log_min)), left);
    reef_cli_bytes((uint64_t)llround(exp(r.log_max)), right);
    printf("           %s%*s\n", left, COLUMNS - (int)strlen(left), right);
}

void reef_lab_curves_print(const json_t *rows) {
    for (size_t panel = 0; panel < PANEL_COUNT; panel++) print_panel(rows, panel);
}

// ---- SVG ----------------------------------------------------------------------------------------

#define PAGE_WIDTH 900.0
#define PANEL_HEIGHT 420.0
#define LEFT 76.0
#define RIGHT 44.0
#define TOP 84.0
#define BOTTOM 64.0
#define TEXT_SIZE 15.0
#define LABEL_ROOM 70.0
#define INK "#222222"
#define GRID "#e4e4e4"

typedef struct page {
    const char *title;
    const json_t *rows;
    // Of the panel that is being drawn:
    range range;
    double top, bottom;
} page;

static double page_x(const page *p, double bytes) {
    return LEFT + (PAGE_WIDTH - LEFT - RIGHT) * share_x(&p->range, bytes);
}

static double page_y(const page *p, double bits) {
    return p->top + (p->bottom - p->top) * share_y(&p->range, bits);
}

static void draw_axes(FILE *out, const page *p) {
    const range *r = &p->range;
    const double bottom = p->bottom;
    char label[CLI_WORD_BYTES];
    for (int i = 0; r->bits_min + i * r->tick <= r->bits_max + r->tick / 2; i++) {
        double value = r->bits_min + i * r->tick, y = page_y(p, value);
        snprintf(label, sizeof(label), "%g", value);
        reef_svg_line(out, LEFT, y, PAGE_WIDTH - RIGHT, y, GRID, 1, NULL);
        reef_svg_text(out, LEFT - 10, y + 5, TEXT_SIZE, "end", INK, label);
    }
    // Ticks are where it was measured; a label that would lie on the one before is left out.
    double labelled = -INFINITY, bytes, bits;
    for (size_t i = 0; next(p->rows, 0, &i, &bytes, &bits);) {
        double x = page_x(p, bytes);
        reef_svg_line(out, x, bottom, x, bottom + 6, INK, 1, NULL);
        if (x - labelled < LABEL_ROOM) continue;
        reef_svg_text(out, x, bottom + 23, TEXT_SIZE, "middle", INK,
                      reef_cli_bytes((uint64_t)bytes, label));
        labelled = x;
    }
    reef_svg_text(out, PAGE_WIDTH / 2, bottom + 50, TEXT_SIZE, "middle", INK, "bytes learned");
}

static void draw_curve(FILE *out, const page *p, size_t c, double *legend) {
    double x_before = NAN, y_before = NAN, bytes, bits;
    for (size_t i = 0; next(p->rows, c, &i, &bytes, &bits);) {
        double x = page_x(p, bytes), y = page_y(p, bits);
        fprintf(out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"4\" fill=\"%s\"/>\n", x, y,
                CURVES[c].colour);
        if (!isnan(x_before))
            reef_svg_line(out, x_before, y_before, x, y, CURVES[c].colour, 2.5, CURVES[c].dashes);
        x_before = x;
        y_before = y;
    }
    if (isnan(x_before)) return;
    double y = p->top - 28;
    reef_svg_line(out, *legend, y, *legend + 32, y, CURVES[c].colour, 2.5, CURVES[c].dashes);
    reef_svg_text(out, *legend + 40, y + 5, TEXT_SIZE, "start", INK, CURVES[c].name);
    *legend += 70 + 8.2 * (double)strlen(CURVES[c].name);
}

static void draw_page(FILE *out, const void *context) {
    page p = *(const page *)context;
    for (size_t panel = 0; panel < PANEL_COUNT; panel++) {
        double legend = LEFT;
        p.range = fit(p.rows, panel, 6);
        p.top = PANEL_HEIGHT * (double)panel + TOP;
        p.bottom = PANEL_HEIGHT * (double)(panel + 1) - BOTTOM;
        char *title = reef_cli_format("%s, %s", p.title, PANELS[panel].title);
        reef_svg_text(out, LEFT, p.top - 56, 18, "start", INK, title);
        free(title);
        draw_axes(out, &p);
        for (size_t c = PANELS[panel].first; c < PANELS[panel].end; c++)
            draw_curve(out, &p, c, &legend);
    }
}

reef_status reef_lab_curves_svg(const char *path,
                                const char *title,
                                const json_t *rows,
                                reef_error *err) {
    return reef_svg_write(path, PAGE_WIDTH, PANEL_HEIGHT * (double)PANEL_COUNT, draw_page,
                          &(page){.title = title, .rows = rows}, err);
}
