// From the logits of windows to a gate's decay and threshold.
#ifndef REEF_GATE_CALIBRATE_H
#define REEF_GATE_CALIBRATE_H

#include "gate_internal.h"

/**
 * Logits of windows, read in one of two ways. Apart, each from the start, as after a record
 * boundary: this is what short records see. Chained into one stream, as if each continued the one
 * before: windows are short against the memory of the mean, so only this shows the settled means
 * that long streams live with.
 */
typedef struct reef_gate_reading {
    size_t count;
    float *logits;                  // (count)
    const reef_gate_windows *apart; // the windows; NULL when they are chained
} reef_gate_reading;

/**
 * The reading that a gate sees; `logits` has room for every byte of the windows.
 */
reef_gate_reading reef_gate_read(const reef_gate *gate,
                                 const reef_gate_windows *windows,
                                 bool chained,
                                 float *logits);

/** means (count) is written: the causal mean after each byte, as reef_gate_score has it. */
void reef_gate_means(const reef_gate *gate, const reef_gate_reading *reading, float *means);

/** The data that calibration uses. */
typedef struct reef_gate_views {
    reef_gate_reading old[2];    // apart and chained; never fitted
    reef_gate_reading seen[2];   // new data that the gate was fitted to, in both readings
    reef_gate_reading unseen[2]; // and other new data; counts 0 if there is none
    float *means;                // scratch, as long as the longest
} reef_gate_views;

/** How well a gate of one decay does, with its threshold half way from old to new data. */
typedef struct reef_gate_calibration {
    float decay;
    double share;  // see reef_gate_try; 0: the new data does not stay above the old
    double leak;   // share of old bytes that fire
    double detect; // share of unseen new bytes that fire
    bool separates;
} reef_gate_calibration;

/**
 * Find the decay of a gate that was fitted to a part of the new data: `decay` if that is above 0,
 * else the shortest memory that separates old data from unseen new data. gate->decay is written.
 */
reef_gate_calibration reef_gate_try(reef_gate *gate,
                                    const reef_gate_views *views,
                                    float decay,
                                    float leak_max);

/**
 * Set the threshold of a gate that was fitted to all of the new data (views->seen) for its decay;
 * returns the share of old bytes that fire, in the reading in which more do.
 */
double reef_gate_calibrate(reef_gate *gate,
                           const reef_gate_views *views,
                           double share,
                           float leak_max);

/** The smallest value that at most `share` of the values exceed; reorders them. */
float reef_upper_quantile(size_t count, float *values, double share);
/** Share of the values above the threshold; 0 if there are none. */
double reef_share_above(size_t count, const float *values, float threshold);

#endif
