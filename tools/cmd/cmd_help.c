// reef help: explain a command, or list all of them.
#include "cli_help.h"
#include "commands.h"
#include "manual.h"

#include <stdlib.h>

static const reef_cli_option OPTIONS[] = {
    {"man", "DIRECTORY", "write the pages of the manual into this directory"},
    {0},
};

const reef_cli_manual reef_help_manual = {
    .about = "Without a command: the list of all commands; "
             "with the first word of several commands: those.",
    .options = OPTIONS,
    .example = "reef help eval\n"
               "reef help snapshot\n"
               "reef help snapshot create\n"
               "mkdir man && reef help --man man && man -l man/reef-eval.1",
};

static reef_status write_manual(reef_cli_call *cli, const char *directory, reef_error *err) {
    size_t count = 0;
    reef_status status = reef_manual_write(directory, &count, err);
    if (status != REEF_OK) return status;
    if (cli->json)
        return reef_cli_reply(cli,
                              json_pack("{s:o, s:I}", "directory", reef_cli_path(directory),
                                        "pages", (json_int_t)count),
                              err);
    printf("wrote %zu pages into %s\n", count, directory);
    return REEF_OK;
}

reef_status reef_cmd_help(reef_cli_call *cli, reef_error *err) {
    const char *directory = reef_cli_text(cli, "man");
    // For packaging: one manual page for each command.
    if (directory != NULL) return write_manual(cli, directory, err);
    if (cli->operand_count == 0) return reef_cli_help_list(cli, NULL, err);
    // `reef help bench` lists the group; `reef help bench step` is one command of it.
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
