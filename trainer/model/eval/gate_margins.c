// The gate of one generation along a text: by how much it fires, or does not.
#include "model_internal.h"

#include <string.h>

// Margins along a text of a gate that reads losses: the last one of the model.
static reef_status read_loss_margins(reef_model *model,
                                     const reef_network *network,
                                     const uint8_t *bytes,
                                     size_t count,
                                     reef_gate_stats *stats,
                                     float *margins,
                                     reef_error *err) {
    // The generation that is asked about is the last of the view.
    const float *row = model->margins + (network->generation_count - 1) * model->stride;
    reef_gating gating = {0};
    size_t each = reef_token_bytes(&network->config), all = count / each;
    reef_status status = reef_gating_init(&gating, network, err);
    for (size_t at = 0; status == REEF_OK && at < all; at += model->stride) {
        size_t tokens = all - at < model->stride ? all - at : model->stride;
        const uint8_t *next = at + tokens < all ? bytes + (at + tokens) * each : NULL;
        reef_batch batch;
        bool answered;
        status = reef_residency_renew(&model->residency, &model->network, err);
        if (status == REEF_OK)
            status = reef_model_decide(model, network, &gating, bytes + at * each, tokens, next,
                                       &batch, &answered, err);
        if (status == REEF_OK) memcpy(margins + at, row, tokens * sizeof(*margins));
    }
    size_t T = network->config.context;
    // How many extra passes the losses cost, relative to reading the text once.
    stats->passes = (double)gating.windows / (double)((all + T - 1) / T);
    reef_gating_release(&gating);
    return status;
}

reef_status reef_model_gate_margins(reef_model *model,
                                    uint32_t number,
                                    const uint8_t *bytes,
                                    size_t count,
                                    reef_gate_stats *stats,
                                    float *margins,
                                    reef_error *err) {
    // Checked before the number, since the message about numbers would be misleading.
    if (reef_config_is_layer(&model->network.config))
        return reef_fail(err, REEF_ERR_INVALID, "generations of a model of one layer have no gate");
    if (number == 0 || number >= model->network.generation_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "no gate of generation %u: generations 1 to %zu of this state have one",
                         number, model->network.generation_count - 1);
    reef_status status =
        margins == NULL ? REEF_OK : reef_model_check_text(model, bytes, count, err);
    if (status != REEF_OK) return status;
    const reef_generation *generation = model->network.generations[number];
    *stats = (reef_gate_stats){.decay = generation->gate.decay,
                               .prior = generation->gate.prior,
                               .threshold = generation->gate.threshold,
                               .loss_weight = generation->gate.loss_weight,
                               .loss_reference = generation->gate.loss_reference,
                               .leak = generation->gate_leak,
                               .detect = generation->gate_detect};
    // Only the gate's own values were asked for.
    if (margins == NULL || count == 0) return REEF_OK;
    if (generation->gate.loss_weight > 0.0f) {
        reef_network network = model->network; // a view: what comes later has no say
        network.generation_count = (size_t)number + 1;
        return read_loss_margins(model, &network, bytes, count, stats, margins, err);
    }
    reef_gate_state state;
    // An n-gram gate needs no pass at all: its features are the text's own bytes.
    reef_gate_reset(&generation->gate, &state);
    reef_gate_score(&generation->gate, &state, count / reef_token_bytes(&model->network.config),
                    bytes, margins);
    return REEF_OK;
}
