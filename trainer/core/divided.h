// What the ranks of a divided pool (reef_shard.h) tell each other of its records. All of them make
// the same calls at the same points. Of a pool that is not divided nothing is told.
#ifndef REEF_DIVIDED_H
#define REEF_DIVIDED_H

#include "trainer_internal.h"

/** Every rank has written each[rank], of `bytes` bytes, and gets those of the others. */
void reef_divided_tell(reef_ranks *ranks, void *each, size_t bytes);

/**
 * Give all ranks what each of them has: a reef_shard_exchange whose context is the reef_ranks. A
 * rank without memory for it ends all.
 */
REEF_MUST_CHECK reef_status reef_divided_exchange(void *context,
                                                  const void *changes,
                                                  size_t bytes,
                                                  reef_shard_take take,
                                                  void *taker,
                                                  reef_error *err);

/** The rank has failed where the others wait for it: all end. */
void reef_divided_failed(const reef_trainer *trainer, const reef_error *err);

/**
 * Ranks that open a divided pool wait here until all have come so far. Each comes once, with how it
 * fared; so nobody waits for one that has failed. Errors: its own; BUSY another's.
 */
REEF_MUST_CHECK reef_status reef_divided_meet(reef_trainer *trainer,
                                              reef_status status,
                                              reef_error *err);

#endif
