// reef generations: the generations of a pool, one line each.
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"
#include "reef_pool_json.h"

#include <inttypes.h>
#include <stdlib.h>

const reef_cli_manual reef_generations_manual = {
    .about =
        "Used is the share of experts that were ever chosen; "
        "unevenness is the distance of their use\n"
        "from uniform in nats (0: all alike), averaged over the PEER layers.\n"
        "\n"
        "With context memories: how much each has learned, "
        "what it takes in memory, and the share of\n"
        "its slots that are in use, estimated from a part of them. "
        "The open one's size and share are\n"
        "of when its tables were stored last. `reef kind list` shows what kinds learned later.\n"
        "\n"
        "One that continues a kind has the net of a kind that came back. What its memory learns "
        "is\n"
        "counted with the kind: `reef kind list`.\n"
        "\n"
        "A generation is pruned if `reef prune` gave up the state as of it. It answers as before.",
    .options = NULL,
    .example = "reef generations reef.pool",
};

static void add_row(reef_cli_table *table,
                    const reef_cli_pool *pool,
                    const reef_generation_record *g,
                    const reef_usage_summary *usage,
                    const reef_memory_stats *memory,
                    bool kept,
                    const char *name) {
    bool net = reef_cli_has_net(&pool->config);
    reef_cli_table_cell(table, "%" PRIu32, g->generation);
    if (net) {
        // The side tells more than the count alone: the router's cost grows with it.
        reef_cli_table_cells(table, "%" PRIu32 " x %" PRIu32 "\t%s\t%s", g->side, g->side,
                             reef_cli_count(reef_cli_generation_experts(pool, g), CLI_WORDS),
                             reef_rows_dtype_text(g->dtype));
    }
    reef_cli_table_cell(table, "%s", !kept ? "pruned" : g->sealed ? "sealed" : "open");
    const reef_config *config = &pool->config;
    reef_cli_table_cell(table, "%s", reef_cli_count(g->opened_at, CLI_WORDS));
    // The open generation has no end yet.
    reef_cli_table_cell(table, "%s", g->sealed ? reef_cli_count(g->sealed_at, CLI_WORDS) : "");
    if (net) {
        reef_cli_table_cells(table, "%.1f\t%.3f", usage->used_percent, usage->unevenness);
    }
    if (config->context_memory == 0) return;
    uint64_t slots = memory->cells + memory->trees, used = memory->cells_used + memory->trees_used;
    bool learned = memory->learned_bytes > 0;
    reef_cli_table_cell(table, "%s",
                        learned ? reef_cli_bytes(memory->learned_bytes, CLI_WORDS) : "-");
    // Of a memory that was never stored nothing else is known.
    reef_cli_table_cell(table, "%s", slots > 0 ? reef_cli_bytes(memory->bytes, CLI_WORDS) : "-");
    if (slots > 0)
        reef_cli_table_cell(table, "%.1f", 100 * (double)used / (double)slots);
    else
        reef_cli_table_cell(table, "-");
    if (g->continues > 0)
        reef_cli_table_cell(table, "continues %" PRIu32, g->continues - 1);
    else
        reef_cli_table_cell(table, "%s", name[0] == '\0' ? "-" : name);
}

static json_t *row_json(const reef_cli_pool *pool,
                        const reef_generation_record *g,
                        const reef_usage_summary *usage,
                        const reef_memory_stats *memory,
                        bool kept,
                        const char *name) {
    json_t *object = reef_cli_generation_json(pool, g);
    json_object_set_new(object, "used_percent", reef_cli_real(usage->used_percent));
    json_object_set_new(object, "unevenness", reef_cli_real(usage->unevenness));
    json_object_set_new(object, "selections", json_integer((json_int_t)usage->selections));
    json_object_set_new(object, "context_memory",
                        memory->learned_bytes > 0 ? reef_memory_stats_json(memory) : json_null());
    // Is there no state as of it any more?
    json_object_set_new(object, "pruned", json_boolean(!kept));
    json_object_set_new(object, "kind_name", name[0] == '\0' ? json_null() : json_string(name));
    return object;
}

static reef_status read_memory(const reef_cli_pool *pool,
                               uint32_t g,
                               reef_memory_stats *memory,
                               reef_error *err) {
    reef_txn *txn = NULL;
    if (pool->config.context_memory == 0) return REEF_OK;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_memory_stats_read(txn, g, memory, err);
    reef_txn_abort(txn);
    if (status != REEF_ERR_CORRUPT) return status;
    // The rest of the list is worth reading all the same.
    fprintf(stderr, "reef: the memory of generation %" PRIu32 " is damaged: %s\n", g, err->message);
    *memory = (reef_memory_stats){0};
    return REEF_OK;
}

static reef_status collect_generations(reef_cli_pool *pool,
                                       const reef_kind_list *kinds,
                                       const bool *kept,
                                       reef_cli_table *table,
                                       json_t *array,
                                       reef_error *err) {
    // One reading transaction for all, so the rows belong to one commit.
    for (uint32_t g = 0; g < pool->generation_count; g++) {
        reef_usage_summary usage;
        reef_status status = reef_cli_usage_summary(pool, &pool->generations[g], &usage, err);
        reef_memory_stats memory = {0};
        if (status == REEF_OK) status = read_memory(pool, g, &memory, err);
        if (status != REEF_OK) return status;
        // Table and document are filled together: both outputs show the same rows.
        const char *name = reef_kind_list_name(kinds, g);
        add_row(table, pool, &pool->generations[g], &usage, &memory, kept[g], name);
        json_array_append_new(
            array, row_json(pool, &pool->generations[g], &usage, &memory, kept[g], name));
    }
    return REEF_OK;
}

reef_status reef_generations_list(reef_cli_pool *pool,
                                  reef_cli_table **table,
                                  json_t **array,
                                  reef_error *err) {
    const char *unit = reef_cli_stream_unit(&pool->config);
    // The unit stands in the heading and not in each cell.
    char *opened = reef_cli_format("opened at %s", unit),
         *sealed = reef_cli_format("sealed at %s", unit);
    const char *const alone[] = {"generation", "state",  opened,     sealed,
                                 "learned",    "memory", "filled %", "kind"};
    const char *const heading[] = {"generation", "side",     "experts", "rows",       "state",
                                   opened,       sealed,     "used %",  "unevenness", "learned",
                                   "memory",     "filled %", "kind"};
    if (!reef_cli_has_net(&pool->config))
        *table = reef_cli_table_new("><>>>>><", alone);
    else
        *table = reef_cli_table_new(
            pool->config.context_memory == 0 ? ">>><<>>>>" : ">>><<>>>>>>><", heading);
    // The table has copied its heading.
    free(opened);
    free(sealed);
    *array = json_array();
    reef_kind_list kinds;
    bool *kept = NULL;
    reef_status status = reef_cli_kinds_read(pool, &kinds, err);
    if (status == REEF_OK) status = reef_cli_states_kept(pool, &kept, err);
    if (status == REEF_OK) status = collect_generations(pool, &kinds, kept, *table, *array, err);
    free(kept);
    reef_kind_list_release(&kinds);
    if (status == REEF_OK) return REEF_OK;
    // On failure the caller gets no half-filled list.
    reef_cli_table_free(*table);
    json_decref(*array);
    *table = NULL;
    *array = NULL;
    return status;
}

reef_status reef_cmd_generations(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    reef_cli_table *table = NULL;
    json_t *array = NULL;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_generations_list(&pool, &table, &array, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, json_pack("{s:O}", "generations", array), err);
    else if (status == REEF_OK)
        reef_cli_table_print(table, stdout);
    // Both released also after a failure: NULL is fine.
    json_decref(array);
    reef_cli_table_free(table);
    reef_cli_pool_close(&pool);
    return status;
}
