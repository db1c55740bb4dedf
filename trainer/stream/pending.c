// See pending.h.
#include "pending.h"
#include "batch.h"
#include "expert_recycling.h"
#include "gate_refit.h"
#include "kind_memories.h"
#include "loss_history.h"
#include "memory_step.h"
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

// A batch of the kind cost `bits` a byte.
static reef_status add_to_history(reef_trainer *trainer,
                                  uint32_t kind,
                                  double bits,
                                  reef_error *err) {
    size_t bytes = reef_batch_bytes(&trainer->network.config);
    reef_status status = reef_series_add(trainer, bits, err);
    if (status != REEF_OK || !reef_kinds_learn(trainer)) return status;
    return reef_visit_log_add(&trainer->visit_log, kind, trainer->stream_bytes, bytes,
                              bits * (double)bytes, err);
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

// Learn the first pending batch, by the memory and, where its forward pass has just been run, by
// the net.
static reef_status learn_batch(reef_trainer *trainer, bool net, double bits, reef_error *err) {
    reef_memory_step step;
    reef_generation_memory *memory;
    double reported = bits;
    reef_status status = reef_kinds_open_learner(trainer, &memory, err);
    if (status != REEF_OK) return status;
    reef_memory_step_begin(&step, trainer, memory, net);
    if (net) reef_step_backward(trainer);
    status = reef_memory_step_end(&step, &reported, err);
    if (status != REEF_OK) return status;
    reef_kinds_open_learned(trainer);
    watch_memory(trainer, reported);
    // One of the two is always 0. `era` distinguishes windows of different generations or tasks.
    uint32_t era = reef_open_generation(trainer)->info.generation + trainer->strategy.task;
    // Offered before the bytes are consumed: the reservoir copies from the pending bytes.
    reef_reservoir_offer(&trainer->reservoir, era, trainer->stream_bytes, trainer->pending,
                         reef_batch_bytes(&trainer->network.config));
    if (net) reef_drift_push(&trainer->drift, bits);
    status = drop_batch(trainer, err);
    if (status == REEF_OK)
        status = add_to_history(trainer, reef_kinds_open_kind(trainer), reported, err);
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
    if (reef_kinds_learn(trainer)) {
        reef_status learned = reef_kinds_learn_batch(trainer, kind, &bits, err);
        if (learned != REEF_OK) return learned;
        trainer->step++;
        ++*steps;
    } else {
        trainer->not_learned_bytes += reef_batch_bytes(&trainer->network.config);
    }
    // The domain that came back may last: the net tests the next batch too.
    trainer->memory_was_anomalous = trainer->network.config.net_share < 1.0f;
    reef_status status = drop_batch(trainer, err);
    return status == REEF_OK ? add_to_history(trainer, kind, bits, err) : status;
}
