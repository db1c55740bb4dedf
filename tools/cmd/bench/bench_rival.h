// Another program that measures the same two files, and the table that it prints.
#ifndef REEF_BENCH_RIVAL_H
#define REEF_BENCH_RIVAL_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>

#define BENCH_RIVAL_COLUMNS_MAX 16
#define BENCH_RIVAL_NAME_BYTES 40

/** One row of figures under the names of its columns. */
typedef struct reef_bench_rival_row {
    size_t count; // of columns, without that of the text's name
    char names[BENCH_RIVAL_COLUMNS_MAX][BENCH_RIVAL_NAME_BYTES];
    double values[BENCH_RIVAL_COLUMNS_MAX]; // NaN where it printed "-"
} reef_bench_rival_row;

/**
 * Run `PROGRAM TRAIN HELD` to its end and read the table that it prints: a heading whose columns
 * have two blanks or more between them, and a row with a figure, or "-", under each name but the
 * first. Other lines are ignored.
 *
 * Errors: NOT_FOUND if there is no such program; INVALID if it failed or printed no such table;
 * the message has its last line.
 */
REEF_MUST_CHECK reef_status reef_bench_rival_run(const char *program,
                                                 const char *train,
                                                 const char *held,
                                                 reef_bench_rival_row *out,
                                                 reef_error *err);

/** The first column of a speed, which is one whose name ends in kB/s; `count` if there is none. */
size_t reef_bench_rival_speed(const reef_bench_rival_row *row);

/** Whether two rows have the same columns. */
bool reef_bench_rival_alike(const reef_bench_rival_row *a, const reef_bench_rival_row *b);

#endif
