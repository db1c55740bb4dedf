// The state of the trainer as one transaction.
#ifndef REEF_COMMIT_H
#define REEF_COMMIT_H

#include "reef_snapshot.h"
#include "trainer_internal.h"

/** A commit, and in the same transaction a snapshot where it has a name. */
REEF_MUST_CHECK reef_status reef_trainer_commit_with(reef_trainer *trainer,
                                                     const char *snapshot_name, // or NULL
                                                     reef_snapshot *snapshot,   // written
                                                     reef_commit *out,          // written, or NULL
                                                     reef_error *err);

/** What a commit does in its transaction before it writes the trainer's state. */
typedef reef_status (*reef_commit_prelude)(void *context, reef_txn *txn, reef_error *err);

/** A commit with a prelude. Sealed rows are out of reach after it: see reef_trainer_pin. */
REEF_MUST_CHECK reef_status reef_trainer_commit_after(reef_trainer *trainer,
                                                      reef_commit_prelude prelude,
                                                      void *context,
                                                      reef_error *err);

#endif
