// Help on commands, as text and as JSON; tools/manual writes it as manual pages.
#include "cli.h"

#include "reef_gone.h"

#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 26 // where the explanation of an option begins
#define COLUMNS 110    // longer explanations continue in the next line

// Prints words from the column of explanations on, up to the last column.
static void print_wrapped(const char *text) {
    size_t at = HELP_COLUMN;
    while (*text) {
        size_t blanks = strspn(text, " "), word = strcspn(text + blanks, " ");
        // A word longer than the column keeps a line of its own.
        if (at > HELP_COLUMN && at + blanks + word > COLUMNS) {
            printf("\n%*s", HELP_COLUMN, "");
            at = HELP_COLUMN;
            blanks = 0;
            text += strspn(text, " ");
        }
        printf("%.*s", (int)(blanks + word), text);
        at += blanks + word;
        text += blanks + word;
    }
    printf("\n");
}

static void print_option(const reef_cli_option *option) {
    char letter = reef_cli_letter(option->name), before[] = {'-', letter, ',', ' ', '\0'};
    const char *value = option->value != NULL ? option->value : "";
    char *left = reef_cli_format("  %s--%s%s%s", letter != '\0' ? before : "", option->name,
                                 value[0] == '\0' || value[0] == '[' ? "" : " ", value);
    if (strlen(left) + 2 > HELP_COLUMN)
        printf("%s\n%*s", left, HELP_COLUMN, "");
    else
        printf("%-*s", HELP_COLUMN, left);
    print_wrapped(option->help);
    free(left);
}

static void print_synopsis(const reef_cli_command *command) {
    printf("usage: reef %s", command->name);
    if (command->traits & CLI_POOL) printf(" [POOL]");
    printf(" [OPTIONS]");
    if (command->operands[0]) printf(" %s", command->operands);
    printf("\n");
}

static bool is_first(const reef_cli_command *command, const char *option) {
    const char *const *name = command->manual->first;
    while (name != NULL && *name != NULL && strcmp(*name, option) != 0) name++;
    return name == NULL || *name != NULL;
}

static void print_options(const reef_cli_command *command, const reef_cli_options *list, bool all) {
    printf("\noptions:\n");
    for (size_t i = 0; i < list->count; i++) {
        reef_cli_option option = list->options[i];
        if (!all && !is_first(command, option.name)) continue;
        const reef_config_field *field =
            command->traits & CLI_CONFIG ? reef_cli_config_field(option.name) : NULL;
        char *help =
            field != NULL ? reef_cli_format("%s [%s]", option.help, field->standard) : NULL;
        if (help != NULL) option.help = help;
        print_option(&option);
        free(help);
    }
    if (command->traits & CLI_CONFIG) printf("\nDefaults stand in brackets.\n");
}

static void print_help(const reef_cli_command *command, const reef_cli_options *list, bool all) {
    printf("reef %s: %s\n\n", command->name, command->summary);
    print_synopsis(command);
    printf("\n%s\n", command->manual->about);
    print_options(command, list, all);
    printf("\nexample:\n");
    const char *line = command->manual->example;
    while (*line) {
        int length = (int)strcspn(line, "\n");
        printf("  $ %.*s\n", length, line);
        line += length;
        line += *line == '\n';
    }
}

static json_t *command_json(const reef_cli_command *command, const reef_cli_options *list) {
    json_t *options = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const reef_cli_option *option = &list->options[i];
        char letter[] = {reef_cli_letter(option->name), '\0'};
        json_array_append_new(options, json_pack("{s:s, s:s?, s:s?, s:s}", "name", option->name,
                                                 "letter", letter[0] ? letter : NULL, "value",
                                                 option->value, "help", option->help));
    }
    return json_pack("{s:s, s:s, s:b, s:s, s:s, s:o, s:s}", "name", command->name, "operands",
                     command->operands, "pool", (command->traits & CLI_POOL) != 0, "summary",
                     command->summary, "about", command->manual->about, "options", options,
                     "example", command->manual->example);
}

reef_status reef_cli_help(reef_cli_call *cli, const reef_cli_command *command, reef_error *err) {
    reef_cli_options list;
    reef_cli_options_init(&list, command);
    reef_status status = REEF_OK;
    if (cli->json)
        status = reef_cli_reply(cli, command_json(command, &list), err);
    else
        print_help(command, &list, reef_cli_text(cli, "help-all") != NULL);
    reef_cli_options_release(&list);
    return status;
}

// Whether the first word of a command's name is this one, and another follows.
static bool is_group(const reef_cli_command *command, const char *first) {
    size_t length = strlen(first);
    return strncmp(command->name, first, length) == 0 && command->name[length] == ' ';
}

bool reef_cli_group_has(const char *first) {
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    for (size_t i = 0; i < count; i++)
        if (is_group(&commands[i], first)) return true;
    return false;
}

// The second words of a group of commands, such as "create, list, show".
static char *second_words(const char *first) {
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    char *words = reef_cli_format("%s", "");
    for (size_t i = 0; i < count; i++) {
        if (!is_group(&commands[i], first)) continue;
        reef_cli_append(&words, "%s%s", words[0] ? ", " : "", commands[i].name + strlen(first) + 1);
    }
    return words;
}

// Guesses with the second word too if the first is that of a group: "snapsot lst" is near to
// "snapshot list".
static char *guess_words(const char *first, const char *second) {
    char *guess =
        reef_cli_group_has(first) ? reef_cli_format("%s", first) : reef_cli_command_guess(first);
    if (guess == NULL || second == NULL || !reef_cli_group_has(guess)) return guess;
    char *typed = reef_cli_format("%s %s", guess, second), *both = reef_cli_command_guess(typed);
    free(typed);
    // Not near to any command as a whole, so the group alone is the guess.
    if (both == NULL || strchr(both, ' ') == NULL) {
        free(both);
        return guess;
    }
    free(guess);
    return both;
}

reef_status reef_cli_command_unknown(const char *first, const char *second, reef_error *err) {
    char *whole =
        reef_cli_format("%s%s%s", first, second != NULL ? " " : "", second != NULL ? second : "");
    bool gone = reef_gone_report(whole, NULL, err);
    free(whole);
    if (gone) return REEF_ERR_INVALID;
    char *guess = guess_words(first, second), *typed = NULL;
    reef_status status = REEF_ERR_INVALID;
    // A group without its second word is not unknown, but incomplete.
    if (guess != NULL && strcmp(guess, first) == 0) {
        char *words = second_words(first);
        status = reef_fail(err, REEF_ERR_INVALID, "%.64s needs one of: %s", first, words);
        free(words);
    } else {
        // Repeats as much of what was typed as was used for the guess.
        bool both = second != NULL &&
                    (reef_cli_group_has(first) || (guess != NULL && strchr(guess, ' ') != NULL));
        typed = reef_cli_format("%s%s%s", first, both ? " " : "", both ? second : "");
        status = reef_fail(err, REEF_ERR_INVALID, "unknown command '%.64s'; %s%s%s", typed,
                           guess != NULL ? "did you mean " : "see reef help",
                           guess != NULL ? guess : "", guess != NULL ? "?" : "");
    }
    free(typed);
    free(guess);
    return status;
}

static json_t *commands_json(const char *first) {
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        if (first == NULL || is_group(&commands[i], first))
            json_array_append_new(array,
                                  json_pack("{s:s, s:s, s:s}", "name", commands[i].name, "operands",
                                            commands[i].operands, "summary", commands[i].summary));
    return json_pack("{s:o}", "commands", array);
}

static void print_command(const reef_cli_command *command) {
    printf("  %-18s%s\n", command->name, command->summary);
}

reef_status reef_cli_help_list(reef_cli_call *cli, const char *first, reef_error *err) {
    if (cli->json) return reef_cli_reply(cli, commands_json(first), err);
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    if (first != NULL) {
        printf("usage: reef %s COMMAND [POOL] [OPTIONS] [ARGUMENTS]\n\ncommands:\n", first);
        for (size_t i = 0; i < count; i++)
            if (is_group(&commands[i], first)) print_command(&commands[i]);
        return REEF_OK;
    }
    printf("reef: a lifelong-learning expert store\n\n"
           "usage: reef COMMAND [POOL] [OPTIONS] [ARGUMENTS]\n");
    size_t group_count;
    const reef_cli_group *groups = reef_cli_groups(&group_count);
    const reef_cli_command *next = commands;
    for (size_t g = 0; g < group_count; g++) {
        printf("\n%s:\n", groups[g].title);
        for (size_t i = 0; i < groups[g].count; i++) print_command(next++);
    }
    printf(
        "\nA pool is a directory: the first argument, or --pool, or REEF_POOL. Shards of a pool\n"
        "in one directory are read as that pool (`reef shards --help`). REEF_ISA (scalar,\n"
        "avx2, avx512) chooses the kernels. `reef COMMAND --help` explains a command; reefd is\n"
        "the daemon that trains a pool. Exit codes: 64 usage, 65 damaged, 66 not there, 71 no\n"
        "memory, 73 disk full, 74 reading or writing failed, 75 somebody else uses it.\n");
    return REEF_OK;
}
