// The pending bytes of the stream, and learning the first batches of them: by the kind that is
// being learned, with its net and its memory, or by one that came before, with its memory alone.
// Whose they are is decided in pieces.c. What is learned is taken out of the pending bytes.
#ifndef REEF_PENDING_H
#define REEF_PENDING_H

#include "trainer_internal.h"

/** Bytes of the batches that are deferred: the first of the pending bytes. */
size_t reef_pending_deferred_bytes(const reef_trainer *trainer);

/** Pending bytes that are known to be no part of a marker line. */
size_t reef_pending_usable_bytes(const reef_trainer *trainer);

/**
 * The first `count` pending batches are of `kind` and learned by it: by net and memory of the open
 * generation where that is its own, else by its memory. Where the net learns a share of the
 * batches, it learns all first ones of its generation, and then its share.
 *
 * steps  counted up by each
 *
 * Errors: NO_MEMORY, IO, CORRUPT, or INVALID where training diverged. A batch may then be half
 * counted: the caller breaks the trainer.
 */
REEF_MUST_CHECK reef_status reef_pending_learn(
    reef_trainer *trainer, uint32_t kind, size_t count, size_t *steps, reef_error *err);

#endif
