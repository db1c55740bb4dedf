// Detection error trade-off of the gates: what a gate misses of its own texts against what it leaks
// on older ones, both on logarithmic axes, one line per gate, and a mark where its threshold lies.
#ifndef REEF_CHART_GATES_H
#define REEF_CHART_GATES_H

#include "gate_det.h"

/** In the terminal: one letter per gate, a capital at its own threshold. */
void reef_chart_gates_print(FILE *out, const reef_gate_curve *curves, size_t count);
/** As a whole SVG document. */
void reef_chart_gates_svg(FILE *out, const reef_gate_curve *curves, size_t count);

#endif
