// What a model needs before its first score, done ahead of it; see reef_model_warm.
//
// A new session has memory that no page is behind yet: the first text would wait for thousands of
// page faults, and for the words of megabytes of text. A reader that is opened beside one that
// answers has the time for both.
#include "model_internal.h"

#define WARM_BYTES 1024 // touch most pages of a session's tables of lines

reef_status reef_model_warm(reef_model *model, reef_error *err) {
    const reef_line_scorer *words;
    uint8_t text[WARM_BYTES];
    size_t count = 0;
    reef_score ignored = {0};
    if (!reef_recall_answers(&model->network)) return REEF_OK;
    reef_status status = reef_model_line_scorer(model, &words, err);
    // The newest that learned something: an open generation may have a memory of nothing yet.
    for (uint32_t g = reef_model_generation_count(model); count < 2 && g-- > 0;)
        count = reef_model_text(model, g, text, sizeof(text));
    if (status != REEF_OK || count < 2) return status;
    return reef_model_score(model, text, count, NULL, &ignored, NULL, NULL, err);
}
