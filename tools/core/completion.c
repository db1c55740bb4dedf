// See completion.h.
//
// The name that help gives an option's value decides what follows it: FILE, DIRECTORY, a|b|c. The
// same holds for arguments; of a command on a pool the first one may be a directory.
#include "completion.h"

#include "cli.h"
#include "cli_help.h"
#include "reef_settings.h"

#include <stdlib.h>
#include <string.h>

typedef enum value_kind {
    VALUE_NONE,
    VALUE_FILE,
    VALUE_DIRECTORY,
    VALUE_WORDS,
    VALUE_OTHER
} value_kind;

static bool is_any(const char *name, const char *const *names) {
    for (; *names != NULL; names++)
        if (strstr(name, *names) != NULL) return true;
    return false;
}

static value_kind kind_of(const char *value) {
    static const char *const DIRECTORIES[] = {"POOL", "DIR", "OUT", NULL};
    static const char *const FILES[] = {"FILE",    "PATH",   "SCRIPT", "PROGRAM",
                                        "VECTORS", "SOURCE", "HELD",   NULL};
    if (value == NULL || !value[0]) return VALUE_NONE;
    if (strchr(value, '|') != NULL) return VALUE_WORDS;
    if (is_any(value, DIRECTORIES)) return VALUE_DIRECTORY;
    return is_any(value, FILES) ? VALUE_FILE : VALUE_OTHER;
}

// ---- pieces -------------------------------------------------------------------------------------

static void put_choices(FILE *out, const char *value, char between) {
    for (; value != NULL && *value; value++) fputc(*value == '|' ? between : *value, out);
}

// Inside single quotes of sh and zsh; `brackets` are escaped for _arguments of zsh.
static void put_quoted(FILE *out, const char *text, bool brackets) {
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (brackets && (*text == '[' || *text == ']'))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static void put_quoted_fish(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') fputc('\\', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
}

// Calls `visit` once for each first word of a command, with the row in which it comes first.
static void each_first_word(FILE *out,
                            void (*visit)(FILE *, const reef_cli_command *, const char *word)) {
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(commands[i].name, " ");
        bool seen = false;
        // Groups stand together in the table, but this does not rely on it.
        for (size_t k = 0; k < i && !seen; k++)
            seen = strncmp(commands[k].name, commands[i].name, length) == 0 &&
                   strcspn(commands[k].name, " ") == length;
        if (seen) continue;
        char *word = reef_cli_format("%.*s", (int)length, commands[i].name);
        visit(out, &commands[i], word);
        free(word);
    }
}

// The second words after `first`; `put_one` writes one of them.
static void each_second_word(FILE *out,
                             const char *first,
                             void (*put_one)(FILE *, const char *, const reef_cli_command *)) {
    size_t count, length = strlen(first);
    const reef_cli_command *commands = reef_cli_commands(&count);
    for (size_t i = 0; i < count; i++)
        if (strncmp(commands[i].name, first, length) == 0 && commands[i].name[length] == ' ')
            put_one(out, commands[i].name + length + 1, &commands[i]);
}

// An option of reef or of reefd; `letter` '\0': it has none.
typedef void (*put_one_option)(FILE *out,
                               char letter,
                               const char *name,
                               const char *value,
                               const char *help,
                               const void *context);

static void each_option(FILE *out,
                        const reef_cli_command *command,
                        put_one_option put,
                        const void *context) {
    reef_cli_options list;
    reef_cli_options_init(&list, command);
    for (size_t i = 0; i < list.count; i++)
        put(out, reef_cli_letter(list.options[i].name), list.options[i].name, list.options[i].value,
            list.options[i].help, context);
    reef_cli_options_release(&list);
}

static void each_daemon_option(FILE *out, put_one_option put, const void *context) {
    size_t count;
    const reef_option_text *options = reef_option_texts(&count);
    for (size_t i = 0; i < count; i++)
        put(out, '\0', options[i].name, options[i].value, options[i].help, context);
}

// ---- bash ---------------------------------------------------------------------------------------

static const char BASH_HEAD[] =
    "# Completion of reef(1) and reefd(8) for bash. Made by: reef completion bash\n"
    "# shellcheck shell=bash\n"
    "\n"
    "_reef_words() {\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\")\n"
    "}\n"
    "\n"
    "_reef_paths() { # f: files, d: directories\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen \"-$1\" -- \"$cur\")\n"
    "}\n"
    "\n"
    "# What stands in options, files, directories, values, words and operands of the command.\n"
    "_reef_complete() {\n"
    "    case \" $files \" in *\" $prev \"*) _reef_paths f && return ;; esac\n"
    "    case \" $directories \" in *\" $prev \"*) _reef_paths d && return ;; esac\n"
    "    case \" $values \" in *\" $prev \"*) return ;; esac\n"
    "    case \" $words\" in *\" $prev=\"*)\n"
    "        local choices=\" $words\"\n"
    "        choices=${choices#*\" $prev=\"}\n"
    "        choices=${choices%% *}\n"
    "        _reef_words \"${choices//,/ }\"\n"
    "        return\n"
    "        ;;\n"
    "    esac\n"
    "    case $cur in -*) _reef_words \"$options\" && return ;; esac\n"
    "    case $operands in\n"
    "    '') ;;\n"
    "    f | d) _reef_paths \"$operands\" ;;\n"
    "    *) _reef_words \"$operands\" ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "# bash takes --size=small apart.\n"
    "_reef_word() {\n"
    "    cur=${COMP_WORDS[COMP_CWORD]}\n"
    "    prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    [ \"$cur\" = = ] && cur=''\n"
    "    [ \"$prev\" = = ] && prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    COMPREPLY=()\n"
    "}\n";

typedef struct bash_list {
    const char *name;
    value_kind kind;
    bool any;
} bash_list;

static const bash_list BASH_LISTS[] = {{"options", VALUE_NONE, true},
                                       {"files", VALUE_FILE, false},
                                       {"directories", VALUE_DIRECTORY, false},
                                       {"values", VALUE_OTHER, false},
                                       {"words", VALUE_WORDS, false}};
#define BASH_LIST_COUNT (sizeof(BASH_LISTS) / sizeof(BASH_LISTS[0]))

static void bash_option(FILE *out,
                        char letter,
                        const char *name,
                        const char *value,
                        const char *help,
                        const void *context) {
    const bash_list *list = context;
    (void)help;
    if (!list->any && kind_of(value) != list->kind) return;
    if (letter != '\0' && list->kind != VALUE_WORDS) fprintf(out, " -%c", letter);
    fprintf(out, " --%s", name);
    if (list->kind != VALUE_WORDS) return;
    fputc('=', out);
    put_choices(out, value, ',');
}

static void bash_lists(FILE *out, const reef_cli_command *command) {
    for (size_t i = 0; i < BASH_LIST_COUNT; i++) {
        fprintf(out, "        %s='", BASH_LISTS[i].name);
        if (command != NULL)
            each_option(out, command, bash_option, &BASH_LISTS[i]);
        else
            each_daemon_option(out, bash_option, &BASH_LISTS[i]);
        fputs("'\n", out);
    }
}

static void bash_first(FILE *out, const reef_cli_command *command, const char *word) {
    (void)command;
    fprintf(out, " %s", word);
}

static void bash_second(FILE *out, const char *word, const reef_cli_command *command) {
    (void)command;
    fprintf(out, " %s", word);
}

static void bash_group(FILE *out, const reef_cli_command *command, const char *word) {
    (void)command;
    if (!reef_cli_group_has(word)) return;
    fprintf(out, "    %s)\n        if [ \"$COMP_CWORD\" -eq 2 ]; then\n            _reef_words '",
            word);
    each_second_word(out, word, bash_second);
    fputs("'\n            return\n        fi\n        command=\"$command ${COMP_WORDS[2]}\"\n      "
          "  ;;\n",
          out);
}

static void bash_operands(FILE *out, const reef_cli_command *command) {
    fputs("        operands='", out);
    // What an operand is follows from its name in the synopsis, so there is no second table.
    value_kind kind = kind_of(command->operands);
    if (kind == VALUE_WORDS) put_choices(out, command->operands, ' ');
    // `reef help` completes commands.
    else if (strstr(command->operands, "COMMAND") != NULL)
        each_first_word(out, bash_first);
    else if (kind == VALUE_FILE)
        fputc('f', out);
    // A pool is a directory.
    else if (kind == VALUE_DIRECTORY || command->traits & CLI_POOL)
        fputc('d', out);
    fputs("'\n", out);
}

static void write_bash(FILE *out) {
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    // Locals, so that the function leaves nothing in the user's shell.
    static const char LOCALS[] = "    local cur prev options='' files='' directories='' values='' "
                                 "words='' operands=''\n    _reef_word\n";
    fprintf(out, "%s\n_reef() {\n%s    local command=${COMP_WORDS[1]}\n", BASH_HEAD, LOCALS);
    // The first word is the command; the general options may stand there too.
    fputs("    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        _reef_words '", out);
    each_first_word(out, bash_first);
    fputs(" --help --version'\n        return\n    fi\n    case $command in\n", out);
    // A group takes its second word before options.
    each_first_word(out, bash_group);
    fputs("    esac\n    case $command in\n", out);
    // One case for each command, with its own options.
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "    '%s')\n", commands[i].name);
        bash_lists(out, &commands[i]);
        bash_operands(out, &commands[i]);
        fputs("        ;;\n", out);
    }
    // reefd has its own function, from the same table of settings.
    fprintf(out, "    esac\n    _reef_complete\n}\n\n_reefd() {\n%s", LOCALS);
    bash_lists(out, NULL);
    fputs("    _reef_complete\n}\n\ncomplete -F _reef reef\ncomplete -F _reefd reefd\n", out);
}

// ---- zsh ----------------------------------------------------------------------------------------

static void zsh_option(FILE *out,
                       char letter,
                       const char *name,
                       const char *value,
                       const char *help,
                       const void *context) {
    (void)context;
    bool valued = value != NULL;
    // The star lets an option be given again, since some collect values.
    fputs(" \\\n        '*", out);
    // zsh expands the braces, so that both are one option.
    if (letter != '\0')
        fprintf(out, "'{-%c%s,--%s%s}'", letter, valued ? "+" : "", name, valued ? "=" : "");
    else
        fprintf(out, "--%s%s", name, valued ? "=" : "");
    fputs("[", out);
    // Help texts hold quotes and brackets, which zsh would read.
    put_quoted(out, help, true);
    fputs("]", out);
    // The message of zsh for the value.
    if (valued) fputs(":value:", out);
    switch (kind_of(value)) {
    case VALUE_FILE:
        fputs("_files", out);
        break;
    case VALUE_DIRECTORY:
        fputs("_directories", out);
        break;
    case VALUE_WORDS:
        fputc('(', out);
        put_choices(out, value, ' ');
        fputc(')', out);
        break;
    default:
        break;
    }
    fputc('\'', out);
}

static void zsh_first(FILE *out, const reef_cli_command *command, const char *word) {
    fprintf(out, "            '%s:", word);
    if (reef_cli_group_has(word))
        fprintf(out, "several commands: reef help %s", word);
    else
        put_quoted(out, command->summary, false);
    fputs("'\n", out);
}

static void zsh_second(FILE *out, const char *word, const reef_cli_command *command) {
    fprintf(out, "                '%s:", word);
    put_quoted(out, command->summary, false);
    fputs("'\n", out);
}

static void zsh_group(FILE *out, const reef_cli_command *command, const char *word) {
    (void)command;
    if (!reef_cli_group_has(word)) return;
    fprintf(out, "    %s)\n        if (( CURRENT == 3 )); then\n            local -a second=(\n",
            word);
    each_second_word(out, word, zsh_second);
    fputs("            )\n            _describe -t commands command second\n            return\n   "
          "     fi\n"
          "        name+=\" $words[3]\"\n        skip=2\n        ;;\n",
          out);
}

static void zsh_words(FILE *out, const reef_cli_command *command, const char *word) {
    (void)command;
    fprintf(out, "%s ", word);
}

static void zsh_operands(FILE *out, const reef_cli_command *command) {
    // The same rules as for bash, in zsh's syntax.
    value_kind kind = kind_of(command->operands);
    if (kind == VALUE_WORDS) {
        fputs(" \\\n        '*:argument:(", out);
        put_choices(out, command->operands, ' ');
        fputs(")'", out);
    } else if (strstr(command->operands, "COMMAND") != NULL) {
        fputs(" \\\n        '*:command:(", out);
        each_first_word(out, zsh_words);
        fputs(")'", out);
    } else if (kind == VALUE_FILE) {
        fputs(" \\\n        '*:file:_files'", out);
    } else if (kind == VALUE_DIRECTORY || command->traits & CLI_POOL) {
        fputs(" \\\n        '*:directory:_directories'", out);
    }
}

static void write_zsh(FILE *out) {
    // Generated as one function with a case for each command, so that zsh loads it once.
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    fputs("#compdef reef reefd\n# Completion of reef(1) and reefd(8) for zsh. Made by: reef "
          "completion zsh\n\n"
          "_reef_arguments() {\n    case $1 in\n",
          out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "    '%s')\n        _arguments", commands[i].name);
        each_option(out, &commands[i], zsh_option, NULL);
        zsh_operands(out, &commands[i]);
        fputs("\n        ;;\n", out);
    }
    fputs("    'reefd')\n        _arguments", out);
    each_daemon_option(out, zsh_option, NULL);
    fputs("\n        ;;\n    esac\n}\n\n_reef() {\n"
          "    if [[ $service == reefd ]]; then\n        _reef_arguments reefd\n        return\n   "
          " fi\n"
          "    if (( CURRENT == 2 )); then\n        local -a first=(\n",
          out);
    each_first_word(out, zsh_first);
    fputs("        )\n        _describe -t commands command first\n        return\n    fi\n"
          "    local name=$words[2]\n    integer skip=1\n    case $name in\n",
          out);
    each_first_word(out, zsh_group);
    fputs("    esac\n    shift $skip words\n    (( CURRENT -= skip ))\n    _reef_arguments "
          "$name\n}\n\n"
          "if [[ $funcstack[1] == _reef ]]; then\n    _reef \"$@\"\nelse\n    compdef _reef reef "
          "reefd\nfi\n",
          out);
}

// ---- fish ---------------------------------------------------------------------------------------

static void fish_option(FILE *out,
                        char letter,
                        const char *name,
                        const char *value,
                        const char *help,
                        const void *context) {
    const char *command = context;
    // A condition for each command; reefd has none.
    if (command != NULL)
        fprintf(out, "complete -c reef -n '__reef_is %s' -l %s", command, name);
    else
        fprintf(out, "complete -c reefd -l %s", name);
    if (letter != '\0') fprintf(out, " -s %c", letter);
    // fish has its own form for values.
    switch (kind_of(value)) {
    case VALUE_NONE:
        break;
    case VALUE_FILE:
        fputs(" -r -F", out);
        break;
    case VALUE_DIRECTORY:
        fputs(" -x -a '(__fish_complete_directories)'", out);
        break;
    case VALUE_WORDS:
        fputs(" -x -a '", out);
        put_choices(out, value, ' ');
        fputc('\'', out);
        break;
    case VALUE_OTHER:
        fputs(" -x", out);
        break;
    }
    fputs(" -d '", out);
    put_quoted_fish(out, help);
    fputs("'\n", out);
}

static void fish_first(FILE *out, const reef_cli_command *command, const char *word) {
    fprintf(out, "complete -c reef -n '__reef_has 1' -a %s -d '", word);
    if (reef_cli_group_has(word))
        fprintf(out, "several commands: reef help %s", word);
    else
        put_quoted_fish(out, command->summary);
    fputs("'\n", out);
}

static void fish_operands(FILE *out, const reef_cli_command *command) {
    // The same rules as for bash, in fish's syntax.
    value_kind kind = kind_of(command->operands);
    if (kind == VALUE_WORDS) {
        fprintf(out, "complete -c reef -n '__reef_is %s' -a '", command->name);
        put_choices(out, command->operands, ' ');
        fputs("'\n", out);
    } else if (strstr(command->operands, "COMMAND") != NULL) {
        fprintf(out, "complete -c reef -n '__reef_is %s' -a '", command->name);
        each_first_word(out, zsh_words);
        fputs("'\n", out);
    } else if (kind == VALUE_FILE) {
        fprintf(out, "complete -c reef -n '__reef_is %s' -F\n", command->name);
    } else if (kind == VALUE_DIRECTORY || command->traits & CLI_POOL) {
        fprintf(out, "complete -c reef -n '__reef_is %s' -a '(__fish_complete_directories)'\n",
                command->name);
    }
}

static void write_fish(FILE *out) {
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    fputs("# Completion of reef(1) and reefd(8) for fish. Made by: reef completion fish\n\n"
          "# The words before the cursor are so many, and begin with these.\n"
          "function __reef_has\n"
          "    set -l given (commandline -opc)\n"
          "    test (count $given) -eq $argv[1]; or return 1\n"
          "    test (count $argv) -eq 1; or test \"$given[2]\" = \"$argv[2]\"\n"
          "end\n\n"
          "# The command is this one.\n"
          "function __reef_is\n"
          "    set -l given (commandline -opc)\n"
          "    set -l last (math (count $argv) + 1)\n"
          "    test (count $given) -ge $last; and test \"$given[2..$last]\" = \"$argv\"\n"
          "end\n\n"
          "complete -c reef -f\ncomplete -c reefd -f\n",
          out);
    each_first_word(out, fish_first);
    // Second words of groups are offered only after the first.
    for (size_t i = 0; i < count; i++) {
        const char *second = strchr(commands[i].name, ' ');
        if (second != NULL) {
            fprintf(out, "complete -c reef -n '__reef_has 2 %.*s' -a %s -d '",
                    (int)(second - commands[i].name), commands[i].name, second + 1);
            put_quoted_fish(out, commands[i].summary);
            fputs("'\n", out);
        }
        each_option(out, &commands[i], fish_option, commands[i].name);
        fish_operands(out, &commands[i]);
    }
    each_daemon_option(out, fish_option, NULL);
}

bool reef_completion_write(FILE *out, const char *shell) {
    static const struct {
        const char *name;
        void (*write)(FILE *out);
    } SHELLS[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};
    for (size_t i = 0; i < sizeof(SHELLS) / sizeof(SHELLS[0]); i++) {
        if (strcmp(SHELLS[i].name, shell) != 0) continue;
        SHELLS[i].write(out);
        return true;
    }
    return false;
}
