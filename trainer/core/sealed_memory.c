// See sealed_memory.h.
#include "sealed_memory.h"

static reef_status on_record(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    (void)key, (void)err;
    *(uint64_t *)context += view->bytes;
    return REEF_OK;
}

reef_status reef_sealed_memory_bytes(const reef_trainer *trainer,
                                     const reef_generation *sealed,
                                     uint64_t *out,
                                     reef_error *err) {
    reef_txn *txn = NULL;
    *out = sealed->memory.memory != NULL ? reef_generation_memory_bytes(&sealed->memory) : 0;
    if (!sealed->stored || *out > 0) return REEF_OK;
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK)
        status =
            reef_record_scan(txn, REEF_DB_MEMORY, sealed->info.generation, on_record, out, err);
    reef_txn_abort(txn);
    return status;
}
