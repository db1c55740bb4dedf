// Pictures in the terminal: loss over the stream, and kinds over a text.
#ifndef REEF_CHART_H
#define REEF_CHART_H

#include "cli.h"
#include "cli_pool.h"
#include "reef_kinds.h"

// ---- loss over the stream -----------------------------------------------------------------------

/** Loss over the stream, with the offsets where generations were opened. */
typedef struct reef_loss_chart {
    const reef_point *points;
    size_t count; // at least 1
    const uint64_t *found;
    size_t found_count; // stream positions of generations 1, 2, ...
    const char *unit;   // what the stream is counted in: such as "byte"
} reef_loss_chart;

/** In dots of braille patterns. */
void reef_chart_loss_print(FILE *out, const reef_loss_chart *chart);

/** Stream positions where the generations after the first were opened; on the heap. */
uint64_t *reef_chart_boundaries(const reef_cli_pool *pool, size_t *count);
json_t *reef_chart_offsets_json(const uint64_t *offsets, size_t count);
/** A round distance between ticks, so that about `ticks` of them fit into `range`. */
double reef_chart_tick(double range, int ticks);
/** Losses with each replaced by the median of its neighbourhood; on the heap. */
double *reef_chart_smooth(const reef_point *points, size_t count);

// ---- kinds over a text --------------------------------------------------------------------------

/** Which kinds answered, or learned, where in a text. */
typedef struct reef_kinds_text {
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
