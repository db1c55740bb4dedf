// What context memories keep of the streams that they learned, and the words of it that lines are
// scored by.
#include "model_internal.h"

#include <stdlib.h>

// Layers have no generations here, and no memories.
static const reef_memory *memory_of(const reef_model *model, size_t generation) {
    if (generation >= model->network.generation_count) return NULL;
    return model->network.generations[generation]->memory.memory;
}

size_t reef_model_text(const reef_model *model, uint32_t generation, uint8_t *out, size_t count) {
    const reef_memory *memory = memory_of(model, generation);
    return memory == NULL ? 0 : reef_memory_text(memory, out, count);
}

uint64_t reef_model_memory_learned(const reef_model *model, uint32_t generation) {
    const reef_memory *memory = memory_of(model, generation);
    return memory == NULL ? 0 : reef_memory_learned_bytes(memory);
}

// ---- words --------------------------------------------------------------------------------------

// Whole lines of the newest text of a memory.
static reef_status count_words(reef_line_scorer *scorer,
                               const reef_memory *memory,
                               uint8_t *text,
                               size_t most,
                               reef_error *err) {
    size_t count = reef_memory_text(memory, text, most), begin = 0;
    if (count < reef_memory_learned_bytes(memory))
        while (begin < count && text[begin++] != '\n') continue;
    while (count > begin && text[count - 1] != '\n') count--;
    return reef_line_scorer_learn(scorer, text + begin, count - begin, err);
}

static reef_status count_all(reef_line_scorer *scorer, const reef_model *model, reef_error *err) {
    size_t generations = model->network.generation_count, memories = 0;
    for (size_t g = 0; g < generations; g++) memories += memory_of(model, g) != NULL;
    if (memories == 0) return REEF_OK;
    // An equal share of each, however many there are.
    size_t most = REEF_SCORED_TEXT_BYTES_MAX / memories;
    uint8_t *text = malloc(most);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes of text", most);
    reef_status status = REEF_OK;
    for (size_t g = 0; status == REEF_OK && g < generations; g++)
        if (memory_of(model, g) != NULL)
            status = count_words(scorer, memory_of(model, g), text, most, err);
    free(text);
    return status;
}

reef_status reef_model_line_scorer(reef_model *model,
                                   const reef_line_scorer **out,
                                   reef_error *err) {
    reef_line_scorer *scorer = NULL;
    *out = model->scorer;
    if (model->scorer != NULL) return REEF_OK;
    reef_status status = reef_line_scorer_new(&scorer, err);
    if (status == REEF_OK) status = count_all(scorer, model, err);
    if (status != REEF_OK) {
        reef_line_scorer_free(scorer);
        return status;
    }
    *out = model->scorer = scorer;
    return REEF_OK;
}
