// See surprise_marks.h.
#include "surprise_marks.h"
#include "cli_alloc.h"
#include "cli_format.h"
#include "reef_log.h"

#include <stdlib.h>
#include <string.h>

#define RED "\033[1;31m"
#define PLAIN "\033[0m"

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

static void print_row(
    const shown_character *row, size_t count, const char *indent, bool colours, FILE *out) {
    bool red = false, marks = false;
    fputs(indent, out);
    for (size_t i = 0; i < count; i++) {
        if (colours && row[i].surprising != red) fputs(red ? PLAIN : RED, out);
        red = row[i].surprising;
        marks |= red;
        fputs(row[i].text, out);
    }
    fputs(colours && red ? PLAIN "\n" : "\n", out);
    if (!marks) return;
    fputs(indent, out);
    size_t last = count; // nothing behind the last mark
    while (!row[last - 1].surprising) last--;
    for (size_t i = 0; i < last; i++)
        for (size_t k = 0; k < row[i].columns; k++) fputc(row[i].surprising ? '^' : ' ', out);
    fputc('\n', out);
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
    // A character has a column or more, an accent by itself none: rows have room for either.
    shown_character *row = reef_cli_alloc(count + 1, sizeof(*row));
    size_t found = reef_surprise_spans(bits, count, spans), held = 0, width = 0;
    for (size_t s = 0; s < found; s++) memset(marked + spans[s].offset, true, spans[s].bytes);
    for (size_t at = 0; at < count;) {
        shown_character next = show(line, at, count, marked);
        if (held > 0 && width + next.columns > columns) {
            print_row(row, held, indent, colours, out);
            while (held > 0) free(row[--held].text);
            width = 0;
        }
        at += next.bytes;
        width += next.columns;
        row[held++] = next;
    }
    print_row(row, held, indent, colours, out);
    while (held > 0) free(row[--held].text);
    free(row);
    free(marked);
    free(spans);
}
