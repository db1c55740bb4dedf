// See eval_vectors.h.
#include "eval_vectors.h"

#include <math.h>
#include <stdlib.h>

static void print_results(const cli_file *files,
                          const cli_accuracy *results,
                          size_t count,
                          uint32_t generations) {
    static const char *const HEADING[] = {"file", "examples", "labelled", "accuracy %",
                                          "answered % by generation"};
    cli_table *table = cli_table_new("<>>><", HEADING);
    for (size_t i = 0; i < count; i++) {
        char words[CLI_WORD_BYTES];
        char *shares = cli_shares(results[i].answered_share, generations);
        cli_table_cell(table, "%s", files[i].path);
        cli_table_cell(table, "%s", cli_count(results[i].examples, words));
        cli_table_cell(table, "%s", cli_count(results[i].labelled, words));
        if (isnan(results[i].accuracy))
            cli_table_cell(table, "-");
        else
            cli_table_cell(table, "%.2f", 100 * results[i].accuracy);
        cli_table_cell(table, "%s", shares);
        free(shares);
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

static json_t *result_json(const cli_file *file, const cli_accuracy *result, uint32_t generations) {
    json_t *shares = json_array();
    for (uint32_t g = 0; g < generations; g++)
        json_array_append_new(shares, cli_real(result->answered_share[g]));
    return json_pack("{s:o, s:I, s:I, s:I, s:o, s:o}", "file", cli_path(file->path), "examples",
                     (json_int_t)result->examples, "labelled", (json_int_t)result->labelled,
                     "right", (json_int_t)result->right, "accuracy", cli_real(result->accuracy),
                     "answered_share", shares);
}

static reef_status answer(cli_call *cli,
                          const char *as_of,
                          const cli_file *files,
                          const cli_accuracy *results,
                          uint32_t generations,
                          reef_error *err) {
    if (!cli->json) {
        print_results(files, results, cli->operand_count, generations);
        return REEF_OK;
    }
    json_t *array = json_array();
    for (size_t i = 0; i < cli->operand_count; i++)
        json_array_append_new(array, result_json(&files[i], &results[i], generations));
    return cli_answer(cli, json_pack("{s:s, s:o}", "as_of", as_of, "files", array), err);
}

reef_status eval_vectors(
    cli_call *cli, reef_model *model, const char *as_of, const cli_file *files, reef_error *err) {
    cli_accuracy *results = cli_alloc(cli->operand_count, sizeof(*results));
    uint64_t total = 0;
    for (size_t i = 0; i < cli->operand_count; i++) total += files[i].count;
    cli_progress progress;
    cli_progress_start(&progress, "evaluating", total, "B");
    reef_status status = REEF_OK;
    for (size_t i = 0; i < cli->operand_count && status == REEF_OK; i++)
        status = cli_accuracy_measure(model, &files[i], &progress, &results[i], err);
    cli_progress_end(&progress);
    if (status == REEF_OK)
        status = answer(cli, as_of, files, results, reef_model_generation_count(model), err);
    for (size_t i = 0; i < cli->operand_count; i++) free(results[i].answered_share);
    free(results);
    return status;
}
