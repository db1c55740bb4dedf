// The functions and manuals that the table of commands refers to; one file cmd_<name>.c each.
#ifndef REEF_COMMANDS_H
#define REEF_COMMANDS_H

#include "cli.h"
#include "cli_model.h"
#include "cli_pool.h"
#include "cli_table.h"

// function, in the order of the table
#define CLI_RUN_LIST(X)                                                                            \
    X(init)                                                                                        \
    X(train)                                                                                       \
    X(status)                                                                                      \
    X(top)                                                                                         \
    X(commit)                                                                                      \
    X(pause)                                                                                       \
    X(resume)                                                                                      \
    X(drain)                                                                                       \
    X(reload)                                                                                      \
    X(ingest)                                                                                      \
    X(stop)                                                                                        \
    X(seal)                                                                                        \
    X(grow)                                                                                        \
    X(branch)                                                                                      \
    X(freeze)                                                                                      \
    X(thaw)                                                                                        \
    X(snapshot_create)                                                                             \
    X(snapshot_list)                                                                               \
    X(snapshot_restore)                                                                            \
    X(snapshot_remove)                                                                             \
    X(snapshot_prune)                                                                              \
    X(export_pool)                                                                                 \
    X(export_generation)                                                                           \
    X(export_model)                                                                                \
    X(shards)                                                                                      \
    X(compress)                                                                                    \
    X(expand)                                                                                      \
    X(import)                                                                                      \
    X(eval)                                                                                        \
    X(predict)                                                                                     \
    X(score)                                                                                       \
    X(generate)                                                                                    \
    X(kind_list)                                                                                   \
    X(kind_merge)                                                                                  \
    X(kind_recover)                                                                                \
    X(kind_name)                                                                                   \
    X(prune)                                                                                       \
    X(generations)                                                                                 \
    X(experts)                                                                                     \
    X(usage)                                                                                       \
    X(timeline)                                                                                    \
    X(verify)                                                                                      \
    X(plot_loss)                                                                                   \
    X(report)                                                                                      \
    X(config_check)                                                                                \
    X(version)                                                                                     \
    X(help)

#define CLI_DECLARE(command)                                                                       \
    REEF_MUST_CHECK reef_status reef_cmd_##command(reef_cli_call *cli, reef_error *err);           \
    extern const reef_cli_manual reef_##command##_manual;
CLI_RUN_LIST(CLI_DECLARE)
#undef CLI_DECLARE

/**
 * The document of `reef status --json`, the caller's: of the daemon if one runs (*daemon), else of
 * the last commit.
 */
REEF_MUST_CHECK reef_status reef_status_read(const reef_cli_call *cli,
                                             json_t **result,
                                             bool *daemon,
                                             reef_error *err);

/**
 * The generations of a pool as a table and as JSON, both the caller's; `reef report` shows them
 * too.
 */
REEF_MUST_CHECK reef_status reef_generations_list(reef_cli_pool *pool,
                                                  reef_cli_table **table,
                                                  json_t **array,
                                                  reef_error *err);

/** Kinds as a table, and which of them learned what; `reef report` shows them too. */
void reef_kinds_print(const reef_kind_list *list);

/** What a file of a generation holds, the caller's; `reef import` shows it too. */
json_t *reef_generation_file_json(const reef_generation_file *file, const char *path);
void reef_generation_file_print(const reef_generation_file *file, const char *path);
/** The same of a file of a whole model; `reef init --from` shows it too. */
json_t *reef_model_file_json(const reef_model_file *file, const char *path);
void reef_model_file_print(const reef_model_file *file, const char *path);

/** Install the table of commands: the first thing that the program does. */
void reef_cmd_install(void);

#endif
