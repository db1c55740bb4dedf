// Which other kinds are asked about text that the current kind does not know.
//
// Where kinds are few, all of them. Else those that learned last, since what was there a moment ago
// often comes back, and those that a vote of the text's contexts names (reef_kind_vote.h). Asking a
// kind may mean reading its memory from the pool; the vote's cost does not depend on how many kinds
// there are.
//
// What the vote knows is taken from the memories as they rest, so nothing of it is stored.
#ifndef REEF_CANDIDATES_H
#define REEF_CANDIDATES_H

#include "reef_kind_vote.h"
#include "trainer_internal.h"

#define REEF_CANDIDATES_MAX 24
#define REEF_CANDIDATES_MORE 2 // that each further piece of text adds

/** Zeros: none. */
typedef struct reef_candidates {
    uint32_t kinds[REEF_CANDIDATES_MAX];
    size_t count;
    bool are_all;         // they are all other kinds: there are few
    reef_kind_vote *vote; // owned; NULL before the first vote
    uint32_t sample;      // that it takes of each kind
    uint64_t *voted_at;   // (voter_count) where a kind had learned last when its vote was taken
    size_t voter_count;
} reef_candidates;

/**
 * Replace the candidates by the kinds that learned last and those that the text names.
 *
 * text  (count) the first that the current kind does not know
 *
 * Errors: NO_MEMORY, IO, CORRUPT a kind's memory cannot be read.
 */
REEF_MUST_CHECK reef_status reef_candidates_choose(reef_candidates *candidates,
                                                   reef_trainer *trainer,
                                                   const uint8_t *text,
                                                   size_t count,
                                                   reef_error *err);

/**
 * The one kind that the text names first, whether it is a candidate or not.
 *
 * any  written; false where it names none
 *
 * Errors: as above.
 */
REEF_MUST_CHECK reef_status reef_candidates_first(reef_candidates *candidates,
                                                  reef_trainer *trainer,
                                                  const uint8_t *text,
                                                  size_t count,
                                                  uint32_t *kind,
                                                  bool *any,
                                                  reef_error *err);

/** Add those that more text names, as long as there is room. Errors: as above. */
REEF_MUST_CHECK reef_status reef_candidates_add(reef_candidates *candidates,
                                                reef_trainer *trainer,
                                                const uint8_t *text,
                                                size_t count,
                                                reef_error *err);

void reef_candidates_release(reef_candidates *candidates); // accepts zeros

#endif
