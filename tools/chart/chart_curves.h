// Curves over a size or a count, such as perplexity over parameters: several lines, a logarithmic
// axis below.
#ifndef REEF_CHART_CURVES_H
#define REEF_CHART_CURVES_H

#include "chart.h"

typedef struct reef_chart_point {
    double x, y;
    double low, high; // of several seeds; both y if there is one
} reef_chart_point;

typedef struct reef_chart_curve {
    char *name;
    reef_chart_point *points; // by x
    size_t count;
    bool level; // one value for all x: a dashed line
} reef_chart_curve;

typedef struct reef_chart_curves {
    const char *title, *x_title, *y_title;
    reef_chart_curve *curves;
    size_t count;
} reef_chart_curves;

/**
 * x is logarithmic, with ticks at 1, 2 and 5 times the powers of ten; y begins near the lowest
 * value.
 */
void reef_chart_curves_svg(FILE *out, const reef_chart_curves *chart, reef_chart_box box);

#endif
