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
    uint32_t *choices; // of the unperturbed forward, see gather_choices
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

// The one before is sealed with rows of `dtype`.
static void add_generation(model_fixture *f, reef_dtype dtype) {
    reef_error err;
    reef_gen *gen = NULL;
    bool first = f->net.gen_count == 0;
    reef_generation info = {
        .generation = (uint32_t)f->net.gen_count, .side = first ? 5 : 4, .dtype = REEF_F32};
    assert_int_equal(reef_gen_new(&gen, &f->config, &info, &err), REEF_OK);
    const reef_gen *before = first ? NULL : f->net.gens[f->net.gen_count - 1];
    reef_gen_initialise(gen, &f->config, before);
    if (!first) {
        reef_gen *sealed = NULL;
        assert_int_equal(
            reef_gen_seal(&sealed, f->net.gens[f->net.gen_count - 1], &f->config, dtype, &err),
            REEF_OK);
        reef_gen_free(f->net.gens[f->net.gen_count - 1]);
        f->net.gens[f->net.gen_count - 1] = sealed;
    }
    assert_int_equal(reef_net_append(&f->net, gen, &err), REEF_OK);
    reef_pass_forget_generation(&f->pass, f->net.gen_count - 1);
    if (!first) reef_pass_forget_generation(&f->pass, f->net.gen_count - 2);
}

static void add_open_generation(model_fixture *f) {
    add_generation(f, REEF_F32);
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
        reef_random_normal(gen->peers[l].expert_count * gen->peers[l].row_values,
                           gen->peers[l].experts, 0.5f, 78, l);
}

static int setup_with(void **state, const char *expert, const char *score) {
    reef_error err;
    model_fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->config = small_config();
    assert_int_equal(reef_config_set(&f->config, "expert", expert, &err), REEF_OK);
    assert_int_equal(reef_config_set(&f->config, "score", score, &err), REEF_OK);
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

static int setup(void **state) {
    return setup_with(state, "gelu", "softmax");
}

static int teardown(void **state) {
    model_fixture *f = *state;
    reef_pass_release(&f->pass);
    reef_net_release(&f->net);
    free(f->tokens);
    free(f->targets);
    free(f->fire);
    free(f->weight);
    free(f->choices);
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

#define CHOICES_MAX 4096
#define ERROR_MAX 3e-3 // a wrong coefficient in one term is near 1e-2

// What is a choice and not a slope, of every fired generation, all layers, one after the other: each
// chosen expert, whether it has a weight (relu scores), and on which side of its kink a relu is.
static size_t gather_choices(const model_fixture *f, uint32_t *out) {
    reef_expert_shape shape = reef_gen_expert_shape(&f->config);
    size_t each = f->rows * shape.P, count = 0;
    for (size_t g = 0; g < f->net.gen_count; g++)
        for (uint32_t l = 0; l < f->config.layers; l++) {
            if (!reef_layer_is_peer(&f->config, l)) continue;
            const reef_pass_peer *peer = &f->pass.peers[g][l];
            assert_true(count + each <= CHOICES_MAX);
            for (size_t i = 0; i < each; i++) {
                bool active = shape.kind == REEF_EXPERT_RELU && peer->hidden[i] > 0.0f;
                out[count++] = peer->tape.indices[i] * 4 + 2 * (peer->tape.gate[i] > 0.0f) + active;
            }
        }
    return count;
}

static bool choices_are_kept(const model_fixture *f) {
    uint32_t now[CHOICES_MAX];
    size_t count = gather_choices(f, now);
    return memcmp(now, f->choices, count * sizeof *now) == 0;
}

// Every `stride`-th value of a parameter. Steps that change a choice are left out, and most must not.
static double worst_error(model_fixture *f,
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

static void check_all_gradients(model_fixture *f) {
    reef_gen *open = f->net.gens[f->net.gen_count - 1];
    size_t kept = 0, tried = 0;
    f->choices = calloc(CHOICES_MAX, sizeof *f->choices);
    assert_non_null(f->choices);
    loss(f);
    gather_choices(f, f->choices);
    // Adam without memory and with an enormous epsilon is plain descent by the gradient itself.
    float *before[8] = {0};
    for (uint32_t l = 0; l < f->config.layers; l++) {
        size_t bytes = open->peers[l].expert_count * open->peers[l].row_values * sizeof(float);
        before[l] = malloc(bytes + 1);
        if (bytes > 0) memcpy(before[l], open->peers[l].experts, bytes);
    }
    reef_pass_update update = {
        .adam = {.learning_rate = 1e6f, .beta1 = 0.0f, .beta2 = 0.0f, .epsilon = 1e6f}};
    reef_pass_backward(&f->pass, &f->net, NULL, &f->batch, &update);
    float *gradients[8] = {0};
    for (uint32_t l = 0; l < f->config.layers;
         l++) { // all rows back in place before any is measured
        size_t count = open->peers[l].expert_count * open->peers[l].row_values;
        gradients[l] = malloc((count + 1) * sizeof(float));
        for (size_t i = 0; i < count; i++)
            gradients[l][i] = before[l][i] - open->peers[l].experts[i];
        if (count > 0) memcpy(open->peers[l].experts, before[l], count * sizeof(float));
    }
    for (uint32_t l = 0; l < f->config.layers; l++) {
        size_t count = open->peers[l].expert_count * open->peers[l].row_values;
        double error =
            worst_error(f, count, open->peers[l].experts, gradients[l], 7, &kept, &tried);
        if (error > ERROR_MAX) print_message("experts of layer %u: %g\n", l, error);
        assert_true(error < ERROR_MAX);
        free(gradients[l]);
    }
    for (size_t i = 0; i < open->tensor_count; i++) {
        reef_tensor *tensor = &open->tensors[i];
        if (tensor->grad == NULL) continue;
        float *gradient = malloc(tensor->count * sizeof *gradient);
        memcpy(gradient, tensor->grad, tensor->count * sizeof *gradient);
        size_t stride = tensor->count > 120 ? tensor->count / 60 | 1 : 1;
        double error = worst_error(f, tensor->count, tensor->data, gradient, stride, &kept, &tried);
        if (error > ERROR_MAX) print_message("%s: %g\n", tensor->name, error);
        assert_true(error < ERROR_MAX);
        free(gradient);
    }
    assert_true(kept * 2 > tried);
    for (uint32_t l = 0; l < f->config.layers; l++) free(before[l]);
}

static void first_generation_backward_agrees_with_finite_differences(void **state) {
    check_all_gradients(*state);
}

static void every_kind_and_score_has_a_true_gradient(void **state) {
    static const char *const EXPERTS[] = {"gelu", "relu", "glu"};
    static const char *const SCORES[] = {"softmax", "sigmoid", "relu"};
    for (size_t i = 0; i < 9; i++) {
        setup_with(state, EXPERTS[i / 3], SCORES[i % 3]);
        check_all_gradients(*state);
        teardown(state);
    }
}

static void check_later_generation(model_fixture *f, reef_dtype dtype) {
    add_generation(f, dtype);
    stir(f->net.gens[1], &f->config);
    for (size_t i = 0; i < f->rows; i++) f->fire[f->rows + i] = 1;
    add_generation(f, dtype);
    stir(f->net.gens[2], &f->config);
    // The last window is old data: gates decide, and no more than some tokens fire.
    size_t T = f->config.context;
    for (size_t i = 0; i < f->rows; i++) f->fire[2 * f->rows + i] = i < 2 * T || i % 3 == 1;
    for (size_t i = 0; i < T; i++) f->fire[f->rows + i] = i > 2;
    check_all_gradients(f);
}

static void later_generation_backward_agrees_with_finite_differences(void **state) {
    check_later_generation(*state, REEF_F32);
}

// Gradients pass through rows of bf16 as through others.
static void a_generation_on_top_of_rounded_ones_has_a_true_gradient(void **state) {
    setup_with(state, "glu", "sigmoid");
    check_later_generation(*state, REEF_BF16);
    teardown(state);
}

// The nearest bf16 of a float, halves to even, from its bits.
static float rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

// What the sealed rows compute is what an open generation with rounded rows would.
static void sealing_rounds_each_row_once(void **state) {
    setup_with(state, "glu", "relu");
    model_fixture *f = *state;
    reef_gen *open = f->net.gens[0];
    reef_error err;
    size_t count = f->rows * REEF_VOCAB, values = open->peers[0].expert_count * 3 * 12;
    float *expected = malloc(count * sizeof *expected);
    assert_non_null(expected);
    f->batch.weight = NULL;
    reef_gen_fold(open, &f->config);
    forward(f, REEF_PASS_EVALUATE);
    memcpy(expected, f->pass.logits, count * sizeof *expected);
    reef_gen *sealed = NULL;
    for (uint32_t l = 0; l < f->config.layers; l += 2) // "pdp"
        for (size_t i = 0; i < values; i++)
            open->peers[l].experts[i] = rounded(open->peers[l].experts[i]);
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_not_equal(expected, f->pass.logits, count * sizeof *expected);
    memcpy(expected, f->pass.logits, count * sizeof *expected);
    for (uint32_t l = 0; l < f->config.layers; l += 2) // less than half a step of bf16 more
        for (size_t i = 0; i < values; i++) open->peers[l].experts[i] *= 1.0009765625f;

    memset(open->peers[0].dirty, 0, open->peers[0].expert_count);
    assert_int_equal(reef_gen_seal(&sealed, open, &f->config, REEF_BF16, &err), REEF_OK);
    assert_int_equal(sealed->info.dtype, REEF_BF16);
    assert_null(sealed->peers[0].experts);
    assert_null(memchr(sealed->peers[0].dirty, 0, sealed->peers[0].expert_count));
    reef_gen_free(open);
    f->net.gens[0] = sealed;
    reef_pass_forget_generation(&f->pass, 0);
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_equal(expected, f->pass.logits, count * sizeof *expected);
    free(expected);
    teardown(state);
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
        cmocka_unit_test(every_kind_and_score_has_a_true_gradient),
        cmocka_unit_test(a_generation_on_top_of_rounded_ones_has_a_true_gradient),
        cmocka_unit_test(sealing_rounds_each_row_once),
        cmocka_unit_test_setup_teardown(opening_a_generation_changes_no_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silent_generation_touches_no_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_window_does_not_depend_on_its_neighbours, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(growing_in_place_keeps_experts_and_their_ids, setup,
                                        teardown),
    };
    return cmocka_run_group_tests_name("trainer model", tests, NULL, NULL);
}
