// Opening and closing a pool. The work is in environment.c, which a process's stores of one pool
// share.
#include "pool_create.h"
#include "shard_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_store_open(reef_store **out,
                            const char *path,
                            const reef_store_options *options,
                            reef_error *err) {
    const reef_store_options standard = {0};
    if (options == NULL) options = &standard;
    *out = NULL;
    if (path == NULL || *path == '\0')
        return reef_fail(err, REEF_ERR_INVALID, "the pool's path is empty");
    reef_txn *first = NULL;
    reef_store *store = calloc(1, sizeof(*store));
    char *copy = strdup(path);
    reef_status status = REEF_OK;
    if (store == NULL || copy == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "out of memory while opening pool %s", path);
        goto cleanup;
    }
    store->path = copy;
    store->write = options->write;
    // Work between two readings of the clock takes time too.
    store->renew_ns =
        options->renew_us > 0 ? 1000 * options->renew_us : UINT64_C(1000000) * REEF_READ_MS_MAX / 2;
    bool shards = !options->create && reef_view_is_at(path);
    if (shards)
        status = reef_view_open(store, path, options, err);
    else
        status = reef_environment_open(&store->environment, path,
                                       &(reef_environment_options){.create = options->create,
                                                                   .write = options->write,
                                                                   .damaged = options->damaged,
                                                                   .no_sync = options->no_sync,
                                                                   .map_bytes = options->map_bytes},
                                       err);
    if (status != REEF_OK) goto cleanup;
    // Shards that cannot be read together are refused now.
    if (shards) status = reef_txn_begin(&first, store, REEF_TXN_READ, err);
    reef_txn_abort(first);
    if (status != REEF_OK) {
        reef_view_close(store);
        goto cleanup;
    }
    *out = store; // the caller owns it now
    store = NULL;
    copy = NULL;

cleanup:
    free(copy);
    free(store);
    return status;
}

void reef_store_close(reef_store *store) {
    if (store == NULL) return;
    if (store->part_count > 0)
        reef_view_close(store);
    else
        reef_environment_close(store->environment, store->write);
    free(store->path);
    free(store);
}

void reef_store_read_stat(const reef_store *store, reef_read_stat *out) {
    reef_environment_read_stat(store->environment, out);
}

const char *reef_store_path(const reef_store *store) {
    return store->path;
}

uint32_t reef_store_part_count(const reef_store *store) {
    return store->part_count > 0 ? store->part_count : 1;
}

reef_status reef_pool_change(const char *path,
                             reef_store_change change,
                             void *context,
                             reef_error *err) {
    reef_store *store = NULL;
    reef_status status = reef_store_open(&store, path, &(reef_store_options){.write = true}, err);
    if (status == REEF_OK) status = change(context, store, err);
    reef_store_close(store);
    return status;
}

typedef struct creation {
    reef_store_change change;
    void *context;
} creation;

static reef_status fill_new(void *context, const char *staging, reef_error *err) {
    const creation *c = context;
    reef_status status = reef_pool_fill_empty(NULL, staging, err);
    return status == REEF_OK ? reef_pool_change(staging, c->change, c->context, err) : status;
}

reef_status reef_store_create(const char *path,
                              reef_store_change change,
                              void *context,
                              reef_error *err) {
    creation c = {.change = change, .context = context};
    if (path == NULL || *path == '\0')
        return reef_fail(err, REEF_ERR_INVALID, "the pool's path is empty");
    return reef_pool_make(path, fill_new, &c, NULL, err);
}
