// The generations of a trainer: made, loaded, kept in reach and committed. And whether it may go
// on: it is whole after every step.
#include "as_of.h"
#include "trainer_internal.h"

reef_status reef_generations_first(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_generation *generation = NULL;
    reef_generation_record info = {.side = config->side, .dtype = REEF_F32};
    reef_status status =
        reef_generation_new(&generation, config, &info, reef_trainer_division(trainer), err);
    if (status != REEF_OK) return status;
    reef_generation_initialise(generation, config, NULL);
    return reef_network_append(&trainer->network, generation, err);
}

reef_status reef_generations_load(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    uint32_t count;
    reef_status status = reef_generation_count(txn, &count, err);
    // The number of rows decides whether sealed ones are copied into memory or read in place; see
    // residency.h. It is decided before the first of them is loaded.
    if (status == REEF_OK)
        status = reef_residency_decide(&trainer->net.residency, txn, &trainer->network.config,
                                       count, err);
    for (uint32_t g = 0; status == REEF_OK && g < count; g++) {
        reef_generation *generation;
        // Records of generation g lie under the number g; only a snapshot's copies lie elsewhere.
        const reef_checkpoint_source source = {.number = g,
                                               .records = g,
                                               .training = true,
                                               .in_place = trainer->net.residency.in_place,
                                               .memory_later = true, // trainer.c
                                               .division = reef_trainer_division(trainer)};
        status = reef_checkpoint_load(&generation, txn, &trainer->network.config, &source,
                                      trainer->workers, err);
        if (status == REEF_OK) status = reef_network_append(&trainer->network, generation, err);
    }
    if (status != REEF_OK) return status;
    if (count == 0 || !reef_open_generation(trainer)->open)
        return reef_fail(err, REEF_ERR_CORRUPT, "pool %s has no open generation",
                         reef_store_path(trainer->store));
    return REEF_OK;
}

// ---- use ----------------------------------------------------------------------------------------

reef_status reef_trainer_repin(reef_trainer *trainer, reef_error *err) {
    reef_status status = reef_residency_pin(&trainer->net.residency, &trainer->network, false, err);
    trainer->net.acts.prefetch = trainer->net.residency.prefetch;
    return status;
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

// ---- commits ------------------------------------------------------------------------------------

// The state of the trainer lies under the number of the open generation.
static reef_status delete_state(reef_txn *txn, uint32_t generation, reef_error *err) {
    reef_key key = reef_state_key(generation, "state");
    reef_status status = reef_record_delete(txn, &key, err);
    if (status != REEF_OK) return status;
    key = reef_state_key(generation, "carry");
    return reef_record_delete(txn, &key, err);
}

reef_status reef_generations_put(reef_trainer *trainer,
                                 reef_txn *txn,
                                 uint64_t unix_ms,
                                 reef_error *err) {
    const reef_network *network = &trainer->network;
    for (size_t g = 0; g + 1 < network->generation_count; g++) {
        if (network->generations[g]->stored) continue;
        // Sealed since the last commit: the state that an earlier one wrote for its number has to
        // go.
        reef_status status = delete_state(txn, network->generations[g]->info.generation, err);
        if (status == REEF_OK)
            status = reef_checkpoint_sealed(txn, &network->config, network->generations[g], unix_ms,
                                            err);
        if (status != REEF_OK) return status;
    }
    return reef_checkpoint_open(txn, &network->config, reef_open_generation(trainer), unix_ms, err);
}

void reef_generations_committed(reef_trainer *trainer) {
    for (size_t g = 0; g < trainer->network.generation_count; g++)
        if (!trainer->network.generations[g]->stored)
            reef_checkpoint_clean(trainer->network.generations[g]);
}
