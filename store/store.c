// Opening and closing a pool, which is work of environment.c, as a process's stores of one pool
// share it; and making one as a whole or not at all: a new one, a copy, or a copy that is changed
// first.
//
//   TO/               made, or found empty, or with what a process left that died at this
//   TO/writer.lock    taken: nobody else makes a pool here
//   TO/unfinished/    data.mdb is made here
//   TO/data.mdb       moved to its place when it is whole and on the disk: now TO is a pool
//
// So a data file that is in place is a whole pool, whenever the process died or the power failed.
#include "pool_file.h"
#include "reef_fail_point.h"
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

// ---- making a pool ------------------------------------------------------------------------------

static reef_status make_in_staging(const char *path,
                                   reef_pool_fill fill,
                                   void *context,
                                   reef_error *err) {
    char *staging = NULL;
    reef_status status = reef_pool_staging_make(path, &staging, err);
    if (status == REEF_OK) {
        REEF_FAIL_POINT(MAKE_BEGUN);
        status = fill(context, staging, err);
    }
    if (status == REEF_OK) {
        REEF_FAIL_POINT(MAKE_FILLED);
        status = reef_pool_staging_leave(path, staging, err);
    }
    free(staging);
    return status;
}

reef_status reef_pool_make(
    const char *path, reef_pool_fill fill, void *context, int *writer_fd, reef_error *err) {
    bool made = false;
    int fd = -1;
    if (writer_fd != NULL) *writer_fd = -1;
    reef_status status = reef_pool_directory_make(path, &made, err);
    if (status != REEF_OK) return status;
    status = reef_writer_lock(path, &fd, err);
    if (status == REEF_ERR_BUSY) return status; // another creator's directory by now
    // Two may meet in one empty directory: who gets the lock late finds a pool, and leaves it
    // alone.
    bool locked = status == REEF_OK;
    if (locked) status = reef_pool_file_absent(path, err);
    bool ours = !locked || status == REEF_OK;
    if (status == REEF_OK) status = make_in_staging(path, fill, context, err);
    if (ours && status != REEF_OK) reef_pool_directory_unmake(path, made);
    if (status == REEF_OK && writer_fd != NULL) {
        *writer_fd = fd; // the caller owns it now
        fd = -1;
    }
    reef_writer_unlock(fd);
    return status;
}

// All databases and the format record, in one transaction.
static int databases_create(MDB_env *lmdb) {
    MDB_txn *txn = NULL;
    MDB_dbi dbis[REEF_DB_COUNT];
    int code = mdb_txn_begin(lmdb, NULL, 0, &txn);
    for (reef_db db = 0; code == 0 && db < REEF_DB_COUNT; db++)
        // Later opens find them in a read transaction.
        code = mdb_dbi_open(txn, reef_db_name(db), MDB_CREATE, &dbis[db]);
    if (code == 0) code = reef_format_write(txn, dbis);
    if (code == 0) return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return code;
}

reef_status reef_pool_fill_empty(void *context, const char *path, reef_error *err) {
    MDB_env *lmdb = NULL;
    bool read_only = false;
    (void)context;
    reef_status status = reef_pool_lock_reserve(path, &read_only, err);
    if (status != REEF_OK) return status;
    int code = mdb_env_create(&lmdb);
    if (code == 0) code = mdb_env_set_maxdbs(lmdb, REEF_DB_COUNT);
    if (code == 0) code = mdb_env_open(lmdb, path, 0, 0600);
    if (code == 0) code = databases_create(lmdb);
    mdb_env_close(lmdb); // accepts NULL
    return code == 0 ? REEF_OK : reef_lmdb_fail(path, code, 0, "create the databases", err);
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
