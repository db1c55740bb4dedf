// See pending.h.
#include "pending.h"
#include "batch.h"
#include "expert_recycling.h"
#include "gate_refit.h"
#include "kind_memories.h"
#include "loss_history.h"
#include "memory_lane.h"
#include "memory_step.h"
#include "prequential.h"
#include "step.h"

#include <math.h>
#include <string.h>

size_t reef_pending_deferred_bytes(const reef_trainer *trainer) {
    return trainer->deferred_batches * reef_batch_bytes(&trainer->network.config);
}

size_t reef_pending_usable_bytes(const reef_trainer *trainer) {
    const reef_marker_line *marker = &trainer->marker;
    return trainer->pending_bytes - reef_marker_line_pending(marker) - marker->line_bytes;
}

bool reef_pending_is_for_net(const reef_trainer *trainer, uint64_t position) {
    const reef_config *config = &trainer->network.config;
    double share = (double)config->net_share;
    double number = (double)(position / reef_batch_bytes(config));
    if (!reef_has_net(trainer)) return false;
    return reef_task_step(trainer) < config->drift_warmup ||
           floor((number + 1.0) * share) != floor(number * share);
}

// Take the learned batch out of the pending bytes; the gates stand behind it now.
static reef_status drop_batch(reef_trainer *trainer, reef_error *err) {
    size_t count = reef_batch_bytes(&trainer->network.config);
    trainer->pending_bytes -= count;
    memmove(trainer->pending, trainer->pending + count, trainer->pending_bytes);
    trainer->stream_bytes += count;
    return reef_gating_copy(&trainer->gating, &trainer->ahead, err);
}

// A batch of the kind, which ended there, cost `bits` a byte.
static reef_status add_to_history(reef_trainer *trainer,
                                  uint32_t kind,
                                  uint64_t step,
                                  uint64_t end,
                                  double bits,
                                  reef_error *err) {
    size_t bytes = reef_batch_bytes(&trainer->network.config);
    reef_status status = reef_series_add_at(trainer, step, end, bits, err);
    if (status != REEF_OK || !reef_kinds_may_return(trainer)) return status;
    return reef_visit_log_add(&trainer->visit_log, kind, end, bytes, bits * (double)bytes, err);
}

// The context memory has learned a batch, at a loss of `bits`. Is that beyond the range of what it
// learned before? Then the net tests the next batch, whatever its share.
static void watch_memory(reef_trainer *trainer, double bits) {
    const reef_config *config = &trainer->network.config;
    double median, spread;
    if (config->net_share >= 1.0f) return; // it tests every batch
    // Without a net the drift test itself is the memory's.
    reef_drift *drift = reef_has_net(trainer) ? &trainer->memory_drift : &trainer->drift;
    reef_drift_level(drift, &median, &spread);
    trainer->memory_was_anomalous =
        drift->count >= drift->window && bits > reef_drift_limit(median, spread, config);
    reef_drift_push(drift, bits);
}

// A batch was learned by the open generation, at a loss of `bits`.
static reef_status count_batch(
    reef_trainer *trainer, uint64_t step, uint64_t begin, double bits, reef_error *err) {
    watch_memory(trainer, bits);
    return add_to_history(trainer, reef_open_kind(trainer), step,
                          begin + reef_batch_bytes(&trainer->network.config), bits, err);
}

// ---- in the memory's lane -----------------------------------------------------------------------

static reef_status count_job(reef_trainer *trainer, const reef_memory_job *job, reef_error *err) {
    size_t count = reef_batch_tokens(&trainer->network.config);
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += trainer->memory_losses[i] = (double)job->bits[i];
    trainer->last_helped = sum / (double)count;
    reef_drift_push(&trainer->helped_drift, trainer->last_helped);
    reef_prequential_count(trainer, job->begin + 1, 1, trainer->memory_losses, 1.0, count);
    reef_open_kind_note_learned(trainer);
    return count_batch(trainer, job->step, job->begin, trainer->last_helped, err);
}

reef_status reef_pending_settle(reef_trainer *trainer, reef_status before, reef_error *err) {
    reef_memory_lane *lane = trainer->lane;
    reef_error found;
    if (lane == NULL || reef_memory_lane_is_empty(lane)) return before;
    reef_status status = reef_memory_lane_wait(lane, &found);
    // The net has learned what the memory has not.
    if (status != REEF_OK) reef_trainer_break(trainer, status);
    for (size_t i = 0; status == REEF_OK && i < reef_memory_lane_count(lane); i++)
        status = count_job(trainer, reef_memory_lane_job(lane, i), &found);
    reef_memory_lane_clear(lane);
    reef_memory_step_refresh_stats(trainer);
    if (before != REEF_OK || status == REEF_OK) return before;
    return reef_fail(err, status, "%s", found.message);
}

// The memory learns the first pending batch, with what the net has just said of it.
static reef_status add_to_lane(reef_trainer *trainer, bool net, reef_error *err) {
    reef_memory_lane *lane = trainer->lane;
    reef_status status = REEF_OK;
    if (reef_memory_lane_is_full(lane)) status = reef_pending_settle(trainer, REEF_OK, err);
    if (status == REEF_OK && reef_memory_lane_is_empty(lane)) {
        reef_generation_memory *memory = NULL;
        status = reef_open_kind_load(trainer, &memory, err);
        if (status == REEF_OK) reef_memory_lane_open(lane, memory);
    }
    if (status != REEF_OK) return status;
    reef_memory_lane_add(lane, trainer->stream_bytes, trainer->step, trainer->pending,
                         net ? trainer->acts.predictions : NULL);
    // Beside the net's own work: without any, the batch is learned when all are waited for.
    if (net) reef_memory_lane_start(lane, reef_thread_pool_count(trainer->workers));
    return REEF_OK;
}

void reef_pending_begin_net(reef_trainer *trainer) {
    if (trainer->lane == NULL || reef_memory_lane_is_empty(trainer->lane)) return;
    reef_memory_lane_start(trainer->lane, reef_thread_pool_count(trainer->workers));
}

// ---- who learns it ------------------------------------------------------------------------------

// Learn the first pending batch, by the memory and, where its forward pass has just been run, by
// the net.
static reef_status learn_batch(reef_trainer *trainer, bool net, double bits, reef_error *err) {
    const bool has_lane = trainer->lane != NULL;
    reef_status status = has_lane ? add_to_lane(trainer, net, err) : REEF_OK;
    if (status != REEF_OK) return status;
    if (net) reef_step_backward(trainer);
    // Offered before the bytes are consumed: the reservoir copies from the pending bytes.
    reef_reservoir_offer(&trainer->reservoir, reef_open_generation(trainer)->info.generation,
                         trainer->stream_bytes, trainer->pending,
                         reef_batch_bytes(&trainer->network.config));
    if (net) reef_drift_push(&trainer->drift, bits);
    if (!has_lane) status = count_batch(trainer, trainer->step, trainer->stream_bytes, bits, err);
    if (status == REEF_OK) status = drop_batch(trainer, err);
    trainer->step++;
    // Rates, recycling and gates count what the net has learned.
    if (!net && reef_has_net(trainer)) return status;
    trainer->generation_step++;
    // Recycling and refitting are due at steps that depend on the counter alone.
    if (status == REEF_OK && net && reef_recycle_is_due(trainer))
        status = reef_recycle(trainer, err);
    if (status == REEF_OK && reef_growth_gate_due(trainer))
        status = reef_growth_fit_gate(trainer, reef_open_generation(trainer), NULL, 0, err);
    return status;
}

reef_status reef_pending_train(reef_trainer *trainer, double bits, reef_error *err) {
    return learn_batch(trainer, true, bits, err);
}

reef_status reef_pending_move_gates(reef_trainer *trainer, reef_error *err) {
    bool answered;
    return reef_config_has_gates(&trainer->network.config)
               ? reef_step_decide(trainer, trainer->pending, &trainer->ahead, &answered, err)
               : REEF_OK;
}

reef_status reef_pending_memorise(reef_trainer *trainer, reef_error *err) {
    reef_status status = reef_pending_move_gates(trainer, err);
    return status == REEF_OK ? learn_batch(trainer, false, 0.0, err) : status;
}

reef_status reef_pending_give(
    reef_trainer *trainer, uint32_t kind, double bits, size_t *steps, reef_error *err) {
    if (reef_kinds_may_return(trainer)) {
        reef_status learned = reef_kind_learn_pending_batch(trainer, kind, &bits, err);
        if (learned != REEF_OK) return learned;
        trainer->step++;
        ++*steps;
    } else {
        trainer->not_learned_bytes += reef_batch_bytes(&trainer->network.config);
    }
    // The domain that came back may last: the net tests the next batch too.
    trainer->memory_was_anomalous = trainer->network.config.net_share < 1.0f;
    reef_status status = drop_batch(trainer, err);
    return status == REEF_OK
               ? add_to_history(trainer, kind, trainer->step, trainer->stream_bytes, bits, err)
               : status;
}
