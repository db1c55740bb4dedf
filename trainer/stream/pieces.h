// A piece of the stream, a few batches, is judged before anything learns it: is it of the kind that
// is being learned, of one that came before, or of none (recognition.h)? Until that is clear it is
// deferred, so nothing has to be taken back.
#ifndef REEF_PIECES_H
#define REEF_PIECES_H

#include "trainer_internal.h"

/**
 * Judge the piece behind the deferred ones, and learn what is decided by it.
 *
 * steps  counted up by the batches that are learned
 *
 * Errors: those of reef_recognise_piece, of learning, and of a boundary.
 */
REEF_MUST_CHECK reef_status reef_pieces_next(reef_trainer *trainer, size_t *steps, reef_error *err);

/**
 * Before a marker line: the current kind learns all whole batches that are pending. Errors as
 * above.
 */
REEF_MUST_CHECK reef_status reef_pieces_end(reef_trainer *trainer, size_t *steps, reef_error *err);

#endif
