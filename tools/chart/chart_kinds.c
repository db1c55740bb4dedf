// See chart_kinds.h.
#include "chart_kinds.h"
#include "cli_alloc.h"
#include "cli_format.h"
#include "svg.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS 64   // of the terminal
#define BINS_SVG 300 // of the picture
#define WIDTH 900.0
#define LEFT 200.0
#define LABEL_COLUMNS 14
#define RIGHT 30.0
#define TOP 50.0
#define ROW 22.0
#define GAP 70.0 // from one text's last row to the next one's first
#define SIZE 15.0

// Okabe & Ito's colours, as in the other pictures.
static const char *const COLOURS[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#56b4e9", "#e69f00", "#000000"};
#define COLOUR_COUNT (sizeof(COLOURS) / sizeof(COLOURS[0]))

static int most_first(const void *a, const void *b) {
    const reef_kinds_row *x = a, *y = b;
    if (x->parts != y->parts) return x->parts < y->parts ? 1 : -1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

size_t reef_kinds_rows(const reef_kinds_text *text, reef_kinds_row *rows) {
    uint32_t last = 0;
    size_t count = 0;
    for (size_t i = 0; i < text->count; i++)
        if (text->answered[i] != REEF_KIND_NONE && text->answered[i] > last)
            last = text->answered[i];
    reef_kinds_row *all = reef_cli_alloc((size_t)last + 1, sizeof(*all));
    for (uint32_t k = 0; k <= last; k++) all[k].kind = k;
    for (size_t i = 0; i < text->count; i++)
        if (text->answered[i] != REEF_KIND_NONE) all[text->answered[i]].parts++;
    qsort(all, (size_t)last + 1, sizeof(*all), most_first);
    while (count <= last && count < REEF_KINDS_ROWS_MAX && all[count].parts > 0) {
        rows[count] = all[count];
        count++;
    }
    free(all);
    return count;
}

// Share of a part of the text that a kind answered.
static double share_of(const reef_kinds_text *text, uint32_t kind, size_t bin, size_t bins) {
    size_t from = text->count * bin / bins, to = text->count * (bin + 1) / bins, own = 0;
    for (size_t i = from; i < to; i++) own += text->answered[i] == kind;
    return to > from ? (double)own / (double)(to - from) : 0.0;
}

static double percent_of(const reef_kinds_text *text, const reef_kinds_row *row) {
    return 100.0 * (double)row->parts / (double)text->count;
}

static const char *label_of(const reef_kinds_text *text,
                            uint32_t kind,
                            char out[REEF_NAME_BYTES_MAX + 1]) {
    const char *name = reef_kind_list_name(text->kinds, kind);
    if (name[0] != '\0')
        snprintf(out, REEF_NAME_BYTES_MAX + 1, "%s", name);
    else
        snprintf(out, REEF_NAME_BYTES_MAX + 1, "kind %u", kind);
    return out;
}

void reef_chart_kinds_print(FILE *out, const reef_kinds_text *text) {
    static const char *const LEVELS[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    reef_kinds_row rows[REEF_KINDS_ROWS_MAX];
    char words[CLI_WORD_BYTES];
    size_t count = reef_kinds_rows(text, rows);
    size_t columns = text->count < COLUMNS ? text->count : COLUMNS, wide = 0;
    char label[REEF_NAME_BYTES_MAX + 1];
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(label_of(text, rows[i].kind, label));
        if (length > wide) wide = length;
    }
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%-*s  %6.2f %%  ", (int)wide, label_of(text, rows[i].kind, label),
                percent_of(text, &rows[i]));
        for (size_t c = 0; c < columns; c++) {
            double share = share_of(text, rows[i].kind, c, columns);
            // What is there at all can be seen.
            size_t level = share > 0.0 && share < 0.125 ? 1 : (size_t)(share * 8);
            fputs(LEVELS[level], out);
        }
        fputc('\n', out);
    }
    fprintf(out, "%*s0%*s bytes\n", (int)wide + 12, "", (int)columns - 1,
            reef_cli_count(text->bytes, words));
}

// ---- as SVG -------------------------------------------------------------------------------------

static void draw_row(FILE *out, const reef_kinds_text *text, const reef_kinds_row *row, double y) {
    char name[REEF_NAME_BYTES_MAX + 1], label[REEF_NAME_BYTES_MAX + CLI_WORD_BYTES];
    const double width = (WIDTH - LEFT - RIGHT) / BINS_SVG;
    // What is longer than the margin is cut.
    char *cut = reef_cli_cut(label_of(text, row->kind, name), LABEL_COLUMNS);
    snprintf(label, sizeof(label), "%s, %.2f %%", cut, percent_of(text, row));
    free(cut);
    reef_svg_text(out, LEFT - 10, y + ROW - 6, SIZE, "end", SVG_INK, label);
    reef_svg_line(out, LEFT, y + ROW, WIDTH - RIGHT, y + ROW, SVG_GRID, 1, NULL);
    for (size_t b = 0; b < BINS_SVG; b++) {
        double height = (ROW - 3) * share_of(text, row->kind, b, BINS_SVG);
        if (height > 0.0)
            reef_svg_rect(out, LEFT + width * (double)b, y + ROW - height, width + 0.2, height,
                          COLOURS[row->kind % COLOUR_COUNT], NULL);
    }
}

// From `y` on; returns where it ends.
static double draw_text(FILE *out, const reef_kinds_text *text, double y) {
    reef_kinds_row rows[REEF_KINDS_ROWS_MAX];
    char words[CLI_WORD_BYTES], label[2 * CLI_WORD_BYTES];
    size_t count = reef_kinds_rows(text, rows);
    reef_svg_text(out, LEFT, y - 10, SIZE + 2, "start", SVG_INK, text->name);
    for (size_t i = 0; i < count; i++, y += ROW) draw_row(out, text, &rows[i], y);
    reef_svg_text(out, LEFT, y + 20, SIZE, "start", SVG_INK, "0");
    snprintf(label, sizeof(label), "%s bytes", reef_cli_count(text->bytes, words));
    reef_svg_text(out, WIDTH - RIGHT, y + 20, SIZE, "end", SVG_INK, label);
    return y;
}

void reef_chart_kinds_svg(FILE *out, const reef_kinds_text *texts, size_t count) {
    double height = TOP, y = TOP;
    reef_kinds_row rows[REEF_KINDS_ROWS_MAX];
    for (size_t i = 0; i < count; i++)
        height += ROW * (double)reef_kinds_rows(&texts[i], rows) + GAP;
    reef_svg_begin(out, WIDTH, height - GAP + 40);
    for (size_t i = 0; i < count; i++) y = draw_text(out, &texts[i], y) + GAP;
    reef_svg_end(out);
}
