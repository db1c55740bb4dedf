// reef eval --kinds: which kinds answered where in each file.
#ifndef REEF_EVAL_KINDS_H
#define REEF_EVAL_KINDS_H

#include "chart_kinds.h"
#include "cli.h"
#include "cli_pool.h"

/** INVALID where no context memories answer. */
REEF_MUST_CHECK reef_status reef_eval_kinds_check(const reef_cli_call *cli,
                                                  const reef_cli_pool *pool,
                                                  reef_error *err);

/** Kinds with the bytes that each answered, and where who answers changes. */
json_t *reef_eval_kinds_json(const reef_kinds_text *text);

#endif
