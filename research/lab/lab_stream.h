// reef-lab stream: what its files share.
#ifndef REEF_LAB_STREAM_H
#define REEF_LAB_STREAM_H

#include "cli.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Write, or with `mode` "ab" append, bytes as a file. Errors: FULL, IO. */
REEF_MUST_CHECK reef_status reef_lab_file_write(
    const char *path, const char *mode, const void *bytes, size_t count, reef_error *err);

// ---- stream_chart.c -----------------------------------------------------------------------------
//
// Bits per byte of HELD over the logarithm of `bytes`, both of rows: each row is a point of its
// `rival`, and one without a rival is one of the pool, adapting and frozen. There is at least one.

void reef_lab_curves_print(const json_t *rows);
/** The same as a page of SVG. Errors: IO, INVALID the file would lie in a pool. */
REEF_MUST_CHECK reef_status reef_lab_curves_svg(const char *path,
                                                const char *title,
                                                const json_t *rows,
                                                reef_error *err);

// ---- stream_rivals.c ----------------------------------------------------------------------------

#define LAB_RIVALS 3 // programs that compress

/**
 * Those that are named, with commas between.
 *
 * wanted  (LAB_RIVALS) written
 *
 * Errors: INVALID there is no such rival; NOT_FOUND it is not installed.
 */
REEF_MUST_CHECK reef_status reef_lab_rivals_read(const char *names, bool *wanted, reef_error *err);
const char *reef_lab_rival_name(size_t rival);
/**
 * Let it compress `bytes` (count), and then these and `held` (held_count) behind them.
 *
 * work  a directory for files of these sizes, which are removed
 * row   written: its figures, the caller's; NULL after an error
 *
 * Errors: IO, FULL: also where the program failed.
 */
REEF_MUST_CHECK reef_status reef_lab_rival_measure(size_t rival,
                                                   const char *work,
                                                   const uint8_t *bytes,
                                                   size_t count,
                                                   const uint8_t *held,
                                                   size_t held_count,
                                                   json_t **row,
                                                   reef_error *err);

#endif
