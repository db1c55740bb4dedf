// The lines of a text that a model has scored: how surprising each of them is. What the command
// line, the daemon and the library tell of a line is one of these.
#ifndef REEF_SCORED_LINES_H
#define REEF_SCORED_LINES_H

#include "reef_model.h"

typedef struct reef_scored_line {
    size_t number;        // from 1
    size_t offset, bytes; // without the line end
    bool ended;           // the last one may lack its end
    double bits;          // with the line end: it is predicted too
    double score;         // reef_line_score
} reef_scored_line;

/** How many lines a text has; the last one may lack its end. */
REEF_API size_t reef_lines_count(const uint8_t *text, size_t count);

/**
 * Cut a text into its lines.
 *
 * scorer      of their scores
 * text, bits  (count) bytes, and the surprise of each
 * lines       (reef_lines_count) written
 */
REEF_API void reef_lines_score(const reef_line_scorer *scorer,
                               const uint8_t *text,
                               const float *bits,
                               size_t count,
                               reef_scored_line *lines);

/** Bits a byte of a line, its end counted. */
REEF_API double reef_scored_line_rate(const reef_scored_line *line);

#endif
