// Pools, with their kinds and models; and files.
#ifndef REEF_CLI_POOL_H
#define REEF_CLI_POOL_H

#include "cli.h"
#include "reef_error.h"
#include "reef_kinds.h"
#include "reef_model.h"
#include "reef_store.h"
#include "reef_trainer.h"

#include <jansson.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** What reading commands need to know of a pool, copied out by one short transaction. */
typedef struct reef_cli_pool {
    reef_store *store;
    reef_config config;
    reef_commit commit;
    reef_generation_record *generations;
    uint32_t generation_count;
    uint64_t file_bytes;
} reef_cli_pool;

/**
 * Open the command's pool, for writing or for reading.
 *
 * busy  what to do where a daemon has it: the lock's own message does not say that
 */
REEF_MUST_CHECK reef_status reef_cli_store_open(
    reef_store **out, const reef_cli_call *cli, bool write, const char *busy, reef_error *err);
/** Open the command's pool for reading. */
REEF_MUST_CHECK reef_status reef_cli_pool_open(reef_cli_pool *pool,
                                               const reef_cli_call *cli,
                                               reef_error *err);
/** Size of the file in the directory of a pool or of a shard; 0: there is none. */
uint64_t reef_cli_pool_bytes(const char *pool);
/** Read everything but the store again. */
REEF_MUST_CHECK reef_status reef_cli_pool_refresh(reef_cli_pool *pool, reef_error *err);
void reef_cli_pool_close(reef_cli_pool *pool); // accepts the zeroed pool

/**
 * Which states as of generations can be asked (reef_states_kept).
 *
 * kept  written: (generation_count) allocated, free() it; NULL after an error
 */
REEF_MUST_CHECK reef_status reef_cli_states_kept(const reef_cli_pool *pool,
                                                 bool **kept,
                                                 reef_error *err);

/** Whether experts learn in the pool, or its context memories alone. */
bool reef_cli_has_net(const reef_config *config);
/** INVALID for a pool without a net, in one line: its memories learn everything. */
REEF_MUST_CHECK reef_status reef_cli_pool_has_net(const reef_cli_pool *pool, reef_error *err);
/** What a stream is counted in: "byte", or "row" of a layer by itself. */
const char *reef_cli_stream_unit(const reef_config *config);
/** Experts of one generation in all layers together. */
uint64_t reef_cli_generation_experts(const reef_cli_pool *pool,
                                     const reef_generation_record *generation);

/**
 * The state that --as-of names, "now" without it. Of a moment the state that it is; people are told
 * which on standard error.
 *
 * Errors: those of reef_state_name.
 */
REEF_MUST_CHECK reef_status reef_cli_as_of(const reef_cli_call *cli,
                                           reef_store *store,
                                           char name[REEF_NAME_BYTES_MAX + 1],
                                           reef_error *err);

/** Inputs of a context memory's mixer, those with the largest shares first. */
void reef_cli_input_order(const double *shares, size_t order[REEF_MEMORY_INPUTS_MAX]);

/** The options --as-of and --frozen. */
#define CLI_OPTION_AS_OF                                                                           \
    {                                                                                              \
        "as-of", "STATE",                                                                          \
            "a generation, a snapshot, a moment such as yesterday, or now (default: now)"          \
    }
#define CLI_OPTION_FROZEN                                                                          \
    {                                                                                              \
        "frozen", "[=alone]",                                                                      \
            "context memories do not adapt to what they read, and only find again what it said "   \
            "before; =alone: nor that"                                                             \
    }

#define CLI_FILE_BYTES_MAX ((size_t)1 << 30) // a text is held in memory as a whole

/** A text in memory. */
typedef struct reef_cli_file {
    const char *path;
    uint8_t *bytes;
    size_t count;
} reef_cli_file;

/**
 * Say that something could not be done to a file, and why; `code` is an errno: NOT_FOUND where it
 * is not there or may not be read, otherwise IO.
 */
REEF_MUST_CHECK reef_status reef_cli_read_failed(const char *path,
                                                 const char *action,
                                                 int code,
                                                 reef_error *err);
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

/** All layers of a generation together: counts are summed, unevenness is averaged. */
REEF_MUST_CHECK reef_status reef_cli_usage_summary(reef_cli_pool *pool,
                                                   const reef_generation_record *generation,
                                                   reef_usage_summary *out,
                                                   reef_error *err);

/**
 * Open a state as the command's options say, --frozen among them. Damaged kinds are named on
 * standard error, and in the command's JSON as `lost_kinds`.
 */
REEF_MUST_CHECK reef_status reef_cli_model_open(reef_model **out,
                                                const reef_cli_call *cli,
                                                reef_store *store,
                                                const char *as_of,
                                                reef_error *err);

/** Those of the last commit, released with reef_kind_list_release. */
REEF_MUST_CHECK reef_status reef_cli_kinds_read(reef_cli_pool *pool,
                                                reef_kind_list *out,
                                                reef_error *err);

#endif
