// reef grow: add experts to the open generation.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_transport.h"
#include "commands.h"

#include <inttypes.h>

static const reef_cli_option OPTIONS[] = {
    {"side", "N", "sub-keys per side afterwards: N * N experts in each PEER layer"},
    {0},
};

const reef_cli_manual reef_grow_manual = {
    .about =
        "Makes the grid of the open generation larger in place. Experts are appended, so no id\n"
        "changes; the new ones start silent.",
    .options = OPTIONS,
    .example = "reef grow reef.pool --side 48",
};

static reef_status grow_locally(reef_trainer *trainer,
                                json_t *arguments,
                                json_t **result,
                                reef_error *err) {
    uint32_t side = (uint32_t)json_integer_value(json_object_get(arguments, "side"));
    reef_status status = reef_trainer_grow(trainer, side, err);
    if (status == REEF_OK) *result = json_object();
    return status;
}

static reef_status check_grow(reef_trainer *trainer,
                              json_t *arguments,
                              json_t **result,
                              reef_error *err) {
    (void)result;
    uint32_t side = (uint32_t)json_integer_value(json_object_get(arguments, "side"));
    return reef_trainer_grow_check(trainer, side, err);
}

static reef_status reply_grow(reef_cli_call *cli,
                              const reef_cli_pool *pool,
                              uint32_t before,
                              uint32_t side,
                              reef_error *err) {
    // Only the open generation can grow: sealed ones never change by a bit.
    const reef_generation_record *open = &pool->generations[pool->generation_count - 1];
    uint64_t layers = reef_cli_peer_layers(&pool->config);
    // Growing a grid from b to s adds s*s - b*b experts in each layer with experts.
    uint64_t added = ((uint64_t)side * side - (uint64_t)before * before) * layers;
    if (cli->json)
        // `side` is that after growing, also in a dry run.
        return reef_cli_reply(cli,
                              json_pack("{s:b, s:I, s:I, s:I, s:I}", "done", !cli->dry_run,
                                        "generation", (json_int_t)open->generation, "side_before",
                                        (json_int_t)before, "side", (json_int_t)side,
                                        "experts_added", (json_int_t)added),
                              err);
    printf("%s generation %" PRIu32 " from %" PRIu32 " x %" PRIu32 " to %" PRIu32 " x %" PRIu32
           " experts in each PEER layer: %s more\n",
           cli->dry_run ? "would grow" : "grew", open->generation, before, before, side, side,
           reef_cli_count(added, CLI_WORDS));
    return REEF_OK;
}

// The same check as the trainer's, so that a dry run refuses what the real one would.
static reef_status check_side(uint32_t before, uint64_t side, reef_error *err) {
    if (side <= before)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the open generation has side %" PRIu32 " already; --side %" PRIu64
                         " would not make it larger",
                         before, side);
    return REEF_OK;
}

reef_status reef_cmd_grow(reef_cli_call *cli, reef_error *err) {
    uint64_t side = 0;
    // Range first; whether it is larger than today is known only with the pool open.
    reef_status status = reef_cli_integer(cli, "side", 1, REEF_SIDE_MAX, &side, err);
    if (status != REEF_OK) return status;
    if (side == 0)
        return reef_fail(err, REEF_ERR_INVALID, "--side N is missing: how large to grow");
    reef_cli_pool pool;
    json_t *result = NULL;
    status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    status = reef_cli_pool_has_net(&pool, err);
    // Kept: after the change the pool shows the new side.
    uint32_t before = pool.generations[pool.generation_count - 1].side;
    if (status == REEF_OK) status = check_side(before, side, err);
    json_t *request = json_pack("{s:s, s:I}", "command", "grow", "side", (json_int_t)side);
    if (status == REEF_OK && cli->dry_run) {
        // The check runs in this process, with the rules of the trainer.
        status = reef_cli_check(cli, request, check_grow, &result, err);
    } else if (status == REEF_OK) {
        // Through the daemon if one runs, so that it continues to train with the new size.
        status = reef_cli_change(cli, json_incref(request), grow_locally, &result, err);
        // Reads the commit that the change made.
        if (status == REEF_OK) status = reef_cli_pool_refresh(&pool, err);
    }
    if (status == REEF_OK) status = reply_grow(cli, &pool, before, (uint32_t)side, err);
    json_decref(request);
    json_decref(result);
    reef_cli_pool_close(&pool);
    return status;
}
