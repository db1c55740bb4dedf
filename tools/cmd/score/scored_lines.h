// The lines of a text, and how surprising each of them is.
#ifndef REEF_SCORED_LINES_H
#define REEF_SCORED_LINES_H

#include "cli.h"

typedef struct reef_scored_line {
    size_t number;        // from 1
    size_t offset, bytes; // without the line end
    bool ended;           // the last one may lack its end
    double bits;          // with the line end: it is predicted too
    double surplus;       // bits above the text's mean for as many bytes
    double score;         // reef_line_score: what alarms and sessions go by
} reef_scored_line;

typedef struct reef_scored_lines {
    const uint8_t *text; // lent
    const float *bits;   // lent: of each byte
    reef_scored_line *lines;
    size_t count;
} reef_scored_lines;

/**
 * Cut a text into lines.
 *
 * scorer      of their scores
 * text, bits  (count) of them; kept by the lines
 * mean        bits a byte that a surplus is measured from
 */
void reef_scored_lines_init(reef_scored_lines *out,
                            const reef_line_scorer *scorer,
                            const uint8_t *text,
                            const float *bits,
                            size_t count,
                            double mean);
void reef_scored_lines_release(reef_scored_lines *lines); // accepts zeros

/** Bits a byte of a line, its end counted. */
double reef_scored_line_rate(const reef_scored_line *line);

#endif
