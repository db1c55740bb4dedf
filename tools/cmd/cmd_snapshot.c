// reef snapshot: keep states of a pool under a name, and show them.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_transport.h"
#include "commands.h"
#include "reef_log.h"
#include "reef_pool_json.h"
#include "reef_snapshot.h"

#include <inttypes.h>

const reef_cli_manual reef_snapshot_create_manual = {
    .about = "Commits and keeps a copy of the open generation "
             "under NAME (letters, digits, '.', '_', '-'),\n"
             "with all that training needs to continue from it; sealed generations are shared.\n"
             "`reef eval --as-of NAME` evaluates it while training continues.",
    .options = NULL,
    .example = "reef snapshot create reef.pool before-upgrade",
};

const reef_cli_manual reef_snapshot_list_manual = {
    .about =
        "Snapshots in the order of their names. The beginning of a name, or four or more digits\n"
        "of a root, are enough for other commands where only one snapshot has them. "
        "One whose record is damaged is reported, and ends the command\n"
        "with 65; `reef snapshot remove` with its whole name removes it.",
    .options = NULL,
    .example = "reef snapshot list reef.pool",
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

static reef_status create(reef_trainer *trainer,
                          json_t *arguments,
                          json_t **result,
                          reef_error *err) {
    reef_snapshot snapshot;
    const char *name = json_string_value(json_object_get(arguments, "name"));
    reef_status status = reef_trainer_snapshot(trainer, name, &snapshot, err);
    if (status == REEF_OK) *result = reef_snapshot_json(&snapshot);
    return status;
}

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
    reef_snapshot snapshot = {0};
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    // A taken name is found before anything is asked of the daemon.
    status = check_free(&pool, name, err);
    if (status == REEF_OK && !cli->dry_run) {
        json_t *request = json_pack("{s:s, s:s}", "command", "snapshot", "name", name);
        // Through the daemon where one runs: the snapshot is then of its last commit.
        status = request != NULL
                     ? reef_cli_change(cli, request, create, &result, err)
                     // json_pack fails only where a name is not UTF-8.
                     : reef_fail(err, REEF_ERR_INVALID, "the name of a snapshot must be text");
        if (status == REEF_OK)
            // Read back, to show what was stored.
            status = read_snapshot(&pool, name, &snapshot, err);
    }
    json_decref(result);
    reef_cli_pool_close(&pool);
    if (status != REEF_OK) return status;
    // A dry run has no snapshot to show.
    if (cli->json)
        return reef_cli_reply(cli,
                              json_pack("{s:b, s:o}", "done", !cli->dry_run, "snapshot",
                                        cli->dry_run ? json_null() : reef_snapshot_json(&snapshot)),
                              err);
    if (cli->dry_run)
        printf("would make snapshot %s\n", name);
    else
        // The step tells which state it is.
        printf("made snapshot %s of step %" PRIu64 "\n", name, snapshot.step);
    return REEF_OK;
}

// ---- list ---------------------------------------------------------------------------------------

typedef struct listing {
    const reef_config *config;
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
    char root[2 * REEF_HASH_BYTES + 1];
    list->count++;
    // Nothing of it can be shown but its name.
    if (snapshot->damaged) {
        list_damaged(list, snapshot->name);
        return REEF_OK;
    }
    // Table and document are filled together: both outputs show the same snapshots.
    json_array_append_new(list->array, reef_snapshot_json(snapshot));
    reef_cli_table_cell(list->table, "%s", snapshot->name);
    reef_cli_table_cell(list->table, "%" PRIu64, snapshot->step);
    // In the unit of the pool, so that positions compare with those of `reef status`.
    reef_cli_table_cells(list->table, "%s\t%" PRIu32 "\t%s",
                         reef_cli_count(snapshot->stream_bytes, CLI_WORDS),
                         snapshot->open_generation, reef_cli_time(snapshot->unix_ms, CLI_WORDS));
    reef_hash_format(snapshot->root, root);
    // Twelve hex digits tell roots apart; the document has all of them.
    reef_cli_table_cell(list->table, "%.12s", root);
    return REEF_OK;
}

reef_status reef_cmd_snapshot_list(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    reef_txn *txn = NULL;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    // The unit stands in the heading and not in each cell.
    char *stream = reef_cli_format("stream %ss", reef_cli_stream_unit(&pool.config));
    const char *const heading[] = {"snapshot", "step", stream, "open generation", "made", "root"};
    listing list = {.config = &pool.config,
                    .table = reef_cli_table_new("<>>><<", heading),
                    .array = json_array(),
                    .damaged = json_array()};
    // One transaction, so that the list is of one commit.
    status = reef_txn_begin(&txn, pool.store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_snapshot_scan(txn, on_snapshot, &list, err);
    reef_txn_abort(txn);
    // Names and table are copies, so the pool can be closed before printing.
    reef_cli_pool_close(&pool);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(
            cli, json_pack("{s:O, s:O}", "snapshots", list.array, "damaged", list.damaged), err);
    else if (status == REEF_OK && list.count == 0)
        // An empty list shows the next command.
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
