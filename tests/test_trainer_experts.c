// The experts against a plain reference in double, their backward against finite differences, and the
// promises of the update pass: frozen rows, thread counts, lazy Adam, usage.
#include "expert_row.h"
#include "experts.h"

#include "gradcheck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Odd, unequal sizes, so that a swapped stride shows. P_LONG is more than the kernels handle at once.
enum { ROWS = 5, P = 7, D = 11, N = 13, P_LONG = 300 };

typedef struct fixture {
    size_t rows, p_count, d_model, expert_count;
    float *x, *y, *d_y, *d_x;
    float *gate, *hidden, *d_gate, *d_hidden;
    float *experts, *adam_m, *adam_v;
    const void *block; // the experts, as rows
    uint32_t *counts;
    reef_expert_id *indices;
    uint8_t *active, *flags, *dirty;
    reef_usage *usage;
    reef_expert_pairs pairs;
} fixture;

static uint64_t random_state;

static uint32_t random_u32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static float random_float(void) { // -1 .. 1
    return (float)(random_u32() >> 8) / 8388608.0f - 1.0f;
}

static float *random_floats(size_t count) {
    float *values = calloc(count, sizeof(*values));
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) values[i] = random_float();
    return values;
}

static void *zeros(size_t count, size_t bytes) {
    void *block = calloc(count, bytes);
    assert_non_null(block);
    return block;
}

static void fixture_init(fixture *f, size_t rows, size_t p_count, size_t d_model, size_t experts) {
    random_state = 20240704;
    *f = (fixture){.rows = rows, .p_count = p_count, .d_model = d_model, .expert_count = experts};
    f->x = random_floats(rows * d_model);
    f->d_y = random_floats(rows * d_model);
    f->y = zeros(rows * d_model, sizeof(float));
    f->d_x = zeros(rows * d_model, sizeof(float));
    f->gate = random_floats(rows * p_count);
    for (size_t i = 0; i < rows * p_count; i++) f->gate[i] = 0.5f + 0.5f * f->gate[i];
    f->hidden = zeros(rows * p_count, sizeof(float));
    f->d_gate = zeros(rows * p_count, sizeof(float));
    f->d_hidden = zeros(rows * p_count, sizeof(float));
    f->experts = random_floats(experts * 2 * d_model);
    f->block = f->experts;
    f->adam_m = zeros(experts * 2 * d_model, sizeof(float));
    f->adam_v = zeros(experts * 2 * d_model, sizeof(float));
    f->counts = zeros(experts, sizeof(*f->counts));
    f->indices = zeros(rows * p_count, sizeof(*f->indices));
    // Few experts and many selections: the same expert comes up again, even for one token.
    for (size_t i = 0; i < rows * p_count; i++) f->indices[i] = random_u32() % (uint32_t)experts;
    f->active = zeros(rows, 1);
    memset(f->active, 1, rows);
    f->flags = zeros(experts, 1);
    f->dirty = zeros(experts, 1);
    f->usage = zeros(experts, sizeof(*f->usage));
    reef_error err;
    assert_int_equal(reef_expert_pairs_init(&f->pairs, rows * p_count, experts, 2 * d_model, &err),
                     REEF_OK);
}

static void fixture_release(fixture *f) {
    float *floats[] = {f->x,      f->y,        f->d_y,     f->d_x,    f->gate,  f->hidden,
                       f->d_gate, f->d_hidden, f->experts, f->adam_m, f->adam_v};
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) free(floats[i]);
    free(f->counts);
    free(f->indices);
    free(f->active);
    free(f->flags);
    free(f->dirty);
    free(f->usage);
    reef_expert_pairs_release(&f->pairs);
}

static int setup(void **state) {
    fixture *f = zeros(1, sizeof(*f));
    fixture_init(f, ROWS, P, D, N);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture_release(*state);
    free(*state);
    return 0;
}

static reef_expert_shape shape_of(const fixture *f) {
    return (reef_expert_shape){REEF_EXPERT_GELU, f->p_count, f->d_model};
}

static reef_expert_rows rows_of(const fixture *f) {
    return (reef_expert_rows){REEF_F32, REEF_EXPERT_ONE_BLOCK, &f->block};
}

static void forward(fixture *f) {
    reef_expert_shape shape = shape_of(f);
    reef_expert_rows experts = rows_of(f);
    reef_experts_forward(&shape, f->rows, f->y, f->hidden, f->x, f->indices, f->gate, &experts,
                         f->active);
}

static void backward(fixture *f) {
    reef_expert_shape shape = shape_of(f);
    reef_expert_rows experts = rows_of(f);
    reef_experts_backward(&shape, f->rows, f->d_x, f->d_gate, f->d_hidden, f->d_y, f->hidden,
                          f->indices, f->gate, &experts, f->active);
}

static void update_with(fixture *f, reef_workers *workers, const reef_expert_update *update) {
    reef_expert_moments moments = {f->adam_m, f->adam_v, f->counts};
    reef_expert_pairs_sort(&f->pairs, f->rows, f->p_count, f->indices, f->active);
    reef_expert_shape shape = shape_of(f);
    reef_experts_update(workers, &shape, f->experts, &moments, &f->pairs, f->x, f->d_y, f->gate,
                        f->hidden, f->d_hidden, update);
}

static const reef_adam ADAM = {
    .learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.98f, .epsilon = 1e-8f};

// ---- forward -------------------------------------------------------------------------------------

static double gelu_plain(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void forward_plain(const fixture *f, double *y) {
    size_t width = f->d_model;
    for (size_t t = 0; t < f->rows; t++) {
        for (size_t p = 0; p < f->p_count; p++) {
            const float *down = f->experts + f->indices[t * f->p_count + p] * 2 * width;
            double hidden = 0;
            for (size_t d = 0; d < width; d++)
                hidden += (double)down[d] * (double)f->x[t * width + d];
            double weight = (double)f->gate[t * f->p_count + p] * gelu_plain(hidden);
            for (size_t d = 0; d < width; d++) y[t * width + d] += weight * (double)down[width + d];
        }
    }
}

static void assert_forward_is_plain(fixture *f) {
    double *expected = zeros(f->rows * f->d_model, sizeof(*expected));
    for (size_t i = 0; i < f->rows * f->d_model; i++) {
        f->y[i] = random_float(); // y is accumulated into
        expected[i] = (double)f->y[i];
    }
    forward_plain(f, expected);
    forward(f);
    for (size_t i = 0; i < f->rows * f->d_model; i++) {
        double size = fmax(1, fabs(expected[i]));
        assert_true(fabs((double)f->y[i] - expected[i]) < 1e-4 * size);
    }
    free(expected);
}

static void forward_equals_the_plain_sum_in_double(void **state) {
    assert_forward_is_plain(*state);
}

static void more_experts_than_one_chunk_are_summed_completely(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, 3, P_LONG, 17, 29);
    assert_forward_is_plain(&f);
    fixture_release(&f);
}

static void forward_without_hidden_gives_the_same_bits(void **state) {
    fixture *f = *state;
    float *y = zeros(ROWS * D, sizeof(*y));
    forward(f);
    reef_expert_shape shape = shape_of(f);
    reef_expert_rows experts = rows_of(f);
    reef_experts_forward(&shape, ROWS, y, NULL, f->x, f->indices, f->gate, &experts, NULL);
    assert_memory_equal(y, f->y, ROWS * D * sizeof(*y));
    free(y);
}

static void a_token_does_not_depend_on_its_neighbours(void **state) {
    fixture *f = *state;
    float y[D] = {0};
    forward(f);
    for (size_t t = 0; t < ROWS; t++) {
        memset(y, 0, sizeof(y));
        reef_expert_shape shape = shape_of(f);
        reef_expert_rows experts = rows_of(f);
        reef_experts_forward(&shape, 1, y, NULL, f->x + t * D, f->indices + t * P, f->gate + t * P,
                             &experts, NULL);
        assert_memory_equal(y, f->y + t * D, sizeof(y));
    }
}

static void skipped_tokens_do_not_change_by_one_bit(void **state) {
    fixture *f = *state;
    for (size_t i = 0; i < ROWS * D; i++) f->y[i] = f->d_x[i] = i % 2 ? -0.0f : random_float();
    float *y = zeros(ROWS * D, sizeof(*y)), *d_x = zeros(ROWS * D, sizeof(*d_x));
    memcpy(y, f->y, ROWS * D * sizeof(*y));
    memcpy(d_x, f->d_x, ROWS * D * sizeof(*d_x));
    f->active[0] = f->active[3] = 0;
    // The router leaves the indices of skipped tokens unspecified: nothing may be read there.
    for (size_t p = 0; p < P; p++) f->indices[p] = f->indices[3 * P + p] = UINT32_MAX;
    memset(f->d_gate, 1, ROWS * P * sizeof(float));
    memset(f->d_hidden, 1, ROWS * P * sizeof(float));
    forward(f);
    backward(f);
    for (size_t t = 0; t < ROWS; t++) {
        bool same_y = memcmp(y + t * D, f->y + t * D, D * sizeof(*y)) == 0;
        bool same_d_x = memcmp(d_x + t * D, f->d_x + t * D, D * sizeof(*d_x)) == 0;
        assert_true(same_y == !f->active[t]);
        assert_true(same_d_x == !f->active[t]);
        for (size_t p = 0; p < P && !f->active[t]; p++) {
            assert_true(f->d_gate[t * P + p] == 0);
            assert_true(f->d_hidden[t * P + p] == 0);
        }
    }
    free(y);
    free(d_x);
}

// ---- gradients -----------------------------------------------------------------------------------

static double forward_loss(void *context) {
    fixture *f = context;
    memset(f->y, 0, f->rows * f->d_model * sizeof(float));
    forward(f);
    double loss = 0;
    for (size_t i = 0; i < f->rows * f->d_model; i++) loss += (double)f->y[i] * (double)f->d_y[i];
    return loss;
}

static void backward_agrees_with_finite_differences(void **state) {
    fixture *f = *state;
    f->active[2] = 0;
    forward_loss(f);
    backward(f);
    assert_true(gradcheck_error_max(ROWS * D, f->x, f->d_x, GRADCHECK_STEP, forward_loss, f) <
                GRADCHECK_LIMIT);
    assert_true(gradcheck_error_max(ROWS * P, f->gate, f->d_gate, GRADCHECK_STEP, forward_loss, f) <
                GRADCHECK_LIMIT);
}

static void row_gradients_agree_with_finite_differences(void **state) {
    fixture *f = *state;
    float row_grad[2 * D];
    f->active[2] = 0;
    forward_loss(f);
    backward(f);
    reef_expert_pairs_sort(&f->pairs, ROWS, P, f->indices, f->active);
    for (size_t e = 0; e < N; e++) {
        const uint32_t *pairs = f->pairs.pairs + f->pairs.starts[e];
        // hidden is what the unperturbed forward left.
        forward_loss(f);
        reef_expert_row_gradient(&(reef_expert_shape){REEF_EXPERT_GELU, P, D},
                                 f->pairs.starts[e + 1] - f->pairs.starts[e], row_grad, pairs, f->x,
                                 f->d_y, f->gate, f->hidden, f->d_hidden);
        assert_true(gradcheck_error_max(2 * D, f->experts + e * 2 * D, row_grad, GRADCHECK_STEP,
                                        forward_loss, f) < GRADCHECK_LIMIT);
    }
}

// One Adam step from zero moments leaves adam_m = (1 - beta1) * gradient.
static void the_update_steps_along_the_row_gradient(void **state) {
    fixture *f = *state;
    float row_grad[2 * D];
    forward(f);
    backward(f);
    update_with(f, NULL, &(reef_expert_update){.adam = ADAM});
    for (size_t e = 0; e < N; e++) {
        size_t count = f->pairs.starts[e + 1] - f->pairs.starts[e];
        reef_expert_row_gradient(&(reef_expert_shape){REEF_EXPERT_GELU, P, D}, count, row_grad,
                                 f->pairs.pairs + f->pairs.starts[e], f->x, f->d_y, f->gate,
                                 f->hidden, f->d_hidden);
        for (size_t d = 0; d < 2 * D; d++) {
            float expected = (1.0f - ADAM.beta1) * row_grad[d];
            assert_true(fabsf(f->adam_m[e * 2 * D + d] - expected) <= 1e-6f * fabsf(expected));
        }
        assert_int_equal(f->counts[e], count > 0);
    }
}

// ---- pairs ---------------------------------------------------------------------------------------

static void pairs_are_sorted_by_expert_and_then_by_token(void **state) {
    fixture *f = *state;
    f->active[1] = 0;
    reef_expert_pairs_sort(&f->pairs, ROWS, P, f->indices, f->active);
    bool seen[ROWS * P] = {false};
    assert_int_equal(f->pairs.starts[0], 0);
    assert_int_equal(f->pairs.starts[N], (ROWS - 1) * P);
    for (size_t e = 0; e < N; e++) {
        for (uint32_t i = f->pairs.starts[e]; i < f->pairs.starts[e + 1]; i++) {
            uint32_t pair = f->pairs.pairs[i];
            assert_int_equal(f->indices[pair], e);
            if (i > f->pairs.starts[e]) assert_true(f->pairs.pairs[i - 1] < pair);
            seen[pair] = true;
        }
    }
    for (size_t i = 0; i < ROWS * P; i++) assert_int_equal(seen[i], i / P != 1);
}

static void a_step_without_active_tokens_changes_nothing(void **state) {
    fixture *f = *state;
    forward(f);
    backward(f);
    memset(f->active, 0, ROWS);
    float *experts = zeros(N * 2 * D, sizeof(*experts));
    memcpy(experts, f->experts, N * 2 * D * sizeof(*experts));
    update_with(f, NULL, &(reef_expert_update){.adam = ADAM, .dirty = f->dirty, .usage = f->usage});
    assert_memory_equal(experts, f->experts, N * 2 * D * sizeof(*experts));
    for (size_t e = 0; e < N; e++) assert_int_equal(f->dirty[e] + f->counts[e], 0);
    free(experts);
}

static void too_many_selections_for_32_bits_are_refused(void **state) {
    (void)state;
    reef_expert_pairs pairs;
    reef_error err;
    assert_int_equal(reef_expert_pairs_init(&pairs, (size_t)UINT32_MAX + 1, 1, 1, &err),
                     REEF_INVALID);
    reef_expert_pairs_release(&pairs);
}

// ---- update --------------------------------------------------------------------------------------

static void frozen_rows_do_not_change_by_one_bit(void **state) {
    fixture *f = *state;
    float before[3][N * 2 * D];
    forward(f);
    backward(f);
    for (size_t i = 0; i < N * 2 * D; i++) {
        f->adam_m[i] = random_float();
        f->adam_v[i] = fabsf(random_float());
    }
    for (size_t e = 0; e < N; e++) f->flags[e] = e % 2;
    memcpy(before[0], f->experts, sizeof(before[0]));
    memcpy(before[1], f->adam_m, sizeof(before[1]));
    memcpy(before[2], f->adam_v, sizeof(before[2]));
    update_with(f, NULL,
                &(reef_expert_update){
                    .adam = ADAM, .flags = f->flags, .dirty = f->dirty, .usage = f->usage});
    for (size_t e = 0; e < N; e++) {
        size_t at = e * 2 * D, bytes = 2 * D * sizeof(float);
        bool selected = f->pairs.starts[e + 1] > f->pairs.starts[e];
        bool moved = selected && !f->flags[e];
        assert_true((memcmp(before[0] + at, f->experts + at, bytes) != 0) == moved);
        assert_true((memcmp(before[1] + at, f->adam_m + at, bytes) != 0) == moved);
        assert_true((memcmp(before[2] + at, f->adam_v + at, bytes) != 0) == moved);
        assert_int_equal(f->counts[e], moved);
        assert_int_equal(f->dirty[e], moved);
        assert_true((f->usage[e].count > 0) == selected); // frozen experts are still used
    }
}

static void usage_totals_are_exact(void **state) {
    fixture *f = *state;
    const size_t steps = 3;
    f->active[4] = 0;
    for (size_t i = 0; i < steps; i++) {
        forward(f);
        backward(f);
        update_with(f, NULL, &(reef_expert_update){.adam = ADAM, .usage = f->usage});
    }
    reef_usage expected[N] = {{0}};
    for (size_t i = 0; i < (ROWS - 1) * P; i++) {
        reef_usage *usage = &expected[f->indices[i]];
        usage->count += steps;
        usage->score += steps * (uint64_t)llround((double)f->gate[i] * REEF_USAGE_SCORE_ONE);
    }
    for (size_t e = 0; e < N; e++) {
        assert_true(f->usage[e].count == expected[e].count);
        assert_true(f->usage[e].score == expected[e].score);
    }
}

static void clipping_bounds_the_norm_of_each_row(void **state) {
    fixture *f = *state;
    const float clip = 1.5f;
    float row_grad[2 * D];
    size_t clipped = 0, whole = 0;
    forward(f);
    backward(f);
    update_with(f, NULL, &(reef_expert_update){.adam = ADAM, .clip = clip});
    for (size_t e = 0; e < N; e++) {
        size_t count = f->pairs.starts[e + 1] - f->pairs.starts[e];
        reef_expert_row_gradient(&(reef_expert_shape){REEF_EXPERT_GELU, P, D}, count, row_grad,
                                 f->pairs.pairs + f->pairs.starts[e], f->x, f->d_y, f->gate,
                                 f->hidden, f->d_hidden);
        double norm = 0, stepped = 0;
        for (size_t d = 0; d < 2 * D; d++) {
            double m = (double)f->adam_m[e * 2 * D + d] / (1 - (double)ADAM.beta1);
            norm += (double)row_grad[d] * (double)row_grad[d];
            stepped += m * m;
        }
        norm = sqrt(norm);
        *(norm > (double)clip ? &clipped : &whole) += 1;
        assert_true(fabs(sqrt(stepped) - fmin(norm, (double)clip)) < 1e-5);
    }
    assert_true(clipped > 0 && whole > 0); // otherwise the bound above proves nothing
}

// Dense Adam over all rows equals the lazy one as long as every row is selected in every step, and a
// row that sat out some steps equals a dense row that never saw them.
static void lazy_adam_equals_dense_adam_with_the_row_s_own_count(void **state) {
    fixture *f = *state;
    float param[N * 2 * D], adam_m[N * 2 * D] = {0}, adam_v[N * 2 * D] = {0}, row_grad[2 * D];
    uint64_t counts[N] = {0};
    memcpy(param, f->experts, sizeof(param));
    for (size_t step = 0; step < 6; step++) {
        for (size_t i = 0; i < ROWS * P; i++) f->indices[i] = random_u32() % N;
        forward(f);
        backward(f);
        update_with(f, NULL, &(reef_expert_update){.adam = ADAM});
        for (size_t e = 0; e < N; e++) {
            const uint32_t *pairs = f->pairs.pairs + f->pairs.starts[e];
            size_t count = f->pairs.starts[e + 1] - f->pairs.starts[e], at = e * 2 * D;
            if (count == 0) continue;
            reef_expert_row_gradient(&(reef_expert_shape){REEF_EXPERT_GELU, P, D}, count, row_grad,
                                     pairs, f->x, f->d_y, f->gate, f->hidden, f->d_hidden);
            counts[e]++;
            reef_adam_update(2 * D, param + at, adam_m + at, adam_v + at, row_grad, 1.0f, counts[e],
                             &ADAM);
        }
        assert_memory_equal(param, f->experts, sizeof(param));
        assert_memory_equal(adam_m, f->adam_m, sizeof(adam_m));
        assert_memory_equal(adam_v, f->adam_v, sizeof(adam_v));
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t e = 0; e < N; e++) {
        assert_int_equal(counts[e], f->counts[e]);
        least = counts[e] < least ? counts[e] : least;
        most = counts[e] > most ? counts[e] : most;
    }
    assert_true(least < most); // some rows did sit out
}

static void train_some_steps(fixture *f, size_t threads) {
    reef_workers *workers = NULL;
    assert_int_equal(reef_workers_new(&workers, threads, NULL), REEF_OK);
    fixture_init(f, 24, 20, 33, 200);
    for (size_t step = 0; step < 3; step++) {
        // Two thirds of the selections meet a few busy experts.
        for (size_t i = 0; i < f->rows * f->p_count; i++)
            f->indices[i] = random_u32() % (i % 3 == 0 ? 200 : 5);
        forward(f);
        backward(f);
        update_with(
            f, workers,
            &(reef_expert_update){.adam = ADAM, .clip = 1, .dirty = f->dirty, .usage = f->usage});
    }
    reef_workers_free(workers);
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    static const size_t THREADS[] = {2, 3, 8};
    fixture one, many;
    train_some_steps(&one, 1);
    size_t bytes = one.expert_count * 2 * one.d_model * sizeof(float);
    for (size_t i = 0; i < sizeof(THREADS) / sizeof(THREADS[0]); i++) {
        train_some_steps(&many, THREADS[i]);
        assert_memory_equal(one.experts, many.experts, bytes);
        assert_memory_equal(one.adam_m, many.adam_m, bytes);
        assert_memory_equal(one.adam_v, many.adam_v, bytes);
        assert_memory_equal(one.counts, many.counts, one.expert_count * sizeof(*one.counts));
        assert_memory_equal(one.dirty, many.dirty, one.expert_count);
        assert_memory_equal(one.usage, many.usage, one.expert_count * sizeof(*one.usage));
        fixture_release(&many);
    }
    fixture_release(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(forward_equals_the_plain_sum_in_double),
        TEST(more_experts_than_one_chunk_are_summed_completely),
        TEST(forward_without_hidden_gives_the_same_bits),
        TEST(a_token_does_not_depend_on_its_neighbours),
        TEST(skipped_tokens_do_not_change_by_one_bit),
        TEST(backward_agrees_with_finite_differences),
        TEST(row_gradients_agree_with_finite_differences),
        TEST(the_update_steps_along_the_row_gradient),
        TEST(pairs_are_sorted_by_expert_and_then_by_token),
        TEST(a_step_without_active_tokens_changes_nothing),
        TEST(too_many_selections_for_32_bits_are_refused),
        TEST(frozen_rows_do_not_change_by_one_bit),
        TEST(usage_totals_are_exact),
        TEST(clipping_bounds_the_norm_of_each_row),
        TEST(lazy_adam_equals_dense_adam_with_the_row_s_own_count),
        TEST(any_number_of_threads_gives_the_same_bits),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
