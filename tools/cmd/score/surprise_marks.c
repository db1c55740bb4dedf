// See score_parts.h.
#include "cli_format.h"
#include "reef_log.h"
#include "score_parts.h"

#include <stdlib.h>
#include <string.h>

#define RED "\033[1;31m"
#define PLAIN "\033[0m"

enum {
    PLAIN_ROWS = 2,      // so many without a surprise are shown; of more, how many bytes they have
    SURPRISING_ROWS = 8, // so many are shown
};

size_t reef_surprise_spans(const float *bits, size_t count, reef_surprise_span *spans) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(bits[i] >= SURPRISE_BITS)) continue;
        reef_surprise_span *last = found > 0 ? &spans[found - 1] : NULL;
        if (last == NULL || i - (last->offset + last->bytes) > SURPRISE_GAP)
            spans[found++] = (reef_surprise_span){.offset = i, .bytes = 1};
        else
            last->bytes = i + 1 - last->offset;
    }
    for (size_t s = 0; s < found; s++)
        for (size_t i = 0; i < spans[s].bytes; i++)
            spans[s].bits += (double)bits[spans[s].offset + i];
    return found;
}

// One character of the line as it is shown.
typedef struct shown_character {
    char *text; // on the heap
    size_t bytes, columns;
    bool surprising;
} shown_character;

static shown_character show(const uint8_t *line, size_t at, size_t count, const bool *marked) {
    size_t bytes = reef_character_bytes(line + at, count - at);
    shown_character c = {.bytes = bytes > 0 ? bytes : 1};
    c.text = reef_cli_printable(line + at, c.bytes, false);
    c.columns = reef_cli_width(c.text);
    for (size_t i = 0; i < c.bytes; i++) c.surprising |= marked[at + i];
    return c;
}

typedef struct shown_row {
    const shown_character *characters; // (count)
    size_t count, bytes;
    bool surprising; // one of them is
} shown_row;

// The first characters of `rest` (count) that have room in so many columns; at least one.
static shown_row row_of(const shown_character *rest, size_t count, size_t columns) {
    shown_row row = {.characters = rest};
    size_t width = 0;
    while (row.count < count) {
        const shown_character *next = &rest[row.count];
        width += next->columns;
        if (row.count > 0 && width > columns) break;
        row.count++;
        row.bytes += next->bytes;
        row.surprising |= next->surprising;
    }
    return row;
}

static void print_row(const shown_row *row, const char *indent, bool colours, FILE *out) {
    bool red = false;
    fputs(indent, out);
    for (size_t i = 0; i < row->count; i++) {
        const shown_character *c = &row->characters[i];
        if (colours && c->surprising != red) fputs(red ? PLAIN : RED, out);
        red = c->surprising;
        fputs(c->text, out);
    }
    fputs(colours && red ? PLAIN "\n" : "\n", out);
    if (!row->surprising) return;
    fputs(indent, out);
    size_t last = row->count; // nothing behind the last mark
    while (!row->characters[last - 1].surprising) last--;
    for (size_t i = 0; i < last; i++)
        for (size_t k = 0; k < row->characters[i].columns; k++)
            fputc(row->characters[i].surprising ? '^' : ' ', out);
    fputc('\n', out);
}

static size_t bytes_of(const shown_row *rows, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += rows[i].bytes;
    return bytes;
}

static size_t plain_rows(const shown_row *rows, size_t count) {
    size_t plain = 0;
    while (plain < count && !rows[plain].surprising) plain++;
    return plain;
}

static void print_rows(
    const shown_row *rows, size_t count, const char *indent, bool colours, FILE *out) {
    size_t surprising = 0;
    for (size_t r = 0; r < count;) {
        size_t plain = plain_rows(rows + r, count - r);
        if (r > 0 && plain > PLAIN_ROWS) {
            fprintf(out, "%s... %zu bytes without a surprise ...\n", indent,
                    bytes_of(rows + r, plain));
            r += plain;
        } else if (surprising == SURPRISING_ROWS) {
            fprintf(out, "%s... and %zu bytes more\n", indent, bytes_of(rows + r, count - r));
            return;
        } else {
            surprising += rows[r].surprising;
            print_row(&rows[r++], indent, colours, out);
        }
    }
}

void reef_surprise_print(const uint8_t *line,
                         const float *bits,
                         size_t count,
                         const char *indent,
                         size_t columns,
                         bool colours,
                         FILE *out) {
    reef_surprise_span *spans = reef_cli_alloc(count + 1, sizeof(*spans));
    bool *marked = reef_cli_alloc(count + 1, sizeof(*marked));
    shown_character *characters = reef_cli_alloc(count + 1, sizeof(*characters));
    shown_row *rows = reef_cli_alloc(count + 1, sizeof(*rows));
    size_t found = reef_surprise_spans(bits, count, spans), shown = 0, row_count = 0;
    for (size_t s = 0; s < found; s++) memset(marked + spans[s].offset, true, spans[s].bytes);
    for (size_t at = 0; at < count; at += characters[shown++].bytes)
        characters[shown] = show(line, at, count, marked);
    for (size_t at = 0; at < shown || row_count == 0; at += rows[row_count++].count)
        rows[row_count] = row_of(characters + at, shown - at, columns);
    print_rows(rows, row_count, indent, colours, out);
    while (shown > 0) free(characters[--shown].text);
    free(rows);
    free(characters);
    free(marked);
    free(spans);
}
