// Pictures as SVG: loss over the stream, and bits per byte of every text in every state.
#ifndef REEF_LAB_SVG_H
#define REEF_LAB_SVG_H

#include "chart.h"
#include "matrix.h"

/** Position of a picture on the page, axes and labels included. */
typedef struct reef_chart_box {
    double x, y, width, height;
} reef_chart_box;

/**
 * Loss over the stream, with dashed lines at the true boundaries (truth_count; 0: not known).
 */
void reef_chart_loss_svg(FILE *out,
                         const reef_loss_chart *chart,
                         const uint64_t *truth,
                         size_t truth_count,
                         reef_chart_box box);
/** The cell of the row in which a text was learned is outlined. */
void reef_chart_matrix_svg(FILE *out,
                           const reef_matrix *matrix,
                           const char *const *names,
                           reef_chart_box box);

/** Write a page of pictures to a file, which `draw` puts there. IO. */
REEF_MUST_CHECK reef_status reef_svg_write(const char *path,
                                           double width,
                                           double height,
                                           void (*draw)(FILE *out, const void *context),
                                           const void *context,
                                           reef_error *err);
/** `dashes` as SVG has them, or NULL. */
void reef_svg_line(FILE *out,
                   double x1,
                   double y1,
                   double x2,
                   double y2,
                   const char *colour,
                   double width,
                   const char *dashes);
/** `anchor`: which part of the text is at `x`: start, middle or end. */
void reef_svg_text(FILE *out,
                   double x,
                   double y,
                   double size,
                   const char *anchor,
                   const char *colour,
                   const char *text);
/** A sentence on the page, pale; `x`, `y` where it begins. */
void reef_svg_sentence(FILE *out, double x, double y, const char *text);

#endif
