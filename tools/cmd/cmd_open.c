// reef freeze, thaw and grow: whether single experts of the open generation learn, and how many it
// has.
#include "cli_transport.h"
#include "commands.h"
#include "reef_pool_json.h"

#include <inttypes.h>
#include <string.h>

// ---- freeze and thaw ----------------------------------------------------------------------------

static const reef_cli_option FREEZE_OPTIONS[] = {
    {"layer", "L", "only this layer, counted from 0 (default: all)"},
    {"first", "ID", "first expert of the range (default: 0)"},
    {"last", "ID", "last expert of the range (default: the last one)"},
    {"usage-above", "Q", "only experts used more than this quantile, 0 to 1"},
    {0},
};

const reef_cli_manual reef_freeze_manual = {
    .about =
        "Frozen experts take part as before, but the optimiser skips them. Ids count within the\n"
        "open generation.",
    .options = FREEZE_OPTIONS,
    .example = "reef freeze reef.pool --usage-above 0.9\n"
               "reef freeze reef.pool --layer 1 --first 0 --last 99 --dry-run",
};

const reef_cli_manual reef_thaw_manual = {
    .about = "Undoes reef freeze in the open generation. A sealed generation cannot be thawed.",
    .options = FREEZE_OPTIONS,
    .example = "reef thaw reef.pool --layer 1",
};

static reef_status build_request(const reef_cli_call *cli,
                                 const char *command,
                                 json_t **request,
                                 reef_error *err) {
    uint64_t layer = 0, first = 0, last = REEF_FREEZE_TO_END;
    double quantile = 0;
    // Bounded by the format here; whether the model has that layer is checked by the trainer.
    reef_status status = reef_cli_integer(cli, "layer", 0, REEF_LAYER_COUNT_MAX - 1, &layer, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "first", 0, INT64_MAX, &first, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "last", 0, INT64_MAX, &last, err);
    // Below one: a quantile of 1 would select nothing.
    if (status == REEF_OK)
        status = reef_cli_number(cli, "usage-above", 0, 0.999999, &quantile, err);
    if (status != REEF_OK) return status;
    // Found here, since the daemon's message would speak of members and not of options.
    if (last < first)
        return reef_fail(err, REEF_ERR_INVALID, "--last %" PRIu64 " is before --first %" PRIu64,
                         last, first);
    *request = json_pack("{s:s, s:I, s:I, s:I, s:f, s:b}", "command", command, "layer",
                         reef_cli_text(cli, "layer") != NULL ? (json_int_t)layer : (json_int_t)-1,
                         "first", (json_int_t)first, "last", (json_int_t)last, "usage_above",
                         quantile, "dry_run", cli->dry_run);
    return REEF_OK;
}

static bool is_all(const reef_cli_call *cli) {
    for (const reef_cli_option *one = FREEZE_OPTIONS; one->name != NULL; one++)
        if (reef_cli_text(cli, one->name) != NULL) return false;
    return true;
}

static reef_status set_flags(reef_cli_call *cli, const char *command, reef_error *err) {
    json_t *request = NULL, *result = NULL;
    reef_status status = build_request(cli, command, &request, err);
    if (status == REEF_OK && command[0] == 'f' && !cli->dry_run && is_all(cli))
        status = reef_cli_confirm(cli, "All experts of the open generation stop learning", err);
    if (status == REEF_OK) status = reef_cli_change(cli, request, &result, err);
    if (status != REEF_OK) return status;
    json_int_t changed = json_integer_value(json_object_get(result, "changed"));
    json_decref(result);
    if (cli->json)
        return reef_cli_reply(
            cli, json_pack("{s:b, s:I}", "done", !cli->dry_run, "changed", changed), err);
    printf("%s %s expert%s\n",
           cli->dry_run ? (command[0] == 'f' ? "would freeze" : "would thaw")
                        : (command[0] == 'f' ? "froze" : "thawed"),
           CLI_COUNT((uint64_t)changed), changed == 1 ? "" : "s");
    return REEF_OK;
}

reef_status reef_cmd_freeze(reef_cli_call *cli, reef_error *err) {
    return set_flags(cli, "freeze", err);
}

reef_status reef_cmd_thaw(reef_cli_call *cli, reef_error *err) {
    return set_flags(cli, "thaw", err);
}

// ---- grow ---------------------------------------------------------------------------------------

static const reef_cli_option GROW_OPTIONS[] = {
    {"side", "N", "sub-keys per side afterwards: N * N experts in each PEER layer"},
    {"memory", "SIZE", "refused: the budget for memories is written once, by reef init"},
    {0},
};

const reef_cli_manual reef_grow_manual = {
    .about =
        "Makes the grid of the open generation larger in place. Experts are appended, so no id\n"
        "changes; the new ones start silent.",
    .options = GROW_OPTIONS,
    .example = "reef grow reef.pool --side 48",
};

// So that a dry run refuses what the real one would.
static reef_status check_grow(const reef_cli_call *cli, uint32_t side, reef_error *err) {
    reef_cli_trainer own;
    reef_status status = reef_cli_trainer_open(&own, cli, false, err);
    if (status == REEF_OK) status = reef_trainer_grow_check(own.trainer, side, err);
    reef_cli_trainer_close(&own);
    return status;
}

static reef_status reply_grow(reef_cli_call *cli,
                              const reef_cli_pool *pool,
                              uint32_t before,
                              uint32_t side,
                              reef_error *err) {
    const reef_generation_record *open = &pool->generations[pool->generation_count - 1];
    uint64_t layers = reef_config_retrieving_layers(&pool->config);
    uint64_t added = ((uint64_t)side * side - (uint64_t)before * before) * layers;
    if (cli->json)
        return reef_cli_reply(cli,
                              json_pack("{s:b, s:I, s:I, s:I, s:I}", "done", !cli->dry_run,
                                        "generation", (json_int_t)open->generation, "side_before",
                                        (json_int_t)before, "side", (json_int_t)side,
                                        "experts_added", (json_int_t)added),
                              err);
    printf("%s generation %" PRIu32 " from %" PRIu32 " x %" PRIu32 " to %" PRIu32 " x %" PRIu32
           " experts in each PEER layer: %s more\n",
           cli->dry_run ? "would grow" : "grew", open->generation, before, before, side, side,
           CLI_COUNT(added));
    return REEF_OK;
}

// States that are kept learn text again with the budget that it was learned with.
static reef_status refuse_memory(const char *text, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "the budget of a pool is written once, since states that are kept learn again "
                     "with it; reef init NEW --memory %.20s makes another pool, and reef import "
                     "takes in what this one knows",
                     text);
}

reef_status reef_cmd_grow(reef_cli_call *cli, reef_error *err) {
    uint64_t side = 0;
    const char *memory = reef_cli_text(cli, "memory");
    if (memory != NULL) return refuse_memory(memory, err);
    reef_status status = reef_cli_integer(cli, "side", 1, REEF_SIDE_MAX, &side, err);
    if (status != REEF_OK) return status;
    if (side == 0)
        return reef_fail(err, REEF_ERR_INVALID, "--side N is missing: how large to grow");
    reef_cli_pool pool;
    json_t *result = NULL;
    status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    status = reef_cli_pool_has_net(&pool, err);
    uint32_t before = pool.generations[pool.generation_count - 1].side;
    if (status == REEF_OK && side <= before)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "the open generation has side %" PRIu32 " already; --side %" PRIu64
                           " would not make it larger",
                           before, side);
    if (status == REEF_OK && cli->dry_run)
        status = check_grow(cli, (uint32_t)side, err);
    else if (status == REEF_OK)
        status = reef_cli_change(
            cli, json_pack("{s:s, s:I}", "command", "grow", "side", (json_int_t)side), &result,
            err);
    if (status == REEF_OK && !cli->dry_run) status = reef_cli_pool_refresh(&pool, err);
    if (status == REEF_OK) status = reply_grow(cli, &pool, before, (uint32_t)side, err);
    json_decref(result);
    reef_cli_pool_close(&pool);
    return status;
}
