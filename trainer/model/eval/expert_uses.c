// Which experts a text uses.
#include "model_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The one block that retrieves: its tape is what a pass, which has one for all layers, leaves
// behind.
static reef_status check_usage(const reef_network *network, size_t expert_count, reef_error *err) {
    size_t retrieving = 0, there = 0;
    // Only with one generation and one retrieving layer does the single tape hold what is asked
    // for.
    for (uint32_t l = 0; network->generation_count == 1 && l < network->config.layers; l++) {
        if (network->generations[0]->expert_tables[l].expert_count == 0) continue;
        there = network->generations[0]->expert_tables[l].expert_count;
        retrieving++;
    }
    if (retrieving == 1 && there == expert_count) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "usage by a text is known for one generation with one block that retrieves "
                     "%zu experts; this model has %zu generations, and %zu blocks, the last of %zu",
                     expert_count, network->generation_count, retrieving, there);
}

reef_status reef_model_usage(reef_model *model,
                             const uint8_t *bytes,
                             size_t count,
                             size_t expert_count,
                             reef_usage *usage,
                             reef_error *err) {
    reef_gating gating = {0};
    reef_status status = reef_model_check_text(model, bytes, count, err);
    if (status == REEF_OK) status = check_usage(&model->network, expert_count, err);
    if (status == REEF_OK) status = reef_gating_init(&gating, &model->network, err);
    size_t P = (size_t)model->network.config.heads * model->network.config.topk;
    size_t all = count / reef_token_bytes(&model->network.config);
    for (size_t at = 0, tokens; status == REEF_OK && at < all; at += model->stride) {
        status = reef_model_run_piece(model, &gating, bytes, all, at, &tokens, err);
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
    reef_gating_release(&gating);
    return status;
}
