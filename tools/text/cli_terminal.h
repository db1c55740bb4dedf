// People at a terminal.
#ifndef REEF_CLI_TERMINAL_H
#define REEF_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/**
 * Whether text on standard output may have colours: on a terminal that has them, and not with
 * NO_COLOR.
 */
bool reef_cli_colours(void);

/** Columns of the terminal that `out` is; 0: it is none, and lines may be of any length. */
size_t reef_cli_columns(FILE *out);
#endif
