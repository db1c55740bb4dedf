// reef export pool, reef export model and reef import: a pool as a compact pool of its own; a state
// of it as one file of tensors for other programs; and sealed generations of another pool, which
// join this one.
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"
#include "reef_pool_check.h"
#include "reef_pool_json.h"
#include "reef_system.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const reef_cli_option POOL_OPTIONS[] = {
    {"no-verify", NULL, "do not read the copy back as a whole"},
    {0},
};

const reef_cli_manual reef_export_pool_manual = {
    .about =
        "Copies the last commit into a new pool, DIRECTORY, without the free pages of the\n"
        "original; a daemon continues training meanwhile. The copy is on the disk and checked\n"
        "before it takes its place; then every record is read back, as by `reef verify`. It is a\n"
        "pool like any other: train it, import its generations elsewhere, or keep it.",
    .options = POOL_OPTIONS,
    .example = "reef export pool reef.pool backup.pool",
};

static const reef_cli_option MODEL_OPTIONS[] = {
    CLI_OPTION_AS_OF,
    {"force", NULL, "replace FILE where it exists"},
    {0},
};

const reef_cli_manual reef_export_model_manual = {
    .about =
        "Writes the model to FILE, in the safetensors format, which PyTorch and NumPy read:\n"
        "embedding, positions, attention, norms, feed-forward networks of every kind, head,\n"
        "statistics of batch norms, experts, sub-keys and query networks, context\n"
        "memories, and how often each expert was used. The configuration stands in the metadata.\n"
        "Names are those of docs/FORMAT.md; generations after the first have theirs under\n"
        "generationG. Of an open generation these are the weights that it is evaluated by. A\n"
        "daemon may run on the pool.\n"
        "\n"
        "Moments of the optimiser, the sample of the past and the history are not in the file:\n"
        "for those copy the pool, with `reef export pool`.",
    .options = MODEL_OPTIONS,
    .example = "reef export model reef.pool model.safetensors\n"
               "reef export model reef.pool first.safetensors --as-of 0",
};

// ---- export pool --------------------------------------------------------------------------------

typedef struct copy_report {
    reef_commit commit;
    uint64_t bytes_before, bytes_after;
    bool verified;
    reef_check_report check; // where it was
    double seconds;
} copy_report;

static reef_status verify_copy(const char *to, copy_report *report, reef_error *err) {
    reef_status status = reef_store_verify(to, NULL, &report->check, err);
    report->verified = status == REEF_OK;
    if (status != REEF_OK || report->check.damaged == 0) return status;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "the copy %.120s was made, but %" PRIu64
                     " of its records are damaged, as they are in the pool: see reef verify",
                     to, report->check.damaged);
}

static reef_status copy_pool(const reef_cli_call *cli, copy_report *report, reef_error *err) {
    const char *to = cli->operands[0];
    reef_store *store = NULL;
    double started = reef_seconds();
    // A reader's transaction: the daemon commits on while the copy is written.
    reef_status status = reef_store_open(&store, cli->pool, &(reef_store_options){0}, err);
    if (status != REEF_OK) return status;
    report->bytes_before = reef_cli_pool_bytes(cli->pool);
    // The same checks as of the copy: whether the target is new, and has room.
    if (cli->dry_run) status = reef_store_check_copy(reef_store_path(store), to, err);
    if (status == REEF_OK)
        status = cli->dry_run ? reef_store_read_commit(store, &report->commit, err)
                              : reef_store_copy(store, to, &report->commit, err);
    reef_store_close(store);
    if (cli->dry_run) return status;
    if (status == REEF_OK && reef_cli_text(cli, "no-verify") == NULL)
        status = verify_copy(to, report, err);
    // Smaller than before, because LMDB's compacting copy leaves free pages out.
    report->bytes_after = reef_cli_pool_bytes(to);
    report->seconds = reef_seconds() - started;
    return status;
}

static void print_copy(const reef_cli_call *cli, const copy_report *report) {
    printf("%s %s to %s\n", cli->dry_run ? "would copy" : "copied  ", cli->pool, cli->operands[0]);
    printf("commit   %" PRIu64 ", step %" PRIu64 "\n", report->commit.number, report->commit.step);
    // It identifies the content: a copy that has it is the same pool.
    printf("root     %s\n", CLI_HASH(report->commit.root));
    if (cli->dry_run) {
        // A plan knows only the upper bound: free pages are left out while copying.
        printf("size     %s, free pages among them\n", CLI_BYTES(report->bytes_before));
        return;
    }
    printf("size     %s before, %s after\n", CLI_BYTES(report->bytes_before),
           CLI_BYTES(report->bytes_after));
    // Absent with --no-verify, so that silence is not taken for success.
    if (report->verified)
        printf("checked  %s records, nothing is damaged\n", CLI_COUNT(report->check.records));
    printf("took     %s\n", CLI_DURATION(report->seconds));
}

reef_status reef_cmd_export_pool(reef_cli_call *cli, reef_error *err) {
    copy_report report = {0};
    reef_status status = copy_pool(cli, &report, err);
    if (status != REEF_OK) return status;
    if (!cli->json) {
        print_copy(cli, &report);
        return REEF_OK;
    }
    // "records" is null where nothing was verified, so that 0 records cannot be read as a result.
    json_t *records = reef_cli_known(report.verified, report.check.records);
    json_t *after = reef_cli_known(!cli->dry_run, report.bytes_after);
    return reef_cli_reply(
        cli,
        json_pack("{s:b, s:o, s:o, s:o, s:I, s:o, s:b, s:o, s:o}", "done", !cli->dry_run, "pool",
                  reef_cli_path(cli->pool), "copy", reef_cli_path(cli->operands[0]), "commit",
                  reef_commit_json(&report.commit), "bytes_before", (json_int_t)report.bytes_before,
                  "bytes_after", after, "verified", report.verified, "records", records, "seconds",
                  reef_cli_real(cli->dry_run ? NAN : report.seconds)),
        err);
}

// ---- export model -------------------------------------------------------------------------------

static json_t *model_json(const reef_model_file *file, const char *path) {
    return json_pack("{s:o, s:I, s:I, s:b, s:I, s:I, s:I, s:I}", "path", reef_cli_path(path),
                     "bytes", (json_int_t)file->file_bytes, "generations",
                     (json_int_t)file->generations, "open", file->open, "experts",
                     (json_int_t)file->experts, "tensors", (json_int_t)file->tensor_count, "step",
                     (json_int_t)file->step, "stream_bytes", (json_int_t)file->stream_bytes);
}

static void print_file(const reef_model_file *file, const char *path) {
    if (file->file_bytes > 0) printf("file         %s, %s\n", path, CLI_BYTES(file->file_bytes));
    printf("generations  %" PRIu32 ", the last one %s\n", file->generations,
           file->open ? "open" : "sealed");
    printf("tensors      %zu, %s experts among them\n", file->tensor_count,
           CLI_COUNT(file->experts));
    printf("trained on   %s bytes\n", CLI_COUNT(file->stream_bytes));
}

reef_status reef_cmd_export_model(reef_cli_call *cli, reef_error *err) {
    const char *path = cli->operands[0];
    char as_of[REEF_NAME_BYTES_MAX + 1];
    reef_model_file file;
    reef_store *store = NULL;
    // A reader: a snapshot can be exported while the daemon trains.
    reef_status status = reef_store_open(&store, cli->pool, &(reef_store_options){0}, err);
    if (status != REEF_OK) return status;
    reef_cli_catch_signals(true);
    const reef_export_options options = {.force = reef_cli_text(cli, "force") != NULL,
                                         .dry_run = cli->dry_run,
                                         .stopped = reef_cli_is_stopped};
    // A dry run reports this at once; the real export finds out with O_EXCL, without a race.
    if (options.dry_run && !options.force && access(path, F_OK) == 0)
        status = reef_fail(err, REEF_ERR_INVALID, "%.160s exists; --force replaces it", path);
    if (status == REEF_OK) status = reef_cli_as_of(cli, store, as_of, err);
    if (status == REEF_OK) status = reef_model_export(store, as_of, path, &options, &file, err);
    reef_store_close(store);
    // Busy is what a signal leaves behind: end by that signal, so that a shell's loop stops too.
    if (status == REEF_ERR_BUSY) reef_cli_end_as_signalled();
    if (status != REEF_OK) return status;
    if (cli->json) {
        json_t *document = model_json(&file, path);
        json_object_set_new(document, "done", json_boolean(!cli->dry_run));
        return reef_cli_reply(cli, document, err);
    }
    if (cli->dry_run) printf("would write the model to %s:\n", path);
    print_file(&file, path);
    return REEF_OK;
}

// ---- import -------------------------------------------------------------------------------------
//
// It never goes through a daemon: the open generation, which a daemon trains, gets another number.

static const reef_cli_option IMPORT_OPTIONS[] = {
    {"generations", "LIST", "which ones, such as 2 or 1-3,5; without it all that this pool lacks"},
    {0},
};

const reef_cli_manual reef_import_manual = {
    .about =
        "Takes sealed generations of the pool FROM in, each with all that its kind has learned\n"
        "there. They must have been trained on the same generation 0: copy a pool with `reef\n"
        "export pool` when that is sealed, train both apart, join them. Each gets the number of\n"
        "the open generation, which is opened again after it and must have trained nothing yet:\n"
        "run `reef seal` first where it has. FROM may be trained meanwhile; where a daemon runs\n"
        "on POOL, stop it before.",
    .options = IMPORT_OPTIONS,
    .example = "reef import reef.pool french.pool --dry-run\n"
               "reef import reef.pool french.pool --generations 1",
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

static reef_status open_pools(const reef_cli_call *cli, importing *i, reef_error *err) {
    reef_status status = reef_store_open(&i->from, cli->operands[0], NULL, err);
    // A dry run only reads, so it can run beside a daemon.
    if (status == REEF_OK)
        status = reef_cli_store_open(&i->store, cli, !cli->dry_run,
                                     "stop it first: importing needs the pool to itself", err);
    if (status != REEF_OK) return status;
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

static json_t *import_json(const reef_import *import) {
    return json_pack(
        "{s:I, s:I, s:I, s:s, s:I, s:s, s:I, s:I}", "from", (json_int_t)import->info.generation,
        "side", (json_int_t)import->info.side, "experts", (json_int_t)import->experts, "dtype",
        reef_rows_dtype_text(import->info.dtype), "trained_bytes",
        (json_int_t)import->trained_bytes, "root", CLI_HASH(import->info.root), "generation",
        (json_int_t)import->generation, "first_id", (json_int_t)import->first_id);
}

static void print_import(const reef_import *import, bool dry_run) {
    const reef_generation_record *info = &import->info;
    uint64_t count = (uint64_t)info->side * info->side;
    printf("generation  %" PRIu32 ", %" PRIu32 " x %" PRIu32 " experts in each PEER layer, %s\n",
           info->generation, info->side, info->side, reef_rows_dtype_text(info->dtype));
    printf("trained on  %s bytes\n", CLI_COUNT(import->trained_bytes));
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
    reef_cli_catch_signals(true);
    reef_status status = open_pools(cli, &i, err);
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
