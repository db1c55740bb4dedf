// See cli_recovery.h.
#include "cli_recovery.h"

reef_status reef_cli_recover(const reef_cli_call *cli,
                             bool dry_run,
                             reef_kind_recovery **out,
                             size_t *count,
                             reef_error *err) {
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    const reef_trainer_options options = {
        .threads = cli->threads, .memory_bytes = cli->memory_bytes, .recovers_kinds = true};
    *out = NULL;
    *count = 0;
    reef_status status =
        reef_store_open(&store, cli->pool, &(reef_store_options){.write = !dry_run}, err);
    if (status == REEF_OK) status = reef_trainer_open(&trainer, store, &options, err);
    if (status == REEF_OK) status = reef_trainer_kinds_recover(trainer, dry_run, out, count, err);
    reef_trainer_close(trainer);
    if (store != NULL) reef_store_close(store);
    return status;
}
