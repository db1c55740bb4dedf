// reef eval: loss on files, now or as of any earlier state; with --matrix, in every state.
#include "commands.h"
#include "eval_gates.h"
#include "eval_set.h"
#include "eval_vectors.h"
#include "matrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const cli_option OPTIONS[] = {
    {"as-of", "STATE", "a generation, a snapshot, or now (default: now)"},
    {"matrix", NULL, "as of every generation, and now, with what was forgotten"},
    {"gates", NULL,
     "where the gates fire, where they begin to, and what another threshold would do"},
    {"svg", "FILE", "with --gates: also draw what each misses against what it leaks"},
    {"learned", "G,G,...",
     "with --matrix or --gates: the generation in which each file was learned (default: one after "
     "the other, "
     "where there are as many files as generations)"},
    {0},
};

const cli_manual eval_manual = {
    .about = "Reads each file as one stream and prints bits per byte, perplexity per byte, and the "
             "share\n"
             "of bytes on which each generation fired. --as-of G is exactly the function that the "
             "model\n"
             "was when generation G was sealed. --matrix prints forgetting in both usual "
             "definitions:\n"
             "since best (Chaudhry 2018: the least loss of all earlier states, against now) and, "
             "where\n"
             "it is known when a file was learned, since learned (Lopez-Paz 2017: the negative of "
             "backward\n"
             "transfer).\n"
             "\n"
             "--gates reads files, or NAME=FILE, with the gates alone: each from a cold start.\n"
             "\n"
             "With a vector model files are idx:IMAGES,LABELS, npy:X.npy,Y.npy, csv:FILE or "
             "jsonl:FILE, as\n"
             "for reefd, and what is printed is accuracy, and the share of examples in which each\n"
             "generation had the most say.",
    .options = OPTIONS,
    .example = "reef eval reef.pool english.txt code.c\n"
               "reef eval reef.pool --as-of 0 english.txt\n"
               "reef eval reef.pool --matrix english.txt code.c\n"
               "reef eval reef.pool --gates --svg gates.svg english=english.txt c=code.c\n"
               "reef eval mnist.pool idx:t10k-images.gz,t10k-labels.gz",
};

typedef struct file_score {
    reef_score score;
    double *fire_share;
} file_score;

static reef_status read_files(const cli_call *cli,
                              const reef_config *config,
                              cli_file *files,
                              reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; i < cli->operand_count && status == REEF_OK; i++)
        status = cli_examples_read(&files[i], cli->operands[i], config, err);
    return status;
}

static void print_scores(const cli_file *files,
                         const file_score *scores,
                         size_t count,
                         uint32_t generations) {
    static const char *const HEADING[] = {"file", "bytes", "bits/byte", "perplexity/byte",
                                          "fired % by generation"};
    cli_table *table = cli_table_new("<>>><", HEADING);
    for (size_t i = 0; i < count; i++) {
        char words[CLI_WORD_BYTES];
        char *shares = cli_shares(scores[i].fire_share, generations);
        cli_table_cell(table, "%s", files[i].path);
        cli_table_cell(table, "%s", cli_count(scores[i].score.bytes, words));
        cli_table_cell(table, "%.4f", scores[i].score.bits_per_byte);
        cli_table_cell(table, "%.3f", exp2(scores[i].score.bits_per_byte));
        cli_table_cell(table, "%s", shares);
        free(shares);
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

static json_t *score_json(const cli_file *file, const file_score *score, uint32_t generations) {
    json_t *shares = json_array();
    for (uint32_t g = 0; g < generations; g++)
        json_array_append_new(shares, cli_real(score->fire_share[g]));
    return json_pack("{s:o, s:I, s:o, s:o, s:o, s:o}", "file", cli_path(file->path), "bytes",
                     (json_int_t)score->score.bytes, "bits", cli_real(score->score.bits),
                     "bits_per_byte", cli_real(score->score.bits_per_byte), "perplexity_per_byte",
                     cli_real(exp2(score->score.bits_per_byte)), "fire_share", shares);
}

static reef_status answer(cli_call *cli,
                          const char *as_of,
                          const cli_file *files,
                          const file_score *scores,
                          uint32_t generations,
                          reef_error *err) {
    if (!cli->json) {
        print_scores(files, scores, cli->operand_count, generations);
        return REEF_OK;
    }
    json_t *array = json_array();
    for (size_t i = 0; i < cli->operand_count; i++)
        json_array_append_new(array, score_json(&files[i], &scores[i], generations));
    return cli_answer(cli, json_pack("{s:s, s:o}", "as_of", as_of, "files", array), err);
}

static reef_status eval_once(cli_call *cli,
                             cli_pool *pool,
                             const cli_file *files,
                             reef_error *err) {
    if (cli_text(cli, "learned"))
        return reef_fail(err, REEF_INVALID,
                         "--learned is about forgetting: it needs --matrix or --gates");
    const char *as_of = cli_text(cli, "as-of") ? cli_text(cli, "as-of") : "now";
    reef_model *model = NULL;
    reef_status status = reef_model_open(
        &model, pool->store, as_of,
        &(reef_model_options){.threads = cli->threads, .memory_bytes = cli->memory_bytes}, err);
    if (status != REEF_OK) return status;
    if (reef_config_is_vector(&pool->config)) {
        status = eval_vectors(cli, model, as_of, files, err);
        reef_model_close(model);
        return status;
    }
    uint32_t generations = reef_model_generation_count(model);
    file_score *scores = cli_alloc(cli->operand_count, sizeof(*scores));
    uint64_t total = 0;
    for (size_t i = 0; i < cli->operand_count; i++) total += files[i].count;
    cli_progress progress;
    cli_progress_start(&progress, "evaluating", total, "B");
    for (size_t i = 0; i < cli->operand_count && status == REEF_OK; i++) {
        scores[i].fire_share = cli_alloc(generations, sizeof(double));
        scores[i].score.fire_share = scores[i].fire_share;
        status = score_file(model, &files[i], &progress, NULL, &scores[i].score, err);
    }
    cli_progress_end(&progress);
    if (status == REEF_OK) status = answer(cli, as_of, files, scores, generations, err);
    for (size_t i = 0; i < cli->operand_count; i++) free(scores[i].fire_share);
    free(scores);
    reef_model_close(model);
    return status;
}

static json_t *figures_json(const cli_matrix *matrix,
                            double (*figure)(const metrics_matrix *, size_t)) {
    metrics_matrix figures = matrix_metrics(matrix);
    json_t *array = json_array();
    for (size_t j = 0; j < matrix->columns; j++)
        json_array_append_new(array, cli_real(figure(&figures, j)));
    return array;
}

static json_t *summary_json(const cli_matrix *matrix) {
    metrics_matrix figures = matrix_metrics(matrix);
    metrics_summary summary = metrics_summarise(&figures);
    return json_pack("{s:o, s:o, s:o, s:o}", "final_mean", cli_real(summary.final_mean),
                     "forgetting_max", cli_real(summary.forgetting_max), "forgetting_learned",
                     cli_real(summary.forgetting_learned), "backward_transfer",
                     cli_real(summary.backward_transfer));
}

static reef_status eval_matrix(cli_call *cli,
                               cli_pool *pool,
                               const cli_file *files,
                               reef_error *err) {
    if (cli_text(cli, "as-of"))
        return reef_fail(err, REEF_INVALID, "--matrix evaluates every state: it takes no --as-of");
    size_t *learned = cli_alloc(cli->operand_count, sizeof(*learned));
    cli_matrix matrix = {0};
    reef_status status =
        eval_learned_read(cli, pool->generation_count, learned, cli->operand_count, err);
    if (status == REEF_OK)
        status = matrix_measure(&matrix, cli, pool, files, cli->operand_count, err);
    if (status == REEF_OK) memcpy(matrix.learned, learned, cli->operand_count * sizeof(*learned));
    free(learned);
    if (status != REEF_OK) return status;
    const char **names = cli_alloc(cli->operand_count, sizeof(*names));
    json_t *columns = json_array(), *rows = json_array();
    for (size_t i = 0; i < cli->operand_count; i++) {
        names[i] = files[i].path;
        json_array_append_new(columns, cli_path(names[i]));
    }
    for (size_t row = 0; row < matrix.rows; row++) {
        char name[CLI_WORD_BYTES];
        json_array_append_new(rows, json_string(matrix_row_name(&matrix, row, name)));
    }
    if (cli->json)
        status = cli_answer(cli,
                            json_pack("{s:O, s:O, s:o, s:o, s:o, s:o}", "files", columns, "rows",
                                      rows, "matrix", matrix_json(&matrix), "forgetting",
                                      figures_json(&matrix, metrics_forgetting_max),
                                      "forgetting_learned",
                                      figures_json(&matrix, metrics_forgetting_learned), "figures",
                                      summary_json(&matrix)),
                            err);
    else
        matrix_print(&matrix, names);
    json_decref(columns);
    json_decref(rows);
    free(names);
    matrix_release(&matrix);
    return status;
}

reef_status cmd_eval(cli_call *cli, reef_error *err) {
    cli_pool pool = {0};
    cli_file *files = cli_alloc(cli->operand_count, sizeof(*files));
    reef_status status = cli_pool_open(&pool, cli, err);
    if (status == REEF_OK && cli_text(cli, "gates")) {
        status = eval_gates(cli, &pool, err);
        goto cleanup;
    }
    if (status == REEF_OK && cli_text(cli, "svg"))
        status = reef_fail(err, REEF_INVALID, "--svg is a picture of gates: it needs --gates");
    if (status == REEF_OK) status = read_files(cli, &pool.config, files, err);
    if (status == REEF_OK)
        status = cli_text(cli, "matrix") ? eval_matrix(cli, &pool, files, err)
                                         : eval_once(cli, &pool, files, err);

cleanup:
    for (size_t i = 0; i < cli->operand_count; i++) cli_file_release(&files[i]);
    free(files);
    cli_pool_close(&pool);
    return status;
}
