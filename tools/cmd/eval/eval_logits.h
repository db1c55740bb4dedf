// reef eval --logits: the model's prediction of every token of a text, for another program to
// compare.
#ifndef REEF_EVAL_LOGITS_H
#define REEF_EVAL_LOGITS_H

#include "cli.h"
#include "cli_pool.h"

/**
 * Write the logits of one text, (bytes, 256) floats, to the .npy file that --logits names; row i
 * is about the token after token i, given those up to it in its window. Nothing without --logits.
 * Errors: INVALID several texts, one that is too long, or the file exists; those of
 * reef_model_logits; IO.
 */
REEF_MUST_CHECK reef_status reef_eval_logits_write(const reef_cli_call *cli,
                                                   reef_model *model,
                                                   const reef_cli_file *files,
                                                   reef_error *err);

#endif
