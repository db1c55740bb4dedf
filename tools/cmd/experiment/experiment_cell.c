// One cell: its pool, from wherever an earlier run left it to the end of its budget, and its row of
// figures.
//
// What always holds: a pool's name follows from all that decides its training, so whatever lies
// there is this model, trained a part of the way. Training is the same to the bit however often it
// was interrupted.
#include "cli_pool.h"
#include "cli_tokens.h"
#include "eval_words.h"
#include "experiment.h"
#include "reef_clock.h"
#include "train_budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COMMIT_SECONDS 30.0
#define BUSY_SECONDS_MAX 30.0 // a killed run's process may need a moment to end
#define BUSY_NAP_NS 100000000

char *reef_experiment_pool_path(const reef_experiment_work *work,
                                const reef_experiment_cell *cell) {
    return reef_cli_format("%s/%s.pool", work->directory, cell->pool);
}

// ---- the pool -----------------------------------------------------------------------------------

static reef_status open_patiently(reef_store **store, const char *path, reef_error *err) {
    double began = reef_seconds();
    for (;;) {
        reef_status status =
            reef_store_open(store, path, &(reef_store_options){.write = true}, err);
        if (status != REEF_ERR_BUSY || reef_seconds() - began > BUSY_SECONDS_MAX) return status;
        (void)nanosleep(&(struct timespec){.tv_nsec = BUSY_NAP_NS}, NULL);
    }
}

// A process that was killed while it made the pool left what may be made again.
static reef_status open_pool(reef_store **store,
                             const reef_experiment_work *work,
                             const reef_experiment_cell *cell,
                             reef_error *err) {
    char *path = reef_experiment_pool_path(work, cell);
    reef_status status = REEF_OK;
    if (reef_store_check_new(path, NULL) == REEF_OK)
        status = reef_pool_init(path, &cell->config, err);
    if (status == REEF_OK) status = open_patiently(store, path, err);
    free(path);
    return status;
}

static reef_status train(const experiment *e,
                         const reef_experiment_work *work,
                         const reef_experiment_cell *cell,
                         reef_store *store,
                         reef_train_spent *spent,
                         reef_error *err) {
    char *files[] = {e->train};
    // Trained by budget of FLOPs, so that systems of different size are compared at equal compute.
    reef_train_budget budget = {.flops = cell->budget,
                                // Commits now and then, so that an interrupted cell resumes.
                                .commit_seconds = COMMIT_SECONDS,
                                .threads = work->threads,
                                .memory_bytes = work->memory_bytes,
                                .stopped = work->stopped,
                                .progress = work->progress,
                                .context = work->context};
    return reef_train_budget_run(store, files, 1, &budget, spent, err);
}

// ---- measuring ----------------------------------------------------------------------------------

static reef_status score_text(reef_model *model,
                              const reef_cli_file *file,
                              json_t **out,
                              reef_error *err) {
    reef_score score = {0};
    reef_status status =
        reef_model_score(model, file->bytes, file->count, NULL, &score, NULL, NULL, err);
    if (status != REEF_OK) return status;
    const reef_config *config = reef_model_config(model);
    // A model of ids has no words: tokens are its unit.
    if (reef_cli_has_ids(config)) {
        *out = json_pack("{s:I, s:o, s:o}", "tokens", (json_int_t)score.bytes, "bits_per_token",
                         reef_cli_real(score.bits_per_byte), "perplexity_per_token",
                         reef_cli_real(exp2(score.bits_per_byte)));
        return REEF_OK;
    }
    // Words are counted by one function for all systems, so perplexities compare.
    uint64_t words = reef_eval_word_count(file->bytes, file->count);
    *out = json_pack("{s:I, s:o, s:o, s:o}", "bytes", (json_int_t)score.bytes, "bits_per_byte",
                     reef_cli_real(score.bits_per_byte), "perplexity_per_byte",
                     reef_cli_real(exp2(score.bits_per_byte)), "perplexity_per_word",
                     reef_cli_real(reef_eval_word_perplexity(score.bits, words)));
    return REEF_OK;
}

static size_t retrieving_blocks(const reef_config *config) {
    size_t blocks = 0;
    for (uint32_t l = 0; l < config->layers; l++)
        blocks += strchr("pk", config->ffw[config->ffw[1] == '\0' ? 0 : l]) != NULL;
    return blocks;
}

// Usage and unevenness on the held-out text, if exactly one block retrieves.
static reef_status measure_usage(reef_model *model,
                                 const reef_cli_file *file,
                                 json_t *row,
                                 reef_error *err) {
    const reef_config *config = reef_model_config(model);
    // With several blocks a single figure would mix layers.
    if (retrieving_blocks(config) != 1) return REEF_OK;
    size_t count = (size_t)config->side * config->side;
    reef_usage *usage = reef_cli_alloc(count, sizeof(*usage));
    reef_usage_summary summary;
    // Measured on held-out text: the counts of training are those of a changing model.
    reef_status status = reef_model_usage(model, file->bytes, file->count, count, usage, err);
    // An average over nothing is defined, so a failure above does no harm here.
    reef_usage_summarise(count, usage, &summary);
    free(usage);
    if (status != REEF_OK) return status;
    json_object_set_new(row, "usage_percent", reef_cli_real(summary.used_percent));
    json_object_set_new(row, "unevenness", reef_cli_real(summary.unevenness));
    return REEF_OK;
}

static reef_status measure_sets(reef_model *model,
                                const experiment *e,
                                json_t *row,
                                reef_error *err) {
    json_t *sets = json_object();
    reef_status status = REEF_OK;
    // Other texts than the one trained on, as in the paper's Table 1.
    for (size_t i = 0; status == REEF_OK && i < e->set_count; i++) {
        json_t *figures = NULL;
        status = score_text(model, &e->sets[i].file, &figures, err);
        // Null if the text could not be scored; the status says why.
        json_object_set_new(sets, e->sets[i].name, figures != NULL ? figures : json_null());
    }
    json_object_set_new(row, "datasets", sets);
    return status;
}

static reef_status measure_cell(const experiment *e,
                                const reef_experiment_work *work,
                                const reef_experiment_cell *cell,
                                reef_store *store,
                                json_t *row,
                                reef_error *err) {
    reef_model *model = NULL;
    json_t *valid = NULL;
    // The state after the last step, read back from the pool like any user would.
    reef_status status = reef_model_open(
        &model, store, "now",
        &(reef_model_options){.threads = work->threads, .memory_bytes = work->memory_bytes}, err);
    if (status == REEF_OK) status = score_text(model, &e->valid_file, &valid, err);
    // Figures of the held-out text are members of the row itself.
    if (status == REEF_OK) json_object_update(row, valid);
    if (status == REEF_OK) status = measure_usage(model, &e->valid_file, row, err);
    // Only cells that are shown need the other texts.
    if (status == REEF_OK && cell->sets) status = measure_sets(model, e, row, err);
    reef_model_close(model);
    json_decref(valid);
    return status;
}

// ---- the row ------------------------------------------------------------------------------------

static json_t *row_json(const reef_experiment_cell *cell, const reef_train_spent *spent) {
    reef_flops flops;
    // Counted from the configuration, so that every system is counted alike.
    reef_flops_count(&cell->config, &flops);
    char *text = reef_config_format(&cell->config);
    json_t *config = text != NULL ? json_loads(text, 0, NULL) : NULL;
    free(text);
    // The whole configuration is stored: a row explains itself years later.
    // `spent` is what was measured, `budget` what was asked for.
    return json_pack(
        "{s:s, s:s, s:s, s:o, s:I, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "id", cell->id,
        "system", cell->system, "size", cell->size, "budget", reef_cli_real(cell->budget),
        "parameters", (json_int_t)flops.parameters, "parameters_active",
        (json_int_t)flops.parameters_active, "flops_per_token", reef_cli_real(flops.token), "spent",
        reef_cli_real(spent->flops), "steps", (json_int_t)spent->steps, "trained_tokens",
        (json_int_t)spent->trained_tokens, "epochs", reef_cli_real(spent->epochs), "seconds",
        reef_cli_real(spent->seconds), "config", config != NULL ? config : json_null());
}

reef_status reef_experiment_cell_run(const experiment *e,
                                     const reef_experiment_work *work,
                                     const reef_experiment_cell *cell,
                                     json_t **row,
                                     reef_error *err) {
    reef_store *store = NULL;
    reef_train_spent spent = {0};
    *row = NULL;
    // An interrupted cell finds its pool and continues from its last commit.
    reef_status status = open_pool(&store, work, cell, err);
    if (status == REEF_OK) status = train(e, work, cell, store, &spent, err);
    // Not finished means interrupted: no row, and the pool stays.
    if (status == REEF_OK && spent.finished) {
        *row = row_json(cell, &spent);
        if (*row == NULL)
            status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a row of results");
    }
    if (status == REEF_OK && *row != NULL) status = measure_cell(e, work, cell, store, *row, err);
    // A row without its measurements would be taken for a finished cell.
    if (status != REEF_OK) {
        json_decref(*row);
        *row = NULL;
    }
    reef_store_close(store);
    return status;
}
