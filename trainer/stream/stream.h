// From accepted bytes to learned batches: what the files of this folder share.
//
//   feed.c          bytes of a source; cursors
//   stream.c        bytes until a piece is whole; whose it is
//   marker_line.c   lines that are boundaries
//   pending.c       the first pending batches are learned
//   recognition.h   which kind a piece is of: contexts of the candidates (candidates.h) say who may
//                   know it (deferred_pieces.h, kind_level.h), what the text costs who does
//                   (text_verdict.h, text_cost.h)
//
// What a kind, the open kind, the current kind and a head are: kind_memories.h. What a boundary
// does: boundary.h. Whose members these are: trainer_internal.h.
#ifndef REEF_STREAM_H
#define REEF_STREAM_H

#include "trainer_internal.h"

// ---- stream.c -----------------------------------------------------------------------------------

/**
 * Accept bytes and learn what one decision about them lets the stream learn; see reef_trainer_feed.
 * The cursor of the source that they come from is still before them.
 *
 * taken  written: bytes accepted
 * steps  written: batches trained
 */
REEF_MUST_CHECK reef_status reef_stream_push(reef_trainer *trainer,
                                             const uint8_t *bytes,
                                             size_t count,
                                             size_t *taken,
                                             size_t *steps,
                                             reef_error *err);

// ---- marker_line.c ------------------------------------------------------------------------------

/**
 * The next byte of the stream, which has no other marker to be dealt with. A line ends with a line
 * feed, which belongs to it.
 */
void reef_marker_line_read(reef_marker_line *marker, const char *text, uint8_t byte);

/** The next byte comes from this source. A new one ends the line of the one before. */
void reef_marker_line_source(reef_marker_line *marker, const char *text, size_t source);

// ---- pending.c ----------------------------------------------------------------------------------
//
// The pending bytes of the stream, and learning the first batches of them: by the kind that is
// being learned, with its net and its memory, or by one that came before, with its memory alone.
// What is learned is taken out of the pending bytes.

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
