// The table of commands as help, parsing and suggestions see it: whichever the program installed.
#include "cli.h"

#include "reef_edit_distance.h"

#include <stdlib.h>
#include <string.h>

static const reef_cli_command *commands;
static size_t command_count;
static const reef_cli_group *groups;
static size_t group_count;

void reef_cli_commands_install(const reef_cli_command *table,
                               size_t count,
                               const reef_cli_group *together,
                               size_t together_count) {
    commands = table;
    command_count = count;
    groups = together;
    group_count = together_count;
}

const reef_cli_group *reef_cli_groups(size_t *count) {
    *count = group_count;
    return groups;
}

const reef_cli_command *reef_cli_commands(size_t *count) {
    *count = command_count;
    return commands;
}

const reef_cli_command *reef_cli_command_find(const char *name) {
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

// What was typed is near to a name, or begins one: the nearer one stays in *guess.
static void consider(const char *typed, const char *name, size_t *nearest, char **guess) {
    size_t distance = reef_edit_distance(typed, name);
    if (distance >= *nearest) return;
    *nearest = distance;
    free(*guess);
    *guess = reef_cli_format("%s", name);
}

// "snapshot" of "snapshot list"; what is one word stays.
static char *first_word(const char *name) {
    return reef_cli_format("%.*s", (int)strcspn(name, " "), name);
}

char *reef_cli_command_guess(const char *name) {
    char *guess = NULL;
    // A name that differs in more than a third does not help.
    size_t nearest = strlen(name) / 3 + 1;
    for (size_t i = 0; i < command_count; i++) {
        char *first = first_word(commands[i].name);
        // The whole name, or the group alone.
        consider(name, commands[i].name, &nearest, &guess);
        consider(name, first, &nearest, &guess);
        free(first);
    }
    // A beginning is a good guess as well: "snap".
    for (size_t i = 0; guess == NULL && strlen(name) > 1 && i < command_count; i++)
        if (strncmp(commands[i].name, name, strlen(name)) == 0)
            guess = first_word(commands[i].name);
    return guess;
}
