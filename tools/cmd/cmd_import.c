// reef import: sealed generations of another pool join this one.
//
// It never goes through a daemon: the open generation, which a daemon trains, gets another number.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const reef_cli_option OPTIONS[] = {
    {"generations", "LIST", "which ones, such as 2 or 1-3,5; without it all that this pool lacks"},
    {"leak-max", "SHARE",
     "raise their gates' thresholds until they fire on no more of what the pool remembers"},
    {0},
};

const reef_cli_manual reef_import_manual = {
    .about =
        "Takes sealed generations of the pool FROM in, each with all that its kind has learned\n"
        "there. They must have been trained on the same generation 0: copy a pool with `reef\n"
        "export pool` when that is sealed, train both apart, join them. Each gets the number of\n"
        "the open generation, which is opened again after it and must have trained nothing yet:\n"
        "run `reef seal` first where it has. FROM may be trained meanwhile; where a daemon runs\n"
        "on POOL, stop it before.\n"
        "\n"
        "A gate has never met what this pool has learned since the two parted. The answer says on\n"
        "what share of the reservoir it fires; where that is too much, --leak-max makes it\n"
        "stricter.",
    .options = OPTIONS,
    .example = "reef import reef.pool french.pool --dry-run\n"
               "reef import reef.pool french.pool --generations 1 --leak-max 0.01",
};

typedef struct importing {
    reef_store *from, *store;
    reef_trainer *trainer;
    bool *chosen;   // (count) of the generations of FROM
    uint32_t count; // of them
    reef_import_options options;
    reef_import *done; // (done_count)
    size_t done_count;
} importing;

// ---- which ones ---------------------------------------------------------------------------------

static reef_status parse_list(const char *text, importing *i, reef_error *err) {
    const char *at = text;
    char *end;
    for (;;) {
        bool digit = *at >= '0' && *at <= '9';
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (digit && *end == '-') {
            at = end + 1;
            digit = *at >= '0' && *at <= '9';
            last = strtoul(at, &end, 10);
        }
        if (!digit || first > last || (*end != ',' && *end != '\0'))
            return reef_fail(err, REEF_ERR_INVALID,
                             "--generations %.60s is no list of numbers, such as 2 or 1-3,5", text);
        if (last >= i->count)
            return reef_fail(err, REEF_ERR_NOT_FOUND,
                             "%.160s has no generation %lu: it has 0 to "
                             "%" PRIu32,
                             reef_store_path(i->from), last, i->count - 1);
        for (unsigned long g = first; g <= last; g++) i->chosen[g] = true;
        if (*end == '\0') return REEF_OK;
        at = end + 1;
    }
}

// Sealed ones after generation 0 that this pool has not under the same number.
static reef_status choose_missing(importing *i, reef_error *err) {
    reef_txn *theirs = NULL, *ours = NULL;
    reef_status status = reef_txn_begin(&theirs, i->from, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_txn_begin(&ours, i->store, REEF_TXN_READ, err);
    for (uint32_t g = 1; status == REEF_OK && g < i->count; g++) {
        reef_generation_record one, same;
        status = reef_generation_read(theirs, g, &one, err);
        bool has = reef_generation_read(ours, g, &same, NULL) == REEF_OK &&
                   memcmp(same.root, one.root, sizeof(one.root)) == 0;
        i->chosen[g] = status == REEF_OK && one.sealed && !has;
    }
    reef_txn_abort(theirs);
    reef_txn_abort(ours);
    return status;
}

static reef_status choose(const reef_cli_call *cli, importing *i, reef_error *err) {
    const char *list = reef_cli_text(cli, "generations");
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, i->from, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &i->count, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    i->chosen = reef_cli_alloc((size_t)i->count + 1, sizeof(*i->chosen));
    i->done = reef_cli_alloc((size_t)i->count + 1, sizeof(*i->done));
    return list != NULL ? parse_list(list, i, err) : choose_missing(i, err);
}

// ---- one after the other ------------------------------------------------------------------------

static reef_status open_pools(const reef_cli_call *cli, importing *i, reef_error *err) {
    reef_error reason;
    reef_status status = reef_store_open(&i->from, cli->operands[0], NULL, err);
    if (status != REEF_OK) return status;
    // A dry run only reads, so it can run beside a daemon.
    status = reef_store_open(&i->store, cli->pool, &(reef_store_options){.write = !cli->dry_run},
                             &reason);
    // The lock's own message does not name the remedy.
    if (status == REEF_ERR_BUSY)
        return reef_fail(err, status, "%.180s; stop it first: importing needs the pool to itself",
                         reason.message);
    if (status != REEF_OK) return reef_fail(err, status, "%s", reason.message);
    const reef_trainer_options options = {.threads = cli->threads,
                                          .memory_bytes = cli->memory_bytes};
    return reef_trainer_open(&i->trainer, i->store, &options, err);
}

static reef_status import_one(importing *i, uint32_t g, reef_error *err) {
    reef_import *one = &i->done[i->done_count];
    if (reef_cli_is_stopped())
        return reef_fail(err, REEF_ERR_BUSY, "stopped; what was imported before stays");
    reef_status status = reef_trainer_import(i->trainer, i->from, g, &i->options, one, err);
    if (status != REEF_OK) return status;
    // In a dry run the earlier ones have not joined.
    for (size_t k = 0; i->options.dry_run && k < i->done_count; k++) {
        one->generation++;
        one->open++;
        one->first_id += (uint64_t)i->done[k].info.side * i->done[k].info.side;
    }
    i->done_count++;
    return REEF_OK;
}

// ---- answers ------------------------------------------------------------------------------------

static json_t *import_json(const reef_import *import) {
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(import->info.root, root);
    return json_pack(
        "{s:I, s:I, s:I, s:s, s:I, s:s, s:I, s:I, s:o, s:o}", "from",
        (json_int_t)import->info.generation, "side", (json_int_t)import->info.side, "experts",
        (json_int_t)import->experts, "dtype", reef_rows_dtype_text(import->info.dtype),
        "trained_bytes", (json_int_t)import->trained_bytes, "root", root, "generation",
        (json_int_t)import->generation, "first_id", (json_int_t)import->first_id, "leak",
        reef_cli_real(import->leak), "leak_now", reef_cli_real(import->leak_now));
}

static void print_import(const reef_import *import, bool dry_run) {
    const reef_generation_record *info = &import->info;
    // A side is that of one layer; ids are counted in each layer.
    uint64_t count = (uint64_t)info->side * info->side;
    printf("generation  %" PRIu32 ", %" PRIu32 " x %" PRIu32 " experts in each PEER layer, %s\n",
           info->generation, info->side, info->side, reef_rows_dtype_text(info->dtype));
    // In bytes for models of ids too.
    printf("trained on  %s bytes\n", CLI_COUNT(import->trained_bytes));
    // Not a number for pools without gates: nothing was measured.
    if (!isnan(import->leak))
        printf("fires on    %.2f %% of what this pool remembers\n", 100.0 * import->leak);
    // The gate was trained elsewhere: its threshold is raised until it keeps to this bound.
    if (import->leak_now < import->leak)
        printf("stricter    %.2f %% with its threshold raised\n", 100.0 * import->leak_now);
    printf("%s  as generation %" PRIu32 ", ids %s to %s in each layer; generation %" PRIu32
           " %s open\n",
           dry_run ? "would join" : "imported  ", import->generation, CLI_COUNT(import->first_id),
           CLI_COUNT(import->first_id + count - 1), import->open, dry_run ? "would be" : "is");
}

static reef_status reply(reef_cli_call *cli, const importing *i, reef_error *err) {
    json_t *list = json_array();
    for (size_t k = 0; k < i->done_count; k++) {
        json_array_append_new(list, import_json(&i->done[k]));
        if (!cli->json) print_import(&i->done[k], cli->dry_run);
    }
    if (!cli->json && i->done_count == 0)
        printf("nothing to import: this pool has all sealed generations of %s\n", cli->operands[0]);
    json_t *document = json_pack("{s:b, s:o, s:o}", "done", !cli->dry_run, "from",
                                 reef_cli_path(cli->operands[0]), "imported", list);
    if (cli->json) return reef_cli_reply(cli, document, err);
    json_decref(document);
    return REEF_OK;
}

// Each import commits in one transaction: an interrupt leaves the pool with those before it.
reef_status reef_cmd_import(reef_cli_call *cli, reef_error *err) {
    importing i = {.options = {.dry_run = cli->dry_run}};
    // The bound may be loosened, never switched off.
    reef_status status = reef_cli_number(cli, "leak-max", 1e-6, 1, &i.options.leak_max, err);
    reef_cli_catch_signals(true);
    if (status == REEF_OK) status = open_pools(cli, &i, err);
    if (status == REEF_OK) status = choose(cli, &i, err);
    for (uint32_t g = 0; status == REEF_OK && g < i.count; g++)
        if (i.chosen[g]) status = import_one(&i, g, err);
    reef_trainer_close(i.trainer);
    reef_store_close(i.store);
    reef_store_close(i.from);
    // Busy is what a signal leaves behind: end by that signal, so that a shell's loop stops too.
    if (status == REEF_ERR_BUSY && reef_cli_is_stopped()) reef_cli_end_as_signalled();
    if (status == REEF_OK) status = reply(cli, &i, err);
    free(i.chosen);
    free(i.done);
    return status;
}
