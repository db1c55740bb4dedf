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
