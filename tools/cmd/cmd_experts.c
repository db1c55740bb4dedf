// reef experts: single experts, as a table of the first of them or one in full, with what it
// answers to in a text.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_table.h"
#include "cli_vectors.h"
#include "commands.h"
#include "experts_list.h"
#include "experts_trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOP_DEFAULT 20
#define PLACES_DEFAULT 10 // of a text
#define PLACES_MAX 100000

static const reef_cli_option OPTIONS[] = {
    {"generation", "G", "only of this one (default: all; with --id the last one)"},
    {"layer", "N", "only of this layer (default: all that have experts)"},
    {"state", "open|sealed|frozen", "only those that learn, are sealed, or are frozen"},
    {"sort", "uses|share|weight|last|down|up|id",
     "what comes first: most uses, share of its layer's uses, mean weight, "
     "latest use, norm of w_down or w_up (default: uses; of vector models up)"},
    {"reverse", NULL, "the least first"},
    {"top", "K", "show the first K (default: 20; 0: all)"},
    {"since", "TIME", "count uses from then on: 2024-05-01, 2024-05-01T12:00, or 3h or 2d ago"},
    {"until", "TIME", "count uses before then"},
    {"id", "N", "one expert in full, by its id in its layer"},
    {"text", "FILE", "with --id: where this text uses it, the strongest places first"},
    {"places", "K", "with --text: show K places (default: 10)"},
    {"as-of", "STATE",
     "with --text: read it as of a generation, a snapshot, or now (default: now)"},
    {0},
};

const reef_cli_manual reef_experts_manual = {
    .about = "An expert is one hidden neuron: weight * act(w_down . "
             "x) * w_up, where a token's query chose it\n"
             "with that weight. Ids count within a layer of a generation; "
             "key is the row of each table of\n"
             "sub-keys that the id stands for. "
             "Last used is known to the commit for an hour, to the hour for two\n"
             "days, to the day for 400. "
             "In a vector model every expert sees every input, so there are no uses;\n"
             "class is the one that it speaks for most.\n"
             "\n"
             "--text reads FILE (- for standard input) through the model, "
             "as it is now or --as-of another state,\n"
             "and shows the bytes at which weight * activation is largest, "
             "between \xc2\xbb and \xc2\xab in their\n"
             "context. Uses and norms are always those of now.",
    .options = OPTIONS,
    .example = "reef experts reef.pool\n"
               "reef experts reef.pool --generation 0 --layer 0 --sort uses --reverse --top 5\n"
               "reef experts reef.pool --since 3h --json\n"
               "reef experts reef.pool --layer 0 --id 7 --text held.txt\n"
               "reef experts reef.pool --layer 0 --id 7 --text held.txt --as-of 0",
};

// ---- what was asked for -------------------------------------------------------------------------

static reef_status choose_sort(const reef_cli_call *cli,
                               reef_experts_request *asked,
                               reef_error *err) {
    const char *text = reef_cli_text(cli, "sort");
    if (text == NULL) return REEF_OK;
    // Names come from the function that prints them, so help, list and parser agree.
    for (int sort = 0; sort < EXPERTS_SORT_COUNT; sort++) {
        if (strcmp(text, reef_experts_sort_text((reef_experts_sort)sort)) != 0) continue;
        asked->sort = (reef_experts_sort)sort;
        return REEF_OK;
    }
    // The message lists the words because the sort keys cannot be guessed.
    return reef_fail(err, REEF_ERR_INVALID,
                     "--sort is '%.40s', but must be uses, share, weight, last, down, up or id",
                     text);
}

static reef_status choose_state(const reef_cli_call *cli,
                                reef_experts_request *asked,
                                reef_error *err) {
    // In the order of the enum, from EXPERTS_OPEN on.
    static const char *const STATES[] = {"open", "sealed", "frozen"};
    const char *text = reef_cli_text(cli, "state");
    if (text == NULL) return REEF_OK;
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, STATES[i]) != 0) continue;
        // EXPERTS_ANY has no word: it is what no option means.
        asked->state = (reef_experts_state)(EXPERTS_OPEN + i);
        return REEF_OK;
    }
    return reef_fail(err, REEF_ERR_INVALID,
                     "--state is '%.40s', but must be open, sealed or frozen", text);
}

// Experts of vector models have no uses to ask for.
static reef_status check_kind(const reef_cli_call *cli,
                              const reef_cli_pool *pool,
                              const reef_experts_request *asked,
                              reef_error *err) {
    // Sorting by uses, share, weight or last use needs usage records; norms do not.
    bool uses =
        asked->ranged || (reef_cli_text(cli, "sort") != NULL && asked->sort <= EXPERTS_SORT_LAST);
    // Every pool of language models keeps usage, at any setting.
    if (!reef_config_is_vector(&pool->config)) return REEF_OK;
    if (reef_cli_text(cli, "text") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s has a vector model, which reads no text, and in which every "
                         "expert sees every input; --id alone shows one's norms and class",
                         cli->pool);
    // A list by norms is fine for vectors.
    if (!uses) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.120s has a vector model, in which every expert sees every input: there are "
                     "no uses; sort by down, up or id",
                     cli->pool);
}

static reef_status parse_request(const reef_cli_call *cli,
                                 const reef_cli_pool *pool,
                                 reef_experts_request *asked,
                                 reef_error *err) {
    uint64_t generation = 0, layer = 0, top = TOP_DEFAULT;
    // Most used first answers what most people ask; vectors have no uses, so by norm.
    *asked = (reef_experts_request){
        .one_generation = reef_cli_text(cli, "generation") != NULL,
        .one_layer = reef_cli_text(cli, "layer") != NULL,
        .sort = reef_config_is_vector(&pool->config) ? EXPERTS_SORT_UP : EXPERTS_SORT_USES,
        // The option reverses the natural order of each key, which is largest first.
        .reverse = reef_cli_text(cli, "reverse") != NULL};
    reef_status status = reef_cli_integer(cli, "generation", 0, UINT32_MAX, &generation, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "layer", 0, UINT32_MAX, &layer, err);
    // Zero lists all of them.
    if (status == REEF_OK) status = reef_cli_integer(cli, "top", 0, UINT32_MAX, &top, err);
    if (status == REEF_OK) status = choose_sort(cli, asked, err);
    if (status == REEF_OK) status = choose_state(cli, asked, err);
    // Times are parsed by one function for all commands, so "yesterday" means the same.
    if (status == REEF_OK)
        status = reef_cli_time_range(cli, &asked->ranged, &asked->since_ms, &asked->until_ms, err);
    asked->generation = (uint32_t)generation;
    asked->layer = (uint32_t)layer;
    asked->top = (size_t)top;
    // After parsing, because the check depends on what was asked.
    return status == REEF_OK ? check_kind(cli, pool, asked, err) : status;
}

// ---- one row ------------------------------------------------------------------------------------

static json_t *count_or_null(bool known, uint64_t count) {
    return known ? json_integer((json_int_t)count) : json_null();
}

static json_t *row_json(const reef_cli_pool *pool, const reef_expert_row *row) {
    // Vector generations have rows but no product keys and no usage records.
    bool vectors = reef_config_is_vector(&pool->config);
    uint32_t i, j;
    // Row and column are the halves of the product key: id = row * side + column.
    reef_expert_pair_of(row->id, &i, &j);
    // `id` counts within the generation's layer, `pool_id` over the whole pool.
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:s}", "generation", (json_int_t)row->generation, "layer",
                  (json_int_t)row->layer, "id", (json_int_t)row->id, "pool_id",
                  (json_int_t)row->pool_id, "state", reef_expert_row_state(row));
    // Null and absent differ for readers: the members are there for both model kinds.
    json_object_set_new(object, "row", count_or_null(!vectors, i));
    json_object_set_new(object, "column", count_or_null(!vectors, j));
    json_object_set_new(object, "uses", count_or_null(!vectors, row->uses));
    // Not a number where a layer has no uses: reef_cli_real makes it null.
    json_object_set_new(object, "share", reef_cli_real(row->share));
    json_object_set_new(object, "weight", reef_cli_real(row->weight));
    // Zero is "never used", which has no time.
    json_object_set_new(object, "last_ms", count_or_null(row->last_ms > 0, row->last_ms));
    json_object_set_new(object, "norm_down", reef_cli_real(row->stats.down));
    json_object_set_new(object, "norm_up", reef_cli_real(row->stats.up));
    // Only GLU experts have a gate; others show null.
    json_object_set_new(object, "norm_gate", reef_cli_real(row->stats.gate));
    json_object_set_new(object, "bias", reef_cli_real(row->stats.bias));
    // The class with the largest output weight. Language models have none: their label is -1.
    json_object_set_new(object, "class",
                        row->stats.label >= 0 ? json_integer(row->stats.label) : json_null());
    return object;
}

static void norm_cell(reef_cli_table *table, double value) {
    reef_cli_table_cell(table, isnan(value) ? "" : "%.3f", value);
}

static void add_uses(reef_cli_table *table, const reef_expert_row *row) {
    char words[CLI_WORD_BYTES];
    uint32_t i, j;
    reef_expert_pair_of(row->id, &i, &j);
    reef_cli_table_cell(table, "%" PRIu32 ", %" PRIu32, i, j);
    reef_cli_table_cell(table, "%s", reef_cli_count(row->uses, words));
    reef_cli_table_cell(table, isnan(row->share) ? "" : "%.2f", 100 * row->share);
    reef_cli_table_cell(table, isnan(row->weight) ? "" : "%.4f", row->weight);
    reef_cli_table_cell(table, "%s", row->last_ms > 0 ? reef_cli_time(row->last_ms, words) : "");
}

static void print_rows(const reef_cli_pool *pool, const reef_experts_list *list) {
    // Sizes of w_down and w_up stand last, where both headings meet the same columns.
    static const char *const HEADING[] = {"generation", "layer",  "id",      "state",
                                          "key",        "uses",   "share %", "weight",
                                          "last used",  "w_down", "w_up"};
    static const char *const VECTOR_HEADING[] = {"generation", "layer", "id",   "state",
                                                 "w_down",     "w_up",  "bias", "class"};
    bool vectors = reef_config_is_vector(&pool->config);
    // Text columns are left-aligned, counts and norms right-aligned.
    reef_cli_table *table = vectors ? reef_cli_table_new(">>><>>>>", VECTOR_HEADING)
                                    : reef_cli_table_new(">>><>>>><>>", HEADING);
    for (size_t i = 0; i < list->count; i++) {
        const reef_expert_row *row = &list->rows[i];
        // The same three columns identify an expert in `reef freeze` and `reef experts --id`.
        reef_cli_table_cell(table, "%" PRIu32, row->generation);
        reef_cli_table_cell(table, "%" PRIu32, row->layer);
        reef_cli_table_cell(table, "%" PRIu32, row->id);
        reef_cli_table_cell(table, "%s", reef_expert_row_state(row));
        // Usage columns exist only for product-key layers.
        if (!vectors) add_uses(table, row);
        norm_cell(table, row->stats.down);
        norm_cell(table, row->stats.up);
        // Bias and class exist only for vector models.
        if (!vectors) continue;
        norm_cell(table, row->stats.bias);
        // Empty where no class stands out.
        reef_cli_table_cell(table, row->stats.label >= 0 ? "%" PRId32 : "", row->stats.label);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

// ---- many ---------------------------------------------------------------------------------------

static json_t *list_json(const reef_cli_pool *pool,
                         const reef_experts_request *asked,
                         const reef_experts_list *list) {
    // The whole list: --top was applied when it was read.
    json_t *array = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(array, row_json(pool, &list->rows[i]));
    // `total` counts matches before --top cut the list.
    json_t *document =
        json_pack("{s:I, s:s, s:b, s:o}", "total", (json_int_t)list->total, "sort",
                  reef_experts_sort_text(asked->sort), "reverse", asked->reverse, "experts", array);
    // The window is in the document only if one was asked for.
    if (!asked->ranged) return document;
    json_object_set_new(document, "since_ms", json_integer((json_int_t)asked->since_ms));
    // An open end of the range is null: UINT64_MAX would be lost in a JSON number.
    json_object_set_new(document, "until_ms",
                        count_or_null(asked->until_ms != UINT64_MAX, asked->until_ms));
    return document;
}

static reef_status show_list(reef_cli_call *cli,
                             reef_cli_pool *pool,
                             const reef_experts_request *asked,
                             reef_error *err) {
    reef_experts_list list;
    char shown[CLI_WORD_BYTES], total[CLI_WORD_BYTES];
    // The same list serves both outputs, so they cannot disagree.
    reef_status status = reef_experts_list_read(pool, asked, &list, err);
    if (status == REEF_OK && cli->json) {
        status = reef_cli_reply(cli, list_json(pool, asked, &list), err);
    } else if (status == REEF_OK) {
        print_rows(pool, &list);
        // Says how many were cut, because --top has a default.
        printf("%s of %s experts\n", reef_cli_count(list.count, shown),
               reef_cli_count(list.total, total));
    }
    reef_experts_list_release(&list);
    return status;
}

// ---- one ----------------------------------------------------------------------------------------

// A layer need not be named if only one has experts.
static reef_status choose_layer(const reef_cli_pool *pool,
                                reef_experts_request *asked,
                                reef_error *err) {
    uint32_t found = 0;
    // Given on the command line: checked when the list is read.
    if (asked->one_layer) return REEF_OK;
    asked->one_layer = true;
    // A vector model has one layer, number 0.
    if (reef_config_is_vector(&pool->config)) return REEF_OK;
    for (uint32_t l = 0; l < pool->config.layers; l++) {
        // Dense layers have no experts to ask about.
        if (!reef_cli_layer_is_peer(&pool->config, l)) continue;
        asked->layer = l;
        found++;
    }
    // With several PEER layers any choice would be a guess.
    return found == 1
               ? REEF_OK
               : reef_fail(err, REEF_ERR_INVALID,
                           "of which layer? the model has %" PRIu32 " with experts; give --layer",
                           found);
}

// The whole layer by uses: where an expert stands in it is its rank.
static reef_status find_expert(reef_cli_pool *pool,
                               reef_experts_request *asked,
                               uint64_t id,
                               reef_experts_list *list,
                               size_t *at,
                               reef_error *err) {
    // Without --generation the newest one is meant: it is what is being learned.
    if (!asked->one_generation) asked->generation = pool->generation_count - 1;
    asked->one_generation = true;
    // All of them: the rank needs the whole layer in order.
    asked->top = 0;
    reef_status status = choose_layer(pool, asked, err);
    if (status == REEF_OK) status = reef_experts_list_read(pool, asked, list, err);
    if (status != REEF_OK) return status;
    // A linear search: the list was just read, and this is done once.
    for (*at = 0; *at < list->count; ++*at)
        if (list->rows[*at].id == id) return REEF_OK;
    // The valid ids are named; ids start at zero in each generation.
    return reef_fail(err, REEF_ERR_NOT_FOUND,
                     "there is no expert %" PRIu64 " in layer %" PRIu32 " of generation %" PRIu32
                     ": it has 0 to %" PRIu64,
                     id, asked->layer, asked->generation, list->total - 1);
}

static void print_uses(const reef_expert_row *row, size_t rank, uint64_t total) {
    char words[CLI_WORD_BYTES], all[CLI_WORD_BYTES], rank_text[CLI_WORD_BYTES];
    printf("uses         %s", reef_cli_count(row->uses, words));
    if (!isnan(row->share)) printf(", %.2f %% of its layer's", 100 * row->share);
    printf("; rank %s of %s\n", reef_cli_count(rank + 1, rank_text), reef_cli_count(total, all));
    if (!isnan(row->weight)) printf("mean weight  %.4f\n", row->weight);
    printf("last used    %s\n",
           row->last_ms > 0 ? reef_cli_time(row->last_ms, words) : "not known");
}

static void print_expert(const reef_cli_pool *pool,
                         const reef_expert_row *row,
                         size_t rank,
                         uint64_t total) {
    uint32_t i, j;
    // The pair of sub-keys is what the router scores; it shows why neighbours fire together.
    reef_expert_pair_of(row->id, &i, &j);
    printf("expert %" PRIu32 " of layer %" PRIu32 ", generation %" PRIu32 ": %s\n", row->id,
           row->layer, row->generation, reef_expert_row_state(row));
    // The number by which snapshots and the store know it.
    printf("number       %" PRIu64 " of its layer in the pool\n", row->pool_id);
    // Every expert of a vector model sees every input, so it has no product key.
    if (!reef_config_is_vector(&pool->config)) {
        printf("key          row %" PRIu32 " of sub_keys_a, row %" PRIu32
               " of sub_keys_b, of %" PRIu32 " each\n",
               i, j, row->side);
        print_uses(row, rank, total);
    }
    // Norms are not a number where the expert has no such vector.
    printf("norms        ");
    if (!isnan(row->stats.down)) printf("w_down %.3f, ", row->stats.down);
    if (!isnan(row->stats.gate)) printf("w_gate %.3f, ", row->stats.gate);
    printf("w_up %.3f\n", row->stats.up);
    if (!isnan(row->stats.bias)) printf("bias         %.3f\n", row->stats.bias);
    if (row->stats.label >= 0)
        // Labels are numbers: names of classes are not stored in a pool.
        printf("class        %" PRId32 ", which it speaks for most\n", row->stats.label);
}

// The text and its model are opened first: --as-of decides which generation is the newest.
static reef_status open_text(reef_cli_call *cli,
                             reef_cli_pool *pool,
                             reef_experts_request *asked,
                             reef_experts_text *text,
                             reef_error *err) {
    // How many of the strongest positions are shown.
    uint64_t places = PLACES_DEFAULT;
    reef_status status = reef_cli_integer(cli, "places", 1, PLACES_MAX, &places, err);
    // Without --text no model is opened: the rows come from the store alone.
    if (status != REEF_OK || reef_cli_text(cli, "text") == NULL) return status;
    // Text is read as bytes, which a model of ids or vectors does not take.
    status = reef_cli_pool_wants_bytes(pool, "--id alone shows an expert", err);
    if (status == REEF_OK) status = reef_experts_text_open(cli, pool, (size_t)places, text, err);
    // The model as of a state has fewer generations than the pool has now.
    if (status != REEF_OK || asked->one_generation) return status;
    asked->generation = reef_model_generation_count(text->model) - 1;
    asked->one_generation = true;
    return REEF_OK;
}

static reef_status show_one(reef_cli_call *cli,
                            reef_cli_pool *pool,
                            reef_experts_request *asked,
                            uint64_t id,
                            reef_error *err) {
    reef_experts_list list = {0};
    reef_experts_text text = {0};
    size_t at;
    // Before the expert is looked up: an --as-of state limits the generations.
    reef_status status = open_text(cli, pool, asked, &text, err);
    if (status == REEF_OK) status = find_expert(pool, asked, id, &list, &at, err);
    // Runs the model over the text and keeps the positions where this expert weighed most.
    if (status == REEF_OK && text.model != NULL)
        status = reef_experts_text_read(&text, &list.rows[at], err);
    if (status == REEF_OK && cli->json) {
        json_t *document = row_json(pool, &list.rows[at]);
        // A rank by uses has no meaning without usage records.
        bool ranked = !reef_config_is_vector(&pool->config);
        json_object_set_new(document, "rank", count_or_null(ranked, at + 1));
        json_object_set_new(document, "experts", json_integer((json_int_t)list.total));
        if (reef_cli_text(cli, "text") != NULL)
            json_object_set_new(document, "text", reef_experts_text_json(&text));
        status = reef_cli_reply(cli, document, err);
    } else if (status == REEF_OK) {
        print_expert(pool, &list.rows[at], at, list.total);
        // Positions come after the numbers of the expert, which do not depend on the text.
        if (reef_cli_text(cli, "text") != NULL) reef_experts_text_print(&text);
    }
    reef_experts_text_release(&text);
    reef_experts_list_release(&list);
    return status;
}

static reef_status check_together(const reef_cli_call *cli, reef_error *err) {
    // Options of the two forms of the command; together they would silently be ignored.
    static const char *const OF_LISTS[] = {"sort", "reverse", "top", "state"};
    bool one = reef_cli_text(cli, "id") != NULL;
    for (size_t i = 0; one && i < sizeof(OF_LISTS) / sizeof(OF_LISTS[0]); i++)
        if (reef_cli_text(cli, OF_LISTS[i]) != NULL)
            return reef_fail(err, REEF_ERR_INVALID, "--%s is for lists, and --id names one expert",
                             OF_LISTS[i]);
    // A text is read for one expert: for all it would be a table of the whole layer.
    if (!one && reef_cli_text(cli, "text") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--text shows what one expert does; say which with --id");
    if (reef_cli_text(cli, "text") == NULL && reef_cli_text(cli, "places") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--places without --text: there is no text to show");
    if (reef_cli_text(cli, "text") == NULL && reef_cli_text(cli, "as-of") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--as-of is for --text: uses and norms are those of now");
    return REEF_OK;
}

reef_status reef_cmd_experts(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    reef_experts_request asked;
    uint64_t id = 0;
    // Checked before the pool is opened, so the error does not depend on the pool.
    reef_status status = check_together(cli, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "id", 0, UINT32_MAX, &id, err);
    // Read-only: the daemon can train meanwhile.
    if (status == REEF_OK) status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = parse_request(cli, &pool, &asked, err);
    if (status == REEF_OK)
        status = reef_cli_text(cli, "id") != NULL ? show_one(cli, &pool, &asked, id, err)
                                                  : show_list(cli, &pool, &asked, err);
    reef_cli_pool_close(&pool);
    return status;
}
