// A commit that all ranks make, an epoch. It counts when rank 0 has made it, which does so last:
//
//   every rank   write everything, compute the root, compare it with the others'
//   ranks 1 ..   make it durable, then say so
//   rank 0       hear that from all, then make it durable
//
// So a rank that is ahead of rank 0 after a crash is ahead by one commit, the last thing that it
// wrote, and steps back (reef_store_step_back); no rank is ever behind.
#ifndef REEF_EPOCH_H
#define REEF_EPOCH_H

#include "trainer_internal.h"

/** First in the commit's transaction: where a pool is divided, ranks tell each other of theirs. */
void reef_epoch_share(reef_trainer *trainer, reef_txn *txn);
/** Within the commit's transaction, last: its number, and what happens before it is durable. */
REEF_MUST_CHECK reef_status reef_epoch_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);
/** The commit is durable here. */
void reef_epoch_made(reef_trainer *trainer);
/** A commit failed. Where the others made it, or will, all ranks end; else it returns. */
void reef_epoch_failed(reef_trainer *trainer, reef_status status, const reef_error *err);

#endif
