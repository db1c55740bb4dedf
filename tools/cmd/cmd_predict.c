// reef predict: the class of each vector.
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_vectors.h"
#include "commands.h"

#include <inttypes.h>
#include <math.h>

static const reef_cli_option OPTIONS[] = {
    {"as-of", "STATE",
     "a generation, a snapshot, a moment such as yesterday, or now (default: now)"},
    {0},
};

const reef_cli_manual reef_predict_manual = {
    .about =
        "Prints a line per example: the best class, its score (about its probability), and the\n"
        "generation that had the largest weight, separated by tabs. "
        "A model that knows no class yet says -1.\n"
        "VECTORS is idx:IMAGES[,LABELS], npy:X.npy[,Y.npy], csv:FILE or jsonl:FILE, as for reefd;\n"
        "labels are not looked at.",
    .options = OPTIONS,
    .example = "reef predict iris.pool 'csv:new.csv?label=none'\n"
               "reef predict mnist.pool 'idx:t10k-images.gz?first=10' --json",
};

static void on_line(void *context, const reef_cli_prediction *one) {
    (void)context;
    printf("%" PRId32 "\t", one->label);
    if (isnan(one->score))
        printf("-");
    else
        printf("%.4f", one->score);
    printf("\t%" PRIu32 "\n", one->generation);
}

static void on_object(void *context, const reef_cli_prediction *one) {
    json_array_append_new(
        context, json_pack("{s:I, s:o, s:I, s:o}", "label", (json_int_t)one->label, "score",
                           reef_cli_real(one->score), "generation", (json_int_t)one->generation,
                           "given", one->given < 0 ? json_null() : json_integer(one->given)));
}

static reef_status print_predictions(reef_cli_call *cli,
                                     reef_model *model,
                                     const char *as_of,
                                     const reef_cli_file *file,
                                     reef_error *err) {
    // Lines are printed as they are computed; a JSON document must be whole.
    json_t *array = cli->json ? json_array() : NULL;
    reef_cli_progress progress;
    // With lines on standard output the progress would interleave, so it is off then.
    reef_cli_progress_start(&progress, "predicting", cli->json ? file->count : 0, "B");
    reef_status status =
        reef_cli_predict(model, file, &progress, cli->json ? on_object : on_line, array, err);
    reef_cli_progress_end(&progress);
    if (status == REEF_OK && cli->json)
        // `as_of` is repeated: a prediction without its state could not be checked later.
        status = reef_cli_reply(cli,
                                json_pack("{s:s, s:o, s:O}", "as_of", as_of, "file",
                                          reef_cli_path(file->path), "predictions", array),
                                err);
    json_decref(array);
    return status;
}

reef_status reef_cmd_predict(reef_cli_call *cli, reef_error *err) {
    char as_of[REEF_NAME_BYTES_MAX + 1];
    reef_cli_pool pool = {0};
    reef_cli_file file = {0};
    reef_model *model = NULL;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK)
        // `reef score` is what a model of text has instead.
        status = reef_cli_pool_wants(&pool, true,
                                     "reef score says how surprising a text is, "
                                     "reef generate continues one",
                                     err);
    if (status == REEF_OK)
        // The reader checks the width of the vectors against the pool's configuration.
        status = reef_cli_vectors_read(&file, cli->operands[0], &pool.config, err);
    if (status == REEF_OK) status = reef_cli_as_of(cli, pool.store, as_of, err);
    if (status == REEF_OK)
        // Its own read transaction: a commit of the daemon does not change the model while it runs.
        status = reef_model_open(
            &model, pool.store, as_of,
            &(reef_model_options){.threads = cli->threads, .memory_bytes = cli->memory_bytes}, err);
    if (status == REEF_OK) status = print_predictions(cli, model, as_of, &file, err);
    reef_model_close(model);
    reef_cli_file_release(&file);
    reef_cli_pool_close(&pool);
    return status;
}
