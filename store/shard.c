// See reef_shard.h. The record `shard` in `meta`, little-endian:
//
//   0   16  pool
//   16  4   rank
//   20  4   count
//   24  8   epoch
//
// LMDB alternates between two meta pages, and opens a file by the newer one. The older one is that
// of the transaction before, of which no page has been used again: a write transaction takes only
// pages that were free before the one before it began. So writing the older page's fields over the
// newer page undoes the last transaction.
#include "reef_shard.h"

#include "page_reader.h"
#include "pool_file.h"
#include "reef_byte_order.h"
#include "shard_view.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHARD_BYTES = 32, NUMBER_BYTES = 8, TRANSACTION_AT = 144 };

static const reef_key shard_key = {.db = REEF_DB_META, .name = "shard"};

reef_status reef_shard_read(reef_txn *txn, reef_shard *out, reef_error *err) {
    reef_view view;
    *out = (reef_shard){0};
    reef_status status = reef_record_view(txn, &shard_key, &view, err);
    if (status != REEF_OK) return status;
    const uint8_t *bytes = view.data;
    if (view.bytes != SHARD_BYTES || reef_get_le32(bytes + 20) < 2)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "pool %s: its record of which shard it is has %zu bytes, or wrong ones",
                         txn->store->path, view.bytes);
    memcpy(out->pool, bytes, sizeof(out->pool));
    out->rank = reef_get_le32(bytes + 16);
    out->count = reef_get_le32(bytes + 20);
    out->epoch = reef_get_le64(bytes + 24);
    return REEF_OK;
}

reef_status reef_shard_put(reef_txn *txn, const reef_shard *shard, reef_error *err) {
    uint8_t bytes[SHARD_BYTES];
    memcpy(bytes, shard->pool, sizeof(shard->pool));
    reef_put_le32(bytes + 16, shard->rank);
    reef_put_le32(bytes + 20, shard->count);
    reef_put_le64(bytes + 24, shard->epoch);
    return reef_record_put(txn, &shard_key, REEF_BYTES, bytes, sizeof(bytes), err);
}

// ---- one step back ------------------------------------------------------------------------------

static reef_status fail_errno(const char *path, const char *doing, reef_error *err) {
    return reef_fail(err, REEF_ERR_IO, "cannot %s " DATA_FILE " of pool %s: %s", doing, path,
                     strerror(errno));
}

static reef_status overwrite_newer(const char *path, uint32_t page_bytes, reef_error *err) {
    char *name = reef_pool_file_path(path, DATA_FILE);
    uint8_t *pages = malloc(2 * (size_t)page_bytes);
    reef_status status = REEF_OK;
    int fd = name == NULL ? -1 : open(name, O_RDWR | O_CLOEXEC);
    if (name == NULL || pages == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to step back in pool %s", path);
    else if (fd < 0)
        status = fail_errno(path, "open", err);
    else if (pread(fd, pages, 2 * (size_t)page_bytes, 0) != (ssize_t)(2 * (size_t)page_bytes))
        status = fail_errno(path, "read", err);
    if (status == REEF_OK) {
        uint64_t first = reef_get_le64(pages + TRANSACTION_AT);
        uint64_t second = reef_get_le64(pages + page_bytes + TRANSACTION_AT);
        size_t newer = second > first ? 1 : 0;
        if (first == second)
            status =
                reef_fail(err, REEF_ERR_INVALID,
                          "pool %s went back one commit already: there is no earlier one", path);
        // Its own page number, at the start, stays.
        uint8_t *into = pages + newer * page_bytes, *from = pages + (1 - newer) * page_bytes;
        memcpy(into + NUMBER_BYTES, from + NUMBER_BYTES, page_bytes - NUMBER_BYTES);
        if (status == REEF_OK &&
            (pwrite(fd, into, page_bytes, (off_t)(newer * page_bytes)) != (ssize_t)page_bytes ||
             fsync(fd) != 0))
            status = fail_errno(path, "write", err);
    }
    if (fd >= 0) close(fd);
    free(pages);
    free(name);
    return status;
}

reef_status reef_store_step_back(const char *path, reef_error *err) {
    reef_pages pages = {.fd = -1};
    int lock = -1;
    reef_status status = reef_writer_lock(path, &lock, err);
    if (status != REEF_OK) return status;
    status = reef_pages_open(&pages, path, err);
    // Both pages are checked to be LMDB's before one is written.
    if (status == REEF_OK) status = reef_pages_meta(&pages, err);
    if (status == REEF_OK) status = overwrite_newer(path, pages.page_bytes, err);
    reef_pages_close(&pages);
    reef_writer_unlock(lock);
    return status;
}

// ---- are these pools the shards of one? ---------------------------------------------------------

reef_status reef_shard_card_read(reef_txn *txn, reef_shard_card *out, reef_error *err) {
    reef_error none;
    *out = (reef_shard_card){0};
    reef_status status = reef_commit_read(txn, &out->commit, err);
    if (status != REEF_OK) return status;
    reef_status found = reef_shard_read(txn, &out->shard, &none);
    if (found == REEF_OK || found == REEF_ERR_NOT_FOUND) return REEF_OK;
    return reef_fail(err, found, "%s", none.message);
}

reef_status reef_shard_card_compare(const reef_shard_card *first,
                                    const reef_shard_card *one,
                                    size_t rank,
                                    size_t count,
                                    const char *path,
                                    bool *another_epoch,
                                    reef_error *err) {
    const reef_shard *shard = &one->shard;
    *another_epoch = false;
    if (shard->count == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s is not a shard with a part of the rows, as the first pool is",
                         path);
    if (memcmp(shard->pool, first->shard.pool, sizeof(shard->pool)) != 0)
        return reef_fail(err, REEF_ERR_INVALID, "%.120s is a shard of another pool than the first",
                         path);
    if (shard->count != count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s is one of %" PRIu32 " shards, and %zu were given: all are needed",
                         path, shard->count, count);
    if (shard->rank != rank)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s is the shard of rank %" PRIu32 ", and stands where that of rank "
                         "%zu is needed: it is there twice, or in the wrong place",
                         path, shard->rank, rank);
    *another_epoch = shard->epoch != first->shard.epoch;
    if (*another_epoch)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.100s is of epoch %" PRIu64 ", the first shard of epoch %" PRIu64
                         ": it is stale; or if it is one ahead, start all ranks once, and it goes "
                         "back",
                         path, shard->epoch, first->shard.epoch);
    if (memcmp(one->commit.root, first->commit.root, sizeof(one->commit.root)) != 0)
        return reef_fail(err, REEF_ERR_CORRUPT, "%.120s has another root than the first shard",
                         path);
    return REEF_OK;
}

// ---- what ranks tell each other -----------------------------------------------------------------
//
// What ranks that divide a pool tell each other of what they wrote or removed of it:
// before a root is taken, what `sums` now says of each.
//
//   0   1   bytes of the key
//   1   46  key of `sums`: number of the database, key of the record; zeros behind it
//   47  1   1 written, 0 removed
//   48  16  content hash, or zeros

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
