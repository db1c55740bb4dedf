// The part of `reef eval` that is for vector models.
#ifndef REEF_EVAL_VECTORS_H
#define REEF_EVAL_VECTORS_H

#include "cli.h"
#include "cli_pool.h"

/**
 * How many of each file's examples the model classifies correctly, as of one state; prints or
 * replies.
 */
REEF_MUST_CHECK reef_status reef_eval_vectors(reef_cli_call *cli,
                                              reef_model *model,
                                              const char *as_of,
                                              const reef_cli_file *files,
                                              reef_error *err);

#endif
