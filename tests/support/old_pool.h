// A pool with a configuration that is refused in new ones, or is another pool's.
#ifndef OLD_POOL_H
#define OLD_POOL_H

#include "reef_trainer.h"
#include "test.h"

/** Give the pool in `path` another value of a field. */
static inline void old_pool_set(const char *path, const char *name, const char *value) {
    reef_error err = {0};
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_commit commit;
    reef_config config;
    reef_status status = reef_store_open(&store, path, &(reef_store_options){.write = true}, &err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, &err);
    if (status == REEF_OK) status = reef_config_read(txn, &config, &err);
    if (status == REEF_OK) status = reef_config_set(&config, name, value, &err);
    char *text = status == REEF_OK ? reef_config_format(&config) : NULL;
    if (status == REEF_OK)
        status = reef_record_put(txn, &(reef_key){.db = REEF_DB_META, .name = "config"}, REEF_JSON,
                                 text, strlen(text), &err);
    if (status == REEF_OK) status = reef_txn_commit(txn, &commit, &err);
    free(text);
    reef_store_close(store);
    if (status != REEF_OK) fail_msg("%s", err.message);
}

#endif
