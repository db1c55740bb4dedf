// A compact copy of a pool in a directory of its own.
//
// LMDB writes the pages of one read transaction, without the free ones; it does not sync them. The file
// is made in the nursery of the new directory and moved to its place at the end, as a new pool's is.
#include "pool_file.h"
#include "pool_format.h"
#include "store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_FILE "data.mdb"

// LMDB would create the file with the modes of the umask; ours are for the owner only.
static reef_status data_file_make(const char *nursery, int *fd, reef_error *err) {
    char *file = reef_pool_file_path(nursery, DATA_FILE);
    if (file == NULL) return reef_fail(err, REEF_NO_MEMORY, "out of memory for a path");
    *fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    reef_status status = *fd >= 0 ? REEF_OK
                                  : reef_fail(err, errno == ENOSPC ? REEF_FULL : REEF_IO,
                                              "cannot create %s: %s", file, strerror(errno));
    free(file);
    return status;
}

static reef_status data_file_write(reef_store *store, const char *to, int fd, reef_error *err) {
    reef_environment *environment = store->environment;
    MDB_envinfo info = {0};
    MDB_stat stat = {0};
    MDB_txn *txn = NULL;
    // A transaction of ours keeps the map where it is while LMDB reads in one of its own.
    reef_status status = reef_environment_begin(environment, false, &txn, err);
    if (status != REEF_OK) return status;
    MDB_env *lmdb = reef_environment_lmdb(environment);
    (void)mdb_env_info(lmdb, &info);
    (void)mdb_env_stat(lmdb, &stat);
    uint64_t bytes = ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize; // at most
    int code = mdb_env_copyfd2(lmdb, fd, MDB_CP_COMPACT);
    if (code == 0 && fsync(fd) != 0) code = errno;
    mdb_txn_abort(txn);
    reef_environment_end(environment, false);
    return code == 0 ? REEF_OK : reef_lmdb_fail(to, code, bytes, "write the copy", err);
}

static reef_status copy_in_place(reef_store *store, const char *to, reef_error *err) {
    char *nursery = NULL;
    int fd = -1;
    // Two may meet in one empty directory: who gets the lock late finds a pool.
    reef_status status = reef_pool_file_absent(to, err);
    if (status == REEF_OK) status = reef_pool_nursery_make(to, &nursery, err);
    if (status == REEF_OK) status = data_file_make(nursery, &fd, err);
    if (status == REEF_OK) status = data_file_write(store, to, fd, err);
    if (fd >= 0) close(fd);
    if (status == REEF_OK) status = reef_pool_nursery_leave(to, nursery, err);
    free(nursery);
    return status;
}

reef_status reef_store_copy(reef_store *store, const char *to, reef_error *err) {
    bool made = false;
    int writer_fd = -1;
    reef_status status = reef_pool_directory_make(to, &made, err);
    if (status != REEF_OK) return status;
    status = reef_writer_lock(to, &writer_fd, err);
    if (status == REEF_BUSY) return status; // another one's directory by now
    if (status == REEF_OK) status = copy_in_place(store, to, err);
    if (status != REEF_OK) reef_pool_directory_unmake(to, made);
    reef_writer_unlock(writer_fd);
    return status;
}
