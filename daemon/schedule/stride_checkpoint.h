// The parts of the stream's order that must survive, in the pool's journal: the scheduler's state,
// decisions that are not in a commit yet, and the read positions of live sources. docs/FORMAT.md
// has the records.
#ifndef REEF_STRIDE_CHECKPOINT_H
#define REEF_STRIDE_CHECKPOINT_H

#include "reef_store.h"
#include "stride.h"

#include <stdint.h>

// of its journal records; no live source has a name without a colon
#define REEF_STRIDE_NAME "turns"

/** A queue becomes idle, or active again, from a position of the stream on. */
typedef struct reef_schedule_choice {
    uint64_t number; // one more than the one before
    uint64_t at;     // `total` of the stride when it was made
    bool idle;
    char *queue; // its name, on the heap
} reef_schedule_choice;

typedef struct reef_decisions {
    reef_schedule_choice *items; // (count) by number
    size_t count;
} reef_decisions;

void reef_decisions_release(reef_decisions *decisions);

/**
 * Load what the last commit left, and the decisions that were made after it.
 * Errors: CORRUPT records that make no sense; those of reading.
 */
REEF_MUST_CHECK reef_status reef_stride_read(reef_store *store,
                                             reef_stride *stride,
                                             reef_decisions *after,
                                             reef_error *err);
/**
 * In a commit: the present state of the stride; decisions that took effect before are deleted.
 */
REEF_MUST_CHECK reef_status reef_stride_write(reef_txn *txn,
                                              const reef_stride *stride,
                                              reef_error *err);
REEF_MUST_CHECK reef_status reef_decision_write(reef_txn *txn,
                                                const reef_schedule_choice *decision,
                                                reef_error *err);
/** Remove all decisions after the commit's. */
REEF_MUST_CHECK reef_status reef_decisions_drop(reef_txn *txn,
                                                const reef_decisions *after,
                                                reef_error *err);

/**
 * The checkpoint that locates byte `begin` of a live source. NOT_FOUND leaves it NULL; otherwise it
 * is the caller's.
 */
REEF_MUST_CHECK reef_status reef_source_checkpoint_read(
    reef_store *store, const char *source, uint64_t *begin, char **checkpoint, reef_error *err);
REEF_MUST_CHECK reef_status reef_source_checkpoint_write(
    reef_txn *txn, const char *source, uint64_t begin, const char *checkpoint, reef_error *err);

#endif
