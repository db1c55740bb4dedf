// The records of `generations`: their format, and which one is open.
//
// Generations are 0 .. count - 1 and only the last may be open: so "sealed" is one number of a
// transaction, and every write can be checked against it. Numbers from REEF_SNAPSHOT_GENERATION on
// are copies that belong to snapshots; they are written by generation_copy.c and never counted
// here.
#include "store_internal.h"

#include "reef_byte_order.h"

#include <inttypes.h>
#include <string.h>

// generations, 72 bytes, little-endian:
//   0 parent u32   4 side u32   8 first id u64   16 dtype u32   20 sealed u32 (bit 0) and
//   continues (the others)
//   24 opened step u64   32 sealed step u64   40 opened at u64   48 sealed at u64   56 root, 16
//                        bytes
#define GENERATION_BYTES 72

static void generation_encode(const reef_generation_record *generation,
                              uint8_t out[GENERATION_BYTES]) {
    reef_put_le32(out, generation->parent);
    reef_put_le32(out + 4, generation->side);
    reef_put_le64(out + 8, generation->first_id);
    reef_put_le32(out + 16, (uint32_t)generation->dtype);
    reef_put_le32(out + 20, generation->continues << 1 | (uint32_t)generation->sealed);
    reef_put_le64(out + 24, generation->opened_step);
    reef_put_le64(out + 32, generation->sealed_step);
    reef_put_le64(out + 40, generation->opened_at);
    reef_put_le64(out + 48, generation->sealed_at);
    memcpy(out + 56, generation->root, REEF_HASH_BYTES);
}

static void generation_decode(const uint8_t in[GENERATION_BYTES],
                              uint32_t number,
                              reef_generation_record *out) {
    *out = (reef_generation_record){.generation = number,
                                    .parent = reef_get_le32(in),
                                    .side = reef_get_le32(in + 4),
                                    .first_id = reef_get_le64(in + 8),
                                    .dtype = (reef_dtype)reef_get_le32(in + 16),
                                    .continues = reef_get_le32(in + 20) >> 1,
                                    .sealed = (reef_get_le32(in + 20) & 1) != 0,
                                    .opened_step = reef_get_le64(in + 24),
                                    .sealed_step = reef_get_le64(in + 32),
                                    .opened_at = reef_get_le64(in + 40),
                                    .sealed_at = reef_get_le64(in + 48)};
    // The number is in the key and not in the payload, so copies can be moved.
    memcpy(out->root, in + 56, REEF_HASH_BYTES);
}

reef_status reef_generation_store(reef_txn *txn,
                                  const reef_generation_record *generation,
                                  reef_error *err) {
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = generation->generation};
    uint8_t bytes[GENERATION_BYTES];
    generation_encode(generation, bytes);
    return reef_record_store(txn, &key, REEF_BYTES, bytes, sizeof(bytes), err);
}

// A kind begins with a generation that continues none, so a chain has one step. If that record
// cannot be read, whoever needs it reports the error.
static bool continues_a_later_part(reef_txn *txn, const reef_generation_record *generation) {
    if (generation->continues == 0) return false;
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = generation->continues - 1};
    uint8_t bytes[GENERATION_BYTES];
    reef_generation_record first;
    if (reef_record_read(txn, &key, bytes, sizeof(bytes), NULL) != REEF_OK) return false;
    generation_decode(bytes, key.generation, &first);
    return first.continues > 0;
}

reef_status reef_generation_read(reef_txn *txn,
                                 uint32_t generation,
                                 reef_generation_record *out,
                                 reef_error *err) {
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = generation};
    uint8_t bytes[GENERATION_BYTES];
    reef_status status = reef_record_read(txn, &key, bytes, sizeof(bytes), err);
    if (status == REEF_ERR_NOT_FOUND)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "pool %s has no generation %" PRIu32,
                         txn->store->path, generation);
    if (status != REEF_OK) return status;
    generation_decode(bytes, generation, out);
    // The others are counted before their records are read.
    if (out->side == 0 || out->side > REEF_GENERATION_SIDE_MAX || (unsigned)out->dtype > REEF_I8 ||
        (generation < REEF_SNAPSHOT_GENERATION && out->continues > generation))
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "generation %" PRIu32 " has side %" PRIu32 " and rows of type %u",
                         generation, out->side, (unsigned)out->dtype);
    if (continues_a_later_part(txn, out))
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "generation %" PRIu32 " continues generation %" PRIu32
                         ", which continues another",
                         generation, out->continues - 1);
    return REEF_OK;
}

reef_status reef_generation_count(reef_txn *txn, uint32_t *out, reef_error *err) {
    uint32_t last = 0;
    *out = 0;
    reef_status status =
        reef_db_last_u32(txn, REEF_DB_GENERATIONS, REEF_SNAPSHOT_GENERATION, &last, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    // The number sizes loops and arrays, so a damaged key must not set it.
    if (last >= REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "pool %s has a generation %" PRIu32 " of at most %u", txn->store->path,
                         last, REEF_GENERATION_COUNT_MAX);
    *out = last + 1;
    return REEF_OK;
}

reef_status reef_txn_generations_load(reef_txn *txn, reef_error *err) {
    reef_generation_record last;
    reef_status status = reef_generation_count(txn, &txn->generation_count, err);
    txn->sealed_count = txn->generation_count;
    if (status != REEF_OK || txn->generation_count == 0) return status;
    status = reef_generation_read(txn, txn->generation_count - 1, &last, err);
    // One that cannot be read is taken to be open, as the last one of a trainer's pool is.
    if (status != REEF_OK || !last.sealed) txn->sealed_count--;
    return status;
}

reef_status reef_generation_put(reef_txn *txn,
                                const reef_generation_record *generation,
                                reef_error *err) {
    static const uint8_t no_root[REEF_HASH_BYTES] = {0};
    uint32_t number = generation->generation;
    // A record may be written only if it keeps the order: sealed, sealed, ..., one open.
    reef_status status = reef_txn_writable(txn, err);
    if (status != REEF_OK) return status;
    if (number >= REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write generation %" PRIu32 ": a pool has at most %u", number,
                         REEF_GENERATION_COUNT_MAX);
    if (generation->side == 0 || generation->side > REEF_GENERATION_SIDE_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write generation %" PRIu32 ": side %" PRIu32
                         " is not 1 to %u, with which ids of experts fill 32 bits",
                         number, generation->side, REEF_GENERATION_SIDE_MAX);
    if (number < txn->sealed_count)
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
    if (generation->continues > number || continues_a_later_part(txn, generation))
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write generation %" PRIu32 ": generation %" PRIu32
                         ", which it continues, begins no kind",
                         number, generation->continues - 1);
    // A root is the result of sealing: nobody else may write one.
    if (generation->sealed || memcmp(generation->root, no_root, REEF_HASH_BYTES) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write generation %" PRIu32
                         " as sealed: reef_generation_seal does that",
                         number);
    status = reef_generation_store(txn, generation, err);
    // A new number opens a generation; an old one was updated.
    if (status == REEF_OK && number == txn->generation_count) txn->generation_count++;
    return status;
}

// ---- removing -----------------------------------------------------------------------------------
//
// All of a generation (rows, tensors, moments, flags, memory, visits and, of the open one, totals
// of usage), or what it holds of one kind's visits.

// Of one database; the generation's number is `skip` bytes into the key.
static reef_status drop_records(
    reef_txn *txn, reef_db db, uint32_t generation, size_t skip, reef_error *err) {
    reef_walk walk = {.db = db, .from_bytes = skip + 4};
    const reef_key *key = &walk.key;
    reef_put_be32(walk.from + skip, generation);
    for (;;) {
        reef_status status = reef_walk_next(&walk, txn, err);
        // Of usage only the totals match.
        bool its = status == REEF_OK && !walk.done && key->generation == generation &&
                   key->level == 0 && key->window == 0;
        if (its) status = reef_record_remove(txn, key, err);
        if (status != REEF_OK || !its) return status;
    }
}

static reef_status drop(reef_txn *txn, uint32_t generation, reef_error *err) {
    reef_status status = REEF_OK;
    for (reef_db db = 0; status == REEF_OK && db < REEF_DB_COUNT; db++)
        if (reef_db_in_generation(db)) status = drop_records(txn, db, generation, 0, err);
    return status;
}

reef_status reef_generation_remove(reef_txn *txn, uint32_t generation, reef_error *err) {
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = generation};
    reef_status status = drop(txn, generation, err);
    return status == REEF_OK ? reef_record_remove(txn, &key, err) : status;
}

#define USAGE_KEY_GENERATION 12 // after level u32 and window u64

reef_status reef_generation_clear(reef_txn *txn, uint32_t generation, reef_error *err) {
    reef_status status = reef_txn_writable(txn, err);
    if (status != REEF_OK) return status;
    if (generation != txn->sealed_count || generation >= txn->generation_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot clear generation %" PRIu32 " of pool %s: it is not the open one",
                         generation, txn->store->path);
    status = drop(txn, generation, err);
    if (status == REEF_OK)
        status = drop_records(txn, REEF_DB_USAGE, generation, USAGE_KEY_GENERATION, err);
    return status;
}

// ---- one kind's visits --------------------------------------------------------------------------

// The keys of a visit's records begin with holder and kind. So does that of the holder's list,
// which is kind 0's by its key.
static bool is_list(const reef_key *key) {
    return key->layer == 0 && strcmp(key->name, REEF_VISIT_LIST) == 0;
}

reef_status reef_visit_drop(
    reef_txn *txn, uint32_t holder, uint32_t kind, bool dry_run, uint64_t *bytes, reef_error *err) {
    reef_walk walk = {.db = REEF_DB_VISITS, .from_bytes = 8};
    const reef_key *key = &walk.key;
    reef_status status = dry_run ? REEF_OK : reef_txn_writable(txn, err);
    reef_put_be32(walk.from, holder);
    reef_put_be32(walk.from + 4, kind);
    *bytes = 0;
    while (status == REEF_OK) {
        status = reef_walk_next(&walk, txn, err);
        if (status != REEF_OK || walk.done || key->generation != holder || key->layer != kind)
            break;
        if (is_list(key)) continue;
        *bytes += walk.bytes;
        if (!dry_run) status = reef_record_remove(txn, key, err);
    }
    return status;
}

// ---- sealing ------------------------------------------------------------------------------------

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
    status = drop_records(txn, REEF_DB_MOMENTS, generation, 0, err);
    if (status == REEF_OK) status = reef_generation_root(txn, generation, record.root, err);
    if (status != REEF_OK) return status;
    record.sealed = true;
    record.sealed_step = step;
    record.sealed_at = at;
    status = reef_generation_store(txn, &record, err);
    if (status == REEF_OK) txn->sealed_count++;
    return status;
}
