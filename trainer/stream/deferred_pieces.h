// What the current kind and each candidate make of the deferred pieces.
#ifndef REEF_DEFERRED_PIECES_H
#define REEF_DEFERRED_PIECES_H

#include "candidates.h"
#include "kind_level.h"

#define REEF_DEFERRED_MAX 136 // pieces: with so many it is decided
#define REEF_PIECE_BYTES 2048 // or a batch where that is longer: of it the first 4 KiB are scored
_Static_assert(REEF_PIECE_BYTES <= REEF_FAMILIARITY_BYTES_MAX,
               "a piece of short batches is scored as a whole");

// Deviations of a piece from a kind's level, in units of the level's spread: so far below it a text
// is not known to the kind.
#define REEF_STRANGE 2.0

typedef struct reef_recognition {
    reef_candidates candidates;
    uint64_t learned; // bytes, by the current kind's memory
    size_t read_next; // so many deferred bytes are to be read
    // Of each deferred piece: its familiarity to the current kind and to each candidate, and how
    // far that is from the kind's level, in spreads.
    double current_score[REEF_DEFERRED_MAX];
    double current_deviation[REEF_DEFERRED_MAX];
    double scores[REEF_CANDIDATES_MAX][REEF_DEFERRED_MAX];
    double deviations[REEF_CANDIDATES_MAX][REEF_DEFERRED_MAX];
} reef_recognition;

/** Room for what is kept of deferred pieces, and for all levels. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_deferred_reserve(reef_trainer *trainer, reef_error *err);

/** Of the pending bytes: (piece) from piece `number` on. */
const uint8_t *reef_deferred_at(const reef_trainer *trainer, size_t number);

/** Bytes of a piece. */
size_t reef_piece_bytes(const reef_trainer *trainer);

/** How well a kind's contexts know a piece. Errors: NO_MEMORY, IO, CORRUPT. */
REEF_MUST_CHECK reef_status reef_deferred_familiarity(
    reef_trainer *trainer, uint32_t kind, size_t number, double *out, reef_error *err);

/** All candidates score the new piece, and those that it adds score the pieces before it as well.
 * Errors: as above. */
REEF_MUST_CHECK reef_status reef_deferred_score(reef_trainer *trainer,
                                                size_t number,
                                                reef_error *err);

/** Candidate i knows none of what is deferred, whatever its contexts say. */
void reef_deferred_refuse(reef_recognition *r, size_t i);

/** Does candidate i know a piece as its own, and at least as well as the current kind? */
bool reef_deferred_is_known(const reef_recognition *r, size_t i, size_t number);

/** How much better candidate i knows a piece than the current kind. */
double reef_deferred_lead(const reef_recognition *r, size_t i, size_t number);

#endif
