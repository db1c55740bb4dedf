// Two pictures: loss over the stream, and bits per byte of every text in every state.
#ifndef REEF_CHART_H
#define REEF_CHART_H

#include "cli.h"
#include "cli_pool.h"
#include "matrix.h"

/** Loss over the stream, with the offsets where generations were opened. */
typedef struct reef_loss_chart {
    const reef_point *points;
    size_t count; // at least 1
    const uint64_t *found;
    size_t found_count; // stream positions of generations 1, 2, ...
    const uint64_t *truth;
    size_t truth_count; // true boundaries; 0 where they are not known
    const char *unit;   // what the stream is counted in: such as "byte"
} reef_loss_chart;

/** Position of a picture on the page, axes and labels included. */
typedef struct reef_chart_box {
    double x, y, width, height;
} reef_chart_box;

void reef_chart_loss_svg(FILE *out, const reef_loss_chart *chart, reef_chart_box box);
/** own[j]: the row in which column j was learned; its cell is outlined. */
void reef_chart_matrix_svg(FILE *out,
                           const reef_cli_matrix *matrix,
                           const char *const *names,
                           const size_t *own,
                           reef_chart_box box);
/** In the terminal, in dots of braille patterns. */
void reef_chart_loss_print(FILE *out, const reef_loss_chart *chart);

/** Stream positions where the generations after the first were opened; on the heap. */
uint64_t *reef_chart_boundaries(const reef_cli_pool *pool, size_t *count);
/** A round distance between ticks, so that about `ticks` of them fit into `range`. */
double reef_chart_tick(double range, int ticks);
/** Losses with each replaced by the median of its neighbourhood; on the heap. */
double *reef_chart_smooth(const reef_point *points, size_t count);

#endif
