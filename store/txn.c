// Transactions: their begin, their end, and the record of the last commit in `meta`.
//
// After a write that LMDB refused, one can only be aborted: reef_txn_commit says why.
#include "reef_byte_order.h"
#include "shard_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- the record of the last commit --------------------------------------------------------------

// meta "commit", 56 bytes, little-endian:
//   0 number u64   8 step u64   16 stream bytes u64   24 wall clock ms u64   32 bytes written u64
//   40 root hash, 16 bytes

const reef_key reef_commit_key = {.db = REEF_DB_META, .name = REEF_COMMIT_NAME};

void reef_commit_encode(const reef_commit *commit, uint8_t out[REEF_COMMIT_BYTES]) {
    reef_put_le64(out, commit->number);
    reef_put_le64(out + 8, commit->step);
    reef_put_le64(out + 16, commit->stream_bytes);
    reef_put_le64(out + 24, commit->unix_ms);
    reef_put_le64(out + 32, commit->bytes_written);
    memcpy(out + 40, commit->root, REEF_HASH_BYTES);
}

static void commit_decode(const uint8_t in[REEF_COMMIT_BYTES], reef_commit *out) {
    *out = (reef_commit){.number = reef_get_le64(in),
                         .step = reef_get_le64(in + 8),
                         .stream_bytes = reef_get_le64(in + 16),
                         .unix_ms = reef_get_le64(in + 24),
                         .bytes_written = reef_get_le64(in + 32)};
    memcpy(out->root, in + 40, REEF_HASH_BYTES);
}

reef_status reef_commit_read(reef_txn *txn, reef_commit *out, reef_error *err) {
    uint8_t bytes[REEF_COMMIT_BYTES];
    reef_status status = reef_record_read(txn, &reef_commit_key, bytes, sizeof(bytes), err);
    if (status == REEF_ERR_NOT_FOUND)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "pool %s has no commit yet", txn->store->path);
    if (status == REEF_OK) commit_decode(bytes, out);
    return status;
}

reef_status reef_store_read_commit(reef_store *store, reef_commit *out, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, out, err);
    reef_txn_abort(txn);
    return status;
}

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

reef_status reef_txn_failed(reef_txn *txn,
                            reef_status status,
                            const reef_error *reason,
                            reef_error *err) {
    if (txn->failure.status == REEF_OK) txn->failure = *reason;
    return reef_fail(err, status, "%s", reason->message);
}

reef_status reef_txn_writable(const reef_txn *txn, reef_error *err) {
    if (txn->mode != REEF_TXN_WRITE)
        return reef_fail(err, REEF_ERR_INVALID, "pool %s: a read transaction cannot write",
                         txn->store->path);
    if (txn->failure.status != REEF_OK)
        return reef_fail(err, txn->failure.status, "%s", txn->failure.message);
    return REEF_OK;
}
