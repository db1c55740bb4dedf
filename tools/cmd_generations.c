// reef generations: the generations of a pool, one line each.
#include "commands.h"

#include <inttypes.h>

const cli_manual generations_manual = {
    .about = "Used is the share of experts that were ever chosen; unevenness is the distance of "
             "their use\n"
             "from uniform in nats (0: all alike), averaged over the PEER layers.",
    .options = NULL,
    .example = "reef generations reef.pool",
};

static void add_row(cli_table *table,
                    const cli_pool *pool,
                    const reef_generation *g,
                    const reef_usage_summary *usage) {
    char words[CLI_WORD_BYTES];
    cli_table_cell(table, "%" PRIu32, g->generation);
    cli_table_cell(table, "%" PRIu32 " x %" PRIu32, g->side, g->side);
    cli_table_cell(table, "%s", cli_count(cli_generation_experts(pool, g), words));
    cli_table_cell(table, "%s", reef_rows_dtype_text(g->dtype));
    cli_table_cell(table, "%s", g->sealed ? "sealed" : "open");
    cli_table_cell(table, "%s", cli_count(g->opened_at, words));
    cli_table_cell(table, "%s", g->sealed ? cli_count(g->sealed_at, words) : "");
    cli_table_cell(table, "%.1f", usage->used_percent);
    cli_table_cell(table, "%.3f", usage->unevenness);
}

static json_t *row_json(const cli_pool *pool,
                        const reef_generation *g,
                        const reef_usage_summary *usage) {
    json_t *object = cli_generation_json(pool, g);
    json_object_set_new(object, "used_percent", cli_real(usage->used_percent));
    json_object_set_new(object, "unevenness", cli_real(usage->unevenness));
    json_object_set_new(object, "selections", json_integer((json_int_t)usage->selections));
    return object;
}

static reef_status collect(cli_pool *pool, cli_table *table, json_t *array, reef_error *err) {
    for (uint32_t g = 0; g < pool->generation_count; g++) {
        reef_usage_summary usage;
        reef_status status = cli_usage_summary(pool, &pool->generations[g], &usage, err);
        if (status != REEF_OK) return status;
        add_row(table, pool, &pool->generations[g], &usage);
        json_array_append_new(array, row_json(pool, &pool->generations[g], &usage));
    }
    return REEF_OK;
}

reef_status generations_list(cli_pool *pool, cli_table **table, json_t **array, reef_error *err) {
    static const char *const HEADING[] = {"generation",     "side",   "experts",
                                          "rows",           "state",  "opened at byte",
                                          "sealed at byte", "used %", "unevenness"};
    *table = cli_table_new(">>><<>>>>", HEADING);
    *array = json_array();
    reef_status status = collect(pool, *table, *array, err);
    if (status == REEF_OK) return REEF_OK;
    cli_table_free(*table);
    json_decref(*array);
    *table = NULL;
    *array = NULL;
    return status;
}

reef_status cmd_generations(cli_call *cli, reef_error *err) {
    cli_pool pool;
    cli_table *table = NULL;
    json_t *array = NULL;
    reef_status status = cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = generations_list(&pool, &table, &array, err);
    if (status == REEF_OK && cli->json)
        status = cli_answer(cli, json_pack("{s:O}", "generations", array), err);
    else if (status == REEF_OK)
        cli_table_print(table, stdout);
    json_decref(array);
    cli_table_free(table);
    cli_pool_close(&pool);
    return status;
}
