// One line per domain over the states of a model: what each of them cost, from before it was
// learned to now.
#ifndef REEF_CHART_FORGETTING_H
#define REEF_CHART_FORGETTING_H

#include "cli.h"
#include "forgetting.h"

typedef struct reef_forgetting_chart {
    reef_metrics_matrix matrix; // at least one row and one column
    const char *const *names;   // of columns
    const char *const *states;  // of rows
    const char *measure;        // what values are, in words: "bits per byte"
} reef_forgetting_chart;

/** In the terminal: one letter per domain. */
void reef_chart_forgetting_print(FILE *out, const reef_forgetting_chart *chart);
/** As a whole SVG document. */
void reef_chart_forgetting_svg(FILE *out, const reef_forgetting_chart *chart);

#endif
