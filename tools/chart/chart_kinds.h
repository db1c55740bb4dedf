// Which kinds answered, or learned, where in a text: a row a kind, the text from left to right.
#ifndef REEF_CHART_KINDS_H
#define REEF_CHART_KINDS_H

#include "reef_kinds.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct reef_kinds_text {
    const char *name;
    const uint32_t *answered; // (count) whose each byte is, or each of so many equal parts
    const float *weights;     // (count) how likely that kind was before the byte; NULL: not known
    size_t count;
    uint64_t bytes;              // of the text
    const reef_kind_list *kinds; // their names; not owned
} reef_kinds_text;

/** A row of the picture: a kind, and how many parts of the text are its. */
typedef struct reef_kinds_row {
    uint32_t kind;
    size_t parts;
} reef_kinds_row;

#define REEF_KINDS_ROWS_MAX 12

/**
 * The kinds that have most of a text, the first one first.
 *
 * rows  (REEF_KINDS_ROWS_MAX) written. Returns how many.
 */
size_t reef_kinds_rows(const reef_kinds_text *text, reef_kinds_row *rows);

void reef_chart_kinds_print(FILE *out, const reef_kinds_text *text);

#endif
