// A pool that is divided: which of its records lie in other shards, and a note of those that
// change here.
#include "store_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGES_FIRST = 256 };

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
