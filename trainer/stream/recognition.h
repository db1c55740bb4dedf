// Which kind of text is it? With `boundaries` `contexts` the memories decide, by how many of a
// text's contexts they know (reef_memory_familiarity).
//
// The stream is cut into pieces of about two kilobytes. Every kind has a level: how familiar its
// own text was to it before it was learned, and how much that varies. A piece that the current kind
// knows as well as its own is learned at once, unless the kind that its contexts name first
// (candidates.h) knows it far better. Any other piece is deferred, and so are those after it, until
// it is clear whose they are:
//
//   an older kind knows them like its own, better than the current one   they are read by the kinds
//                                                                        that lead; it learns them
//   no kind knows them, and there are enough of them                     a new kind begins
//   the current kind knows the next ones again                           it learns all of them
//
// Deferred pieces have changed nothing. So a decision depends on the text since the last piece that
// was learned, and on what the memories had learned by then: on the order of bytes alone.
#ifndef REEF_RECOGNITION_H
#define REEF_RECOGNITION_H

#include "trainer_internal.h"

#include <jansson.h>

typedef enum reef_verdict {
    REEF_VERDICT_DEFER,   // not clear yet
    REEF_VERDICT_CURRENT, // all deferred pieces are of the current kind
    REEF_VERDICT_SWITCH,  // from `from_batch` on they are of `kind`
    REEF_VERDICT_NEW,     // from `from_batch` on they are of a new kind
} reef_verdict;

typedef struct reef_kind_decision {
    reef_verdict verdict;
    size_t from_piece; // the deferred piece in which the kind changes
    size_t from_batch; // how many of the deferred batches are of the current kind still
    uint32_t kind;
} reef_kind_decision;

/** Do contexts decide in this pool about kinds of text? */
bool reef_recognises_by_contexts(const reef_trainer *trainer);

/** Batches in a piece. */
size_t reef_piece_batches(const reef_config *config);

/**
 * Test the pending piece behind the first `deferred` ones, and decide about all of them.
 *
 * Errors: NO_MEMORY, IO, CORRUPT a kind's memory cannot be read: nothing has changed.
 */
REEF_MUST_CHECK reef_status reef_recognise_piece(reef_trainer *trainer,
                                                 size_t deferred,
                                                 reef_kind_decision *out,
                                                 reef_error *err);

/**
 * Piece `number` of those that were tested is learned by `kind`, the current one or the one of the
 * decision: how familiar the piece was to it counts for its level, unless the piece was strange
 * and there was another kind to ask.
 */
void reef_recognition_count(reef_trainer *trainer, size_t number, uint32_t kind);

/**
 * A kind takes over the text of a merged one, and learns it: how familiar the second half was
 * before it was learned counts for the kind's level.
 *
 * Errors: those of reef_kind_learn_text.
 */
REEF_MUST_CHECK reef_status reef_recognition_learn_text(
    reef_trainer *trainer, uint32_t kind, const uint8_t *bytes, size_t count, reef_error *err);

/** Forget cached candidates: kinds were merged. */
void reef_recognition_forget(reef_trainer *trainer);

/**
 * Members of the trainer's state, where contexts decide: "current_kind", the one that what comes
 * next is compared with, and "levels".
 */
void reef_recognition_set_state(const reef_trainer *trainer, json_t **state);
REEF_MUST_CHECK reef_status reef_recognition_load(reef_trainer *trainer,
                                                  const json_t *state,
                                                  reef_error *err);
void reef_recognition_release(reef_trainer *trainer);

#endif
