// A trainer of a language model: batches of tokens, gates that decide who fires, and a reservoir of
// the past.
#include "batch.h"
#include "boundary_commands.h"
#include "generations.h"
#include "kind_memories.h"
#include "memory_lane.h"
#include "memory_step.h"
#include "recognition.h"
#include "stream.h"
#include "trainer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static reef_status allocate_language(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    // One batch is the largest pass: the stream's windows, and one of the retain term.
    size_t windows = reef_batch_windows(config), rows = windows * config->context;
    trainer->batch.tokens = calloc(rows, 1);
    trainer->batch.targets = calloc(rows, 1);
    trainer->batch.weight = calloc(rows, sizeof(*trainer->batch.weight));
    if (trainer->batch.tokens == NULL || trainer->batch.targets == NULL ||
        trainer->batch.weight == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch of %zu tokens", rows);
    reef_status status = reef_thread_pool_new(&trainer->workers, trainer->options.threads, err);
    if (status == REEF_OK)
        status = reef_activations_init(&trainer->net.acts, config, windows, true, err);
    if (reef_trainer_division(trainer).count > 1)
        trainer->net.acts.row_ranks = trainer->options.ranks;
    if (status == REEF_OK) status = reef_reservoir_init(&trainer->net.reservoir, config, err);
    if (status != REEF_OK || config->context_memory == 0) return status;
    trainer->memory.bits = calloc(reef_batch_bytes(config), sizeof(*trainer->memory.bits));
    trainer->memory.losses = calloc(reef_batch_bytes(config), sizeof(*trainer->memory.losses));
    if (trainer->memory.bits == NULL || trainer->memory.losses == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch of %zu tokens", rows);
    return reef_memory_lane_new(&trainer->memory.lane, config, err);
}

static reef_status start_language_gating(reef_trainer *trainer, reef_error *err) {
    reef_status status = reef_batch_reserve(trainer, trainer->network.generation_count, err);
    if (status == REEF_OK) status = reef_gating_init(&trainer->net.gating, &trainer->network, err);
    return status;
}

static reef_status load_language_state(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_status status = reef_reservoir_load(txn, &trainer->net.reservoir, err);
    reef_memory_step_refresh_stats(trainer);
    if (status == REEF_OK) reef_kind_read_facts(trainer, txn);
    return status;
}

static void release_language(reef_trainer *trainer) {
    reef_activations_release(&trainer->net.acts);
    reef_reservoir_release(&trainer->net.reservoir);
    reef_kinds_release(trainer);
    reef_recognition_release(trainer);
    reef_gating_release(&trainer->net.gating);
    free(trainer->batch.tokens);
    free(trainer->batch.targets);
    free(trainer->batch.fire);
    free(trainer->batch.weight);
    free(trainer->batch.margins);
    free(trainer->batch.reading);
    free(trainer->memory.bits);
    free(trainer->memory.losses);
    reef_memory_lane_free(trainer->memory.lane);
}

// Deferred batches wait among the pending bytes. What was decided about them is not part of a
// commit, so after a restart they are decided again; a change of the model does the same here, or
// the two histories would train different batches.
static reef_status reset_language_lookahead(reef_trainer *trainer, reef_error *err) {
    (void)err;
    trainer->stream.deferred_batches = 0;
    return REEF_OK;
}

static reef_status put_language_state(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_status status = reef_kinds_put_visits(trainer, txn, err);
    return status == REEF_OK ? reef_reservoir_put(txn, &trainer->net.reservoir, err) : status;
}

static void language_committed(reef_trainer *trainer) {
    reef_generations_committed(trainer);
    reef_kinds_note_commit(trainer);
    if (trainer->net.reservoir.slots > 0)
        memset(trainer->net.reservoir.dirty, 0, trainer->net.reservoir.slots);
}

static reef_status check_language_grow(const reef_trainer *trainer, reef_error *err) {
    (void)trainer, (void)err; // between two steps nothing depends on its size
    return REEF_OK;
}

static void language_grown(reef_trainer *trainer) {
    (void)trainer; // activations grow by themselves at the next forward pass
}

// What people see are losses with the memory's help.
static void describe_language(const reef_trainer *trainer, reef_trainer_status *out) {
    out->bits_per_byte = reef_recent_losses_median(&trainer->stream.recent);
    if (trainer->network.config.context_memory == 0) return;
    reef_memory_step_describe(trainer, out);
    out->last_bits_per_byte =
        trainer->stream.recent.count > 0 ? trainer->memory.last_bits : (double)NAN;
}

const reef_trainer_ops reef_language_ops = {
    .allocate = allocate_language,
    .first_generation = reef_generations_first,
    .load_generations = reef_generations_load,
    .start_gating = start_language_gating,
    .load_state = load_language_state,
    .release = release_language,
    .pin = reef_generations_pin,
    .push = reef_stream_push,
    .reset_lookahead = reset_language_lookahead,
    .put_generations = reef_generations_put,
    .put_state = put_language_state,
    .committed = language_committed,
    .seal_check = reef_language_seal_check,
    .seal = reef_language_seal,
    .grow_check = check_language_grow,
    .grown = language_grown,
    .describe = describe_language,
};
