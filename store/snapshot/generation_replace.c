// One transaction may replace a sealed generation, and empty those before it (consolidation).
//
// The numbers of the emptied ones stay, so that no other generation, and nothing that names one,
// has to change. No snapshot may share the rows of a generation that is replaced.
#include "reef_snapshot.h"
#include "store_internal.h"

#include <inttypes.h>

#define USAGE_KEY_GENERATION 12 // after level u32 and window u64

reef_status reef_generation_clear(reef_txn *txn, uint32_t generation, reef_error *err) {
    reef_status status = reef_txn_writable(txn, err);
    if (status != REEF_OK) return status;
    if (generation != txn->sealed_count || generation >= txn->generation_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot clear generation %" PRIu32 " of pool %s: it is not the open one",
                         generation, txn->store->path);
    status = reef_generation_drop(txn, generation, err);
    if (status == REEF_OK) status = reef_records_drop(txn, REEF_DB_MOMENTS, generation, 0, err);
    if (status == REEF_OK)
        status = reef_records_drop(txn, REEF_DB_USAGE, generation, USAGE_KEY_GENERATION, err);
    return status;
}

// Leave the number, and what it says of the stream: when the generation was opened and sealed.
static reef_status empty(reef_txn *txn, uint32_t generation, reef_error *err) {
    reef_generation_record record;
    reef_status status = reef_generation_read(txn, generation, &record, err);
    if (status == REEF_OK) status = reef_generation_drop(txn, generation, err);
    if (status == REEF_OK)
        status = reef_records_drop(txn, REEF_DB_USAGE, generation, USAGE_KEY_GENERATION, err);
    if (status == REEF_OK) status = reef_usage_windows_drop(txn, generation, err);
    if (status == REEF_OK) status = reef_generation_root(txn, generation, record.root, err);
    if (status != REEF_OK) return status;
    record.side = 0;
    return reef_generation_store(txn, &record, err);
}

typedef struct sharers {
    uint32_t first;
    const char *path;
} sharers;

static reef_status on_sharer(void *context, const reef_snapshot *snapshot, reef_error *err) {
    const sharers *s = context;
    if (snapshot->shared_count <= s->first) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "cannot give up generation %" PRIu32 " of pool %s: snapshot %s %s", s->first,
                     s->path, snapshot->name,
                     snapshot->damaged ? "may need it, whose record is damaged" : "needs it");
}

static reef_status check_range(reef_txn *txn, uint32_t first, uint32_t last, reef_error *err) {
    if (first == 0 || first > last || last >= txn->sealed_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot give up generations %" PRIu32 " to %" PRIu32
                         ": sealed ones after generation 0 can be, which are 1 to %" PRId64,
                         first, last, (int64_t)txn->sealed_count - 1);
    if (txn->replaced != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot give up generations %" PRIu32 " to %" PRIu32
                         ": generation %" PRIu32 " is not sealed again yet",
                         first, last, txn->replaced);
    // A snapshot that shares one of them could not be restored any more.
    sharers s = {.first = first, .path = txn->store->path};
    return reef_snapshot_scan(txn, on_sharer, &s, err);
}

reef_status reef_generations_replace(reef_txn *txn,
                                     uint32_t first,
                                     uint32_t last,
                                     reef_error *err) {
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = check_range(txn, first, last, err);
    if (status != REEF_OK) return status;
    for (uint32_t g = first; status == REEF_OK && g <= last; g++) status = empty(txn, g, err);
    if (status == REEF_OK) {
        // From here until it is sealed again the transaction cannot commit.
        txn->replaced = last;
        return REEF_OK;
    }
    // Half of it must not be committed.
    reef_error reason;
    (void)reef_fail(&reason, status, "generations %" PRIu32 " to %" PRIu32 " were not given up",
                    first, last);
    if (txn->failure.status == REEF_OK) txn->failure = reason;
    return status;
}
