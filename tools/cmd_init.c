// reef init: make a new pool. Every field of the configuration is an option.
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>

const cli_manual init_manual = {
    .about = "Makes the directory POOL with a model whose first generation is open, initialised "
             "from the\n"
             "seed. The configuration is written once and cannot be changed later.",
    .options = NULL,
    .example = "reef init reef.pool\n"
               "reef init reef.pool --layers 2 --d-model 64 --side 32 --topk 8 --seed 7\n"
               "reef init reef.pool --expert glu --score sigmoid --seal-dtype bf16\n"
               "reef init mnist.pool --model vector --inputs 784",
};

static uint64_t experts_of(const reef_config *config) {
    return (uint64_t)config->side * config->side * cli_peer_layers(config);
}

static json_t *config_json(const reef_config *config) {
    char *text = reef_config_format(config);
    json_t *object = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return object;
}

// What only a pool that was made can tell is null in a dry run.
static json_t *measured(const cli_call *cli, uint64_t value) {
    return cli->dry_run ? json_null() : json_integer((json_int_t)value);
}

static void print_text_model(const reef_config *config) {
    char words[CLI_WORD_BYTES];
    printf("  model       %s, %" PRIu32 " layers of width %" PRIu32 ", context %" PRIu32 " bytes\n",
           config->model, config->layers, config->d_model, config->context);
    printf("  experts     %s", cli_count(experts_of(config), words));
    printf(" (%" PRIu32 " x %" PRIu32 " in each of %" PRIu32 " PEER layers)\n", config->side,
           config->side, cli_peer_layers(config));
}

static void print_vector_model(const reef_config *config) {
    char words[CLI_WORD_BYTES];
    printf("  model       %s, of %s inputs\n", config->model, cli_count(config->inputs, words));
    printf("  experts     %s", cli_count(experts_of(config), words));
    printf(" (%" PRIu32 " x %" PRIu32 ") a generation\n", config->side, config->side);
    printf("  memory      %s", cli_count(config->memory, words));
    printf(" examples, %s\n",
           cli_bytes((uint64_t)config->memory * reef_vector_record_bytes(config), words));
}

static reef_status answer(cli_call *cli,
                          const reef_config *config,
                          uint64_t parameters,
                          uint64_t file_bytes,
                          reef_error *err) {
    if (cli->json)
        return cli_answer(cli,
                          json_pack("{s:o, s:b, s:I, s:o, s:o, s:o}", "pool", cli_path(cli->pool),
                                    "created", !cli->dry_run, "experts",
                                    (json_int_t)experts_of(config), "parameters",
                                    measured(cli, parameters), "file_bytes",
                                    measured(cli, file_bytes), "config", config_json(config)),
                          err);
    char words[CLI_WORD_BYTES];
    bool vector = reef_config_is_vector(config);
    printf("%s %s\n", cli->dry_run ? "would make" : "made", cli->pool);
    (vector ? print_vector_model : print_text_model)(config);
    if (cli->dry_run) return REEF_OK;
    printf("  parameters  %s\n", cli_count(parameters, words));
    printf("  on disk     %s\n", cli_bytes(file_bytes, words));
    printf("next: reefd --pool %s --source %s\n", cli->pool,
           vector ? "idx:IMAGES,LABELS (or npy:, csv:, jsonl:)" : "FILE");
    return REEF_OK;
}

// What was made, read back from the pool.
static reef_status measure(const cli_call *cli,
                           uint64_t *parameters,
                           uint64_t *file_bytes,
                           reef_error *err) {
    cli_pool pool;
    reef_model *model = NULL;
    reef_status status = cli_pool_open(&pool, cli, err);
    if (status == REEF_OK)
        status =
            reef_model_open(&model, pool.store, NULL, &(reef_model_options){.threads = 1}, err);
    if (status == REEF_OK) *parameters = reef_model_parameter_count(model);
    *file_bytes = pool.file_bytes;
    reef_model_close(model);
    cli_pool_close(&pool);
    return status;
}

static reef_status check_path(const char *path, reef_error *err) {
    if (reef_store_check_new(path, NULL) == REEF_OK) return REEF_OK;
    return reef_fail(err, REEF_INVALID,
                     "cannot make %.120s: it exists; choose a path where nothing is yet", path);
}

reef_status cmd_init(cli_call *cli, reef_error *err) {
    reef_config config;
    reef_status status = cli_config(cli, &config, err);
    if (status != REEF_OK) return status;
    status = check_path(cli->pool, err);
    if (status != REEF_OK) return status;
    uint64_t parameters = 0, file_bytes = 0;
    if (!cli->dry_run) status = reef_pool_init(cli->pool, &config, err);
    if (!cli->dry_run && status == REEF_OK) status = measure(cli, &parameters, &file_bytes, err);
    return status == REEF_OK ? answer(cli, &config, parameters, file_bytes, err) : status;
}
