// reef usage: how evenly the experts of one generation are used, layer by layer.
#include "commands.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOP_COUNT 5    // experts listed for a layer
#define BUCKETS_MAX 40 // 0, 1, 2-3, 4-7, ... selections
#define BAR_COLUMNS 40
#define BUCKET_NAME_BYTES 48 // two 64-bit numbers

static const cli_option OPTIONS[] = {
    {"generation", "G", "which one (default: the open one)"},
    {0},
};

const cli_manual usage_manual = {
    .about =
        "For each PEER layer: the share of experts that were ever chosen, unevenness (distance "
        "from\n"
        "uniform use in nats), the most used experts with their share of all selections, and how\n"
        "many experts were chosen how often. Dead experts were never chosen.",
    .options = OPTIONS,
    .example = "reef usage reef.pool --generation 0",
};

typedef struct layer_usage {
    reef_usage_summary summary;
    uint32_t top[TOP_COUNT]; // ids, most used first
    double top_share[TOP_COUNT];
    size_t top_count;
    uint64_t buckets[BUCKETS_MAX]; // 0: never chosen; b: chosen 2^(b-1) to 2^b - 1 times
    size_t bucket_count;
} layer_usage;

static size_t bucket_of(uint64_t count) {
    size_t bucket = 0;
    while (count > 0 && bucket + 1 < BUCKETS_MAX) {
        count >>= 1;
        bucket++;
    }
    return bucket;
}

// Insertion into the short list; among equals the lower id comes first because ids come in order.
static void note_top(layer_usage *layer, const reef_usage *usage, uint32_t id) {
    if (usage[id].count == 0) return;
    size_t at = layer->top_count;
    while (at > 0 && usage[layer->top[at - 1]].count < usage[id].count) at--;
    if (at == TOP_COUNT) return;
    if (layer->top_count < TOP_COUNT) layer->top_count++;
    for (size_t i = layer->top_count - 1; i > at; i--) layer->top[i] = layer->top[i - 1];
    layer->top[at] = id;
}

static void summarise(layer_usage *layer, const reef_usage *usage, size_t expert_count) {
    *layer = (layer_usage){0};
    reef_usage_summarise(expert_count, usage, &layer->summary);
    for (size_t id = 0; id < expert_count; id++) {
        size_t bucket = bucket_of(usage[id].count);
        layer->buckets[bucket]++;
        if (bucket >= layer->bucket_count) layer->bucket_count = bucket + 1;
        note_top(layer, usage, (uint32_t)id);
    }
    for (size_t i = 0; i < layer->top_count; i++)
        layer->top_share[i] =
            (double)usage[layer->top[i]].count / (double)layer->summary.selections;
}

static void bucket_name(size_t bucket, char out[BUCKET_NAME_BYTES]) {
    uint64_t low = bucket ? (uint64_t)1 << (bucket - 1) : 0, high = bucket ? 2 * low - 1 : 0;
    if (low == high)
        snprintf(out, BUCKET_NAME_BYTES, "%" PRIu64, low);
    else
        snprintf(out, BUCKET_NAME_BYTES, "%" PRIu64 "-%" PRIu64, low, high);
}

static void print_histogram(const layer_usage *layer) {
    static const char *const HEADING[] = {"  times chosen", "experts", ""};
    uint64_t most = 1;
    for (size_t b = 0; b < layer->bucket_count; b++)
        if (layer->buckets[b] > most) most = layer->buckets[b];
    cli_table *table = cli_table_new(">><", HEADING);
    size_t first = 1; // the dead ones are always shown, then nothing until the least used
    while (first < layer->bucket_count && layer->buckets[first] == 0) first++;
    for (size_t b = 0; b < layer->bucket_count; b++) {
        if (b > 0 && b < first) continue;
        char name[BUCKET_NAME_BYTES], words[CLI_WORD_BYTES], bar[BAR_COLUMNS + 1];
        double share = (double)layer->buckets[b] / (double)most;
        size_t length = (size_t)ceil(share * BAR_COLUMNS);
        memset(bar, '#', length);
        bar[length] = '\0';
        bucket_name(b, name);
        cli_table_cell(table, "%s", name);
        cli_table_cell(table, "%s", cli_count(layer->buckets[b], words));
        cli_table_cell(table, "%s", bar);
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

static void print_layer(uint32_t index, const layer_usage *layer) {
    char words[CLI_WORD_BYTES];
    const reef_usage_summary *s = &layer->summary;
    printf("layer %" PRIu32 ": %.1f %% of ", index, s->used_percent);
    printf("%s experts used, ", cli_count(s->expert_count, words));
    printf("%s dead, unevenness %.3f, ", cli_count(s->expert_count - s->used_count, words),
           s->unevenness);
    printf("%s selections\n", cli_count(s->selections, words));
    if (layer->top_count > 0) printf("  most used:");
    for (size_t i = 0; i < layer->top_count; i++)
        printf("%s %" PRIu32 " (%.2f %%)", i ? "," : "", layer->top[i], 100 * layer->top_share[i]);
    if (layer->top_count > 0) printf("\n");
    print_histogram(layer);
}

static json_t *layer_json(uint32_t index, const layer_usage *layer) {
    const reef_usage_summary *s = &layer->summary;
    json_t *top = json_array(), *histogram = json_array();
    for (size_t i = 0; i < layer->top_count; i++)
        json_array_append_new(top, json_pack("{s:I, s:o}", "expert", (json_int_t)layer->top[i],
                                             "share", cli_real(layer->top_share[i])));
    for (size_t b = 0; b < layer->bucket_count; b++) {
        json_int_t low = b ? (json_int_t)1 << (b - 1) : 0, high = b ? 2 * low - 1 : 0;
        json_array_append_new(histogram, json_pack("{s:I, s:I, s:I}", "low", low, "high", high,
                                                   "experts", (json_int_t)layer->buckets[b]));
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "layer", (json_int_t)index,
                     "experts", (json_int_t)s->expert_count, "used", (json_int_t)s->used_count,
                     "dead", (json_int_t)(s->expert_count - s->used_count), "selections",
                     (json_int_t)s->selections, "used_percent", cli_real(s->used_percent),
                     "unevenness", cli_real(s->unevenness), "top", top, "histogram", histogram);
}

static reef_status choose(const cli_call *cli,
                          const cli_pool *pool,
                          const reef_generation **out,
                          reef_error *err) {
    uint64_t generation = pool->generation_count - 1;
    reef_status status = cli_integer(cli, "generation", 0, UINT32_MAX, &generation, err);
    if (status != REEF_OK) return status;
    if (generation >= pool->generation_count)
        return reef_fail(err, REEF_NOT_FOUND,
                         "there is no generation %" PRIu64 ": the pool has 0 to %" PRIu32,
                         generation, pool->generation_count - 1);
    *out = &pool->generations[generation];
    if (reef_generation_is_empty(*out))
        return reef_fail(err, REEF_NOT_FOUND,
                         "generation %" PRIu64 " was consolidated into generation %" PRIu32
                         " and has no experts; ask for that one",
                         generation, cli_generation_heir(pool, *out));
    return REEF_OK;
}

static reef_status show(cli_call *cli,
                        cli_pool *pool,
                        const reef_generation *generation,
                        reef_error *err) {
    assert(generation);
    json_t *array = json_array();
    reef_status status = REEF_OK;
    if (!cli->json)
        printf("generation %" PRIu32 ", %s\n", generation->generation,
               generation->sealed ? "sealed" : "open");
    for (uint32_t l = 0; l < pool->config.layers && status == REEF_OK; l++) {
        if (!cli_layer_is_peer(&pool->config, l)) continue;
        reef_usage *usage = NULL;
        layer_usage layer;
        status = cli_usage_read(pool, generation, l, &usage, err);
        if (status != REEF_OK) break;
        summarise(&layer, usage, (size_t)generation->side * generation->side);
        free(usage);
        json_array_append_new(array, layer_json(l, &layer));
        if (!cli->json) print_layer(l, &layer);
    }
    if (status == REEF_OK && cli->json)
        status = cli_answer(cli,
                            json_pack("{s:I, s:O}", "generation",
                                      (json_int_t)generation->generation, "layers", array),
                            err);
    json_decref(array);
    return status;
}

reef_status cmd_usage(cli_call *cli, reef_error *err) {
    cli_pool pool;
    const reef_generation *generation = NULL;
    reef_status status = cli_pool_open(&pool, cli, err);
    if (status == REEF_OK)
        status = cli_pool_wants(&pool, false,
                                "there every expert sees every input, and reef eval shows which "
                                "generation answers",
                                err);
    if (status == REEF_OK) status = choose(cli, &pool, &generation, err);
    if (status == REEF_OK) status = show(cli, &pool, generation, err);
    cli_pool_close(&pool);
    return status;
}
