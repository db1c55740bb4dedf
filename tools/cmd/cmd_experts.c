// reef experts and reef usage: single experts, those first that were used most; and how evenly the
// experts of one generation are used, layer by layer, always or in a range of time.
//
// A layer of a generation is read by one short transaction; of what was read so far only the rows
// that may be shown are kept, so memory does not grow with the pool.
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"
#include "reef_pool_json.h"
#include "reef_usage.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOP_DEFAULT 20

static const reef_cli_option OPTIONS[] = {
    {"generation", "G", "only of this one (default: all)"},
    {"layer", "N", "only of this layer (default: all that have experts)"},
    {"state", "open|sealed|frozen", "only those that learn, are sealed, or are frozen"},
    {"sort", "uses|last|id", "what comes first: most uses, latest use, or the id (default: uses)"},
    {"reverse", NULL, "the least first"},
    {"top", "K", "show the first K (default: 20; 0: all)"},
    {0},
};

const reef_cli_manual reef_experts_manual = {
    .about =
        "An expert is one hidden neuron: weight * act(w_down . x) * w_up, where a token's query\n"
        "chose it with that weight. Ids count within a layer of a generation; key is the row of\n"
        "each table of sub-keys that the id stands for. Last used is known to the commit for an\n"
        "hour, to the hour for two days, to the day for 400. w_down and w_up are norms.",
    .options = OPTIONS,
    .example = "reef experts reef.pool\n"
               "reef experts reef.pool --generation 0 --layer 0 --reverse --top 5",
};

typedef enum sort_key { SORT_USES, SORT_LAST, SORT_ID } sort_key;
static const char *const SORTS[] = {"uses", "last", "id", NULL};
// In the order of state_of().
static const char *const STATES[] = {"open", "sealed", "frozen", NULL};

typedef struct request {
    uint64_t generation, layer, top; // UINT64_MAX: all generations, all layers
    int sort, state;                 // -1: any state
    bool reverse;
} request;

typedef struct row {
    uint32_t generation, layer, id;
    int state;
    uint64_t pool_id, uses, last_ms, key;
    double share, weight; // not a number: never used
    reef_expert_stats stats;
} row;

typedef struct list {
    row *rows;
    size_t count;
    uint64_t total; // that fit, before the first of them were taken
} list;

// ---- what was asked for -------------------------------------------------------------------------

// *out keeps its value where the option is not given.
static reef_status choose(const reef_cli_call *cli,
                          const char *option,
                          const char *const *words,
                          const char *known,
                          int *out,
                          reef_error *err) {
    const char *text = reef_cli_text(cli, option);
    for (int i = 0; text != NULL && words[i] != NULL; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return REEF_OK;
        }
    if (text == NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "--%s is '%.40s', but must be %s", option, text, known);
}

static reef_status parse_request(const reef_cli_call *cli, request *asked, reef_error *err) {
    *asked = (request){.generation = UINT64_MAX,
                       .layer = UINT64_MAX,
                       .top = TOP_DEFAULT,
                       .state = -1,
                       .reverse = reef_cli_text(cli, "reverse") != NULL};
    reef_status status = reef_cli_integer(cli, "top", 0, UINT32_MAX, &asked->top, err);
    if (status == REEF_OK)
        status = choose(cli, "sort", SORTS, "uses, last or id", &asked->sort, err);
    return status == REEF_OK
               ? choose(cli, "state", STATES, "open, sealed or frozen", &asked->state, err)
               : status;
}

static reef_status check_layer(const reef_config *config, uint64_t layer, reef_error *err) {
    if (layer >= config->layers)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "there is no layer %" PRIu64 ": the model has 0 to %" PRIu32, layer,
                         config->layers - 1);
    if (reef_layer_retrieves(config, (uint32_t)layer)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "layer %" PRIu64 " is of kind %s: it has no experts that are retrieved", layer,
                     reef_ffw_text(reef_layer_ffw(config, (uint32_t)layer)));
}

// --generation and --layer; *generation and *layer keep their values where these are not given.
static reef_status read_place(const reef_cli_call *cli,
                              const reef_cli_pool *pool,
                              uint64_t *generation,
                              uint64_t *layer,
                              reef_error *err) {
    reef_status status = reef_cli_integer(cli, "generation", 0, UINT32_MAX, generation, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "layer", 0, UINT32_MAX, layer, err);
    if (status != REEF_OK) return status;
    if (*generation >= pool->generation_count && reef_cli_text(cli, "generation") != NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "there is no generation %" PRIu64 ": the pool has 0 to %" PRIu32,
                         *generation, pool->generation_count - 1);
    return reef_cli_text(cli, "layer") == NULL ? REEF_OK : check_layer(&pool->config, *layer, err);
}

// ---- reading ------------------------------------------------------------------------------------

static uint64_t key_of(const row *one, sort_key sort) {
    return sort == SORT_USES ? one->uses : sort == SORT_LAST ? one->last_ms : 0;
}

// Larger keys come first, and equals in the order of their ids.
static int compare(const void *left, const void *right) {
    const row *a = left, *b = right;
    if (a->key != b->key) return a->key > b->key ? -1 : 1;
    if (a->generation != b->generation) return a->generation < b->generation ? -1 : 1;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int compare_backwards(const void *left, const void *right) {
    return compare(right, left);
}

// Adds the rows of a layer to those kept so far, and keeps the first of both.
static void add_rows(const request *asked,
                     const reef_generation_record *generation,
                     uint32_t layer,
                     size_t expert_count,
                     const reef_usage *usage,
                     const uint64_t *last_ms,
                     const uint8_t *flags,
                     list *out) {
    row *rows = reef_cli_alloc(out->count + expert_count, sizeof(*rows));
    size_t count = out->count;
    uint64_t selections = 0;
    if (count > 0) memcpy(rows, out->rows, count * sizeof(*rows));
    for (size_t n = 0; n < expert_count; n++) selections += usage[n].count;
    for (size_t n = 0; n < expert_count; n++) {
        double uses = (double)usage[n].count;
        row one = {.generation = generation->generation,
                   .layer = layer,
                   .id = (uint32_t)n,
                   .state = generation->sealed ? 1
                            : flags[n] != 0    ? 2
                                               : 0,
                   .pool_id = generation->first_id + n,
                   .uses = usage[n].count,
                   .last_ms = last_ms[n],
                   .share = selections > 0 ? uses / (double)selections : (double)NAN,
                   // From a sum in fixed point.
                   .weight = (double)usage[n].score / (double)REEF_USAGE_SCORE_ONE / uses};
        // The key is turned and not the order, so that equals stay in the order of their ids.
        one.key = key_of(&one, (sort_key)asked->sort);
        if (asked->reverse) one.key = UINT64_MAX - one.key;
        if (asked->state == -1 || asked->state == one.state) rows[count++] = one;
    }
    out->total += count - out->count;
    bool backwards = asked->reverse && asked->sort == SORT_ID;
    qsort(rows, count, sizeof(*rows), backwards ? compare_backwards : compare);
    free(out->rows);
    out->rows = rows;
    out->count = asked->top > 0 && asked->top < count ? (size_t)asked->top : count;
}

static reef_status read_layer(
    reef_txn *txn, const request *asked, uint32_t g, uint32_t layer, list *out, reef_error *err) {
    reef_generation_record generation;
    // As of this transaction: it may have grown since the pool was opened.
    reef_status status = reef_generation_read(txn, g, &generation, err);
    if (status != REEF_OK) return status;
    size_t count = (size_t)generation.side * generation.side;
    reef_usage *usage = reef_cli_alloc(count, sizeof(*usage));
    uint64_t *last_ms = reef_cli_alloc(count, sizeof(*last_ms));
    uint8_t *flags = reef_cli_alloc(count, 1);
    status = reef_usage_read(txn, g, layer, count, usage, err);
    if (status == REEF_OK) status = reef_usage_last(txn, g, layer, count, last_ms, err);
    if (status == REEF_OK && !generation.sealed)
        status = reef_flags_read(txn, g, layer, count, flags, err);
    if (status == REEF_OK) add_rows(asked, &generation, layer, count, usage, last_ms, flags, out);
    // Norms are read row by row, of rows that are kept only.
    for (size_t i = 0; status == REEF_OK && i < out->count; i++) {
        row *one = &out->rows[i];
        if (one->generation == g && one->layer == layer)
            status = reef_expert_stats_read(txn, g, layer, 1, &one->id, &one->stats, err);
    }
    free(usage);
    free(last_ms);
    free(flags);
    return status;
}

static reef_status read_list(reef_cli_pool *pool,
                             const request *asked,
                             list *out,
                             reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t g = 0; g < pool->generation_count; g++)
        for (uint32_t layer = 0; status == REEF_OK && layer < pool->config.layers; layer++) {
            reef_txn *txn = NULL;
            if ((asked->generation != UINT64_MAX && g != asked->generation) ||
                (asked->layer != UINT64_MAX && layer != asked->layer) ||
                !reef_layer_retrieves(&pool->config, layer))
                continue;
            status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
            if (status == REEF_OK) status = read_layer(txn, asked, g, layer, out, err);
            reef_txn_abort(txn);
        }
    return status;
}

// ---- showing ------------------------------------------------------------------------------------

static json_t *row_json(const row *one) {
    uint32_t i, j;
    reef_expert_pair_of(one->id, &i, &j);
    return json_pack("{s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}",
                     "generation", (json_int_t)one->generation, "layer", (json_int_t)one->layer,
                     "id", (json_int_t)one->id, "pool_id", (json_int_t)one->pool_id, "state",
                     STATES[one->state], "row", (json_int_t)i, "column", (json_int_t)j, "uses",
                     (json_int_t)one->uses, "share", reef_cli_real(one->share), "weight",
                     reef_cli_real(one->weight), "last_ms",
                     reef_cli_known(one->last_ms > 0, one->last_ms), "norm_down",
                     reef_cli_real(one->stats.down), "norm_up", reef_cli_real(one->stats.up));
}

static void print_list(const list *found) {
    static const char *const HEADING[] = {"generation", "layer",  "id",      "state",
                                          "key",        "uses",   "share %", "weight",
                                          "last used",  "w_down", "w_up"};
    reef_cli_table *table = reef_cli_table_new(">>><>>>><>>", HEADING);
    for (size_t n = 0; n < found->count; n++) {
        const row *one = &found->rows[n];
        uint32_t i, j;
        reef_expert_pair_of(one->id, &i, &j);
        reef_cli_table_cells(
            table, "%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%s\t%" PRIu32 ", %" PRIu32 "\t%s",
            one->generation, one->layer, one->id, STATES[one->state], i, j, CLI_COUNT(one->uses));
        reef_cli_table_real(table, 2, 100 * one->share, "");
        reef_cli_table_real(table, 4, one->weight, "");
        reef_cli_table_cell(table, "%s", one->last_ms > 0 ? CLI_TIME(one->last_ms) : "");
        reef_cli_table_real(table, 3, one->stats.down, "");
        reef_cli_table_real(table, 3, one->stats.up, "");
    }
    if (found->count > 0) reef_cli_table_show(table);
    printf("%s of %s experts\n", CLI_COUNT(found->count), CLI_COUNT(found->total));
}

static reef_status reply_list(reef_cli_call *cli,
                              const request *asked,
                              const list *found,
                              reef_error *err) {
    if (!cli->json) {
        print_list(found);
        return REEF_OK;
    }
    json_t *rows = json_array();
    for (size_t n = 0; n < found->count; n++)
        json_array_append_new(rows, row_json(&found->rows[n]));
    return reef_cli_reply(cli,
                          json_pack("{s:I, s:s, s:b, s:o}", "total", (json_int_t)found->total,
                                    "sort", SORTS[asked->sort], "reverse", asked->reverse,
                                    "experts", rows),
                          err);
}

reef_status reef_cmd_experts(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    request asked;
    list found = {0};
    reef_status status = parse_request(cli, &asked, err);
    if (status == REEF_OK) status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_pool_has_net(&pool, err);
    if (status == REEF_OK) status = read_place(cli, &pool, &asked.generation, &asked.layer, err);
    if (status == REEF_OK) status = read_list(&pool, &asked, &found, err);
    if (status == REEF_OK) status = reply_list(cli, &asked, &found, err);
    free(found.rows);
    reef_cli_pool_close(&pool);
    return status;
}

// ---- usage --------------------------------------------------------------------------------------

#define BAR_COLUMNS 40
#define BUCKET_NAME_BYTES 48 // two 64-bit numbers

static const reef_cli_option USAGE_OPTIONS[] = {
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
    .options = USAGE_OPTIONS,
    .example = "reef usage reef.pool --generation 0\n"
               "reef usage reef.pool --since 3h --layer 0\n"
               "reef usage reef.pool --since 2024-05-01 --until 2024-05-02T12:00 --json",
};

// What was asked for.
typedef struct usage_request {
    const reef_generation_record *generation;
    uint32_t first, end; // layers
    bool ranged;
    uint64_t since_ms, until_ms;
} usage_request;

static void bucket_name(size_t bucket, char out[BUCKET_NAME_BYTES]) {
    uint64_t low = bucket ? (uint64_t)1 << (bucket - 1) : 0, high = bucket ? 2 * low - 1 : 0;
    if (low == high)
        snprintf(out, BUCKET_NAME_BYTES, "%" PRIu64, low);
    else
        snprintf(out, BUCKET_NAME_BYTES, "%" PRIu64 "-%" PRIu64, low, high);
}

static void print_histogram(const reef_usage_layer *layer) {
    static const char *const HEADING[] = {"  times chosen", "experts", ""};
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
        reef_cli_table_cells(table, "%s\t%s\t%s", name, CLI_COUNT(layer->buckets[b]), bar);
    }
    reef_cli_table_show(table);
}

static void print_span(const reef_usage_layer *layer) {
    const reef_usage_range *range = &layer->range;
    // Windows are those of the commits: the range that was asked for is rounded to them.
    if (range->windows > 0)
        printf("  commits from %s to %s\n", CLI_TIME(range->from_ms), CLI_TIME(range->to_ms));
    else
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

static reef_status read_usage_request(const reef_cli_call *cli,
                                      const reef_cli_pool *pool,
                                      usage_request *asked,
                                      reef_error *err) {
    // The open generation; all layers, of which others than PEER layers are passed over.
    uint64_t generation = pool->generation_count - 1, layer = 0;
    asked->end = pool->config.layers;
    reef_status status = read_place(cli, pool, &generation, &layer, err);
    if (status != REEF_OK) return status;
    asked->generation = &pool->generations[generation];
    if (reef_cli_text(cli, "layer") != NULL) {
        asked->first = (uint32_t)layer;
        asked->end = asked->first + 1;
    }
    return reef_cli_time_range(cli, &asked->ranged, &asked->since_ms, &asked->until_ms, err);
}

static reef_status read_usage(reef_cli_pool *pool,
                              const usage_request *asked,
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

static json_t *reply_json(const usage_request *asked, json_t *layers) {
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
                               const usage_request *asked,
                               reef_error *err) {
    json_t *array = json_array();
    reef_status status = REEF_OK;
    if (!cli->json)
        printf("generation %" PRIu32 ", %s\n", asked->generation->generation,
               asked->generation->sealed ? "sealed" : "open");
    // Each layer is printed as soon as it is read: a large pool takes seconds.
    for (uint32_t l = asked->first; l < asked->end && status == REEF_OK; l++) {
        reef_usage_layer layer;
        if (!reef_layer_retrieves(&pool->config, l)) continue;
        status = read_usage(pool, asked, l, &layer, err);
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
    usage_request asked = {0};
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_pool_has_net(&pool, err);
    if (status == REEF_OK) status = read_usage_request(cli, &pool, &asked, err);
    if (status == REEF_OK) status = print_usage(cli, &pool, &asked, err);
    reef_cli_pool_close(&pool);
    return status;
}
