// The table of commands; and reef help, reef version and reef config check: what works on no pool.
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

// ---- config check -------------------------------------------------------------------------------

const reef_cli_manual reef_config_check_manual = {
    .about =
        "Reads a configuration file of reefd and names every mistake in it with its line, and\n"
        "what a misspelt key was meant to be. Nothing is opened but the file; `reefd --config\n"
        "FILE --check` looks at the socket's path and at the token, and whether the address needs\n"
        "one, as well; it prints every setting. Ends with 64 where there are mistakes.",
    .options = NULL,
    .example = "reef config check reef.ini",
};

typedef struct mistakes {
    json_t *list;
    size_t path_bytes; // of the file's name, which stands before every message
} mistakes;

static void on_mistake(void *context, unsigned line, const char *message) {
    const mistakes *found = context;
    // "FILE:4: unknown key": only the text after it is needed.
    const char *rest = strlen(message) > found->path_bytes ? message + found->path_bytes : message;
    const char *text = strstr(rest, ": ");
    size_t at =
        json_array_size(found->list); // by lines, which is not the order in which they are found
    while (at > 0 &&
           json_integer_value(json_object_get(json_array_get(found->list, at - 1), "line")) > line)
        at--;
    json_array_insert_new(found->list, at,
                          json_pack("{s:I, s:o}", "line", (json_int_t)line, "message",
                                    reef_cli_path(text != NULL ? text + 2 : message)));
}

static void print_mistakes(const char *path, const json_t *list) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) printf("%s:%" JSON_INTEGER_FORMAT ": %s\n", path,
                                            json_integer_value(json_object_get(one, "line")),
                                            json_string_value(json_object_get(one, "message")));
}

reef_status reef_cmd_config_check(reef_cli_call *cli, reef_error *err) {
    const char *path = cli->operands[0];
    // The path is cut in messages, so its length here is bounded by the same limit.
    mistakes found = {.list = json_array(), .path_bytes = strnlen(path, 120)};
    size_t settings = 0;
    reef_status status = reef_options_check_file(path, on_mistake, &found, &settings, err);
    size_t count = json_array_size(found.list);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli,
                                json_pack("{s:o, s:I, s:O}", "file", reef_cli_path(path),
                                          "settings", (json_int_t)settings, "mistakes", found.list),
                                err);
    else if (status == REEF_OK && count > 0)
        print_mistakes(path, found.list);
    else if (status == REEF_OK)
        printf("%s: %zu settings, no mistake\n", path, settings);
    json_decref(found.list);
    // Mistakes found are a failure of the command, for use in scripts and hooks.
    if (status != REEF_OK || count == 0) return status;
    return reef_fail(err, REEF_ERR_INVALID, "%.160s has %zu mistake%s", path, count,
                     count == 1 ? "" : "s");
}
