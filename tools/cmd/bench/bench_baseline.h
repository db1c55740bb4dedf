// Another implementation of the same thing, as a Python script that the user names and that
// /usr/bin/python3 runs: of one PEER layer, or of a whole training step. Unknown lines are ignored;
// the script's standard error is shown only if it fails.
#ifndef REEF_BENCH_BASELINE_H
#define REEF_BENCH_BASELINE_H

#include "reef_error.h"
#include "reef_trainer.h"

#include <stddef.h>
#include <stdint.h>

// ---- one layer ----------------------------------------------------------------------------------

typedef enum reef_bench_baseline_row {
    BASELINE_RETRIEVE,
    BASELINE_FORWARD,
    BASELINE_BACKWARD,
    BASELINE_STEP,
    BASELINE_ROW_COUNT
} reef_bench_baseline_row;

/** Tokens per second of each row. */
typedef struct reef_bench_baseline_rates {
    double tokens_per_s[BASELINE_ROW_COUNT];
} reef_bench_baseline_rates;

/**
 * Run `SCRIPT SIDE D_MODEL TOKENS sparse THREADS` to its end and read its rates: a line for each,
 * `NAME  SECONDS s  RATE tok/s`, named retrieve, forward, forward+backward and train step (+Adam).
 *
 * Errors: NOT_FOUND if the script cannot be read; IO if it could not be run, failed, took too long
 * or left out a row; the message names the cause, with the last line that it printed.
 */
REEF_MUST_CHECK reef_status reef_bench_baseline_run(const char *script,
                                                    size_t side,
                                                    size_t d_model,
                                                    size_t tokens,
                                                    size_t threads,
                                                    reef_bench_baseline_rates *out,
                                                    reef_error *err);

// ---- a training step ----------------------------------------------------------------------------

typedef struct reef_bench_baseline_step {
    double seconds;      // of one step, the median of those that it measured
    uint64_t parameters; // of its model
    char torch[32];      // version of PyTorch
} reef_bench_baseline_step;

/**
 * Run the script with the shape of the model as named arguments, `--layers 4 --ffw pddd ...
 * --threads 2
 * --steps 20`, to its end, and read its last line that is a JSON object: {"step_seconds": 0.5,
 * "parameters": 123, "torch": "1.13"}.
 *
 * Errors: as reef_bench_baseline_run.
 */
REEF_MUST_CHECK reef_status reef_bench_baseline_step_run(const char *script,
                                                         const reef_config *config,
                                                         size_t threads,
                                                         uint64_t steps,
                                                         reef_bench_baseline_step *out,
                                                         reef_error *err);

#endif
