// Damaging one record of a pool in its file, while no process has it open.
#ifndef DAMAGED_RECORD_H
#define DAMAGED_RECORD_H

#include "data_file.h"
#include "record.h"
#include "test.h"

/**
 * Flip a bit of what a record holds, near its beginning. (Old copies of the same payload are
 * flipped, too.)
 */
static inline void record_damage(const char *pool, const reef_key *key) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_view view;
    uint8_t begin[REEF_RECORD_HEADER_BYTES + 16];
    reef_status status = reef_store_open(&store, pool, NULL, &err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, store, REEF_TXN_READ, &err);
    if (status == REEF_OK) status = reef_record_view(txn, key, &view, &err);
    if (status != REEF_OK) fail_msg("%s", err.message);
    size_t bytes = REEF_RECORD_HEADER_BYTES + (view.bytes < 16 ? view.bytes : 16);
    memcpy(begin, (const uint8_t *)view.data - REEF_RECORD_HEADER_BYTES, bytes);
    reef_txn_abort(txn);
    reef_store_close(store);
    size_t flipped = 0;
    data_bytes file = data_file_load(pool);
    for (size_t at = 0; (at = data_file_find(&file, at, begin, bytes)) != SIZE_MAX; at++) {
        file.data[at + bytes - 1] ^= 8;
        flipped++;
    }
    assert_true(flipped > 0);
    data_file_save(pool, &file, file.bytes);
    free(file.data);
}

#endif
