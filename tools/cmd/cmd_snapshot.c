// reef snapshot create, list, restore, remove and prune: keep states of a pool under a name; go
// back to one, in a new pool or in the same one; and give them up, by name or by age.
#include "cli_transport.h"
#include "commands.h"
#include "reef_log.h"
#include "reef_pool_json.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEP_MAX 1000000 // a bound above any real number of snapshots, or days

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

const reef_cli_manual reef_snapshot_remove_manual = {
    .about =
        "Removes the named snapshots, all or none. The beginning of a name, or four digits or\n"
        "more of a root hash, are enough where only one snapshot has them. One whose record is\n"
        "damaged wants its whole name; it goes with what it held, as far as no other snapshot may\n"
        "hold it. At a terminal it asks first. Nothing else of the pool changes.",
    .options = NULL,
    .example = "reef snapshot remove reef.pool before-upgrade\n"
               "reef snapshot remove reef.pool monday tuesday --yes",
};

static const reef_cli_option PRUNE_OPTIONS[] = {
    {"keep-last", "N", "keep the N newest; automatic ones (auto-, before-restore-) go first"},
    {"keep-daily", "N", "keep the newest snapshot of each of the last N days that have one"},
    {0},
};

const reef_cli_manual reef_snapshot_prune_manual = {
    .about =
        "Removes every snapshot that no rule keeps. At least one rule must be given; with both,\n"
        "what either of them keeps stays. Days are those of local time. One whose record is\n"
        "damaged counts for no rule, and stays.",
    .options = PRUNE_OPTIONS,
    .example = "reef snapshot prune reef.pool --keep-last 3 --keep-daily 7 --dry-run",
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

typedef struct choice {
    reef_snapshot snapshot;
    bool goes; // of remove and prune
} choice;

typedef struct choices {
    choice *all; // (count)
    size_t count, capacity;
} choices;

static void add_choice(choices *list, const reef_snapshot *snapshot) {
    list->all = reef_cli_grown(list->all, list->count, &list->capacity, sizeof(*list->all));
    list->all[list->count++] = (choice){.snapshot = *snapshot};
}

static reef_status on_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    (void)err;
    add_choice(context, snapshot);
    return REEF_OK;
}

static reef_status list_all(reef_cli_pool *pool, choices *list, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_snapshot_scan(txn, on_snapshot, list, err);
    reef_txn_abort(txn);
    return status;
}

// Those that go, or that stay: what can be shown, as objects; of what is damaged the names.
static void split_json(const choices *list, bool goes, json_t **sound, json_t **damaged) {
    *sound = json_array();
    *damaged = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const reef_snapshot *snapshot = &list->all[i].snapshot;
        if (list->all[i].goes != goes) continue;
        if (snapshot->damaged)
            json_array_append_new(*damaged, reef_json_text(snapshot->name));
        else
            json_array_append_new(*sound, reef_snapshot_json(snapshot));
    }
}

static void print_list(const choices *list, const char *unit) {
    char *stream = reef_cli_format("stream %ss", unit);
    const char *const heading[] = {"snapshot", "step", stream, "open generation", "made", "root"};
    reef_cli_table *table = reef_cli_table_new("<>>><<", heading);
    for (size_t i = 0; i < list->count; i++) {
        const reef_snapshot *one = &list->all[i].snapshot;
        // Of a damaged one its name is all that is known.
        if (one->damaged)
            reef_cli_table_cells(table, "%s\t\t\t\trecord damaged\t", one->name);
        else
            // Twelve digits tell roots apart; the document has all of them.
            reef_cli_table_cells(table, "%s\t%" PRIu64 "\t%s\t%" PRIu32 "\t%s\t%.12s", one->name,
                                 one->step, CLI_COUNT(one->stream_bytes), one->open_generation,
                                 CLI_TIME(one->unix_ms), CLI_HASH(one->root));
    }
    reef_cli_table_show(table);
    free(stream);
}

reef_status reef_cmd_snapshot_list(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    choices list = {0};
    json_t *sound, *damaged;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = list_all(&pool, &list, err);
    if (status != REEF_OK) goto cleanup;
    split_json(&list, false, &sound, &damaged);
    size_t lost = json_array_size(damaged);
    json_t *document = json_pack("{s:o, s:o}", "snapshots", sound, "damaged", damaged);
    if (cli->json)
        status = reef_cli_reply(cli, json_incref(document), err);
    else if (list.count == 0)
        printf("no snapshots; make one with: reef snapshot create %s NAME\n", cli->pool);
    else
        print_list(&list, reef_cli_stream_unit(&pool.config));
    json_decref(document);
    // The sound ones are shown first; then the command fails, so that scripts notice.
    if (status == REEF_OK && lost > 0)
        status = reef_fail(err, REEF_ERR_CORRUPT,
                           "the records of %zu of %zu snapshots are damaged; "
                           "see reef verify",
                           lost, list.count);

cleanup:
    free(list.all);
    reef_cli_pool_close(&pool);
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
                     cli->dry_run ? json_null() : reef_commit_json(&done->commit));
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
    printf("%-25s%" PRIu32 "\n", "sealed generations gone", plan->sealed_gone);
    if (in_place)
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
    status = read_config(cli, &config, err);
    if (status == REEF_OK) print_restoration(cli, &config, &done, in_place);
    return status;
}

// ---- remove and prune: what goes ----------------------------------------------------------------
//
// Both make a list of what goes first; that goes in one transaction, through the daemon where one
// runs. A snapshot that is made meanwhile is on no list.

// Newest first, by what the pool counts: clocks are set back. Names decide between snapshots of one
// commit. Damaged ones last, whose commit is not known.
static int by_age(const void *left, const void *right) {
    const reef_snapshot *a = &((const choice *)left)->snapshot;
    const reef_snapshot *b = &((const choice *)right)->snapshot;
    if (a->damaged != b->damaged) return a->damaged ? 1 : -1;
    if (a->commit != b->commit) return a->commit < b->commit ? 1 : -1;
    return strcmp(a->name, b->name);
}

// A number for each day of local time, whichever; 0 for a time that is none.
static long day_of(uint64_t unix_ms) {
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm local;
    return localtime_r(&seconds, &local) != NULL ? (local.tm_year + 1900L) * 400 + local.tm_yday
                                                 : 0;
}

// Is there none before it in the list of its day?
static bool is_first_of_day(const choices *list, size_t i) {
    long own = day_of(list->all[i].snapshot.unix_ms);
    while (i > 0 && day_of(list->all[i - 1].snapshot.unix_ms) != own) i--;
    return i == 0;
}

// Those that nobody named: of a restoration, and of reefd's own clock.
static bool is_automatic(const reef_snapshot *snapshot) {
    return strncmp(snapshot->name, "before-restore-", 15) == 0 ||
           strncmp(snapshot->name, "auto-", 5) == 0;
}

// The newest stay; what somebody named comes before what is automatic.
static void choose_by_age(choices *list, uint64_t keep_last, uint64_t keep_daily) {
    uint64_t days = 0, named = 0, kept[2] = {0};
    qsort(list->all, list->count, sizeof(*list->all), by_age);
    for (size_t i = 0; i < list->count && !list->all[i].snapshot.damaged; i++)
        named += !is_automatic(&list->all[i].snapshot);
    const uint64_t most[2] = {keep_last, keep_last > named ? keep_last - named : 0};
    for (size_t i = 0; i < list->count && !list->all[i].snapshot.damaged; i++) {
        bool newest_of_day = is_first_of_day(list, i);
        bool automatic = is_automatic(&list->all[i].snapshot);
        if (newest_of_day) days++;
        list->all[i].goes =
            !(kept[automatic]++ < most[automatic] || (newest_of_day && days <= keep_daily));
    }
}

static bool mark_name(choices *list, const char *name) {
    bool found = false;
    for (size_t k = 0; k < list->count; k++) {
        if (strcmp(list->all[k].snapshot.name, name) != 0) continue;
        list->all[k].goes = found = true;
    }
    return found;
}

// A damaged record shows nothing by which a user could recognise it, so the beginning of its name
// is not enough. A record that is lost altogether is met by no scan: it is added here.
static reef_status mark_damaged(reef_txn *txn, choices *list, const char *name, reef_error *err) {
    reef_snapshot found;
    const reef_error why = *err;
    reef_status status = reef_snapshot_read(txn, name, &found, err);
    if (status != REEF_ERR_CORRUPT)
        return reef_fail(err, REEF_ERR_CORRUPT, "%.180s; its whole name is needed to remove it",
                         why.message);
    if (mark_name(list, name)) return REEF_OK;
    found = (reef_snapshot){.damaged = true};
    snprintf(found.name, sizeof(found.name), "%s", name);
    add_choice(list, &found);
    (void)mark_name(list, name);
    return REEF_OK;
}

// Mark the snapshots that the operands name.
static reef_status list_named(const reef_cli_call *cli,
                              reef_cli_pool *pool,
                              choices *list,
                              reef_error *err) {
    reef_txn *txn = NULL;
    // All are listed, so that the reply can show what stays.
    reef_status status = list_all(pool, list, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    for (size_t i = 0; status == REEF_OK && i < cli->operand_count; i++) {
        reef_snapshot found;
        status = reef_snapshot_find(txn, cli->operands[i], &found, err);
        if (status == REEF_OK)
            (void)mark_name(list, found.name);
        else if (status == REEF_ERR_CORRUPT)
            status = mark_damaged(txn, list, cli->operands[i], err);
    }
    reef_txn_abort(txn);
    return status;
}

static size_t going(const choices *list) {
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) count += list->all[i].goes;
    return count;
}

// ---- removing -----------------------------------------------------------------------------------

static reef_status remove_chosen(const reef_cli_call *cli, const choices *list, reef_error *err) {
    json_t *names = json_array(), *result = NULL;
    for (size_t i = 0; i < list->count; i++)
        if (list->all[i].goes)
            json_array_append_new(names, reef_json_text(list->all[i].snapshot.name));
    json_t *request = json_pack("{s:s, s:o}", "command", "snapshot_remove", "names", names);
    reef_status status = reef_cli_change(cli, request, &result, err);
    json_decref(result);
    return status;
}

static reef_status reply_choices(reef_cli_call *cli, const choices *list, reef_error *err) {
    json_t *removed, *kept, *damaged_removed, *damaged_kept;
    split_json(list, true, &removed, &damaged_removed);
    split_json(list, false, &kept, &damaged_kept);
    return reef_cli_reply(cli,
                          json_pack("{s:b, s:o, s:o, s:o, s:o}", "done", !cli->dry_run, "removed",
                                    removed, "kept", kept, "damaged_removed", damaged_removed,
                                    "damaged_kept", damaged_kept),
                          err);
}

static void print_choices(const reef_cli_call *cli, const choices *list) {
    static const char *const HEADING[] = {"snapshot", "step", "made", ""};
    reef_cli_table *table = reef_cli_table_new("<><<", HEADING);
    size_t count = going(list);
    for (size_t i = 0; i < list->count; i++) {
        const choice *one = &list->all[i];
        if (one->snapshot.damaged)
            reef_cli_table_cells(table, "%s\t\trecord damaged", one->snapshot.name);
        else
            reef_cli_table_cells(table, "%s\t%" PRIu64 "\t%s", one->snapshot.name,
                                 one->snapshot.step, CLI_TIME(one->snapshot.unix_ms));
        reef_cli_table_cell(table, "%s", !one->goes ? "stays" : cli->dry_run ? "would go" : "gone");
    }
    if (list->count > 0) reef_cli_table_show(table);
    printf("%s %zu snapshot%s, %zu %s left\n", cli->dry_run ? "would remove" : "removed", count,
           count == 1 ? "" : "s", list->count - count,
           cli->dry_run ? "would be" : (list->count - count == 1 ? "is" : "are"));
}

static reef_status confirm_removal(const reef_cli_call *cli, const choices *list, reef_error *err) {
    size_t count = going(list);
    char *what = reef_cli_format("%zu of the %zu snapshots of %s will be gone for good", count,
                                 list->count, cli->pool);
    reef_status status = reef_cli_confirm(cli, what, err);
    free(what);
    return status;
}

static reef_status carry_out(reef_cli_call *cli, const choices *list, reef_error *err) {
    reef_status status = REEF_OK;
    bool removes = !cli->dry_run && going(list) > 0;
    if (removes) status = confirm_removal(cli, list, err);
    if (status == REEF_OK && removes) status = remove_chosen(cli, list, err);
    if (status != REEF_OK) return status;
    if (cli->json) return reply_choices(cli, list, err);
    print_choices(cli, list);
    return REEF_OK;
}

reef_status reef_cmd_snapshot_remove(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    choices list = {0};
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    status = list_named(cli, &pool, &list, err);
    if (status == REEF_OK) qsort(list.all, list.count, sizeof(*list.all), by_age);
    if (status == REEF_OK) status = carry_out(cli, &list, err);
    reef_cli_pool_close(&pool);
    free(list.all);
    return status;
}

reef_status reef_cmd_snapshot_prune(reef_cli_call *cli, reef_error *err) {
    uint64_t keep_last = 0, keep_daily = 0;
    reef_status status = reef_cli_integer(cli, "keep-last", 1, KEEP_MAX, &keep_last, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "keep-daily", 1, KEEP_MAX, &keep_daily, err);
    if (status != REEF_OK) return status;
    if (keep_last == 0 && keep_daily == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "which snapshots should stay? give --keep-last N, --keep-daily N or both");
    reef_cli_pool pool;
    choices list = {0};
    status = reef_cli_pool_open(&pool, cli, err);
    if (status != REEF_OK) return status;
    status = list_all(&pool, &list, err);
    if (status == REEF_OK && list.count > 0) choose_by_age(&list, keep_last, keep_daily);
    if (status == REEF_OK) status = carry_out(cli, &list, err);
    reef_cli_pool_close(&pool);
    free(list.all);
    return status;
}
