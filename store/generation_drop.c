// What is removed as a whole: all of a generation (rows, tensors, moments, flags, memory, visits
// and, of the open one, totals of usage), or what it holds of one kind's visits.
#include "store_internal.h"

#include "reef_byte_order.h"

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
        // Of usage only the totals match.
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

#define USAGE_KEY_GENERATION 12 // after level u32 and window u64

reef_status reef_generation_clear(reef_txn *txn, uint32_t generation, reef_error *err) {
    reef_status status = reef_txn_writable(txn, err);
    if (status != REEF_OK) return status;
    if (generation != txn->sealed_count || generation >= txn->generation_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot clear generation %" PRIu32 " of pool %s: it is not the open one",
                         generation, txn->store->path);
    status = reef_generation_drop(txn, generation, err);
    if (status == REEF_OK)
        status = reef_records_drop(txn, REEF_DB_USAGE, generation, USAGE_KEY_GENERATION, err);
    return status;
}

// ---- one kind's visits --------------------------------------------------------------------------

// The keys of a visit's records begin with holder and kind. So does that of the holder's list,
// which is kind 0's by its key.
static bool is_list(const reef_key *key) {
    return key->layer == 0 && strcmp(key->name, REEF_VISIT_LIST) == 0;
}

typedef struct position {
    uint8_t key[REEF_SUM_KEY_BYTES_MAX];
    size_t bytes;
} position;

// The next record of VISITS, and the least key that is greater: a cursor does not survive the
// deletion of its record.
static reef_status next_record(reef_txn *txn,
                               position *at,
                               reef_key *key,
                               char name[REEF_NAME_BYTES_MAX + 1],
                               uint64_t *bytes,
                               bool *found,
                               reef_error *err) {
    reef_cursor cursor;
    reef_status status = reef_cursor_open(&cursor, txn, REEF_DB_VISITS, at->key, at->bytes, err);
    *found = status == REEF_OK && !cursor.done;
    if (*found) {
        status =
            reef_key_decode(REEF_DB_VISITS, cursor.key.mv_data, cursor.key.mv_size, key, name, err);
        at->bytes = cursor.key.mv_size + 1;
        memcpy(at->key, cursor.key.mv_data, cursor.key.mv_size);
        at->key[cursor.key.mv_size] = 0;
        *bytes = cursor.value.mv_size;
    }
    reef_cursor_close(&cursor);
    return status;
}

reef_status reef_visit_drop(
    reef_txn *txn, uint32_t holder, uint32_t kind, bool dry_run, uint64_t *bytes, reef_error *err) {
    position at = {.bytes = 8};
    reef_status status = dry_run ? REEF_OK : reef_txn_writable(txn, err);
    reef_put_be32(at.key, holder);
    reef_put_be32(at.key + 4, kind);
    *bytes = 0;
    while (status == REEF_OK) {
        reef_key key = {0};
        char name[REEF_NAME_BYTES_MAX + 1];
        uint64_t size = 0;
        bool found;
        status = next_record(txn, &at, &key, name, &size, &found, err);
        if (status != REEF_OK || !found || key.generation != holder || key.layer != kind) break;
        if (is_list(&key)) continue;
        *bytes += size;
        if (!dry_run) status = reef_record_remove(txn, &key, err);
    }
    return status;
}
