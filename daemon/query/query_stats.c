// Records of a pool in sums; see query_thread.h. Every query is one read transaction.
#include "query_thread.h"
#include "reef_log.h"
#include "reef_pool_json.h"
#include "reef_usage.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct stats_pool {
    reef_config config;
    reef_generation_record *generations; // (count) on the heap
    uint32_t count;
} stats_pool;

static reef_status read_pool(reef_txn *txn, stats_pool *pool, reef_error *err) {
    *pool = (stats_pool){0};
    reef_status status = reef_config_read(txn, &pool->config, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &pool->count, err);
    if (status != REEF_OK) return status;
    pool->generations = calloc(pool->count + 1, sizeof(*pool->generations));
    if (pool->generations == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %u generations", pool->count);
    for (uint32_t g = 0; status == REEF_OK && g < pool->count; g++)
        status = reef_generation_read(txn, g, &pool->generations[g], err);
    return status;
}

// ---- usage --------------------------------------------------------------------------------------

typedef struct usage_request {
    uint64_t generation, layer, since_ms, until_ms;
    bool one_layer, ranged;
} usage_request;

static reef_status parse_usage(const reef_query *query,
                               const stats_pool *pool,
                               usage_request *asked,
                               reef_error *err) {
    *asked = (usage_request){.one_layer = json_object_get(query->arguments, "layer"),
                             .ranged = json_object_get(query->arguments, "since") != NULL ||
                                       json_object_get(query->arguments, "until") != NULL};
    // The open generation is the default.
    reef_status status = reef_query_count(query, "generation", pool->count - 1, 0, pool->count - 1,
                                          &asked->generation, err);
    if (status == REEF_OK)
        status =
            reef_query_count(query, "layer", 0, 0, pool->config.layers - 1, &asked->layer, err);
    if (status == REEF_OK)
        status = reef_query_count(query, "since", 0, 0, INT64_MAX, &asked->since_ms, err);
    if (status == REEF_OK)
        status = reef_query_count(query, "until", UINT64_MAX, 0, INT64_MAX, &asked->until_ms, err);
    if (status != REEF_OK) return status;
    // Both bounds are given in milliseconds since 1970.
    if (asked->since_ms >= asked->until_ms)
        return reef_fail(err, REEF_ERR_INVALID, "since is not before until");
    if (asked->one_layer && !reef_layer_retrieves(&pool->config, (uint32_t)asked->layer))
        return reef_fail(err, REEF_ERR_INVALID,
                         "layer %" PRIu64 " is of kind %s: it has no experts that are retrieved",
                         asked->layer,
                         reef_ffw_text(reef_layer_ffw(&pool->config, (uint32_t)asked->layer)));
    return REEF_OK;
}

static reef_status add_usage(reef_txn *txn,
                             const stats_pool *pool,
                             const usage_request *asked,
                             json_t *result,
                             reef_error *err) {
    const reef_generation_record *generation = &pool->generations[asked->generation];
    const reef_usage_range range = {.since_ms = asked->since_ms, .until_ms = asked->until_ms};
    json_t *list = json_array();
    reef_status status = REEF_OK;
    json_object_set_new(result, "generation", reef_json_count(asked->generation));
    json_object_set_new(result, "layers", list);
    for (uint32_t l = 0; status == REEF_OK && l < pool->config.layers; l++) {
        reef_usage_layer layer;
        // One layer, or all that retrieve.
        if (!reef_layer_retrieves(&pool->config, l) || (asked->one_layer && l != asked->layer))
            continue;
        // Without a range the totals are read, which is one record per block instead of one per
        // window.
        status =
            reef_usage_layer_read(txn, generation, l, asked->ranged ? &range : NULL, &layer, err);
        if (status == REEF_OK)
            json_array_append_new(list, reef_usage_layer_json(l, &layer, asked->ranged));
    }
    if (status != REEF_OK || !asked->ranged) return status;
    json_object_set_new(result, "since_ms", reef_json_count(asked->since_ms));
    json_object_set_new(result, "until_ms",
                        asked->until_ms == UINT64_MAX ? json_null()
                                                      : reef_json_count(asked->until_ms));
    return REEF_OK;
}

reef_status reef_query_usage(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_txn *txn = NULL;
    stats_pool pool = {0};
    usage_request asked;
    // Everything in one transaction, so that counts of layers belong to the same commit.
    query->result = json_object();
    reef_status status = reef_txn_begin(&txn, reef_query_thread_store(queries), REEF_TXN_READ, err);
    if (status == REEF_OK) status = read_pool(txn, &pool, err);
    if (status == REEF_OK) status = parse_usage(query, &pool, &asked, err);
    if (status == REEF_OK) status = add_usage(txn, &pool, &asked, query->result, err);
    reef_txn_abort(txn);
    free(pool.generations);
    return status;
}

// ---- stats --------------------------------------------------------------------------------------

// Over all layers: experts and used ones are summed, unevenness is averaged; NAN without any
// selection.
static reef_status sum_usage(reef_txn *txn,
                             const stats_pool *pool,
                             const reef_generation_record *generation,
                             double *share,
                             double *unevenness,
                             reef_error *err) {
    double experts = 0, used = 0, uneven = 0, layers = 0;
    reef_status status = REEF_OK;
    *share = *unevenness = (double)NAN;
    // NaN becomes null: unknown, not zero.
    for (uint32_t l = 0; status == REEF_OK && l < pool->config.layers; l++) {
        reef_usage_layer layer;
        if (!reef_layer_retrieves(&pool->config, l)) continue;
        status = reef_usage_layer_read(txn, generation, l, NULL, &layer, err);
        // Layers that were never used would pull the mean of unevenness down.
        if (status != REEF_OK || !layer.summary.selections) continue;
        experts += (double)layer.summary.expert_count;
        used += (double)layer.summary.used_count;
        uneven += layer.summary.unevenness;
        layers++;
    }
    if (layers > 0) {
        *share = used / experts;
        *unevenness = uneven / layers;
    }
    return status;
}

// Null where the generation has no context memory, or none of its tables are stored yet.
static reef_status set_memory(
    reef_txn *txn, const stats_pool *pool, uint32_t generation, json_t *object, reef_error *err) {
    reef_memory_stats stats = {0};
    reef_status status = REEF_OK;
    if (pool->config.memory > 0) status = reef_memory_stats_read(txn, generation, &stats, err);
    if (status != REEF_OK) return status;
    uint64_t slots = stats.cells + stats.trees, used = stats.cells_used + stats.trees_used;
    bool learned = stats.learned_bytes > 0, stored = slots > 0;
    json_object_set_new(object, "memory_learned_bytes",
                        reef_json_known(learned, stats.learned_bytes));
    json_object_set_new(object, "memory_bytes", reef_json_known(stored, stats.bytes));
    json_object_set_new(object, "memory_used_share",
                        stored ? reef_json_number((double)used / (double)slots) : json_null());
    return REEF_OK;
}

static reef_status add_generations(reef_txn *txn,
                                   const stats_pool *pool,
                                   json_t *list,
                                   reef_error *err) {
    reef_status status = REEF_OK;
    // Only the newest generations are listed: a pool may have tens of thousands.
    uint32_t first =
        pool->count > REEF_STATS_GENERATIONS_MAX ? pool->count - REEF_STATS_GENERATIONS_MAX : 0;
    for (uint32_t g = first; status == REEF_OK && g < pool->count; g++) {
        double share, unevenness;
        status = sum_usage(txn, pool, &pool->generations[g], &share, &unevenness, err);
        if (status != REEF_OK) break;
        json_t *one =
            json_pack("{s:I, s:o, s:o}", "generation", (json_int_t)g, "used_share",
                      reef_json_number(share), "unevenness", reef_json_number(unevenness));
        json_array_append_new(list, one);
        status = set_memory(txn, pool, g, one, err);
    }
    return status;
}

static int learned_last_first(const void *a, const void *b) {
    const reef_kind_facts *x = a, *y = b;
    return (x->learned_at < y->learned_at) - (x->learned_at > y->learned_at);
}

// Those that learned last, so that their number is bounded.
static reef_status add_kinds(reef_txn *txn, json_t *list, reef_error *err) {
    reef_kind_list all;
    reef_status status = reef_kind_list_read(txn, &all, err);
    if (status != REEF_OK) return status;
    qsort(all.kinds, all.count, sizeof(*all.kinds), learned_last_first);
    for (size_t i = 0; i < all.count && i < REEF_STATS_KINDS_MAX; i++)
        json_array_append_new(list, reef_kind_json(&all.kinds[i]));
    reef_kind_list_release(&all);
    return REEF_OK;
}

static void add_file(const reef_file_stat *file,
                     const reef_readers *readers,
                     const reef_read_stat *read,
                     const reef_commit *commit,
                     json_t *result) {
    json_object_set_new(result, "file_bytes", reef_json_count(file->file_bytes));
    json_object_set_new(result, "free_bytes", reef_json_count(file->free_bytes));
    json_object_set_new(result, "readers", reef_json_count(readers->count));
    json_object_set_new(result, "reader_lag", reef_json_count(readers->behind));
    json_object_set_new(result, "longest_read_s", reef_json_number(read->longest_ms / 1e3));
    json_object_set_new(result, "commit", reef_json_count(commit->number));
}

reef_status reef_query_stats(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_store *store = reef_query_thread_store(queries);
    uint64_t begin = uv_hrtime();
    reef_txn *txn = NULL;
    stats_pool pool = {0};
    reef_file_stat file;
    reef_readers readers;
    reef_read_stat read;
    reef_commit commit;
    json_t *list = json_array(), *kinds = json_array();
    query->result = json_pack("{s:o, s:o}", "generations", list, "kinds", kinds);
    // Before our own transaction begins: this call must not count itself as a reader.
    reef_status status = reef_store_readers(store, &readers, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_file_stat_read(txn, &file, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    if (status == REEF_OK) status = read_pool(txn, &pool, err);
    if (status == REEF_OK) status = add_generations(txn, &pool, list, err);
    if (status == REEF_OK) status = add_kinds(txn, kinds, err);
    reef_txn_abort(txn);
    free(pool.generations);
    if (status != REEF_OK) return status;
    reef_store_read_stat(store, &read);
    add_file(&file, &readers, &read, &commit, query->result);
    // How long the statistics took is part of them, because they are collected again and again.
    json_object_set_new(query->result, "took_s",
                        reef_json_number((double)(uv_hrtime() - begin) / 1e9));
    return REEF_OK;
}
