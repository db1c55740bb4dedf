// A kind comes back, and its net goes on learning.
//
// The memory of a kind that comes back learns at once (kinds/kind_memories.h); its net is sealed
// with its generation. Once the kind has learned REEF_RETURN_BYTES since, and a third of all that
// it has learned, the open generation is sealed and the next one *continues* the kind:
//
//   generation 0   memory and net of English                                            sealed
//   generation 1   memory and net of German; visits of English                          sealed
//   generation 2   continues English: its net begins as that of generation 0; no memory
//                  of its own, since visits of English go on                            open
//
// It begins as a branch of the kind's newest net (net_return.c), so it computes what that did.
// Optimiser and rates begin anew. Older states keep
// the nets that they had. As a kind has to learn half as much again each time, few generations
// continue it.
#ifndef REEF_NET_RETURN_H
#define REEF_NET_RETURN_H

#include "trainer_internal.h"

// A generation costs as much for fewer bytes, and learns less of them (research/NOTEBOOK.md).
#define REEF_RETURN_BYTES (128 << 10)

/** Has a kind that is not the open generation's learned so much that its net should follow? */
bool reef_net_return_is_due(const reef_trainer *trainer, uint32_t kind);

/**
 * Seal the open generation, and open one that continues the kind, in memory, between two batches.
 * Reported as the events of a boundary and of a branch.
 *
 * Errors: NO_MEMORY, IO; the trainer is broken then if the open generation was sealed already.
 */
REEF_MUST_CHECK reef_status reef_net_return(reef_trainer *trainer, uint32_t kind, reef_error *err);

#endif
