// reef export model: a state of a pool as one file of tensors, for other programs.
#include "cli_format.h"
#include "cli_progress.h"
#include "commands.h"

#include <inttypes.h>
#include <unistd.h>

static const reef_cli_option OPTIONS[] = {
    {"as-of", "STATE",
     "a generation, a snapshot, a moment such as yesterday, or now (default: now)"},
    {"force", NULL, "replace FILE where it exists"},
    {0},
};

const reef_cli_manual reef_export_model_manual = {
    .about = "Writes the model to FILE, in the safetensors format, "
             "which PyTorch and NumPy read: embedding,\n"
             "positions, attention, norms, feed-forward networks "
             "of every kind, head, statistics of batch norms,\n"
             "experts, sub-keys and query networks, gates, "
             "context memories, and how often each expert was used.\n"
             "The configuration stands in the metadata. "
             "Names are those of docs/FORMAT.md; generations after the\n"
             "first have theirs under generationG. "
             "Of an open generation these are the weights that it is evaluated\n"
             "by. A daemon may run on the pool.\n"
             "\n"
             "Moments of the optimiser, the sample of the past and the history are not in the "
             "file: for those copy\n"
             "the pool, with `reef export pool`.",
    .options = OPTIONS,
    .example = "reef export model reef.pool model.safetensors\n"
               "reef export model reef.pool first.safetensors --as-of 0",
};

static json_t *file_json(const reef_model_file *file, const char *path) {
    return json_pack("{s:o, s:I, s:I, s:b, s:I, s:I, s:I, s:I}", "path", reef_cli_path(path),
                     "bytes", (json_int_t)file->file_bytes, "generations",
                     (json_int_t)file->generations, "open", file->open, "experts",
                     (json_int_t)file->experts, "tensors", (json_int_t)file->tensor_count, "step",
                     (json_int_t)file->step, "stream_bytes", (json_int_t)file->stream_bytes);
}

static void print_file(const reef_model_file *file, const char *path) {
    char words[CLI_WORD_BYTES];
    if (file->file_bytes > 0)
        printf("file         %s, %s\n", path, reef_cli_bytes(file->file_bytes, words));
    printf("generations  %" PRIu32 ", the last one %s\n", file->generations,
           file->open ? "open" : "sealed");
    printf("tensors      %zu, %s experts among them\n", file->tensor_count,
           reef_cli_count(file->experts, words));
    printf("trained on   %s bytes\n", reef_cli_count(file->stream_bytes, words));
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
    // The same lines in both cases, so that plan and result can be compared.
    if (cli->dry_run) printf("would write the model to %s:\n", path);
    print_file(&file, path);
    return REEF_OK;
}
