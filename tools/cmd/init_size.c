// See init_size.h.
#include "init_size.h"

#include "cli.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "reef_clock.h"
#include "scratch_pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_SECONDS 2.0
#define PROBE_STEPS_MIN 3
#define PROBE_ROUND_MAX 1000 // batches
#define PROBE_LABELS 10
#define TEXT_BYTES ((size_t)512 << 10) // more than most machines learn in this time
// Fitted to the resident memory of reefd on text, two threads: 62 MB, 336 MB and 1.97 GB for the
// three sizes.
#define BASE_BYTES ((uint64_t)56 << 20)
#define COPIES 9 // of all weights: average, moments, gradients, rows as they are committed
#define MEMORY_NET_BYTES ((uint64_t)1 << 20) // beside the bound of a context memory
#define TOKEN_VECTORS 48 // of the model's width, of each token of a step in each layer
// The same on images of 784 pixels: 29 MB, 50 MB and 310 MB.
#define VECTOR_BASE_BYTES ((uint64_t)26 << 20)
#define PAIR_BYTES 14 // of two experts, which are solved for together

// ---- sizes --------------------------------------------------------------------------------------

typedef struct shape {
    uint32_t layers, d_model, attention_heads, heads, topk, d_key, side, adapters;
    float learning_rate;
} shape;

typedef struct rung {
    const char *name;
    shape beside; // a net beside a context memory
    float net_share;
    uint64_t context_memory;
    shape alone;                         // a net without one
    uint32_t vector_side, vector_memory; // of a vector model: sub-keys, and examples kept
} rung;

#define MIB ((uint64_t)1 << 20)

// Medium is what a pool has without being asked. Nets beside memories are those of the front in
// docs/RESULTS.md. `d_key` follows the width.
static const rung RUNGS[] = {{"small",
                              {1, 64, 2, 1, 16, 32, 32, 32, 0.004f},
                              0.125f,
                              64 * MIB,
                              {2, 64, 2, 8, 16, 32, 32, 32, 0.002f},
                              16,
                              200},
                             {"medium",
                              {1, 64, 2, 1, 64, 32, 64, 32, 0.004f},
                              0.5f,
                              64 * MIB,
                              {4, 128, 4, 8, 16, 64, 64, 96, 0.002f},
                              32,
                              500},
                             {"large",
                              {1, 128, 4, 1, 16, 64, 64, 96, 0.003f},
                              1.0f,
                              512 * MIB,
                              {6, 256, 8, 8, 16, 128, 128, 128, 0.002f},
                              64,
                              2000}};
#define RUNG_COUNT (sizeof(RUNGS) / sizeof(RUNGS[0]))

static void take_shape(const shape *one, reef_config *config) {
    config->layers = one->layers;
    config->d_model = one->d_model;
    config->attention_heads = one->attention_heads;
    config->heads = one->heads;
    config->topk = one->topk;
    // Four times the width, as in transformers.
    config->d_ffw = 4 * one->d_model;
    config->d_key = one->d_key;
    config->side = config->side_new = one->side;
    config->adapters = one->adapters;
    config->learning_rate = one->learning_rate;
}

// Of a configuration that was fitted: it has a memory where one can be.
static void take_rung(const rung *one, reef_config *config) {
    // Vector models have two sizes only; the rest follows from the data.
    if (reef_config_is_vector(config)) {
        config->side = config->side_new = one->vector_side;
        config->memory = one->vector_memory;
        return;
    }
    if (config->context_memory == 0) {
        take_shape(&one->alone, config);
        return;
    }
    config->context_memory = one->context_memory;
    // Where memories alone learn, the net stays the least that there can be.
    if (!(config->net_share > 0.0f)) return;
    config->net_share = one->net_share;
    take_shape(&one->beside, config);
}

// With a unit --memory is what training may take; without one it is a field of vector models.
static bool is_budget(const char *text) {
    size_t length = text != NULL ? strlen(text) : 0;
    return length > 0 && strchr("KMGTkmgt", text[length - 1]) != NULL;
}

static reef_status take_given(const reef_cli_call *cli, reef_config *config, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; i < cli->given_count && status == REEF_OK; i++) {
        const reef_cli_given *given = &cli->given[i];
        const reef_config_field *field = reef_cli_config_field(given->name);
        if (field == NULL || (strcmp(given->name, "memory") == 0 && is_budget(given->value)))
            continue;
        status = reef_config_set(config, field->name, given->value, err);
    }
    return status;
}

static reef_status configure(const reef_cli_call *cli,
                             const rung *one,
                             reef_config *config,
                             reef_error *err) {
    reef_config_default_made(config);
    // The user's options first, because the fit below depends on them.
    reef_status status = take_given(cli, config, err); // what the rest is chosen for
    if (status != REEF_OK) return status;
    reef_config_fit(config);
    // The size fills in the rest.
    if (one != NULL) take_rung(one, config);
    // Applied again: what the user gave wins over both.
    status = take_given(cli, config, err);
    if (status != REEF_OK) return status;
    // A size's topk may be too many for a side that was given; a topk that was given stays, to be
    // refused below.
    reef_config_fit_topk(config);
    status = take_given(cli, config, err);
    // In the form in which it is stored.
    if (status == REEF_OK) reef_config_reduce(config);
    return status == REEF_OK ? reef_config_check_new(config, err) : status;
}

// ---- memory -------------------------------------------------------------------------------------

static uint64_t rows_bytes(const reef_config *config, uint32_t side) {
    uint64_t vectors = config->expert == REEF_EXPERT_GLU ? 3 : 2;
    return (uint64_t)side * side * reef_cli_peer_layers(config) * vectors * config->d_model *
           sizeof(float);
}

static void estimate(const reef_config *config, reef_init_size *size) {
    if (reef_config_is_vector(config)) {
        // A row of weights and a bias for each expert, or filter of images, and a label.
        uint64_t experts = (uint64_t)config->side * config->side, examples = config->memory;
        uint64_t rows = reef_vector_row_count(config) * reef_vector_row_values(config);
        size->generation_bytes = (rows + experts) * sizeof(float);
        // The pair term is the matrix that the experts are solved with.
        // Examples are kept with their activations.
        size->memory_bytes =
            VECTOR_BASE_BYTES + 2 * size->generation_bytes + experts * experts * PAIR_BYTES +
            examples * (reef_vector_record_bytes(config) + experts * sizeof(float));
        return;
    }
    // Rows of experts and their moments dominate a language model.
    uint64_t rows = rows_bytes(config, config->side);
    // Rehearsal windows are part of each step.
    uint64_t tokens = (uint64_t)(config->batch + config->rehearse) * config->context;
    // Attention and the dense parts, a little above what they need.
    uint64_t dense =
        (uint64_t)config->layers * 6 * config->d_model * config->d_model * sizeof(float);
    // Tables of a vocabulary beyond bytes. Those of bytes are part of BASE_BYTES.
    uint64_t more = config->vocab > REEF_VOCAB ? config->vocab - REEF_VOCAB : 0;
    // A table for each previous token, one for the token itself, and the output layer.
    uint64_t tables =
        more * (2 + (uint64_t)config->previous_bytes) * config->d_model * sizeof(float);
    // See COPIES above: averages, moments, gradients and rows being committed.
    size->memory_bytes = BASE_BYTES + COPIES * (rows + dense + tables) +
                         tokens * 2 * more * sizeof(float) +
                         tokens * config->layers * TOKEN_VECTORS * config->d_model * sizeof(float);
    // A sealed generation has its rows, but no moments.
    size->generation_bytes = rows_bytes(config, config->side_new) + tables;
    // Its context memory, once that is as large as it may be, and the weights of a net's bytes.
    if (config->context_memory == 0) return;
    size->memory_bytes += config->context_memory + MEMORY_NET_BYTES;
    size->generation_bytes += config->context_memory + MEMORY_NET_BYTES;
}

// ---- the choice ---------------------------------------------------------------------------------

static reef_status find_rung(const char *name, const rung **out, reef_error *err) {
    for (size_t i = 0; i < RUNG_COUNT; i++)
        if (strcmp(RUNGS[i].name, name) == 0) {
            *out = &RUNGS[i];
            return REEF_OK;
        }
    return reef_fail(err, REEF_ERR_INVALID, "--size '%.40s' is none of small, medium and large",
                     name);
}

// Chooses the largest size that leaves half of the memory to later generations.
static reef_status fit_rung(const reef_cli_call *cli,
                            uint64_t budget,
                            const rung **out,
                            reef_error *err) {
    // From the largest down; RUNGS is in ascending order.
    for (size_t i = RUNG_COUNT; i > 0; i--) {
        reef_config config;
        reef_init_size size = {0};
        reef_status status = configure(cli, &RUNGS[i - 1], &config, err);
        if (status != REEF_OK) return status;
        estimate(&config, &size);
        // Set before the check, so that the last one is returned with its error.
        *out = &RUNGS[i - 1];
        if (2 * size.memory_bytes <= budget) return REEF_OK;
        if (i > 1) continue;
        char least[CLI_WORD_BYTES];
        // Not even the smallest fits: the message says how much that one needs.
        return reef_fail(err, REEF_ERR_INVALID,
                         "--memory %.40s is too little: "
                         "the smallest size wants %s, and as much for generations to come; "
                         "give sizes yourself, such as --layers and --side",
                         reef_cli_text(cli, "memory"), reef_cli_bytes(size.memory_bytes, least));
    }
    return REEF_OK;
}

// The configuration of a file, and over it what else is given.
static reef_status configure_from(const reef_cli_call *cli,
                                  const char *file,
                                  reef_config *config,
                                  reef_error *err) {
    if (reef_cli_text(cli, "size") != NULL || is_budget(reef_cli_text(cli, "memory")))
        return reef_fail(err, REEF_ERR_INVALID,
                         "--from makes a pool with the sizes of the model in %.120s: leave %s out",
                         file, reef_cli_text(cli, "size") != NULL ? "--size" : "--memory");
    reef_status status = reef_model_file_config(file, config, err);
    if (status == REEF_OK) status = take_given(cli, config, err);
    return status == REEF_OK ? reef_config_check_new(config, err) : status;
}

static reef_status check_unit(const reef_cli_call *cli, reef_error *err) {
    const char *memory = reef_cli_text(cli, "memory"), *model = reef_cli_text(cli, "model");
    if (memory == NULL || is_budget(memory) || (model != NULL && strcmp(model, "vector") == 0))
        return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--memory '%.40s' has no unit: write an amount such as 2G for what training "
                     "may take; a number alone counts the examples that a vector model keeps",
                     memory);
}

reef_status reef_init_configure(const reef_cli_call *cli,
                                reef_config *config,
                                reef_init_size *size,
                                reef_error *err) {
    const char *name = reef_cli_text(cli, "size"), *memory = reef_cli_text(cli, "memory");
    const rung *one = NULL;
    reef_status status = REEF_OK;
    // A number with a unit is a budget; the option has other meanings elsewhere.
    *size = (reef_init_size){.budget_bytes = is_budget(memory) ? cli->memory_bytes : 0};
    if (reef_cli_text(cli, "from") != NULL) {
        // A model file brings its own sizes.
        size->budget_bytes = 0;
        return configure_from(cli, reef_cli_text(cli, "from"), config, err);
    }
    // Both options set the size.
    if (name != NULL && size->budget_bytes)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--size and --memory both choose sizes: give one of them");
    status = check_unit(cli, err);
    if (status == REEF_OK && name != NULL) status = find_rung(name, &one, err);
    // An explicit size is not checked against memory: the user knows better.
    if (status == REEF_OK && size->budget_bytes)
        status = fit_rung(cli, size->budget_bytes, &one, err);
    if (status == REEF_OK) status = configure(cli, one, config, err);
    // Without a size, fields alone decide, and there is nothing to estimate.
    if (status != REEF_OK || one == NULL) return status;
    size->name = one->name;
    estimate(config, size);
    return REEF_OK;
}

// ---- the probe ----------------------------------------------------------------------------------

// Records of vectors with labels, from a fixed generator: the same work on every machine.
static uint8_t *vectors_text(const reef_config *config, size_t *count) {
    size_t record = reef_vector_record_bytes(config), records = TEXT_BYTES / record + 1;
    uint8_t *bytes = reef_cli_alloc(records, record);
    uint32_t draw = 1;
    for (size_t i = 0; i < records; i++) {
        // Labels in a cycle, so that each class occurs.
        int32_t label = (int32_t)(i % PROBE_LABELS);
        memcpy(bytes + i * record, &label, sizeof(label));
        for (size_t k = 0; k < config->inputs; k++) {
            // A linear congruential generator (Numerical Recipes) is random enough for a timing.
            draw = draw * 1664525u + 1013904223u;
            // The upper bits are the better ones; in [0, 1).
            float value = (float)(draw >> 8) / (float)(1u << 24);
            memcpy(bytes + i * record + REEF_VECTOR_LABEL_BYTES + k * sizeof(value), &value,
                   sizeof(value));
        }
    }
    *count = records * record;
    return bytes;
}

// Of how many batches the net learns one: only so many together say what training costs. A net that
// learns next to nothing hardly costs.
static uint64_t batches_for_net(const reef_config *config) {
    double share = (double)config->net_share;
    return share * PROBE_ROUND_MAX > 1.0 ? (uint64_t)ceil(1.0 / share) : 1;
}

// Trains on the same data until the time is over.
static reef_status train_for_a_while(reef_trainer *trainer,
                                     const reef_config *config,
                                     const uint8_t *text,
                                     size_t count,
                                     reef_init_probe *probe,
                                     reef_error *err) {
    size_t at = 0;
    uint64_t every = batches_for_net(config);
    bool begun = every == 1; // else the first batch is the net's beside its share
    double started = reef_seconds();
    // At least some steps, since the first ones include warming up.
    while (probe->steps < PROBE_STEPS_MIN || probe->steps % every > 0 ||
           probe->seconds < PROBE_SECONDS) {
        size_t taken = 0, ran = 0;
        reef_status status =
            reef_trainer_feed(trainer, "probe", text + at, count - at, &taken, &ran, err);
        if (status != REEF_OK) return status;
        // From the beginning again when the text ends.
        at = at + taken == count ? 0 : at + taken;
        probe->steps += ran;
        probe->bytes += taken;
        // The clock runs while feeding only, not while the model is made.
        probe->seconds = reef_seconds() - started;
        if (begun || ran == 0) continue;
        begun = true;
        *probe = (reef_init_probe){0};
        started = reef_seconds();
    }
    return REEF_OK;
}

static uint64_t resident_bytes(void) {
    return (uint64_t)reef_proc_bytes("/proc/self/status", "VmRSS");
}

static reef_status probe_pool(const char *path,
                              const reef_config *config,
                              size_t threads,
                              reef_init_probe *probe,
                              reef_error *err) {
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    // Measured by difference: the estimate is compared with it.
    uint64_t before = resident_bytes();
    size_t count = TEXT_BYTES;
    // Text of the benchmark's generator is as compressible as prose.
    uint8_t *text =
        reef_config_is_vector(config) ? vectors_text(config, &count) : reef_scratch_text(count);
    if (reef_token_bytes(config) != 1)
        // Ids as likely as the bytes.
        for (size_t i = 0; i + 1 < count; i += 2) {
            text[i] = (uint8_t)(text[i] % config->vocab);
            text[i + 1] = 0;
        }
    // A real pool in a temporary directory: the measurement is of the real program.
    reef_status status = reef_pool_init(path, config, err);
    if (status == REEF_OK)
        status = reef_store_open(&store, path, &(reef_store_options){.write = true}, err);
    if (status == REEF_OK)
        status =
            reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = threads}, err);
    if (status == REEF_OK) status = train_for_a_while(trainer, config, text, count, probe, err);
    uint64_t after = resident_bytes();
    // Pages may also have been returned meanwhile.
    probe->memory_bytes = after > before ? after - before : 0;
    reef_trainer_close(trainer);
    if (store != NULL) reef_store_close(store);
    free(text);
    return status;
}

reef_status reef_init_probe_run(const reef_config *config,
                                size_t threads,
                                reef_init_probe *probe,
                                reef_error *err) {
    reef_scratch_directory directory = {0};
    *probe = (reef_init_probe){0};
    // The data has no meaning, so no boundary is looked for.
    reef_config steady = *config;
    steady.boundaries = REEF_BOUNDARIES_GIVEN;
    steady.return_bytes = 0;
    // A generation's first batches are all for the net, which takes longer than the probe.
    steady.drift_warmup = 1;
    reef_status status = reef_scratch_directory_new(&directory, err);
    if (status == REEF_OK) {
        char *path = reef_cli_format("%s/pool", directory.path);
        status = probe_pool(path, &steady, threads, probe, err);
        free(path);
    }
    // Removed in any case.
    reef_scratch_directory_remove(&directory);
    return status;
}
