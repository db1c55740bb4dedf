// reef bench step: how fast this machine trains, and where the time of a step goes.
//
// The pool is a temporary one, removed at the end, on success and on failure.
#include "bench.h"
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>

#define STEPS_DEFAULT 20
#define STEPS_MAX 100000
#define WARMUP_STEPS 3 // pages, caches and OpenBLAS settle

static const cli_option OPTIONS[] = {
    {"steps", "N", "training steps to measure (default: 20)"},
    {0},
};

const cli_manual bench_step_manual = {
    .about = "Makes a temporary pool with the given configuration, trains it on generated text and "
             "measures\n"
             "training steps, a commit and a forward pass. Drift detection is off unless --drift "
             "is given.",
    .options = OPTIONS,
    .example = "reef bench step\n"
               "reef bench step --side 128 --threads 1 --steps 50 --json",
};

typedef struct measurement {
    uint64_t steps, step_tokens;
    double seconds;                                   // of the measured steps
    double backbone, router, experts, update, commit; // commit: of one commit after the steps
    double forward_seconds;
    uint64_t forward_tokens;
    size_t threads;
} measurement;

static reef_status train(reef_trainer *trainer,
                         const uint8_t *text,
                         size_t count,
                         size_t *at,
                         uint64_t steps,
                         cli_progress *progress,
                         reef_error *err) {
    for (uint64_t done = 0; done < steps;) {
        size_t taken = 0, ran = 0;
        reef_status status =
            reef_trainer_feed(trainer, "bench", text + *at, count - *at, &taken, &ran, err);
        if (status != REEF_OK) return status;
        *at += taken;
        done += ran;
        cli_progress_show(progress, done);
        if (ran == 0 && (taken == 0 || *at == count))
            return reef_fail(err, REEF_INVALID,
                             "the generated text ended after %" PRIu64 " of %" PRIu64 " steps",
                             done, steps);
    }
    return REEF_OK;
}

// A batch of the stream per step; the first steps only warm up.
static reef_status measure_steps(reef_trainer *trainer,
                                 const uint8_t *text,
                                 size_t count,
                                 measurement *m,
                                 cli_progress *progress,
                                 reef_error *err) {
    reef_trainer_status before, after;
    size_t at = 0;
    reef_status status = train(trainer, text, count, &at, WARMUP_STEPS, progress, err);
    if (status != REEF_OK) return status;
    progress->done_before = WARMUP_STEPS;
    reef_trainer_status_read(trainer, &before);
    double started = cli_clock();
    status = train(trainer, text, count, &at, m->steps, progress, err);
    if (status != REEF_OK) return status;
    m->seconds = cli_clock() - started;
    reef_trainer_status_read(trainer, &after);
    m->router = after.seconds_router - before.seconds_router;
    m->experts = after.seconds_experts - before.seconds_experts;
    m->update = after.seconds_update - before.seconds_update;
    // Attention, norms, embedding, head, and the little that is neither.
    m->backbone = m->seconds - m->router - m->experts - m->update;
    return REEF_OK;
}

static reef_status measure_training(
    reef_trainer *trainer, const uint8_t *text, size_t count, measurement *m, reef_error *err) {
    cli_progress progress;
    cli_progress_start(&progress, "training", m->steps + WARMUP_STEPS, "steps");
    reef_status status = measure_steps(trainer, text, count, m, &progress, err);
    cli_progress_end(&progress);
    if (status != REEF_OK) return status;
    reef_commit commit;
    double started = cli_clock();
    status = reef_trainer_commit(trainer, &commit, err);
    m->commit = cli_clock() - started;
    return status;
}

static reef_status measure_forward(const cli_call *cli,
                                   reef_store *store,
                                   const uint8_t *text,
                                   size_t count,
                                   measurement *m,
                                   reef_error *err) {
    reef_model *model = NULL;
    reef_score score = {0};
    reef_status status =
        reef_model_open(&model, store, NULL, &(reef_model_options){.threads = cli->threads}, err);
    if (status == REEF_OK) {
        double started = cli_clock();
        status = reef_model_score(model, text, count, NULL, &score, NULL, NULL, err);
        m->forward_seconds = cli_clock() - started;
        m->forward_tokens = score.bytes;
    }
    reef_model_close(model);
    return status;
}

static reef_status measure(const cli_call *cli,
                           const char *path,
                           const reef_config *config,
                           measurement *m,
                           reef_error *err) {
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_store_options options = {.write = true};
    reef_trainer_options trainer_options = {.threads = cli->threads};
    // One batch more than needed: the last byte of a batch has to be followed by one to predict.
    size_t count = (size_t)(m->step_tokens * (m->steps + WARMUP_STEPS + 1)) + config->batch;
    uint8_t *text = bench_text(count);

    reef_status status = reef_pool_init(path, config, err);
    if (status != REEF_OK) goto cleanup;
    status = reef_store_open(&store, path, &options, err);
    if (status != REEF_OK) goto cleanup;
    status = reef_trainer_open(&trainer, store, &trainer_options, err);
    if (status != REEF_OK) goto cleanup;
    status = measure_training(trainer, text, count, m, err);
    if (status != REEF_OK) goto cleanup;
    status = measure_forward(cli, store, text, count, m, err);

cleanup:
    reef_trainer_close(trainer);
    if (store) reef_store_close(store);
    free(text);
    return status;
}

// A step's parts are summed over the steps; the commit is the one that followed them.
static json_t *measurement_json(const measurement *m) {
    double tokens = (double)(m->steps * m->step_tokens);
    json_t *parts = json_pack("{s:o, s:o, s:o, s:o, s:o}", "backbone", cli_real(m->backbone),
                              "retrieval", cli_real(m->router), "experts", cli_real(m->experts),
                              "optimiser", cli_real(m->update), "commit", cli_real(m->commit));
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:s, s:I}", "steps", (json_int_t)m->steps,
                     "tokens_per_step", (json_int_t)m->step_tokens, "seconds", cli_real(m->seconds),
                     "step_tokens_per_s", cli_real(tokens / m->seconds), "forward_tokens_per_s",
                     cli_real((double)m->forward_tokens / m->forward_seconds), "seconds_in", parts,
                     "kernels", reef_kernels_name(), "threads", (json_int_t)m->threads);
}

static void print_measurement(const measurement *m) {
    char words[CLI_WORD_BYTES];
    double step_ms = 1e3 * m->seconds / (double)m->steps;
    double tokens_per_s = (double)(m->steps * m->step_tokens) / m->seconds;
    printf("training  %s tokens/s", cli_count((uint64_t)tokens_per_s, words));
    printf(" (%" PRIu64 " steps of %" PRIu64 " tokens, %.1f ms each; %s kernels, %zu threads)\n",
           m->steps, m->step_tokens, step_ms, reef_kernels_name(), m->threads);
    static const char *const HEADING[] = {"  of a step", "ms", "%"};
    const struct {
        const char *name;
        double seconds;
    } parts[] = {{"  backbone", m->backbone},
                 {"  retrieval", m->router},
                 {"  experts", m->experts},
                 {"  optimiser", m->update}};
    cli_table *table = cli_table_new("<>>", HEADING);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        cli_table_cell(table, "%s", parts[i].name);
        cli_table_cell(table, "%.2f", 1e3 * parts[i].seconds / (double)m->steps);
        cli_table_cell(table, "%.1f", 100 * parts[i].seconds / m->seconds);
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
    printf("commit    %.1f ms\n", 1e3 * m->commit);
    printf("forward   %s tokens/s\n",
           cli_count((uint64_t)((double)m->forward_tokens / m->forward_seconds), words));
}

// How many threads "one per core" is.
static reef_status count_threads(const cli_call *cli, size_t *threads, reef_error *err) {
    reef_workers *workers = NULL;
    reef_status status = reef_workers_new(&workers, cli->threads, err);
    if (status != REEF_OK) return status;
    *threads = reef_workers_count(workers);
    reef_workers_free(workers);
    return REEF_OK;
}

reef_status cmd_bench_step(cli_call *cli, reef_error *err) {
    measurement m = {.steps = STEPS_DEFAULT};
    reef_config config;
    reef_status status = cli_integer(cli, "steps", 1, STEPS_MAX, &m.steps, err);
    if (status == REEF_OK) status = cli_config(cli, &config, err);
    if (status == REEF_OK) status = count_threads(cli, &m.threads, err);
    if (status != REEF_OK) return status;
    if (!cli_text(cli, "drift")) config.drift = false;
    m.step_tokens = (uint64_t)config.batch * config.context;

    char *directory = NULL;
    status = bench_directory_new(&directory, err);
    if (status != REEF_OK) return status;
    char *path = cli_format("%s/pool", directory);
    status = measure(cli, path, &config, &m, err);
    free(path);
    bench_directory_remove(directory);
    if (status != REEF_OK) return status;
    if (cli->json) return cli_answer(cli, measurement_json(&m), err);
    print_measurement(&m);
    return REEF_OK;
}
