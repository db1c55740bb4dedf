// A trainer of a language model: batches of tokens. What it does differently from one of a layer.
#include "boundary.h"
#include "memory_lane.h"
#include "room.h"

#include <inttypes.h>
#include <stdlib.h>

static reef_status allocate_language(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    // One batch is the largest pass.
    size_t rows = reef_batch_bytes(config);
    trainer->batch.tokens = calloc(rows, 1);
    trainer->batch.targets = calloc(rows, 1);
    trainer->batch.weight = calloc(rows, sizeof(*trainer->batch.weight));
    if (trainer->batch.tokens == NULL || trainer->batch.targets == NULL ||
        trainer->batch.weight == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch of %zu tokens", rows);
    reef_status status = reef_thread_pool_new(&trainer->workers, trainer->options.threads, err);
    if (status == REEF_OK)
        status = reef_activations_init(&trainer->net.acts, config, config->batch, true, err);
    if (reef_trainer_division(trainer).count > 1)
        trainer->net.acts.row_ranks = trainer->options.ranks;
    if (status != REEF_OK || config->memory == 0) return status;
    trainer->memory.bits = calloc(reef_batch_bytes(config), sizeof(*trainer->memory.bits));
    trainer->memory.losses = calloc(reef_batch_bytes(config), sizeof(*trainer->memory.losses));
    if (trainer->memory.bits == NULL || trainer->memory.losses == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch of %zu tokens", rows);
    return reef_memory_lane_new(&trainer->memory.lane, config, err);
}

static reef_status check_language_seal(const reef_trainer *trainer, reef_error *err) {
    if (trainer->generation_step == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %" PRIu32
                         " is open and has trained nothing yet; there is nothing to seal",
                         reef_open_generation(trainer)->info.generation);
    return reef_room_for_generation(trainer) ? REEF_OK : reef_room_fail(trainer, err);
}

static reef_status seal_language(reef_trainer *trainer,
                                 reef_dtype dtype,
                                 reef_sealing *out,
                                 reef_error *err) {
    const reef_opening opening = {.reason = "command", .side = trainer->network.config.side};
    reef_sealing sealing;
    reef_status status = reef_trainer_pin(trainer, err); // passes measure
    if (status == REEF_OK) status = check_language_seal(trainer, err);
    if (status != REEF_OK) return status;
    // What was deferred trains the new generation first. What was decided about it is in no commit,
    // so it is decided again after a restart; here as well, or the two would train other batches.
    trainer->stream.deferred_batches = 0;
    status = reef_growth_boundary(trainer, &opening, dtype, &sealing, err);
    if (status == REEF_OK) status = reef_trainer_commit(trainer, NULL, err);
    if (status == REEF_OK && out != NULL) *out = sealing;
    return status;
}

const reef_trainer_ops reef_language_ops = {
    .allocate = allocate_language,
    .seal_check = check_language_seal,
    .seal = seal_language,
};
