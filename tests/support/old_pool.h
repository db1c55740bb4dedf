// A pool with a configuration that is refused in new ones, or is another pool's.
#ifndef OLD_POOL_H
#define OLD_POOL_H

#include "pool.h"
#include "reef_trainer.h"

/** Give the pool in `path` another value of a field. */
static inline void old_pool_set(const char *path, const char *name, const char *value) {
    reef_commit commit;
    reef_config config;
    reef_store *store = pool_open(path, false, true);
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_commit_read(txn, &commit, &why));
    must(reef_config_read(txn, &config, &why));
    must(reef_config_set(&config, name, value, &why));
    char *text = reef_config_format(&config);
    assert_non_null(text);
    must(reef_record_put(txn, &(reef_key){.db = REEF_DB_META, .name = "config"}, REEF_JSON, text,
                         strlen(text), &why));
    must(reef_txn_commit(txn, &commit, &why));
    free(text);
    reef_store_close(store);
}

#endif
