// The pool's file, for operators. Pages that a transaction frees can be used again once no read
// transaction is older than it, so a file that grows without need has a reader that stays.
#include "shard_view.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define FREE_DBI 0 // LMDB's own list: the transaction that freed pages; their count and numbers

static reef_status lmdb_failure(int code, reef_error *err) {
    return reef_fail(err, REEF_ERR_IO, "cannot read the pool's pages: %s", mdb_strerror(code));
}

static reef_status count_free_pages(MDB_txn *lmdb, uint64_t *out, reef_error *err) {
    MDB_cursor *cursor;
    MDB_val key, pages;
    int code = mdb_cursor_open(lmdb, FREE_DBI, &cursor);
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

static reef_status add_file(const reef_environment *environment,
                            MDB_txn *txn,
                            reef_file_stat *out,
                            reef_error *err) {
    MDB_env *lmdb = reef_environment_lmdb(environment);
    MDB_stat stat;
    struct stat file;
    uint64_t free_pages = 0;
    int fd;
    int code = mdb_env_stat(lmdb, &stat);
    if (code == 0) code = mdb_env_get_fd(lmdb, &fd);
    if (code == 0 && fstat(fd, &file) != 0) code = errno;
    if (code != 0) return lmdb_failure(code, err);
    reef_status status = count_free_pages(txn, &free_pages, err);
    out->file_bytes += (uint64_t)file.st_size;
    out->free_bytes += free_pages * stat.ms_psize;
    return status;
}

reef_status reef_file_stat_read(reef_txn *txn, reef_file_stat *out, reef_error *err) {
    const reef_store *store = txn->store;
    reef_status status = REEF_OK;
    *out = (reef_file_stat){0};
    if (txn->parts == NULL) return add_file(txn->environment, txn->lmdb, out, err);
    for (uint32_t p = 0; status == REEF_OK && p < store->part_count; p++)
        status = add_file(store->parts[p].environment, txn->parts[p], out, err);
    return status;
}
