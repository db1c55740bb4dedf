// The root hash: one number for everything that training determines.
//
// It is taken over the entries of `sums`, which are in the order of the root hash (database, key)
// and hold each record's content hash: no payload is read. Sealed generations stand in it through
// their record in `generations`, which holds their own root, so a commit costs what is open, not
// what the pool has become.
//
//   root = XXH3-128( step u64, stream bytes u64,                               little-endian
//                    for each hashed database in the order of REEF_DB_LIST,
//                    for each record that counts, in key order:
//                        database u8, key, content hash )
//
// What counts: of tensors, experts, moments and flags the generations that are not sealed; of usage
// level 0, window 0; of generations all. Copies that belong to snapshots never count.
//
//   root of a generation = XXH3-128( the same entries of its tensors, experts and flags, and of the
//                                    mark of its memory )
//
// The mark has the chain of all that the memory learned. So it stands for the tables, whose records
// depend on when commits happened. The mark of an open generation depends on that as well, and so
// does a snapshot's copy of it: only roots of the pool's own sealed generations have a mark.
#define XXH_STATIC_LINKING_ONLY // for hash states on the stack
#include "store_internal.h"

#include "reef_byte_order.h"

#include <xxhash.h>

#include <string.h>

// A half-open range of keys of one database, by their first bytes.
typedef struct key_range {
    reef_db db;
    uint8_t first[12];
    size_t first_bytes;
    uint32_t end;     // first u32 of a key that is beyond; 0 for no end
    bool prefix_only; // the range is what begins with `first`
} key_range;

static bool in_range(const key_range *range, const MDB_val *sum_key) {
    const uint8_t *key = sum_key->mv_data;
    if (sum_key->mv_size < 1 + range->first_bytes || key[0] != (uint8_t)range->db) return false;
    if (range->prefix_only) return memcmp(key + 1, range->first, range->first_bytes) == 0;
    return range->end == 0 || (sum_key->mv_size >= 5 && reef_get_be32(key + 1) < range->end);
}

static reef_status hash_range(reef_txn *txn,
                              XXH3_state_t *state,
                              const key_range *range,
                              reef_error *err) {
    uint8_t from[1 + sizeof(range->first)] = {(uint8_t)range->db};
    reef_cursor cursor;
    memcpy(from + 1, range->first, range->first_bytes);
    reef_status status =
        reef_cursor_open(&cursor, txn, REEF_DB_SUMS, from, 1 + range->first_bytes, err);
    while (status == REEF_OK && !cursor.done && in_range(range, &cursor.key)) {
        if (cursor.value.mv_size != REEF_SUM_BYTES) {
            status = reef_fail(err, REEF_ERR_CORRUPT,
                               "an entry of sums for %s has %zu bytes instead of %d",
                               reef_db_name(range->db), cursor.value.mv_size, REEF_SUM_BYTES);
            break;
        }
        XXH3_128bits_update(state, cursor.key.mv_data, cursor.key.mv_size);
        // Without the commit number before it: when commits happened must not change the root.
        XXH3_128bits_update(state, (const uint8_t *)cursor.value.mv_data + 8, REEF_HASH_BYTES);
        status = reef_cursor_next(&cursor, txn, err);
    }
    reef_cursor_close(&cursor);
    return status;
}

static key_range generations_from(reef_db db, uint32_t first, uint32_t end) {
    key_range range = {.db = db, .first_bytes = 4, .end = end};
    reef_put_be32(range.first, first);
    return range;
}

static key_range mark_of(uint32_t generation) {
    static const char name[] = "mark"; // with its final zero
    key_range range = {.db = REEF_DB_MEMORY, .first_bytes = 4 + sizeof(name), .prefix_only = true};
    reef_put_be32(range.first, generation);
    memcpy(range.first + 4, name, sizeof(name));
    return range;
}

static key_range hashed_range(const reef_txn *txn, reef_db db) {
    switch (db) {
    case REEF_DB_TENSORS:
    case REEF_DB_EXPERTS:
    case REEF_DB_MOMENTS:
    case REEF_DB_FLAGS:
        // Sealed ones enter by the root in their record, so a commit need not walk them again.
        return generations_from(db, txn->sealed_count, REEF_SNAPSHOT_GENERATION);
    case REEF_DB_GENERATIONS:
        return generations_from(db, 0, REEF_SNAPSHOT_GENERATION);
    case REEF_DB_USAGE: // level u32 and window u64, both zero
        return (key_range){.db = db, .first_bytes = 12, .prefix_only = true};
    default:
        return (key_range){.db = db};
    }
}

static void digest(const XXH3_state_t *state, uint8_t out[REEF_HASH_BYTES]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(out, canonical.digest, REEF_HASH_BYTES);
}

reef_status reef_root_hash(reef_txn *txn,
                           uint64_t step,
                           uint64_t stream_bytes,
                           uint8_t out[REEF_HASH_BYTES],
                           reef_error *err) {
    XXH3_state_t state;
    uint8_t position[16];
    reef_put_le64(position, step);
    reef_put_le64(position + 8, stream_bytes);
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, position, sizeof(position));
    // The order of databases is part of the hash, so it never changes.
    for (reef_db db = 0; db < REEF_DB_COUNT; db++) {
        if (!reef_db_hashed(db)) continue;
        key_range range = hashed_range(txn, db);
        reef_status status = hash_range(txn, &state, &range, err);
        if (status != REEF_OK) return status;
    }
    digest(&state, out);
    return REEF_OK;
}

reef_status reef_generation_root(reef_txn *txn,
                                 uint32_t generation,
                                 uint8_t out[REEF_HASH_BYTES],
                                 reef_error *err) {
    static const reef_db parts[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_FLAGS,
                                    REEF_DB_MEMORY};
    XXH3_state_t state;
    // What other ranks wrote of it is in it too.
    reef_status settled = txn->exchange == NULL ? REEF_OK : reef_shard_settle(txn, err);
    if (settled != REEF_OK) return settled;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        // Of an open generation's copy it would depend on when commits happened.
        if (parts[i] == REEF_DB_MEMORY && generation >= REEF_SNAPSHOT_GENERATION) continue;
        key_range range = parts[i] == REEF_DB_MEMORY
                              ? mark_of(generation)
                              : generations_from(parts[i], generation, generation + 1);
        reef_status status = hash_range(txn, &state, &range, err);
        if (status != REEF_OK) return status;
    }
    digest(&state, out);
    return REEF_OK;
}
