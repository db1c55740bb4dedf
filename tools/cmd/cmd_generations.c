// reef generations, seal and prune: the generations of a pool; the open one is sealed for good; the
// states as of old ones are given up.
#include "cli_transport.h"
#include "commands.h"
#include "reef_kinds.h"
#include "reef_pool_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

const reef_cli_manual reef_generations_manual = {
    .about =
        "Used is the share of experts that were ever chosen; unevenness is the distance of their\n"
        "use from uniform in nats (0: all alike), averaged over the PEER layers.\n"
        "\n"
        "With context memories: how much each has learned, what it takes in memory, and the share\n"
        "of its slots that are in use, estimated from a part of them. The open one's size and\n"
        "share are of when its tables were stored last. `reef kind list` shows what kinds learned\n"
        "later.\n"
        "\n"
        "One that continues a kind has the net of a kind that came back. What its memory learns\n"
        "is counted with the kind: `reef kind list`.\n"
        "\n"
        "A generation is pruned if `reef prune` gave up the state as of it. It answers as before.",
    .options = NULL,
    .example = "reef generations reef.pool",
};

static const reef_cli_option SEAL_OPTIONS[] = {
    {"seal-dtype", "TYPE",
     "its rows: f32, or int8 at a quarter of the bytes (default: the pool's choice)"},
    {0},
};

const reef_cli_manual reef_seal_manual = {
    .about =
        "From then on not one bit of the sealed generation changes, and what it computes can be\n"
        "had for ever with --as-of. What comes next in the stream is learned by the new one. The\n"
        "loss on a sample of what it was trained on, before and after, shows what its type cost.",
    .options = SEAL_OPTIONS,
    .example = "reef seal reef.pool --dry-run\n"
               "reef seal reef.pool --seal-dtype int8",
};

static const reef_cli_option PRUNE_OPTIONS[] = {
    {"keep-last", "N", "keep the states as of the N newest generations, the open one counted"},
    {0},
};

const reef_cli_manual reef_prune_manual = {
    .about =
        "As of each generation a pool keeps what its kinds had learned by then, so it grows with\n"
        "the states that `--as-of` can ask. This gives up those as of older generations. What\n"
        "later states and snapshots are read from stays, and so does all that is known now: no\n"
        "later answer changes, and no root hash. A state that shares all that it needs with one\n"
        "that is kept stays, too. The file keeps its size; commits use the room.",
    .options = PRUNE_OPTIONS,
    .example = "reef prune reef.pool --keep-last 12 --dry-run\n"
               "reef snapshot create reef.pool 2026-11\n"
               "reef prune reef.pool --keep-last 1 --yes",
};

// ---- the list -----------------------------------------------------------------------------------

// What is known of a generation.
typedef struct row {
    const reef_generation_record *record;
    reef_usage_summary usage;
    reef_memory_stats memory;
    bool kept; // the state as of it
    const char *name;
} row;

static void add_row(reef_cli_table *table, const reef_cli_pool *pool, const row *r) {
    const reef_generation_record *g = r->record;
    const reef_memory_stats *memory = &r->memory;
    bool net = reef_cli_has_net(&pool->config);
    reef_cli_table_cell(table, "%" PRIu32, g->generation);
    if (net)
        reef_cli_table_cells(table, "%" PRIu32 " x %" PRIu32 "\t%s\t%s", g->side, g->side,
                             CLI_COUNT(reef_cli_generation_experts(pool, g)),
                             reef_rows_dtype_text(g->dtype));
    reef_cli_table_cells(table, "%s\t%s\t%s",
                         !r->kept    ? "pruned"
                         : g->sealed ? "sealed"
                                     : "open",
                         CLI_COUNT(g->opened_at), g->sealed ? CLI_COUNT(g->sealed_at) : "");
    if (net) reef_cli_table_cells(table, "%.1f\t%.3f", r->usage.used_percent, r->usage.unevenness);
    if (pool->config.memory == 0) return;
    uint64_t slots = memory->cells + memory->trees, used = memory->cells_used + memory->trees_used;
    bool learned = memory->learned_bytes > 0;
    reef_cli_table_cell(table, "%s", learned ? CLI_BYTES(memory->learned_bytes) : "-");
    // Of a memory that was never stored nothing else is known.
    reef_cli_table_cell(table, "%s", slots > 0 ? CLI_BYTES(memory->bytes) : "-");
    reef_cli_table_real(table, 1, slots > 0 ? 100 * (double)used / (double)slots : (double)NAN,
                        "-");
    if (g->continues > 0)
        reef_cli_table_cell(table, "continues %" PRIu32, g->continues - 1);
    else
        reef_cli_table_cell(table, "%s", r->name[0] == '\0' ? "-" : r->name);
}

static json_t *generation_json(const reef_cli_pool *pool,
                               const reef_generation_record *generation) {
    return reef_generation_json(generation, reef_config_retrieving_layers(&pool->config));
}

static json_t *row_json(const reef_cli_pool *pool, const row *r) {
    json_t *object = generation_json(pool, r->record);
    json_object_set_new(object, "used_percent", reef_cli_real(r->usage.used_percent));
    json_object_set_new(object, "unevenness", reef_cli_real(r->usage.unevenness));
    json_object_set_new(object, "selections", json_integer((json_int_t)r->usage.selections));
    json_object_set_new(object, "context_memory",
                        r->memory.learned_bytes > 0 ? reef_memory_stats_json(&r->memory)
                                                    : json_null());
    json_object_set_new(object, "pruned", json_boolean(!r->kept));
    json_object_set_new(object, "kind_name", reef_cli_name(r->name));
    return object;
}

static reef_status read_memory(const reef_cli_pool *pool,
                               uint32_t g,
                               reef_memory_stats *memory,
                               reef_error *err) {
    reef_txn *txn = NULL;
    if (pool->config.memory == 0) return REEF_OK;
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
    for (uint32_t g = 0; g < pool->generation_count; g++) {
        row r = {.record = &pool->generations[g],
                 .kept = kept[g],
                 .name = reef_kind_list_name(kinds, g)};
        reef_status status = reef_cli_usage_summary(pool, r.record, &r.usage, err);
        if (status == REEF_OK) status = read_memory(pool, g, &r.memory, err);
        if (status != REEF_OK) return status;
        // Table and document are filled together: both outputs show the same rows.
        add_row(table, pool, &r);
        json_array_append_new(array, row_json(pool, &r));
    }
    return REEF_OK;
}

static reef_cli_table *new_table(const reef_config *config) {
    const char *unit = reef_cli_stream_unit(config);
    char *opened = reef_cli_format("opened at %s", unit),
         *sealed = reef_cli_format("sealed at %s", unit);
    const char *const alone[] = {"generation", "state",  opened,     sealed,
                                 "learned",    "memory", "filled %", "kind"};
    const char *const heading[] = {"generation", "side",     "experts", "rows",       "state",
                                   opened,       sealed,     "used %",  "unevenness", "learned",
                                   "memory",     "filled %", "kind"};
    reef_cli_table *table =
        !reef_cli_has_net(config)
            ? reef_cli_table_new("><>>>>><", alone)
            : reef_cli_table_new(config->memory == 0 ? ">>><<>>>>" : ">>><<>>>>>>><", heading);
    free(opened);
    free(sealed);
    return table;
}

reef_status reef_cmd_generations(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    reef_cli_table *table = NULL;
    reef_kind_list kinds = {0};
    bool *kept = NULL;
    json_t *array = json_array();
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) table = new_table(&pool.config);
    if (status == REEF_OK) status = reef_cli_kinds_read(&pool, &kinds, err);
    if (status == REEF_OK) status = reef_cli_states_kept(&pool, &kept, err);
    if (status == REEF_OK) status = collect_generations(&pool, &kinds, kept, table, array, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, json_pack("{s:O}", "generations", array), err);
    else if (status == REEF_OK)
        reef_cli_table_print(table, stdout);
    json_decref(array);
    reef_cli_table_free(table);
    free(kept);
    reef_kind_list_release(&kinds);
    reef_cli_pool_close(&pool);
    return status;
}

// ---- seal ---------------------------------------------------------------------------------------

// Asked of the last commit, which a daemon may be ahead of: whether it can be sealed, and the side
// of the next one.
static reef_status check_seal(const reef_cli_call *cli,
                              const char *dtype,
                              uint32_t *side,
                              reef_error *err) {
    reef_cli_trainer own;
    reef_status status = reef_cli_trainer_open(&own, cli, false, err);
    if (status == REEF_OK) status = reef_trainer_seal_check(own.trainer, dtype, side, err);
    reef_cli_trainer_close(&own);
    return status;
}

static json_t *loss_json(const json_t *result, const char *name) {
    const json_t *loss = json_object_get(result, name);
    return json_is_real(loss) ? json_real(json_real_value(loss)) : json_null();
}

static reef_status seal_json(reef_cli_call *cli,
                             const reef_cli_pool *pool,
                             uint32_t sealed,
                             const char *dtype,
                             const json_t *result,
                             reef_error *err) {
    json_t *opened =
        cli->dry_run ? json_null() : generation_json(pool, &pool->generations[sealed + 1]);
    json_t *bytes = cli->dry_run ? json_null() : json_copy(json_object_get(result, "loss_bytes"));
    return reef_cli_reply(
        cli,
        json_pack("{s:b, s:s, s:o, s:o, s:o, s:o, s:o}", "done", !cli->dry_run, "seal_dtype", dtype,
                  "sealed", generation_json(pool, &pool->generations[sealed]), "opened", opened,
                  "loss_bytes", bytes, "loss_before", loss_json(result, "loss_before"),
                  "loss_after", loss_json(result, "loss_after")),
        err);
}

static void print_loss(const json_t *result) {
    uint64_t bytes = reef_cli_count_of(result, "loss_bytes");
    if (bytes == 0)
        printf("there is no sample of its text to measure its loss on\n");
    else
        printf("loss on %s bytes of its own text: %.6f bits per byte before, %.6f after\n",
               CLI_COUNT(bytes), reef_cli_real_of(result, "loss_before"),
               reef_cli_real_of(result, "loss_after"));
}

static void print_sealing(const reef_cli_call *cli,
                          const reef_cli_pool *pool,
                          uint32_t sealed,
                          uint32_t side,
                          const char *dtype,
                          const json_t *result) {
    const reef_generation_record *old = &pool->generations[sealed];
    const reef_config *config = &pool->config;
    const char *would = cli->dry_run ? "would seal" : "sealed";
    printf("%s generation %" PRIu32 " (%s experts, open since %s %" PRIu64 ") with rows of %s\n",
           would, sealed, CLI_COUNT(reef_cli_generation_experts(pool, old)),
           reef_cli_stream_unit(config), old->opened_at, dtype);
    // Without a memory, which keeps text, no loss can be compared.
    if (!cli->dry_run) print_loss(result);
    printf("%s generation %" PRIu32 " (%" PRIu32 " x %" PRIu32 " experts in each PEER layer)\n",
           cli->dry_run ? "would open" : "opened", sealed + 1, side, side);
}

reef_status reef_cmd_seal(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    json_t *result = NULL;
    const char *dtype = reef_cli_text(cli, "seal-dtype");
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    // Valid for a dry run; a real one reads it from the reply.
    uint32_t sealed = pool.generation_count - 1;
    // Setting it checks the word, so that a dry run refuses what the real one would.
    if (dtype != NULL) status = reef_config_set(&pool.config, "seal_dtype", dtype, err);
    uint32_t side = 0; // of the next one
    if (status == REEF_OK && cli->dry_run)
        status = check_seal(cli, dtype, &side, err);
    else if (status == REEF_OK)
        status = reef_cli_change(
            cli, json_pack("{s:s, s:s*}", "command", "seal", "seal_dtype", dtype), &result, err);
    // Of the pool where the option is missing.
    dtype = reef_config_word(&pool.config, "seal_dtype");
    if (status == REEF_OK && !cli->dry_run) {
        // The daemon may have opened generations of its own since the pool was read.
        sealed = (uint32_t)reef_cli_count_of(result, "sealed");
        status = reef_cli_pool_refresh(&pool, err);
        if (status == REEF_OK) side = pool.generations[sealed + 1].side;
    }
    if (status == REEF_OK && cli->json)
        status = seal_json(cli, &pool, sealed, dtype, result, err);
    else if (status == REEF_OK)
        print_sealing(cli, &pool, sealed, side, dtype, result);
    json_decref(result);
    reef_cli_pool_close(&pool);
    return status;
}

// ---- prune --------------------------------------------------------------------------------------

// What it would do, by this program or by the daemon.
static reef_status ask_prune(
    const reef_cli_call *cli, uint64_t keep_last, bool dry_run, json_t **result, reef_error *err) {
    json_t *request = json_pack("{s:s, s:I, s:b}", "command", "prune", "keep_last",
                                (json_int_t)keep_last, "dry_run", dry_run);
    return reef_cli_change(cli, request, result, err);
}

static reef_status confirm_prune(const reef_cli_call *cli, const json_t *would, reef_error *err) {
    char *what = reef_cli_format("%" PRIu64 " states of %s will be gone for good",
                                 reef_cli_count_of(would, "states"), cli->pool);
    reef_status status = reef_cli_confirm(cli, what, err);
    free(what);
    return status;
}

static reef_status reply_prune(reef_cli_call *cli, const json_t *done, reef_error *err) {
    uint64_t states = reef_cli_count_of(done, "states"), visits = reef_cli_count_of(done, "visits"),
             bytes = reef_cli_count_of(done, "bytes");
    if (cli->json)
        return reef_cli_reply(cli,
                              json_pack("{s:b, s:I, s:I, s:I}", "done", !cli->dry_run, "states",
                                        (json_int_t)states, "visits", (json_int_t)visits, "bytes",
                                        (json_int_t)bytes),
                              err);
    if (visits == 0) {
        printf("nothing to give up\n");
        return REEF_OK;
    }
    printf("%s %" PRIu64 " state%s: %" PRIu64 " visit%s of kinds, %s\n",
           cli->dry_run ? "would give up" : "gave up", states, states == 1 ? "" : "s", visits,
           visits == 1 ? "" : "s", CLI_BYTES(bytes));
    return REEF_OK;
}

reef_status reef_cmd_prune(reef_cli_call *cli, reef_error *err) {
    uint64_t keep_last = 0;
    json_t *result = NULL;
    reef_status status =
        reef_cli_integer(cli, "keep-last", 1, REEF_GENERATION_COUNT_MAX, &keep_last, err);
    if (status != REEF_OK) return status;
    if (keep_last == 0)
        return reef_fail(err, REEF_ERR_INVALID, "how many states should stay? give --keep-last N");
    status = ask_prune(cli, keep_last, true, &result, err);
    if (status == REEF_OK && !cli->dry_run && reef_cli_count_of(result, "visits") > 0) {
        status = confirm_prune(cli, result, err);
        json_decref(result);
        result = NULL;
        if (status == REEF_OK) status = ask_prune(cli, keep_last, false, &result, err);
    }
    if (status == REEF_OK) status = reply_prune(cli, result, err);
    json_decref(result);
    return status;
}
