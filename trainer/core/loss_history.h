// The series of losses that a pool keeps.
#ifndef REEF_LOSS_HISTORY_H
#define REEF_LOSS_HISTORY_H

#include "trainer_internal.h"

/** A point of the loss, of a batch that ended at `stream_bytes`; `step` was the trainer's. */
REEF_MUST_CHECK reef_status reef_series_add(
    reef_trainer *trainer, uint64_t step, uint64_t stream_bytes, double bits, reef_error *err);

/**
 * Points of the last commit interval, into the transaction; what has become too much is made
 * coarser.
 */
REEF_MUST_CHECK reef_status reef_series_put(reef_trainer *trainer, reef_txn *txn, reef_error *err);

/** The points that were put are the pool's. */
void reef_series_settle(reef_trainer *trainer);

/** Remove the points of the loss after a committed position in the stream. */
REEF_MUST_CHECK reef_status reef_series_forget_after(reef_txn *txn,
                                                     uint64_t stream_bytes,
                                                     reef_error *err);

#endif
