// The open generation is sealed, or grows, on command.
#include "boundary_commands.h"
#include "boundary.h"
#include "commit.h"
#include "enlarge.h"
#include "generation.h"
#include "room.h"
#include "trainer_internal.h"

#include <inttypes.h>

// May a generation of a language model be sealed now, and what would the next one be?
static reef_status prepare_seal(reef_trainer *trainer, reef_opening *opening, reef_error *err) {
    const reef_generation *open = reef_open_generation(trainer);
    if (trainer->generation_step == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %" PRIu32
                         " is open and has trained nothing yet; there is nothing to seal",
                         open->info.generation);
    *opening = (reef_opening){.reason = "command", .side = trainer->network.config.side_new};
    return reef_room_for_generation(trainer) ? REEF_OK : reef_room_fail(trainer, err);
}

// A dry run: it says what a seal would refuse and how large the next generation would be, and
// touches neither the trainer nor the pool.
reef_status reef_language_seal_check(reef_trainer *trainer,
                                     const char *seal_dtype,
                                     uint32_t *side,
                                     reef_error *err) {
    reef_opening opening = {0};
    reef_config config = trainer->network.config; // a copy: only the word is checked
    reef_status status = REEF_OK;
    *side = config.side_new;
    if (seal_dtype != NULL) status = reef_config_set(&config, "seal_dtype", seal_dtype, err);
    if (status != REEF_OK) return status;
    status = prepare_seal(trainer, &opening, err);
    *side = opening.side;
    return status;
}

reef_status reef_language_seal(reef_trainer *trainer,
                               const char *seal_dtype,
                               reef_sealing *out,
                               reef_error *err) {
    reef_config config = trainer->network.config; // the pool's own stays as it is
    reef_sealing sealing;
    reef_opening opening;
    reef_status status = reef_trainer_pin(trainer, err); // passes measure, and fit the gate
    if (status == REEF_OK && seal_dtype != NULL)
        status = reef_config_set(&config, "seal_dtype", seal_dtype, err);
    if (status == REEF_OK) status = prepare_seal(trainer, &opening, err);
    if (status != REEF_OK) return status;
    // What was deferred trains the new generation first.
    status = trainer->ops->reset_lookahead(trainer, err);
    if (status == REEF_OK)
        status = reef_growth_boundary(trainer, &opening, reef_generation_seal_dtype(&config),
                                      &sealing, err);
    if (status == REEF_OK) status = reef_trainer_commit(trainer, NULL, err);
    if (status == REEF_OK && out != NULL) *out = sealing;
    return status;
}

reef_status reef_trainer_seal_check(reef_trainer *trainer,
                                    const char *seal_dtype,
                                    uint32_t *side,
                                    reef_error *err) {
    return trainer->ops->seal_check(trainer, seal_dtype, side, err);
}

reef_status reef_trainer_seal(reef_trainer *trainer,
                              const char *seal_dtype,
                              reef_sealing *out,
                              reef_error *err) {
    reef_status status = reef_trainer_check_whole(trainer, err);
    return status == REEF_OK ? trainer->ops->seal(trainer, seal_dtype, out, err) : status;
}

reef_status reef_trainer_grow_check(const reef_trainer *trainer, uint32_t side, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_status refused = reef_kind_allows(trainer->ops->no_growth, err);
    if (refused != REEF_OK) return refused;
    if (!reef_has_net(trainer))
        return reef_fail(err, REEF_ERR_INVALID, "the pool has no net, and so no experts");
    // Growing means more sub-keys and more experts behind them. A model of dense or mixture layers
    // has neither.
    if (reef_config_retrieving_layers(config) == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool cannot grow to side %" PRIu32 ": its layers are of ffw %s, and "
                         "only those of kind p and k have experts that grow",
                         side, config->ffw);
    refused = trainer->ops->grow_check(trainer, err);
    if (refused != REEF_OK) return refused;
    return reef_room_check_side(trainer, side, err);
}

reef_status reef_trainer_grow(reef_trainer *trainer, uint32_t side, reef_error *err) {
    reef_status status = reef_trainer_grow_check(trainer, side, err);
    if (status == REEF_OK) status = trainer->ops->reset_lookahead(trainer, err);
    if (status == REEF_OK) status = reef_growth_enlarge(trainer, side, err);
    if (status != REEF_OK) return status;
    trainer->ops->grown(trainer);
    return reef_trainer_commit(trainer, NULL, err);
}
