// Kinds that a model could not read whole: see reef_model_lost_kinds.
#include "model_internal.h"

#include <stdlib.h>

reef_status reef_model_note_lost(reef_model *model, const reef_lost_kind *lost, reef_error *err) {
    reef_lost_kind *more = realloc(model->lost, (model->lost_count + 1) * sizeof(*more));
    if (more == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a list of lost kinds");
    model->lost = more;
    model->lost[model->lost_count++] = *lost;
    return REEF_OK;
}

void reef_model_forget_lost(reef_model *model) {
    free(model->lost);
    model->lost = NULL;
    model->lost_count = 0;
}

const reef_lost_kind *reef_model_lost_kinds(const reef_model *model, size_t *count) {
    *count = model->lost_count;
    return model->lost;
}
