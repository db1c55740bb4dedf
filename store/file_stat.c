// The pool's file, for operators. Pages that a transaction frees can be used again once no read
// transaction is older than it, so a file that grows without need has a reader that stays.
#include "store_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define FREE_DBI 0 // LMDB's own list: the transaction that freed pages; their count and numbers

static reef_status lmdb_failure(int code, reef_error *err) {
    return reef_fail(err, REEF_ERR_IO, "cannot read the pool's pages: %s", mdb_strerror(code));
}

static reef_status count_free_pages(reef_txn *txn, uint64_t *out, reef_error *err) {
    MDB_cursor *cursor;
    MDB_val key, pages;
    int code = mdb_cursor_open(txn->lmdb, FREE_DBI, &cursor);
    if (code != 0) return lmdb_failure(code, err);
    *out = 0;
    while ((code = mdb_cursor_get(cursor, &key, &pages, MDB_NEXT)) == 0) {
        // LMDB stores lists as native size_t: the count comes first.
        size_t count = 0;
        if (pages.mv_size >= sizeof(count)) memcpy(&count, pages.mv_data, sizeof(count));
        *out += count;
    }
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? REEF_OK : lmdb_failure(code, err);
}

reef_status reef_file_stat_read(reef_txn *txn, reef_file_stat *out, reef_error *err) {
    MDB_env *lmdb = reef_environment_lmdb(txn->environment);
    MDB_stat stat;
    struct stat file;
    int fd;
    *out = (reef_file_stat){0};
    int code = mdb_env_stat(lmdb, &stat);
    if (code == 0) code = mdb_env_get_fd(lmdb, &fd);
    if (code == 0 && fstat(fd, &file) != 0) code = errno;
    if (code != 0) return lmdb_failure(code, err);
    reef_status status = count_free_pages(txn, &out->free_bytes, err);
    if (status != REEF_OK) return status;
    out->file_bytes = (uint64_t)file.st_size;
    // Counted in pages until here.
    out->free_bytes *= stat.ms_psize;
    return REEF_OK;
}
