// The whole model's backward against finite differences of its forward, and what generations promise
// about each other: opening one changes nothing, a silent one costs not one bit.
#include "model.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOWS = 3, RETAIN = 1 };

typedef struct model_fixture {
    reef_config config;
    reef_net net;
    reef_pass pass;
    reef_batch batch;
    uint8_t *tokens, *targets, *fire;
    float *weight;
    size_t rows;
    reef_expert_id *indices; // of the unperturbed forward, all layers of the open generation
} model_fixture;

static reef_config small_config(void) {
    reef_config config;
    reef_config_default(&config);
    config.layers = 3;
    strcpy(config.ffw, "pdp");
    config.d_model = 12;
    config.attention_heads = 3;
    config.context = 7;
    config.batch = WINDOWS - RETAIN;
    config.d_ffw = 10;
    config.heads = 2;
    config.topk = 2;
    config.d_key = 6;
    config.side = 5;
    config.adapters = 3;
    config.side_new = 4;
    config.retain_weight = 0.0f; // its denominator counts as a constant: no finite difference of it
    return config;
}

static void add_open_generation(model_fixture *f) {
    reef_error err;
    reef_gen *gen = NULL;
    bool first = f->net.gen_count == 0;
    reef_generation info = {.generation = (uint32_t)f->net.gen_count, .side = first ? 5 : 4};
    assert_int_equal(reef_gen_new(&gen, &f->config, &info, &err), REEF_OK);
    const reef_gen *before = first ? NULL : f->net.gens[f->net.gen_count - 1];
    reef_gen_initialise(gen, &f->config, before);
    if (!first) {
        reef_gen *sealed = NULL;
        assert_int_equal(
            reef_gen_seal(&sealed, f->net.gens[f->net.gen_count - 1], &f->config, &err), REEF_OK);
        reef_gen_free(f->net.gens[f->net.gen_count - 1]);
        f->net.gens[f->net.gen_count - 1] = sealed;
    }
    assert_int_equal(reef_net_append(&f->net, gen, &err), REEF_OK);
    reef_pass_forget_generation(&f->pass, f->net.gen_count - 1);
    if (!first) reef_pass_forget_generation(&f->pass, f->net.gen_count - 2);
}

// Every value away from its initial zero or one, so that no term of the gradient can hide.
static void stir(reef_gen *gen, const reef_config *config) {
    for (size_t i = 0; i < gen->tensor_count; i++) {
        reef_tensor *tensor = &gen->tensors[i];
        float *noise = malloc(tensor->count * sizeof *noise);
        assert_non_null(noise);
        reef_random_uniform(tensor->count, noise, 0.3f, 77, i);
        bool variance = strstr(tensor->name, "bn_var") != NULL;
        for (size_t j = 0; j < tensor->count; j++)
            tensor->data[j] += variance ? fabsf(noise[j]) : noise[j];
        free(noise);
    }
    for (uint32_t l = 0; l < config->layers; l++)
        reef_random_normal(gen->peers[l].expert_count * 2 * config->d_model, gen->peers[l].experts,
                           0.5f, 78, l);
}

static int setup(void **state) {
    reef_error err;
    model_fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->config = small_config();
    f->net.config = f->config;
    f->rows = (size_t)WINDOWS * f->config.context;
    assert_int_equal(reef_pass_init(&f->pass, &f->net.config, WINDOWS, true, &err), REEF_OK);
    f->tokens = calloc(f->rows, 1);
    f->targets = calloc(f->rows, 1);
    f->fire = calloc(3 * f->rows, 1);
    f->weight = calloc(f->rows, sizeof *f->weight);
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
        .fire = f->fire,
        .fire_stride = f->rows,
    };
    add_open_generation(f);
    stir(f->net.gens[0], &f->config);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    model_fixture *f = *state;
    reef_pass_release(&f->pass);
    reef_net_release(&f->net);
    free(f->tokens);
    free(f->targets);
    free(f->fire);
    free(f->weight);
    free(f->indices);
    free(f);
    return 0;
}

static void forward(model_fixture *f, reef_pass_mode mode) {
    reef_error err;
    assert_int_equal(reef_pass_forward(&f->pass, &f->net, NULL, &f->batch, mode, &err), REEF_OK);
}

static double loss(model_fixture *f) {
    forward(f, REEF_PASS_TRAIN);
    double sum = 0.0;
    for (size_t i = 0; i < f->rows; i++) sum += (double)f->weight[i] * f->pass.loss[i];
    return sum;
}

// The choice of experts of every fired generation, all layers, one after the other.
static size_t gather_indices(const model_fixture *f, reef_expert_id *out) {
    size_t each = f->rows * f->config.heads * f->config.topk, count = 0;
    for (size_t g = 0; g < f->net.gen_count; g++)
        for (uint32_t l = 0; l < f->config.layers; l++) {
            if (!reef_layer_is_peer(&f->config, l)) continue;
            memcpy(out + count, f->pass.peers[g][l].tape.indices, each * sizeof *out);
            count += each;
        }
    return count;
}

static bool routing_is_kept(const model_fixture *f) {
    reef_expert_id now[4096];
    size_t count = gather_indices(f, now);
    assert_true(count <= 4096);
    return memcmp(now, f->indices, count * sizeof *now) == 0;
}

// Every `stride`-th value of a parameter. Routing is a choice, not a slope: steps that change it are
// left out, and most must not.
static double worst_error(model_fixture *f,
                          size_t count,
                          float *values,
                          const float *gradient,
                          size_t stride,
                          size_t *kept,
                          size_t *tried) {
    const float step = 4e-3f;
    double worst = 0.0;
    for (size_t i = 0; i < count; i += stride) {
        const float middle = values[i];
        volatile float above = middle + step, below = middle - step;
        values[i] = above;
        double loss_above = loss(f);
        bool same = routing_is_kept(f);
        values[i] = below;
        double loss_below = loss(f);
        same = same && routing_is_kept(f);
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

static void check_all_gradients(model_fixture *f) {
    reef_gen *open = f->net.gens[f->net.gen_count - 1];
    size_t kept = 0, tried = 0;
    f->indices = malloc(4096 * sizeof *f->indices);
    loss(f);
    gather_indices(f, f->indices);
    // Adam without memory and with an enormous epsilon is plain descent by the gradient itself.
    float *before[8] = {0};
    for (uint32_t l = 0; l < f->config.layers; l++) {
        size_t bytes = open->peers[l].expert_count * 2 * f->config.d_model * sizeof(float);
        before[l] = malloc(bytes + 1);
        if (bytes > 0) memcpy(before[l], open->peers[l].experts, bytes);
    }
    reef_pass_update update = {
        .adam = {.learning_rate = 1e6f, .beta1 = 0.0f, .beta2 = 0.0f, .epsilon = 1e6f}};
    reef_pass_backward(&f->pass, &f->net, NULL, &f->batch, &update);
    float *gradients[8] = {0};
    for (uint32_t l = 0; l < f->config.layers;
         l++) { // all rows back in place before any is measured
        size_t count = open->peers[l].expert_count * 2 * f->config.d_model;
        gradients[l] = malloc((count + 1) * sizeof(float));
        for (size_t i = 0; i < count; i++)
            gradients[l][i] = before[l][i] - open->peers[l].experts[i];
        if (count > 0) memcpy(open->peers[l].experts, before[l], count * sizeof(float));
    }
    for (uint32_t l = 0; l < f->config.layers; l++) {
        size_t count = open->peers[l].expert_count * 2 * f->config.d_model;
        double error =
            worst_error(f, count, open->peers[l].experts, gradients[l], 7, &kept, &tried);
        if (error > 2e-3) print_message("experts of layer %u: %g\n", l, error);
        assert_true(error < 2e-3);
        free(gradients[l]);
    }
    for (size_t i = 0; i < open->tensor_count; i++) {
        reef_tensor *tensor = &open->tensors[i];
        if (tensor->grad == NULL) continue;
        float *gradient = malloc(tensor->count * sizeof *gradient);
        memcpy(gradient, tensor->grad, tensor->count * sizeof *gradient);
        size_t stride = tensor->count > 120 ? tensor->count / 60 | 1 : 1;
        double error = worst_error(f, tensor->count, tensor->data, gradient, stride, &kept, &tried);
        if (error > 2e-3) print_message("%s: %g\n", tensor->name, error);
        assert_true(error < 2e-3);
        free(gradient);
    }
    assert_true(kept * 10 > tried * 8);
    for (uint32_t l = 0; l < f->config.layers; l++) free(before[l]);
}

static void first_generation_backward_agrees_with_finite_differences(void **state) {
    check_all_gradients(*state);
}

static void later_generation_backward_agrees_with_finite_differences(void **state) {
    model_fixture *f = *state;
    add_open_generation(f);
    stir(f->net.gens[1], &f->config);
    for (size_t i = 0; i < f->rows; i++) f->fire[f->rows + i] = 1;
    add_open_generation(f);
    stir(f->net.gens[2], &f->config);
    // The last window is old data: gates decide, and no more than some tokens fire.
    size_t T = f->config.context;
    for (size_t i = 0; i < f->rows; i++) f->fire[2 * f->rows + i] = i < 2 * T || i % 3 == 1;
    for (size_t i = 0; i < T; i++) f->fire[f->rows + i] = i > 2;
    check_all_gradients(f);
}

static void opening_a_generation_changes_no_bit(void **state) {
    model_fixture *f = *state;
    size_t count = f->rows * REEF_VOCAB;
    float *before = malloc(count * sizeof *before);
    f->batch.weight = NULL;
    reef_gen_fold(f->net.gens[0], &f->config);
    forward(f, REEF_PASS_EVALUATE);
    memcpy(before, f->pass.logits, count * sizeof *before);
    add_open_generation(f);
    for (int fires = 0; fires < 2; fires++) {
        memset(f->fire + f->rows, fires, f->rows);
        reef_gen_fold(f->net.gens[1], &f->config);
        forward(f, REEF_PASS_EVALUATE);
        if (fires) // zero was added: -0 may have become 0
            for (size_t i = 0; i < count; i++) assert_true(before[i] == f->pass.logits[i]);
        else
            assert_memory_equal(before, f->pass.logits, count * sizeof *before);
    }
    free(before);
}

static void a_silent_generation_touches_no_bit(void **state) {
    model_fixture *f = *state;
    size_t count = f->rows * REEF_VOCAB, T = f->config.context, row = T * REEF_VOCAB;
    float *before = malloc(count * sizeof *before);
    f->batch.weight = NULL;
    add_open_generation(f);
    stir(f->net.gens[1], &f->config);
    reef_gen_fold(f->net.gens[1], &f->config);
    forward(f, REEF_PASS_EVALUATE);
    memcpy(before, f->pass.logits, count * sizeof *before);
    // It fires from the fourth token of the second window on: causal, so nothing before that moves.
    for (size_t t = 3; t < T; t++) f->fire[f->rows + T + t] = 1;
    forward(f, REEF_PASS_EVALUATE);
    size_t quiet = row + 3 * REEF_VOCAB;
    assert_memory_equal(before, f->pass.logits, quiet * sizeof *before);
    assert_memory_not_equal(before + quiet, f->pass.logits + quiet, REEF_VOCAB * sizeof *before);
    assert_memory_equal(before + 2 * row, f->pass.logits + 2 * row, row * sizeof *before);
    free(before);
}

static void a_window_does_not_depend_on_its_neighbours(void **state) {
    model_fixture *f = *state;
    size_t row = (size_t)f->config.context * REEF_VOCAB;
    float *alone = malloc(row * sizeof *alone);
    f->batch.weight = NULL;
    reef_gen_fold(f->net.gens[0], &f->config);
    forward(f, REEF_PASS_EVALUATE);
    memcpy(alone, f->pass.logits + row, row * sizeof *alone);
    for (size_t t = 0; t < f->config.context; t++) f->tokens[t] = 200; // the first window
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_equal(alone, f->pass.logits + row, row * sizeof *alone);
    memmove(f->tokens, f->tokens + f->config.context, f->config.context); // now it is the first
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_equal(alone, f->pass.logits, row * sizeof *alone);
    free(alone);
}

static void growing_in_place_keeps_experts_and_their_ids(void **state) {
    model_fixture *f = *state;
    reef_error err;
    reef_gen *grown = NULL;
    const reef_gen *open = f->net.gens[0];
    assert_int_equal(reef_gen_grow(&grown, open, &f->config, 5, &err), REEF_INVALID);
    assert_int_equal(reef_gen_grow(&grown, open, &f->config, 8, &err), REEF_OK);
    assert_int_equal(grown->peers[0].expert_count, 64);
    assert_memory_equal(grown->peers[0].experts, open->peers[0].experts,
                        25 * 2 * 12 * sizeof(float));
    const reef_tensor *keys = reef_gen_find(grown, "block2.sub_keys_b"),
                      *old = reef_gen_find(open, "block2.sub_keys_b");
    assert_int_equal(keys->count, 8 * 3);
    assert_memory_equal(keys->data, old->data, 5 * 3 * sizeof(float));
    for (size_t i = 25 * 24; i < 64 * 24; i += 24) // the new experts are silent
        for (size_t d = 12; d < 24; d++) assert_true(grown->peers[0].experts[i + d] == 0.0f);
    reef_gen_free(grown);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(first_generation_backward_agrees_with_finite_differences,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(later_generation_backward_agrees_with_finite_differences,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(opening_a_generation_changes_no_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silent_generation_touches_no_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_window_does_not_depend_on_its_neighbours, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(growing_in_place_keeps_experts_and_their_ids, setup,
                                        teardown),
    };
    return cmocka_run_group_tests_name("trainer model", tests, NULL, NULL);
}
