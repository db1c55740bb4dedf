// reef kind recover: a pool with damaged kinds goes on with what is whole of them.
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>

const reef_cli_manual reef_kind_recover_manual = {
    .about =
        "Where a record of a kind is damaged, the pool can be read, and says so, but not trained\n"
        "on. This lets the kind go on as it was before what is damaged; one of which nothing is\n"
        "whole begins anew, with its number and its name. All other kinds stay as they are, to\n"
        "the bit, and so do earlier states. reef verify says first whether a\n"
        "snapshot has more.\n"
        "\n"
        "What is damaged stays in the file, and reef verify keeps reporting it. reef prune\n"
        "removes a damaged visit with the states of its time; a sealed memory stays.\n"
        "\n"
        "All damaged kinds are recovered at once. No daemon may run on the pool.",
    .options = NULL,
    .example = "reef kind recover kinds.pool --dry-run\n"
               "reef kind recover kinds.pool",
};

static void print_kind(const reef_cli_call *cli,
                       const reef_kind_list *list,
                       const reef_kind_recovery *kind) {
    const char *name = reef_kind_list_name(list, kind->lost.kind);
    const char *verb = cli->dry_run ? "would " : "", *s = cli->dry_run ? "" : "s";
    printf("kind %" PRIu32 "%s%s%s ", kind->lost.kind, name[0] != '\0' ? " (" : "", name,
           name[0] != '\0' ? ")" : "");
    if (kind->lost.whole_to > 0) {
        printf("%sgo%s on as it was at byte %s of the stream", verb, cli->dry_run ? "" : "es",
               reef_cli_count(kind->lost.whole_to, CLI_WORDS));
        printf(", with the %s that it had learned by then\n",
               reef_cli_bytes(kind->learned, CLI_WORDS));
    } else {
        printf("%sbegin%s anew: nothing that it learned is whole\n", verb, s);
    }
    printf("  %s\n", kind->lost.what);
}

static json_t *kind_json(const reef_kind_list *list, const reef_kind_recovery *kind) {
    const char *name = reef_kind_list_name(list, kind->lost.kind);
    return json_pack("{s:I, s:o, s:I, s:I, s:s}", "kind", (json_int_t)kind->lost.kind, "name",
                     name[0] != '\0' ? json_string(name) : json_null(), "whole_to",
                     (json_int_t)kind->lost.whole_to, "learned_bytes", (json_int_t)kind->learned,
                     "what", kind->lost.what);
}

static reef_status reply(reef_cli_call *cli,
                         const reef_kind_list *list,
                         const reef_kind_recovery *kinds,
                         size_t count,
                         reef_error *err) {
    if (cli->json) {
        json_t *array = json_array();
        for (size_t i = 0; i < count; i++) json_array_append_new(array, kind_json(list, &kinds[i]));
        return reef_cli_reply(
            cli, json_pack("{s:b, s:o}", "done", !cli->dry_run && count > 0, "kinds", array), err);
    }
    for (size_t i = 0; i < count; i++) print_kind(cli, list, &kinds[i]);
    if (count == 0) printf("no kind is damaged\n");
    return REEF_OK;
}

// A dry run only reads the pool; free *out.
static reef_status recover(const reef_cli_call *cli,
                           bool dry_run,
                           reef_kind_recovery **out,
                           size_t *count,
                           reef_error *err) {
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    const reef_trainer_options options = {
        .threads = cli->threads, .memory_bytes = cli->memory_bytes, .recovers_kinds = true};
    *out = NULL;
    *count = 0;
    reef_status status =
        reef_store_open(&store, cli->pool, &(reef_store_options){.write = !dry_run}, err);
    if (status == REEF_OK) status = reef_trainer_open(&trainer, store, &options, err);
    if (status == REEF_OK) status = reef_trainer_kinds_recover(trainer, dry_run, out, count, err);
    reef_trainer_close(trainer);
    if (store != NULL) reef_store_close(store);
    return status;
}

reef_status reef_cmd_kind_recover(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    reef_kind_list list = {0};
    reef_kind_recovery *kinds = NULL;
    size_t count = 0;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_kinds_read(&pool, &list, err);
    reef_cli_pool_close(&pool);
    if (status == REEF_OK) status = recover(cli, cli->dry_run, &kinds, &count, err);
    if (status == REEF_OK) status = reply(cli, &list, kinds, count, err);
    free(kinds);
    reef_kind_list_release(&list);
    return status;
}
