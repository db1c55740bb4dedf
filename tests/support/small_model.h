// A small model of any kinds of layers, with a batch, and all its gradients against finite
// differences.
#ifndef SMALL_MODEL_H
#define SMALL_MODEL_H

#include "checked.h"
#include "generation.h"
#include "reef_random.h"

#include <math.h>

enum { WINDOWS = 3 };

typedef struct model_fixture {
    reef_config config;
    reef_network network;
    reef_activations acts;
    reef_batch batch;
    uint8_t *tokens, *targets;
    float *weight;
    size_t rows;
    uint32_t *choices; // of the unperturbed forward, see gather_choices
    size_t choice_count;
} model_fixture;

static inline reef_config small_config(void) {
    reef_config config;
    reef_config_default(&config);
    config.layers = 3;
    strcpy(config.ffw, "pdp");
    config.d_model = 12;
    config.attention_heads = 3;
    config.context = 7;
    config.batch = WINDOWS;
    config.d_ffw = 10;
    config.heads = 2;
    config.topk = 2;
    config.d_key = 6;
    config.side = 5;
    return config;
}

// The one before is sealed with rows of `dtype`.
static inline void add_generation(model_fixture *f, reef_dtype dtype) {
    reef_generation *generation = NULL;
    bool first = f->network.generation_count == 0;
    reef_generation_record info = {.generation = (uint32_t)f->network.generation_count,
                                   .side = first ? 5 : 4,
                                   .dtype = REEF_F32};
    must(reef_generation_new(&generation, &f->config, &info, (reef_row_division){0}, &why));
    const reef_generation *before =
        first ? NULL : f->network.generations[f->network.generation_count - 1];
    reef_generation_initialise(generation, &f->config, before);
    if (!first) {
        reef_generation *sealed = NULL;
        must(reef_generation_make_sealed(&sealed,
                                         f->network.generations[f->network.generation_count - 1],
                                         &f->config, dtype, &why));
        reef_generation_free(f->network.generations[f->network.generation_count - 1]);
        f->network.generations[f->network.generation_count - 1] = sealed;
    }
    must(reef_network_append(&f->network, generation, &why));
    reef_activations_forget_generation(&f->acts, f->network.generation_count - 1);
    if (!first) reef_activations_forget_generation(&f->acts, f->network.generation_count - 2);
}

static inline void add_open_generation(model_fixture *f) {
    add_generation(f, REEF_F32);
}

// Every value away from its initial zero or one, so that no term of the gradient can hide.
static inline void stir(reef_generation *generation, const reef_config *config) {
    for (size_t i = 0; i < generation->tensor_count; i++) {
        reef_tensor *tensor = &generation->tensors[i];
        float *noise = malloc(tensor->count * sizeof(*noise));
        assert_non_null(noise);
        reef_random_uniform(tensor->count, noise, 0.3f, 77, i);
        bool variance = strstr(tensor->name, "bn_var") != NULL;
        for (size_t j = 0; j < tensor->count; j++)
            tensor->data[j] += variance ? fabsf(noise[j]) : noise[j];
        free(noise);
    }
    for (uint32_t l = 0; l < config->layers; l++)
        reef_random_normal(generation->expert_tables[l].expert_count *
                               generation->expert_tables[l].row_values,
                           generation->expert_tables[l].experts, 0.5f, 78, l);
}

/** A model of one open generation, with settings of its own: name, value, .. NULL. */
static inline model_fixture *small_model(const char *const *settings) {
    model_fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->config = small_config();
    for (; settings != NULL && settings[0] != NULL; settings += 2)
        must(reef_config_set(&f->config, settings[0], settings[1], &why));
    must(reef_config_check(&f->config, &why));
    f->network.config = f->config;
    f->rows = (size_t)WINDOWS * f->config.context;
    must(reef_activations_init(&f->acts, &f->network.config, WINDOWS, true, &why));
    f->tokens = calloc(f->rows, 1);
    f->targets = calloc(f->rows, 1);
    f->weight = calloc(f->rows, sizeof(*f->weight));
    for (size_t i = 0; i < f->rows; i++) {
        f->tokens[i] = (uint8_t)(reef_random_bits(5, 1, i) % 6);
        f->targets[i] = (uint8_t)(reef_random_bits(5, 2, i) % 6);
        f->weight[i] = 0.25f + (float)reef_random_unit(5, 3, i);
    }
    f->batch = (reef_batch){
        .windows = WINDOWS,
        .tokens = f->tokens,
        .targets = f->targets,
        .weight = f->weight,
    };
    add_open_generation(f);
    stir(f->network.generations[0], &f->config);
    return f;
}

/** Of one kind of experts, chosen by one kind of scores. */
static inline model_fixture *model_with(const char *expert, const char *score) {
    return small_model((const char *const[]){"expert", expert, "score", score, NULL});
}

static inline void free_model(model_fixture *f) {
    reef_activations_release(&f->acts);
    reef_network_release(&f->network);
    free(f->tokens);
    free(f->targets);
    free(f->weight);
    free(f->choices);
    free(f);
}

static inline void forward(model_fixture *f, reef_activations_mode mode) {
    must(reef_network_forward(&f->acts, &f->network, NULL, &f->batch, mode, &why));
}

static inline double loss(model_fixture *f) {
    forward(f, REEF_PASS_TRAIN);
    double sum = 0.0;
    for (size_t i = 0; i < f->rows; i++) sum += (double)f->weight[i] * f->acts.loss[i];
    return sum;
}

#define CHOICES_MAX 4096
#define ERROR_MAX 3e-3 // a wrong coefficient in one term is near 1e-2

// Which tokens each expert of a mixture took.
static inline size_t gather_taken(const model_fixture *f,
                                  const reef_moe_tape *tape,
                                  uint32_t *out) {
    size_t E = f->config.moe_experts, T = f->config.context, count = 0;
    for (size_t place = 0; place < WINDOWS * E; place++) {
        assert_true(count + 1 + tape->counts[place] <= CHOICES_MAX);
        out[count++] = (uint32_t)tape->counts[place];
        for (size_t i = 0; i < tape->counts[place]; i++) out[count++] = tape->tokens[place * T + i];
    }
    return count;
}

// What is a choice and not a slope, of every fired generation, all layers, one after the other:
// each chosen expert, whether it has a weight (relu scores), and on which side of its kink a relu
// is.
static inline size_t gather_choices(const model_fixture *f, uint32_t *out) {
    size_t count = 0;
    for (uint32_t l = 0; l < f->config.layers; l++)
        if (reef_layer_ffw(&f->config, l) == REEF_FFW_MOE)
            count += gather_taken(f, &f->acts.layers[l].moe, out + count);
    size_t firing[REEF_FIRING_MAX], firing_count = reef_batch_firing(&f->batch, firing);
    for (size_t i = 0; i < firing_count; i++)
        for (uint32_t l = 0; l < f->config.layers; l++) {
            if (!reef_layer_retrieves(&f->config, l)) continue;
            reef_expert_shape shape = reef_generation_expert_shape(&f->config, l);
            size_t each = f->rows * shape.P;
            const reef_activations_table *table = &f->acts.expert_tables[firing[i]][l];
            assert_true(count + each <= CHOICES_MAX);
            for (size_t k = 0; k < each; k++) {
                bool active = shape.kind == REEF_EXPERT_RELU && table->hidden[k] > 0.0f;
                out[count++] =
                    table->tape.indices[k] * 4 + 2 * (table->tape.gate[k] > 0.0f) + active;
            }
        }
    return count;
}

static inline bool choices_are_kept(const model_fixture *f) {
    uint32_t now[CHOICES_MAX];
    size_t count = gather_choices(f, now);
    return count == f->choice_count && memcmp(now, f->choices, count * sizeof(*now)) == 0;
}

// Every `stride`-th value of a parameter. Steps that change a choice are left out, and most must
// not.
static inline double worst_error(model_fixture *f,
                                 size_t count,
                                 float *values,
                                 const float *gradient,
                                 size_t stride,
                                 size_t *kept,
                                 size_t *tried) {
    // Half way between rounding, which 1e-3 shows, and the curvature of a sigmoid or gated model.
    const float step = 2.5e-3f;
    double worst = 0.0;
    for (size_t i = 0; i < count; i += stride) {
        const float middle = values[i];
        volatile float above = middle + step, below = middle - step;
        values[i] = above;
        double loss_above = loss(f);
        bool same = choices_are_kept(f);
        values[i] = below;
        double loss_below = loss(f);
        same = same && choices_are_kept(f);
        values[i] = middle;
        ++*tried;
        if (!same) continue;
        ++*kept;
        double numeric = (loss_above - loss_below) / ((double)above - (double)below);
        double analytic = (double)gradient[i];
        double error = fabs(analytic - numeric) / fmax(1.0, fmax(fabs(analytic), fabs(numeric)));
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

static inline void check_all_gradients(model_fixture *f) {
    reef_generation *open = f->network.generations[f->network.generation_count - 1];
    size_t kept = 0, tried = 0;
    f->choices = calloc(CHOICES_MAX, sizeof(*f->choices));
    assert_non_null(f->choices);
    loss(f);
    f->choice_count = gather_choices(f, f->choices);
    // Adam without memory and with an enormous epsilon is plain descent by the gradient itself.
    float *before[8] = {0};
    for (uint32_t l = 0; l < f->config.layers; l++) {
        size_t bytes =
            open->expert_tables[l].expert_count * open->expert_tables[l].row_values * sizeof(float);
        before[l] = malloc(bytes + 1);
        if (bytes > 0) memcpy(before[l], open->expert_tables[l].experts, bytes);
    }
    reef_network_update update = {
        .adam = {.learning_rate = 1e6f, .beta1 = 0.0f, .beta2 = 0.0f, .epsilon = 1e6f}};
    reef_network_backward(&f->acts, &f->network, NULL, &f->batch, &update);
    float *gradients[8] = {0};
    for (uint32_t l = 0; l < f->config.layers;
         l++) { // all rows back in place before any is measured
        size_t count = open->expert_tables[l].expert_count * open->expert_tables[l].row_values;
        gradients[l] = malloc((count + 1) * sizeof(float));
        for (size_t i = 0; i < count; i++)
            gradients[l][i] = before[l][i] - open->expert_tables[l].experts[i];
        if (count > 0) memcpy(open->expert_tables[l].experts, before[l], count * sizeof(float));
    }
    for (uint32_t l = 0; l < f->config.layers; l++) {
        size_t count = open->expert_tables[l].expert_count * open->expert_tables[l].row_values;
        double error =
            worst_error(f, count, open->expert_tables[l].experts, gradients[l], 7, &kept, &tried);
        if (error > ERROR_MAX) print_message("experts of layer %u: %g\n", l, error);
        assert_true(error < ERROR_MAX);
        free(gradients[l]);
    }
    for (size_t i = 0; i < open->tensor_count; i++) {
        reef_tensor *tensor = &open->tensors[i];
        if (tensor->grad == NULL) continue;
        float *gradient = malloc(tensor->count * sizeof(*gradient));
        memcpy(gradient, tensor->grad, tensor->count * sizeof(*gradient));
        size_t stride = tensor->count > 120 ? tensor->count / 60 | 1 : 1;
        double error = worst_error(f, tensor->count, tensor->data, gradient, stride, &kept, &tried);
        if (error > ERROR_MAX) print_message("%s: %g\n", tensor->name, error);
        assert_true(error < ERROR_MAX);
        free(gradient);
    }
    assert_true(kept * 2 > tried);
    for (uint32_t l = 0; l < f->config.layers; l++) free(before[l]);
}

static inline void check_later_generation(model_fixture *f, reef_dtype dtype) {
    add_generation(f, dtype);
    stir(f->network.generations[1], &f->config);
    add_generation(f, dtype);
    stir(f->network.generations[2], &f->config);
    f->batch.fires = 2;
    check_all_gradients(f);
}

#endif
