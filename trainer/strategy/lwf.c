// Learning without forgetting (Li & Hoiem 2016): on the new data, the output of the model stays
// close to that of the model of the last boundary. The loss of a step gets lwf_weight * KL(teacher
// || student), both softmaxes at lwf_temperature, averaged over the same tokens as the
// cross-entropy.
//
// The teacher is a sealed copy: batch norm folded, no moments, nothing that could change. It costs
// one more forward pass a step.
#include "batch.h"
#include "strategy.h"
#include "trainer_internal.h"
#include "transformer.h"

#include <math.h>
#include <string.h>

double reef_distill(size_t V,
                    float *d_logits,
                    const float *student,
                    const float *teacher,
                    float temperature,
                    float weight) {
    double top_p = -INFINITY, top_q = -INFINITY, sum_p = 0.0, sum_q = 0.0, loss = 0.0;
    double rate = 1.0 / (double)temperature;
    // The largest logit is subtracted before exp, or a confident teacher would overflow.
    for (size_t v = 0; v < V; v++) {
        top_p = fmax(top_p, (double)teacher[v] * rate);
        top_q = fmax(top_q, (double)student[v] * rate);
    }
    for (size_t v = 0; v < V; v++) {
        sum_p += exp((double)teacher[v] * rate - top_p);
        sum_q += exp((double)student[v] * rate - top_q);
    }
    for (size_t v = 0; v < V; v++) {
        double log_p = (double)teacher[v] * rate - top_p - log(sum_p);
        double log_q = (double)student[v] * rate - top_q - log(sum_q);
        // KL(p || q) with p the teacher: where the teacher is sure, the student must be.
        loss += exp(log_p) * (log_p - log_q);
        if (d_logits != NULL)
            // d KL / d logit = (q - p) / temperature. Hinton et al. multiply by temperature^2
            // elsewhere; here `weight` includes it.
            d_logits[v] += (float)((double)weight * rate * (exp(log_q) - exp(log_p)));
    }
    return loss;
}

// ---- the teacher --------------------------------------------------------------------------------

reef_status reef_lwf_prepare(reef_trainer *trainer, reef_error *err) {
    reef_strategy *strategy = &trainer->strategy;
    const reef_config *config = &trainer->network.config;
    reef_generation_record info = reef_open_generation(trainer)->info;
    // Marked as sealed so that a pass treats it as fixed and never computes gradients for it.
    info.sealed = true;
    info.dtype = REEF_F32;
    reef_generation_free(strategy->teacher);
    strategy->teacher = NULL;
    reef_status status = reef_generation_new(&strategy->teacher, config, &info, err);
    if (status == REEF_OK) status = reef_generation_allocate_rows(strategy->teacher, err);
    // Activations of the teacher are kept over boundaries: the shape does not change under this
    // strategy.
    if (status == REEF_OK && strategy->listened.config == NULL)
        status = reef_activations_init(&strategy->listened, config, reef_step_windows(config),
                                       false, err);
    return status;
}

static void copy_dense(reef_generation *teacher, const reef_generation *open) {
    for (size_t i = 0; i < teacher->tensor_count; i++) {
        reef_tensor *tensor = &teacher->tensors[i];
        const reef_tensor *from = reef_generation_find(open, tensor->name);
        if (from != NULL) memcpy(tensor->data, from->data, tensor->count * sizeof(float));
    }
}

reef_status reef_lwf_boundary(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_generation *open = reef_open_generation(trainer);
    reef_status status = reef_lwf_prepare(trainer, err);
    if (status != REEF_OK) return status;
    reef_generation *teacher = trainer->strategy.teacher;
    reef_generation_exchange(open, config); // the model as it is evaluated
    copy_dense(teacher, open);
    size_t width = (size_t)config->heads * config->d_key;
    for (uint32_t l = 0; l < config->layers; l++) {
        const reef_expert_table *table = &open->expert_tables[l];
        if (table->expert_count == 0) continue;
        reef_router_params *router = &teacher->weights.routers[l];
        // The folded query includes the batch norm as it is evaluated, so the teacher needs no
        // statistics.
        memcpy(router->w_query, open->folded[l].w_query, config->d_model * width * sizeof(float));
        memcpy(router->query_bias, open->folded[l].query_bias, width * sizeof(float));
        memcpy(teacher->expert_tables[l].experts, table->experts,
               table->expert_count * table->row_values * sizeof(float));
    }
    // Exchanging twice restores training weights and averages bit for bit.
    reef_generation_exchange(open, config);
    return REEF_OK;
}

// ---- in a step ----------------------------------------------------------------------------------

typedef struct sample {
    const reef_trainer *trainer;
    const reef_batch *batch;
} sample;

// A window's logits become the gradient of its loss; its share of every token is the batch's
// weight.
static void gradient_window(void *context, size_t w) {
    const sample *of = context;
    const reef_config *config = &of->trainer->network.config;
    size_t T = config->context, V = config->vocab, each = reef_token_bytes(config), row = w * T;
    const float *weight = of->trainer->weight + row;
    float *logits = of->trainer->acts.logits + row * V;
    float *distilled =
        of->trainer->acts.window_scratch + row * reef_activations_scratch_width(config);
    const float *teacher = of->trainer->strategy.listened.logits + row * V;
    for (size_t t = 0; t < T; t++) {
        // The distillation gradient is formed apart, because cross-entropy overwrites the logits
        // with its own.
        memset(distilled, 0, V * sizeof(*distilled));
        reef_distill(V, distilled, logits + t * V, teacher + t * V, config->lwf_temperature,
                     config->lwf_weight * weight[t]);
        reef_cross_entropy(1, V, of->trainer->acts.loss + row + t, logits + t * V,
                           of->batch->targets + (row + t) * each, each, weight + t, true);
        reef_axpy(V, logits + t * V, 1.0f, distilled);
    }
}

reef_status reef_lwf_gradient(reef_trainer *trainer, const reef_batch *batch, reef_error *err) {
    reef_strategy *strategy = &trainer->strategy;
    reef_network network = {.config = trainer->network.config,
                            .generation_count = 1,
                            .generations = &strategy->teacher};
    reef_batch heard = *batch;
    // The teacher's loss is not wanted: no weights, no gradient.
    heard.weight = NULL;
    reef_status status = reef_network_forward(&strategy->listened, &network, trainer->workers,
                                              &heard, REEF_PASS_EVALUATE, err);
    if (status != REEF_OK) return status;
    sample of = {trainer, batch};
    reef_thread_pool_run(trainer->workers, batch->windows, gradient_window, &of);
    return REEF_OK;
}
