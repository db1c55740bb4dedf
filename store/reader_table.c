// The readers of the pool at this moment, and the age of their snapshots. The oldest read keeps
// pages that were freed since then from reuse, so the file grows.
//
// LMDB lists the slots of its reader table as text, a line each: pid, thread (hexadecimal), and the
// number of the transaction that is read, or "-" in a slot that waits for the next read. Each
// commit is a transaction.
#include "shard_view.h"

#include <inttypes.h>
#include <stdio.h>

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
