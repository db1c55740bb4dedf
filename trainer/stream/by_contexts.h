// The stream of a pool in which contexts tell kinds of text apart (recognition.h): batches are
// tested and deferred by pieces, and learned by the kind that each is of.
#ifndef REEF_BY_CONTEXTS_H
#define REEF_BY_CONTEXTS_H

#include "trainer_internal.h"

/**
 * Test the piece behind the deferred ones, and decide about all of them.
 *
 * steps  counted up by the batches that are learned
 *
 * Errors: those of reef_recognise_piece, of learning, and of a boundary.
 */
REEF_MUST_CHECK reef_status reef_by_contexts_next(reef_trainer *trainer,
                                                  size_t *steps,
                                                  reef_error *err);

/** A stream ends: the current kind learns all whole batches that are pending. Errors as above. */
REEF_MUST_CHECK reef_status reef_by_contexts_end(reef_trainer *trainer,
                                                 size_t *steps,
                                                 reef_error *err);

#endif
