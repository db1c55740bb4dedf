// Signals that ask a command to end: the first one is noticed between two pieces of work, the
// second one ends the process at once.
#ifndef REEF_CLI_SIGNALS_H
#define REEF_CLI_SIGNALS_H

#include <stdbool.h>

/**
 * Catch INT and TERM. With `hangup` also HUP, and signals that this process ignores stay ignored:
 * so nohup works. Call it once.
 */
void reef_cli_catch_signals(bool hangup);
/** Did a signal come? Any thread. */
bool reef_cli_is_stopped(void);
/** End as by the signal that came, if one did, so that a loop of a shell stops too. */
void reef_cli_end_as_signalled(void);

#endif
