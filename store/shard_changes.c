// What ranks that divide a pool tell each other of what they wrote or removed of it:
// before a root is taken, what `sums` now says of each.
//
//   0   1   bytes of the key
//   1   46  key of `sums`: number of the database, key of the record; zeros behind it
//   47  1   1 written, 0 removed
//   48  16  content hash, or zeros
#include "store_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WRITTEN_AT = 1 + REEF_CHANGE_KEY_BYTES, HASH_AT, CHANGES_FIRST = 256 };

// ---- what lies elsewhere ------------------------------------------------------------------------

bool reef_shard_is_elsewhere(const reef_txn *txn, const reef_key *key) {
    return txn->division_count > 1 && reef_shard_divides(key) &&
           reef_shard_owner(key->layer, key->block, txn->division_count) != txn->division_rank;
}

reef_status reef_shard_fail_elsewhere(const reef_txn *txn, const reef_key *key, reef_error *err) {
    char text[REEF_KEY_TEXT_BYTES];
    reef_key_format(key, text);
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.50s is the shard of rank %" PRIu32 " of %" PRIu32
                     ": %.60s lies in that of rank %" PRIu32
                     "; give the directory that holds all shards, or reef shards DIR NEW --to 1",
                     txn->store->path, txn->division_rank, txn->division_count, text,
                     reef_shard_owner(key->layer, key->block, txn->division_count));
}

reef_status reef_shard_check_whole(const reef_txn *txn, reef_error *err) {
    if (txn->division_count <= 1) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.60s is the shard of rank %" PRIu32 " of %" PRIu32
                     ", and has only the rows that this rank owns; give the directory that holds "
                     "all shards, or make a whole pool with reef shards DIR NEW --to 1",
                     txn->store->path, txn->division_rank, txn->division_count);
}

// ---- what changed -------------------------------------------------------------------------------

reef_status reef_shard_note(reef_txn *txn,
                            const reef_key *key,
                            const reef_key_bytes *encoded,
                            reef_error *err) {
    if (txn->division_count <= 1 || !reef_shard_divides(key)) return REEF_OK;
    assert(encoded->bytes < REEF_CHANGE_KEY_BYTES);
    if (txn->change_count == txn->change_capacity) {
        size_t capacity = txn->change_capacity == 0 ? CHANGES_FIRST : 2 * txn->change_capacity;
        uint8_t *larger = realloc(txn->changes, capacity * REEF_CHANGE_BYTES);
        if (larger == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for what changed of %zu blocks",
                             capacity);
        txn->changes = larger;
        txn->change_capacity = capacity;
    }
    uint8_t *change = txn->changes + txn->change_count++ * REEF_CHANGE_BYTES;
    memset(change, 0, REEF_CHANGE_BYTES);
    change[0] = (uint8_t)(1 + encoded->bytes);
    change[1] = (uint8_t)key->db;
    memcpy(change + 2, encoded->data, encoded->bytes);
    return REEF_OK;
}

void reef_shard_share(reef_txn *txn, reef_shard_exchange exchange, void *context) {
    txn->exchange = exchange;
    txn->exchange_context = context;
}

static reef_status decode(const uint8_t *change, reef_key *key, reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    bool sane = change[0] > 1 && change[0] <= REEF_CHANGE_KEY_BYTES && change[1] < REEF_DB_COUNT &&
                reef_db_has_records((reef_db)change[1]);
    if (sane) {
        reef_status status =
            reef_key_decode((reef_db)change[1], change + 2, change[0] - 1u, key, name, err);
        if (status != REEF_OK || reef_shard_divides(key)) return status;
    }
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "another rank says that blocks changed which are not divided");
}

// What `sums` says now: the same record may have been written twice, or written and removed.
static reef_status complete(reef_txn *txn, uint8_t *change, reef_error *err) {
    reef_key key;
    uint64_t commit;
    reef_error none;
    reef_status status = decode(change, &key, err);
    if (status != REEF_OK) return status;
    change[WRITTEN_AT] = reef_sum_read(txn, &key, &commit, change + HASH_AT, &none) == REEF_OK;
    return REEF_OK;
}

static reef_status take(void *taker, const void *changes, size_t bytes, reef_error *err) {
    reef_txn *txn = taker;
    const uint8_t *change = changes, *end = change + bytes / REEF_CHANGE_BYTES * REEF_CHANGE_BYTES;
    reef_status status = REEF_OK;
    for (; status == REEF_OK && change < end; change += REEF_CHANGE_BYTES) {
        reef_key key;
        status = decode(change, &key, err);
        if (status == REEF_OK && !reef_shard_is_elsewhere(txn, &key))
            status = reef_fail(err, REEF_ERR_CORRUPT, "another rank changed blocks of this one");
        if (status == REEF_OK)
            status = reef_sum_write(txn, change + 1, change[0],
                                    change[WRITTEN_AT] ? change + HASH_AT : NULL, err);
    }
    return status;
}

reef_status reef_shard_refuse_change(const char *path,
                                     uint32_t rank,
                                     uint32_t count,
                                     reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.120s is the shard of rank %" PRIu32 " of %" PRIu32
                     ": it can be changed only by all ranks together, or in a whole pool, which "
                     "reef shards DIR NEW --to 1 makes",
                     path, rank, count);
}

reef_status reef_shard_settle(reef_txn *txn, reef_error *err) {
    reef_status status = REEF_OK;
    if (txn->exchange == NULL)
        return txn->change_count == 0
                   ? REEF_OK
                   : reef_shard_refuse_change(txn->store->path, txn->division_rank,
                                              txn->division_count, err);
    for (size_t i = 0; status == REEF_OK && i < txn->change_count; i++)
        status = complete(txn, txn->changes + i * REEF_CHANGE_BYTES, err);
    if (status == REEF_OK)
        status = txn->exchange(txn->exchange_context, txn->changes,
                               txn->change_count * REEF_CHANGE_BYTES, take, txn, err);
    txn->change_count = 0;
    return status;
}
