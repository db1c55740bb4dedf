// reef snapshot restore: go back to a snapshot, in a new pool or in the same one.
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"
#include "reef_pool_json.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <stdlib.h>

static const reef_cli_option OPTIONS[] = {
    {"in-place", NULL, "change this pool instead of making one in OUT"},
    {0},
};

const reef_cli_manual reef_snapshot_restore_manual = {
    .about = "Makes a new pool in directory OUT as the pool was in the snapshot: "
             "what was sealed later is not in\n"
             "it, and training continues from that position in the stream, "
             "to the same bits as it did then.\n"
             "A daemon may run on the pool meanwhile. With "
             "--in-place the pool itself goes back, in one step; what it is now\n"
             "stays as snapshot before-restore-COMMIT. "
             "Then no daemon may run on it. Events of the timeline stay.",
    .options = OPTIONS,
    .example = "reef snapshot restore reef.pool before-upgrade restored.pool\n"
               "reef snapshot restore reef.pool before-upgrade --in-place --dry-run",
};

static reef_status confirm_restore(const reef_cli_call *cli, reef_error *err) {
    if (cli->dry_run) return REEF_OK;
    char *what =
        reef_cli_format("%s goes back to snapshot %s; what was sealed since is then only in "
                        "the snapshot of the state before",
                        cli->pool, cli->operands[0]);
    reef_status status = reef_cli_confirm(cli, what, err);
    free(what);
    return status;
}

static reef_status restore_in_place(const reef_cli_call *cli,
                                    reef_restoration *done,
                                    reef_error *err) {
    reef_store *store = NULL;
    // Kept apart: the lock's own message does not say what to do about it.
    reef_error reason;
    reef_status status =
        reef_store_open(&store, cli->pool, &(reef_store_options){.write = true}, &reason);
    // A running daemon holds the model in memory, which would overwrite what is restored.
    if (status == REEF_ERR_BUSY)
        return reef_fail(err, REEF_ERR_BUSY,
                         "%.140s: stop it first, or give a directory OUT instead of --in-place",
                         reason.message);
    if (status != REEF_OK) return reef_fail(err, status, "%s", reason.message);
    // Asked with the lock held, so that what is shown cannot change before the reply.
    status = confirm_restore(cli, err);
    if (status == REEF_OK)
        // The trainer keeps the present state as a snapshot first, so this can be undone.
        status = reef_pool_restore_in_place(store, cli->operands[0], cli->dry_run, done, err);
    reef_store_close(store);
    return status;
}

static reef_status restore_elsewhere(const reef_cli_call *cli,
                                     reef_restoration *done,
                                     reef_error *err) {
    reef_store *store = NULL;
    const char *out = cli->operands[1];
    reef_status status = reef_store_open(&store, cli->pool, NULL, err);
    if (status == REEF_OK) status = reef_store_check_copy(cli->pool, out, err); // a dry run too
    if (status == REEF_OK)
        status = reef_pool_restore(store, cli->operands[0], cli->dry_run ? NULL : out, done, err);
    reef_store_close(store);
    return status;
}

static json_t *restoration_json(const reef_cli_call *cli,
                                const reef_restoration *done,
                                bool in_place) {
    const reef_restore_plan *plan = &done->plan;
    return json_pack("{s:b, s:b, s:o, s:o, s:I, s:I, s:o, s:o}", "done", !cli->dry_run, "in_place",
                     in_place, "pool", reef_cli_path(in_place ? cli->pool : cli->operands[1]),
                     "snapshot", reef_snapshot_json(&plan->snapshot), "sealed_gone",
                     (json_int_t)plan->sealed_gone, "snapshots_gone", (json_int_t)plan->needy_count,
                     "kept_as", in_place ? json_string(done->kept_as) : json_null(), "commit",
                     cli->dry_run ? json_null() : reef_cli_commit_json(&done->commit));
}

static void print_restoration(const reef_cli_call *cli,
                              const reef_config *config,
                              const reef_restoration *done,
                              bool in_place) {
    const reef_restore_plan *plan = &done->plan;
    const reef_snapshot *snapshot = &plan->snapshot;
    // One label column for all lines, wide enough for the longest.
    printf("%-25s%s\n", cli->dry_run ? "would restore" : "restored", snapshot->name);
    printf("%-25s%s\n", "pool", in_place ? cli->pool : cli->operands[1]);
    printf("%-25s%" PRIu64 "\n", "step", snapshot->step);
    printf("%-25s%s %ss\n", "stream", reef_cli_count(snapshot->stream_bytes, CLI_WORDS),
           reef_cli_stream_unit(config));
    // Generations sealed after the snapshot are not part of it.
    printf("%-25s%" PRIu32 "\n", "sealed generations gone", plan->sealed_gone);
    if (in_place)
        // In place, nothing is lost: the old state has a name.
        printf("%-25ssnapshot %s\n", "state before", done->kept_as);
    else
        // Snapshots that need generations sealed later cannot be in the new pool.
        printf("%-25s%zu\n", "snapshots gone", plan->needy_count);
    printf("%-25s%s\n", "training continues", "exactly as it did from there");
}

// Nothing else of the pool: it may be damaged, which is why its snapshot is restored.
static reef_status read_config(const reef_cli_call *cli, reef_config *config, reef_error *err) {
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_status status = reef_store_open(&store, cli->pool, NULL, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_config_read(txn, config, err);
    reef_txn_abort(txn);
    reef_store_close(store);
    return status;
}

reef_status reef_cmd_snapshot_restore(reef_cli_call *cli, reef_error *err) {
    bool in_place = reef_cli_text(cli, "in-place") != NULL;
    reef_restoration done;
    // Exactly one of the two: a directory or --in-place.
    if (in_place == (cli->operand_count == 2))
        return reef_fail(err, REEF_ERR_INVALID,
                         in_place
                             ? "--in-place changes the pool itself: OUT makes no sense with it"
                             : "where to? give a directory OUT for the new pool, or --in-place");
    reef_status status =
        in_place ? restore_in_place(cli, &done, err) : restore_elsewhere(cli, &done, err);
    if (status != REEF_OK) return status;
    if (cli->json) return reef_cli_reply(cli, restoration_json(cli, &done, in_place), err);
    // The configuration gives the unit of the stream.
    reef_config config;
    // Read after the change, from the pool that was changed or read.
    status = read_config(cli, &config, err);
    if (status == REEF_OK) print_restoration(cli, &config, &done, in_place);
    return status;
}
