// See chart.h.
#include "chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SMOOTH_RADIUS 7 // points on either side of the median

double reef_chart_tick(double range, int ticks) {
    if (!(range > 0)) return 1;
    double raw = range / ticks, power = pow(10, floor(log10(raw))), lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double *reef_chart_smooth(const reef_point *points, size_t count) {
    double *smooth = reef_cli_alloc(count, sizeof(*smooth));
    for (size_t i = 0; i < count; i++) {
        // The neighbourhood shrinks towards the ends, so that the curve begins where the data
        // begin.
        size_t radius = i < count - 1 - i ? i : count - 1 - i;
        if (radius > SMOOTH_RADIUS) radius = SMOOTH_RADIUS;
        double near[2 * SMOOTH_RADIUS + 1];
        // A median, not a mean: one batch with a very high loss must not draw a hill of its own
        // width.
        for (size_t k = 0; k <= 2 * radius; k++)
            near[k] = (double)points[i - radius + k].bits_per_byte;
        qsort(near, 2 * radius + 1, sizeof(near[0]), by_value);
        smooth[i] = near[radius];
    }
    return smooth;
}

uint64_t *reef_chart_boundaries(const reef_cli_pool *pool, size_t *count) {
    *count = pool->generation_count - 1;
    uint64_t *positions = reef_cli_alloc(*count, sizeof(*positions));
    for (size_t g = 1; g < pool->generation_count; g++)
        positions[g - 1] = pool->generations[g].opened_at;
    return positions;
}

json_t *reef_chart_offsets_json(const uint64_t *offsets, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer((json_int_t)offsets[i]));
    return array;
}

// ---- loss over the stream -----------------------------------------------------------------------
//
// In the dots of braille patterns (U+2800): 2 x 4 dots a character.

#define COLUMNS 72
#define ROWS 16
#define DOTS_X (2 * COLUMNS)
#define DOTS_Y (4 * ROWS)

static void set_dot(uint8_t cells[ROWS][COLUMNS], int x, int y) {
    // Bits of the pattern: 1 2 3 7 down the left column, 4 5 6 8 down the right one.
    static const uint8_t BITS[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || x >= DOTS_X || y < 0 || y >= DOTS_Y) return;
    cells[y / 4][x / 2] |= BITS[y % 4][x % 2];
}

static int dot_x(double share) {
    return (int)(share * (DOTS_X - 1) + 0.5);
}

// Every column of dots shows the mean of the losses that fall into it, joined to the one before.
static void draw_curve(uint8_t cells[ROWS][COLUMNS],
                       const reef_loss_chart *chart,
                       const double *bits,
                       double x_max,
                       double y_max) {
    int before = -1;
    for (int x = 0, i = 0; x < DOTS_X; x++) {
        double sum = 0;
        int count = 0;
        while ((size_t)i < chart->count &&
               dot_x((double)chart->points[i].stream_bytes / x_max) <= x) {
            // NaN stands for a batch without a loss and does not count.
            if (isfinite(bits[i])) {
                sum += bits[i];
                count++;
            }
            i++;
        }
        if (count == 0) continue;
        int y = (int)((1 - sum / count / y_max) * (DOTS_Y - 1) + 0.5);
        // The vertical part of the line, from the height of the previous column to this one's.
        int from = before < 0 ? y : before;
        for (int step = from; step != y; step += step < y ? 1 : -1) set_dot(cells, x, step);
        set_dot(cells, x, y);
        before = y;
    }
}

static void print_row(FILE *out, const uint8_t row[COLUMNS]) {
    for (int c = 0; c < COLUMNS; c++) {
        unsigned code = 0x2800u + row[c];
        if (row[c] == 0)
            fputc(' ', out);
        else
            fprintf(out, "%c%c%c", (int)(0xe0 | code >> 12), (int)(0x80 | (code >> 6 & 0x3f)),
                    (int)(0x80 | (code & 0x3f)));
    }
    fputc('\n', out);
}

// The loss at a round number, in the row nearest to it, and a piece of the axis.
static void print_label(FILE *out, int row, double y_max) {
    double tick = reef_chart_tick(y_max, 4), row_bits = y_max / (ROWS - 1);
    double bits = tick * round(y_max * (1 - (double)row / (ROWS - 1)) / tick);
    if (abs((int)lround((y_max - bits) / row_bits) - row) == 0)
        fprintf(out, "%5g \xe2\x94\xa4", bits); // an axis with a tick
    else
        fprintf(out, "%5s \xe2\x94\x82", "");
}

// Marks below the axis: where generations were opened.
static void print_marks(FILE *out, const reef_loss_chart *chart, double x_max) {
    char marks[COLUMNS + 1];
    memset(marks, ' ', COLUMNS);
    marks[COLUMNS] = '\0';
    for (size_t i = 0; i < chart->found_count; i++) {
        int column = dot_x((double)chart->found[i] / x_max) / 2;
        if (column < COLUMNS) marks[column] = '^';
    }
    if (chart->found_count > 0) fprintf(out, "       %s  ^ a generation opens\n", marks);
}

void reef_chart_loss_print(FILE *out, const reef_loss_chart *chart) {
    uint8_t cells[ROWS][COLUMNS] = {{0}};
    double x_max = 1, y_max = 1;
    // The running median: the raw losses would fill the whole drawing.
    double *smooth = reef_chart_smooth(chart->points, chart->count);
    for (size_t i = 0; i < chart->count; i++) {
        x_max = fmax(x_max, (double)chart->points[i].stream_bytes);
        if (isfinite(smooth[i])) y_max = fmax(y_max, smooth[i]);
    }
    y_max = ceil(y_max);
    draw_curve(cells, chart, smooth, x_max, y_max);
    fputs("bits per byte\n", out);
    for (int row = 0; row < ROWS; row++) {
        print_label(out, row, y_max);
        print_row(out, cells[row]);
    }
    fprintf(out, "      \xe2\x94\x94"); // a corner, then the axis
    for (int c = 0; c < COLUMNS; c++) fputs("\xe2\x94\x80", out);
    fputc('\n', out);
    print_marks(out, chart, x_max);
    // Bytes have units of their own (kB, MB); rows are only counted.
    if (strcmp(chart->unit, "byte") == 0)
        fprintf(out, "       0%*s\n", COLUMNS - 1, CLI_BYTES((uint64_t)x_max));
    else
        fprintf(out, "       0%*s %ss\n", COLUMNS - 2 - (int)strlen(chart->unit),
                CLI_COUNT((uint64_t)x_max), chart->unit);
    free(smooth);
}

// ---- kinds over a text --------------------------------------------------------------------------

#define KINDS_COLUMNS 64

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
    size_t count = reef_kinds_rows(text, rows);
    size_t columns = text->count < KINDS_COLUMNS ? text->count : KINDS_COLUMNS, wide = 0;
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
    fprintf(out, "%*s0%*s bytes\n", (int)wide + 12, "", (int)columns - 1, CLI_COUNT(text->bytes));
}
