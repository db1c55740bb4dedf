// reef prune: old states are given up, and the room that they take.
#include "cli_format.h"
#include "cli_transport.h"
#include "commands.h"
#include "reef_kinds.h"

#include <inttypes.h>
#include <stdlib.h>

static const reef_cli_option OPTIONS[] = {
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
    .options = OPTIONS,
    .example = "reef prune reef.pool --keep-last 12 --dry-run\n"
               "reef snapshot create reef.pool 2026-11\n"
               "reef prune reef.pool --keep-last 1 --yes",
};

static reef_status prune(reef_trainer *trainer,
                         json_t *arguments,
                         json_t **result,
                         reef_error *err) {
    reef_pruning done;
    uint32_t keep_last = (uint32_t)json_integer_value(json_object_get(arguments, "keep_last"));
    bool dry_run = json_is_true(json_object_get(arguments, "dry_run"));
    reef_status status = reef_trainer_prune(trainer, keep_last, dry_run, &done, err);
    if (status == REEF_OK)
        *result = json_pack("{s:I, s:I, s:I}", "states", (json_int_t)done.states, "visits",
                            (json_int_t)done.visits, "bytes", (json_int_t)done.bytes);
    return status;
}

// What it would do, by this program or by the daemon.
static reef_status ask(
    const reef_cli_call *cli, uint64_t keep_last, bool dry_run, json_t **result, reef_error *err) {
    json_t *request = json_pack("{s:s, s:I, s:b}", "command", "prune", "keep_last",
                                (json_int_t)keep_last, "dry_run", dry_run);
    return reef_cli_change(cli, request, prune, result, err);
}

static json_int_t number(const json_t *result, const char *name) {
    return json_integer_value(json_object_get(result, name));
}

static reef_status confirm(const reef_cli_call *cli, const json_t *would, reef_error *err) {
    char *what = reef_cli_format("%" JSON_INTEGER_FORMAT " states of %s will be gone for good",
                                 number(would, "states"), cli->pool);
    reef_status status = reef_cli_confirm(cli, what, err);
    free(what);
    return status;
}

static reef_status reply(reef_cli_call *cli, const json_t *done, reef_error *err) {
    json_int_t states = number(done, "states"), visits = number(done, "visits");
    json_int_t bytes = number(done, "bytes");
    if (cli->json)
        return reef_cli_reply(cli,
                              json_pack("{s:b, s:I, s:I, s:I}", "done", !cli->dry_run, "states",
                                        states, "visits", visits, "bytes", bytes),
                              err);
    if (visits == 0) {
        printf("nothing to give up\n");
        return REEF_OK;
    }
    printf("%s %" JSON_INTEGER_FORMAT " state%s: %" JSON_INTEGER_FORMAT " visit%s of kinds, %s\n",
           cli->dry_run ? "would give up" : "gave up", states, states == 1 ? "" : "s", visits,
           visits == 1 ? "" : "s", reef_cli_bytes((uint64_t)bytes, CLI_WORDS));
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
    status = ask(cli, keep_last, true, &result, err);
    if (status == REEF_OK && !cli->dry_run && number(result, "visits") > 0) {
        status = confirm(cli, result, err);
        json_decref(result);
        result = NULL;
        if (status == REEF_OK) status = ask(cli, keep_last, false, &result, err);
    }
    if (status == REEF_OK) status = reply(cli, result, err);
    json_decref(result);
    return status;
}
