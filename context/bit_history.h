// What one bit was in one context so far, in a byte.
//
// A history says how often the bit was 0 and 1, which came last, and of the first three in which
// order they came. It is a state, not a probability: what a state is worth is learned (logistic.h).
// When a bit contradicts a long run, most of the run is forgotten, since recent bits tell more
// (Mahoney 2005, "Adaptive weighing of context models for lossless data compression").
#ifndef REEF_BIT_HISTORY_H
#define REEF_BIT_HISTORY_H

#include <stdint.h>

#define REEF_HISTORY_NONE 0     // the bit was never seen here
#define REEF_HISTORY_RUN_MAX 40 // bits of one kind that a history counts

typedef struct reef_histories {
    uint16_t count;       // of states
    uint8_t next[256][2]; // the history after one more bit
    uint8_t zeros[256];   // how many of each it counts
    uint8_t ones[256];
    uint16_t visits[256];                     // zeros and ones together
    uint8_t mirror[256];                      // the same with zeros and ones exchanged
    uint8_t run[REEF_HISTORY_RUN_MAX + 1][2]; // after n bits of one kind
} reef_histories;

/** The table of states, made once. Threads: any. */
const reef_histories *reef_histories_table(void);

#endif
