// reef help: explain a command, or list all of them.
#include "commands.h"

#include <stdlib.h>

const cli_manual help_manual = {
    .about = "Without a command: the list of all commands.",
    .options = NULL,
    .example = "reef help eval\n"
               "reef help snapshot create",
};

reef_status cmd_help(cli_call *cli, reef_error *err) {
    if (cli->operand_count == 0) return cli_help_all(cli, err);
    char *name = cli->operand_count == 1 ? cli_format("%s", cli->operands[0])
                                         : cli_format("%s %s", cli->operands[0], cli->operands[1]);
    const cli_command *command = cli_command_find(name);
    const char *guess = command ? NULL : cli_command_guess(name);
    reef_status status;
    if (command)
        status = cli_help(cli, command, err);
    else if (guess)
        status =
            reef_fail(err, REEF_INVALID, "unknown command '%.64s'; did you mean %s?", name, guess);
    else
        status = reef_fail(err, REEF_INVALID, "unknown command '%.64s'; see reef help", name);
    free(name);
    return status;
}
