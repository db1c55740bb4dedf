// Whether the trainer may continue: whole after every step, the rows of sealed generations
// accessible, room for the next bytes.
#include "trainer_internal.h"

#include <stdlib.h>

reef_status reef_trainer_repin(reef_trainer *trainer, reef_error *err) {
    return trainer->ops->pin(trainer, err);
}

reef_status reef_trainer_pin(reef_trainer *trainer, reef_error *err) {
    return reef_residency_is_pinned(&trainer->net.residency) ? REEF_OK
                                                             : reef_trainer_repin(trainer, err);
}

void reef_trainer_break(reef_trainer *trainer, reef_status status) {
    (void)reef_fail(&trainer->broken, status,
                    "training of pool %.120s ended half way (%s); nothing since its last commit is "
                    "kept: close the pool and open it again",
                    reef_store_path(trainer->store), reef_status_text(status));
}

reef_status reef_trainer_check_whole(const reef_trainer *trainer, reef_error *err) {
    if (trainer->broken.status == REEF_OK) return REEF_OK;
    return reef_fail(err, trainer->broken.status, "%s", trainer->broken.message);
}

bool reef_trainer_has_unstored(const reef_trainer *trainer) {
    for (size_t g = 0; g + 1 < trainer->network.generation_count; g++)
        if (!trainer->network.generations[g]->stored) return true;
    return false;
}

reef_status reef_trainer_reserve_pending(reef_trainer *trainer, size_t bytes, reef_error *err) {
    if (bytes <= trainer->stream.pending_capacity) return REEF_OK;
    uint8_t *pending = realloc(trainer->stream.pending, bytes);
    if (pending == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to hold %zu bytes of the stream",
                         bytes);
    trainer->stream.pending = pending;
    trainer->stream.pending_capacity = bytes;
    return REEF_OK;
}
