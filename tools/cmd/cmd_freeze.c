// reef freeze and reef thaw: whether single experts of the open generation learn.
#include "cli_format.h"
#include "cli_transport.h"
#include "commands.h"

#include <inttypes.h>
#include <string.h>

static const reef_cli_option FREEZE_OPTIONS[] = {
    {"layer", "L", "only this layer, counted from 0 (default: all)"},
    {"first", "ID", "first expert of the range (default: 0)"},
    {"last", "ID", "last expert of the range (default: the last one)"},
    {"usage-above", "Q", "only experts used more than this quantile, 0 to 1"},
    {0},
};

const reef_cli_manual reef_freeze_manual = {
    .about = "Frozen experts take part as before, "
             "but the optimiser skips them. Ids count within the open\n"
             "generation.",
    .options = FREEZE_OPTIONS,
    .example = "reef freeze reef.pool --usage-above 0.9\n"
               "reef freeze reef.pool --layer 1 --first 0 --last 99 --dry-run",
};

const reef_cli_manual reef_thaw_manual = {
    .about = "Undoes reef freeze in the open generation. A sealed generation cannot be thawed.",
    .options = FREEZE_OPTIONS,
    .example = "reef thaw reef.pool --layer 1",
};

static reef_status freeze(reef_trainer *trainer,
                          json_t *arguments,
                          json_t **result,
                          reef_error *err) {
    reef_freeze request = {
        // The same members as the daemon's command, so the request serves both ways.
        .layer = (int32_t)json_integer_value(json_object_get(arguments, "layer")),
        .first = (uint64_t)json_integer_value(json_object_get(arguments, "first")),
        .last = (uint64_t)json_integer_value(json_object_get(arguments, "last")),
        // Zero where the option was not given: every expert of the range.
        .usage_above = json_number_value(json_object_get(arguments, "usage_above")),
        // One function for both commands: they differ in the bit that is written.
        .thaw = strcmp(json_string_value(json_object_get(arguments, "command")), "thaw") == 0,
        .dry_run = json_is_true(json_object_get(arguments, "dry_run")),
    };
    uint64_t changed = 0;
    // A dry run counts what would change and commits nothing.
    reef_status status = reef_trainer_freeze(trainer, &request, &changed, err);
    if (status == REEF_OK) *result = json_pack("{s:I}", "changed", (json_int_t)changed);
    return status;
}

static reef_status build_request(const reef_cli_call *cli,
                                 const char *command,
                                 json_t **request,
                                 reef_error *err) {
    // Open ranges reach to the last expert of each layer.
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
    // Layer -1 stands for all layers with experts.
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
    // Through the daemon where one runs, else in this process.
    if (status == REEF_OK) status = reef_cli_change(cli, request, freeze, &result, err);
    if (status != REEF_OK) return status;
    json_int_t changed = json_integer_value(json_object_get(result, "changed"));
    json_decref(result);
    if (cli->json)
        return reef_cli_reply(
            cli, json_pack("{s:b, s:I}", "done", !cli->dry_run, "changed", changed), err);
    // freeze and thaw differ in their first letter.
    printf("%s %s expert%s\n",
           cli->dry_run ? (command[0] == 'f' ? "would freeze" : "would thaw")
                        : (command[0] == 'f' ? "froze" : "thawed"),
           reef_cli_count((uint64_t)changed, CLI_WORDS), changed == 1 ? "" : "s");
    return REEF_OK;
}

reef_status reef_cmd_freeze(reef_cli_call *cli, reef_error *err) {
    return set_flags(cli, "freeze", err);
}

reef_status reef_cmd_thaw(reef_cli_call *cli, reef_error *err) {
    return set_flags(cli, "thaw", err);
}
