// See chart_kinds.h.
#include "chart_kinds.h"
#include "cli_format.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS 64 // of the terminal

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
