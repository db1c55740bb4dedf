// The records of `generations`, and sealing.
//
// Generations are 0 .. count - 1 and only the last may be open: so "sealed" is one number of a
// transaction, and every write can be checked against it. Numbers from REEF_SNAPSHOT_GENERATION on are
// copies that belong to snapshots; they are written by snapshot_copy.c and never counted here.
//
// One transaction may replace a sealed generation, and empty those before it. The numbers of the emptied
// ones stay, so that no other generation, and nothing that names one, has to change.
#include "store_internal.h"

#include "reef_byte_order.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

// generations, 72 bytes, little-endian:
//   0 parent u32   4 side u32   8 first id u64   16 dtype u32   20 sealed u32 (0 or 1)
//   24 opened step u64   32 sealed step u64   40 opened at u64   48 sealed at u64   56 root, 16 bytes
#define GENERATION_BYTES 72

static void generation_encode(const reef_generation *generation, uint8_t out[GENERATION_BYTES]) {
    reef_put_le32(out, generation->parent);
    reef_put_le32(out + 4, generation->side);
    reef_put_le64(out + 8, generation->first_id);
    reef_put_le32(out + 16, (uint32_t)generation->dtype);
    reef_put_le32(out + 20, generation->sealed);
    reef_put_le64(out + 24, generation->opened_step);
    reef_put_le64(out + 32, generation->sealed_step);
    reef_put_le64(out + 40, generation->opened_at);
    reef_put_le64(out + 48, generation->sealed_at);
    memcpy(out + 56, generation->root, REEF_HASH_BYTES);
}

static void generation_decode(const uint8_t in[GENERATION_BYTES],
                              uint32_t number,
                              reef_generation *out) {
    *out = (reef_generation){.generation = number,
                             .parent = reef_get_le32(in),
                             .side = reef_get_le32(in + 4),
                             .first_id = reef_get_le64(in + 8),
                             .dtype = (reef_dtype)reef_get_le32(in + 16),
                             .sealed = reef_get_le32(in + 20) != 0,
                             .opened_step = reef_get_le64(in + 24),
                             .sealed_step = reef_get_le64(in + 32),
                             .opened_at = reef_get_le64(in + 40),
                             .sealed_at = reef_get_le64(in + 48)};
    memcpy(out->root, in + 56, REEF_HASH_BYTES);
}

reef_status reef_generation_store(reef_txn *txn,
                                  const reef_generation *generation,
                                  reef_error *err) {
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = generation->generation};
    uint8_t bytes[GENERATION_BYTES];
    generation_encode(generation, bytes);
    return reef_record_store(txn, &key, REEF_BYTES, bytes, sizeof(bytes), err);
}

reef_status reef_generation_read(reef_txn *txn,
                                 uint32_t generation,
                                 reef_generation *out,
                                 reef_error *err) {
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = generation};
    uint8_t bytes[GENERATION_BYTES];
    reef_status status = reef_record_read(txn, &key, bytes, sizeof(bytes), err);
    if (status == REEF_ERR_NOT_FOUND)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "pool %s has no generation %" PRIu32,
                         txn->store->path, generation);
    if (status != REEF_OK) return status;
    generation_decode(bytes, generation, out);
    // Others count with these before they look at a record.
    if (out->side > REEF_GENERATION_SIDE_MAX || (unsigned)out->dtype > REEF_JSON)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "generation %" PRIu32 " has side %" PRIu32 " and rows of type %u",
                         generation, out->side, (unsigned)out->dtype);
    return REEF_OK;
}

reef_status reef_generation_count(reef_txn *txn, uint32_t *out, reef_error *err) {
    uint32_t last = 0;
    *out = 0;
    reef_status status =
        reef_db_last_u32(txn, REEF_DB_GENERATIONS, REEF_SNAPSHOT_GENERATION, &last, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    if (last >= REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "pool %s has a generation %" PRIu32 " of at most %u", txn->store->path,
                         last, REEF_GENERATION_COUNT_MAX);
    *out = last + 1;
    return REEF_OK;
}

reef_status reef_txn_generations_load(reef_txn *txn, reef_error *err) {
    reef_generation last;
    reef_status status = reef_generation_count(txn, &txn->generation_count, err);
    txn->sealed_count = txn->generation_count;
    if (status != REEF_OK || txn->generation_count == 0) return status;
    status = reef_generation_read(txn, txn->generation_count - 1, &last, err);
    // One that cannot be read is taken to be open, as the last one of a trainer's pool is.
    if (status != REEF_OK || !last.sealed) txn->sealed_count--;
    return status;
}

reef_status reef_generation_put(reef_txn *txn, const reef_generation *generation, reef_error *err) {
    static const uint8_t no_root[REEF_HASH_BYTES] = {0};
    uint32_t number = generation->generation;
    reef_status status = reef_txn_writable(txn, err);
    if (status != REEF_OK) return status;
    if (number >= REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write generation %" PRIu32 ": a pool has at most %u", number,
                         REEF_GENERATION_COUNT_MAX);
    if (generation->side > REEF_GENERATION_SIDE_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write generation %" PRIu32 ": side %" PRIu32
                         " is more than %u, with which ids of experts fill 32 bits",
                         number, generation->side, REEF_GENERATION_SIDE_MAX);
    bool replaced = txn->replaced != 0 && number == txn->replaced;
    if (number < txn->sealed_count && !replaced)
        return reef_fail(err, REEF_ERR_INVALID, "cannot write generation %" PRIu32 ": it is sealed",
                         number);
    if (number > txn->sealed_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write generation %" PRIu32 ": only generation %" PRIu32
                         " can be open, all before it are sealed",
                         number, txn->sealed_count);
    if (generation->parent > number || (generation->parent == number && number != 0))
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write generation %" PRIu32 ": its parent is %" PRIu32, number,
                         generation->parent);
    if (generation->sealed || memcmp(generation->root, no_root, REEF_HASH_BYTES) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write generation %" PRIu32
                         " as sealed: reef_generation_seal does that",
                         number);
    status = reef_generation_store(txn, generation, err);
    if (status == REEF_OK && number == txn->generation_count) txn->generation_count++;
    return status;
}

// Remove what one database holds of a generation, whose number is `skip` bytes into the key. Each pass asks
// for the first one anew: a cursor does not survive the deletion of its record.
static reef_status records_drop(
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
        bool its = found && key.generation == generation && key.level == 0 && key.window == 0;
        if (status != REEF_OK || !its) return status;
        status = reef_record_remove(txn, &key, err);
        if (status != REEF_OK) return status;
    }
}

reef_status reef_generation_drop(reef_txn *txn, uint32_t generation, reef_error *err) {
    static const reef_db parts[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_FLAGS,
                                    REEF_DB_MOMENTS};
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < sizeof(parts) / sizeof(parts[0]); i++)
        status = records_drop(txn, parts[i], generation, 0, err);
    return status;
}

reef_status reef_generation_seal(
    reef_txn *txn, uint32_t generation, uint64_t step, uint64_t at, reef_error *err) {
    reef_generation record;
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = reef_generation_read(txn, generation, &record, err);
    if (status != REEF_OK) return status;
    bool replaced = txn->replaced != 0 && generation == txn->replaced;
    if (record.sealed || (generation != txn->sealed_count && !replaced))
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot seal generation %" PRIu32 ": it is sealed already", generation);
    status = records_drop(txn, REEF_DB_MOMENTS, generation, 0, err);
    if (status == REEF_OK) status = reef_generation_root(txn, generation, record.root, err);
    if (status != REEF_OK) return status;
    record.sealed = true;
    record.sealed_step = step;
    record.sealed_at = at;
    status = reef_generation_store(txn, &record, err);
    if (status != REEF_OK) return status;
    if (replaced)
        txn->replaced = 0;
    else
        txn->sealed_count++;
    return REEF_OK;
}

// ---- giving generations up -----------------------------------------------------------------------

#define USAGE_KEY_GENERATION 12 // after level u32 and window u64

reef_status reef_generation_clear(reef_txn *txn, uint32_t generation, reef_error *err) {
    reef_status status = reef_txn_writable(txn, err);
    if (status != REEF_OK) return status;
    if (generation != txn->sealed_count || generation >= txn->generation_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot clear generation %" PRIu32 " of pool %s: it is not the open one",
                         generation, txn->store->path);
    status = reef_generation_drop(txn, generation, err);
    if (status == REEF_OK) status = records_drop(txn, REEF_DB_MOMENTS, generation, 0, err);
    if (status == REEF_OK)
        status = records_drop(txn, REEF_DB_USAGE, generation, USAGE_KEY_GENERATION, err);
    return status;
}

// Leave the number, and what it says of the stream: when the generation was opened and sealed.
static reef_status empty(reef_txn *txn, uint32_t generation, reef_error *err) {
    reef_generation record;
    reef_status status = reef_generation_read(txn, generation, &record, err);
    if (status == REEF_OK) status = reef_generation_drop(txn, generation, err);
    if (status == REEF_OK)
        status = records_drop(txn, REEF_DB_USAGE, generation, USAGE_KEY_GENERATION, err);
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

static reef_status check_replace(reef_txn *txn, uint32_t first, uint32_t last, reef_error *err) {
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
    sharers s = {.first = first, .path = txn->store->path};
    return reef_snapshot_scan(txn, on_sharer, &s, err);
}

reef_status reef_generations_replace(reef_txn *txn,
                                     uint32_t first,
                                     uint32_t last,
                                     reef_error *err) {
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = check_replace(txn, first, last, err);
    if (status != REEF_OK) return status;
    for (uint32_t g = first; status == REEF_OK && g <= last; g++) status = empty(txn, g, err);
    if (status == REEF_OK) {
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
