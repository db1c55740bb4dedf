// Another implementation of the same layer, as a Python script that the user names. It is run with
//
//   /usr/bin/python3 SCRIPT SIDE D_MODEL TOKENS sparse THREADS
//
// and prints a line per measurement, `NAME  SECONDS s  RATE tok/s`; the names known here are retrieve,
// forward, forward+backward and train step (+Adam). Other lines are ignored.
#ifndef REEF_BENCH_RIVAL_H
#define REEF_BENCH_RIVAL_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum bench_rival_row {
    RIVAL_RETRIEVE,
    RIVAL_FORWARD,
    RIVAL_BACKWARD,
    RIVAL_STEP,
    RIVAL_ROW_COUNT
} bench_rival_row;

/** Tokens per second of each row. */
typedef struct bench_rival_rates {
    double tokens_per_s[RIVAL_ROW_COUNT];
} bench_rival_rates;

/**
 * Run the script to its end and read its rates.
 *
 * Errors: IO when it could not be run, failed, took too long or left out a row; the message says which,
 * with the last line that it printed.
 */
REEF_MUST_CHECK reef_status bench_rival_run(const char *script,
                                            size_t side,
                                            size_t d_model,
                                            size_t tokens,
                                            size_t threads,
                                            bench_rival_rates *out,
                                            reef_error *err);

#endif
