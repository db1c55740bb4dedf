// reef export pool and reef export model: a pool as a compact pool of its own, and a state of it as
// one file of tensors for other programs.
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"
#include "reef_pool_check.h"
#include "reef_system.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
        "statistics of batch norms, experts, sub-keys and query networks, gates, context\n"
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

// ---- a pool -------------------------------------------------------------------------------------

typedef struct copy_report {
    reef_commit commit;
    uint64_t bytes_before, bytes_after;
    bool verified;
    reef_check_report check; // where it was
    double seconds;
} copy_report;

static uint64_t data_bytes(const char *pool) {
    char *path = reef_cli_format("%s/data.mdb", pool);
    struct stat info;
    uint64_t bytes = stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
    free(path);
    return bytes;
}

static reef_status verify_copy(const char *to, copy_report *report, reef_error *err) {
    reef_status status = reef_store_verify(to, NULL, NULL, &report->check, err);
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
    report->bytes_before = data_bytes(cli->pool);
    // The same checks as of the copy: whether the target is new, and has room.
    if (cli->dry_run) status = reef_store_check_copy(reef_store_path(store), to, err);
    if (status == REEF_OK)
        status = cli->dry_run ? reef_store_read_commit(store, &report->commit, err)
                              : reef_store_copy(store, to, &report->commit, err);
    reef_store_close(store);
    if (cli->dry_run) return status;
    // Verifying reads the copy once more, from the disk that will hold it.
    if (status == REEF_OK && reef_cli_text(cli, "no-verify") == NULL)
        status = verify_copy(to, report, err);
    // Smaller than before, because LMDB's compacting copy leaves free pages out.
    report->bytes_after = data_bytes(to);
    report->seconds = reef_seconds() - started;
    return status;
}

static void print_copy(const reef_cli_call *cli, const copy_report *report) {
    char root[2 * REEF_HASH_BYTES + 1];
    // The root hash identifies the content: a copy that has it is the same pool.
    reef_hash_format(report->commit.root, root);
    printf("%s %s to %s\n", cli->dry_run ? "would copy" : "copied  ", cli->pool, cli->operands[0]);
    printf("commit   %" PRIu64 ", step %" PRIu64 "\n", report->commit.number, report->commit.step);
    printf("root     %s\n", root);
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
    return reef_cli_reply(cli,
                          json_pack("{s:b, s:o, s:o, s:o, s:I, s:o, s:b, s:o, s:o}", "done",
                                    !cli->dry_run, "pool", reef_cli_path(cli->pool), "copy",
                                    reef_cli_path(cli->operands[0]), "commit",
                                    reef_cli_commit_json(&report.commit), "bytes_before",
                                    (json_int_t)report.bytes_before, "bytes_after", after,
                                    "verified", report.verified, "records", records, "seconds",
                                    reef_cli_real(cli->dry_run ? NAN : report.seconds)),
                          err);
}

// ---- a model ------------------------------------------------------------------------------------

static json_t *file_json(const reef_model_file *file, const char *path) {
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
    // From here on an interrupt must remove the unfinished file.
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
        json_t *document = file_json(&file, path);
        json_object_set_new(document, "done", json_boolean(!cli->dry_run));
        return reef_cli_reply(cli, document, err);
    }
    if (cli->dry_run) printf("would write the model to %s:\n", path);
    print_file(&file, path);
    return REEF_OK;
}
