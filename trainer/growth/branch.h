// A branch, with which the net of a kind that came back goes on (net_return.h): the open
// generation, which has trained nothing yet, begins as a copy of a sealed one, with its side, query
// networks, sub-keys, experts and corrections. The sealed one is only read.
//
// The pool's function stays what it is, to the bit, because the copy answers nothing before it has
// trained: its gate has not been fitted and never fires. What it copies depends on what happens
// where its gate is open:
//
//   whole   at most one generation after the first answers a byte, so the branch of such a one
//           replaces its origin wherever its gate is open, as it is in training. It copies all of
//           it, w_up and corrections too: forced open it computes what its origin does, and trains
//           on from there.
//   silent  generation 0 always answers: what a branch of it and it both know would count twice.
//           So w_up and whatever else adds to the output on its own begins at zero, and only
//           w_down, w_gate, sub-keys and queries are copied.
//
// Its kind's context memory stays where it is, and learns on.
#ifndef REEF_BRANCH_H
#define REEF_BRANCH_H

#include "trainer_internal.h"

/** A generation for the open slot that is a copy of `from`, whole or silent; the caller's. */
REEF_MUST_CHECK reef_status reef_branch_make(reef_generation **out,
                                             const reef_trainer *trainer,
                                             const reef_generation *from,
                                             bool whole,
                                             reef_error *err);
/** Of such a copy, once it is the open generation: measure its queries, and it can be trained. */
REEF_MUST_CHECK reef_status reef_branch_settle(reef_trainer *trainer,
                                               const reef_generation *from,
                                               reef_error *err);
/** Is a branch of generation `from` a whole copy? */
bool reef_branch_is_whole(uint32_t from);

/**
 * Query networks of an open generation from folded ones, as if raw queries had mean 0 and variance
 * 1.
 */
void reef_branch_unfold(reef_generation *generation,
                        const reef_generation *from,
                        const reef_config *config);

#endif
