// reef export pool: a pool as a compact pool of its own.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"
#include "reef_system.h"
#include "reef_pool_check.h"

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
    .about = "Copies the last commit into a new pool, DIRECTORY, "
             "without the free pages of the original; a\n"
             "daemon continues training meanwhile. "
             "The copy is on the disk and checked before it takes its place;\n"
             "then every record is read back, as by `reef verify`. "
             "It is a pool like any other: train it, import\n"
             "its generations elsewhere, or keep it.",
    .options = POOL_OPTIONS,
    .example = "reef export pool reef.pool backup.pool",
};

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

// What would be copied, and whether there is room for it under that name.
static reef_status plan_copy(reef_store *store,
                             const char *to,
                             reef_commit *commit,
                             reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_store_check_copy(reef_store_path(store), to, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, commit, err);
    reef_txn_abort(txn);
    return status;
}

static reef_status copy_pool(const reef_cli_call *cli, copy_report *report, reef_error *err) {
    const char *to = cli->operands[0];
    reef_store *store = NULL;
    double started = reef_seconds();
    // A reader's transaction: the daemon commits on while the copy is written.
    reef_status status = reef_store_open(&store, cli->pool, &(reef_store_options){0}, err);
    if (status != REEF_OK) return status;
    // Of the data file alone; the lock file is not copied.
    report->bytes_before = data_bytes(cli->pool);
    // The plan runs all checks of the copy (is the target new, is there room) and writes nothing.
    status = cli->dry_run ? plan_copy(store, to, &report->commit, err)
                          : reef_store_copy(store, to, &report->commit, err);
    reef_store_close(store);
    // No copy exists to verify or to measure.
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
    char before[CLI_WORD_BYTES], after[CLI_WORD_BYTES], root[2 * REEF_HASH_BYTES + 1];
    // The root hash identifies the content: a copy that has it is the same pool.
    reef_hash_format(report->commit.root, root);
    printf("%s %s to %s\n", cli->dry_run ? "would copy" : "copied  ", cli->pool, cli->operands[0]);
    printf("commit   %" PRIu64 ", step %" PRIu64 "\n", report->commit.number, report->commit.step);
    printf("root     %s\n", root);
    if (cli->dry_run) {
        // A plan knows only the upper bound: free pages are left out while copying.
        printf("size     %s, free pages among them\n",
               reef_cli_bytes(report->bytes_before, before));
        return;
    }
    printf("size     %s before, %s after\n", reef_cli_bytes(report->bytes_before, before),
           reef_cli_bytes(report->bytes_after, after));
    // Absent with --no-verify, so that silence is not taken for success.
    if (report->verified)
        printf("checked  %s records, nothing is damaged\n",
               reef_cli_count(report->check.records, before));
    printf("took     %s\n", reef_cli_duration(report->seconds, before));
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
    json_t *records =
        report.verified ? json_integer((json_int_t)report.check.records) : json_null();
    json_t *after = cli->dry_run ? json_null() : json_integer((json_int_t)report.bytes_after);
    // One document for plan and copy; members that a plan cannot know are null.
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
