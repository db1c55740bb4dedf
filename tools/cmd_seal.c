// reef seal: seal the open generation for good and open the next.
#include "commands.h"

#include <inttypes.h>

const cli_manual seal_manual = {
    .about = "From then on not one bit of the sealed generation changes, and what it computes can "
             "be had\n"
             "for ever with --as-of. What comes next in the stream is learned by the new one.",
    .options = NULL,
    .example = "reef seal reef.pool --dry-run",
};

static reef_status seal(reef_trainer *trainer,
                        json_t *arguments,
                        json_t **result,
                        reef_error *err) {
    (void)arguments;
    reef_status status = reef_trainer_seal(trainer, err);
    if (status == REEF_OK) *result = json_object();
    return status;
}

static reef_status answer(cli_call *cli, const cli_pool *pool, uint32_t sealed, reef_error *err) {
    const reef_generation *old = &pool->generations[sealed];
    if (cli->json) {
        json_t *opened =
            cli->dry_run ? json_null() : cli_generation_json(pool, &pool->generations[sealed + 1]);
        return cli_answer(cli,
                          json_pack("{s:b, s:o, s:o}", "done", !cli->dry_run, "sealed",
                                    cli_generation_json(pool, old), "opened", opened),
                          err);
    }
    char words[CLI_WORD_BYTES];
    const char *would = cli->dry_run ? "would seal" : "sealed";
    printf("%s generation %" PRIu32 " (%s experts, open since byte %" PRIu64 ")\n", would, sealed,
           cli_count(cli_generation_experts(pool, old), words), old->opened_at);
    printf("%s generation %" PRIu32 " (%" PRIu32 " x %" PRIu32 " experts in each PEER layer)\n",
           cli->dry_run ? "would open" : "opened", sealed + 1, pool->config.side_new,
           pool->config.side_new);
    return REEF_OK;
}

reef_status cmd_seal(cli_call *cli, reef_error *err) {
    cli_pool pool;
    json_t *result = NULL;
    reef_status status = cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    uint32_t open = pool.generation_count - 1;
    if (!cli->dry_run) {
        status = cli_change(cli, json_pack("{s:s}", "command", "seal"), seal, &result, err);
        if (status == REEF_OK) status = cli_pool_refresh(&pool, err);
        // The daemon may have opened generations of its own since we looked.
        open = pool.generation_count - 2;
    }
    if (status == REEF_OK) status = answer(cli, &pool, open, err);
    json_decref(result);
    cli_pool_close(&pool);
    return status;
}
