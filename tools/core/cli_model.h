// The kinds and models of a command's pool, and what is damaged in them.
#ifndef REEF_CLI_MODEL_H
#define REEF_CLI_MODEL_H

#include "cli_pool.h"
#include "reef_kinds.h"
#include "reef_model.h"

/**
 * Open a state as the command's options say. Kinds that are damaged are named on standard error,
 * and in the command's JSON as `lost_kinds`.
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

/** Those of the state that --as-of names (reef_cli_as_of), whose name is copied to `name`. */
REEF_MUST_CHECK reef_status reef_cli_kinds_read_as_of(const reef_cli_call *cli,
                                                      reef_cli_pool *pool,
                                                      char name[REEF_NAME_BYTES_MAX + 1],
                                                      reef_kind_list *out,
                                                      reef_error *err);

#endif
