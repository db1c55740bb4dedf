// reef seal: seal the open generation for good and open the next.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_transport.h"
#include "commands.h"

#include <inttypes.h>

static const reef_cli_option OPTIONS[] = {
    {"seal-dtype", "TYPE",
     "its rows: f32, or int8 at a quarter of the bytes (default: the pool's choice)"},
    {0},
};

const reef_cli_manual reef_seal_manual = {
    .about = "From then on not one bit of the sealed generation changes, "
             "and what it computes can be had\n"
             "for ever with --as-of. What comes next in the "
             "stream is learned by the new one. The loss on a\n"
             "sample of what it was trained on, before and after, shows what its type cost.",
    .options = OPTIONS,
    .example = "reef seal reef.pool --dry-run\n"
               "reef seal reef.pool --seal-dtype int8",
};

static reef_status seal(reef_trainer *trainer,
                        json_t *arguments,
                        json_t **result,
                        reef_error *err) {
    reef_sealing sealing;
    // Absent means the pool's own setting.
    const char *dtype = json_string_value(json_object_get(arguments, "seal_dtype"));
    reef_status status = reef_trainer_seal(trainer, dtype, &sealing, err);
    if (status == REEF_OK) // as the daemon answers
        // The same members as the daemon's reply, because the printing functions read both.
        *result = json_pack("{s:I, s:I, s:o, s:o}", "sealed", (json_int_t)sealing.generation,
                            "loss_bytes", (json_int_t)sealing.loss_bytes, "loss_before",
                            reef_cli_real(sealing.loss_before), "loss_after",
                            reef_cli_real(sealing.loss_after));
    return status;
}

// Asked of the last commit, which a daemon may be ahead of.
static reef_status check_seal(reef_trainer *trainer,
                              json_t *arguments,
                              json_t **result,
                              reef_error *err) {
    uint32_t side;
    const char *dtype = json_string_value(json_object_get(arguments, "seal_dtype"));
    reef_status status = reef_trainer_seal_check(trainer, dtype, &side, err);
    if (status == REEF_OK) *result = json_pack("{s:I}", "side", (json_int_t)side);
    return status;
}

static json_t *loss_json(const json_t *result, const char *name) {
    const json_t *loss = json_object_get(result, name);
    return json_is_real(loss) ? json_real(json_real_value(loss)) : json_null();
}

static reef_status reply_json(reef_cli_call *cli,
                              const reef_cli_pool *pool,
                              uint32_t sealed,
                              const char *dtype,
                              const json_t *result,
                              reef_error *err) {
    // A dry run opens nothing, so it has no next generation to show.
    json_t *opened =
        cli->dry_run ? json_null() : reef_cli_generation_json(pool, &pool->generations[sealed + 1]);
    // How much text was used to compare the two precisions.
    json_t *bytes = cli->dry_run ? json_null() : json_copy(json_object_get(result, "loss_bytes"));
    // Losses before and after show what the smaller type costs.
    return reef_cli_reply(
        cli,
        json_pack("{s:b, s:s, s:o, s:o, s:o, s:o, s:o}", "done", !cli->dry_run, "seal_dtype", dtype,
                  "sealed", reef_cli_generation_json(pool, &pool->generations[sealed]), "opened",
                  opened, "loss_bytes", bytes, "loss_before", loss_json(result, "loss_before"),
                  "loss_after", loss_json(result, "loss_after")),
        err);
}

static void print_loss(const json_t *result) {
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(result, "loss_bytes"));
    if (bytes == 0)
        printf("there is no sample of its text to measure its loss on\n");
    else
        printf("loss on %s bytes of its own text: %.6f bits per byte before, %.6f after\n",
               reef_cli_count(bytes, CLI_WORDS),
               json_real_value(json_object_get(result, "loss_before")),
               json_real_value(json_object_get(result, "loss_after")));
}

static void print_reply(const reef_cli_call *cli,
                        const reef_cli_pool *pool,
                        uint32_t sealed,
                        const char *dtype,
                        const json_t *result) {
    const reef_generation_record *old = &pool->generations[sealed];
    const reef_config *config = &pool->config;
    // One word decides between plan and result in both lines.
    const char *would = cli->dry_run ? "would seal" : "sealed";
    // The next side is the trainer's decision, in the reply of the check.
    uint32_t side = cli->dry_run ? (uint32_t)json_integer_value(json_object_get(result, "side"))
                                 : pool->generations[sealed + 1].side;
    printf("%s generation %" PRIu32 " (%s experts, open since %s %" PRIu64 ") with rows of %s\n",
           would, sealed, reef_cli_count(reef_cli_generation_experts(pool, old), CLI_WORDS),
           reef_cli_stream_unit(config), old->opened_at, dtype);
    // Without text in the reservoir no loss can be compared.
    if (!cli->dry_run) print_loss(result);
    // The side of a language model is that of one layer.
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
    json_t *request = json_pack("{s:s, s:s*}", "command", "seal", "seal_dtype", dtype);
    if (dtype == NULL)
        // What is shown when the option is missing: the setting of the pool.
        dtype = reef_config_word(&pool.config, "seal_dtype");
    if (status == REEF_OK && cli->dry_run) {
        status = reef_cli_check(cli, request, check_seal, &result, err);
    } else if (status == REEF_OK) {
        status = reef_cli_change(cli, json_incref(request), seal, &result, err);
        // The daemon may have opened generations of its own since the pool was read.
        sealed = (uint32_t)json_integer_value(json_object_get(result, "sealed"));
        if (status == REEF_OK) status = reef_cli_pool_refresh(&pool, err);
    }
    if (status == REEF_OK && cli->json)
        status = reply_json(cli, &pool, sealed, dtype, result, err);
    else if (status == REEF_OK)
        print_reply(cli, &pool, sealed, dtype, result);
    json_decref(request);
    json_decref(result);
    reef_cli_pool_close(&pool);
    return status;
}
