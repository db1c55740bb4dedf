// What each input of the mixer is worth: its part of the log odds, counted in a sample of the
// bytes. Counting changes nothing of what is predicted and learned, and is never stored.
#ifndef REEF_INPUTS_H
#define REEF_INPUTS_H

#include "predictor.h"

// Inputs that people see, one for two of the mixer. The bias input is not listed.
enum {
    REEF_INPUT_NET = REEF_PREDICTION_BIAS,
    REEF_INPUT_NAMES,
};

typedef struct reef_input_counts {
    uint64_t bytes;                  // counted
    uint64_t lines;                  // of the tables that these read
    double shares[REEF_INPUT_NAMES]; // sums over bits
    uint64_t hits[REEF_INPUT_NAMES]; // bytes in which the input had something to say
} reef_input_counts;

// A sample of bytes is enough, and reading is to cost what learning costs.
#define REEF_INPUTS_EVERY 16

/** Is the next byte one of the sample? */
static inline bool reef_inputs_sampled(const reef_predictor *p) {
    return p->text.end % REEF_INPUTS_EVERY == 0;
}

/**
 * Count the inputs of a bit of such a byte, between its predict and its update. bits: 1, or 8 where
 * the first bit stands for all of a byte that is trusted: they have the same inputs.
 */
void reef_inputs_count(reef_input_counts *counts, const reef_predictor *p, uint32_t bits);

/** shares, hits  (REEF_INPUT_NAMES) written; see reef_memory_session_inputs */
void reef_inputs_read(const reef_input_counts *counts, double *shares, double *hits);

#endif
