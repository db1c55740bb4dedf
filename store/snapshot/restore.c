// Restore a snapshot, in the pool or in a copy that is not in place yet (pool_copy.c).
//
// Everything happens in one write transaction. What the restored state does not share with the
// pool goes first, then the copies come back under the numbers that they were made from:
//
//   generation   0 .. shared_count - 1   shared_count .. sealed_count - 1   sealed_count   and
//                later stay                    from kept, kept + 1, ...           from copy      go
//
// Root hashes do not depend on commits, so it must give the very root of the commit that the
// snapshot is of: the restore proves itself before it is committed.
#include "reef_fail_point.h"
#include "store_internal.h"

#include "reef_byte_order.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <string.h>

// ---- what goes ----------------------------------------------------------------------------------

static reef_status on_other(void *context, const reef_snapshot *snapshot, reef_error *err) {
    reef_restore_plan *plan = context;
    (void)err;
    if (snapshot->shared_count <= plan->snapshot.shared_count) return REEF_OK; // itself too
    if (plan->needy_count++ > 0) return REEF_OK;
    memcpy(plan->needy, snapshot->name, sizeof(plan->needy));
    plan->needy_damaged = snapshot->damaged;
    return REEF_OK;
}

reef_status reef_snapshot_restore_plan(reef_txn *txn,
                                       const char *name,
                                       reef_restore_plan *plan,
                                       reef_error *err) {
    *plan = (reef_restore_plan){0};
    reef_status status = reef_snapshot_find(txn, name, &plan->snapshot, err);
    if (status != REEF_OK) return status;
    uint32_t shared = plan->snapshot.shared_count;
    status = reef_txn_generations_load(txn, err);
    // The last one goes: then its record may be damaged.
    if (status == REEF_ERR_CORRUPT && txn->generation_count > shared) status = REEF_OK;
    if (status == REEF_OK) status = reef_snapshot_scan(txn, on_other, plan, err);
    if (status != REEF_OK) return status;
    plan->generation_count = txn->generation_count;
    plan->sealed_gone = txn->sealed_count > shared ? txn->sealed_count - shared : 0;
    // What a snapshot shares is never removed, so fewer sealed generations mean damage.
    if (shared <= txn->sealed_count) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "snapshot %s shares %" PRIu32 " sealed generations, pool %s has %" PRIu32,
                     plan->snapshot.name, shared, txn->store->path, txn->sealed_count);
}

// Snapshots that share a generation which is about to go, or are damaged. Scanned again each time:
// a removal moves cursors.
static reef_status remove_needy(reef_txn *txn, const reef_restore_plan *plan, reef_error *err) {
    reef_restore_plan left = *plan;
    reef_status status = REEF_OK;
    while (status == REEF_OK && left.needy_count > 0) {
        status = reef_snapshot_remove(txn, left.needy, err);
        left.needy_count = 0;
        if (status == REEF_OK) status = reef_snapshot_scan(txn, on_other, &left, err);
    }
    return status;
}

// All of a database from generation `first` on, or all where its keys name none.
static reef_status remove_from(reef_txn *txn, reef_db db, uint32_t first, reef_error *err) {
    reef_walk walk = {.db = db};
    reef_status status = reef_walk_next(&walk, txn, err);
    while (status == REEF_OK && !walk.done) {
        // Keys of usage begin with level and window, so its generations are mixed.
        bool goes = db != REEF_DB_USAGE || walk.key.generation >= first;
        if (goes) status = reef_record_remove(txn, &walk.key, err);
        if (status == REEF_OK) status = reef_walk_next(&walk, txn, err);
    }
    return status;
}

static reef_status remove_generations(reef_txn *txn,
                                      const reef_restore_plan *plan,
                                      reef_error *err) {
    const reef_snapshot *snapshot = &plan->snapshot;
    reef_status status = remove_from(txn, REEF_DB_USAGE, snapshot->shared_count, err);
    for (uint32_t g = snapshot->shared_count; status == REEF_OK && g < plan->generation_count; g++)
        status = reef_generation_remove(txn, g, err);
    return status;
}

// ---- what comes back ----------------------------------------------------------------------------

static reef_status copy_back(reef_txn *txn, const reef_snapshot *snapshot, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t g = snapshot->shared_count; status == REEF_OK && g < snapshot->sealed_count; g++)
        status = reef_generation_copy_back(txn, reef_snapshot_records(snapshot, g), g, err);
    if (status == REEF_OK && snapshot->copy != 0)
        status = reef_generation_copy_back(txn, snapshot->copy, snapshot->open_generation, err);
    return status == REEF_OK ? reef_txn_generations_load(txn, err) : status;
}

static reef_status prove(reef_txn *txn, const reef_snapshot *snapshot, reef_error *err) {
    uint8_t root[REEF_HASH_BYTES];
    if (snapshot->copy == 0) return REEF_OK; // nothing was open: the rest has no copy
    reef_status status = reef_root_hash(txn, snapshot->step, snapshot->stream_bytes, root, err);
    if (status != REEF_OK || memcmp(root, snapshot->root, REEF_HASH_BYTES) == 0) return status;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "snapshot %s cannot be restored: what it holds is not the state of commit "
                     "%" PRIu64 "; see reef verify",
                     snapshot->name, snapshot->commit);
}

static reef_status check_needy(const reef_restore_plan *plan, reef_error *err) {
    if (plan->needy_count == 0 || plan->sealed_gone == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "going back to %s in place takes sealed generations away that snapshot %s%s "
                     "%s: remove it, or restore into a new directory",
                     plan->snapshot.name, plan->needy,
                     plan->needy_count > 1 ? " (one of several)" : "",
                     plan->needy_damaged ? "may need, whose record is damaged" : "needs");
}

reef_status reef_snapshot_restore(reef_txn *txn,
                                  const char *name,
                                  const char *keep_as,
                                  reef_restore_plan *plan,
                                  reef_error *err) {
    reef_snapshot before;
    uint64_t unused;
    const reef_error failure = txn->failure;
    // What is not kept need not be read.
    if (txn->last_damaged && keep_as == NULL) txn->failure = (reef_error){0};
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK && txn->hashed_changed)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "a transaction that has changed the pool cannot restore a snapshot");
    if (status == REEF_OK) status = reef_snapshot_restore_plan(txn, name, plan, err);
    if (status == REEF_OK && keep_as != NULL) status = check_needy(plan, err);
    if (status != REEF_OK) {
        txn->failure = failure;
        return status;
    }
    status = keep_as != NULL
                 ? reef_snapshot_make(txn, keep_as, plan->snapshot.shared_count, &before, err)
                 : remove_needy(txn, plan, err);
    if (status == REEF_OK) {
        REEF_FAIL_POINT(RESTORE_KEPT);
        status = remove_generations(txn, plan, err);
    }
    if (status == REEF_OK) {
        REEF_FAIL_POINT(RESTORE_REMOVED);
        status = copy_back(txn, &plan->snapshot, err);
    }
    if (status == REEF_OK) status = reef_blocks_drop_unnamed(txn, NULL, NULL, false, &unused, err);
    if (status == REEF_OK) status = reef_offsets_restore(txn, plan->snapshot.copy, err);
    REEF_FAIL_POINT(RESTORE_COPIED);
    // The roots are recomputed before anything is committed.
    if (status == REEF_OK) status = prove(txn, &plan->snapshot, err);
    if (status == REEF_OK) return REEF_OK;
    reef_error reason; // half of it must not be committed
    (void)reef_fail(&reason, status, "snapshot %s was not restored", plan->snapshot.name);
    if (txn->failure.status == REEF_OK) txn->failure = reason;
    return status;
}
