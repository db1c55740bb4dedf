// A new pool: its configuration, its first generation, and its first commit.
#include "commit.h"
#include "config_internal.h"
#include "events.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// A shard of a new pool whose rows are divided.
typedef struct pool_part {
    reef_shard shard;
    reef_shard_exchange exchange; // of what is written; its root is right once all of it was taken
    void *context;
    uint64_t parameters; // written: of the whole model
} pool_part;

typedef struct first_commit {
    reef_trainer *trainer;
    const pool_part *part; // NULL: all of it
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
    if (status == REEF_OK) status = reef_generations_put(trainer, txn, commit.unix_ms, err);
    if (status == REEF_OK) status = reef_state_put(trainer, txn, err);
    if (status == REEF_OK) status = reef_state_put_history(trainer, txn, err);
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        return status;
    }
    return reef_txn_commit(txn, &commit, err);
}

// A NULL path is a dry run: everything that could be refused is tried.
static reef_status init(const char *path,
                        const reef_config *config,
                        pool_part *part, // or NULL
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
    if (status == REEF_OK) status = reef_generations_first(trainer, err);
    if (status == REEF_OK)
        status = reef_state_event(trainer, err, "init", "\"side\": %u", own.side);
    if (status == REEF_OK && path != NULL)
        status = reef_store_create(path, write_first_commit,
                                   &(first_commit){.trainer = trainer, .part = part}, err);
    if (status == REEF_OK && part != NULL)
        part->parameters = reef_network_parameter_count(&trainer->network);
    reef_trainer_close(trainer);
    return status;
}

reef_status reef_pool_init(const char *path, const reef_config *config, reef_error *err) {
    return init(path, config, NULL, err);
}

// ---- as the shards of several ranks -------------------------------------------------------------
//
// One shard after the other is made, with the rows of its rank alone, and keeps what it wrote of
// them; then each one takes what the others wrote.

enum { MAKE, COMPLETE, ROUNDS };

typedef struct changes {
    void *bytes;
    size_t size;
} changes;

typedef struct making {
    const reef_config *config;
    pool_part part;
    changes *all; // (ranks) what each wrote
} making;

reef_status reef_config_check_divides(const reef_config *config, uint32_t ranks, reef_error *err) {
    bool retrieves = false;
    if (ranks == 1) return REEF_OK;
    for (uint32_t l = 0; config->model == REEF_MODEL_LM && l < config->layers; l++)
        retrieves = retrieves || reef_layer_retrieves(config, l);
    if (!retrieves || config->net_share <= 0.0f)
        return reef_fail(err, REEF_ERR_INVALID,
                         "it is not a model of text with experts: there are no rows that ranks "
                         "could divide");
    if (ranks <= config->batch) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%" PRIu32 " ranks are more than the %" PRIu32
                     " windows of a step, which they share",
                     ranks, config->batch);
}

// ---- what shards tell each other ----------------------------------------------------------------

static reef_status keep(void *context,
                        const void *bytes,
                        size_t size,
                        reef_shard_take take,
                        void *taker,
                        reef_error *err) {
    making *m = context;
    changes *own = &m->all[m->part.shard.rank];
    (void)take, (void)taker;
    void *larger = realloc(own->bytes, own->size + size + 1);
    if (larger == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for what a shard consists of");
    own->bytes = larger;
    if (size > 0) memcpy((char *)own->bytes + own->size, bytes, size);
    own->size += size;
    return REEF_OK;
}

static reef_status give(void *context,
                        const void *bytes,
                        size_t size,
                        reef_shard_take take,
                        void *taker,
                        reef_error *err) {
    making *m = context;
    reef_status status = REEF_OK;
    (void)bytes, (void)size; // nothing changes in this round
    for (uint32_t rank = 0; status == REEF_OK && rank < m->part.shard.count; rank++)
        if (rank != m->part.shard.rank)
            status = take(taker, m->all[rank].bytes, m->all[rank].size, err);
    return status;
}

// ---- the shards ---------------------------------------------------------------------------------

static reef_status complete(making *m, const char *path, reef_error *err) {
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_commit commit;
    reef_status status = reef_store_open(&store, path, &(reef_store_options){.write = true}, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    if (status == REEF_OK) {
        reef_shard_share(txn, give, m);
        status = reef_txn_commit(txn, &commit, err);
        txn = NULL;
    }
    reef_txn_abort(txn);
    reef_store_close(store);
    return status;
}

static reef_status make(
    void *context, uint32_t round, uint32_t rank, const char *path, reef_error *err) {
    making *m = context;
    m->part.shard.rank = rank;
    return round == MAKE ? init(path, m->config, &m->part, err) : complete(m, path, err);
}

reef_status reef_pool_init_divided(const char *path,
                                   const reef_config *config,
                                   uint32_t ranks,
                                   uint64_t *parameters,
                                   reef_error *err) {
    making m = {.config = config, .part = {.shard = {.count = ranks}, .exchange = keep}};
    reef_status status = reef_config_check_divides(config, ranks, err);
    if (status == REEF_OK && ranks < 2)
        status = reef_fail(err, REEF_ERR_INVALID, "one rank has nothing to divide");
    if (status == REEF_OK) status = reef_store_check_new(path, err);
    if (status == REEF_OK) status = reef_shard_draw(&m.part.shard, err);
    if (status != REEF_OK) return status;
    m.part.context = &m;
    m.all = calloc(ranks, sizeof(*m.all));
    if (m.all == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for shards");
    status = reef_shards_create(path, ranks, ROUNDS, make, &m, err);
    if (parameters != NULL) *parameters = m.part.parameters;
    for (uint32_t rank = 0; rank < ranks; rank++) free(m.all[rank].bytes);
    free(m.all);
    return status;
}
