// reef-lab step: how fast this machine trains a model, and where the time of a step goes.
//
// The pool is a temporary one, removed at the end, on success and on failure. A rival alternates
// with ours, and every figure of either is a median, so that other load on the machine affects both
// alike.
#include "cli_format.h"
#include "cli_progress.h"
#include "lab.h"
#include "reef_model.h"
#include "reef_system.h"
#include "reef_trainer.h"
#include "scratch_pool.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 100000
#define ROUNDS_MAX 100
#define WARMUP_STEPS 3 // of a round: pages, caches and OpenBLAS settle

static const reef_cli_option OPTIONS[] = {
    {"model", "NAME=VALUE,...", "fields of the model's configuration, as options of reef init"},
    {"steps", "N", "training steps to measure in a round (default: 20)"},
    {"rival", "SCRIPT", "Python script that trains the same model otherwise"},
    {"rounds", "N", "how often ours and the rival are measured in turn (default: 1)"},
    {0},
};

const reef_cli_manual reef_lab_step_manual = {
    .about =
        "Makes a temporary pool of a net alone with the given configuration, trains it on\n"
        "generated text and measures training steps, a commit and a forward pass.\n"
        "\n"
        "research/torch/step.py is a rival: the same transformer in PyTorch, run by\n"
        "/usr/bin/python3 with the shape of the model as named arguments. It prints one line of\n"
        "JSON with step_seconds, parameters and torch.",
    .options = OPTIONS,
    .example = "reef-lab step --model side=128,d_model=128 --threads 1 --steps 50 --json\n"
               "reef-lab step --rival research/torch/step.py --model ffw=ddpd --rounds 3",
};

typedef struct step {
    reef_config config;
    uint64_t rounds, steps, step_tokens; // steps: of a round
    size_t threads;
    double *step_seconds;                             // (steps) of the round that is measured now
    double *round_seconds;                            // (rounds) the median step of each
    uint64_t steps_run;                               // in all rounds
    double seconds;                                   // of the measured steps, all rounds
    double backbone, router, experts, update, commit; // commit: of one commit after the steps
    double forward_tokens_per_s;
    uint64_t parameters;
    const char *script;    // of the rival, or NULL
    double *rival_seconds; // (rounds) of a step
    size_t rival_count;
    char torch[32];
    reef_error rival_error; // the first failure ends its rounds
} step;

static double step_median(const step *s) {
    return reef_lab_median(s->round_seconds, s->rounds, 1);
}

static double rival_median(const step *s) {
    return s->rival_count > 0 ? reef_lab_median(s->rival_seconds, s->rival_count, 1) : NAN;
}

// ---- ours ---------------------------------------------------------------------------------------

// At least `steps` steps; *run is the number.
//
// seconds  (steps) written: of each step; NULL for none
static reef_status train_steps(reef_trainer *trainer,
                               const uint8_t *text,
                               size_t count,
                               size_t *at,
                               uint64_t steps,
                               double *seconds,
                               uint64_t *run,
                               reef_error *err) {
    double started = reef_seconds();
    for (*run = 0; *run < steps;) {
        // A feed takes a batch or a part of it; not every call runs a step.
        size_t taken = 0, ran = 0;
        reef_status status =
            reef_trainer_feed(trainer, "lab", text + *at, count - *at, &taken, &ran, err);
        if (status != REEF_OK) return status;
        *at += taken;
        // A call that runs several steps gives each its share of the time.
        double each = (reef_seconds() - started) / (double)(ran ? ran : 1);
        for (size_t i = 0; seconds != NULL && i < ran && *run + i < steps; i++)
            seconds[*run + i] = each;
        // The clock runs on until a step has run, so that filling the batch is part of the step.
        if (ran > 0) started = reef_seconds();
        *run += ran;
        if (ran == 0 && (taken == 0 || *at == count))
            return reef_fail(err, REEF_ERR_INVALID,
                             "the generated text ended after %" PRIu64 " of %" PRIu64 " steps",
                             *run, steps);
    }
    return REEF_OK;
}

// A batch of the stream per step; the first steps only warm up.
static reef_status measure_steps(
    step *s, reef_trainer *trainer, const uint8_t *text, size_t count, reef_error *err) {
    reef_trainer_status before, after;
    size_t at = 0;
    uint64_t run;
    reef_status status = train_steps(trainer, text, count, &at, WARMUP_STEPS, NULL, &run, err);
    if (status != REEF_OK) return status;
    reef_trainer_status_read(trainer, &before);
    double started = reef_seconds();
    status = train_steps(trainer, text, count, &at, s->steps, s->step_seconds, &run, err);
    if (status != REEF_OK) return status;
    double seconds = reef_seconds() - started;
    reef_trainer_status_read(trainer, &after);
    // The trainer clocks retrieval, experts and the update by itself.
    double router = after.seconds_router - before.seconds_router;
    double experts = after.seconds_experts - before.seconds_experts;
    double update = after.seconds_update - before.seconds_update;
    s->steps_run += run;
    s->seconds += seconds;
    s->router += router;
    s->experts += experts;
    s->update += update;
    // Attention, norms, embedding, head, and the little that is neither.
    s->backbone += seconds - router - experts - update;
    return REEF_OK;
}

static reef_status measure_forward(
    step *s, reef_store *store, const uint8_t *text, size_t count, reef_error *err) {
    reef_model *model = NULL;
    reef_score score = {0};
    reef_status status =
        reef_model_open(&model, store, NULL, &(reef_model_options){.threads = s->threads}, err);
    if (status == REEF_OK) {
        double started = reef_seconds();
        status = reef_model_score(model, text, count, NULL, &score, NULL, NULL, err);
        s->forward_tokens_per_s = (double)score.bytes / (reef_seconds() - started);
        s->parameters = reef_model_parameter_count(model);
    }
    reef_model_close(model);
    return status;
}

// ---- the rival ----------------------------------------------------------------------------------

// The last line that is a JSON object, or NULL. Cuts the text. The caller's.
static json_t *last_object(char *text) {
    json_t *found = NULL;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        json_t *value = json_loads(line, 0, NULL);
        if (json_is_object(value)) {
            json_decref(found);
            found = json_incref(value);
        }
        json_decref(value);
    }
    return found;
}

static void measure_rival(step *s) {
    if (s->script == NULL || s->rival_error.status != REEF_OK) return;
    const reef_config *c = &s->config;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"--layers", c->layers},   {"--d-model", c->d_model},
                   {"--context", c->context}, {"--batch", c->batch},
                   {"--d-ffw", c->d_ffw},     {"--attention-heads", c->attention_heads},
                   {"--side", c->side},       {"--heads", c->heads},
                   {"--topk", c->topk},       {"--d-key", c->d_key},
                   {"--threads", s->threads}, {"--steps", s->steps}};
    enum { NUMBER_COUNT = sizeof(numbers) / sizeof(numbers[0]) };
    char values[NUMBER_COUNT][24], *text;
    const char *arguments[3 + 2 * NUMBER_COUNT + 1] = {s->script, "--ffw", c->ffw};
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        snprintf(values[i], sizeof(values[i]), "%" PRIu64, numbers[i].value);
        arguments[3 + 2 * i] = numbers[i].name;
        arguments[4 + 2 * i] = values[i];
    }
    if (reef_lab_python_run(&text, arguments, &s->rival_error) != REEF_OK) return;
    json_t *object = last_object(text);
    double seconds = json_number_value(json_object_get(object, "step_seconds"));
    uint64_t parameters = (uint64_t)json_integer_value(json_object_get(object, "parameters"));
    const char *torch = json_string_value(json_object_get(object, "torch"));
    if (!(seconds > 0))
        reef_fail(&s->rival_error, REEF_ERR_IO, "%.120s printed no line of JSON with step_seconds",
                  s->script);
    // Equal numbers of parameters are a necessary sign that the rival is the same model.
    else if (parameters != s->parameters)
        reef_fail(&s->rival_error, REEF_ERR_INVALID,
                  "%.120s is not a copy of this model: it has %" PRIu64
                  " parameters, ours %" PRIu64,
                  s->script, parameters, s->parameters);
    else
        s->rival_seconds[s->rival_count++] = seconds;
    if (torch != NULL) snprintf(s->torch, sizeof(s->torch), "%s", torch);
    json_decref(object);
    free(text);
}

// ---- the whole ----------------------------------------------------------------------------------

static reef_status measure_rounds(step *s,
                                  reef_store *store,
                                  reef_trainer *trainer,
                                  reef_error *err) {
    // One batch more than needed: the last byte of a batch is followed by one to predict.
    size_t count = (size_t)(s->step_tokens * (s->steps + WARMUP_STEPS + 1)) + s->config.batch;
    uint8_t *text = reef_scratch_text(count);
    reef_cli_progress progress;
    reef_status status = REEF_OK;
    // Before the rounds, as a rival must have as many parameters.
    status = measure_forward(s, store, text, count, err);
    reef_cli_progress_start(&progress, "training", s->rounds, "rounds");
    for (uint64_t round = 0; round < s->rounds && status == REEF_OK; round++) {
        status = measure_steps(s, trainer, text, count, err);
        s->round_seconds[round] = reef_lab_median(s->step_seconds, s->steps, 1);
        if (status == REEF_OK) measure_rival(s);
        reef_cli_progress_show(&progress, round + 1);
    }
    reef_cli_progress_end(&progress);
    reef_commit commit;
    double started = reef_seconds();
    if (status == REEF_OK) status = reef_trainer_commit(trainer, &commit, err);
    s->commit = reef_seconds() - started;
    free(text);
    return status;
}

static reef_status measure(step *s, reef_error *err) {
    reef_scratch_directory directory = {0};
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_status status = reef_scratch_directory_new(&directory, err);
    if (status != REEF_OK) return status;
    char *path = reef_cli_format("%s/pool", directory.path);
    status = reef_pool_init(path, &s->config, err);
    if (status == REEF_OK)
        status = reef_store_open(&store, path, &(reef_store_options){.write = true}, err);
    if (status == REEF_OK)
        status =
            reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = s->threads}, err);
    if (status == REEF_OK) status = measure_rounds(s, store, trainer, err);
    reef_trainer_close(trainer);
    reef_store_close(store);
    free(path);
    reef_scratch_directory_remove(&directory);
    return status;
}

// ---- answers ------------------------------------------------------------------------------------

static json_t *document(const step *s) {
    json_t *parts =
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "backbone", reef_cli_real(s->backbone), "retrieval",
                  reef_cli_real(s->router), "experts", reef_cli_real(s->experts), "optimiser",
                  reef_cli_real(s->update), "commit", reef_cli_real(s->commit));
    double ours = (double)s->step_tokens / step_median(s);
    double theirs = (double)s->step_tokens / rival_median(s);
    json_t *found = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "ffw", s->config.ffw,
        "parameters", (json_int_t)s->parameters, "rounds", (json_int_t)s->rounds, "steps",
        (json_int_t)s->steps_run, "tokens_per_step", (json_int_t)s->step_tokens, "step_seconds",
        reef_cli_real(step_median(s)), "step_tokens_per_s", reef_cli_real(ours),
        "forward_tokens_per_s", reef_cli_real(s->forward_tokens_per_s), "seconds_in", parts,
        "rival_step_tokens_per_s", reef_cli_real(theirs), "rival_step_ratio",
        reef_cli_real(ours / theirs), "torch", s->torch);
    reef_lab_machine_json(found, s->threads);
    return found;
}

static void print(const step *s) {
    static const char *const HEADING[] = {"of a step", "ms", "%"};
    char words[CLI_WORD_BYTES];
    const struct {
        const char *name;
        double seconds;
    } parts[] = {{"backbone", s->backbone},
                 {"retrieval", s->router},
                 {"experts", s->experts},
                 {"optimiser", s->update}};
    reef_lab_machine_print(s->threads);
    printf("model     --ffw %s, %s parameters\n", s->config.ffw,
           reef_cli_count(s->parameters, words));
    printf("training  %s tokens/s (%" PRIu64 " steps of %" PRIu64 " tokens, median %.1f ms)\n",
           reef_cli_count((uint64_t)((double)s->step_tokens / step_median(s)), words), s->steps_run,
           s->step_tokens, 1e3 * step_median(s));
    printf("commit    %.1f ms\nforward   %s tokens/s\n", 1e3 * s->commit,
           reef_cli_count((uint64_t)s->forward_tokens_per_s, words));
    if (s->rival_count > 0)
        printf("rival     %.1f ms a step with PyTorch %s: reef is %.2f times as fast\n",
               1e3 * rival_median(s), s->torch, rival_median(s) / step_median(s));
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        reef_cli_table_cell(table, "%s", parts[i].name);
        reef_cli_table_cell(table, "%.2f", 1e3 * parts[i].seconds / (double)s->steps_run);
        reef_cli_table_cell(table, "%.1f", 100 * parts[i].seconds / s->seconds);
    }
    putchar('\n');
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

// ---- the command --------------------------------------------------------------------------------

static reef_status read_options(const reef_cli_call *cli, step *s, reef_error *err) {
    reef_status status = reef_cli_integer(cli, "steps", 1, STEPS_MAX, &s->steps, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "rounds", 1, ROUNDS_MAX, &s->rounds, err);
    if (status == REEF_OK) status = reef_lab_model_read(cli, &s->config, err);
    reef_thread_pool *workers = NULL;
    if (status == REEF_OK) status = reef_thread_pool_new(&workers, cli->threads, err);
    s->threads = reef_thread_pool_count(workers); // how many "one per core" is
    reef_thread_pool_free(workers);
    s->step_tokens = (uint64_t)s->config.batch * s->config.context;
    return status;
}

reef_status reef_lab_step(reef_cli_call *cli, reef_error *err) {
    step s = {.steps = 20, .rounds = 1, .script = reef_cli_text(cli, "rival")};
    reef_status status = read_options(cli, &s, err);
    if (status != REEF_OK) return status;
    s.step_seconds = reef_cli_alloc(s.steps, sizeof(*s.step_seconds));
    s.round_seconds = reef_cli_alloc(s.rounds, sizeof(*s.round_seconds));
    s.rival_seconds = reef_cli_alloc(s.rounds, sizeof(*s.rival_seconds));
    status = measure(&s, err);
    // A rival that fails is a warning: our own figures are still good.
    if (s.rival_error.status != REEF_OK)
        fprintf(stderr, "reef-lab: rival not measured: %s\n", s.rival_error.message);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, document(&s), err);
    else if (status == REEF_OK)
        print(&s);
    free(s.step_seconds);
    free(s.round_seconds);
    free(s.rival_seconds);
    return status;
}
