// What every subcommand of `reef` shares: its options, its answers, and the words people read.
//
// A command is a row of the table in commands.h and one function. The function returns a status;
// what went wrong is in `err`, and reef.c prints it in one line. Results go to standard output,
// either as text or, with --json, as exactly one JSON document; everything else goes to standard
// error.
#ifndef REEF_CLI_H
#define REEF_CLI_H

#include "cli_format.h"
#include "reef_error.h"
#include "reef_store.h"
#include "reef_trainer.h"

#include <jansson.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct reef_cli_call reef_cli_call;

/** One option of one command. */
typedef struct reef_cli_option {
    const char *name;  // without the dashes
    const char *value; // what it is called in help; "[=WHAT]": it may lack; NULL for a flag
    const char *help;  // one line
} reef_cli_option;

/** Help beyond the one line of the table. */
typedef struct reef_cli_manual {
    const char *about;              // a paragraph, lines already broken
    const reef_cli_option *options; // ends with a NULL name; NULL for none
    const char *const *first; // names of those that help shows; NULL: all. --help-all shows all
    const char *example;      // one or more lines, each a command
} reef_cli_manual;

// What a command takes besides its own options.
typedef enum reef_cli_traits {
    CLI_POOL = 1,                            // works on a pool
    CLI_CONFIG = 2,                          // every field of the configuration is an option
    CLI_CHANGES = 4,                         // changes something: --dry-run
    CLI_DAEMON = 8,                          // asks the daemon where one runs: --socket
    CLI_THREADS = 16,                        // computes: --threads
    CLI_CONFIRMS = 32,                       // asks a person before it continues: --yes
    CLI_MEMORY = 64,                         // can leave sealed rows on the disk: --rows-memory
    CLI_COMPUTES = CLI_THREADS | CLI_MEMORY, // runs the model of a pool
} reef_cli_traits;

/** One row of the table of commands. */
typedef struct reef_cli_command {
    const char *name;     // "eval", "snapshot create"
    const char *operands; // how help writes them, after the pool
    int operand_min;
    int operand_max; // -1 for any number
    unsigned traits;
    const char *summary; // one line
    const reef_cli_manual *manual;
    reef_status (*run)(reef_cli_call *cli, reef_error *err);
} reef_cli_command;

/** One option as it was given. */
typedef struct reef_cli_given {
    const char *name, *value;
} reef_cli_given;

struct reef_cli_call {
    const reef_cli_command *command;
    const char *pool; // NULL when the command takes none
    char **operands;
    size_t operand_count;
    reef_cli_given *given;
    size_t given_count;
    bool json, verbose, dry_run;
    size_t threads;        // 0: one per core
    uint64_t memory_bytes; // 0: what the machine has
    bool answered;         // a JSON document has been written
    json_t *lost_kinds;    // an array: kinds that are damaged, of models that were opened
};

/** Commands that help shows together: so many of the table, after those of the group before. */
typedef struct reef_cli_group {
    const char *title;
    size_t count;
} reef_cli_group;

// ---- cli_commands.c: the table of commands, and the options of a command -----------------------

const reef_cli_command *reef_cli_commands(size_t *count);
const reef_cli_group *reef_cli_groups(size_t *count);
/** The tables that all of this is about from now on; not copied. */
void reef_cli_commands_install(const reef_cli_command *table,
                               size_t count,
                               const reef_cli_group *groups,
                               size_t group_count);
/** The command called `name`, or NULL. */
const reef_cli_command *reef_cli_command_find(const char *name);
/**
 * The command, or the first word of several, that is nearest to `name`; NULL if none is near. On
 * the heap.
 */
char *reef_cli_command_guess(const char *name);

/**
 * The options of a command in the order of its help: its own, the configuration's, the common
 * ones.
 */
typedef struct reef_cli_options {
    reef_cli_option *options;
    size_t count;
    char *names; // of configuration fields, with dashes
} reef_cli_options;

void reef_cli_options_init(reef_cli_options *list, const reef_cli_command *command);
void reef_cli_options_release(reef_cli_options *list);
/** The letter that stands for an option in every command that has it, or '\0': -o for --out. */
char reef_cli_letter(const char *option);
/** The field of the configuration that an option sets, or NULL: --d-model sets d_model. */
const reef_config_field *reef_cli_config_field(const char *option);

// ---- cli_args.c: options and answers ------------------------------------------------------------

/**
 * Read the arguments after the command's name. What is wrong with them is INVALID, in one line that
 * names the option and the nearest one that exists. *help is set when help was asked for; then
 * nothing else was checked. Release with reef_cli_release.
 */
REEF_MUST_CHECK reef_status reef_cli_parse(reef_cli_call *cli,
                                           const reef_cli_command *command,
                                           int argc,
                                           char **argv,
                                           bool *help,
                                           reef_error *err);
void reef_cli_release(reef_cli_call *cli);

/** The value of an option (the last one given), or NULL. A given flag has the value "". */
const char *reef_cli_text(const reef_cli_call *cli, const char *name);
/** The next value of an option that may be given several times, or NULL; *cursor starts at 0. */
const char *reef_cli_next(const reef_cli_call *cli, const char *name, size_t *cursor);
/** Read an option as a number between bounds; *out keeps its value when the option is not given. */
REEF_MUST_CHECK reef_status reef_cli_integer(const reef_cli_call *cli,
                                             const char *name,
                                             uint64_t low,
                                             uint64_t high,
                                             uint64_t *out,
                                             reef_error *err);
REEF_MUST_CHECK reef_status reef_cli_number(const reef_cli_call *cli,
                                            const char *name,
                                            double low,
                                            double high,
                                            double *out,
                                            reef_error *err);
/**
 * Read an option as a time: 2024-05-01, 2024-05-01T12:00 or 2024-05-01T12:00:30 (local time), or
 * how long ago: 90s, 30m, 3h, 2d, 4w, with or without " ago". *out (unix ms) keeps its value when
 * the option is not given. INVALID for anything else.
 */
REEF_MUST_CHECK reef_status reef_cli_time_read(
    const reef_cli_call *cli, const char *name, uint64_t now_ms, uint64_t *out, reef_error *err);
/**
 * Read --since and --until: *since_ms keeps its value if it is not given, *until_ms is then
 * UINT64_MAX; *ranged is true if one of them is given. INVALID if the range is empty.
 */
REEF_MUST_CHECK reef_status reef_cli_time_range(const reef_cli_call *cli,
                                                bool *ranged,
                                                uint64_t *since_ms,
                                                uint64_t *until_ms,
                                                reef_error *err);
/**
 * Ask people at a terminal to type yes; without one, with --json or with --yes nothing is asked.
 *
 * what  what is about to happen, a sentence without its end
 * Errors: INVALID they typed something else; nothing was changed.
 */
REEF_MUST_CHECK reef_status reef_cli_confirm(const reef_cli_call *cli,
                                             const char *what,
                                             reef_error *err);
/** Write the one JSON document of this run and take it over. NULL means it could not be built. */
REEF_MUST_CHECK reef_status reef_cli_reply(reef_cli_call *cli, json_t *document, reef_error *err);
/** A JSON number, or null for what is not finite. */
json_t *reef_cli_real(double value);
/** A member of an object that counts something; 0 where there is none. */
uint64_t reef_cli_count_of(const json_t *object, const char *name);
/** A member that is a number, or a text; 0 or "" where there is none. */
double reef_cli_real_of(const json_t *object, const char *name);
const char *reef_cli_text_of(const json_t *object, const char *name);
/** A path as JSON text, in which bytes that are not UTF-8 are written as \xNN. */
json_t *reef_cli_path(const char *path);
/** A number where it is known, otherwise null. */
json_t *reef_cli_known(bool known, uint64_t value);
/** A name, or null where there is none. */
json_t *reef_cli_name(const char *name);

// ---- cli_help.c: the texts of --help ------------------------------------------------------------

/** Print a command's help, as text or as JSON. */
reef_status reef_cli_help(reef_cli_call *cli, const reef_cli_command *command, reef_error *err);
/** Whether `first` is the first word of commands of two words. */
bool reef_cli_group_has(const char *first);
/**
 * Report that no such command exists, with the nearest one. second: the word after it, or NULL.
 */
REEF_MUST_CHECK reef_status reef_cli_command_unknown(const char *first,
                                                     const char *second,
                                                     reef_error *err);
/** Print the list of the commands whose name begins with the word `first`; NULL: of all. */
reef_status reef_cli_help_list(reef_cli_call *cli, const char *first, reef_error *err);

#endif
