// The pool's file and its readers, for operators. Pages that a transaction frees can be used again
// once no read transaction is older than it, so a file that grows without need has a reader that
// stays.
#include "shard_view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
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

// ---- readers ------------------------------------------------------------------------------------
//
// LMDB lists the slots of its reader table as text, a line each: pid, thread (hexadecimal), and the
// number of the transaction that is read, or "-" in a slot that waits for the next read. Each
// commit is a transaction.

typedef struct listing {
    reef_readers *out;
    uint64_t last; // the newest transaction
} listing;

static int on_line(const char *line, void *context) {
    listing *l = context;
    long pid;
    uint64_t transaction;
    if (sscanf(line, "%ld %*s %" SCNu64, &pid, &transaction) != 2) return 0; // the heading, or "-"
    l->out->count++;
    if (transaction >= l->last || l->last - transaction <= l->out->behind) return 0;
    l->out->behind = l->last - transaction;
    l->out->oldest_pid = pid;
    return 0;
}

static reef_status add_readers(const reef_environment *environment,
                               MDB_txn *own,
                               reef_readers *out,
                               reef_error *err) {
    listing l = {.out = out, .last = mdb_txn_id(own)};
    uint32_t before = out->count;
    int code = mdb_reader_list(reef_environment_lmdb(environment), on_line, &l);
    if (code < 0) return reef_environment_fail(environment, code, 0, "list the readers", err);
    // None is listed where LMDB has no table, on a read-only file system.
    if (out->count > before) out->count--; // this one
    return REEF_OK;
}

reef_status reef_store_readers(reef_store *store, reef_readers *out, reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_readers){0};
    // While it runs, no thread of this process remaps the environment.
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    if (txn->parts == NULL) status = add_readers(txn->environment, txn->lmdb, out, err);
    for (uint32_t p = 0; status == REEF_OK && p < store->part_count; p++)
        status = add_readers(store->parts[p].environment, txn->parts[p], out, err);
    reef_txn_abort(txn);
    return status;
}
