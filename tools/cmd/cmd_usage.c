// reef usage: how evenly the experts of one generation are used, layer by layer, always or in a
// range of time.
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"
#include "reef_pool_json.h"
#include "reef_usage.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BAR_COLUMNS 40
#define BUCKET_NAME_BYTES 48 // two 64-bit numbers

static const reef_cli_option OPTIONS[] = {
    {"generation", "G", "which one (default: the open one)"},
    {"layer", "N", "only this PEER layer (default: all)"},
    {"since", "TIME",
     "only what was used from then on: 2024-05-01, 2024-05-01T12:00, or 3h or 2d ago"},
    {"until", "TIME", "only what was used before then"},
    {0},
};

const reef_cli_manual reef_usage_manual = {
    .about =
        "For each PEER layer: the share of experts that were ever chosen, unevenness (distance\n"
        "from uniform use in nats), the most used experts with their share of all selections, and\n"
        "how many experts were chosen how often. Dead experts were never chosen.\n"
        "\n"
        "Usage over time is kept by the commit for an hour, by the hour for two days, by the day\n"
        "for 400 days, and less long where that takes much space. With --since and --until those\n"
        "commits, hours and days count that touch the range, each as a whole; the answer says\n"
        "from which commit to which they reach. What is older is known in total only, and counts\n"
        "when --since is not given. Times are local.",
    .options = OPTIONS,
    .example = "reef usage reef.pool --generation 0\n"
               "reef usage reef.pool --since 3h --layer 0\n"
               "reef usage reef.pool --since 2024-05-01 --until 2024-05-02T12:00 --json",
};

// What was asked for.
typedef struct request {
    const reef_generation_record *generation;
    uint32_t first, end; // layers
    bool ranged;
    uint64_t since_ms, until_ms;
} request;

static void bucket_name(size_t bucket, char out[BUCKET_NAME_BYTES]) {
    uint64_t low = bucket ? (uint64_t)1 << (bucket - 1) : 0, high = bucket ? 2 * low - 1 : 0;
    if (low == high)
        snprintf(out, BUCKET_NAME_BYTES, "%" PRIu64, low);
    else
        snprintf(out, BUCKET_NAME_BYTES, "%" PRIu64 "-%" PRIu64, low, high);
}

static void print_histogram(const reef_usage_layer *layer) {
    static const char *const HEADING[] = {"  times chosen", "experts", ""};
    // At least 1, so that the division below is safe.
    uint64_t most = 1;
    for (size_t b = 0; b < layer->bucket_count; b++)
        if (layer->buckets[b] > most) most = layer->buckets[b];
    reef_cli_table *table = reef_cli_table_new(">><", HEADING);
    // The bucket of dead experts is always shown; then the table begins at the least used.
    size_t first = 1;
    while (first < layer->bucket_count && layer->buckets[first] == 0) first++;
    for (size_t b = 0; b < layer->bucket_count; b++) {
        // Empty buckets in between stay: the shape matters.
        if (b > 0 && b < first) continue;
        char name[BUCKET_NAME_BYTES], bar[BAR_COLUMNS + 1];
        double share = (double)layer->buckets[b] / (double)most;
        // Rounded up: a bucket that has experts has a mark.
        size_t length = (size_t)ceil(share * BAR_COLUMNS);
        memset(bar, '#', length);
        bar[length] = '\0';
        bucket_name(b, name);
        reef_cli_table_cell(table, "%s", name);
        reef_cli_table_cells(table, "%s\t%s", CLI_COUNT(layer->buckets[b]), bar);
    }
    reef_cli_table_show(table);
}

static void print_span(const reef_usage_layer *layer) {
    const reef_usage_range *range = &layer->range;
    // Windows are those of the commits: the range that was asked for is rounded to them.
    if (range->windows > 0)
        printf("  commits from %s to %s\n", CLI_TIME(range->from_ms), CLI_TIME(range->to_ms));
    else
        // Not an error: the pool may have been idle.
        printf("  nothing was recorded in this range\n");
    // Counts from before records by time existed, or from after their compaction to totals.
    if (layer->before == 0) return;
    // The line says before which time the older uses happened, if that is known, and that they are
    // not counted if the range is not open to the past.
    printf("  %s selections%s%s are known in total only and are %s\n", CLI_COUNT(layer->before),
           range->known_ms > 0 ? " before " : "",
           range->known_ms > 0 ? CLI_TIME(range->known_ms) : "",
           range->since_ms > 0 ? "not counted" : "counted");
}

static void print_dead(const reef_usage_layer *layer) {
    const reef_usage_summary *s = &layer->summary;
    size_t more = s->expert_count - s->used_count - layer->dead_count;
    if (layer->dead_count == 0) return;
    printf("  dead:     ");
    for (size_t i = 0; i < layer->dead_count; i++)
        printf("%s %" PRIu32, i ? "," : "", layer->dead[i]);
    if (more > 0) printf(" and %s more", CLI_COUNT(more));
    printf("\n");
}

static void print_layer(uint32_t index, const reef_usage_layer *layer, bool ranged) {
    const reef_usage_summary *s = &layer->summary;
    // Dead experts are what growing and recycling act on, so both figures are shown.
    // Unevenness is the divergence of the shares from even use, in nats (He 2024): 0 is even use.
    printf("layer %" PRIu32
           ": %.1f %% of %s experts used, %s dead, unevenness %.3f, %s selections\n",
           index, s->used_percent, CLI_COUNT(s->expert_count),
           CLI_COUNT(s->expert_count - s->used_count), s->unevenness, CLI_COUNT(s->selections));
    if (layer->top_count > 0) printf("  most used:");
    for (size_t i = 0; i < layer->top_count; i++)
        printf("%s %" PRIu32 " (%.2f %%)", i ? "," : "", layer->top[i], 100 * layer->top_share[i]);
    if (layer->top_count > 0) printf("\n");
    print_dead(layer);
    if (ranged) print_span(layer);
    print_histogram(layer);
}

static reef_status choose_generation(const reef_cli_call *cli,
                                     const reef_cli_pool *pool,
                                     const reef_generation_record **out,
                                     reef_error *err) {
    uint64_t generation = pool->generation_count - 1;
    reef_status status = reef_cli_integer(cli, "generation", 0, UINT32_MAX, &generation, err);
    if (status != REEF_OK) return status;
    if (generation >= pool->generation_count)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "there is no generation %" PRIu64 ": the pool has 0 to %" PRIu32,
                         generation, pool->generation_count - 1);
    *out = &pool->generations[generation];
    return REEF_OK;
}

static reef_status choose_layers(const reef_cli_call *cli,
                                 const reef_cli_pool *pool,
                                 request *asked,
                                 reef_error *err) {
    uint64_t layer = 0;
    // Without --layer all layers are shown; others than PEER layers are passed over.
    asked->end = pool->config.layers;
    if (reef_cli_text(cli, "layer") == NULL) return REEF_OK;
    reef_status status = reef_cli_integer(cli, "layer", 0, UINT32_MAX, &layer, err);
    if (status != REEF_OK) return status;
    status = reef_cli_layer_check(&pool->config, layer, err);
    if (status != REEF_OK) return status;
    asked->first = (uint32_t)layer;
    asked->end = asked->first + 1;
    return REEF_OK;
}

static reef_status read_layer(reef_cli_pool *pool,
                              const request *asked,
                              uint32_t index,
                              reef_usage_layer *layer,
                              reef_error *err) {
    reef_txn *txn = NULL;
    // The window is a copy: reading narrows it to the commits found.
    const reef_usage_range range = {.since_ms = asked->since_ms, .until_ms = asked->until_ms};
    // One transaction per layer keeps the read short.
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK)
        // Without a range the totals are read, which is far cheaper.
        status = reef_usage_layer_read(txn, asked->generation, index, asked->ranged ? &range : NULL,
                                       layer, err);
    reef_txn_abort(txn);
    return status;
}

static json_t *reply_json(const request *asked, json_t *layers) {
    json_t *document = json_pack("{s:I, s:O}", "generation",
                                 (json_int_t)asked->generation->generation, "layers", layers);
    if (!asked->ranged) return document;
    bool open_end = asked->until_ms == UINT64_MAX;
    json_object_set_new(document, "since_ms", json_integer((json_int_t)asked->since_ms));
    json_object_set_new(document, "until_ms", reef_cli_known(!open_end, asked->until_ms));
    return document;
}

static reef_status print_usage(reef_cli_call *cli,
                               reef_cli_pool *pool,
                               const request *asked,
                               reef_error *err) {
    json_t *array = json_array();
    reef_status status = REEF_OK;
    // A line on top, as the table of layers does not name the generation.
    if (!cli->json)
        printf("generation %" PRIu32 ", %s\n", asked->generation->generation,
               asked->generation->sealed ? "sealed" : "open");
    // Each layer is printed as soon as it is read: a large pool takes seconds.
    for (uint32_t l = asked->first; l < asked->end && status == REEF_OK; l++) {
        reef_usage_layer layer;
        if (!reef_layer_retrieves(&pool->config, l)) continue;
        status = read_layer(pool, asked, l, &layer, err);
        // Layers before the failure were printed; the document is not.
        if (status != REEF_OK) break;
        json_array_append_new(array, reef_usage_layer_json(l, &layer, asked->ranged));
        if (!cli->json) print_layer(l, &layer, asked->ranged);
    }
    if (status == REEF_OK && cli->json) status = reef_cli_reply(cli, reply_json(asked, array), err);
    json_decref(array);
    return status;
}

reef_status reef_cmd_usage(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    request asked = {0};
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_pool_has_net(&pool, err);
    if (status == REEF_OK) status = choose_generation(cli, &pool, &asked.generation, err);
    if (status == REEF_OK) status = choose_layers(cli, &pool, &asked, err);
    if (status == REEF_OK)
        status = reef_cli_time_range(cli, &asked.ranged, &asked.since_ms, &asked.until_ms, err);
    if (status == REEF_OK) status = print_usage(cli, &pool, &asked, err);
    reef_cli_pool_close(&pool);
    return status;
}
