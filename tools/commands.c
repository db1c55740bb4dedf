// See commands.h: the rows of the table, with their functions and manuals.
#include "commands.h"

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
