// reef import: a sealed generation of another pool joins this one.
//
// It never goes through a daemon: the open generation, which a daemon trains, gets another number.
#include "cli_format.h"
#include "commands.h"

#include <inttypes.h>
#include <math.h>

static const reef_cli_option OPTIONS[] = {
    {"leak-max", "SHARE",
     "raise its gate's threshold until it fires on no more of what the pool remembers"},
    {0},
};

const reef_cli_manual reef_import_manual = {
    .about =
        "Takes in the generation that `reef export generation` wrote to FILE. "
        "It must have been trained on\n"
        "the same generation 0. It gets the number of the open generation, "
        "which is opened again after it and\n"
        "must have trained nothing yet: run `reef seal` first where it has. "
        "Where a daemon runs on the pool,\n"
        "stop it before.\n"
        "\n"
        "Its gate has never met what this pool has learned "
        "since the two parted. The answer says on what\n"
        "share of the reservoir it fires; where that is too much, --leak-max makes it stricter.",
    .options = OPTIONS,
    .example = "reef import reef.pool french.safetensors --dry-run\n"
               "reef import reef.pool french.safetensors --leak-max 0.01",
};

static reef_status open_pool(const reef_cli_call *cli,
                             reef_store **store,
                             reef_trainer **trainer,
                             reef_error *err) {
    reef_error reason;
    // A dry run only reads, so it can run beside a daemon.
    reef_status status =
        reef_store_open(store, cli->pool, &(reef_store_options){.write = !cli->dry_run}, &reason);
    // The lock's own message does not name the remedy.
    if (status == REEF_ERR_BUSY)
        return reef_fail(err, status, "%.180s; stop it first: importing needs the pool to itself",
                         reason.message);
    if (status != REEF_OK) return reef_fail(err, status, "%s", reason.message);
    const reef_trainer_options options = {.threads = cli->threads,
                                          .memory_bytes = cli->memory_bytes};
    return reef_trainer_open(trainer, *store, &options, err);
}

static void print_import(const reef_import *import, const char *path, bool dry_run) {
    char first[CLI_WORD_BYTES], last[CLI_WORD_BYTES];
    // A file's side is that of one layer; ids are counted in each layer.
    uint64_t count = (uint64_t)import->file.info.side * import->file.info.side;
    reef_generation_file_print(&import->file, path);
    // Not a number for pools without gates: nothing was measured.
    if (!isnan(import->leak))
        printf("fires on    %.2f %% of what this pool remembers\n", 100.0 * import->leak);
    // The gate of the file was trained elsewhere: its threshold is raised until it keeps to this
    // pool's bound on leaking.
    if (import->leak_now < import->leak)
        printf("stricter    %.2f %% with its threshold raised\n", 100.0 * import->leak_now);
    printf("%s  as generation %" PRIu32 ", ids %s to %s in each layer; generation %" PRIu32
           " %s open\n",
           dry_run ? "would join" : "imported  ", import->generation,
           reef_cli_count(import->first_id, first),
           reef_cli_count(import->first_id + count - 1, last), import->open,
           dry_run ? "would be" : "is");
}

// The import commits in one transaction, so an interrupt leaves the pool as it was.
reef_status reef_cmd_import(reef_cli_call *cli, reef_error *err) {
    const char *path = cli->operands[0];
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_import import;
    reef_import_options options = {.dry_run = cli->dry_run};
    // The bound may be loosened, never switched off.
    reef_status status = reef_cli_number(cli, "leak-max", 1e-6, 1, &options.leak_max, err);
    if (status == REEF_OK) status = open_pool(cli, &store, &trainer, err);
    if (status == REEF_OK) status = reef_trainer_import(trainer, path, &options, &import, err);
    reef_trainer_close(trainer);
    if (store != NULL) reef_store_close(store);
    if (status != REEF_OK) return status;
    // `leak` and `leak_now` are equal unless the threshold was raised.
    if (cli->json)
        return reef_cli_reply(
            cli,
            json_pack("{s:b, s:o, s:I, s:I, s:I, s:o, s:o}", "done", !cli->dry_run, "file",
                      reef_generation_file_json(&import.file, path), "generation",
                      (json_int_t)import.generation, "first_id", (json_int_t)import.first_id,
                      "open", (json_int_t)import.open, "leak", reef_cli_real(import.leak),
                      "leak_now", reef_cli_real(import.leak_now)),
            err);
    print_import(&import, path, cli->dry_run);
    return REEF_OK;
}
