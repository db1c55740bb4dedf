// See resume_check.h.
#include "resume_check.h"

#include <stdlib.h>

reef_status reef_sources_fit(const reef_trainer *trainer,
                             const reef_input *sources,
                             size_t count,
                             reef_error *err) {
    const char **names = calloc(count + 1, sizeof(*names));
    if (names == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the names of %zu sources", count);
    for (size_t i = 0; i < count; i++) names[i] = sources[i].name;
    reef_status status = reef_trainer_sources_fit(trainer, names, count, err);
    free(names);
    return status;
}
