// A new pool: its configuration, what it begins with, and its first commit.
#include "pool_init.h"
#include "config_internal.h"
#include "events.h"
#include "trainer_internal.h"
#include "trainer_state.h"

#include <stdlib.h>

// What a new pool begins with where nothing else does.
static reef_status first_generation(void *context, reef_trainer *trainer, reef_error *err) {
    (void)context;
    reef_status status = trainer->ops->first_generation(trainer, err);
    if (status != REEF_OK) return status;
    return reef_state_event(trainer, err, "init", "\"side\": %u", trainer->network.config.side);
}

typedef struct first_commit {
    reef_trainer *trainer;
    const reef_pool_part *part; // NULL: all of it
} first_commit;

// Which shard it is comes first, by itself: then the transaction knows whose rows it is to hold.
static reef_status begin_first(const first_commit *first,
                               reef_store *store,
                               reef_txn **txn,
                               reef_error *err) {
    reef_status status = reef_txn_begin(txn, store, REEF_TXN_WRITE, err);
    if (status != REEF_OK || first->part == NULL) return status;
    reef_commit none = {0};
    status = reef_shard_put(*txn, &first->part->shard, err);
    if (status == REEF_OK)
        status = reef_txn_commit(*txn, &none, err);
    else
        reef_txn_abort(*txn);
    *txn = NULL;
    if (status == REEF_OK) status = reef_txn_begin(txn, store, REEF_TXN_WRITE, err);
    if (status == REEF_OK) reef_shard_share(*txn, first->part->exchange, first->part->context);
    return status;
}

// In a pool that is not in place yet: a pool without a configuration and a first commit never
// exists.
static reef_status write_first_commit(void *context, reef_store *store, reef_error *err) {
    const first_commit *first = context;
    reef_trainer *trainer = first->trainer;
    reef_txn *txn = NULL;
    reef_commit commit = {
        .step = trainer->step, .stream_bytes = trainer->stream_bytes, .unix_ms = reef_unix_ms()};
    reef_status status = begin_first(first, store, &txn, err);
    // The first commit has what every later one has: a pool is never without configuration,
    // generation and state.
    if (status == REEF_OK) status = reef_config_put(txn, &trainer->network.config, err);
    if (status == REEF_OK)
        status = trainer->ops->put_generations(trainer, txn, commit.unix_ms, err);
    if (status == REEF_OK) status = reef_state_put(trainer, txn, err);
    if (status == REEF_OK) status = reef_state_put_history(trainer, txn, err);
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        return status;
    }
    return reef_txn_commit(txn, &commit, err);
}

static reef_status init(const char *path,
                        const reef_config *config,
                        reef_pool_fill fill,
                        void *context,
                        reef_pool_part *part,
                        reef_error *err) {
    reef_config own = *config;
    // Settings that have no effect are set to their defaults, so that equal models give equal
    // configuration records.
    reef_config_reduce(&own);
    reef_status status = reef_config_check(&own, err);
    if (status != REEF_OK) return status;
    reef_trainer *trainer = calloc(1, sizeof(*trainer));
    if (trainer == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pool");
    // A trainer without a store: it makes generations and state in memory, and the store writes
    // them into the new directory.
    trainer->network.config = own;
    trainer->options.threads = 1;
    if (part != NULL) trainer->options.shard = part->shard;
    status = reef_trainer_allocate(trainer, err);
    if (status == REEF_OK) status = fill(context, trainer, err);
    if (status == REEF_OK) status = trainer->ops->start_gating(trainer, err);
    if (status == REEF_OK && path != NULL)
        // A NULL path is a dry run: everything that could be refused has been tried.
        status = reef_store_create(path, write_first_commit,
                                   &(first_commit){.trainer = trainer, .part = part}, err);
    if (status == REEF_OK && part != NULL)
        part->parameters = reef_network_parameter_count(&trainer->network);
    reef_trainer_close(trainer);
    return status;
}

reef_status reef_pool_init_with(const char *path,
                                const reef_config *config,
                                reef_pool_fill fill,
                                void *context,
                                reef_error *err) {
    return init(path, config, fill, context, NULL, err);
}

reef_status reef_pool_init_part(const char *path,
                                const reef_config *config,
                                reef_pool_part *part,
                                reef_error *err) {
    return init(path, config, first_generation, NULL, part, err);
}

reef_status reef_pool_init(const char *path, const reef_config *config, reef_error *err) {
    return reef_pool_init_with(path, config, first_generation, NULL, err);
}
