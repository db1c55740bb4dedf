// The table of commands, whichever the program installed; and the options of a command: its own,
// and those that its row of the table stands for.
#include "cli.h"

#include "reef_gone.h"

#include <stdlib.h>
#include <string.h>

// ---- commands -----------------------------------------------------------------------------------

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

// ---- options ------------------------------------------------------------------------------------

// In the order of help; `trait` 0: every command has it.
static const struct {
    unsigned trait;
    reef_cli_option option;
} COMMON[] = {
    {CLI_POOL, {"pool", "POOL", "directory of the pool; also the first argument, or REEF_POOL"}},
    {CLI_POOL,
     {"verbose", NULL, "first print whether the daemon's socket is used or the pool itself"}},
    {CLI_THREADS, {"threads", "N", "threads to compute with (default: one per core)"}},
    {CLI_MEMORY,
     {"rows-memory", "SIZE",
      "memory to count on, such as 2G (default: all there is); rows of sealed experts beyond half "
      "of it are read in place"}},
    {CLI_CHANGES, {"dry-run", NULL, "print what would happen and change nothing"}},
    {CLI_CONFIRMS, {"yes", NULL, "continue without asking"}},
    {CLI_DAEMON, {"socket", "PATH", "the daemon's socket (default: reefd.sock in the pool)"}},
    {CLI_CONFIG, {"help-all", NULL, "print help with every option"}},
    {0, {"json", NULL, "answer with one JSON document"}},
    {0, {"help", NULL, "print this help"}},
};
#define COMMON_COUNT (sizeof(COMMON) / sizeof(COMMON[0]))

// One table for all commands, so that a letter means the same everywhere.
static const struct {
    char letter;
    const char *name;
} LETTERS[] = {{'h', "help"}, {'o', "out"}};

char reef_cli_letter(const char *option) {
    for (size_t i = 0; i < sizeof(LETTERS) / sizeof(LETTERS[0]); i++)
        if (strcmp(LETTERS[i].name, option) == 0) return LETTERS[i].letter;
    return '\0';
}

static bool list_has(const reef_cli_options *list, const char *name) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->options[i].name, name) == 0) return true;
    return false;
}

// What a command explains itself comes before, and stays.
static void list_add(reef_cli_options *list, const reef_cli_option *option) {
    if (!list_has(list, option->name)) list->options[list->count++] = *option;
}

// Fields of the configuration as options: d_model is --d-model. Those of layers are libreef's.
static void list_add_config(reef_cli_options *list) {
    size_t field_count, bytes = 0;
    const reef_config_field *fields = reef_config_fields(&field_count);
    for (size_t i = 0; i < field_count; i++) bytes += strlen(fields[i].name) + 1;
    list->names = reef_cli_alloc(bytes, 1);
    char *name = list->names;
    for (size_t i = 0; i < field_count; i++) {
        memcpy(name, fields[i].name, strlen(fields[i].name) + 1);
        for (char *c = name; *c; c++)
            if (*c == '_') *c = '-';
        if (list_has(list, name) || fields[i].of_layers) continue;
        list->options[list->count++] =
            (reef_cli_option){.name = name, .value = "VALUE", .help = fields[i].help};
        name += strlen(name) + 1;
    }
}

void reef_cli_options_init(reef_cli_options *list, const reef_cli_command *command) {
    const reef_cli_option *own = command->manual->options;
    size_t own_count = 0, field_count;
    reef_config_fields(&field_count);
    while (own != NULL && own[own_count].name != NULL) own_count++;
    // An upper bound, so that adding needs no checks.
    *list = (reef_cli_options){
        .options = reef_cli_alloc(own_count + field_count + COMMON_COUNT, sizeof(*list->options))};
    for (size_t i = 0; i < own_count; i++) list_add(list, &own[i]);
    if (command->traits & CLI_CONFIG) list_add_config(list);
    for (size_t i = 0; i < COMMON_COUNT; i++)
        if (COMMON[i].trait == 0 || (command->traits & COMMON[i].trait) != 0)
            list_add(list, &COMMON[i].option);
}

void reef_cli_options_release(reef_cli_options *list) {
    free(list->options);
    free(list->names);
    *list = (reef_cli_options){0};
}

const reef_config_field *reef_cli_config_field(const char *option) {
    size_t field_count;
    const reef_config_field *fields = reef_config_fields(&field_count);
    for (size_t f = 0; f < field_count; f++) {
        const char *a = option, *b = fields[f].name;
        // Compared in place, as a dash and an underscore are the same here.
        while (*a && (*a == *b || (*a == '-' && *b == '_'))) {
            a++;
            b++;
        }
        if (*a == '\0' && *b == '\0') return &fields[f];
    }
    return NULL;
}
