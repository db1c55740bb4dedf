// An experiment: a grid of models that are each trained for a budget of FLOPs and measured on
// held-out text.
//
//   CONFIG.ini --> reef_experiment_read --> reef_experiment_plan --> reef_experiment_run
//                                                 ^                        | cells without a result
//                                                 +---- results.jsonl <----+
//
// A plan follows from the file and the results there are: which learning rate is best, and which
// size, is only known later. So planning is repeated until no cell is wanted any more, and a run
// that was killed resumes by planning again.
#ifndef REEF_EXPERIMENT_H
#define REEF_EXPERIMENT_H

#include "cli.h"
#include "cli_pool.h"

typedef enum reef_experiment_kind {
    EXPERIMENT_ISOFLOP,
    EXPERIMENT_EXPERTS,
    EXPERIMENT_ACTIVE,
    EXPERIMENT_BATCHNORM,
    EXPERIMENT_DATASETS,
} reef_experiment_kind;

/** A field of the configuration, as a line of the file gives it. */
typedef struct reef_experiment_setting {
    const reef_config_field *field;
    char *value;
    unsigned line;
} reef_experiment_setting;

/** The settings of one section: of all models, of one size or of one system. */
typedef struct reef_experiment_group {
    char *name;
    unsigned line;
    char middle; // of a system: the letter of the middle block, others are dense; 0: as in `ffw`
    reef_experiment_setting *settings;
    size_t count;
} reef_experiment_group;

typedef struct reef_experiment_list {
    double *values;
    size_t count;
} reef_experiment_list;

/** A data set of the table. */
typedef struct reef_experiment_set {
    char *name, *path;
    uint64_t hash;
    reef_cli_file file;
} reef_experiment_set;

typedef struct experiment {
    char *path, *data_directory;
    char *train, *valid; // paths
    reef_cli_file valid_file;
    uint64_t train_hash;
    char *tune_size;      // where learning rates are compared, and what the ablations are made of
    uint64_t valid_bytes; // of each held-out text at most; 0: all
    reef_experiment_list budgets, learning_rates, seeds;
    reef_experiment_list vary_side, vary_heads, vary_active; // of the ablations
    reef_config first; // of the first cell: what a token is, which is the same in all
    reef_experiment_group model, quick; // of every cell; the latter only with --quick, and stronger
    reef_experiment_group *sizes, *systems;
    size_t size_count, system_count;
    reef_experiment_set *sets;
    size_t set_count;
} experiment;

/**
 * Read a configuration; paths in it are relative to `data`, or to the file's own directory where
 * that is NULL. With `quick`, keys of the section [quick] replace all others.
 *
 * Errors: INVALID "FILE:LINE: ..."; NOT_FOUND the file, or a text that it names. Release also after
 * an error.
 */
REEF_MUST_CHECK reef_status reef_experiment_read(
    experiment *e, const char *path, const char *data, bool quick, reef_error *err);
void reef_experiment_release(experiment *e); // accepts the zeroed one
/**
 * What a kind of experiment needs beyond that, such as `vary_side`, and whether every system fits
 * every size. INVALID names the file and the key, or the line of the size.
 */
REEF_MUST_CHECK reef_status reef_experiment_check(const experiment *e,
                                                  reef_experiment_kind kind,
                                                  reef_error *err);

/** The size that is called `name`; NULL: none is. */
const reef_experiment_group *reef_experiment_size(const experiment *e, const char *name);
/**
 * The configuration of a system in a size. What the file leaves open and a plain language model
 * would have for a stream is off: boundaries are given, nothing is rehearsed. Errors: INVALID what
 * does not fit together, with both names and the line of the size.
 */
REEF_MUST_CHECK reef_status reef_experiment_config(const experiment *e,
                                                   const reef_experiment_group *system,
                                                   const reef_experiment_group *size,
                                                   reef_config *out,
                                                   reef_error *err);
/** Does the system retrieve its experts, so that `side`, `heads` and `topk` mean something? */
bool reef_experiment_retrieves(const reef_config *config);

// ---- experiment_plan.c --------------------------------------------------------------------------

#define EXPERIMENT_ID_BYTES 17 // 64 bits in hexadecimal

/** One model to be trained and measured. */
typedef struct reef_experiment_cell {
    const char *system, *size; // names; of the experiment
    double budget;
    reef_config config;
    bool tuning;                    // one of those that a learning rate is chosen by
    bool sets;                      // measured on all data sets as well
    char id[EXPERIMENT_ID_BYTES];   // follows from all that decides the row
    char pool[EXPERIMENT_ID_BYTES]; // and this from all that decides the trained model
} reef_experiment_cell;

typedef struct reef_experiment_cells {
    reef_experiment_cell *items;
    size_t count, capacity;
} reef_experiment_cells;

/** Every cell that is known to be wanted, finished or not. `results` is an object of rows by id. */
REEF_MUST_CHECK reef_status reef_experiment_plan(const experiment *e,
                                                 reef_experiment_kind kind,
                                                 const json_t *results,
                                                 reef_experiment_cells *out,
                                                 reef_error *err);
void reef_experiment_cells_release(reef_experiment_cells *cells); // accepts the zeroed ones
/** A figure of a cell's row, or NaN if it is missing. */
double reef_experiment_figure(const json_t *results,
                              const reef_experiment_cell *cell,
                              const char *figure);
/**
 * Of the cells of one system and budget with the first seed, tuning left out: the one with the
 * least loss, as sizes are chosen; NULL without any.
 */
const reef_experiment_cell *reef_experiment_best(const experiment *e,
                                                 const reef_experiment_cells *cells,
                                                 const json_t *results,
                                                 const char *system,
                                                 double budget);

// ---- experiment_cell.c --------------------------------------------------------------------------

typedef struct reef_experiment_work {
    char *directory;
    size_t threads; // of each cell
    uint64_t memory_bytes;
    bool keep_pools;
    const char *const *arguments; // of this program for one of its cells, up to a NULL
    bool (*stopped)(void);
    void (*progress)(void *context, double share); // of the cell
    void *context;
} reef_experiment_work;

char *reef_experiment_pool_path(const reef_experiment_work *work, const reef_experiment_cell *cell);
/**
 * Train the cell's pool in the work directory, from where an earlier run left it, and measure it.
 * *row stays NULL when it was stopped before the end.
 */
REEF_MUST_CHECK reef_status reef_experiment_cell_run(const experiment *e,
                                                     const reef_experiment_work *work,
                                                     const reef_experiment_cell *cell,
                                                     json_t **row,
                                                     reef_error *err);

// ---- experiment_run.c ---------------------------------------------------------------------------

/**
 * Run cells that have no row yet, `jobs` at a time in processes of their own, and add each row to
 * `results` and to the file of results as soon as there is one. *stopped: it ended before all were
 * done, because a signal came.
 */
REEF_MUST_CHECK reef_status reef_experiment_run(const experiment *e,
                                                const reef_experiment_work *work,
                                                const reef_experiment_cells *cells,
                                                size_t jobs,
                                                json_t *results,
                                                bool *stopped,
                                                reef_error *err);
/**
 * What a process does that was started for one cell: leave its row, or its error, as ID.row; or
 * when it was stopped nothing.
 */
REEF_MUST_CHECK reef_status reef_experiment_cell_leave(const experiment *e,
                                                       const reef_experiment_work *work,
                                                       const reef_experiment_cell *cell,
                                                       reef_error *err);
/**
 * The rows of the work directory, by id; none if the file is missing. CORRUPT names the line.
 */
REEF_MUST_CHECK reef_status reef_experiment_results_read(const char *directory,
                                                         json_t **results,
                                                         reef_error *err);
/**
 * One experiment at a time in a directory, which is made: BUSY. *lock is closed by its owner.
 */
REEF_MUST_CHECK reef_status reef_experiment_lock(const char *directory, int *lock, reef_error *err);

// ---- experiment_report.c ------------------------------------------------------------------------

/** Tables for people. */
void reef_experiment_print(const experiment *e,
                           reef_experiment_kind kind,
                           const reef_experiment_cells *cells,
                           const json_t *results);
/** The same as one array of objects. */
json_t *reef_experiment_json(const reef_experiment_cells *cells, const json_t *results);
/** One line a cell, and the experiment's picture. */
REEF_MUST_CHECK reef_status reef_experiment_write_csv(const char *path,
                                                      const experiment *e,
                                                      const reef_experiment_cells *cells,
                                                      const json_t *results,
                                                      reef_error *err);
REEF_MUST_CHECK reef_status reef_experiment_write_svg(const char *path,
                                                      const experiment *e,
                                                      reef_experiment_kind kind,
                                                      const reef_experiment_cells *cells,
                                                      const json_t *results,
                                                      reef_error *err);

#endif
