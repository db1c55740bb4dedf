// The gate of one generation along a text: by how much it fires, or does not.
#include "model_internal.h"

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
    reef_status status = margins == NULL ? REEF_OK : reef_model_check_reads_text(model, err);
    if (status != REEF_OK) return status;
    const reef_generation *generation = model->network.generations[number];
    *stats = (reef_gate_stats){.decay = generation->gate.decay,
                               .prior = generation->gate.prior,
                               .threshold = generation->gate.threshold,
                               .leak = generation->gate_leak,
                               .detect = generation->gate_detect};
    // Only the gate's own values were asked for.
    if (margins == NULL || count == 0) return REEF_OK;
    reef_gate_state state;
    reef_gate_reset(&generation->gate, &state);
    reef_gate_score(&generation->gate, &state, count, bytes, margins);
    return REEF_OK;
}
