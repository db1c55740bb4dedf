// One batch of the stream: forward with the open generation, backward, optimiser.
#include "step.h"
#include "batch.h"
#include "optimiser.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// Every token weighs the same.
static void weigh_tokens(reef_trainer *trainer) {
    size_t rows = reef_batch_bytes(&trainer->network.config);
    for (size_t i = 0; i < rows; i++) trainer->batch.weight[i] = 1.0f / (float)rows;
}

static double mean_bits(const reef_trainer *trainer) {
    double nats = 0.0;
    size_t count = reef_batch_bytes(&trainer->network.config);
    for (size_t i = 0; i < count; i++) nats += trainer->net.acts.loss[i];
    return nats / REEF_LN2 / (double)count;
}

void reef_step_count_losses(reef_trainer *trainer, uint64_t begin) {
    // Of a batch that a context memory learns, the losses with its help count: see pending.c.
    if (trainer->network.config.memory > 0) return;
    // A row's loss is about the token after it.
    reef_prequential_count(trainer, begin + 1, 1, trainer->net.acts.loss, 1.0 / REEF_LN2,
                           reef_batch_bytes(&trainer->network.config));
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

static reef_batch training_batch(reef_trainer *trainer) {
    return reef_batch_make(trainer, trainer->network.config.batch,
                           trainer->network.generation_count - 1, true);
}

reef_status reef_step_forward(reef_trainer *trainer,
                              const uint8_t *bytes,
                              double *bits,
                              reef_error *err) {
    const reef_config *config = &trainer->network.config;
    double start = reef_seconds();
    reef_error found;
    for (size_t w = 0; w < config->batch; w++)
        reef_batch_place(trainer, w, bytes + w * config->context);
    weigh_tokens(trainer);
    const reef_batch batch = training_batch(trainer);
    // Of all passes only those of a step are shared: others run on every rank, which decide alike.
    trainer->net.acts.ranks = sharing_ranks(trainer);
    reef_status status = reef_network_forward(&trainer->net.acts, &trainer->network,
                                              trainer->workers, &batch, REEF_PASS_TRAIN, &found);
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
    const reef_batch batch = training_batch(trainer);
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
