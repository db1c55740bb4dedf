// The dense kernels of the transformer against plain loops in double, and every backward against
// finite differences of its forward.
#include "transformer.h"

#include "gradcheck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Odd, unequal sizes, so that a swapped stride shows. WIDE is past a whole number of vectors.
enum { ROWS = 5, D = 7, WIDE = 37, T = 6, A = 3, HEAD = 5, AD = A * HEAD, V = 11, V_LONG = 600 };

static uint64_t random_state;

static float random_float(void) { // -1 .. 1
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(random_state >> 40) / 8388608.0f - 1.0f;
}

static void random_fill(size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = random_float();
}

static int setup(void **state) {
    (void)state;
    random_state = 17;
    return 0;
}

static double dot_double(size_t count, const float *a, const float *b) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void assert_near(double value, double expected, double limit) {
    assert_true(fabs(value - expected) <= limit * fmax(1, fabs(expected)));
}

// ---- layer norm ----------------------------------------------------------------------------------

typedef struct norm_fixture {
    size_t width;
    float x[ROWS * WIDE], y[ROWS * WIDE], d_y[ROWS * WIDE], d_x[ROWS * WIDE];
    float scale[WIDE], shift[WIDE], d_scale[WIDE], d_shift[WIDE];
    float mean[ROWS], rstd[ROWS];
} norm_fixture;

static void norm_init(norm_fixture *f, size_t width) {
    *f = (norm_fixture){.width = width};
    random_fill(ROWS * width, f->x);
    random_fill(ROWS * width, f->d_y);
    random_fill(width, f->scale);
    random_fill(width, f->shift);
}

static void norm_forward(norm_fixture *f) {
    reef_layer_norm_forward(ROWS, f->width, f->y, f->mean, f->rstd, f->x, f->scale, f->shift);
}

static double norm_loss(void *context) {
    norm_fixture *f = context;
    norm_forward(f);
    return dot_double(ROWS * f->width, f->y, f->d_y);
}

static void layer_norm_equals_plain_loops(void **state) {
    (void)state;
    static const size_t WIDTHS[] = {D, 16, WIDE};
    for (size_t i = 0; i < sizeof(WIDTHS) / sizeof(WIDTHS[0]); i++) {
        norm_fixture f;
        size_t width = WIDTHS[i];
        norm_init(&f, width);
        norm_forward(&f);
        for (size_t t = 0; t < ROWS; t++) {
            double mean = 0, var = 0;
            for (size_t d = 0; d < width; d++) mean += (double)f.x[t * width + d];
            mean /= (double)width;
            for (size_t d = 0; d < width; d++)
                var += ((double)f.x[t * width + d] - mean) * ((double)f.x[t * width + d] - mean);
            double rstd = 1 / sqrt(var / (double)width + (double)REEF_LAYER_NORM_EPSILON);
            for (size_t d = 0; d < width; d++) {
                double n = ((double)f.x[t * width + d] - mean) * rstd;
                assert_near((double)f.y[t * width + d], n * (double)f.scale[d] + (double)f.shift[d],
                            1e-5);
            }
        }
    }
}

static void layer_norm_backward_agrees_with_finite_differences(void **state) {
    (void)state;
    static const size_t WIDTHS[] = {D, WIDE};
    for (size_t i = 0; i < sizeof(WIDTHS) / sizeof(WIDTHS[0]); i++) {
        norm_fixture f;
        size_t width = WIDTHS[i];
        norm_init(&f, width);
        norm_loss(&f);
        reef_layer_norm_backward(ROWS, width, f.d_x, f.d_scale, f.d_shift, f.d_y, f.x, f.mean,
                                 f.rstd, f.scale);
        assert_true(gradcheck_error_max(ROWS * width, f.x, f.d_x, GRADCHECK_STEP, norm_loss, &f) <
                    GRADCHECK_LIMIT);
        assert_true(gradcheck_error_max(width, f.scale, f.d_scale, GRADCHECK_STEP, norm_loss, &f) <
                    GRADCHECK_LIMIT);
        assert_true(gradcheck_error_max(width, f.shift, f.d_shift, GRADCHECK_STEP, norm_loss, &f) <
                    GRADCHECK_LIMIT);
    }
}

static void layer_norm_backward_accumulates_and_leaves_sealed_parameters_alone(void **state) {
    (void)state;
    norm_fixture f;
    float once[ROWS * D];
    norm_init(&f, D);
    norm_forward(&f);
    reef_layer_norm_backward(ROWS, D, f.d_x, NULL, NULL, f.d_y, f.x, f.mean, f.rstd, f.scale);
    memcpy(once, f.d_x, sizeof(once));
    reef_layer_norm_backward(ROWS, D, f.d_x, NULL, NULL, f.d_y, f.x, f.mean, f.rstd, f.scale);
    for (size_t i = 0; i < ROWS * D; i++) assert_near((double)f.d_x[i], 2 * (double)once[i], 1e-6);
}

// ---- attention -----------------------------------------------------------------------------------

typedef struct attention_fixture {
    float qkv[T * 3 * AD], d_qkv[T * 3 * AD], probs[A * T * T], d_probs[T * T];
    float out[T * AD], d_out[T * AD];
} attention_fixture;

static void attention_init(attention_fixture *f) {
    random_fill(T * 3 * AD, f->qkv);
    random_fill(T * AD, f->d_out);
}

static double attention_loss(void *context) {
    attention_fixture *f = context;
    reef_attention_forward(T, AD, A, f->out, f->probs, f->qkv);
    return dot_double(T * AD, f->out, f->d_out);
}

static void attention_plain(const float *qkv, double *probs, double *out) {
    for (size_t a = 0; a < A; a++) {
        for (size_t t = 0; t < T; t++) {
            const float *q = qkv + t * 3 * AD + a * HEAD;
            double *p = probs + (a * T + t) * T, sum = 0;
            for (size_t s = 0; s <= t; s++) {
                p[s] = exp(dot_double(HEAD, q, qkv + s * 3 * AD + AD + a * HEAD) / sqrt(HEAD));
                sum += p[s];
            }
            for (size_t s = 0; s <= t; s++) {
                const float *v = qkv + s * 3 * AD + 2 * AD + a * HEAD;
                p[s] /= sum;
                for (size_t d = 0; d < HEAD; d++) out[t * AD + a * HEAD + d] += p[s] * (double)v[d];
            }
        }
    }
}

static void attention_equals_plain_loops(void **state) {
    (void)state;
    attention_fixture f;
    double probs[A * T * T] = {0}, out[T * AD] = {0};
    attention_init(&f);
    memset(f.probs, 0xff, sizeof(f.probs)); // NaN: every entry has to be written
    memset(f.out, 0xff, sizeof(f.out));
    reef_attention_forward(T, AD, A, f.out, f.probs, f.qkv);
    attention_plain(f.qkv, probs, out);
    for (size_t i = 0; i < A * T * T; i++) assert_near((double)f.probs[i], probs[i], 1e-5);
    for (size_t i = 0; i < T * AD; i++) assert_near((double)f.out[i], out[i], 1e-5);
}

static void probabilities_above_the_diagonal_are_zero(void **state) {
    (void)state;
    attention_fixture f;
    attention_init(&f);
    attention_loss(&f);
    for (size_t a = 0; a < A; a++)
        for (size_t t = 0; t < T; t++)
            for (size_t s = t + 1; s < T; s++) assert_true(f.probs[(a * T + t) * T + s] == 0);
}

static void later_tokens_do_not_change_earlier_ones_by_one_bit(void **state) {
    (void)state;
    attention_fixture f;
    float before[T * AD];
    const size_t changed = 4;
    attention_init(&f);
    attention_loss(&f);
    memcpy(before, f.out, sizeof(before));
    random_fill((T - changed) * 3 * AD, f.qkv + changed * 3 * AD);
    attention_loss(&f);
    assert_memory_equal(before, f.out, changed * AD * sizeof(float));
    assert_memory_not_equal(before + changed * AD, f.out + changed * AD,
                            (T - changed) * AD * sizeof(float));
}

static void attention_backward_agrees_with_finite_differences(void **state) {
    (void)state;
    attention_fixture f;
    attention_init(&f);
    attention_loss(&f);
    memset(f.d_qkv, 0xff, sizeof(f.d_qkv)); // written, not accumulated into
    memset(f.d_probs, 0xff, sizeof(f.d_probs));
    reef_attention_backward(T, AD, A, f.d_qkv, f.d_probs, f.d_out, f.qkv, f.probs);
    assert_true(gradcheck_error_max(T * 3 * AD, f.qkv, f.d_qkv, GRADCHECK_STEP, attention_loss,
                                    &f) < GRADCHECK_LIMIT);
}

// ---- cross-entropy -------------------------------------------------------------------------------

typedef struct entropy_fixture {
    size_t classes;
    float logits[ROWS * V_LONG], d_logits[ROWS * V_LONG], weight[ROWS];
    uint8_t targets[ROWS];
    double loss[ROWS];
} entropy_fixture;

static void entropy_init(entropy_fixture *f, size_t classes, float spread) {
    f->classes = classes;
    random_fill(ROWS * classes, f->logits);
    for (size_t i = 0; i < ROWS * classes; i++) f->logits[i] *= spread;
    for (size_t t = 0; t < ROWS; t++) {
        f->targets[t] = (uint8_t)(t * 5 % (classes < 256 ? classes : 256));
        f->weight[t] = 0.25f * (float)t; // the first row counts nothing
    }
}

static double entropy_loss(void *context) {
    entropy_fixture *f = context;
    double sum = 0;
    reef_cross_entropy(ROWS, f->classes, f->loss, f->logits, f->targets, NULL, false);
    for (size_t t = 0; t < ROWS; t++) sum += (double)f->weight[t] * f->loss[t];
    return sum;
}

static void entropy_gradient(entropy_fixture *f, const float *weight) {
    memcpy(f->d_logits, f->logits, sizeof(f->d_logits));
    reef_cross_entropy(ROWS, f->classes, f->loss, f->d_logits, f->targets, weight, true);
}

static void cross_entropy_equals_plain_loops(void **state) {
    (void)state;
    static const size_t CLASSES[] = {V, 256, V_LONG};
    for (size_t i = 0; i < sizeof(CLASSES) / sizeof(CLASSES[0]); i++) {
        entropy_fixture f;
        size_t classes = CLASSES[i];
        entropy_init(&f, classes, 30); // far apart: the maximum has to be taken out
        entropy_gradient(&f, NULL);
        for (size_t t = 0; t < ROWS; t++) {
            const float *row = f.logits + t * classes;
            double sum = 0, target = (double)row[f.targets[t]];
            for (size_t v = 0; v < classes; v++) sum += exp((double)row[v] - target);
            assert_near(f.loss[t], log(sum), 1e-6);
            for (size_t v = 0; v < classes; v++) {
                double p = exp((double)row[v] - target) / sum;
                assert_near((double)f.d_logits[t * classes + v], p - (v == f.targets[t]), 1e-5);
            }
        }
    }
}

static void cross_entropy_gradient_agrees_with_finite_differences(void **state) {
    (void)state;
    entropy_fixture f;
    entropy_init(&f, V, 1);
    entropy_gradient(&f, f.weight);
    assert_true(gradcheck_error_max(ROWS * V, f.logits, f.d_logits, GRADCHECK_STEP, entropy_loss,
                                    &f) < GRADCHECK_LIMIT);
    for (size_t v = 0; v < V; v++) assert_true(f.d_logits[v] == 0); // weight 0
}

static void scoring_leaves_the_logits_and_gives_the_loss_of_training(void **state) {
    (void)state;
    entropy_fixture f;
    double loss[ROWS];
    entropy_init(&f, 256, 5);
    entropy_gradient(&f, f.weight);
    memcpy(loss, f.loss, sizeof(loss));
    memcpy(f.d_logits, f.logits, sizeof(f.d_logits));
    entropy_loss(&f);
    assert_memory_equal(f.d_logits, f.logits, ROWS * 256 * sizeof(float));
    assert_memory_equal(loss, f.loss, sizeof(loss));
}

static void an_impossible_target_has_a_finite_loss(void **state) {
    (void)state;
    float logits[3] = {0, 200, -300};
    uint8_t target = 2;
    double loss = 0;
    reef_cross_entropy(1, 3, &loss, logits, &target, NULL, true);
    assert_near(loss, 500, 1e-9);
    assert_near((double)logits[1], 1, 1e-6);
    assert_near((double)logits[2], -1, 1e-6);
}

// ---- embedding -----------------------------------------------------------------------------------

static void embedding_gradient_is_the_sum_over_active_tokens(void **state) {
    (void)state;
    float d_x[ROWS * D], d_table[V * D], expected[V * D];
    const uint8_t tokens[ROWS] = {3, 9, 3, 0, 9}, active[ROWS] = {1, 1, 1, 0, 1};
    random_fill(ROWS * D, d_x);
    random_fill(V * D, d_table);
    memcpy(expected, d_table, sizeof(expected));
    for (size_t t = 0; t < ROWS; t++)
        for (size_t d = 0; d < D && active[t]; d++) expected[tokens[t] * D + d] += d_x[t * D + d];
    reef_embedding_backward(ROWS, D, d_table, d_x, tokens, active);
    assert_memory_equal(expected, d_table, sizeof(expected));

    reef_embedding_backward(ROWS, D, d_table, d_x, tokens, NULL);
    assert_memory_equal(expected + D, d_table + D, 2 * D * sizeof(float)); // never seen
    assert_memory_not_equal(expected, d_table, D * sizeof(float));         // token 0 counts now
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(layer_norm_equals_plain_loops, setup),
        cmocka_unit_test_setup(layer_norm_backward_agrees_with_finite_differences, setup),
        cmocka_unit_test_setup(layer_norm_backward_accumulates_and_leaves_sealed_parameters_alone,
                               setup),
        cmocka_unit_test_setup(attention_equals_plain_loops, setup),
        cmocka_unit_test_setup(probabilities_above_the_diagonal_are_zero, setup),
        cmocka_unit_test_setup(later_tokens_do_not_change_earlier_ones_by_one_bit, setup),
        cmocka_unit_test_setup(attention_backward_agrees_with_finite_differences, setup),
        cmocka_unit_test_setup(cross_entropy_equals_plain_loops, setup),
        cmocka_unit_test_setup(cross_entropy_gradient_agrees_with_finite_differences, setup),
        cmocka_unit_test_setup(scoring_leaves_the_logits_and_gives_the_loss_of_training, setup),
        cmocka_unit_test_setup(an_impossible_target_has_a_finite_loss, setup),
        cmocka_unit_test_setup(embedding_gradient_is_the_sum_over_active_tokens, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
