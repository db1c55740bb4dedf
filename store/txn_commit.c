// A commit: root hash, snapshots that were begun, the commit record, and LMDB's own commit.
//
// It stands above all other records, because its root hash and its snapshots read them. Nothing of
// a transaction is visible to readers, or survives a crash, before LMDB's commit has returned.
#include "store_internal.h"

#include "reef_fail_point.h"

static reef_status lmdb_commit(reef_txn *txn, reef_error *err) {
    // What LMDB writes besides payloads: pages of the trees, the free list. A tenth is generous.
    uint64_t needed = txn->bytes_written + txn->bytes_written / 10;
    int code = mdb_txn_commit(txn->lmdb);
    txn->lmdb = NULL; // used up, even when it failed
    if (code == 0) return REEF_OK;
    reef_environment_break(txn->environment);
    if (code == MDB_MAP_FULL) reef_environment_map_full(txn->environment);
    return reef_environment_fail(txn->environment, code, needed, "commit", err);
}

void reef_txn_before_commit(reef_txn *txn, reef_txn_check check, void *context) {
    txn->before_commit = check;
    txn->before_context = context;
}

reef_status reef_txn_commit(reef_txn *txn, reef_commit *commit, reef_error *err) {
    uint8_t bytes[REEF_COMMIT_BYTES];
    reef_status status = reef_txn_writable(txn, err);
    if (status != REEF_OK) goto cleanup;
    status = reef_shard_settle(txn, err);
    if (status != REEF_OK) goto cleanup;
    REEF_FAIL_POINT(COMMIT_BEFORE_ROOT);
    // Filled in here: a caller cannot know what the transaction has written.
    commit->number = txn->commit;
    commit->bytes_written = txn->bytes_written;
    status = reef_root_hash(txn, commit->step, commit->stream_bytes, commit->root, err);
    if (status != REEF_OK) goto cleanup;
    if (txn->snapshot_unfinished) {
        status = reef_snapshots_finish(txn, commit, err);
        if (status != REEF_OK) goto cleanup;
    }
    REEF_FAIL_POINT(COMMIT_BEFORE_RECORD);
    // The commit record is written last, since it holds the root of all others.
    reef_commit_encode(commit, bytes);
    status = reef_record_store(txn, &reef_commit_key, REEF_BYTES, bytes, sizeof(bytes), err);
    if (status != REEF_OK) goto cleanup;
    if (txn->before_commit != NULL) {
        status = txn->before_commit(txn->before_context, commit, err);
        if (status != REEF_OK) goto cleanup;
    }
    REEF_FAIL_POINT(COMMIT_BEFORE_SYNC);
    status = lmdb_commit(txn, err);
    if (status == REEF_OK) REEF_FAIL_POINT(COMMIT_AFTER_SYNC);

cleanup:
    reef_txn_abort(txn); // releases the handle; after lmdb_commit nothing is left to undo
    return status;
}
