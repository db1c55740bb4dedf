// Usage and flags of one layer, for readers that have no model.
#include "checkpoint_internal.h"

static reef_status read_table(reef_txn *txn,
                              reef_db db,
                              uint32_t generation,
                              uint32_t layer,
                              size_t expert_count,
                              size_t each,
                              void *out,
                              reef_error *err) {
    reef_config config;
    reef_status status = reef_config_read(txn, &config, err);
    if (status != REEF_OK) return status;
    reef_persist_blocks all =
        reef_persist_blocks_of(&config, generation, layer, expert_count, NULL);
    for (reef_persist_block b; reef_persist_block_next(&all, &b);) {
        reef_key key = reef_persist_block_key(&b, db);
        char *to = (char *)out + b.first * each;
        status = db == REEF_DB_USAGE ? reef_persist_read_or_zero(txn, &key, to, b.rows * each, err)
                                     : reef_record_read(txn, &key, to, b.rows * each, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

reef_status reef_usage_read(reef_txn *txn,
                            uint32_t generation,
                            uint32_t layer,
                            size_t expert_count,
                            reef_usage *usage,
                            reef_error *err) {
    return read_table(txn, REEF_DB_USAGE, generation, layer, expert_count, sizeof *usage, usage,
                      err);
}

reef_status reef_flags_read(reef_txn *txn,
                            uint32_t generation,
                            uint32_t layer,
                            size_t expert_count,
                            uint8_t *flags,
                            reef_error *err) {
    return read_table(txn, REEF_DB_FLAGS, generation, layer, expert_count, 1, flags, err);
}
