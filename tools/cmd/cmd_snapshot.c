// reef snapshot create, list and restore: keep states of a pool under a name, and go back to one,
// in a new pool or in the same one.
#include "cli_transport.h"
#include "commands.h"
#include "reef_log.h"
#include "reef_pool_json.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <stdlib.h>

const reef_cli_manual reef_snapshot_create_manual = {
    .about =
        "Commits and keeps a copy of the open generation under NAME (letters, digits, '.', '_',\n"
        "'-'), with all that training needs to continue from it; sealed generations are shared.\n"
        "`reef eval --as-of NAME` evaluates it while training continues.",
    .options = NULL,
    .example = "reef snapshot create reef.pool before-upgrade",
};

const reef_cli_manual reef_snapshot_list_manual = {
    .about =
        "Snapshots in the order of their names. The beginning of a name, or four or more digits\n"
        "of a root, are enough for other commands where only one snapshot has them. One whose\n"
        "record is damaged is reported, and ends the command with 65; `reef snapshot remove` with\n"
        "its whole name removes it.",
    .options = NULL,
    .example = "reef snapshot list reef.pool",
};

static const reef_cli_option RESTORE_OPTIONS[] = {
    {"in-place", NULL, "change this pool instead of making one in OUT"},
    {0},
};

const reef_cli_manual reef_snapshot_restore_manual = {
    .about =
        "Makes a new pool in directory OUT as the pool was in the snapshot: what was sealed later\n"
        "is not in it, and training continues from that position in the stream, to the same bits\n"
        "as it did then. A daemon may run on the pool meanwhile. With --in-place the pool itself\n"
        "goes back, in one step; what it is now stays as snapshot before-restore-COMMIT. Then no\n"
        "daemon may run on it. Events of the timeline stay.",
    .options = RESTORE_OPTIONS,
    .example = "reef snapshot restore reef.pool before-upgrade restored.pool\n"
               "reef snapshot restore reef.pool before-upgrade --in-place --dry-run",
};

static reef_status read_snapshot(reef_cli_pool *pool,
                                 const char *name,
                                 reef_snapshot *snapshot,
                                 reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_snapshot_read(txn, name, snapshot, err);
    reef_txn_abort(txn);
    return status;
}

// ---- create -------------------------------------------------------------------------------------

// What the store would refuse, so that a dry run refuses it too: an invalid name, and a name that
// is taken.
static reef_status check_free(reef_cli_pool *pool, const char *name, reef_error *err) {
    reef_snapshot snapshot;
    reef_error reason;
    reef_status status = reef_snapshot_name_check(name, err);
    if (status != REEF_OK) return status;
    status = read_snapshot(pool, name, &snapshot, &reason);
    if (status == REEF_OK)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a snapshot called %.64s exists; choose another name", name);
    return status == REEF_ERR_NOT_FOUND ? REEF_OK : reef_fail(err, status, "%s", reason.message);
}

reef_status reef_cmd_snapshot_create(reef_cli_call *cli, reef_error *err) {
    const char *name = cli->operands[0];
    reef_cli_pool pool;
    json_t *result = NULL;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    // A taken name is found before anything is asked of the daemon.
    status = check_free(&pool, name, err);
    reef_cli_pool_close(&pool);
    // Through the daemon where one runs: the snapshot is then of its last commit.
    if (status == REEF_OK && !cli->dry_run)
        status = reef_cli_change(cli, json_pack("{s:s, s:s}", "command", "snapshot", "name", name),
                                 &result, err);
    if (status != REEF_OK) return status;
    if (cli->json) {
        if (result != NULL) json_object_del(result, "waited_ms");
        return reef_cli_reply(
            cli, json_pack("{s:b, s:o?}", "done", !cli->dry_run, "snapshot", result), err);
    }
    if (cli->dry_run)
        printf("would make snapshot %s\n", name);
    else
        printf("made snapshot %s of step %" PRIu64 "\n", name, reef_cli_count_of(result, "step"));
    json_decref(result);
    return REEF_OK;
}

// ---- list ---------------------------------------------------------------------------------------

typedef struct listing {
    reef_cli_table *table;
    json_t *array, *damaged; // objects; names
    size_t count;
} listing;

// Its name is all that is known.
static void list_damaged(listing *list, const char *name) {
    json_array_append_new(list->damaged, reef_json_text(name));
    reef_cli_table_cell(list->table, "%s", name);
    for (int i = 0; i < 3; i++) reef_cli_table_cell(list->table, "%s", "");
    reef_cli_table_cell(list->table, "record damaged");
    reef_cli_table_cell(list->table, "%s", "");
}

static reef_status on_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    // Cannot fail: a damaged record is listed and the scan continues.
    (void)err;
    listing *list = context;
    list->count++;
    if (snapshot->damaged) {
        list_damaged(list, snapshot->name);
        return REEF_OK;
    }
    // Table and document are filled together: both outputs show the same snapshots.
    json_array_append_new(list->array, reef_snapshot_json(snapshot));
    reef_cli_table_cell(list->table, "%s", snapshot->name);
    reef_cli_table_cell(list->table, "%" PRIu64, snapshot->step);
    // In the unit of the pool, so that positions compare with those of `reef status`.
    reef_cli_table_cells(list->table, "%s\t%" PRIu32 "\t%s", CLI_COUNT(snapshot->stream_bytes),
                         snapshot->open_generation, CLI_TIME(snapshot->unix_ms));
    // Twelve hex digits tell roots apart; the document has all of them.
    reef_cli_table_cell(list->table, "%.12s", CLI_HASH(snapshot->root));
    return REEF_OK;
}

reef_status reef_cmd_snapshot_list(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    reef_txn *txn = NULL;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    char *stream = reef_cli_format("stream %ss", reef_cli_stream_unit(&pool.config));
    const char *const heading[] = {"snapshot", "step", stream, "open generation", "made", "root"};
    listing list = {.table = reef_cli_table_new("<>>><<", heading),
                    .array = json_array(),
                    .damaged = json_array()};
    // One transaction, so that the list is of one commit.
    status = reef_txn_begin(&txn, pool.store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_snapshot_scan(txn, on_snapshot, &list, err);
    reef_txn_abort(txn);
    reef_cli_pool_close(&pool);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(
            cli, json_pack("{s:O, s:O}", "snapshots", list.array, "damaged", list.damaged), err);
    else if (status == REEF_OK && list.count == 0)
        printf("no snapshots; make one with: reef snapshot create %s NAME\n", cli->pool);
    else if (status == REEF_OK)
        reef_cli_table_print(list.table, stdout);
    size_t damaged = json_array_size(list.damaged);
    // The sound ones are shown first; then the command fails, so that scripts notice.
    if (status == REEF_OK && damaged > 0)
        status = reef_fail(err, REEF_ERR_CORRUPT,
                           "the records of %zu of %zu snapshots are damaged; "
                           "see reef verify",
                           damaged, list.count);
    reef_cli_table_free(list.table);
    free(stream);
    json_decref(list.array);
    json_decref(list.damaged);
    return status;
}

// ---- restore ------------------------------------------------------------------------------------

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
    // A running daemon holds the model in memory, which would overwrite what is restored.
    reef_status status = reef_cli_store_open(
        &store, cli, true, "stop it first, or give a directory OUT instead of --in-place", err);
    // Asked with the lock held, so that what is shown cannot change before the reply.
    if (status == REEF_OK) status = confirm_restore(cli, err);
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
    printf("%-25s%s\n", cli->dry_run ? "would restore" : "restored", snapshot->name);
    printf("%-25s%s\n", "pool", in_place ? cli->pool : cli->operands[1]);
    printf("%-25s%" PRIu64 "\n", "step", snapshot->step);
    printf("%-25s%s %ss\n", "stream", CLI_COUNT(snapshot->stream_bytes),
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
    reef_config config;
    // Read after the change, from the pool that was changed or read.
    status = read_config(cli, &config, err);
    if (status == REEF_OK) print_restoration(cli, &config, &done, in_place);
    return status;
}
