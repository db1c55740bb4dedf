// reef init: make a new pool. Every field of the configuration is an option; sizes can be chosen by
// a word.
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"
#include "reef_context.h"
#include "reef_pool_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const reef_cli_option OPTIONS[] = {
    {"size", "small|medium|large", "choose sizes (default: those of medium)"},
    {"ranks", "R", "as the shards of so many ranks, POOL/rank-0 and so on, each with its rows"},
    {0},
};

static const char *const FIRST[] = {"size",          "memory",  "net-share", "kinds-max",
                                    "boundary-mark", "dry-run", "help-all",  NULL};

const reef_cli_manual reef_init_manual = {
    .about =
        "Makes the directory POOL with a model whose "
        "first generation is open, initialised from the\n"
        "seed. The configuration is written once and cannot be changed later. Options beside a\n"
        "size win over it.",
    .options = OPTIONS,
    .first = FIRST,
    .example = "reef init reef.pool\n"
               "reef init reef.pool --size small\n"
               "reef init reef.pool --memory 2G --net-share 0 --dry-run\n"
               "reef init reef.pool --layers 2 --d-model 64 --side 32 --topk 8 --seed 7\n"
               "reef init many --ranks 3\n",
};

// Fitted to the resident memory of reefd on text, two threads.
#define BASE_BYTES ((uint64_t)56 << 20)
#define COPIES 9 // of all weights: average, moments, gradients, rows as they are committed
#define MIXER_BYTES ((uint64_t)4 << 20) // of memories, beside their budget
#define TOKEN_VECTORS 48 // of the model's width, of each token of a step in each layer
#define SHAPE_FIELDS_MAX 9

// ---- sizes --------------------------------------------------------------------------------------

typedef struct field_value {
    const char *name, *value;
} field_value;

typedef struct size {
    const char *name, *memory, *net_share;
    field_value shape[SHAPE_FIELDS_MAX]; // of the net, where it is not that of medium
} size;

// Medium is what a pool has without being asked. Nets are those of the front in docs/RESULTS.md.
static const size SIZES[] = {
    {"small", "256M", "0.125", {{"topk", "16"}, {"side", "32"}}},
    {"medium", "1G", "0.5", {{0}}},
    {"large",
     "4G",
     "1",
     {{"d_model", "128"},
      {"attention_heads", "4"},
      {"d_ffw", "512"},
      {"topk", "16"},
      {"d_key", "64"},
      {"learning_rate", "0.003"}}},
};
#define SIZE_COUNT (sizeof(SIZES) / sizeof(SIZES[0]))

// Everything about a new pool.
typedef struct making {
    reef_config config;
    const size *size;                        // NULL: none was chosen
    uint64_t memory_bytes, generation_bytes; // of the size: while it trains; more for each sealed
    uint64_t parameters, file_bytes;
    uint64_t ranks; // that its rows are divided over; 1: none
} making;

static reef_status take_given(const reef_cli_call *cli, reef_config *config, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; i < cli->given_count && status == REEF_OK; i++) {
        const reef_cli_given *given = &cli->given[i];
        const reef_config_field *field = reef_cli_config_field(given->name);
        if (field != NULL) status = reef_config_set(config, field->name, given->value, err);
    }
    return status;
}

static reef_status take_shape(const size *chosen, reef_config *config, reef_error *err) {
    reef_status status = REEF_OK;
    const field_value *one = chosen->shape;
    for (size_t i = 0; status == REEF_OK && i < SHAPE_FIELDS_MAX && one[i].name != NULL; i++)
        status = reef_config_set(config, one[i].name, one[i].value, err);
    return status;
}

// `chosen` may be NULL.
static reef_status configure(const reef_cli_call *cli,
                             const size *chosen,
                             reef_config *config,
                             reef_error *err) {
    reef_status status = REEF_OK;
    reef_config_default(config);
    if (chosen != NULL) status = reef_config_set(config, "memory", chosen->memory, err);
    if (status == REEF_OK && chosen != NULL)
        status = reef_config_set(config, "net_share", chosen->net_share, err);
    // What is given first, because what is fitted depends on it.
    if (status == REEF_OK) status = take_given(cli, config, err);
    if (status != REEF_OK) return status;
    reef_config_fit(config);
    // Where memories alone learn, the net stays the least that there can be.
    if (chosen != NULL && reef_cli_has_net(config)) status = take_shape(chosen, config, err);
    // And again: it wins over both.
    if (status == REEF_OK) status = take_given(cli, config, err);
    if (status != REEF_OK) return status;
    // A size's topk may be too many for a side that was given; one that was given is refused below.
    reef_config_fit(config);
    status = take_given(cli, config, err);
    // Before what would do nothing is left out: what was given must not be lost in silence.
    if (status == REEF_OK) status = reef_config_check(config, err);
    if (status == REEF_OK) reef_config_reduce(config);
    return status;
}

static uint64_t rows_bytes(const reef_config *config, uint32_t side) {
    uint64_t vectors = config->expert == REEF_EXPERT_GLU ? 3 : 2;
    return (uint64_t)side * side * reef_config_retrieving_layers(config) * vectors *
           config->d_model * sizeof(float);
}

static void estimate(making *m) {
    const reef_config *config = &m->config;
    uint64_t tokens = (uint64_t)config->batch * config->context;
    // Attention and the dense parts, a little above what they need.
    uint64_t dense =
        (uint64_t)config->layers * 6 * config->d_model * config->d_model * sizeof(float);
    m->memory_bytes = BASE_BYTES + COPIES * (rows_bytes(config, config->side) + dense) +
                      tokens * config->layers * TOKEN_VECTORS * config->d_model * sizeof(float);
    // A sealed generation has its rows, but no moments.
    m->generation_bytes = rows_bytes(config, config->side);
    // All memories together, once they are as large as they may be.
    if (config->memory > 0) m->memory_bytes += config->memory + MIXER_BYTES;
}

static reef_status find_size(const char *name, const size **out, reef_error *err) {
    for (size_t i = 0; i < SIZE_COUNT; i++)
        if (strcmp(SIZES[i].name, name) == 0) {
            *out = &SIZES[i];
            return REEF_OK;
        }
    return reef_fail(err, REEF_ERR_INVALID, "--size '%.40s' is none of small, medium and large",
                     name);
}

static reef_status choose_sizes(const reef_cli_call *cli, making *m, reef_error *err) {
    const char *name = reef_cli_text(cli, "size");
    reef_status status = name != NULL ? find_size(name, &m->size, err) : REEF_OK;
    if (status == REEF_OK) status = configure(cli, m->size, &m->config, err);
    if (status == REEF_OK) estimate(m);
    return status;
}

// ---- the reply ----------------------------------------------------------------------------------

static uint64_t experts_made(const making *m) {
    uint64_t side = m->config.side;
    return side * side * reef_config_retrieving_layers(&m->config);
}

static void print_net(const making *m) {
    const reef_config *config = &m->config;
    printf("  model       %s, %" PRIu32 " layers of width %" PRIu32 ", context %" PRIu32 " bytes\n",
           reef_config_word(config, "model"), config->layers, config->d_model, config->context);
    printf("  experts     %s (%" PRIu32 " x %" PRIu32 " in each of %" PRIu32 " layers; --ffw %s)\n",
           CLI_COUNT(experts_made(m)), config->side, config->side,
           reef_config_retrieving_layers(config), config->ffw);
}

static void print_model(const making *m) {
    const reef_config *config = &m->config;
    if (reef_cli_has_net(config))
        print_net(m);
    else
        printf("  model       %s, context memories alone\n", reef_config_word(config, "model"));
    if (config->memory == 0) return;
    printf("  memory      up to %s for memories of kinds; ", CLI_BYTES(config->memory));
    if (!reef_cli_has_net(config))
        printf("no net\n");
    else
        printf("the net learns %.3g %% of the batches\n", 100.0 * (double)config->net_share);
    printf("  disk        about 30 bytes for each byte of a kind, fewer beyond 10 MB\n");
}

// Why these sizes, and what to expect of them.
static void print_size(const making *m) {
    if (m->size == NULL) return;
    printf("  size        %s\n", m->size->name);
    printf("  in memory   about %s while it trains, and %s more for each sealed generation\n",
           CLI_BYTES(m->memory_bytes), CLI_BYTES(m->generation_bytes));
}

static json_t *making_json(const reef_cli_call *cli, const making *m) {
    char *text = reef_config_format(&m->config);
    json_t *config = text != NULL ? json_loads(text, 0, NULL) : NULL, *chosen = json_null();
    free(text);
    if (m->size != NULL)
        chosen = json_pack("{s:s, s:I, s:I}", "name", m->size->name, "memory_bytes",
                           (json_int_t)m->memory_bytes, "generation_bytes",
                           (json_int_t)m->generation_bytes);
    return json_pack("{s:o, s:b, s:I, s:o, s:o, s:o, s:o}", "pool", reef_cli_path(cli->pool),
                     "created", !cli->dry_run, "experts", (json_int_t)experts_made(m), "parameters",
                     reef_cli_known(!cli->dry_run, m->parameters), "file_bytes",
                     reef_cli_known(!cli->dry_run, m->file_bytes), "config", config, "size",
                     chosen);
}

static reef_status reply_init(reef_cli_call *cli, const making *m, reef_error *err) {
    bool layer = reef_config_is_layer(&m->config);
    if (cli->json) return reef_cli_reply(cli, making_json(cli, m), err);
    printf("%s %s\n", cli->dry_run ? "would make" : "made", cli->pool);
    if (layer)
        printf("  model       %s of width %" PRIu32 ", by itself\n  experts     %s (%" PRIu32
               " x %" PRIu32 ")\n",
               reef_config_word(&m->config, "model"), m->config.d_model, CLI_COUNT(experts_made(m)),
               m->config.side, m->config.side);
    else
        print_model(m);
    print_size(m);
    if (cli->dry_run) return REEF_OK;
    printf("  parameters  %s\n", CLI_COUNT(m->parameters));
    printf("  on disk     %s\n", CLI_BYTES(m->file_bytes));
    // The next command is printed, since `reef init` is the first thing a new user runs.
    if (layer)
        printf("next: a program that uses libreef, or reef.torch (docs/LIBRARY.md)\n");
    else if (m->ranks > 1)
        printf("next: mpirun -n %" PRIu64 " reefd --pool %s --source FILE\n", m->ranks, cli->pool);
    else
        printf("next: reefd --pool %s --source FILE\n", cli->pool);
    return REEF_OK;
}

// ---- making it ----------------------------------------------------------------------------------

static reef_status measure_pool(const reef_cli_call *cli, making *m, reef_error *err) {
    reef_cli_pool pool;
    reef_model *model = NULL;
    // Read back, and not computed: what the pool holds is what counts. But the rows of all shards
    // may be more than this machine has memory for: they were counted as they were made.
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK && m->ranks == 1)
        status =
            reef_model_open(&model, pool.store, NULL, &(reef_model_options){.threads = 1}, err);
    if (model != NULL) m->parameters = reef_model_parameter_count(model);
    m->file_bytes = pool.file_bytes;
    reef_model_close(model);
    reef_cli_pool_close(&pool);
    return status;
}

static reef_status check_path(const char *path, reef_error *err) {
    reef_status status = reef_store_check_new(path, err);
    if (status == REEF_OK || access(path, F_OK) != 0) return status;
    return reef_fail(err, REEF_ERR_INVALID,
                     "cannot make %.120s: it exists; choose a path where nothing is yet", path);
}

static reef_status make_pool(const reef_cli_call *cli, making *m, reef_error *err) {
    if (cli->dry_run) return REEF_OK;
    return m->ranks == 1 ? reef_pool_init(cli->pool, &m->config, err)
                         : reef_pool_init_divided(cli->pool, &m->config, (uint32_t)m->ranks,
                                                  &m->parameters, err);
}

static reef_status read_ranks(const reef_cli_call *cli, making *m, reef_error *err) {
    m->ranks = 1;
    reef_status status = reef_cli_integer(cli, "ranks", 1, REEF_RANKS_MAX, &m->ranks, err);
    return status == REEF_OK ? reef_config_check_divides(&m->config, (uint32_t)m->ranks, err)
                             : status;
}

reef_status reef_cmd_init(reef_cli_call *cli, reef_error *err) {
    making m = {0};
    // All checks come before the pool is made, so that a mistake leaves no directory behind.
    reef_status status = choose_sizes(cli, &m, err);
    if (status == REEF_OK) status = read_ranks(cli, &m, err);
    if (status == REEF_OK) status = check_path(cli->pool, err);
    if (status == REEF_OK) status = make_pool(cli, &m, err);
    if (status == REEF_OK && !cli->dry_run) {
        reef_error reason = {0};
        status = measure_pool(cli, &m, &reason);
        // The message must say that the pool was made: running the command again would fail.
        if (status != REEF_OK)
            status = reef_fail(err, status, "the pool %.100s was made; %.140s", cli->pool,
                               reason.message);
    }
    return status == REEF_OK ? reply_init(cli, &m, err) : status;
}
