// The pending bytes of the stream, and who learns the first batch of them:
//
//   reef_pending_train     net and memory of the open generation
//   reef_pending_memorise  its memory alone: batches beyond the net's share
//   reef_pending_give      the memory of an older kind; without such memories nobody learns it
//
// Each takes the batch out of the pending bytes. Which of them it is to be is decided in stream.c
// and by_contexts.c. After the first two the memory may still be learning it (memory_lane.h):
// whatever asks a memory, or for what is counted by it, has to settle first.
#ifndef REEF_PENDING_H
#define REEF_PENDING_H

#include "trainer_internal.h"

/** Bytes of the batches that are deferred: the first of the pending bytes. */
size_t reef_pending_deferred_bytes(const reef_trainer *trainer);

/** Pending bytes that are known to be no part of a marker line. */
size_t reef_pending_usable_bytes(const reef_trainer *trainer);

/**
 * Does the net learn the batch at this position of the stream? All of a generation's first ones, so
 * that it has something to be compared with, then its share of them.
 */
bool reef_pending_is_for_net(const reef_trainer *trainer, uint64_t position);

// Errors of all below: NO_MEMORY, IO, CORRUPT. A batch may then be half counted: the caller breaks
// the trainer (`settled` in stream.c).

/** Move the gates over the first pending batch, which the net does not read. */
REEF_MUST_CHECK reef_status reef_pending_move_gates(reef_trainer *trainer, reef_error *err);

/** The net is about to read the first pending batch: the memory may learn beside it. */
void reef_pending_begin_net(reef_trainer *trainer);

/** Net and memory learn the first pending batch. `bits`: its loss in the forward pass just run. */
REEF_MUST_CHECK reef_status reef_pending_train(reef_trainer *trainer, double bits, reef_error *err);

/** The open generation's memory alone learns it. The gates move over it. */
REEF_MUST_CHECK reef_status reef_pending_memorise(reef_trainer *trainer, reef_error *err);

/**
 * Wait for the memory, and count the losses of what it learned. Does nothing where it has nothing
 * to learn. `before`: of the call before this one; returned, with its error, if not REEF_OK.
 */
REEF_MUST_CHECK reef_status reef_pending_settle(reef_trainer *trainer,
                                                reef_status before,
                                                reef_error *err);

/**
 * The memory of `kind`, which came back, learns it; or nobody does.
 *
 * bits   loss of the batch, for the history where nobody learns it
 * steps  counted up where it is learned
 */
REEF_MUST_CHECK reef_status reef_pending_give(
    reef_trainer *trainer, uint32_t kind, double bits, size_t *steps, reef_error *err);

#endif
