// The functions of trainer_ops.h that language model and layer share.
#ifndef REEF_GENERATIONS_H
#define REEF_GENERATIONS_H

#include "trainer_internal.h"

/** A generation of the configured side with random weights. */
REEF_MUST_CHECK reef_status reef_generations_first(reef_trainer *trainer, reef_error *err);

/** Errors: CORRUPT where the last generation is not open. */
REEF_MUST_CHECK reef_status reef_generations_load(reef_trainer *trainer,
                                                  reef_txn *txn,
                                                  reef_error *err);
REEF_MUST_CHECK reef_status reef_generations_pin(reef_trainer *trainer, reef_error *err);

/** Write the generations sealed since the last commit, and the open one. */
REEF_MUST_CHECK reef_status reef_generations_put(reef_trainer *trainer,
                                                 reef_txn *txn,
                                                 uint64_t unix_ms,
                                                 reef_error *err);
void reef_generations_committed(reef_trainer *trainer);

#endif
