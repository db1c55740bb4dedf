// A model for a command, and what is damaged in it.
#ifndef REEF_CLI_MODEL_H
#define REEF_CLI_MODEL_H

#include "cli_pool.h"
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

#endif
