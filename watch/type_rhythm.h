// How often a type of line comes, in windows of time, on each of the last days on which it came:
// when it comes far more often, and when it should have come.
#ifndef REEF_TYPE_RHYTHM_H
#define REEF_TYPE_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>

#define REEF_RHYTHM_DAYS 8    // so that a week is in it
#define REEF_RHYTHM_WINDOWS 2 // ten minutes, an hour

/** Zeros: it never came. */
typedef struct reef_rhythm {
    int64_t first_ms, last_ms;
    int64_t day;                         // the newest of those below
    uint32_t days;                       // that it came on, before that one
    int64_t window[REEF_RHYTHM_WINDOWS]; // the one at hand, and lines in it
    uint32_t count[REEF_RHYTHM_WINDOWS];
    uint32_t most[REEF_RHYTHM_WINDOWS][REEF_RHYTHM_DAYS]; // in one window of a day
    uint32_t gap_s[REEF_RHYTHM_DAYS];                     // of a day: the longest one
    uint32_t windows[REEF_RHYTHM_DAYS]; // of ten minutes of a day in which it came
    bool is_rising, is_silent;
} reef_rhythm;

/**
 * Lines come at one time.
 *
 * bits  how rare so many of them are, by the days before; written where that has just become far
 *       more than ever: then true
 */
bool reef_rhythm_count(reef_rhythm *rhythm, uint32_t lines, int64_t time_ms, double *bits);

/** It has not come for much longer than ever, and this has not been said yet. `bits` as above. */
bool reef_rhythm_is_silent(reef_rhythm *rhythm, int64_t time_ms, double *bits);

/** Time without any lines passed: nobody was silent. */
void reef_rhythm_skip(reef_rhythm *rhythm, int64_t ms);

#endif
