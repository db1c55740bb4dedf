// See divided.h.
#include "divided.h"

#include <stdio.h>
#include <string.h>

enum { WHY_BYTES_MAX = 400 };

void reef_divided_tell(reef_ranks *ranks, void *each, size_t bytes) {
    const reef_ranks_array all = {.base = each, .stride = bytes, .bytes = bytes};
    reef_ranks_gather(ranks, reef_ranks_count(ranks), 1, &all);
}

reef_status reef_divided_exchange(void *context,
                                  const void *changes,
                                  size_t bytes,
                                  reef_shard_take take,
                                  void *taker,
                                  reef_error *err) {
    reef_ranks *ranks = context;
    static _Thread_local uint64_t counts[REEF_RANKS_MAX];
    static _Thread_local size_t sizes[REEF_RANKS_MAX];
    size_t count = reef_ranks_count(ranks), own = reef_ranks_rank(ranks);
    counts[own] = bytes;
    reef_divided_tell(ranks, counts, sizeof(*counts));
    for (size_t r = 0; r < count; r++) sizes[r] = r == own ? 0 : bytes;
    reef_ranks_message *send = reef_ranks_room(ranks, false, sizes);
    for (size_t r = 0; r < count; r++)
        if (sizes[r] > 0) memcpy(send[r].bytes, changes, bytes);
    for (size_t r = 0; r < count; r++) sizes[r] = r == own ? 0 : (size_t)counts[r];
    const reef_ranks_message *receive = reef_ranks_room(ranks, true, sizes);
    reef_ranks_exchange(ranks);
    reef_status status = REEF_OK;
    for (size_t r = 0; status == REEF_OK && r < count; r++)
        if (sizes[r] > 0) status = take(taker, receive[r].bytes, sizes[r], err);
    return status;
}

reef_status reef_divided_meet(reef_trainer *trainer, reef_status status, reef_error *err) {
    uint8_t failed[REEF_RANKS_MAX] = {0};
    size_t count = reef_ranks_count(trainer->options.ranks);
    failed[reef_ranks_rank(trainer->options.ranks)] = status != REEF_OK;
    if (trainer->options.shard.count == 0) return status;
    reef_divided_tell(trainer->options.ranks, failed, 1);
    for (size_t r = 0; status == REEF_OK && r < count; r++)
        if (failed[r])
            status = reef_fail(err, REEF_ERR_BUSY, "rank %zu could not open its shard", r);
    return status;
}

void reef_divided_failed(const reef_trainer *trainer, const reef_error *err) {
    char why[WHY_BYTES_MAX];
    reef_ranks *ranks = trainer->options.ranks;
    if (trainer->options.shard.count == 0) return;
    snprintf(why, sizeof(why), "rank %zu: %.250s; nothing that was committed is lost",
             reef_ranks_rank(ranks), err->message);
    reef_ranks_end(ranks, why);
}
