// reef init: make a new pool. Every field of the configuration is an option; sizes can be chosen by
// a word or by memory, and are then tried out, so that what they cost is known before anything is
// trained.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_tokens.h"
#include "commands.h"
#include "init_size.h"
#include "reef_context.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const reef_cli_option OPTIONS[] = {
    {"size", "small|medium|large", "choose sizes, and measure what they cost on this machine"},
    {"memory", "VALUE",
     "with a unit, such as 2G: the largest of these sizes that leaves "
     "half of it to later generations; without one, of a vector model: "
     "examples, with their labels, that are kept as a sample of the past"},
    {"from", "FILE", "a model that `reef export model` wrote: its weights and its configuration"},
    {"ranks", "R", "as the shards of so many ranks, POOL/rank-0 and so on, each with its rows"},
    {"no-probe", NULL, "with --size or --memory: do not train for two seconds to measure"},
    {0},
};

static const char *const FIRST[] = {"size",      "memory",    "context-memory",
                                    "net-share", "kinds-max", "boundary-mark",
                                    "dry-run",   "help-all",  NULL};

const reef_cli_manual reef_init_manual = {
    .about = "Makes the directory POOL with a model whose "
             "first generation is open, initialised from the\n"
             "seed. The configuration is written once and cannot be changed later.\n"
             "\n"
             "With --size, or --memory and a unit, sizes are chosen, "
             "options beside it win over them, and steps of training\n"
             "on a temporary pool of made-up data say how fast that is here. "
             "Without, sizes are those of medium.\n"
             "\n"
             "With --from the new pool has the generations of a file: "
             "sealed ones stay sealed, the open one\n"
             "continues with an optimiser that begins again, "
             "and losses are to the bit those of the pool\n"
             "that it comes from. Options beside it change "
             "its configuration where its tensors still fit.",
    .options = OPTIONS,
    .first = FIRST,
    .example = "reef init reef.pool\n"
               "reef init reef.pool --size small\n"
               "reef init reef.pool --memory 2G --dry-run\n"
               "reef init reef.pool --layers 2 --d-model 64 --side 32 --topk 8 --seed 7\n"
               "reef init reef.pool --expert glu --score sigmoid --seal-dtype bf16\n"
               "reef init many --ranks 3\n"
               "reef init new.pool --from model.safetensors --learning-rate 0.001\n"
               "reef init mnist.pool --model vector --inputs 28x28",
};

// Of a memory for a byte that it learns, of prose; less where text repeats itself.
#define MEMORY_BYTES_A_BYTE 20
#define WIDE_MEMORY_BYTES_A_BYTE 90

static uint64_t experts_of(const reef_config *config) {
    return (uint64_t)config->side * config->side * reef_cli_peer_layers(config);
}

static json_t *config_json(const reef_config *config) {
    char *text = reef_config_format(config);
    json_t *object = text != NULL ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return object;
}

// What only a pool that was made can tell is null in a dry run.
static json_t *measured(const reef_cli_call *cli, uint64_t value) {
    return cli->dry_run ? json_null() : json_integer((json_int_t)value);
}

// Everything about a new pool.
typedef struct making {
    reef_config config;
    reef_init_size size;
    reef_init_probe probe; // all-zero: none ran
    const char *from;      // NULL: it begins with what is drawn from the seed
    reef_model_file file;  // that it comes from
    uint64_t parameters, file_bytes;
    uint64_t ranks; // that its rows are divided over; 1: none
} making;

static uint64_t experts_made(const making *m) {
    return m->from != NULL ? m->file.experts : experts_of(&m->config);
}

// Sides of a file's generations are their own.
static void print_text_experts(const making *m) {
    const reef_config *config = &m->config;
    char words[CLI_WORD_BYTES];
    printf("  experts     %s (", reef_cli_count(experts_made(m), words));
    if (m->from != NULL)
        printf("of %" PRIu32 " generation%s", m->file.generations,
               m->file.generations == 1 ? "" : "s");
    else
        printf("%" PRIu32 " x %" PRIu32, config->side, config->side);
    printf(" in each of %" PRIu32 " layers; --ffw %s)\n", reef_cli_peer_layers(config),
           config->ffw);
}

static void print_net(const making *m) {
    const reef_config *config = &m->config;
    printf("  model       %s, %" PRIu32 " layers of width %" PRIu32 ", context %" PRIu32 " %ss\n",
           reef_config_word(config, "model"), config->layers, config->d_model, config->context,
           reef_cli_token_word(config));
    if (reef_cli_has_ids(config))
        printf("  tokens      ids below %" PRIu32 ", two bytes each\n", config->vocab);
    print_text_experts(m);
}

static void print_text_model(const making *m) {
    const reef_config *config = &m->config;
    bool has_net = reef_cli_has_net(config);
    if (has_net)
        print_net(m);
    else
        printf("  model       %s, context memories alone\n", reef_config_word(config, "model"));
    char words[CLI_WORD_BYTES];
    if (config->context_memory == 0) return;
    printf("  memory      up to %s for each generation's context memory; ",
           reef_cli_bytes(config->context_memory, words));
    if (!has_net)
        printf("no net\n");
    else
        printf("the net learns %.3g %% of the batches\n", 100.0 * (double)config->net_share);
    printf("  disk        about %d bytes for each byte of the stream, until a memory is full\n",
           config->context_memory > REEF_MEMORY_BYTES_NARROW ? WIDE_MEMORY_BYTES_A_BYTE
                                                             : MEMORY_BYTES_A_BYTE);
}

static void print_vector_model(const making *m) {
    const reef_config *config = &m->config;
    char words[CLI_WORD_BYTES];
    if (reef_config_is_image(config))
        printf("  model       %s, of images of %" PRIu32 " x %" PRIu32 " pixels\n",
               reef_config_word(config, "model"), config->inputs / config->image_columns,
               config->image_columns);
    else
        printf("  model       %s, of %s inputs\n", reef_config_word(config, "model"),
               reef_cli_count(config->inputs, words));
    printf("  experts     %s", reef_cli_count(experts_of(config), words));
    printf(" (%" PRIu32 " x %" PRIu32 ") a generation", config->side, config->side);
    // Each filter makes an expert in every region of an image.
    if (reef_config_is_image(config))
        printf(", of %s filters", reef_cli_count(reef_vector_row_count(config), words));
    if (config->draw_from > 0)
        printf(", drawn from its first %" PRIu32 " examples", config->draw_from);
    printf("\n");
    printf("  memory      %s", reef_cli_count(config->memory, words));
    printf(" examples, %s\n",
           reef_cli_bytes((uint64_t)config->memory * reef_vector_record_bytes(config), words));
}

static void print_layer(const making *m) {
    const reef_config *config = &m->config;
    char words[CLI_WORD_BYTES];
    printf("  model       %s of width %" PRIu32 ", by itself\n", reef_config_word(config, "model"),
           config->d_model);
    printf("  experts     %s", reef_cli_count(experts_of(config), words));
    printf(" (%" PRIu32 " x %" PRIu32 ")\n", config->side, config->side);
}

static json_t *size_json(const making *m) {
    if (m->size.name == NULL) return json_null();
    bool probed = m->probe.seconds > 0;
    double rate = probed ? (double)m->probe.bytes / m->probe.seconds : NAN;
    return json_pack(
        "{s:s, s:o, s:I, s:I, s:o, s:o, s:I}", "name", m->size.name, "budget_bytes",
        m->size.budget_bytes ? json_integer((json_int_t)m->size.budget_bytes) : json_null(),
        "memory_bytes", (json_int_t)m->size.memory_bytes, "generation_bytes",
        (json_int_t)m->size.generation_bytes, "bytes_per_s", reef_cli_real(rate), "probe_seconds",
        reef_cli_real(probed ? m->probe.seconds : NAN), "probe_steps", (json_int_t)m->probe.steps);
}

static json_t *making_json(const reef_cli_call *cli, const making *m) {
    return json_pack("{s:o, s:b, s:I, s:o, s:o, s:o, s:o, s:o}", "pool", reef_cli_path(cli->pool),
                     "created", !cli->dry_run, "experts", (json_int_t)experts_made(m), "parameters",
                     measured(cli, m->parameters), "file_bytes", measured(cli, m->file_bytes),
                     "config", config_json(&m->config), "size", size_json(m), "from",
                     m->from != NULL ? reef_model_file_json(&m->file, m->from) : json_null());
}

// Why these sizes, and what to expect of them.
static void print_size(const making *m) {
    char words[CLI_WORD_BYTES], more[CLI_WORD_BYTES];
    const reef_init_size *size = &m->size;
    // Sizes given one by one have no name to explain.
    if (size->name == NULL) return;
    if (size->budget_bytes)
        // Half, because every later generation of the stream needs memory too.
        printf("  size        %s, the largest that leaves half of %s to later generations\n",
               size->name, reef_cli_bytes(size->budget_bytes, words));
    else
        printf("  size        %s\n", size->name);
    // The first figure is for training with its optimiser state; a sealed generation has none.
    printf("  memory      about %s while it trains, ", reef_cli_bytes(size->memory_bytes, words));
    printf("and %s more for each sealed generation\n",
           reef_cli_bytes(size->generation_bytes, more));
    // No probe with --no-probe, or where the model could not run a step.
    if (m->probe.seconds <= 0) return;
    double rate = (double)m->probe.bytes / m->probe.seconds;
    // Vectors are counted in examples: bytes of a record say little.
    bool vectors = reef_config_is_vector(&m->config);
    if (vectors) rate /= (double)reef_vector_record_bytes(&m->config);
    // Measured with other programs running, so the line says so.
    printf("  speed       %s%s/s on this machine as busy as it is (%" PRIu64
           " steps of training in %.1f s)\n",
           vectors ? reef_cli_count((uint64_t)rate, words) : reef_cli_bytes((uint64_t)rate, words),
           vectors ? " examples" : "", m->probe.steps, m->probe.seconds);
    // A day is a size that people can compare with their logs.
    if (!vectors)
        printf("  a day       %s of %s\n", reef_cli_bytes((uint64_t)(rate * 86400), words),
               reef_cli_has_ids(&m->config) ? "token ids, two bytes each" : "text");
}

static reef_status reply_init(reef_cli_call *cli, const making *m, reef_error *err) {
    if (cli->json) return reef_cli_reply(cli, making_json(cli, m), err);
    char words[CLI_WORD_BYTES];
    bool vector = reef_config_is_vector(&m->config);
    printf("%s %s\n", cli->dry_run ? "would make" : "made", cli->pool);
    bool layer = reef_config_is_layer(&m->config);
    // One writer for each kind, chosen once.
    (vector ? print_vector_model : layer ? print_layer : print_text_model)(m);
    print_size(m);
    // The model file of --from, with its own sizes.
    if (m->from != NULL) reef_model_file_print(&m->file, m->from);
    // A plan has no parameters to count and nothing on disk.
    if (cli->dry_run) return REEF_OK;
    printf("  parameters  %s\n", reef_cli_count(m->parameters, words));
    printf("  on disk     %s\n", reef_cli_bytes(m->file_bytes, words));
    // The next command is printed, since `reef init` is the first thing a new user runs.
    if (layer)
        printf("next: a program that uses libreef, or reef.torch (docs/LIBRARY.md)\n");
    else if (reef_cli_has_ids(&m->config))
        printf("next: reef train %s FILE (token ids of two bytes each, little-endian)\n",
               cli->pool);
    else if (m->ranks > 1)
        printf("next: mpirun -n %" PRIu64 " reefd --pool %s --source FILE\n", m->ranks, cli->pool);
    else
        printf("next: reefd --pool %s --source %s\n", cli->pool,
               vector ? "idx:IMAGES,LABELS (or npy:, csv:, jsonl:)" : "FILE");
    return REEF_OK;
}

// What was made, read back from the pool.
static reef_status count_parameters(const reef_cli_call *cli,
                                    uint64_t *parameters,
                                    uint64_t *file_bytes,
                                    reef_error *err) {
    reef_cli_pool pool;
    reef_model *model = NULL;
    // Read back, and not computed: what the pool holds is what counts.
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK)
        status =
            reef_model_open(&model, pool.store, NULL, &(reef_model_options){.threads = 1}, err);
    // The model is opened only to count; one thread is enough.
    if (status == REEF_OK) *parameters = reef_model_parameter_count(model);
    // Also after a failure, when it is zero.
    *file_bytes = pool.file_bytes;
    reef_model_close(model);
    reef_cli_pool_close(&pool);
    return status;
}

// No shard has all rows to be read back.
static reef_status measure_shards(const reef_cli_call *cli, making *m, reef_error *err) {
    m->file_bytes = 0;
    for (uint64_t rank = 0; rank < m->ranks; rank++) {
        char *path = reef_cli_format("%s/rank-%" PRIu64 "/data.mdb", cli->pool, rank);
        struct stat info;
        bool there = stat(path, &info) == 0;
        free(path);
        if (!there)
            return reef_fail(err, REEF_ERR_IO, "the shard of rank %" PRIu64 " is not there", rank);
        m->file_bytes += (uint64_t)info.st_size;
    }
    return REEF_OK;
}

static reef_status check_path(const char *path, reef_error *err) {
    reef_status status = reef_store_check_new(path, err);
    if (status == REEF_OK || access(path, F_OK) != 0) return status;
    return reef_fail(err, REEF_ERR_INVALID,
                     "cannot make %.120s: it exists; choose a path where nothing is yet", path);
}

static reef_status probe(const reef_cli_call *cli, making *m, reef_error *err) {
    if (m->size.name == NULL || reef_cli_text(cli, "no-probe") != NULL) return REEF_OK;
    if (isatty(STDERR_FILENO) == 1)
        fputs("training a temporary pool for two seconds ...\r", stderr);
    reef_status status = reef_init_probe_run(&m->config, 0, &m->probe, err);
    if (isatty(STDERR_FILENO) == 1) fputs("\033[K", stderr);
    return status;
}

static reef_status make_pool(const reef_cli_call *cli, making *m, reef_error *err) {
    if (m->from != NULL)
        return reef_pool_from_model(cli->pool, m->from, &m->config, cli->dry_run, &m->file, err);
    if (cli->dry_run) return REEF_OK;
    return m->ranks == 1 ? reef_pool_init(cli->pool, &m->config, err)
                         : reef_pool_init_divided(cli->pool, &m->config, (uint32_t)m->ranks,
                                                  &m->parameters, err);
}

static reef_status read_ranks(const reef_cli_call *cli, making *m, reef_error *err) {
    m->ranks = 1;
    reef_status status = reef_cli_integer(cli, "ranks", 1, REEF_RANKS_MAX, &m->ranks, err);
    if (status == REEF_OK && m->ranks > 1 && m->from != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--ranks with --from: make a whole pool, and divide it with reef shards");
    return status == REEF_OK ? reef_config_check_divides(&m->config, (uint32_t)m->ranks, err)
                             : status;
}

reef_status reef_cmd_init(reef_cli_call *cli, reef_error *err) {
    making m = {.from = reef_cli_text(cli, "from")};
    // All checks come before the pool is made, so that a mistake leaves no directory behind.
    reef_status status = reef_init_configure(cli, &m.config, &m.size, err);
    if (status == REEF_OK) status = read_ranks(cli, &m, err);
    if (status == REEF_OK) status = check_path(cli->pool, err);
    // The probe trains some steps on generated text to measure the speed.
    if (status == REEF_OK) status = probe(cli, &m, err);
    if (status == REEF_OK) status = make_pool(cli, &m, err);
    // From here on the pool exists.
    if (status == REEF_OK && !cli->dry_run) {
        reef_error reason = {0};
        status = m.ranks > 1 ? measure_shards(cli, &m, &reason)
                             : count_parameters(cli, &m.parameters, &m.file_bytes, &reason);
        // The message must say that the pool was made: running the command again would fail.
        if (status != REEF_OK)
            status = reef_fail(err, status, "the pool %.100s was made; %.140s", cli->pool,
                               reason.message);
    }
    return status == REEF_OK ? reply_init(cli, &m, err) : status;
}
