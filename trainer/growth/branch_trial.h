// Which beginning learns new data best, found by trying.
//
// What one generation has learned may help the next: attention that reads chess notation finds its
// way in a genome sooner than that of prose. It may also be in the way, and the first loss does not
// tell. So every candidate is trained on the first batches of the new data, and the one whose
// losses before each of these steps have the smallest sum (the prequential rule, Dawid 1984) is
// where the generation begins. In a pool with context memories it is their losses that count, with
// what the net says: a copy has its origin's memory.
//
// Candidates are the open generation as it stands, and a whole copy (branch.h) of each of the
// newest REEF_BRANCH_TRIAL_BRANCHES sealed generations with experts of the same side. Nothing of a
// trial stays: the generation begins untrained, and trains on those batches like on all others.
// What decides is stream, configuration and state, so a trial after a crash ends as it did before.
#ifndef REEF_BRANCH_TRIAL_H
#define REEF_BRANCH_TRIAL_H

#include "trainer_internal.h"

#define REEF_BRANCH_TRIAL_NONE UINT32_MAX // of generations: it does not begin as a copy
#define REEF_BRANCH_TRIAL_BRANCHES 8      // sealed generations that are tried
#define REEF_BRANCH_TRIAL_BATCHES 64      // on so many batches
#define REEF_BRANCH_TRIAL_BATCHES_MIN 16  // with fewer no trial is made

/**
 * Let the open generation, which has trained nothing, begin as whichever candidate learns `batches`
 * batches at `fresh` best: in the stream from the first pending byte on, with one byte more behind
 * them. `origin` is the generation that it is a copy of now, or REEF_BRANCH_TRIAL_NONE.
 */
REEF_MUST_CHECK reef_status reef_branch_trial_choose(
    reef_trainer *trainer, const uint8_t *fresh, size_t batches, uint32_t *origin, reef_error *err);

#endif
