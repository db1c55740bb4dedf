// Whether the trainer may continue: whole after every step, and the rows of sealed generations
// accessible.
#include "trainer_internal.h"

reef_status reef_trainer_repin(reef_trainer *trainer, reef_error *err) {
    return trainer->ops->pin(trainer, err);
}

reef_status reef_trainer_pin(reef_trainer *trainer, reef_error *err) {
    return reef_residency_is_pinned(&trainer->residency) ? REEF_OK
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
