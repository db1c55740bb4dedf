// Elastic weight consolidation (Kirkpatrick et al. 2017), in its online form with one anchor
// (Schwarz et al. 2018): the loss gets ewc_weight / 2 * the sum of F (theta - anchor)^2.
//
// At a boundary the anchor becomes the parameters as they are, and F the mean over windows of
// everything seen so far of the squared gradient of a window's mean loss (nats): the empirical
// Fisher, diagonal. The reservoir samples all tasks alike, so F is estimated again at each
// boundary; Schwarz et al., who have the last task's data only, add to an F that decays. Rows of
// experts are pulled when a step meets them.
#include "batch.h"
#include "strategy.h"
#include "trainer_internal.h"

#include <stdlib.h>
#include <string.h>

// squared gradients of fewer are too few, of more cost more than they tell
#define FISHER_WINDOWS_MAX 256

reef_status reef_shadow_init(reef_shadow *shadow,
                             const reef_generation *generation,
                             reef_error *err) {
    // One block for all dense tensors, with their offsets, so that a tensor's shadow is found by
    // pointer arithmetic.
    *shadow = (reef_shadow){.values = calloc(generation->value_count, sizeof(float))};
    bool ok = shadow->values != NULL;
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        if (table->expert_count == 0) continue;
        shadow->rows[l] = calloc(table->expert_count * table->row_values, sizeof(float));
        ok = ok && shadow->rows[l] != NULL;
    }
    if (ok) return REEF_OK;
    reef_shadow_release(shadow);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a second copy of %zu parameters",
                     generation->value_count);
}

void reef_shadow_release(reef_shadow *shadow) {
    free(shadow->values);
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) free(shadow->rows[l]);
    *shadow = (reef_shadow){0};
}

// ---- at a boundary ------------------------------------------------------------------------------

static void copy_parameters(reef_shadow *to, const reef_generation *generation) {
    memcpy(to->values, generation->values, generation->value_count * sizeof(float));
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        if (table->expert_count == 0) continue;
        memcpy(to->rows[l], table->experts,
               table->expert_count * table->row_values * sizeof(float));
    }
}

static float *shadow_of(const reef_shadow *shadow,
                        const reef_generation *generation,
                        const reef_tensor *tensor) {
    return shadow->values + (tensor->data - generation->values);
}

typedef struct dense_job {
    const reef_shadow *anchor, *fisher;
    const reef_generation *generation;
    float weight;
} dense_job;

static void square_tensor(void *context, size_t piece) {
    const dense_job *job = context;
    const reef_tensor *tensor = &job->generation->tensors[piece];
    if (tensor->grad == NULL) return;
    float *squares = shadow_of(job->fisher, job->generation, tensor);
    for (size_t i = 0; i < tensor->count; i++) squares[i] += tensor->grad[i] * tensor->grad[i];
    memset(tensor->grad, 0, tensor->count * sizeof(*tensor->grad));
}

// Squared gradients of window 0, where they were computed.
static reef_status add_squares(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_generation *generation = reef_open_generation(trainer);
    // Mean loss of the window: its squared gradient is one sample of the Fisher information.
    for (size_t t = 0; t < config->context; t++) trainer->weight[t] = 1.0f / (float)config->context;
    reef_batch batch = {
        .windows = 1,
        .tokens = trainer->tokens,
        .targets = trainer->targets,
        .weight = trainer->weight,
        .fire = trainer->fire,
        .fire_stride = reef_step_windows(config) * config->context,
    };
    // In training mode, because gradients exist only there. Statistics and weights are not updated:
    // `update` has no rate.
    reef_status status = reef_network_forward(&trainer->acts, &trainer->network, trainer->workers,
                                              &batch, REEF_PASS_TRAIN, err);
    if (status != REEF_OK) return status;
    // Backward adds the squares of rows of experts as it meets them; dense tensors follow below.
    reef_network_update update = {.squares = trainer->strategy.fisher.rows};
    reef_network_backward(&trainer->acts, &trainer->network, trainer->workers, &batch, &update);
    dense_job job = {.fisher = &trainer->strategy.fisher, .generation = generation};
    reef_thread_pool_run(trainer->workers, generation->tensor_count, square_tensor, &job);
    return REEF_OK;
}

static void scale(float *values, size_t count, float factor) {
    for (size_t i = 0; i < count; i++) values[i] *= factor;
}

static void scale_shadow(reef_shadow *shadow, const reef_generation *generation, float factor) {
    scale(shadow->values, generation->value_count, factor);
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        scale(shadow->rows[l], table->expert_count * table->row_values, factor);
    }
}

reef_status reef_ewc_boundary(reef_trainer *trainer, reef_error *err) {
    reef_strategy *strategy = &trainer->strategy;
    const reef_generation *generation = reef_open_generation(trainer);
    size_t count;
    // Released first: two copies of the parameters at once may not fit into memory.
    reef_shadow_release(&strategy->anchor);
    reef_shadow_release(&strategy->fisher);
    reef_status status = reef_shadow_init(&strategy->anchor, generation, err);
    if (status == REEF_OK) status = reef_shadow_init(&strategy->fisher, generation, err);
    if (status == REEF_OK)
        // Sampling walks the reservoir, so Fisher information covers all tasks so far, not only the
        // last.
        status = reef_strategy_sample(trainer, FISHER_WINDOWS_MAX, add_squares, &count, err);
    if (status != REEF_OK) return status;
    if (count > 0) scale_shadow(&strategy->fisher, generation, 1.0f / (float)count);
    // After the gradients, which need the parameters unchanged.
    copy_parameters(&strategy->anchor, generation);
    return REEF_OK;
}

// ---- in a step ----------------------------------------------------------------------------------

static void pull_tensor(void *context, size_t piece) {
    const dense_job *job = context;
    const reef_tensor *tensor = &job->generation->tensors[piece];
    if (tensor->grad == NULL) return;
    const float *anchor = shadow_of(job->anchor, job->generation, tensor);
    const float *fisher = shadow_of(job->fisher, job->generation, tensor);
    for (size_t i = 0; i < tensor->count; i++)
        tensor->grad[i] += job->weight * fisher[i] * (tensor->data[i] - anchor[i]);
}

void reef_ewc_pull_dense(reef_trainer *trainer) {
    const reef_strategy *strategy = &trainer->strategy;
    const reef_generation *generation = reef_open_generation(trainer);
    dense_job job = {.anchor = &strategy->anchor,
                     .fisher = &strategy->fisher,
                     .generation = generation,
                     .weight = trainer->network.config.ewc_weight};
    reef_thread_pool_run(trainer->workers, generation->tensor_count, pull_tensor, &job);
}

void reef_ewc_pull_rows(reef_trainer *trainer, reef_network_update *update) {
    reef_strategy *strategy = &trainer->strategy;
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        strategy->pulls[l] = (reef_expert_pull){.stiffness = strategy->fisher.rows[l],
                                                .anchor = strategy->anchor.rows[l],
                                                .weight = trainer->network.config.ewc_weight};
    update->pulls = strategy->pulls;
}
