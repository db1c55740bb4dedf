// See enlarge.h.
#include "enlarge.h"
#include "events.h"
#include "trainer_internal.h"

reef_status reef_growth_enlarge(reef_trainer *trainer, uint32_t side, reef_error *err) {
    reef_generation *open = reef_open_generation(trainer), *grown = NULL;
    uint32_t before = open->info.side;
    if (side > REEF_SIDE_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "side %u is more than the %u sub-keys there can be",
                         side, REEF_SIDE_MAX);
    // A larger copy is made before the old one goes: without memory for it the trainer stays as it
    // is.
    reef_status status = reef_generation_grow(&grown, open, &trainer->network.config, side, err);
    if (status != REEF_OK) return status;
    reef_generation_memory_move(&grown->memory, &open->memory);
    // Tapes are sized by the side; those of the old shape are freed and made again at the next
    // pass.
    reef_activations_forget_generation(&trainer->net.acts, trainer->network.generation_count - 1);
    reef_generation_free(open);
    trainer->network.generations[trainer->network.generation_count - 1] = grown;
    return reef_state_event(trainer, err, "grow",
                            "\"reason\": \"command\", \"side_before\": %u, \"side\": %u", before,
                            side);
}
