// The texts of --help.
#ifndef REEF_CLI_HELP_H
#define REEF_CLI_HELP_H

#include "cli.h"
#include "reef_error.h"

#include <stdbool.h>

/** Print a command's help, as text or as JSON. */
reef_status reef_cli_help(reef_cli_call *cli, const reef_cli_command *command, reef_error *err);
/** Whether `first` is the first word of commands of two words. */
bool reef_cli_group_has(const char *first);
/**
 * Report that no such command exists, with the nearest one. second: the word after it, or NULL.
 */
REEF_MUST_CHECK reef_status reef_cli_command_unknown(const char *first,
                                                     const char *second,
                                                     reef_error *err);
/** Print the list of the commands whose name begins with the word `first`; NULL: of all. */
reef_status reef_cli_help_list(reef_cli_call *cli, const char *first, reef_error *err);

#endif
