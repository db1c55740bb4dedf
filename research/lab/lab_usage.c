// reef-lab usage: which experts a text uses, as in He 2024 section 3.3: z' of every expert over all
// tokens. For the paper's models, in which one block retrieves its experts.
#include "cli_pool.h"
#include "lab.h"
#include "model_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The one block that retrieves: its tape is what a pass, which has one for all layers, leaves
// behind.
static reef_status count_experts(const reef_network *network, size_t *experts, reef_error *err) {
    size_t retrieving = 0;
    // Only with one generation and one retrieving layer does the single tape hold what is asked
    // for.
    for (uint32_t l = 0; network->generation_count == 1 && l < network->config.layers; l++) {
        if (network->generations[0]->expert_tables[l].expert_count == 0) continue;
        *experts = network->generations[0]->expert_tables[l].expert_count;
        retrieving++;
    }
    if (retrieving == 1) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "usage by a text is known for one generation with one block that retrieves; "
                     "this model has %zu generations, and %zu blocks",
                     network->generation_count, retrieving);
}

// usage  (experts) added to
static reef_status add_uses(
    reef_model *model, const uint8_t *bytes, size_t count, reef_usage *usage, reef_error *err) {
    reef_status status = reef_model_check_reads_text(model, err);
    size_t P = (size_t)model->network.config.heads * model->network.config.topk;
    for (size_t at = 0, tokens; status == REEF_OK && at < count; at += model->stride) {
        status = reef_model_run_piece(model, bytes, count, at, &tokens, err);
        if (status != REEF_OK) break;
        const reef_router_tape *tape = &model->acts.expert_tables[0][0].tape;
        for (size_t i = 0; i < tokens * P; i++) {
            // Scores are stored as integers with a fixed scale: sums of them do not depend on
            // order.
            double score = fmin((double)tape->gate[i], REEF_USAGE_SCORE_MAX);
            usage[tape->indices[i]].count++;
            usage[tape->indices[i]].score += (uint64_t)(score * REEF_USAGE_SCORE_ONE + 0.5);
        }
    }
    return status;
}

static const reef_cli_option OPTIONS[] = {
    {"bytes", "N", "the beginning of the text alone (default: all)"},
    {0},
};

const reef_cli_manual reef_lab_usage_manual = {
    .about =
        "The share of experts that a text uses at all, and how far their shares of it are from\n"
        "equal ones (the divergence of Kullback and Leibler, in nats).",
    .options = OPTIONS,
    .example = "reef-lab usage reef.pool held.txt --json",
};

static reef_status measure(reef_model *model,
                           const reef_cli_file *file,
                           uint64_t bytes,
                           reef_usage_summary *out,
                           reef_error *err) {
    size_t experts = 0;
    reef_status status = count_experts(&model->network, &experts, err);
    if (status != REEF_OK) return status;
    reef_usage *usage = reef_cli_alloc(experts, sizeof(*usage));
    status =
        add_uses(model, file->bytes, file->count < bytes ? file->count : (size_t)bytes, usage, err);
    reef_usage_summarise(experts, usage, out);
    free(usage);
    return status;
}

reef_status reef_lab_usage(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    reef_cli_file file = {0};
    reef_model *model = NULL;
    reef_usage_summary found = {0};
    uint64_t bytes = UINT64_MAX;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "bytes", 2, UINT64_MAX, &bytes, err);
    if (status == REEF_OK) status = reef_cli_text_read(&file, cli->operands[0], err);
    if (status == REEF_OK) status = reef_cli_model_open(&model, cli, pool.store, "now", err);
    if (status == REEF_OK) status = measure(model, &file, bytes, &found, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli,
                                json_pack("{s:o, s:o}", "used_percent",
                                          reef_cli_real(found.used_percent), "unevenness",
                                          reef_cli_real(found.unevenness)),
                                err);
    else if (status == REEF_OK)
        printf("used  %.2f %%\nunevenness  %.4f\n", found.used_percent, found.unevenness);
    reef_model_close(model);
    reef_cli_file_release(&file);
    reef_cli_pool_close(&pool);
    return status;
}
