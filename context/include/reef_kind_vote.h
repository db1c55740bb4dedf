// Which kinds could a text be of? Its last contexts vote.
//
// Of each kind one column of bits says which contexts of 3, 4 and 6 bytes there are in a sample of
// the text that its memory keeps. A context of a text votes for the kinds that had it, and weighs
// the more the fewer these are; what lies further back counts less. The cost of a vote is that of
// some hundred contexts, each a row of one bit a kind.
//
// The vote chooses who is asked; it does not decide. A function of the kinds' texts and the text.
#ifndef REEF_KIND_VOTE_H
#define REEF_KIND_VOTE_H

#include "reef_context.h"

#include <stddef.h>
#include <stdint.h>

typedef struct reef_kind_vote reef_kind_vote;

#define REEF_KIND_SAMPLE 524288 // bytes of each kind's text, from all over it, whose contexts count
#define REEF_KIND_SAMPLE_SMALL 65536 // the same where few kinds vote

/**
 * sample  one of these two
 *
 * Errors: NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_kind_vote_new(reef_kind_vote **out,
                                                        uint32_t sample,
                                                        reef_error *err);
REEF_API void reef_kind_vote_free(reef_kind_vote *vote); // accepts NULL

/**
 * From now on `kind` is what its memory says, instead of what it was. 128 KB a kind, or 64 KB with
 * the small sample, in steps of 64 kinds.
 *
 * memory  NULL: the kind has no text, and no vote
 *
 * Errors: NO_MEMORY, and the vote is as before.
 */
REEF_API REEF_MUST_CHECK reef_status reef_kind_vote_set(reef_kind_vote *vote,
                                                        uint32_t kind,
                                                        const reef_memory *memory,
                                                        reef_error *err);

/**
 * The kinds with the most votes of a text, the first one first; of equals the one with the lower
 * number. Kinds that share less of the text's contexts than any text by chance are left out.
 *
 * text   (count); the last 256 bytes vote
 * least  of the first one's votes; kinds with less are left out. 0: none is
 * kinds  (max) written
 *
 * Returns how many. Threads: any, while nothing is set.
 */
REEF_API size_t reef_kind_vote_count(const reef_kind_vote *vote,
                                     const uint8_t *text,
                                     size_t count,
                                     double least,
                                     uint32_t *kinds,
                                     size_t max);

#endif
