// Everything of a generation is removed: rows, tensors, moments, flags, memory, usage and its
// record.
#include "store_internal.h"

#include "reef_byte_order.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

// Remove what one database holds of a generation, whose number is `skip` bytes into the key. Each
// pass seeks the first record again: a cursor does not survive the deletion of its record.
reef_status reef_records_drop(
    reef_txn *txn, reef_db db, uint32_t generation, size_t skip, reef_error *err) {
    uint8_t from[16] = {0};
    reef_put_be32(from + skip, generation);
    for (;;) {
        reef_cursor cursor;
        reef_key key = {0};
        char name[REEF_NAME_BYTES_MAX + 1];
        reef_status status = reef_cursor_open(&cursor, txn, db, from, skip + 4, err);
        bool found = status == REEF_OK && !cursor.done;
        if (found)
            status = reef_key_decode(db, cursor.key.mv_data, cursor.key.mv_size, &key, name, err);
        reef_cursor_close(&cursor);
        // Of usage only the totals match; windows are removed by reef_usage_windows_drop.
        bool its = found && key.generation == generation && key.level == 0 && key.window == 0;
        if (status != REEF_OK || !its) return status;
        status = reef_record_remove(txn, &key, err);
        if (status != REEF_OK) return status;
    }
}

reef_status reef_generation_drop(reef_txn *txn, uint32_t generation, reef_error *err) {
    static const reef_db parts[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_FLAGS,
                                    REEF_DB_MOMENTS, REEF_DB_MEMORY,  REEF_DB_VISITS};
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < sizeof(parts) / sizeof(parts[0]); i++)
        status = reef_records_drop(txn, parts[i], generation, 0, err);
    return status;
}
