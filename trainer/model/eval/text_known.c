// Does any kind of a pool know a text? See reef_model.h.
#include "model_internal.h"

// The memory that has learned most: its mixer is used, so that only what was learned of texts is
// compared.
static const reef_memory *largest_memory(const reef_model *model) {
    const reef_memory *best = NULL;
    for (size_t g = 0; g < model->network.generation_count; g++) {
        const reef_memory *memory = model->network.generations[g]->memory.memory;
        if (memory != NULL &&
            (best == NULL || reef_memory_learned_bytes(memory) > reef_memory_learned_bytes(best)))
            best = memory;
    }
    return best;
}

// Bits of learning it from nothing, but for the first byte, which is not predicted.
static reef_status cost_anew(
    const reef_memory *mixer, const uint8_t *text, size_t count, double *out, reef_error *err) {
    float bits[REEF_KNOWN_BYTES];
    reef_memory *memory = NULL;
    reef_status status = reef_memory_new_with_mixer(&memory, mixer, err);
    if (status == REEF_OK) status = reef_memory_learn(memory, text, count, NULL, bits, err);
    reef_memory_free(memory);
    *out = 0.0;
    for (size_t i = 1; status == REEF_OK && i < count; i++) *out += (double)bits[i];
    return status;
}

reef_status reef_model_cost(
    reef_model *model, const uint8_t *text, size_t count, double *out, reef_error *err) {
    const reef_memory *largest = largest_memory(model);
    const reef_memory_reading asked = model->recall.reading;
    double anew;
    reef_score known = {0};
    *out = model->network.config.memory > 0 ? 1.0 : 0.0;
    if (largest == NULL || reef_memory_learned_bytes(largest) == 0) return REEF_OK;
    if (count > REEF_KNOWN_BYTES) count = REEF_KNOWN_BYTES;
    // What repeats itself is soon learned anew, so the kinds must be allowed to as well.
    reef_model_set_reading(model, REEF_READ_ADAPTING);
    reef_status status = reef_model_score(model, text, count, NULL, &known, NULL, NULL, err);
    reef_model_set_reading(model, asked);
    if (status == REEF_OK) status = cost_anew(largest, text, count, &anew, err);
    if (status == REEF_OK) *out = known.bits / anew;
    return status;
}
