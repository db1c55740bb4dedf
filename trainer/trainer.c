// The one writer of a pool: the public handle over stream, steps and growth, how it is opened and
// closed.
#include "layer_trainer_internal.h"
#include "strategy.h"
#include "trainer_internal.h"
#include "vector.h"

#include <math.h>
#include <stdlib.h>

reef_status reef_trainer_allocate(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    trainer->last_bits = (double)NAN;
    if (reef_config_is_vector(config)) return reef_vector_start(trainer, err);
    if (reef_config_is_layer(config)) {
        reef_status made = reef_thread_pool_new(&trainer->workers, trainer->options.threads, err);
        return made == REEF_OK ? reef_layer_new(&trainer->layer, err) : made;
    }
    size_t windows = reef_step_windows(config), rows = windows * config->context;
    trainer->strategy.kind = config->strategy;
    trainer->tokens = calloc(rows, reef_token_bytes(config));
    trainer->targets = calloc(rows, reef_token_bytes(config));
    trainer->weight = calloc(rows, sizeof *trainer->weight);
    if (!trainer->tokens || !trainer->targets || !trainer->weight)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch of %zu tokens", rows);
    reef_status status = reef_thread_pool_new(&trainer->workers, trainer->options.threads, err);
    if (status == REEF_OK)
        status = reef_activations_init(&trainer->acts, config, windows, true, err);
    if (status == REEF_OK) status = reef_reservoir_init(&trainer->reservoir, config, err);
    if (status == REEF_OK) status = reef_drift_init(&trainer->drift, config->drift_window, err);
    return status;
}

reef_status reef_trainer_start_gating(reef_trainer *trainer, reef_error *err) {
    if (trainer->vector != NULL || trainer->layer != NULL) return REEF_OK;
    reef_status status = reef_step_reserve(trainer, trainer->network.generation_count, err);
    if (status == REEF_OK) status = reef_gating_init(&trainer->gating, &trainer->network, err);
    return status;
}

static reef_status load_generations(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    if (trainer->vector != NULL) return reef_vector_load(trainer, txn, err);
    uint32_t count;
    reef_status status = reef_generation_count(txn, &count, err);
    if (status == REEF_OK)
        status =
            reef_residency_decide(&trainer->residency, txn, &trainer->network.config, count, err);
    for (uint32_t g = 0; status == REEF_OK && g < count; g++) {
        reef_generation *gen;
        status = reef_checkpoint_load(&gen, txn, &trainer->network.config, g, g, true,
                                      trainer->residency.in_place, trainer->workers, err);
        if (status == REEF_OK) status = reef_network_append(&trainer->network, gen, err);
    }
    if (status != REEF_OK) return status;
    if (count == 0 || !reef_open_generation(trainer)->open ||
        reef_generation_is_empty(&reef_open_generation(trainer)->info) ||
        reef_generation_is_empty(&trainer->network.generations[0]->info))
        return reef_fail(err, REEF_ERR_CORRUPT, "pool %s has no open generation",
                         reef_store_path(trainer->store));
    return REEF_OK;
}

static reef_status load_language(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_status status = reef_strategy_load(trainer, txn, err);
    if (status == REEF_OK) status = reef_gating_copy(&trainer->ahead, &trainer->gating, err);
    if (status == REEF_OK) status = reef_checkpoint_load_reservoir(txn, &trainer->reservoir, err);
    if (status == REEF_OK)
        status = reef_reservoir_check(&trainer->reservoir, &trainer->network.config, err);
    return status;
}

static reef_status load_trainer(reef_trainer *trainer, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    status = reef_config_read(txn, &trainer->network.config, err);
    if (status == REEF_OK) status = reef_trainer_allocate(trainer, err);
    if (status == REEF_OK) status = load_generations(trainer, txn, err);
    if (status == REEF_OK) status = reef_trainer_start_gating(trainer, err);
    if (status == REEF_OK) status = reef_state_load(trainer, txn, err);
    if (status == REEF_OK && trainer->vector == NULL && trainer->layer == NULL)
        status = load_language(trainer, txn, err);
    if (trainer->layer != NULL) trainer->layer->fold_is_stale = true;
    if (status == REEF_OK) status = reef_commit_read(txn, &trainer->last_commit, err);
    if (status == REEF_OK) status = reef_kernels_compare(trainer, txn, err);
    reef_txn_abort(txn);
    trainer->committed_step = trainer->step;
    return status == REEF_OK ? reef_trainer_repin(trainer, err) : status;
}

reef_status reef_trainer_open(reef_trainer **out,
                              reef_store *store,
                              const reef_trainer_options *options,
                              reef_error *err) {
    *out = NULL;
    reef_trainer *trainer = calloc(1, sizeof *trainer);
    if (trainer == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a trainer");
    trainer->store = store;
    if (options != NULL) trainer->options = *options;
    reef_residency_init(&trainer->residency, store, trainer->options.memory_bytes);
    reef_status status = load_trainer(trainer, err);
    if (status == REEF_OK) {
        *out = trainer;
        return REEF_OK;
    }
    reef_trainer_close(trainer);
    return status;
}

void reef_trainer_close(reef_trainer *trainer) {
    if (trainer == NULL) return;
    reef_state_forget_history(trainer);
    reef_activations_release(&trainer->acts);
    reef_reservoir_release(&trainer->reservoir);
    reef_drift_release(&trainer->drift);
    reef_strategy_release(&trainer->strategy);
    reef_gating_release(&trainer->gating);
    reef_gating_release(&trainer->ahead);
    reef_gating_release(&trainer->before);
    reef_residency_release(&trainer->residency);
    reef_vector_free(trainer->vector);
    reef_layer_free(trainer->layer);
    reef_network_release(&trainer->network);
    reef_thread_pool_free(trainer->workers);
    free(trainer->sources);
    free(trainer->pending);
    free(trainer->deferred_bits);
    reef_prequential_release(&trainer->prequential);
    free(trainer->tokens);
    free(trainer->targets);
    free(trainer->fire);
    free(trainer->weight);
    free(trainer->margins);
    free(trainer->reading);
    free(trainer->points);
    free(trainer->events);
    free(trainer);
}
