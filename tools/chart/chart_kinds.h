// Which kinds answered where in a text: a row a kind, the text from left to right.
#ifndef REEF_CHART_KINDS_H
#define REEF_CHART_KINDS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct reef_kinds_text {
    const char *name;
    const uint32_t *answered; // (count) by which kind a byte was answered
    size_t count;
} reef_kinds_text;

/** A row of the picture: a kind, and how many bytes it answered. */
typedef struct reef_kinds_row {
    uint32_t kind;
    size_t bytes;
} reef_kinds_row;

#define REEF_KINDS_ROWS_MAX 12

/**
 * The kinds that answered most of a text, the first one first.
 *
 * rows  (REEF_KINDS_ROWS_MAX) written. Returns how many.
 */
size_t reef_kinds_rows(const reef_kinds_text *text, reef_kinds_row *rows);

void reef_chart_kinds_print(FILE *out, const reef_kinds_text *text);
void reef_chart_kinds_svg(FILE *out, const reef_kinds_text *texts, size_t count);

#endif
