// See warm_start.h.
#include "warm_start.h"
#include "batch.h"
#include "events.h"
#include "step.h"

// Of the fresh batches that are run forward, at most: each costs a pass, twice.
#define PROBED_MAX 8

bool reef_start_is_due(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    const reef_generation_record *open = &reef_open_generation(trainer)->info;
    // One that continues a kind is a copy, which has been weighed.
    return trainer->generation_step == 0 && open->generation > 0 && open->continues == 0 &&
           config->weigh_older && reef_config_retrieving_layers(config) > 0;
}

static void weigh_older(const reef_trainer *trainer, float factor) {
    const reef_config *config = &trainer->network.config;
    const reef_generation *open = reef_open_generation(trainer);
    for (uint32_t l = 0; l < config->layers; l++)
        for (size_t d = 0; open->weights.delta_older[l] != NULL && d < config->d_model; d++)
            open->weights.delta_older[l][d] = factor - 1.0f;
}

// The sum of what some of the fresh batches cost, evenly spaced; in training mode.
static reef_status probe(
    reef_trainer *trainer, const uint8_t *fresh, size_t batches, double *sum, reef_error *err) {
    size_t size = reef_batch_bytes(&trainer->network.config);
    size_t count = batches < PROBED_MAX ? batches : PROBED_MAX, probed = 0;
    reef_gating moving = {0};
    reef_status status = reef_gating_copy(&moving, &trainer->net.gating, err);
    *sum = 0.0;
    for (size_t b = 0; status == REEF_OK && b < batches; b++) {
        const uint8_t *bytes = fresh + b * size;
        double bits = 0.0;
        // Gates read the stream in order, whatever is run. Whole numbers: every run probes the same.
        if (probed == count || b != probed * batches / count) {
            reef_step_decide(trainer, bytes, &moving);
            continue;
        }
        status = reef_step_forward(trainer, bytes, &moving, &bits, err);
        *sum += bits;
        probed++;
    }
    reef_gating_release(&moving);
    return status;
}

// Experts of prose are noise on a genome: what they add can be unlearned, but that takes long.
// Whichever of all and nothing gives the smaller loss is where the weights of their sum begin.
static reef_status choose_older(
    reef_trainer *trainer, const uint8_t *fresh, size_t batches, bool *without, reef_error *err) {
    double all, none = 0.0;
    reef_status status = probe(trainer, fresh, batches, &all, err);
    weigh_older(trainer, 0.0f);
    if (status == REEF_OK) status = probe(trainer, fresh, batches, &none, err);
    *without = status == REEF_OK && none < all;
    if (!*without) weigh_older(trainer, 1.0f);
    return status;
}

reef_status reef_start_generation(reef_trainer *trainer,
                                  const uint8_t *fresh,
                                  size_t fresh_bytes,
                                  reef_error *err) {
    size_t size = reef_batch_bytes(&trainer->network.config), batches = fresh_bytes / size;
    bool without;
    reef_status status = choose_older(trainer, fresh, batches, &without, err);
    if (status != REEF_OK) return status;
    reef_generation_average_reset(reef_open_generation(trainer)); // it has not trained yet
    return reef_state_event(trainer, err, "start", "\"older\": %s, \"bytes\": %zu",
                            without ? "false" : "true", batches * size);
}
