// Kinds of which a record is damaged: what is left of them, and how a pool goes on.
#ifndef REEF_DAMAGED_KINDS_H
#define REEF_DAMAGED_KINDS_H

#include "trainer_internal.h"

/**
 * May the pool be trained on? Nothing is to learn what goes on from a damaged kind. Looked for
 * where training reads all kinds soon, which is where contexts decide; elsewhere a kind is read
 * when it comes back, and fails then. Errors: CORRUPT names the kind.
 */
REEF_MUST_CHECK reef_status reef_kinds_check(const reef_trainer *trainer,
                                             reef_txn *txn,
                                             reef_error *err);

#endif
