// Are these pools the shards of one? Found by what each says of itself, and by its last commit.
#include "shard_view.h"

#include <inttypes.h>
#include <string.h>

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
    if (!shard->divided)
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
