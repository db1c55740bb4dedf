// The open generation becomes immutable: its moments go, and its root hash is written into its
// record.
#include "store_internal.h"

#include <inttypes.h>

reef_status reef_generation_seal(
    reef_txn *txn, uint32_t generation, uint64_t step, uint64_t at, reef_error *err) {
    reef_generation_record record;
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = reef_generation_read(txn, generation, &record, err);
    if (status != REEF_OK) return status;
    if (record.sealed || generation != txn->sealed_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot seal generation %" PRIu32 ": it is sealed already", generation);
    // Moments go first, so that the root covers exactly what a sealed generation keeps.
    status = reef_records_drop(txn, REEF_DB_MOMENTS, generation, 0, err);
    if (status == REEF_OK) status = reef_generation_root(txn, generation, record.root, err);
    if (status != REEF_OK) return status;
    record.sealed = true;
    record.sealed_step = step;
    record.sealed_at = at;
    status = reef_generation_store(txn, &record, err);
    if (status == REEF_OK) txn->sealed_count++;
    return status;
}
