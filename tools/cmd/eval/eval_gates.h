// reef eval --gates: firing and leakage of every gate on every text.
#ifndef REEF_EVAL_GATES_H
#define REEF_EVAL_GATES_H

#include "cli.h"
#include "cli_pool.h"

/** Operands are FILE or NAME=FILE. INVALID for a model of vectors or with a single generation. */
REEF_MUST_CHECK reef_status reef_eval_gates(reef_cli_call *cli,
                                            reef_cli_pool *pool,
                                            reef_error *err);

#endif
