// See eval_vectors.h.
#include "eval_vectors.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_table.h"
#include "cli_vectors.h"

#include <math.h>
#include <stdlib.h>

static void print_results(const reef_cli_file *files,
                          const reef_cli_accuracy *results,
                          size_t count,
                          uint32_t generations) {
    static const char *const HEADING[] = {"file", "examples", "labelled", "accuracy %",
                                          "answered % by generation"};
    // A column of text for the shares, as their number varies.
    reef_cli_table *table = reef_cli_table_new("<>>><", HEADING);
    for (size_t i = 0; i < count; i++) {
        char words[CLI_WORD_BYTES];
        char *shares = reef_cli_shares(results[i].answered_share, generations);
        reef_cli_table_cell(table, "%s", files[i].path);
        reef_cli_table_cell(table, "%s", reef_cli_count(results[i].examples, words));
        reef_cli_table_cell(table, "%s", reef_cli_count(results[i].labelled, words));
        // A file without labels can be answered but not judged.
        if (isnan(results[i].accuracy))
            reef_cli_table_cell(table, "-");
        else
            reef_cli_table_cell(table, "%.2f", 100 * results[i].accuracy);
        // Which generations answered shows whether the routing found the right one.
        reef_cli_table_cell(table, "%s", shares);
        free(shares);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static json_t *result_json(const reef_cli_file *file,
                           const reef_cli_accuracy *result,
                           uint32_t generations) {
    json_t *shares = json_array();
    for (uint32_t g = 0; g < generations; g++)
        json_array_append_new(shares, reef_cli_real(result->answered_share[g]));
    return json_pack("{s:o, s:I, s:I, s:I, s:o, s:o}", "file", reef_cli_path(file->path),
                     "examples", (json_int_t)result->examples, "labelled",
                     (json_int_t)result->labelled, "right", (json_int_t)result->right, "accuracy",
                     reef_cli_real(result->accuracy), "answered_share", shares);
}

static reef_status reply_results(reef_cli_call *cli,
                                 const char *as_of,
                                 const reef_cli_file *files,
                                 const reef_cli_accuracy *results,
                                 uint32_t generations,
                                 reef_error *err) {
    if (!cli->json) {
        print_results(files, results, cli->operand_count, generations);
        return REEF_OK;
    }
    // The members are those of the model's own result, so that texts and vectors differ only there.
    json_t *array = json_array();
    for (size_t i = 0; i < cli->operand_count; i++)
        json_array_append_new(array, result_json(&files[i], &results[i], generations));
    return reef_cli_reply(cli, json_pack("{s:s, s:o}", "as_of", as_of, "files", array), err);
}

reef_status reef_eval_vectors(reef_cli_call *cli,
                              reef_model *model,
                              const char *as_of,
                              const reef_cli_file *files,
                              reef_error *err) {
    reef_cli_accuracy *results = reef_cli_alloc(cli->operand_count, sizeof(*results));
    uint64_t total = 0;
    // All files count into one bar, so that its ETA is for the whole command.
    for (size_t i = 0; i < cli->operand_count; i++) total += files[i].count;
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "evaluating", total, "B");
    reef_status status = REEF_OK;
    for (size_t i = 0; i < cli->operand_count && status == REEF_OK; i++)
        status = reef_cli_accuracy_measure(model, &files[i], &progress, &results[i], err);
    reef_cli_progress_end(&progress);
    if (status == REEF_OK)
        // Nothing is printed before all files are read, so that a failure leaves no half table.
        status = reply_results(cli, as_of, files, results, reef_model_generation_count(model), err);
    // The shares were allocated by each measurement.
    for (size_t i = 0; i < cli->operand_count; i++) free(results[i].answered_share);
    free(results);
    return status;
}
