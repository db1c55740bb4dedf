// reef help: explain a command, or list all of them.
#include "cli.h"
#include "commands.h"

#include <stdlib.h>

const reef_cli_manual reef_help_manual = {
    .about = "Without a command: the list of all commands; "
             "with the first word of several commands: those.",
    .options = NULL,
    .example = "reef help eval\n"
               "reef help snapshot\n"
               "reef help snapshot create",
};

reef_status reef_cmd_help(reef_cli_call *cli, reef_error *err) {
    if (cli->operand_count == 0) return reef_cli_help_list(cli, NULL, err);
    // `reef help kind` lists the group; `reef help kind name` is one command of it.
    if (cli->operand_count == 1 && reef_cli_group_has(cli->operands[0]))
        return reef_cli_help_list(cli, cli->operands[0], err);
    // Groups have commands of two words.
    char *name = cli->operand_count == 1
                     ? reef_cli_format("%s", cli->operands[0])
                     : reef_cli_format("%s %s", cli->operands[0], cli->operands[1]);
    const reef_cli_command *command = reef_cli_command_find(name);
    reef_status status =
        command != NULL
            ? reef_cli_help(cli, command, err)
            // Suggests the nearest name, as a mistyped command does.
            : reef_cli_command_unknown(cli->operands[0],
                                       cli->operand_count > 1 ? cli->operands[1] : NULL, err);
    free(name);
    return status;
}
