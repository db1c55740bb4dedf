// See score_parts.h.
#include "score_parts.h"

#include <stdlib.h>

void reef_learned_text_read(reef_learned_text *out, const reef_model *model) {
    const uint32_t generations = reef_model_generation_count(model);
    size_t memories = 0;
    *out = (reef_learned_text){.bytes = reef_cli_alloc(REEF_SCORED_TEXT_BYTES_MAX, 1)};
    for (uint32_t g = 0; g < generations; g++) memories += reef_model_text(model, g, NULL, 0) > 0;
    for (uint32_t g = 0; memories > 0 && g < generations; g++)
        out->count += reef_model_lines(model, g, out->bytes + out->count,
                                       REEF_SCORED_TEXT_BYTES_MAX / memories);
}

void reef_learned_text_release(reef_learned_text *text) {
    free(text->bytes);
    *text = (reef_learned_text){0};
}
