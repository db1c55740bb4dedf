// See stream.h.
#include "batch.h"
#include "kind_level.h"
#include "kind_memories.h"
#include "loss_history.h"
#include "memory_lane.h"
#include "net_return.h"
#include "prequential.h"
#include "step.h"
#include "stream.h"

#include <math.h>
#include <string.h>

// A net learns all of so many first batches of its generation, whatever its share: a kind may be
// over after some, and a share of those would be a net that has hardly begun. 48 kB at batches of
// 512 bytes.
#define NET_FIRST_BATCHES 96

size_t reef_pending_usable_bytes(const reef_trainer *trainer) {
    const reef_marker_line *marker = &trainer->stream.marker;
    return trainer->stream.pending_bytes - marker->matched - marker->line_bytes;
}

// Does the net learn the batch at this position of the stream?
static bool is_for_net(const reef_trainer *trainer, uint64_t position) {
    const reef_config *config = &trainer->network.config;
    double share = (double)config->net_share;
    double number = (double)(position / reef_batch_bytes(config));
    if (!reef_has_net(trainer)) return false;
    return trainer->generation_step < NET_FIRST_BATCHES ||
           floor((number + 1.0) * share) != floor(number * share);
}

// Take the learned batch out of the pending bytes.
static void drop_batch(reef_trainer *trainer) {
    size_t count = reef_batch_bytes(&trainer->network.config);
    trainer->stream.pending_bytes -= count;
    memmove(trainer->stream.pending, trainer->stream.pending + count,
            trainer->stream.pending_bytes);
    trainer->stream_bytes += count;
}

// A batch of the kind, which ended there, cost `bits` a byte.
static reef_status add_to_history(reef_trainer *trainer,
                                  uint32_t kind,
                                  uint64_t step,
                                  uint64_t end,
                                  double bits,
                                  reef_error *err) {
    size_t bytes = reef_batch_bytes(&trainer->network.config);
    reef_status status = reef_series_add(trainer, step, end, bits, err);
    if (status != REEF_OK || !reef_kinds_may_return(trainer)) return status;
    status = reef_kind_level_count_bits(trainer, kind, bits, err);
    if (status != REEF_OK) return status;
    return reef_visit_log_add(&trainer->unstored.visit_log, kind, end, bytes, bits * (double)bytes,
                              err);
}

// A batch was learned by the open generation, at a loss of `bits`.
static reef_status count_batch(
    reef_trainer *trainer, uint64_t step, uint64_t begin, double bits, reef_error *err) {
    reef_recent_losses_add(&trainer->stream.recent, bits);
    return add_to_history(trainer, reef_open_kind(trainer), step,
                          begin + reef_batch_bytes(&trainer->network.config), bits, err);
}

// ---- in the memory's lane -----------------------------------------------------------------------

static reef_status count_job(reef_trainer *trainer, const reef_memory_job *job, reef_error *err) {
    double bits = reef_memory_count_losses(trainer, job->begin, job->bits);
    reef_open_kind_note_learned(trainer);
    return count_batch(trainer, job->step, job->begin, bits, err);
}

// Wait for the memory, and count the losses of what it learned. Does nothing where it has nothing
// to learn. `before`: of the call before this one; returned, with its error, if not REEF_OK.
static reef_status settle(reef_trainer *trainer, reef_status before, reef_error *err) {
    reef_memory_lane *lane = trainer->memory.lane;
    reef_error found;
    if (lane == NULL || reef_memory_lane_is_empty(lane)) return before;
    reef_status status = reef_memory_lane_wait(lane, &found);
    // The net has learned what the memory has not.
    if (status != REEF_OK) reef_trainer_break(trainer, status);
    for (size_t i = 0; status == REEF_OK && i < reef_memory_lane_count(lane); i++)
        status = count_job(trainer, reef_memory_lane_job(lane, i), &found);
    reef_memory_lane_clear(lane);
    reef_open_kind_refresh_stats(trainer);
    if (before != REEF_OK || status == REEF_OK) return before;
    return reef_fail(err, status, "%s", found.message);
}

// The memory learns the first pending batch, with what the net has just said of it.
static reef_status add_to_lane(reef_trainer *trainer, bool net, reef_error *err) {
    reef_memory_lane *lane = trainer->memory.lane;
    reef_status status = REEF_OK;
    if (reef_memory_lane_is_full(lane)) status = settle(trainer, REEF_OK, err);
    if (status == REEF_OK && reef_memory_lane_is_empty(lane)) {
        reef_generation_memory *memory = NULL;
        status = reef_open_kind_load(trainer, &memory, err);
        if (status == REEF_OK) reef_memory_lane_open(lane, memory);
    }
    if (status != REEF_OK) return status;
    reef_memory_lane_add(lane, trainer->stream_bytes, trainer->step, trainer->stream.pending,
                         net ? trainer->net.acts.predictions : NULL);
    // Beside the net's own work: without any, the batch is learned when all are waited for.
    if (net) reef_memory_lane_start(lane, reef_thread_pool_count(trainer->workers));
    return REEF_OK;
}

// The net is about to read the first pending batch: the memory may learn beside it.
static void begin_net(reef_trainer *trainer) {
    if (trainer->memory.lane == NULL || reef_memory_lane_is_empty(trainer->memory.lane)) return;
    reef_memory_lane_start(trainer->memory.lane, reef_thread_pool_count(trainer->workers));
}

// ---- who learns it ------------------------------------------------------------------------------

// Learn the first pending batch, by the memory and, where its forward pass has just been run, by
// the net.
static reef_status learn_batch(reef_trainer *trainer, bool net, double bits, reef_error *err) {
    const bool has_lane = trainer->memory.lane != NULL;
    reef_status status = has_lane ? add_to_lane(trainer, net, err) : REEF_OK;
    if (status != REEF_OK) return status;
    if (net) reef_step_backward(trainer);
    if (!has_lane) status = count_batch(trainer, trainer->step, trainer->stream_bytes, bits, err);
    if (status == REEF_OK) drop_batch(trainer);
    trainer->step++;
    // Rates count what the net has learned.
    if (net || !reef_has_net(trainer)) trainer->generation_step++;
    return status;
}

// The net learns it, and beside it the memory.
static reef_status learn_with_net(reef_trainer *trainer, reef_error *err) {
    double bits;
    begin_net(trainer);
    reef_status status = reef_step_forward(trainer, trainer->stream.pending, &bits, err);
    if (status != REEF_OK) return status;
    reef_step_count_losses(trainer, trainer->stream_bytes);
    trainer->net.last_bits = bits;
    return learn_batch(trainer, true, bits, err);
}

static reef_status learn_open(reef_trainer *trainer, reef_error *err) {
    if (is_for_net(trainer, trainer->stream_bytes)) return learn_with_net(trainer, err);
    return learn_batch(trainer, false, 0.0, err);
}

// The memory of a kind that came back learns it, and its net follows once that is far behind.
static reef_status learn_older(reef_trainer *trainer, uint32_t kind, reef_error *err) {
    double bits = 0.0;
    reef_status status = reef_kind_learn_pending_batch(trainer, kind, &bits, err);
    if (status != REEF_OK) return status;
    trainer->step++;
    drop_batch(trainer);
    status = add_to_history(trainer, kind, trainer->step, trainer->stream_bytes, bits, err);
    return status == REEF_OK && reef_net_return_is_due(trainer, kind)
               ? reef_net_return(trainer, kind, err)
               : status;
}

reef_status reef_pending_learn(
    reef_trainer *trainer, uint32_t kind, size_t count, size_t *steps, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        ++*steps;
        // Asked each time: a net that returns opens a generation of the kind.
        status = kind == reef_open_kind(trainer) ? learn_open(trainer, err)
                                                 : learn_older(trainer, kind, err);
    }
    return settle(trainer, status, err);
}
