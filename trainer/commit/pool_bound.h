// What a pool may take: older states are given up where it takes more.
#ifndef REEF_POOL_BOUND_H
#define REEF_POOL_BOUND_H

#include "trainer_internal.h"

/** Bytes that the last commit takes, where they are more than pool_max allows; else 0. */
REEF_MUST_CHECK reef_status reef_pool_over(reef_trainer *trainer, uint64_t *out, reef_error *err);

/**
 * Within a commit's transaction, before anything else of it: give up old states of a pool that
 * takes `bytes`, as reef_trainer_set_pool_max says. 0: nothing is to be done.
 */
REEF_MUST_CHECK reef_status reef_pool_bound(reef_trainer *trainer,
                                            reef_txn *txn,
                                            uint64_t bytes,
                                            reef_error *err);

#endif
