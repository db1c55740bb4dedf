// Everything of a commit that is not a generation.
#ifndef REEF_TRAINER_STATE_H
#define REEF_TRAINER_STATE_H

#include "trainer_internal.h"

#include <jansson.h>

/** Remember the kernels of this process. */
REEF_MUST_CHECK reef_status reef_kernels_put(reef_txn *txn, reef_error *err);

/**
 * An event where the pool was trained with others last: what follows is right, but not the same
 * bits.
 */
REEF_MUST_CHECK reef_status reef_kernels_compare(reef_trainer *trainer,
                                                 reef_txn *txn,
                                                 reef_error *err);

/** The list of sources of the last commit, [{"name", "cursor"}]; the caller's. */
REEF_MUST_CHECK reef_status reef_state_sources(reef_txn *txn, json_t **out, reef_error *err);

/**
 * Position, sources, gates and pending bytes of the trainer, under the open
 * generation.
 */
REEF_MUST_CHECK reef_status reef_state_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);
REEF_MUST_CHECK reef_status reef_state_load(reef_trainer *trainer, reef_txn *txn, reef_error *err);

/** Points and events of the last commit interval, into the transaction. */
REEF_MUST_CHECK reef_status reef_state_put_history(reef_trainer *trainer,
                                                   reef_txn *txn,
                                                   reef_error *err);
void reef_state_forget_history(reef_trainer *trainer);

#endif
