// The state of the trainer as one transaction: what a commit holds, and how it is made.
#ifndef REEF_COMMIT_H
#define REEF_COMMIT_H

#include "trainer_internal.h"

#include <jansson.h>

/**
 * A commit that begins with what `prelude` does in its transaction, before the trainer's state is
 * written. Sealed rows are out of reach after it: see reef_trainer_pin.
 */
REEF_MUST_CHECK reef_status reef_trainer_commit_after(reef_trainer *trainer,
                                                      reef_trainer_writer prelude,
                                                      void *context,
                                                      reef_error *err);

// ---- trainer_state.c: everything that is not a generation ---------------------------------------

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
 * Position, sources and pending bytes of the trainer, under the open
 * generation.
 */
REEF_MUST_CHECK reef_status reef_state_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);
REEF_MUST_CHECK reef_status reef_state_load(reef_trainer *trainer, reef_txn *txn, reef_error *err);

/** Points and events of the last commit interval, into the transaction. */
REEF_MUST_CHECK reef_status reef_state_put_history(reef_trainer *trainer,
                                                   reef_txn *txn,
                                                   reef_error *err);
void reef_state_forget_history(reef_trainer *trainer);

// ---- epoch.c: a commit that all ranks make ------------------------------------------------------

/** First in the commit's transaction: where a pool is divided, ranks tell each other of theirs. */
void reef_epoch_share(reef_trainer *trainer, reef_txn *txn);
/** Within the commit's transaction, last: its number, and what happens before it is durable. */
REEF_MUST_CHECK reef_status reef_epoch_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);
/** The commit is durable here. */
void reef_epoch_made(reef_trainer *trainer);
/** A commit failed. Where the others made it, or will, all ranks end; else it returns. */
void reef_epoch_failed(reef_trainer *trainer, reef_status status, const reef_error *err);

// ---- pool_bound.c: what a pool may take ---------------------------------------------------------

/** Bytes that the last commit takes, where they are more than pool_max allows; else 0. */
REEF_MUST_CHECK reef_status reef_pool_over(reef_trainer *trainer, uint64_t *out, reef_error *err);

/**
 * Within a commit's transaction, before anything else of it: give up old states of a pool that
 * takes `bytes`, as reef_trainer_set_pool_max says. 0: nothing is to be done.
 */
REEF_MUST_CHECK reef_status reef_pool_bound(reef_trainer *trainer,
                                            reef_txn *txn,
                                            uint64_t bytes,
                                            reef_error *err);

#endif
