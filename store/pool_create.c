// Making a pool as a whole or not at all: a new one, a copy, or a copy that is changed first.
//
//   TO/               made, or found empty, or with what a process left that died at this
//   TO/writer.lock    taken: nobody else makes a pool here
//   TO/unfinished/    data.mdb is made here
//   TO/data.mdb       moved to its place when it is whole and on the disk: now TO is a pool
//
// So a data file that is in place is a whole pool, whenever the process died or the power failed.
#include "pool_create.h"

#include "pool_file.h"
#include "record.h"
#include "reef_byte_order.h"
#include "reef_fail_point.h"
#include "schema.h"

#include <stdlib.h>

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

reef_status reef_pool_create(const char *path, int *writer_fd, reef_error *err) {
    return reef_pool_make(path, reef_pool_fill_empty, NULL, writer_fd, err);
}
