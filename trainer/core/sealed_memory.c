// See sealed_memory.h.
#include "sealed_memory.h"

reef_status reef_sealed_memory_copy(reef_generation_memory *out,
                                    const reef_trainer *trainer,
                                    const reef_generation *sealed,
                                    reef_error *err) {
    reef_txn *txn = NULL;
    if (trainer->network.config.context_memory == 0) return REEF_OK;
    // Not stored yet: it was sealed since the last commit.
    if (sealed->memory.memory != NULL)
        return reef_generation_memory_copy(out, &sealed->memory, err);
    if (!sealed->stored) return REEF_OK;
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK)
        status = reef_checkpoint_read_memory(txn, sealed->info.generation, out, err);
    reef_txn_abort(txn);
    out->adopted = out->memory != NULL; // by whatever takes it, which has no records of it
    return status;
}

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
