// The table of commands; and reef help and reef version: what works on no pool.
#include "cli.h"
#include "commands.h"
#include "reef_settings.h"

#include <stdlib.h>
#include <string.h>

// ---- the table: its rows with their functions and manuals ---------------------------------------

#define ROW(name, function, operands, least, most, traits, summary)                                \
    {name, operands, least, most, traits, summary, &reef_##function##_manual, reef_cmd_##function},
#define ONE(...) +1

static const reef_cli_command COMMANDS[] = {CLI_COMMANDS(ROW)};

static const reef_cli_group GROUPS[] = {
    {"every day", 0 CLI_EVERY_DAY(ONE)},         {"states, which --as-of takes", 0 CLI_STATES(ONE)},
    {"kinds of text", 0 CLI_KINDS(ONE)},         {"experts", 0 CLI_EXPERTS(ONE)},
    {"files and other pools", 0 CLI_FILES(ONE)},
};

void reef_cmd_install(void) {
    reef_cli_commands_install(COMMANDS, sizeof(COMMANDS) / sizeof(COMMANDS[0]), GROUPS,
                              sizeof(GROUPS) / sizeof(GROUPS[0]));
}

// ---- help ---------------------------------------------------------------------------------------

const reef_cli_manual reef_help_manual = {
    .about =
        "Without a command: the list of all commands; with the first word of several commands:\n"
        "those.",
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
    char *name = cli->operand_count == 1
                     ? reef_cli_format("%s", cli->operands[0])
                     : reef_cli_format("%s %s", cli->operands[0], cli->operands[1]);
    const reef_cli_command *command = reef_cli_command_find(name);
    reef_status status =
        command != NULL
            ? reef_cli_help(cli, command, err)
            : reef_cli_command_unknown(cli->operands[0],
                                       cli->operand_count > 1 ? cli->operands[1] : NULL, err);
    free(name);
    return status;
}

// ---- version ------------------------------------------------------------------------------------

const reef_cli_manual reef_version_manual = {
    .about =
        "The version of the program, the pool format it reads and writes, and the kernels in use.",
    .options = NULL,
    .example = "reef version --json",
};

reef_status reef_cmd_version(reef_cli_call *cli, reef_error *err) {
    if (cli->json)
        return reef_cli_reply(cli,
                              json_pack("{s:s, s:I, s:s, s:s}", "version", REEF_VERSION_TEXT,
                                        "format", (json_int_t)REEF_FORMAT_VERSION, "kernels",
                                        reef_kernels_name(), "blas", reef_gemm_name()),
                              err);
    printf("reef %s, pool format %u, kernels %s, matrix products %s\n", REEF_VERSION_TEXT,
           REEF_FORMAT_VERSION, reef_kernels_name(), reef_gemm_name());
    if (reef_gemm_advice() != NULL) fprintf(stderr, "reef: warning: %s\n", reef_gemm_advice());
    return REEF_OK;
}
