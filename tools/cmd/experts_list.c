// See experts_list.h. A layer of a generation is read by one short transaction; of what was read so
// far only the rows that may be shown are kept, so memory does not grow with the pool.
#include "experts_list.h"

#include "cli_pool.h"
#include "reef_usage.h"
#include "reef_usage_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STATS_FEW 1000 // rows read one by one; more of them are read block by block

const char *reef_experts_sort_text(reef_experts_sort sort) {
    static const char *const TEXTS[] = {
#define EXPERTS_SORT_TEXT(upper, name) name,
        EXPERTS_SORT_LIST(EXPERTS_SORT_TEXT)
#undef EXPERTS_SORT_TEXT
    };
    return TEXTS[sort];
}

const char *reef_expert_row_state(const reef_expert_row *row) {
    return row->sealed ? "sealed" : row->frozen ? "frozen" : "open";
}

// ---- order --------------------------------------------------------------------------------------

// Larger keys come first; not a number comes last.
static double key_of(const reef_expert_row *row, reef_experts_sort sort) {
    switch (sort) {
    case EXPERTS_SORT_USES:
        return (double)row->uses;
    case EXPERTS_SORT_SHARE:
        return row->share;
    case EXPERTS_SORT_WEIGHT:
        return row->weight;
    case EXPERTS_SORT_LAST:
        return (double)row->last_ms;
    case EXPERTS_SORT_DOWN:
        return row->stats.down;
    case EXPERTS_SORT_UP:
        return row->stats.up;
    // By id: the comparison of ties decides, so all keys are equal.
    default:
        return 0.0; // ids decide
    }
}

static int compare_rows(const void *left, const void *right) {
    const reef_expert_row *a = left, *b = right;
    if (isnan(a->key) != isnan(b->key)) return isnan(a->key) ? 1 : -1;
    if (!isnan(a->key) && a->key != b->key) return a->key > b->key ? -1 : 1;
    if (a->generation != b->generation) return a->generation < b->generation ? -1 : 1;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

// If ids alone decide, no key can be negated.
static int compare_backwards(const void *left, const void *right) {
    return compare_rows(right, left);
}

// ---- one layer of one generation ----------------------------------------------------------------

typedef struct layer_data {
    reef_generation_record generation;
    uint32_t layer;
    size_t expert_count;
    reef_usage *usage;
    uint64_t *last_ms, selections;
    uint8_t *flags;
    reef_expert_stats *stats; // of all, or NULL
} layer_data;

static void layer_release(layer_data *data) {
    free(data->usage);
    free(data->last_ms);
    free(data->flags);
    free(data->stats);
    *data = (layer_data){0};
}

static reef_status read_usage(reef_txn *txn,
                              const reef_experts_request *asked,
                              layer_data *data,
                              reef_error *err) {
    reef_usage_range range = {.since_ms = asked->since_ms, .until_ms = asked->until_ms};
    uint64_t before;
    reef_status status;
    // A range is read from the records of commits; the totals have one record.
    if (asked->ranged) {
        status = reef_usage_range_read(txn, &data->generation, data->layer, &range, &data->usage,
                                       &before, err);
    } else {
        data->usage = reef_cli_alloc(data->expert_count, sizeof(*data->usage));
        status = reef_usage_read(txn, data->generation.generation, data->layer, data->expert_count,
                                 data->usage, err);
    }
    // The sum is the denominator of every share.
    for (size_t n = 0; status == REEF_OK && n < data->expert_count; n++)
        data->selections += data->usage[n].count;
    data->last_ms = reef_cli_alloc(data->expert_count, sizeof(*data->last_ms));
    if (status == REEF_OK)
        // The time of last use stands in records of its own.
        status = reef_usage_last(txn, data->generation.generation, data->layer, data->expert_count,
                                 data->last_ms, err);
    return status;
}

static bool wants_all_stats(const reef_experts_request *asked, bool vectors) {
    return vectors || asked->sort == EXPERTS_SORT_DOWN || asked->sort == EXPERTS_SORT_UP ||
           asked->top == 0 || asked->top > STATS_FEW;
}

static reef_status layer_read(reef_txn *txn,
                              const reef_config *config,
                              const reef_experts_request *asked,
                              layer_data *data,
                              reef_error *err) {
    uint32_t g = data->generation.generation;
    bool vectors = reef_config_is_vector(config);
    // As of this transaction: it may have grown since the pool was opened.
    reef_status status = reef_generation_read(txn, g, &data->generation, err);
    // A consolidated generation has no rows.
    if (status != REEF_OK || reef_generation_is_empty(&data->generation)) return status;
    data->expert_count = (size_t)data->generation.side * data->generation.side;
    data->flags = reef_cli_alloc(data->expert_count, 1);
    // Vector models keep no usage.
    if (!vectors) status = read_usage(txn, asked, data, err);
    // In a sealed generation nothing changes, so frozen experts are not marked.
    if (status == REEF_OK && !vectors && !data->generation.sealed)
        status = reef_flags_read(txn, g, data->layer, data->expert_count, data->flags, err);
    // Norms of all rows are read only to sort by them: it is the most expensive part.
    if (status != REEF_OK || !wants_all_stats(asked, vectors)) return status;
    data->stats = reef_cli_alloc(data->expert_count, sizeof(*data->stats));
    return reef_expert_stats_read(txn, g, data->layer, data->expert_count, NULL, data->stats, err);
}

static reef_expert_row row_of(const layer_data *data, uint32_t id) {
    // Missing figures are not a number, which sorts last and prints empty.
    const reef_generation_record *g = &data->generation;
    reef_expert_row row = {.generation = g->generation,
                           .layer = data->layer,
                           .id = id,
                           .side = g->side,
                           .pool_id = g->first_id + id,
                           .sealed = g->sealed,
                           .frozen = data->flags[id] != 0,
                           .weight = (double)NAN,
                           .share = (double)NAN};
    // Read for all, if they were needed for sorting.
    if (data->stats != NULL) row.stats = data->stats[id];
    if (data->usage == NULL) return row;
    const reef_usage *usage = &data->usage[id];
    row.uses = usage->count;
    row.last_ms = data->last_ms[id];
    // Undefined while nothing was ever chosen.
    if (data->selections > 0) row.share = (double)usage->count / (double)data->selections;
    // The mean weight of its selections, from a fixed-point sum.
    if (usage->count > 0)
        row.weight = (double)usage->score / (double)REEF_USAGE_SCORE_ONE / (double)usage->count;
    return row;
}

static bool has_state(const reef_expert_row *row, reef_experts_state state) {
    switch (state) {
    case EXPERTS_OPEN:
        return !row->sealed && !row->frozen;
    case EXPERTS_SEALED:
        return row->sealed;
    case EXPERTS_FROZEN:
        return !row->sealed && row->frozen;
    default:
        return true;
    }
}

// ---- the list -----------------------------------------------------------------------------------

// Adds the rows of a layer to those kept so far, and keeps the best of both.
static void add_layer(const reef_experts_request *asked,
                      const layer_data *data,
                      reef_experts_list *out) {
    reef_expert_row *rows = reef_cli_alloc(out->count + data->expert_count, sizeof(*rows));
    size_t count = out->count;
    // At most --top rows are kept, so memory is bounded by one layer.
    if (count > 0) memcpy(rows, out->rows, count * sizeof(*rows));
    for (size_t n = 0; n < data->expert_count; n++) {
        reef_expert_row row = row_of(data, (uint32_t)n);
        // The key is negated and not the order, so that ties stay in order of id.
        row.key = asked->reverse ? -key_of(&row, asked->sort) : key_of(&row, asked->sort);
        // Filtered before counting: `total` is of those that match.
        if (has_state(&row, asked->state)) rows[count++] = row;
    }
    out->total += count - out->count;
    // By id all keys are equal, so the comparison itself is turned.
    bool backwards = asked->reverse && asked->sort == EXPERTS_SORT_ID;
    qsort(rows, count, sizeof(*rows), backwards ? compare_backwards : compare_rows);
    free(out->rows);
    out->rows = rows;
    out->count = asked->top > 0 && asked->top < count ? asked->top : count;
}

// Reads the norms of the rows of this layer that are kept, while its transaction lasts.
static reef_status add_stats(reef_txn *txn,
                             const layer_data *data,
                             reef_experts_list *out,
                             reef_error *err) {
    reef_status status = REEF_OK;
    // Nothing to do if all were read for sorting.
    for (size_t i = 0; status == REEF_OK && data->stats == NULL && i < out->count; i++) {
        reef_expert_row *row = &out->rows[i];
        // Rows of other layers have theirs.
        if (row->generation != data->generation.generation || row->layer != data->layer) continue;
        status =
            reef_expert_stats_read(txn, row->generation, row->layer, 1, &row->id, &row->stats, err);
    }
    return status;
}

static reef_status list_layer(reef_cli_pool *pool,
                              const reef_experts_request *asked,
                              uint32_t generation,
                              uint32_t layer,
                              reef_experts_list *out,
                              reef_error *err) {
    reef_txn *txn = NULL;
    layer_data data = {.generation = {.generation = generation}, .layer = layer};
    // One short transaction per layer: a long one would keep pages from reuse.
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    status = layer_read(txn, &pool->config, asked, &data, err);
    if (status == REEF_OK && data.expert_count > 0) {
        add_layer(asked, &data, out);
        // Norms of rows that later fall out are read in vain; they are few.
        status = add_stats(txn, &data, out, err);
    }
    reef_txn_abort(txn);
    layer_release(&data);
    return status;
}

static bool has_experts(const reef_cli_pool *pool, uint32_t layer) {
    return reef_config_is_vector(&pool->config) ? layer == 0
                                                : reef_cli_layer_is_peer(&pool->config, layer);
}

static reef_status check_request(const reef_cli_pool *pool,
                                 const reef_experts_request *asked,
                                 reef_error *err) {
    // Each message states what the pool has.
    if (asked->one_generation && asked->generation >= pool->generation_count)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "there is no generation %" PRIu32 ": the pool has 0 to %" PRIu32,
                         asked->generation, pool->generation_count - 1);
    const reef_generation_record *one =
        asked->one_generation ? &pool->generations[asked->generation] : NULL;
    // Its experts have other ids in the merged generation.
    if (one != NULL && reef_generation_is_empty(one))
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "generation %" PRIu32 " was consolidated into generation %" PRIu32
                         " and has no experts; ask for that one",
                         asked->generation, reef_cli_generation_merged_into(pool, one));
    if (!asked->one_layer) return REEF_OK;
    if (asked->layer >= pool->config.layers)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "there is no layer %" PRIu32 ": the model has 0 to %" PRIu32, asked->layer,
                         pool->config.layers - 1);
    // A dense layer in a model with PEER layers.
    if (!has_experts(pool, asked->layer))
        return reef_fail(err, REEF_ERR_INVALID,
                         "layer %" PRIu32 " has no experts that are retrieved", asked->layer);
    return REEF_OK;
}

reef_status reef_experts_list_read(reef_cli_pool *pool,
                                   const reef_experts_request *asked,
                                   reef_experts_list *out,
                                   reef_error *err) {
    *out = (reef_experts_list){0};
    reef_status status = check_request(pool, asked, err);
    // Newest last: ties between generations keep this order.
    for (uint32_t g = 0; g < pool->generation_count; g++)
        for (uint32_t l = 0; status == REEF_OK && l < pool->config.layers; l++)
            if ((!asked->one_generation || g == asked->generation) &&
                (!asked->one_layer || l == asked->layer) && has_experts(pool, l))
                status = list_layer(pool, asked, g, l, out, err);
    return status;
}

void reef_experts_list_release(reef_experts_list *list) {
    free(list->rows);
    *list = (reef_experts_list){0};
}
