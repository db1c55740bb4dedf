// The drift test: is this batch's prequential loss in the range of the recent past?
//
// A robust z-score over a window of batches: median and 1.4826 * median absolute deviation, so that
// one odd batch neither raises an alarm later nor hides one.
#ifndef REEF_DRIFT_TEST_H
#define REEF_DRIFT_TEST_H

#include "reef_trainer.h"

typedef struct reef_drift {
    uint32_t window; // batches of history
    uint32_t count;  // batches in it, at most `window`
    uint32_t next;   // where the next one goes
    double *history; // (window) bits per byte
    double *scratch; // (window)
} reef_drift;

REEF_MUST_CHECK reef_status reef_drift_init(reef_drift *drift, uint32_t window, reef_error *err);
void reef_drift_release(reef_drift *drift);
void reef_drift_reset(reef_drift *drift);
void reef_drift_push(reef_drift *drift, double bits);
/** Batch i of the history, 0 the oldest. */
double reef_drift_at(const reef_drift *drift, uint32_t i);
/** Median and robust spread of the history; both 0 when it is empty. */
void reef_drift_level(const reef_drift *drift, double *median, double *spread);
/** The median of `count` >= 1 values, which are sorted. */
double reef_median(double *values, uint32_t count);
/** The loss above which a batch is anomalous. */
double reef_drift_limit(double median, double spread, const reef_config *config);
/**
 * Is a run of batches at the level it is taken for? One batch may well lie near the limit, but not
 * one after the other: the cumulative sum (Page 1954) of what each has above the median and an
 * allowance of one spread, at least drift_bits. It is too much when it is above the distance from
 * the median to the limit; it stays below twice that, so that a domain that does come back is soon
 * taken for what it is.
 */
double reef_drift_cusum(
    double sum, double bits, double median, double spread, const reef_config *config);

#endif
