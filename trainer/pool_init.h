// A new pool with generations that a caller makes.
#ifndef REEF_POOL_INIT_H
#define REEF_POOL_INIT_H

#include "trainer_internal.h"

/** Generations of a new pool, and where it stands in its stream, into a trainer that has none. */
typedef reef_status (*reef_pool_fill)(void *context, reef_trainer *trainer, reef_error *err);

/**
 * A new pool of what `fill` makes. `path` NULL: only that, and no pool. Errors: those of
 * reef_pool_init and of `fill`.
 */
REEF_MUST_CHECK reef_status reef_pool_init_with(const char *path,
                                                const reef_config *config,
                                                reef_pool_fill fill,
                                                void *context,
                                                reef_error *err);

/** A shard of a new pool whose rows are divided. */
typedef struct reef_pool_part {
    reef_shard shard;
    reef_shard_exchange exchange; // of what is written; its root is right once all of it was taken
    void *context;
    uint64_t parameters; // written: of the whole model
} reef_pool_part;

/** reef_pool_init of one shard; `path` is not NULL. */
REEF_MUST_CHECK reef_status reef_pool_init_part(const char *path,
                                                const reef_config *config,
                                                reef_pool_part *part,
                                                reef_error *err);

#endif
