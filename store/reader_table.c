// The readers of the pool at this moment, and the age of their snapshots. The oldest read keeps
// pages that were freed since then from reuse, so the file grows.
//
// LMDB lists the slots of its reader table as text, a line each: pid, thread (hexadecimal), and the
// number of the transaction that is read, or "-" in a slot that waits for the next read. Each
// commit is a transaction.
#include "store_internal.h"

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

reef_status reef_store_readers(reef_store *store, reef_readers *out, reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_readers){0};
    // While it runs, no thread of this process remaps the environment.
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    listing l = {.out = out, .last = mdb_txn_id(txn->lmdb)};
    int code = mdb_reader_list(reef_environment_lmdb(store->environment), on_line, &l);
    if (code < 0)
        status = reef_environment_fail(txn->environment, code, 0, "list the readers", err);
    else if (out->count > 0) // none is listed where LMDB has no table, on a read-only file system
        out->count--;        // this one
    reef_txn_abort(txn);
    return status;
}
