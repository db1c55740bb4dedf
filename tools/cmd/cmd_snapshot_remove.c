// reef snapshot remove and reef snapshot prune: remove snapshots, by name or by age.
//
// Both make a list of names first; what is on it goes in one transaction, through the daemon where
// one runs. A snapshot that is made meanwhile is on no list.
#include "cli_format.h"
#include "cli_pool.h"
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

// ---- the list of what goes ----------------------------------------------------------------------

typedef struct choice {
    reef_snapshot snapshot;
    bool goes;
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

static reef_status list_all(reef_cli_pool *pool, choices *list, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_snapshot_scan(txn, on_snapshot, list, err);
    reef_txn_abort(txn);
    return status;
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
        // The earlier message says what is damaged.
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
        // Each operand is checked before anything is removed: all or none.
        reef_snapshot found;
        status = reef_snapshot_find(txn, cli->operands[i], &found, err);
        // Naming one twice is harmless.
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
    // Four lists: what can be shown in full and what has only a name, each gone or staying.
    json_t *removed = json_array(), *kept = json_array();
    json_t *damaged_removed = json_array(), *damaged_kept = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const choice *one = &list->all[i];
        if (one->snapshot.damaged)
            json_array_append_new(one->goes ? damaged_removed : damaged_kept,
                                  reef_json_text(one->snapshot.name));
        else
            json_array_append_new(one->goes ? removed : kept, reef_snapshot_json(&one->snapshot));
    }
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
        reef_cli_table_cell(table, "%s", one->snapshot.name);
        // Columns of a damaged record stay empty, but its row is there.
        if (one->snapshot.damaged) {
            reef_cli_table_cells(table, "%s\trecord damaged", "");
        } else {
            reef_cli_table_cells(table, "%" PRIu64 "\t%s", one->snapshot.step,
                                 CLI_TIME(one->snapshot.unix_ms));
        }
        // The last column says what happens; the table is in the order of names.
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
    // Zero is "not given": to keep nothing, use `remove`.
    uint64_t keep_last = 0, keep_daily = 0;
    reef_status status = reef_cli_integer(cli, "keep-last", 1, KEEP_MAX, &keep_last, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "keep-daily", 1, KEEP_MAX, &keep_daily, err);
    if (status != REEF_OK) return status;
    // Without a rule everything would go.
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
