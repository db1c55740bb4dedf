// Which bytes of a line were surprising.
#ifndef REEF_SURPRISE_MARKS_H
#define REEF_SURPRISE_MARKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SURPRISE_BITS 4.0f // a byte that had a chance of at most 1 in 16 is surprising
#define SURPRISE_GAP 2     // so many bytes between two surprising ones are marked with them

/** A run of bytes that begins and ends with a surprising one. */
typedef struct reef_surprise_span {
    size_t offset, bytes; // in the line
    double bits;          // of all its bytes
} reef_surprise_span;

/**
 * The surprising runs of a line, in order.
 *
 * bits   (count) of each byte
 * spans  (count) written
 *
 * Returns how many.
 */
size_t reef_surprise_spans(const float *bits, size_t count, reef_surprise_span *spans);

/**
 * Print a line, and below it ^ at what is surprising, in rows of so many columns; with colours it
 * is red as well. Bytes that no terminal shows are \xNN, as of reef_cli_printable. Of a long line
 * the stretches without a surprise, and what follows after many surprising rows, are counted.
 */
void reef_surprise_print(const uint8_t *line,
                         const float *bits,
                         size_t count,
                         const char *indent,
                         size_t columns,
                         bool colours,
                         FILE *out);

#endif
