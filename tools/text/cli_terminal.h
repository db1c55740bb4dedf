// People at a terminal.
#ifndef REEF_CLI_TERMINAL_H
#define REEF_CLI_TERMINAL_H

#include <stdbool.h>

/**
 * Whether text on standard output may have colours: on a terminal that has them, and not with
 * NO_COLOR.
 */
bool reef_cli_colours(void);
#endif
