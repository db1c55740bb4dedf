// One batch of the stream: forward with the open generation's gate forced open, backward,
// optimiser.
#include "step.h"
#include "batch.h"
#include "optimiser.h"
#include "reef_random.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { STREAM_RETAIN = 201 }; // of random numbers

// Let the gates of the first `generation_count` generations decide about the T-window from token
// `at` of a longer stretch, read from its start, which is window `slot` of the batch.
static reef_status fire_in_window(reef_trainer *trainer,
                                  size_t generation_count,
                                  size_t slot,
                                  const uint8_t *bytes,
                                  size_t at,
                                  reef_error *err) {
    size_t T = trainer->network.config.context, stride = reef_batch_stride(trainer);
    reef_network network = trainer->network; // a view of the first generations
    reef_batch batch;
    network.generation_count = generation_count;
    // Only generation 0 exists, which has no gate.
    if (generation_count < 2) return REEF_OK;
    // Read from the start of the stretch: a gate's evidence adds up over the bytes before `at`.
    reef_status status = reef_batch_read(trainer, &network, bytes, at + T, &batch, err);
    for (size_t g = 1; status == REEF_OK && g < generation_count; g++)
        memcpy(trainer->batch.fire + g * stride + slot * T, reef_batch_read_fire(trainer, g) + at,
               T);
    return status;
}

// Does the open generation's gate leak on this window of old data? Then its first T-window with a
// leaking token (and one after it) becomes window `slot` of the batch, every gate deciding. The
// loss is not asked here, and counts as that of old data: passes over all candidates would cost
// more than the step.
static reef_status take_leaking_window(reef_trainer *trainer,
                                       size_t slot,
                                       const uint8_t *bytes,
                                       size_t size, // in tokens
                                       bool *taken,
                                       reef_error *err) {
    size_t T = trainer->network.config.context, open = trainer->network.generation_count - 1;
    size_t stride = reef_batch_stride(trainer);
    uint8_t *fire = trainer->batch.fire + open * stride + slot * T;
    // Its own state, at the beginning of a stream: the window was cut from somewhere in the past.
    reef_gate_state state;
    const reef_gate *gate = &trainer->network.generations[open]->gate;
    reef_gate_reset(gate, &state);
    *taken = false;
    // One token more than a window: the last target lies behind it.
    for (size_t at = 0; at + T < size; at += T) {
        size_t fired = 0;
        reef_gate_score(gate, &state, T, bytes + at, trainer->batch.margins);
        for (size_t t = 0; t < T; t++) fired += fire[t] = trainer->batch.margins[t] > 0.0f;
        // A window on which the gate is silent costs nothing and constrains nothing.
        if (fired == 0) continue;
        *taken = true;
        reef_batch_place(trainer, slot, bytes + at);
        reef_status status = fire_in_window(trainer, open, slot, bytes, at, err);
        // The open generation joins the older ones that fire.
        reef_gating_keep_newest(open + 1, T, trainer->batch.fire + slot * T, stride);
        return status;
    }
    return REEF_OK;
}

static uint32_t kind_of(const reef_trainer *trainer, uint32_t generation) {
    return reef_generation_kind(&trainer->network.generations[generation]->info);
}

// The retain term needs old data on which the open generation's gate fires. Candidates are drawn by
// step number, so which window is taken depends on nothing but the stream.
static reef_status add_retain_window(reef_trainer *trainer, size_t slot_window, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const reef_reservoir *reservoir = &trainer->net.reservoir;
    uint32_t generation = reef_open_generation(trainer)->info.generation;
    trainer->batch.retain_windows = 0;
    // Generation 0 has nothing older to retain.
    if (generation == 0) return REEF_OK;
    for (uint64_t i = 0; i < REEF_RETAIN_CANDIDATES; i++) {
        // A fixed number of draws per step, numbered by the step: a restart repeats them.
        uint64_t counter = trainer->step * REEF_RETAIN_CANDIDATES + i;
        size_t slot =
            (size_t)reef_random_below(config->seed, STREAM_RETAIN, counter, reservoir->old_slots);
        // Slots of the open generation itself, or of its kind, and empty ones, are not old data.
        if (reservoir->sizes[slot] == 0 || reservoir->generations[slot] >= generation ||
            kind_of(trainer, reservoir->generations[slot]) == kind_of(trainer, generation))
            continue;
        const uint8_t *bytes = reservoir->bytes + slot * reservoir->window_bytes;
        bool taken;
        reef_status status =
            take_leaking_window(trainer, slot_window, bytes, reservoir->sizes[slot], &taken, err);
        if (status != REEF_OK) return status;
        // At most one window is added: one leaking window per step is enough to hold the retain
        // term, at a cost of 1 / batch.
        if (!taken) continue;
        trainer->batch.retain_windows = 1;
        return REEF_OK;
    }
    return REEF_OK;
}

// Every trained window weighs the same; those of old data only feed the retain term.
static void weigh_windows(reef_trainer *trainer, size_t trained, size_t retained) {
    size_t T = trainer->network.config.context, rows = trained * T;
    for (size_t i = 0; i < rows; i++) trainer->batch.weight[i] = 1.0f / (float)rows;
    memset(trainer->batch.weight + rows, 0, retained * T * sizeof(*trainer->batch.weight));
}

static double mean_bits(const reef_trainer *trainer) {
    double nats = 0.0;
    size_t count = reef_batch_bytes(&trainer->network.config);
    for (size_t i = 0; i < count; i++) nats += trainer->net.acts.loss[i];
    return nats / REEF_LN2 / (double)count;
}

void reef_step_count_losses(reef_trainer *trainer, uint64_t begin) {
    // Of a batch that a context memory learns, the losses with its help count: see pending.c.
    if (trainer->network.config.context_memory > 0) return;
    // A row's loss is about the token after it.
    reef_prequential_count(trainer, begin + 1, 1, trainer->net.acts.loss, 1.0 / REEF_LN2,
                           reef_batch_bytes(&trainer->network.config));
}

// The open generation trains with its gate forced open.
static void force_open(reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    size_t count = reef_batch_bytes(config), open = trainer->network.generation_count - 1;
    size_t stride = reef_batch_stride(trainer);
    if (open == 0) return;
    memset(trainer->batch.fire + open * stride, 1, count);
    reef_gating_keep_newest(open + 1, count, trainer->batch.fire, stride);
}

// Weights beyond what a float holds show in the router's queries, and without a router in the loss.
// What diverged is not learned on, and no commit may hold it.
static reef_status diverged(reef_trainer *trainer, const reef_error *how, reef_error *err) {
    (void)reef_fail(&trainer->broken, REEF_ERR_INVALID,
                    "training diverged at step %" PRIu64
                    ": %.100s: nothing since the last commit is kept; make a pool with a smaller "
                    "learning_rate",
                    trainer->step, how->message);
    return reef_trainer_check_whole(trainer, err);
}

// A single rank has nobody to share with.
static reef_ranks *sharing_ranks(const reef_trainer *trainer) {
    return reef_ranks_count(trainer->options.ranks) > 1 ? trainer->options.ranks : NULL;
}

reef_status reef_step_forward(reef_trainer *trainer,
                              const uint8_t *bytes,
                              reef_gating *gating,
                              double *bits,
                              reef_error *err) {
    const reef_config *config = &trainer->network.config;
    double start = reef_seconds();
    reef_error found;
    reef_batch_decide(trainer, bytes, gating);
    force_open(trainer);
    // Last, behind all windows that are trained: the retain window has no loss, only a penalty.
    reef_status status = add_retain_window(trainer, config->batch, err);
    if (status != REEF_OK) return status;
    weigh_windows(trainer, config->batch, trainer->batch.retain_windows);
    reef_batch batch = reef_batch_make(trainer, config->batch, trainer->batch.retain_windows, true);
    // Of all passes only those of a step are shared: others run on every rank, which decide alike.
    trainer->net.acts.ranks = sharing_ranks(trainer);
    status = reef_network_forward(&trainer->net.acts, &trainer->network, trainer->workers, &batch,
                                  REEF_PASS_TRAIN, &found);
    trainer->net.acts.ranks = NULL;
    *bits = mean_bits(trainer);
    // Infinite logits give a finite status but a useless step; it is refused before backward
    // touches a weight.
    if (status == REEF_OK && !isfinite(*bits))
        status = reef_fail(&found, REEF_ERR_INVALID, "the loss is not finite");
    trainer->seconds.forward += reef_seconds() - start;
    // The error of a diverged step names the step and the settings that caused it; other errors
    // pass unchanged.
    if (status == REEF_ERR_INVALID) return diverged(trainer, &found, err);
    return status == REEF_OK ? REEF_OK : reef_fail(err, status, "%s", found.message);
}

// ---- optimiser ----------------------------------------------------------------------------------

// What a layer is evaluated by, measured on the batch: statistics of queries, thresholds of
// mixtures.
static void update_statistics(reef_trainer *trainer, reef_generation *generation) {
    const reef_config *config = &trainer->network.config;
    const reef_activations *acts = &trainer->net.acts;
    // Statistics of the batch move the running ones before the weights do: they belong to the
    // queries that this batch asked.
    for (uint32_t l = 0; l < config->layers; l++) {
        const reef_layer_plan *plan = &acts->plans[l];
        reef_router_shape shape = reef_plan_router(plan, generation->info.side);
        if (plan->retrieves && config->batch_norm)
            reef_router_update_stats(
                &shape, &generation->weights.routers[l],
                &acts->expert_tables[trainer->network.generation_count - 1][l].tape,
                REEF_BN_MOMENTUM);
        if (plan->ffw == REEF_FFW_MOE && generation->info.generation == 0)
            reef_moe_update_thresholds(&plan->moe, &generation->weights.blocks[l].moe,
                                       &acts->layers[l].moe, REEF_BN_MOMENTUM);
    }
}

void reef_step_backward(reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    reef_generation *generation = reef_open_generation(trainer);
    double start = reef_seconds();
    // A new generation warms up again.
    trainer->net.learning_rate = reef_learning_rate(config, trainer->generation_step);
    reef_batch batch = reef_batch_make(trainer, config->batch, trainer->batch.retain_windows, true);
    reef_network_update update = {
        .adam = {trainer->net.learning_rate * config->expert_rate, config->beta1, config->beta2,
                 config->epsilon},
        .average_rate = REEF_AVERAGE_RATE,
        .clip = config->clip,
    };
    update_statistics(trainer, generation);
    trainer->net.acts.ranks = sharing_ranks(trainer);
    reef_network_backward(&trainer->net.acts, &trainer->network, trainer->workers, &batch, &update);
    trainer->net.acts.ranks = NULL;
    double backward = reef_seconds();
    reef_step_update_dense(trainer, generation,
                           reef_step_gradient_norm(trainer->workers, generation));
    trainer->seconds.backward += backward - start;
    trainer->seconds.update += reef_seconds() - backward;
}
