// See train_budget.h. A step costs the same whatever is in it, so a budget is a number of steps,
// and what a pool has spent follows from the steps that it counts itself: an interruption loses no
// count.
#include "train_budget.h"
#include "cli_model.h"

#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_table.h"
#include "cli_tokens.h"
#include "eval_set.h"
#include "reef_clock.h"
#include "reef_usage.h"
#include "train_stream.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_SECONDS 10.0
#define STEPS_MAX ((uint64_t)1 << 52)

uint64_t reef_train_budget_steps(const reef_flops *flops, double budget) {
    double steps = floor(budget / flops->step);
    if (!(steps >= 1)) return 1;
    return steps < (double)STEPS_MAX ? (uint64_t)steps : STEPS_MAX;
}

typedef struct run {
    const reef_train_budget *budget;
    reef_trainer *trainer;
    reef_train_stream stream;
    uint64_t steps, steps_planned;
    double committed;
    bool dirty;
} run;

static bool is_stopped(const run *r) {
    return r->budget->stopped != NULL && r->budget->stopped();
}

static reef_status commit(run *r, reef_error *err) {
    reef_commit made;
    if (!r->dirty) return REEF_OK;
    reef_status status = reef_trainer_commit(r->trainer, &made, err);
    reef_usage_compaction done = {.merged = 1};
    while (status == REEF_OK && (done.merged > 0 || done.dropped > 0))
        status = reef_trainer_compact(r->trainer, &done, err);
    r->committed = reef_seconds();
    r->dirty = false;
    return status;
}

static reef_status feed_bytes(
    run *r, const char *name, const uint8_t *bytes, size_t count, reef_error *err) {
    double every = r->budget->commit_seconds > 0 ? r->budget->commit_seconds : COMMIT_SECONDS;
    reef_status status = REEF_OK;
    // Ends at the planned step, not at the end of the data.
    while (status == REEF_OK && count > 0 && r->steps < r->steps_planned && !is_stopped(r)) {
        size_t taken = 0, steps = 0;
        status = reef_trainer_feed(r->trainer, name, bytes, count, &taken, &steps, err);
        bytes += taken;
        count -= taken;
        r->stream.at += taken;
        r->steps += steps;
        r->dirty = true;
        // By time: a step may take a millisecond or a minute.
        if (status == REEF_OK && reef_seconds() - r->committed > every) status = commit(r, err);
        if (r->budget->progress != NULL)
            // As a share: the caller knows the unit.
            r->budget->progress(r->budget->context, (double)r->steps / (double)r->steps_planned);
    }
    return status;
}

static reef_status train_budget_all(run *r, reef_error *err) {
    reef_status status = REEF_OK;
    r->committed = reef_seconds();
    while (status == REEF_OK && r->steps < r->steps_planned && !is_stopped(r)) {
        const char *name;
        const uint8_t *bytes;
        size_t count;
        status = reef_train_stream_read(&r->stream, UINT64_MAX, &name, &bytes, &count, err);
        if (status == REEF_OK) status = feed_bytes(r, name, bytes, count, err);
    }
    return status == REEF_OK ? commit(r, err) : status;
}

static void account(const run *r,
                    const reef_config *config,
                    const reef_flops *flops,
                    reef_train_spent *out) {
    reef_trainer_status now;
    reef_trainer_status_read(r->trainer, &now);
    uint64_t windows = (uint64_t)config->batch + reef_config_rehearsed(config);
    // What waits for a full batch was read last.
    uint64_t read = r->stream.at, waits = now.pending_bytes;
    out->steps = r->steps;
    out->steps_planned = r->steps_planned;
    out->stream_bytes = now.stream_bytes;
    out->data_bytes = reef_train_stream_bytes(&r->stream);
    out->other_bytes = r->stream.base;
    // Rehearsed windows are trained too, and paid for.
    out->trained_tokens = r->steps * windows * config->context;
    out->flops = (double)r->steps * flops->step;
    // What waits was not trained yet.
    out->epochs = (double)(read > waits ? read - waits : 0) / (double)out->data_bytes;
    out->finished = r->steps >= r->steps_planned;
}

static reef_status check_budget(const reef_config *config,
                                uint32_t generation_count,
                                const reef_generation_record *first,
                                reef_error *err) {
    // The formulas of FLOPs are those of a language model.
    if (reef_config_is_vector(config))
        return reef_fail(err, REEF_ERR_INVALID,
                         "FLOPs are counted for language models; the pool has a vector model");
    if (reef_config_is_layer(config))
        return reef_fail(err, REEF_ERR_INVALID,
                         "FLOPs are counted for language models; the pool holds a layer by itself");
    // With one generation the cost of a step is constant; boundaries would change it.
    if (config->boundaries != REEF_BOUNDARIES_GIVEN || config->boundary_mark[0] != '\0')
        return reef_fail(
            err, REEF_ERR_INVALID,
            "with boundaries %s%s batches may be deferred, skipped or cost more, so "
            "FLOPs are not a budget: make the pool with --boundaries given and without "
            "a marker line",
            reef_config_word(config, "boundaries"),
            config->boundary_mark[0] ? " and a marker line" : "");
    // A batch that the memory learns alone costs almost nothing.
    if (config->net_share < 1.0f)
        return reef_fail(err, REEF_ERR_INVALID,
                         "with net_share %g the net learns some of the batches only, so FLOPs are "
                         "not a budget: make the pool with --context-memory 0 or --net-share 1",
                         (double)config->net_share);
    // Later generations make each step more expensive than the formula assumes.
    if (generation_count > 1)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool has %" PRIu32
                         " generations, but FLOPs are counted for the first one alone",
                         generation_count);
    // The formula takes the configured side.
    if (first->side != config->side)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool has grown from side %" PRIu32 " to %" PRIu32
                         ", but FLOPs are counted for the side that it was made with",
                         config->side, first->side);
    return REEF_OK;
}

// May FLOPs be counted for this pool?
static reef_status read_config(reef_store *store, reef_config *config, reef_error *err) {
    reef_txn *txn = NULL;
    uint32_t generations = 0;
    reef_generation_record first = {0};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_config_read(txn, config, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &generations, err);
    if (status == REEF_OK) status = reef_generation_read(txn, 0, &first, err);
    reef_txn_abort(txn);
    return status == REEF_OK ? check_budget(config, generations, &first, err) : status;
}

reef_status reef_train_budget_run(reef_store *store,
                                  char **files,
                                  size_t count,
                                  const reef_train_budget *budget,
                                  reef_train_spent *out,
                                  reef_error *err) {
    run r = {.budget = budget};
    reef_config config;
    // Valid also after a failure, so that the caller can print it.
    *out = (reef_train_spent){0};
    double began = reef_seconds();
    reef_status status = read_config(store, &config, err);
    if (status == REEF_OK) status = reef_train_stream_open(&r.stream, files, count, &config, err);
    // The data is read again from the beginning until the budget is spent.
    if (status == REEF_OK) status = reef_train_stream_repeat(&r.stream, err);
    if (status == REEF_OK)
        status = reef_trainer_open(&r.trainer, store,
                                   &(reef_trainer_options){.threads = budget->threads,
                                                           .memory_bytes = budget->memory_bytes},
                                   err);
    // An interrupted run resumes where it was committed.
    if (status == REEF_OK) status = reef_train_stream_seek(&r.stream, r.trainer, err);
    if (status == REEF_OK) {
        reef_flops flops;
        reef_trainer_status now;
        reef_flops_count(&config, &flops);
        reef_trainer_status_read(r.trainer, &now);
        // Steps of earlier runs count: the budget is for the pool, not for the call.
        r.steps = now.step;
        r.steps_planned = reef_train_budget_steps(&flops, budget->flops);
        // A dry run reports what would be done.
        if (!budget->dry_run) status = train_budget_all(&r, err);
        account(&r, &config, &flops, out);
        out->seconds = reef_seconds() - began;
    }
    // Both take an object that was never opened.
    reef_trainer_close(r.trainer);
    reef_train_stream_release(&r.stream);
    return status;
}

// ---- the command --------------------------------------------------------------------------------

json_t *reef_train_flops_json(const reef_flops *flops) {
    json_t *parts = json_object();
    // Per token, so that windows of different length compare.
    double T = flops->window_tokens > 0 ? flops->window_tokens : 1;
    for (size_t part = 0; part < REEF_FLOPS_PART_COUNT; part++)
        json_object_set_new(parts, reef_flops_part_text((reef_flops_part)part),
                            json_pack("{s:o, s:o}", "forward",
                                      reef_cli_real((double)flops->forward[part] / T), "backward",
                                      reef_cli_real((double)flops->backward[part] / T)));
    // "per_step" is a forward and a backward pass, as defined in docs/PAPER.md.
    return json_pack("{s:o, s:o, s:o, s:I, s:I}", "per_token", reef_cli_real(flops->token),
                     "per_step", reef_cli_real(flops->step), "parts_per_token", parts, "parameters",
                     (json_int_t)flops->parameters, "parameters_active",
                     (json_int_t)flops->parameters_active);
}

static void print_flops(const reef_flops *flops) {
    static const char *const HEADING[] = {"FLOPs per token", "forward", "backward"};
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    double T = flops->window_tokens;
    for (size_t part = 0; part < REEF_FLOPS_PART_COUNT; part++) {
        // Parts that this model lacks have no row.
        if (flops->forward[part] + flops->backward[part] == 0) continue;
        reef_cli_table_cell(table, "%s", reef_flops_part_text((reef_flops_part)part));
        reef_cli_table_cell(table, "%.0f", (double)flops->forward[part] / T);
        reef_cli_table_cell(table, "%.0f", (double)flops->backward[part] / T);
    }
    // The whole is counted by its own, so that a part that is missing would show.
    reef_cli_table_cell(table, "all");
    reef_cli_table_cell(table, "%.0f", (double)flops->forward_window / T);
    reef_cli_table_cell(table, "%.0f", (double)flops->backward_window / T);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_spent(const reef_flops *flops, const reef_train_spent *spent) {
    char words[CLI_WORD_BYTES], more[CLI_WORD_BYTES];
    print_flops(flops);
    printf("parameters  %s", reef_cli_count(flops->parameters, words));
    // Active parameters are what a token costs; all are what the pool stores.
    printf(", %s of them active for a token\n", reef_cli_count(flops->parameters_active, words));
    printf("%s %.4g FLOPs: %s steps", spent->finished ? "spent" : "stopped at", spent->flops,
           reef_cli_count(spent->steps, words));
    printf(", %s tokens, in %s\n", reef_cli_count(spent->trained_tokens, words),
           reef_cli_duration(spent->seconds, more));
    // Repeated data is worth less than fresh data, so it is reported.
    if (spent->epochs > 1)
        printf("the data was read %.2f times, always in the same order\n", spent->epochs);
    // Steps made by reefd, for instance, were paid for as well.
    if (spent->other_bytes > 0)
        printf("counted too: the steps on %s that the pool read elsewhere\n",
               reef_cli_bytes(spent->other_bytes, words));
}

static reef_status measure_sets(const reef_cli_call *cli,
                                const reef_cli_pool *pool,
                                reef_eval_set *set,
                                json_t **out,
                                reef_error *err) {
    reef_model *model = NULL;
    reef_status status = reef_cli_model_open(&model, cli, pool->store, "now", err);
    // An empty object without domains.
    *out = json_object();
    for (size_t j = 0; status == REEF_OK && j < set->count; j++) {
        reef_eval_score score;
        reef_cli_progress silent = {0};
        // The bar belongs to training.
        status = reef_eval_file_measure(model, &set->domains[j].file, &silent, &score, err);
        const char *given = set->domains[j].name;
        // A name becomes a key of JSON, so it must be valid UTF-8.
        char *name = reef_cli_printable((const uint8_t *)given, strlen(given), false);
        json_object_set_new(
            *out, name,
            json_pack("{s:o, s:o}", reef_cli_bits_name(&pool->config), reef_cli_real(score.value),
                      reef_cli_perplexity_name(&pool->config), reef_cli_real(exp2(score.value))));
        free(name);
        free(score.fire_share);
    }
    reef_model_close(model);
    return status;
}

static void print_measured(const reef_config *config, const json_t *measured) {
    if (json_object_size(measured) == 0) return;
    const char *const heading[] = {"held out", reef_cli_bits_words(config),
                                   reef_cli_has_ids(config) ? "perplexity/token"
                                                            : "perplexity/byte"};
    reef_cli_table *table = reef_cli_table_new("<>>", heading);
    const char *name;
    const json_t *values;
    // In the order of the options: jansson keeps it.
    json_object_foreach((json_t *)measured, name, values) {
        reef_cli_table_cell(table, "%s", name);
        reef_cli_table_cell(table, "%.4f",
                            json_number_value(json_object_get(values, reef_cli_bits_name(config))));
        reef_cli_table_cell(
            table, "%.3f",
            json_number_value(json_object_get(values, reef_cli_perplexity_name(config))));
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static reef_status reply_budget(reef_cli_call *cli,
                                const reef_cli_pool *pool,
                                const reef_train_spent *spent,
                                json_t *measured,
                                reef_error *err) {
    reef_flops flops;
    // Counted from the configuration, so it is the same before and after the run.
    reef_flops_count(&pool->config, &flops);
    if (!cli->json) {
        print_spent(&flops, spent);
        print_measured(&pool->config, measured);
        json_decref(measured);
        return REEF_OK;
    }
    // The root identifies the state: two runs of the same budget have the same.
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(pool->commit.root, root);
    return reef_cli_reply(
        cli,
        json_pack("{s:b, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "finished",
                  spent->finished, "flops", reef_train_flops_json(&flops), "spent",
                  reef_cli_real(spent->flops), "steps", (json_int_t)spent->steps, "trained_tokens",
                  (json_int_t)spent->trained_tokens, "stream_bytes",
                  (json_int_t)spent->stream_bytes, "data_bytes", (json_int_t)spent->data_bytes,
                  "epochs", reef_cli_real(spent->epochs), "seconds", reef_cli_real(spent->seconds),
                  "eval", measured, "root", root),
        err);
}

// Reports what a dry run found: the steps that the budget pays for, and how many the pool has had.
static reef_status reply_plan(reef_cli_call *cli,
                              const reef_cli_pool *pool,
                              const reef_train_spent *spent,
                              reef_error *err) {
    reef_flops flops;
    reef_flops_count(&pool->config, &flops);
    if (cli->json)
        return reef_cli_reply(
            cli,
            json_pack("{s:b, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "done", 0, "pool",
                      reef_cli_path(cli->pool), "flops", reef_train_flops_json(&flops), "spent",
                      reef_cli_real(spent->flops), "steps", (json_int_t)spent->steps,
                      "steps_planned", (json_int_t)spent->steps_planned, "stream_bytes",
                      (json_int_t)spent->stream_bytes, "data_bytes", (json_int_t)spent->data_bytes),
            err);
    char words[CLI_WORD_BYTES], more[CLI_WORD_BYTES];
    print_flops(&flops);
    // A budget may be spent already.
    uint64_t left = spent->finished ? 0 : spent->steps_planned - spent->steps;
    printf("would train %s more steps, %s in all, on data of ", reef_cli_count(left, words),
           reef_cli_count(spent->steps_planned, more));
    printf("%s\n", reef_cli_bytes(spent->data_bytes, words));
    return REEF_OK;
}

static void on_progress(void *context, double share) {
    reef_cli_progress *progress = context;
    reef_cli_progress_show(progress, (uint64_t)(share * (double)progress->total));
}

// Options of training by files: the budget has no points to measure at.
static reef_status check_options(const reef_cli_call *cli, reef_error *err) {
    static const char *const OTHER[] = {"eval-at", "results", "commit-steps", "cost-repeats"};
    for (size_t i = 0; i < sizeof(OTHER) / sizeof(*OTHER); i++)
        if (reef_cli_text(cli, OTHER[i]) != NULL)
            return reef_fail(err, REEF_ERR_INVALID,
                             "--%s is of a stream that is read once: it does not go with --flops",
                             OTHER[i]);
    return REEF_OK;
}

static reef_status spend_budget(const reef_cli_call *cli,
                                reef_store *store,
                                double flops,
                                bool (*stopped)(void),
                                reef_train_spent *spent,
                                reef_error *err) {
    reef_cli_progress progress = {0};
    const reef_train_budget budget = {.flops = flops,
                                      .dry_run = cli->dry_run,
                                      .threads = cli->threads,
                                      .memory_bytes = cli->memory_bytes,
                                      .stopped = stopped,
                                      .progress = cli->dry_run ? NULL : on_progress,
                                      .context = &progress};
    // In millions, because a budget may exceed 2^64 FLOPs.
    if (!cli->dry_run)
        reef_cli_progress_start(&progress, "training", (uint64_t)(flops / 1e6), "MFLOP");
    reef_status status =
        reef_train_budget_run(store, cli->operands, cli->operand_count, &budget, spent, err);
    if (!cli->dry_run) reef_cli_progress_end(&progress);
    return status;
}

static reef_status measure_and_reply(reef_cli_call *cli,
                                     reef_cli_pool *pool,
                                     reef_eval_set *set,
                                     const reef_train_spent *spent,
                                     reef_error *err) {
    json_t *measured = NULL;
    // Reads the last commit of the run.
    reef_status status = reef_cli_pool_refresh(pool, err);
    if (status == REEF_OK) status = measure_sets(cli, pool, set, &measured, err);
    if (status == REEF_OK)
        status = reply_budget(cli, pool, spent, measured, err);
    else
        json_decref(measured); // the reply would have taken it
    // After the result, on standard error: a script sees it in `finished`.
    if (status == REEF_OK && !spent->finished)
        fprintf(stderr,
                "reef train: stopped and committed at step %" PRIu64 " of %" PRIu64
                "; the same command continues from there\n",
                spent->steps, spent->steps_planned);
    return status;
}

reef_status reef_train_budget_command(reef_cli_call *cli, bool (*stopped)(void), reef_error *err) {
    reef_status status = check_options(cli, err);
    if (status != REEF_OK) return status;
    reef_cli_pool pool = {0};
    reef_eval_set set = {0};
    reef_train_spent spent = {0};
    double flops = 0;
    status = reef_cli_number(cli, "flops", 1, 1e30, &flops, err);
    // A dry run must not take the writer's lock.
    if (status == REEF_OK)
        status = reef_store_open(&pool.store, cli->pool,
                                 &(reef_store_options){.write = !cli->dry_run}, err);
    if (status == REEF_OK) status = reef_cli_pool_refresh(&pool, err);
    if (status == REEF_OK) status = reef_eval_set_read(&set, cli, "eval", &pool.config, err);
    if (status == REEF_OK) status = spend_budget(cli, pool.store, flops, stopped, &spent, err);
    // A dry run has changed nothing, so there is nothing to measure.
    if (status == REEF_OK)
        status = cli->dry_run ? reply_plan(cli, &pool, &spent, err)
                              : measure_and_reply(cli, &pool, &set, &spent, err);
    reef_eval_set_release(&set);
    reef_cli_pool_close(&pool);
    return status;
}
