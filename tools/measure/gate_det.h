// How well the gates of a model tell texts apart: where they fire, where they begin to, and what
// another threshold would do.
#ifndef REEF_GATE_DET_H
#define REEF_GATE_DET_H

#include "cli.h"
#include "cli_pool.h"
#include "forgetting.h"

#define GATE_NEVER SIZE_MAX
// leaks that a table is made for; the first is that of the gate's own threshold
#define GATE_TARGETS 8
#define GATE_DET_POINTS 33

/** The texts, and when each was learned. */
typedef struct reef_gate_texts {
    size_t count;
    char **names;         // (count) owned
    reef_cli_file *files; // (count) owned
    size_t *learned;      // (count) owned; a generation, or METRICS_UNKNOWN
    uint64_t tokens;      // of all of them
    size_t token_bytes;
    double *at_once;  // (count) owned; gates that fire on a token, in the mean
    double *too_many; // (count) owned; share of tokens on which more than fire_max would
} reef_gate_texts;
void reef_gate_texts_release(reef_gate_texts *texts); // accepts the zeroed one

/** One threshold of a gate. */
typedef struct reef_gate_level {
    double target; // the bound on the leak that it keeps; NaN for the gate's own threshold
    double offset; // above the gate's own threshold
    double leak;   // on all older texts together
    double *fired; // (texts) owned; share of the tokens of each
} reef_gate_level;

/** What one gate does on all texts. */
typedef struct reef_gate_curve {
    uint32_t generation;
    reef_gate_stats stats;
    double *fired; // (texts) owned; share of the tokens on which it fires
    size_t *first; // (texts) owned; tokens before the first on which it fires, or GATE_NEVER
    double passes; // forward passes a window for losses that it and older gates read
    // older texts and own ones are there, and the threshold is a number: what follows is too
    bool known;
    reef_gate_level levels[GATE_TARGETS];
    // detection error trade-off (Martin et al. 1997): shares of older texts and of own ones that go
    // wrong
    double leak[GATE_DET_POINTS], missed[GATE_DET_POINTS];
    double own_leak, own_missed; // of the gate's own threshold
} reef_gate_curve;

/**
 * Measure every gate of the model on every text, each read from a cold start. Writes
 * texts->at_once, too_many.
 */
REEF_MUST_CHECK reef_status
reef_gate_curves_measure(reef_gate_curve *curves, // (generations - 1) zeroed
                         size_t *curve_count,     // of those that have a gate
                         reef_model *model,
                         const reef_generation_record *all, // (generations)
                         reef_gate_texts *texts,
                         reef_error *err);
void reef_gate_curve_release(reef_gate_curve *curve); // accepts the zeroed one

#endif
