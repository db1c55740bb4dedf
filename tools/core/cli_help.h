// What help says.
#ifndef REEF_CLI_HELP_H
#define REEF_CLI_HELP_H

#include "cli.h"
#include "reef_error.h"

#include <stdbool.h>

/** Print a command's help, as text or as JSON. */
reef_status reef_cli_help(reef_cli_call *cli, const reef_cli_command *command, reef_error *err);
/** Whether there are commands of two words of which this is the first. */
bool reef_cli_group_has(const char *first);
/**
 * Say that there is no such command, and which may be meant. second: the word after it, or NULL.
 */
REEF_MUST_CHECK reef_status reef_cli_command_unknown(const char *first,
                                                     const char *second,
                                                     reef_error *err);
/** Print the list of the commands whose name begins with the word `first`; NULL: of all. */
reef_status reef_cli_help_list(reef_cli_call *cli, const char *first, reef_error *err);

#endif
