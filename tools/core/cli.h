// What every subcommand of `reef` shares: its options, its answers, and the words people read.
//
// A command is a row of the table in commands.c and one function. The function returns a status;
// what went wrong is in `err`, and reef.c prints it in one line. Results go to standard output,
// either as text or, with --json, as exactly one JSON document; everything else goes to standard
// error.
#ifndef REEF_CLI_H
#define REEF_CLI_H

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
    const char *value; // what the value is called in help; NULL for a flag
    const char *help;  // one line
} reef_cli_option;

/** What help says beyond the one line of the table. */
typedef struct reef_cli_manual {
    const char *about;              // a paragraph, lines already broken
    const reef_cli_option *options; // ends with a NULL name; NULL for none
    const char *example;            // one or more lines, each a command
} reef_cli_manual;

// What a command takes besides its own options.
typedef enum reef_cli_traits {
    CLI_POOL = 1,     // works on a pool
    CLI_CONFIG = 2,   // every field of the configuration is an option
    CLI_CHANGES = 4,  // changes something: --dry-run
    CLI_DAEMON = 8,   // asks the daemon where one runs: --socket
    CLI_THREADS = 16, // computes: --threads
    CLI_ASKS = 32,    // asks people before it goes on: --yes
    CLI_RUNS = 64,    // becomes reefd: all of its options; its file may name the pool
    CLI_MEMORY = 128, // can leave sealed experts on the disk: --memory
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
};

// ---- commands.c: the table ----------------------------------------------------------------------

const reef_cli_command *reef_cli_commands(size_t *count);
/** The table that all of this is about from now on; not copied. */
void reef_cli_commands_install(const reef_cli_command *table, size_t count);
/** The command called `name`, or NULL. */
const reef_cli_command *reef_cli_command_find(const char *name);
/**
 * The command, or the first word of several, that looks most like `name`; NULL when none does. On
 * the heap.
 */
char *reef_cli_command_guess(const char *name);

// ---- cli_options.c: the options of a command ----------------------------------------------------

/**
 * The options of a command in the order of its help: its own, the configuration's or reefd's, the
 * common ones.
 */
typedef struct reef_cli_options {
    reef_cli_option *options;
    size_t count;
    char *names; // of configuration fields with dashes, or of opposites of switches
} reef_cli_options;

void reef_cli_options_init(reef_cli_options *list, const reef_cli_command *command);
void reef_cli_options_release(reef_cli_options *list);
/** The field of the configuration that an option sets, or NULL: --d-model sets d_model. */
const reef_config_field *reef_cli_config_field(const char *option);

// ---- cli_args.c: options and answers ------------------------------------------------------------

/** Cells of memory, zeroed. A tool that runs out of memory says so and ends with 71. */
void *reef_cli_alloc(size_t count, size_t bytes);
/** The same for text: a copy of what printf would write. */
char *reef_cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

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
/** The default configuration with every field that was given as an option, checked as a whole. */
REEF_MUST_CHECK reef_status reef_cli_config(const reef_cli_call *cli,
                                            reef_config *config,
                                            reef_error *err);

/** Write the one JSON document of this run and take it over. NULL means it could not be built. */
REEF_MUST_CHECK reef_status reef_cli_answer(reef_cli_call *cli, json_t *document, reef_error *err);
/** A JSON number, or null for what is not finite. */
json_t *reef_cli_real(double value);
/** A path as JSON text, in which bytes that are not UTF-8 are written as \xNN. */
json_t *reef_cli_path(const char *path);

// ---- cli_help.c: what help says -----------------------------------------------------------------

/** Print a command's help, as text or as JSON. */
reef_status reef_cli_help(reef_cli_call *cli, const reef_cli_command *command, reef_error *err);
/** Whether there are commands of two words of which this is the first. */
bool reef_cli_group_has(const char *first);
/**
 * Say that there is no such command, and which may be meant. second: the word after it, or NULL.
 */
REEF_MUST_CHECK reef_status reef_cli_command_unknown(const char *first,
                                                     const char *second,
                                                     reef_error *err);
/** Print the list of the commands whose name begins with the word `first`; NULL: of all. */
reef_status reef_cli_help_list(reef_cli_call *cli, const char *first, reef_error *err);

// ---- cli_terminal.c: people at a terminal -------------------------------------------------------

/**
 * Whether text on standard output may have colours: on a terminal that has them, and not with
 * NO_COLOR.
 */
bool reef_cli_colours(void);
/**
 * Ask people at a terminal to type yes; without one, with --json or with --yes nothing is asked.
 *
 * what  what is about to happen, a sentence without its end
 * Errors: INVALID they typed something else; nothing was changed.
 */
REEF_MUST_CHECK reef_status reef_cli_confirm(const reef_cli_call *cli,
                                             const char *what,
                                             reef_error *err);

// ---- cli_format.c: numbers and text for people --------------------------------------------------

#define CLI_WORD_BYTES 40

/** 1,234,567 */
const char *reef_cli_count(uint64_t value, char out[CLI_WORD_BYTES]);
/** 1.4 MB */
const char *reef_cli_bytes(uint64_t bytes, char out[CLI_WORD_BYTES]);
/** 2 min 5 s */
const char *reef_cli_duration(double seconds, char out[CLI_WORD_BYTES]);
/** Shares as percentages in a row, "100 0.02". On the heap. */
char *reef_cli_shares(const double *shares, size_t count);
/** 2024-05-01 12:00:00, local time */
const char *reef_cli_time(uint64_t unix_ms, char out[CLI_WORD_BYTES]);
/** Seconds of a clock that never goes back. */
double reef_cli_clock(void);

/**
 * Bytes as text that any terminal shows: UTF-8 stays, what is not UTF-8 and control characters
 * become \xNN. Line ends stay with `lines`, and become \n without. On the heap.
 */
char *reef_cli_printable(const uint8_t *bytes, size_t count, bool lines);
/** UTF-8 text in at most so many columns, with an ellipsis where something was cut. On the heap. */
char *reef_cli_cut(const char *text, size_t columns);
/** Columns of UTF-8 text in a terminal: two of a wide character, none of an accent by itself. */
size_t reef_cli_width(const char *text);

// ---- cli_time.c: times as people type them ------------------------------------------------------

/** The wall clock, ms since 1970. */
uint64_t reef_cli_now_ms(void);
/**
 * A moment as people write it, such as 2024-05-01T12:00 or 3h, in ms since 1970; false where it is
 * none.
 */
bool reef_cli_time_parse(const char *text, uint64_t now_ms, uint64_t *out);
/**
 * Read an option as a time: 2024-05-01, 2024-05-01T12:00 or 2024-05-01T12:00:30 (local time), or
 * how long ago: 90s, 30m, 3h, 2d, 4w, with or without " ago". *out (unix ms) keeps its value when
 * the option is not given. INVALID for anything else.
 */
REEF_MUST_CHECK reef_status reef_cli_time_read(
    const reef_cli_call *cli, const char *name, uint64_t now_ms, uint64_t *out, reef_error *err);
/**
 * Read --since and --until: *since_ms keeps its value when it is not given, *until_ms is then
 * UINT64_MAX; *ranged says whether one of them is. INVALID where there is no time between them.
 */
REEF_MUST_CHECK reef_status reef_cli_time_range(const reef_cli_call *cli,
                                                bool *ranged,
                                                uint64_t *since_ms,
                                                uint64_t *until_ms,
                                                reef_error *err);

// ---- cli_table.c: tables that line up -----------------------------------------------------------

typedef struct reef_cli_table reef_cli_table;

/**
 * `columns` has one letter per column: '<' for text, '>' for numbers; `headings` one word for each.
 */
reef_cli_table *reef_cli_table_new(const char *columns, const char *const *headings);
void reef_cli_table_free(reef_cli_table *table);
/** Add the next cell, printable as reef_cli_printable makes it; rows fill from left to right. */
void reef_cli_table_cell(reef_cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void reef_cli_table_print(const reef_cli_table *table, FILE *out);

// ---- cli_progress.c: how far a long job is ------------------------------------------------------

/** A bar on standard error, only on a terminal and only for what takes more than two seconds. */
typedef struct reef_cli_progress {
    const char *label;
    uint64_t done_before; // of the jobs before this one
    uint64_t total;
    const char *unit; // "B" for bytes, otherwise a word
    double started, drawn;
    bool terminal, visible;
} reef_cli_progress;

void reef_cli_progress_start(reef_cli_progress *progress,
                             const char *label,
                             uint64_t total,
                             const char *unit);
void reef_cli_progress_show(reef_cli_progress *progress, uint64_t done);
/** Wipe the bar. */
void reef_cli_progress_end(reef_cli_progress *progress);

// ---- cli_pool.c: pools and files ----------------------------------------------------------------

/** What reading commands need to know of a pool, copied out by one short transaction. */
typedef struct reef_cli_pool {
    reef_store *store;
    reef_config config;
    reef_commit commit;
    reef_tasks tasks;
    reef_generation_record *generations;
    uint32_t generation_count;
    uint64_t file_bytes;
} reef_cli_pool;

/** Open the command's pool for reading. */
REEF_MUST_CHECK reef_status reef_cli_pool_open(reef_cli_pool *pool,
                                               const reef_cli_call *cli,
                                               reef_error *err);
/** Read everything but the store again. */
REEF_MUST_CHECK reef_status reef_cli_pool_refresh(reef_cli_pool *pool, reef_error *err);
void reef_cli_pool_close(reef_cli_pool *pool); // accepts the zeroed pool

/** Whether boundaries count tasks of one generation, instead of sealing it. */
bool reef_cli_keeps_one_generation(const reef_cli_pool *pool);
/** INVALID for a layer by itself, which no command trains. */
REEF_MUST_CHECK reef_status reef_cli_pool_has_stream(const reef_cli_pool *pool, reef_error *err);
/** A position in the stream as people count it: in bytes of a text, in examples, or in rows. */
uint64_t reef_cli_stream_units(const reef_config *config, uint64_t bytes);
/** Bytes of the stream that such a unit takes. */
size_t reef_cli_stream_unit_bytes(const reef_config *config);
/** What it is then counted in: "byte", "example", or "row" of a layer by itself. */
const char *reef_cli_stream_unit(const reef_config *config);
/** Whether the feed-forward network of a block retrieves experts: kinds p and k. */
bool reef_cli_layer_is_peer(const reef_config *config, uint32_t layer);
/** Number of such layers of a configuration. */
uint32_t reef_cli_peer_layers(const reef_config *config);
/** Experts of one generation in all layers together. */
uint64_t reef_cli_generation_experts(const reef_cli_pool *pool,
                                     const reef_generation_record *generation);
/** The generation that has its content: itself, or that into which it was consolidated. */
uint32_t reef_cli_generation_merged_into(const reef_cli_pool *pool,
                                         const reef_generation_record *generation);
json_t *reef_cli_generation_json(const reef_cli_pool *pool,
                                 const reef_generation_record *generation);
json_t *reef_cli_commit_json(const reef_commit *commit);

#define CLI_FILE_BYTES_MAX ((size_t)1 << 30) // a text is held in memory as a whole

/** A text in memory. */
typedef struct reef_cli_file {
    const char *path;
    uint8_t *bytes;
    size_t count;
} reef_cli_file;

/**
 * Read a file as a whole; "-" is standard input. NOT_FOUND when it is not there or not readable.
 */
REEF_MUST_CHECK reef_status reef_cli_file_read(reef_cli_file *file,
                                               const char *path,
                                               reef_error *err);
/** The same for a text to score: INVALID when there is nothing in it to predict. */
REEF_MUST_CHECK reef_status reef_cli_text_read(reef_cli_file *file,
                                               const char *path,
                                               reef_error *err);
void reef_cli_file_release(reef_cli_file *file); // accepts the zeroed file
/**
 * Say that a file could not be written, and why; `code` is an errno: FULL where the disk is full,
 * otherwise IO.
 */
REEF_MUST_CHECK reef_status reef_cli_write_failed(const char *path, int code, reef_error *err);
/**
 * Make a directory for `file` and others, or accept one that is there. INVALID where it is a pool;
 * IO.
 */
REEF_MUST_CHECK reef_status reef_cli_output_directory(const char *path,
                                                      const char *file,
                                                      reef_error *err);

// ---- cli_tokens.c: bytes of text, or ids --------------------------------------------------------

/** Are the pool's tokens ids of a vocabulary, and no bytes of text? */
bool reef_cli_has_ids(const reef_config *config);
/**
 * What a loss is counted by: "byte" or "token"; names of figures for programs, and words for
 * people.
 */
const char *reef_cli_token_word(const reef_config *config);
const char *reef_cli_bits_name(const reef_config *config);       // "bits_per_byte"
const char *reef_cli_bits_words(const reef_config *config);      // "bits per byte"
const char *reef_cli_perplexity_name(const reef_config *config); // "perplexity_per_byte"
/**
 * INVALID unless the file holds two or more whole tokens of the vocabulary; the file is released
 * then.
 */
REEF_MUST_CHECK reef_status reef_cli_tokens_check(reef_cli_file *file,
                                                  const reef_config *config,
                                                  reef_error *err);

// ---- cli_vectors.c: labelled vectors, and what a model makes of them ----------------------------

/**
 * Read vectors as the records of their stream. The file's path is the spec.
 * Errors: INVALID no spec of vectors, another width than the pool's, too much to hold; those of
 * reef_vectors_open.
 */
REEF_MUST_CHECK reef_status reef_cli_vectors_read(reef_cli_file *file,
                                                  const char *spec,
                                                  const reef_config *config,
                                                  reef_error *err);
/**
 * Read what a pool's model can be measured on: a text, or vectors. INVALID when it is the other.
 */
REEF_MUST_CHECK reef_status reef_cli_examples_read(reef_cli_file *file,
                                                   const char *path,
                                                   const reef_config *config,
                                                   reef_error *err);
/**
 * INVALID unless the pool has a vector model, or with false any other; the message ends with
 * `instead`.
 */
REEF_MUST_CHECK reef_status reef_cli_pool_wants(const reef_cli_pool *pool,
                                                bool vectors,
                                                const char *instead,
                                                reef_error *err);
/**
 * The same for a language model, and INVALID as well where its tokens are no bytes (cli_tokens.c).
 */
REEF_MUST_CHECK reef_status reef_cli_pool_wants_bytes(const reef_cli_pool *pool,
                                                      const char *instead,
                                                      reef_error *err);

typedef struct reef_cli_prediction {
    int32_t label, given; // predicted; as it stands in the file, -1 for none
    double score;         // of the predicted label; NaN while the model knows none
    uint32_t generation;  // that had the most say
} reef_cli_prediction;
typedef void (*reef_cli_on_prediction)(void *context, const reef_cli_prediction *one);

/** Show `visit` the prediction of each record, in order. */
REEF_MUST_CHECK reef_status reef_cli_predict(reef_model *model,
                                             const reef_cli_file *file,
                                             reef_cli_progress *progress,
                                             reef_cli_on_prediction visit,
                                             void *context,
                                             reef_error *err);

typedef struct reef_cli_accuracy {
    uint64_t examples, labelled, right;
    double accuracy; // right / labelled; NaN without labels
    double
        *answered_share; // (generation count) on the heap: examples in which each had the most say
} reef_cli_accuracy;

/**
 * How many labelled records of a file are told right. Free out->answered_share, also after an
 * error.
 */
REEF_MUST_CHECK reef_status reef_cli_accuracy_measure(reef_model *model,
                                                      const reef_cli_file *file,
                                                      reef_cli_progress *progress,
                                                      reef_cli_accuracy *out,
                                                      reef_error *err);

/** The loss curve of a pool. */
typedef struct reef_cli_points {
    reef_point *points;
    size_t count, capacity;
} reef_cli_points;

REEF_MUST_CHECK reef_status reef_cli_points_read(reef_cli_points *points,
                                                 reef_cli_pool *pool,
                                                 reef_error *err);
void reef_cli_points_release(reef_cli_points *points);
/** Batches that a point is the mean of. */
uint64_t reef_cli_point_batches(const reef_point *point);

/** Usage of the experts of one PEER layer of a generation; *usage is the caller's. */
REEF_MUST_CHECK reef_status reef_cli_usage_read(reef_cli_pool *pool,
                                                const reef_generation_record *generation,
                                                uint32_t layer,
                                                reef_usage **usage,
                                                reef_error *err);
/** All layers of a generation together: counts are summed, unevenness is averaged. */
REEF_MUST_CHECK reef_status reef_cli_usage_summary(reef_cli_pool *pool,
                                                   const reef_generation_record *generation,
                                                   reef_usage_summary *out,
                                                   reef_error *err);

// ---- cli_transport.c: through the daemon, or straight into the pool -----------------------------

/**
 * Carry out a change: ask the daemon when one runs on the pool, otherwise open the pool for writing
 * and call `local`. Both leave the same object in *result (the caller's, decref).
 *
 * request  {"command": ..., arguments}; taken over
 */
REEF_MUST_CHECK reef_status reef_cli_change(const reef_cli_call *cli,
                                            json_t *request,
                                            reef_status (*local)(reef_trainer *trainer,
                                                                 json_t *arguments,
                                                                 json_t **result,
                                                                 reef_error *err),
                                            json_t **result,
                                            reef_error *err);
/**
 * What a dry run asks: may `request` be done to the pool as its last commit left it? Opens it for
 * reading only. What `check` leaves in *result is the caller's (decref).
 */
REEF_MUST_CHECK reef_status reef_cli_check(const reef_cli_call *cli,
                                           json_t *request,
                                           reef_status (*check)(reef_trainer *trainer,
                                                                json_t *arguments,
                                                                json_t **result,
                                                                reef_error *err),
                                           json_t **result,
                                           reef_error *err);
/**
 * Say, with --verbose, whether the command goes through the socket of a daemon or to the pool
 * itself.
 */
void reef_cli_way_say(const reef_cli_call *cli);
/** The daemon's answer to {"command": "status"}; NOT_FOUND when none runs on the pool. */
REEF_MUST_CHECK reef_status reef_cli_daemon_ask(const reef_cli_call *cli,
                                                const char *command,
                                                json_t **result,
                                                reef_error *err);
REEF_MUST_CHECK reef_status reef_cli_daemon_status(const reef_cli_call *cli,
                                                   json_t **result,
                                                   reef_error *err);

/** Of a pool of a layer, in messages. */
#define CLI_IS_LAYER                                                                               \
    "holds a layer by itself; what it is for is up to the program that uses it through libreef"

#endif
