// reef compact: usage over time into coarser windows, now. A daemon does it by itself between
// commits.
#include "cli_format.h"
#include "cli_table.h"
#include "commands.h"
#include "reef_clock.h"
#include "reef_usage.h"

#include <inttypes.h>

const reef_cli_manual reef_compact_manual = {
    .about =
        "Merges usage over time as far as it is due: "
        "commits older than an hour into hours, hours older\n"
        "than two days into days; days older than 400 days "
        "are forgotten and stay in the totals. What takes\n"
        "more than its share of space goes earlier. Totals, model and root hash stay as they are.\n"
        "Whoever trains a pool does this between commits, "
        "so a pool that is being trained needs no\n"
        "compaction and refuses it.",
    .options = NULL,
    .example = "reef compact reef.pool\n"
               "reef compact reef.pool --dry-run",
};

typedef struct outcome {
    reef_usage_stat before, after;
    uint64_t steps, merged, dropped;
    double longest_ms; // of the steps
} outcome;

static void note_step(outcome *o, const reef_usage_compaction *done, double seconds) {
    o->steps++;
    o->merged += done->merged;
    o->dropped += done->dropped;
    if (1000 * seconds > o->longest_ms) o->longest_ms = 1000 * seconds;
}

static bool did_nothing(const reef_usage_compaction *done) {
    return done->merged == 0 && done->dropped == 0;
}

static reef_status survey(reef_store *store, reef_usage_stat *out, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_usage_survey(txn, out, err);
    reef_txn_abort(txn);
    return status;
}

static reef_status compact_all(reef_store *store, outcome *o, reef_error *err) {
    uint64_t now = reef_unix_ms();
    reef_status status = survey(store, &o->before, err);
    while (status == REEF_OK) {
        reef_usage_compaction done;
        double begin = reef_seconds();
        status = reef_store_compact(store, now, &done, NULL, err);
        if (status != REEF_OK || did_nothing(&done)) break;
        note_step(o, &done, reef_seconds() - begin);
    }
    return status == REEF_OK ? survey(store, &o->after, err) : status;
}

// All steps in one transaction, which is then aborted.
static reef_status compact_and_abort(reef_store *store, outcome *o, reef_error *err) {
    uint64_t now = reef_unix_ms();
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    // Measured inside the transaction, so before and after are of one state.
    if (status == REEF_OK) status = reef_usage_survey(txn, &o->before, err);
    // The same steps with the same budget as the daemon's, until one finds nothing due.
    while (status == REEF_OK) {
        reef_usage_compaction done;
        double begin = reef_seconds();
        status = reef_usage_compact(txn, now, &done, err);
        if (status != REEF_OK || did_nothing(&done)) break;
        note_step(o, &done, reef_seconds() - begin);
    }
    if (status == REEF_OK) status = reef_usage_survey(txn, &o->after, err);
    // Aborting is what makes it a dry run: no page of it reaches the file.
    reef_txn_abort(txn);
    return status;
}

static const char *const LEVELS[REEF_USAGE_LEVELS] = {"totals", "commits", "hours", "days"};

static json_t *stat_json(const reef_usage_stat *stat) {
    json_t *document = json_object();
    for (uint32_t l = 0; l < REEF_USAGE_LEVELS; l++)
        json_object_set_new(document, LEVELS[l],
                            json_pack("{s:I, s:I, s:I}", "windows",
                                      (json_int_t)stat->levels[l].windows, "records",
                                      (json_int_t)stat->levels[l].records, "bytes",
                                      (json_int_t)stat->levels[l].bytes));
    return document;
}

static void print_outcome(const outcome *o, bool dry_run) {
    static const char *const HEADING[] = {"level", "windows", "after", "bytes", "after"};
    char words[CLI_WORD_BYTES];
    reef_cli_table *table = reef_cli_table_new("<>>>>", HEADING);
    // Totals are not in the table: compaction never changes them.
    for (uint32_t l = REEF_USAGE_DELTAS; l < REEF_USAGE_LEVELS; l++) {
        const reef_usage_level_stat *before = &o->before.levels[l], *after = &o->after.levels[l];
        reef_cli_table_cell(table, "%s", LEVELS[l]);
        reef_cli_table_cell(table, "%s", reef_cli_count(before->windows, words));
        reef_cli_table_cell(table, "%s", reef_cli_count(after->windows, words));
        reef_cli_table_cell(table, "%s", reef_cli_bytes(before->bytes, words));
        // Bytes of records. The file itself does not shrink: LMDB reuses free pages.
        reef_cli_table_cell(table, "%s", reef_cli_bytes(after->bytes, words));
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    if (o->steps == 0) {
        printf("nothing is due\n");
        return;
    }
    // The longest step is what a commit of a running daemon would wait.
    printf("%s records %smerged, ", reef_cli_count(o->merged, words), dry_run ? "would be " : "");
    printf("%s dropped, in ", reef_cli_count(o->dropped, words));
    printf("%s steps of at most %.1f ms\n", reef_cli_count(o->steps, words), o->longest_ms);
}

// Whoever writes to the pool compacts it as well.
static reef_status open_idle(const reef_cli_call *cli, reef_store **store, reef_error *err) {
    reef_status status =
        reef_store_open(store, cli->pool, &(reef_store_options){.write = true}, err);
    if (status != REEF_ERR_BUSY || err == NULL) return status;
    reef_error reason = *err;
    return reef_fail(err, REEF_ERR_BUSY,
                     "%.150s; it compacts usage by itself between commits, "
                     "so there is nothing to do",
                     reason.message);
}

reef_status reef_cmd_compact(reef_cli_call *cli, reef_error *err) {
    reef_store *store = NULL;
    outcome o = {0};
    // Needs the write lock even for a dry run, because the steps are made and aborted.
    reef_status status = open_idle(cli, &store, err);
    if (status == REEF_OK)
        status = cli->dry_run ? compact_and_abort(store, &o, err) : compact_all(store, &o, err);
    if (store != NULL) reef_store_close(store);
    if (status != REEF_OK) return status;
    // One document for both cases; "dry_run" tells them apart.
    if (!cli->json) {
        print_outcome(&o, cli->dry_run);
        return REEF_OK;
    }
    return reef_cli_reply(cli,
                          json_pack("{s:o, s:b, s:I, s:I, s:I, s:o, s:o, s:o}", "pool",
                                    reef_cli_path(cli->pool), "dry_run", cli->dry_run, "steps",
                                    (json_int_t)o.steps, "merged", (json_int_t)o.merged, "dropped",
                                    (json_int_t)o.dropped, "longest_step_ms",
                                    reef_cli_real(o.longest_ms), "before", stat_json(&o.before),
                                    "after", stat_json(&o.after)),
                          err);
}
