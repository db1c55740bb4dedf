// How surprising each line of a stream is, in the context of what came before it, and which lines
// stand out.
#ifndef REEF_OUTLIERS_H
#define REEF_OUTLIERS_H

#include "cli.h"

#define FOLLOW_WINDOW_MAX 10000  // lines that make up what is usual
#define REEF_FOLLOW_RECENT 16384 // bytes that the memories of a later commit read first
#define FOLLOW_LINES_MIN 10      // before them nothing is known to be unusual

// ---- scores -------------------------------------------------------------------------------------

/**
 * The model of a pool, and the last bytes of a stream. Every byte is predicted from at least half
 * of the model's context before it (in the stream's first half of a context, from all there is):
 * the stream is cut into pieces of that size, and each is scored together with the piece before it.
 * So what a line scores depends on the stream and the state of the pool, not on when it came or how
 * it was read.
 */
typedef struct reef_follow_scorer {
    const reef_cli_call *cli;
    reef_store *store;
    char as_of[REEF_NAME_BYTES_MAX + 1]; // "now" or a state
    reef_model *model;
    double opened, took; // when it was opened, and how long that took; seconds of cli_clock
    size_t piece;        // half of the context
    uint8_t *text;       // (2 * piece) the piece before, and what there is of this one
    float *bits;         // (2 * piece)
    size_t used;
    uint8_t *recent; // (REEF_FOLLOW_RECENT) the last bytes scored, for a model that is opened again
    float *recent_bits; // scratch of the same size
    size_t recent_count;
    uint64_t renewed; // how often a later commit was read
} reef_follow_scorer;

REEF_MUST_CHECK reef_status reef_follow_scorer_open(reef_follow_scorer *scorer,
                                                    const reef_cli_call *cli,
                                                    reef_store *store,
                                                    reef_error *err);
void reef_follow_scorer_close(reef_follow_scorer *scorer); // accepts the zeroed one
/**
 * The next bytes of the stream. A call costs a pass over each piece that it begins or continues.
 *
 * bits  (count) written: the surprise of each; that of the very first one, which nothing came
 *       before, is 8
 */
REEF_MUST_CHECK reef_status reef_follow_score(
    reef_follow_scorer *scorer, const uint8_t *bytes, size_t count, float *bits, reef_error *err);
/**
 * Read the last commit, when there has been one and the model is of the present. At most a tenth of
 * the time goes to that.
 */
REEF_MUST_CHECK reef_status reef_follow_renew(reef_follow_scorer *scorer, reef_error *err);

// ---- outliers -----------------------------------------------------------------------------------

/** What is usual: the surprise of the last lines. */
typedef struct reef_follow_usual {
    double *values, *sorted; // (window)
    size_t window, count;    // the oldest gives way
    size_t next;
    double threshold;
} reef_follow_usual;

void reef_follow_usual_init(reef_follow_usual *usual, size_t window, double threshold);
void reef_follow_usual_release(reef_follow_usual *usual);
/**
 * How far a surprise lies above what is usual: in robust standard deviations (1.4826 times the
 * median distance from the median, at least 0.05 bits per byte). NaN while fewer than
 * FOLLOW_LINES_MIN lines are known.
 */
double reef_follow_distance(reef_follow_usual *usual, double surprise);
/** It is one of the last lines now. */
void reef_follow_usual_add(reef_follow_usual *usual, double surprise);

#endif
