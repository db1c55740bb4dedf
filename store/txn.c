// Transactions and records.
//
// A record and its entry in `sums` change together, and a read compares both: the record's own
// checksum finds damage, the commit number and content hash in `sums` find a record that is intact
// but old. A write transaction stamps what it writes with the number of the commit it will become.
// After a write that LMDB refused, the transaction can only be aborted: reef_txn_commit says why.
#include "shard_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

// ---- begin and end ------------------------------------------------------------------------------

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static reef_status lmdb_begin(reef_txn *txn, reef_error *err) {
    bool write = txn->mode == REEF_TXN_WRITE;
    txn->begun_ns = now_ns();
    if (txn->store->part_count > 0) return reef_view_begin(txn, err);
    return reef_environment_begin(txn->environment, write, &txn->lmdb, err);
}

// Accepts a transaction whose LMDB transaction has ended: a step of it failed, or its commit took
// it.
static void lmdb_end(reef_txn *txn) {
    bool write = txn->mode == REEF_TXN_WRITE;
    if (!write && txn->lmdb != NULL)
        reef_environment_note_read(txn->environment, now_ns() - txn->begun_ns);
    if (txn->store->part_count > 0) {
        reef_view_end(txn);
        return;
    }
    mdb_txn_abort(txn->lmdb); // accepts NULL
    if (write || txn->lmdb != NULL) reef_environment_end(txn->environment, write);
    txn->lmdb = NULL;
}

static reef_status last_commit_number(reef_txn *txn, uint64_t *out, reef_error *err) {
    reef_commit commit = {0};
    reef_status status = reef_commit_read(txn, &commit, err);
    *out = commit.number; // 0 before the first
    return status == REEF_ERR_NOT_FOUND ? REEF_OK : status;
}

// What writes needs to know what is sealed. Where the record of the last generation is damaged,
// only a restore that takes that generation away may write (reef_snapshot_restore): all else fails
// as if a write had.
static reef_status load_generations(reef_txn *txn, reef_error *err) {
    reef_error reason;
    reef_status status = reef_txn_generations_load(txn, &reason);
    if (status == REEF_OK) return REEF_OK;
    txn->last_damaged = status == REEF_ERR_CORRUPT && txn->generation_count > 0;
    txn->failure = reason;
    return txn->last_damaged ? REEF_OK : reef_fail(err, status, "%s", reason.message);
}

// A record of it that cannot be read is reported by who needs it; here the pool counts as whole. So
// do all shards together.
static void load_division(reef_txn *txn) {
    reef_shard shard;
    reef_error none;
    bool divided = txn->parts == NULL && reef_shard_read(txn, &shard, &none) == REEF_OK;
    txn->division_count = divided ? shard.count : 1;
    txn->division_rank = divided ? shard.rank : 0;
}

reef_status reef_txn_begin(reef_txn **out, reef_store *store, reef_txn_mode mode, reef_error *err) {
    *out = NULL;
    bool write = mode == REEF_TXN_WRITE;
    // Found here, since LMDB's own message would be "permission denied".
    if (write && !store->write)
        return reef_fail(err, REEF_ERR_INVALID, "pool %s is open for reading only", store->path);
    reef_txn *txn = calloc(1, sizeof(*txn));
    if (txn == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "out of memory for a transaction on pool %s",
                         store->path);
    txn->store = store;
    txn->environment = store->environment;
    txn->mode = mode;
    reef_status status = lmdb_begin(txn, err);
    if (status != REEF_OK) {
        free(txn);
        return status;
    }
    load_division(txn);
    if (write) {
        // The number of the commit to come is in every record that it writes.
        status = last_commit_number(txn, &txn->commit, err);
        txn->commit++;
        // A writer must know what is sealed, to refuse changes to it.
        if (status == REEF_OK) status = load_generations(txn, err);
        if (status != REEF_OK) {
            reef_txn_abort(txn);
            return status;
        }
    }
    *out = txn;
    return REEF_OK;
}

void reef_txn_abort(reef_txn *txn) {
    if (txn == NULL) return;
    lmdb_end(txn);
    free(txn->changes);
    free(txn);
}

reef_status reef_txn_renew(reef_txn *txn, bool *renewed, reef_error *err) {
    *renewed =
        txn->mode == REEF_TXN_READ_RENEWED && now_ns() - txn->begun_ns > txn->store->renew_ns;
    if (!*renewed) return REEF_OK;
    lmdb_end(txn);
    return lmdb_begin(txn, err);
}
