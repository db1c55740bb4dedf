// Usage of one layer within a range of time.
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// The store sums rows of two numbers, which are what a reef_usage is.
static reef_status sum(reef_txn *txn,
                       const reef_generation *generation,
                       uint32_t layer,
                       size_t expert_count,
                       reef_usage_range *range,
                       reef_usage **out,
                       reef_error *err) {
    *out = cli_alloc(expert_count, sizeof(**out));
    return reef_usage_sum(txn, generation->generation, layer, expert_count, range, (uint64_t *)*out,
                          err);
}

// What is in the totals and in no window; the total of one expert becomes that.
static reef_status take_windows(reef_usage *total,
                                const reef_usage *windows,
                                size_t expert,
                                reef_error *err) {
    if (windows->count > total->count || windows->score > total->score)
        return reef_fail(err, REEF_CORRUPT,
                         "usage over time says that expert %zu was chosen %" PRIu64
                         " times, but its total is %" PRIu64,
                         expert, windows->count, total->count);
    total->count -= windows->count;
    total->score -= windows->score;
    return REEF_OK;
}

static reef_status read_range(reef_txn *txn,
                              const reef_generation *generation,
                              uint32_t layer,
                              reef_usage_range *range,
                              reef_usage **usage,
                              uint64_t *before,
                              reef_error *err) {
    size_t expert_count = (size_t)generation->side * generation->side;
    reef_usage_range always = {.until_ms = UINT64_MAX};
    reef_usage *windows = NULL, *rest = cli_alloc(expert_count, sizeof(*rest));
    reef_status status =
        reef_usage_read(txn, generation->generation, layer, expert_count, rest, err);
    if (status == REEF_OK)
        status = sum(txn, generation, layer, expert_count, &always, &windows, err);
    if (status == REEF_OK) status = sum(txn, generation, layer, expert_count, range, usage, err);
    for (size_t i = 0; status == REEF_OK && i < expert_count; i++) {
        status = take_windows(&rest[i], &windows[i], i, err);
        *before += rest[i].count;
        if (range->since_ms > 0) continue;
        (*usage)[i].count += rest[i].count;
        (*usage)[i].score += rest[i].score;
    }
    free(windows);
    free(rest);
    return status;
}

reef_status cli_usage_range(cli_pool *pool,
                            const reef_generation *generation,
                            uint32_t layer,
                            reef_usage_range *range,
                            reef_usage **usage,
                            uint64_t *before,
                            reef_error *err) {
    reef_txn *txn = NULL;
    *usage = NULL;
    *before = 0;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = read_range(txn, generation, layer, range, usage, before, err);
    reef_txn_abort(txn);
    if (status == REEF_OK) return REEF_OK;
    free(*usage);
    *usage = NULL;
    return status;
}
