// reef bench step: how fast this machine trains, and where the time of a step goes.
//
// The pool is a temporary one, removed at the end, on success and on failure. A baseline alternates
// with ours, and every figure of either is a median, so that other load on the machine affects both
// alike.
#include "bench_baseline.h"
#include "bench_layer.h"
#include "bench_machine.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_table.h"
#include "commands.h"
#include "reef_clock.h"
#include "scratch_pool.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_DEFAULT 20
#define STEPS_MAX 100000
#define ROUNDS_MAX 100
#define WARMUP_STEPS 3 // of a round: pages, caches and OpenBLAS settle

static const reef_cli_option OPTIONS[] = {
    {"steps", "N", "training steps to measure in a round (default: 20)"},
    {"rival", "SCRIPT", "Python script that trains the same model otherwise"},
    {"rounds", "N", "how often ours and the baseline are measured in turn (default: 1)"},
    {0},
};

const reef_cli_manual reef_bench_step_manual = {
    .about =
        "Makes a temporary pool with the given configuration, "
        "trains it on generated text and measures\n"
        "training steps, a commit and a forward pass. "
        "No boundaries are looked for unless --boundaries is given.\n"
        "\n"
        "tools/bench/torch/step.py of Reef's sources is a baseline: "
        "the same transformer in PyTorch\n"
        "(Debian: python3-torch), run by /usr/bin/python3 with the shape of the model as named\n"
        "arguments. Against a baseline, which has no past to rehearse, "
        "--rehearse is 0 unless it is given.\n"
        "A baseline that cannot be run is named on standard error, "
        "and ours is measured all the same.",
    .options = OPTIONS,
    .example = "reef bench step\n"
               "reef bench step --layers 1 --d-model 32 --side 16 --steps 5\n"
               "reef bench step --side 128 --threads 1 --steps 50 --json\n"
               "reef bench step --rival tools/bench/torch/step.py --ffw ddpd --rounds 3",
};

typedef struct measurement {
    uint64_t rounds, steps, step_tokens;              // steps: of a round
    double *step_seconds;                             // (steps) of the round that is measured now
    double *round_seconds;                            // (rounds) the median step of each
    double step_median;                               // of the rounds
    uint64_t steps_run;                               // in all rounds
    double seconds;                                   // of the measured steps, all rounds
    double backbone, router, experts, update, commit; // commit: of one commit after the steps
    double forward_seconds;
    uint64_t forward_tokens, parameters;
    size_t threads;
    reef_bench_machine machine; // with one of the model's PEER layers
} measurement;

typedef struct baseline {
    const char *script;                // or NULL
    reef_bench_baseline_step *results; // (rounds)
    size_t count;
    double step_median;
    reef_error error; // the first failure ends its rounds
} baseline;

// At least `steps` steps; *run is the number. The text ends before they do only by a mistake of
// ours.
//
// seconds  (steps) written: of each step; NULL for none
static reef_status train_steps(reef_trainer *trainer,
                               const uint8_t *text,
                               size_t count,
                               size_t *at,
                               uint64_t steps,
                               double *seconds,
                               uint64_t *run,
                               reef_cli_progress *progress,
                               reef_error *err) {
    double started = reef_seconds();
    for (*run = 0; *run < steps;) {
        // A feed takes a batch or a part of it; not every call runs a step.
        size_t taken = 0, ran = 0;
        reef_status status =
            reef_trainer_feed(trainer, "bench", text + *at, count - *at, &taken, &ran, err);
        if (status != REEF_OK) return status;
        *at += taken;
        // A call that runs several steps gives each its share of the time.
        double each = (reef_seconds() - started) / (double)(ran ? ran : 1);
        // Steps beyond those asked for are not in the array.
        for (size_t i = 0; seconds != NULL && i < ran && *run + i < steps; i++)
            seconds[*run + i] = each;
        // The clock runs on until a step has run, so that filling the batch is part of the step.
        if (ran > 0) started = reef_seconds();
        *run += ran;
        reef_cli_progress_show(progress, *run);
        // No progress and no text left: without this check the loop would never end.
        if (ran == 0 && (taken == 0 || *at == count))
            return reef_fail(err, REEF_ERR_INVALID,
                             "the generated text ended after %" PRIu64 " of %" PRIu64 " steps",
                             *run, steps);
    }
    return REEF_OK;
}

// A batch of the stream per step; the first steps only warm up.
static reef_status measure_steps(reef_trainer *trainer,
                                 const uint8_t *text,
                                 size_t count,
                                 measurement *m,
                                 reef_cli_progress *progress,
                                 reef_error *err) {
    reef_trainer_status before, after;
    size_t at = 0;
    uint64_t run;
    // These steps page memory in and give the caches their usual content.
    reef_status status =
        train_steps(trainer, text, count, &at, WARMUP_STEPS, NULL, &run, progress, err);
    if (status != REEF_OK) return status;
    // The bar counts warm-up steps too, as the user waits for them all the same.
    progress->done_before += run;
    // The trainer's own clocks run from its start, so both phases need a difference.
    reef_trainer_status_read(trainer, &before);
    double started = reef_seconds();
    status = train_steps(trainer, text, count, &at, m->steps, m->step_seconds, &run, progress, err);
    if (status != REEF_OK) return status;
    double seconds = reef_seconds() - started;
    progress->done_before += run;
    reef_trainer_status_read(trainer, &after);
    // The trainer clocks retrieval, experts and the update by themselves.
    double router = after.seconds_router - before.seconds_router;
    double experts = after.seconds_experts - before.seconds_experts;
    double update = after.seconds_update - before.seconds_update;
    // Sums over rounds: the parts are printed per step.
    m->steps_run += run;
    m->seconds += seconds;
    m->router += router;
    m->experts += experts;
    m->update += update;
    // Attention, norms, embedding, head, and the little that is neither.
    m->backbone += seconds - router - experts - update;
    return REEF_OK;
}

static void measure_baseline(const reef_config *config, const measurement *m, baseline *r) {
    if (r->script == NULL || r->error.status != REEF_OK) return;
    reef_status status = reef_bench_baseline_step_run(r->script, config, m->threads, m->steps,
                                                      &r->results[r->count], &r->error);
    if (status == REEF_OK) r->count++;
}

static reef_status measure_training(reef_trainer *trainer,
                                    const reef_config *config,
                                    const uint8_t *text,
                                    size_t count,
                                    measurement *m,
                                    baseline *r,
                                    reef_error *err) {
    reef_cli_progress progress;
    reef_status status = REEF_OK;
    reef_cli_progress_start(&progress, "training", m->rounds * (m->steps + WARMUP_STEPS), "steps");
    for (uint64_t round = 0; round < m->rounds && status == REEF_OK; round++) {
        // Ours, then the baseline: they alternate round by round on the same machine.
        status = measure_steps(trainer, text, count, m, &progress, err);
        m->round_seconds[round] = reef_bench_median(m->step_seconds, (size_t)m->steps, 1);
        if (status == REEF_OK) measure_baseline(config, m, r);
    }
    reef_cli_progress_end(&progress);
    if (status != REEF_OK) return status;
    // The median of the rounds' medians is not moved by one slow round.
    m->step_median = reef_bench_median(m->round_seconds, (size_t)m->rounds, 1);
    // One commit at the end; its speed is the subject of `reef bench store`.
    reef_commit commit;
    double started = reef_seconds();
    status = reef_trainer_commit(trainer, &commit, err);
    m->commit = reef_seconds() - started;
    return status;
}

static reef_status measure_forward(const reef_cli_call *cli,
                                   reef_store *store,
                                   const uint8_t *text,
                                   size_t count,
                                   measurement *m,
                                   reef_error *err) {
    reef_model *model = NULL;
    reef_score score = {0};
    // Opened from the commit just made, as a reader of the pool would do.
    reef_status status =
        reef_model_open(&model, store, NULL, &(reef_model_options){.threads = cli->threads}, err);
    if (status == REEF_OK) {
        double started = reef_seconds();
        // The same text for every configuration, so that figures can be compared.
        status = reef_model_score(model, text, count, NULL, &score, NULL, NULL, err);
        m->forward_seconds = reef_seconds() - started;
        m->forward_tokens = score.bytes;
        // Known only once the model is open; the baseline must have the same number.
        m->parameters = reef_model_parameter_count(model);
    }
    reef_model_close(model);
    return status;
}

static reef_status measure_rounds(const reef_cli_call *cli,
                                  const char *path,
                                  const reef_config *config,
                                  measurement *m,
                                  baseline *r,
                                  reef_error *err) {
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_store_options options = {.write = true};
    reef_trainer_options trainer_options = {.threads = cli->threads};
    // One batch more than needed: the last byte of a batch has to be followed by one to predict.
    size_t count = (size_t)(m->step_tokens * (m->steps + WARMUP_STEPS + 1)) + config->batch;
    uint8_t *text = reef_bench_text(count);

    reef_status status = reef_pool_init(path, config, err);
    if (status != REEF_OK) goto cleanup;
    status = reef_store_open(&store, path, &options, err);
    if (status != REEF_OK) goto cleanup;
    status = reef_trainer_open(&trainer, store, &trainer_options, err);
    if (status != REEF_OK) goto cleanup;
    status = measure_training(trainer, config, text, count, m, r, err);
    if (status != REEF_OK) goto cleanup;
    status = measure_forward(cli, store, text, count, m, err);

cleanup:
    // The trainer holds the store, so it is closed first.
    reef_trainer_close(trainer);
    if (store != NULL) reef_store_close(store);
    free(text);
    return status;
}

// What the baseline reports of itself has to match before its figures mean anything.
static void judge_baseline(const measurement *m, baseline *r) {
    for (size_t i = 0; i < r->count; i++) {
        // Equal numbers of parameters are a necessary sign that the baseline is the same model.
        if (r->results[i].parameters == m->parameters) continue;
        reef_fail(&r->error, REEF_ERR_INVALID,
                  "%.120s is not a copy of this model: it has %" PRIu64
                  " parameters, ours %" PRIu64,
                  r->script, r->results[i].parameters, m->parameters);
        // None of its figures is used: a baseline of another size proves nothing.
        r->count = 0;
    }
    if (r->count == 0) return;
    double *seconds = reef_cli_alloc(r->count, sizeof(*seconds));
    // The rounds in which the baseline replied; it may have failed in some.
    for (size_t i = 0; i < r->count; i++) seconds[i] = r->results[i].seconds;
    r->step_median = reef_bench_median(seconds, r->count, 1);
    free(seconds);
}

// ---- answers ------------------------------------------------------------------------------------

static double ours_per_s(const measurement *m) {
    return (double)m->step_tokens / m->step_median;
}

static double baseline_per_s(const measurement *m, const baseline *r) {
    return r->count > 0 ? (double)m->step_tokens / r->step_median : NAN;
}

static double baseline_ratio(const measurement *m, const baseline *r) {
    return ours_per_s(m) / baseline_per_s(m, r);
}

static json_t *baseline_json(const baseline *r) {
    // No baseline was asked for.
    if (r->script == NULL) return json_null();
    json_t *object =
        json_pack("{s:o, s:I}", "script", reef_cli_path(r->script), "rounds", (json_int_t)r->count);
    // The figures it gave before an error are kept, beside the error.
    if (r->count > 0) {
        json_object_set_new(object, "step_seconds", reef_cli_real(r->step_median));
        json_object_set_new(object, "parameters",
                            json_integer((json_int_t)r->results[0].parameters));
        json_object_set_new(object, "torch", reef_cli_path(r->results[0].torch));
    }
    if (r->error.status != REEF_OK)
        json_object_set_new(object, "error", reef_cli_path(r->error.message));
    return object;
}

// A step's parts are summed over the steps; the commit is the one that followed them.
static json_t *measurement_json(const reef_config *config,
                                const measurement *m,
                                const baseline *r) {
    // Seconds, not shares: shares follow from them, and not the other way round.
    json_t *parts =
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "backbone", reef_cli_real(m->backbone), "retrieval",
                  reef_cli_real(m->router), "experts", reef_cli_real(m->experts), "optimiser",
                  reef_cli_real(m->update), "commit", reef_cli_real(m->commit));
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:I, s:o, s:o, s:o, s:o}",
        "ffw", config->ffw, "parameters", (json_int_t)m->parameters, "rounds",
        (json_int_t)m->rounds, "steps", (json_int_t)m->steps_run, "tokens_per_step",
        (json_int_t)m->step_tokens, "seconds", reef_cli_real(m->seconds), "step_seconds",
        reef_cli_real(m->step_median), "step_tokens_per_s", reef_cli_real(ours_per_s(m)),
        "forward_tokens_per_s", reef_cli_real((double)m->forward_tokens / m->forward_seconds),
        "seconds_in", parts, "kernels", reef_kernels_name(), "blas", reef_gemm_name(), "threads",
        (json_int_t)m->threads, "limits", reef_bench_machine_json(&m->machine),
        "rival_step_tokens_per_s", reef_cli_real(baseline_per_s(m, r)), "rival_step_ratio",
        reef_cli_real(baseline_ratio(m, r)), "rival", baseline_json(r));
}

static void print_baseline(const measurement *m, const baseline *r) {
    if (r->count == 0) return;
    char rate[CLI_WORD_BYTES], parameters[CLI_WORD_BYTES];
    printf("baseline  %s tokens/s (median of %zu rounds, "
           "%.1f ms a step; PyTorch %s, %s parameters)\n",
           reef_cli_count((uint64_t)baseline_per_s(m, r), rate), r->count, 1e3 * r->step_median,
           r->results[0].torch, reef_cli_count(r->results[0].parameters, parameters));
    printf("ratio     %.2f\n", baseline_ratio(m, r));
}

static void print_model(const reef_config *config, const measurement *m) {
    char words[CLI_WORD_BYTES];
    uint32_t of_kind[REEF_FFW_PKM + 1] = {0};
    for (uint32_t l = 0; l < config->layers; l++) of_kind[reef_layer_ffw(config, l)]++;
    printf("model     %" PRIu32 " blocks with %" PRIu32 " PEER", config->layers,
           of_kind[REEF_FFW_PEER]);
    if (of_kind[REEF_FFW_PKM] > 0)
        printf(", %" PRIu32 " product-key memory", of_kind[REEF_FFW_PKM]);
    if (of_kind[REEF_FFW_MOE] > 0) printf(", %" PRIu32 " mixture", of_kind[REEF_FFW_MOE]);
    printf(" and %" PRIu32 " dense layers (--ffw %s), %s parameters\n", of_kind[REEF_FFW_DENSE],
           config->ffw, reef_cli_count(m->parameters, words));
}

static void print_measurement(const reef_config *config, const measurement *m, const baseline *r) {
    // One buffer for words, used line by line.
    char words[CLI_WORD_BYTES];
    print_model(config, m);
    printf("training  %s tokens/s", reef_cli_count((uint64_t)ours_per_s(m), words));
    printf(" (%" PRIu64 " steps of %" PRIu64 " tokens, median %.1f ms; %s kernels, %zu threads)\n",
           m->steps_run, m->step_tokens, 1e3 * m->step_median, reef_kernels_name(), m->threads);
    static const char *const HEADING[] = {"  of a step", "ms", "%"};
    const struct {
        const char *name;
        double seconds;
    } parts[] = {{"  backbone", m->backbone},
                 {"  retrieval", m->router},
                 {"  experts", m->experts},
                 {"  optimiser", m->update}};
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        reef_cli_table_cell(table, "%s", parts[i].name);
        // Per step in the table, as the number of steps is the user's choice.
        reef_cli_table_cell(table, "%.2f", 1e3 * parts[i].seconds / (double)m->steps_run);
        reef_cli_table_cell(table, "%.1f", 100 * parts[i].seconds / m->seconds);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    printf("commit    %.1f ms\n", 1e3 * m->commit);
    printf("forward   %s tokens/s\n",
           reef_cli_count((uint64_t)((double)m->forward_tokens / m->forward_seconds), words));
    // The baseline's line directly below ours.
    print_baseline(m, r);
    putchar('\n');
    reef_bench_machine_print(&m->machine);
}

// ---- the command --------------------------------------------------------------------------------

// How many threads "one per core" is.
static reef_status count_threads(const reef_cli_call *cli, size_t *threads, reef_error *err) {
    reef_thread_pool *workers = NULL;
    reef_status status = reef_thread_pool_new(&workers, cli->threads, err);
    if (status != REEF_OK) return status;
    *threads = reef_thread_pool_count(workers);
    reef_thread_pool_free(workers);
    return REEF_OK;
}

// What differs from the default on this command, and what no baseline can follow.
static reef_status settle_config(const reef_cli_call *cli, reef_config *config, reef_error *err) {
    // A boundary in a measured step would not be comparable.
    if (reef_cli_text(cli, "boundaries") == NULL) config->boundaries = REEF_BOUNDARIES_GIVEN;
    // Everything below only concerns a comparison.
    if (reef_cli_text(cli, "rival") == NULL) return REEF_OK;
    // Rehearsal has no counterpart in the baseline.
    if (reef_cli_text(cli, "rehearse") == NULL) config->rehearse = 0;
    // The baseline has neither of these layers, so a comparison would not be fair.
    if (strpbrk(config->ffw, "mk") != NULL || config->subkeys != REEF_SUBKEYS_SHARED)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--rival knows --ffw with letters p and d, and --subkeys shared only");
    // Without PEER layers there is nothing more to check.
    if (reef_cli_peer_layers(config) == 0) return REEF_OK;
    // The baseline has exactly this form of the layer.
    if (config->expert == REEF_EXPERT_GELU && config->score == REEF_SCORE_SOFTMAX &&
        config->batch_norm)
        return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--rival knows PEER layers with --expert gelu, "
                     "--score softmax and --batch-norm true only");
}

static reef_status read_options(const reef_cli_call *cli,
                                reef_config *config,
                                measurement *m,
                                reef_error *err) {
    reef_status status = reef_cli_integer(cli, "steps", 1, STEPS_MAX, &m->steps, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "rounds", 1, ROUNDS_MAX, &m->rounds, err);
    if (status == REEF_OK) status = reef_cli_config(cli, config, err);
    if (status == REEF_OK) status = reef_bench_wants_text(config, err);
    if (status == REEF_OK) status = settle_config(cli, config, err);
    if (status == REEF_OK) status = count_threads(cli, &m->threads, err);
    // A step's tokens, for the rates and for the length of the text.
    m->step_tokens = (uint64_t)config->batch * config->context;
    return status;
}

static reef_status measure_in_directory(const reef_cli_call *cli,
                                        const reef_config *config,
                                        measurement *m,
                                        baseline *r,
                                        reef_error *err) {
    reef_bench_directory directory = {0};
    reef_status status = reef_bench_directory_new(&directory, err);
    if (status != REEF_OK) return status;
    // A temporary pool: the benchmark changes nothing of the user's.
    char *path = reef_cli_format("%s/pool", directory.path);
    status = measure_rounds(cli, path, config, m, r, err);
    free(path);
    reef_bench_directory_remove(&directory);
    return status;
}

// What the machine does at the shapes of one of the model's PEER layers, whether it has one or not.
static reef_status measure_machine(const reef_config *config, measurement *m, reef_error *err) {
    const reef_router_shape shape = {.d_model = config->d_model,
                                     .head_count = config->heads,
                                     .topk = config->topk,
                                     .d_key = config->d_key,
                                     .side = config->side};
    return reef_bench_machine_measure(&shape, (size_t)m->step_tokens, m->threads, &m->machine, err);
}

reef_status reef_cmd_bench_step(reef_cli_call *cli, reef_error *err) {
    measurement m = {.steps = STEPS_DEFAULT, .rounds = 1};
    baseline r = {.script = reef_cli_text(cli, "rival")};
    reef_config config = {0};
    reef_status status = read_options(cli, &config, &m, err);
    if (status != REEF_OK) return status;
    // One number per step and one per round, allocated before the measurement begins.
    m.step_seconds = reef_cli_alloc(m.steps, sizeof(*m.step_seconds));
    m.round_seconds = reef_cli_alloc(m.rounds, sizeof(*m.round_seconds));
    r.results = reef_cli_alloc(m.rounds, sizeof(*r.results));
    status = measure_in_directory(cli, &config, &m, &r, err);
    if (status == REEF_OK) status = measure_machine(&config, &m, err);
    if (status != REEF_OK) goto cleanup;
    // Only now is the number of our own parameters known.
    judge_baseline(&m, &r);
    // A baseline that fails is a warning: our own figures are still good.
    if (r.error.status != REEF_OK)
        fprintf(stderr, "reef: baseline not measured%s: %s\n", r.count > 0 ? " to the end" : "",
                r.error.message);
    if (cli->json)
        status = reef_cli_reply(cli, measurement_json(&config, &m, &r), err);
    else
        print_measurement(&config, &m, &r);

cleanup:
    free(m.step_seconds);
    free(m.round_seconds);
    free(r.results);
    return status;
}
