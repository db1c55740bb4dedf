// What ranks that divide a pool tell each other of what they wrote or removed of it (shard_note.c):
// before a root is taken, what `sums` now says of each.
//
//   0   1   bytes of the key
//   1   46  key of `sums`: number of the database, key of the record; zeros behind it
//   47  1   1 written, 0 removed
//   48  16  content hash, or zeros
#include "store_internal.h"

#include <inttypes.h>
#include <string.h>

enum { WRITTEN_AT = 1 + REEF_CHANGE_KEY_BYTES, HASH_AT };

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
