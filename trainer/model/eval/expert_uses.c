// Which experts a text uses, and where it uses one of them.
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

// One expert while a text is read: by token of the last pass, its score (0: not chosen) and what it
// said.
typedef struct watched {
    const reef_model *model;
    uint32_t generation, layer, expert;
    double *scores, *activations; // (stride)
} watched;

static double activation_of(const reef_expert_shape *shape, const float *hidden, size_t p) {
    float value = 1.0f;
    if (shape->kind == REEF_EXPERT_VALUE) return 1.0;
    if (shape->kind == REEF_EXPERT_RELU) return hidden[p] > 0.0f ? (double)hidden[p] : 0.0;
    reef_gelu(1, &value, hidden + (shape->kind == REEF_EXPERT_GLU ? shape->P + p : p));
    return (double)value * (shape->kind == REEF_EXPERT_GLU ? (double)hidden[p] : 1.0);
}

// Gates that read losses ask for passes before the one that counts, which comes last.
static void on_experts(void *context, size_t g, uint32_t l) {
    watched *w = context;
    // The callback comes for every generation and layer of the pass; only one of them is watched.
    if (g != w->generation || l != w->layer) return;
    const reef_model *model = w->model;
    reef_expert_shape shape = reef_generation_expert_shape(&model->network.config, l);
    const reef_activations_table *table = &model->acts.expert_tables[g][0];
    // Cleared here, where the pass that counts overwrites an earlier one.
    memset(w->scores, 0, model->stride * sizeof(*w->scores));
    for (size_t t = 0; t < model->stride; t++) {
        // The generation was silent in this whole window, and its tape is old.
        if (!model->acts.window_active[t / model->network.config.context]) continue;
        const float *hidden = table->hidden + t * reef_expert_hidden_values(&shape);
        for (size_t p = 0; p < shape.P; p++) {
            if (table->tape.indices[t * shape.P + p] != w->expert) continue;
            // The same expert may be chosen by several heads; their weights add up.
            w->scores[t] += (double)table->tape.gate[t * shape.P + p];
            w->activations[t] = activation_of(&shape, hidden, p);
        }
    }
}

static reef_status check_expert(const reef_network *network,
                                uint32_t generation,
                                uint32_t layer,
                                uint32_t expert,
                                reef_error *err) {
    if (generation >= network->generation_count || layer >= network->config.layers ||
        expert >= network->generations[generation]->expert_tables[layer].expert_count)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "no expert %" PRIu32 " in layer %" PRIu32 " of generation %" PRIu32
                         ": the state has %zu generations, the last of them %" PRIu32
                         " experts a side",
                         expert, layer, generation, network->generation_count,
                         network->generations[network->generation_count - 1]->info.side);
    return REEF_OK;
}

reef_status reef_model_expert_uses(reef_model *model,
                                   uint32_t generation,
                                   uint32_t layer,
                                   uint32_t expert,
                                   const uint8_t *bytes,
                                   size_t count,
                                   reef_expert_visit visit,
                                   void *context,
                                   reef_error *err) {
    reef_status status = reef_model_check_text(model, bytes, count, err);
    if (status != REEF_OK) return status;
    reef_gating gating = {0};
    watched w = {model,
                 generation,
                 layer,
                 expert,
                 calloc(model->stride, sizeof(*w.scores)),
                 calloc(model->stride, sizeof(*w.activations))};
    status = check_expert(&model->network, generation, layer, expert, err);
    if (status == REEF_OK && (w.scores == NULL || w.activations == NULL))
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to watch an expert");
    if (status == REEF_OK) status = reef_gating_init(&gating, &model->network, err);
    // Set for the duration of this call alone; a model belongs to one thread.
    model->acts.on_experts = on_experts;
    model->acts.on_experts_context = &w;
    const uint8_t *fire = model->fire + generation * model->stride;
    size_t each = reef_token_bytes(&model->network.config), all = count / each;
    for (size_t at = 0, tokens; status == REEF_OK && at < all; at += model->stride) {
        status = reef_model_run_piece(model, &gating, bytes, all, at, &tokens, err);
        for (size_t t = 0; status == REEF_OK && t < tokens; t++)
            // Where the generation did not fire its scores were computed but not used.
            if ((generation == 0 || fire[t]) && w.scores[t] != 0.0)
                visit(context, (at + t) * each, w.scores[t], w.activations[t]);
    }
    model->acts.on_experts = NULL;
    reef_gating_release(&gating);
    free(w.scores);
    free(w.activations);
    return status;
}
