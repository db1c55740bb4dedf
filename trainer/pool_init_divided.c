// A new pool as the shards of several ranks. One shard after the other is made, with the rows of
// its rank alone, and keeps what it wrote of them; then each one takes what the others wrote.
#include "pool_init.h"
#include "reef_shard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAKE, COMPLETE, ROUNDS };

typedef struct changes {
    void *bytes;
    size_t size;
} changes;

typedef struct making {
    const reef_config *config;
    reef_pool_part part;
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
    return round == MAKE ? reef_pool_init_part(path, m->config, &m->part, err)
                         : complete(m, path, err);
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
