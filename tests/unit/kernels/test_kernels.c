// Kernels: every instruction set against plain definitions in double, over all sizes up to a few
// vectors and all alignments of a float.
#include "kernels_internal.h"

#include "checked.h"
#include "draw.h"
#include "gradcheck.h"
#include "reef_kernels.h"

#include <float.h>
#include <math.h>

enum { SIZE_MAX_TESTED = 67, OFFSETS = 4, ROWS = 9 };

// Sizes small and large, and a start that is not aligned to a vector.
enum { CAPACITY = 400 };
static const size_t large_sizes[] = {128, 129, 255, 256, 391};

typedef void (*size_test)(size_t D, size_t offset);

static void for_every_size(size_test test) {
    for (size_t offset = 0; offset < OFFSETS; offset++) {
        for (size_t D = 0; D <= SIZE_MAX_TESTED; D++) test(D, offset);
        for (size_t n = 0; n < sizeof(large_sizes) / sizeof(*large_sizes); n++)
            test(large_sizes[n], offset);
    }
}

// `value` is within `ulps` units in the last place of the true one, or of the smallest normal
// number.
static void assert_ulps(double truth, float value, double ulps) {
    double unit = fmax(fabs(truth), FLT_MIN) * FLT_EPSILON;
    if (!(fabs(value - truth) <= ulps * unit))
        fail_msg("%.9g instead of %.9g, %.2f ulp", value, truth, fabs(value - truth) / unit);
}

static void check_dot(size_t D, size_t offset) {
    float a[CAPACITY + OFFSETS], b[CAPACITY + OFFSETS];
    uint64_t seed = D;
    draw_floats(&seed, CAPACITY + OFFSETS, a, -1, 1);
    draw_floats(&seed, CAPACITY + OFFSETS, b, -1, 1);
    double truth = 0, size = 0;
    for (size_t d = 0; d < D; d++) {
        truth += (double)a[offset + d] * b[offset + d];
        size += fabs((double)a[offset + d] * b[offset + d]);
    }
    float value = reef_dot(D, a + offset, b + offset);
    assert_true(fabs(value - truth) <= 1e-6 * size);

    // The same values from another address: the same bits.
    float moved[CAPACITY + OFFSETS];
    memcpy(moved + 1, a + offset, D * sizeof(*a));
    float again = reef_dot(D, moved + 1, b + offset);
    assert_memory_equal(&value, &again, sizeof(value));
}

PLAIN_TEST(dot_is_the_sum_of_products) {
    for_every_size(check_dot);
}

static void check_axpy(size_t D, size_t offset) {
    float x[CAPACITY + OFFSETS], y[CAPACITY + OFFSETS], before[CAPACITY + OFFSETS];
    uint64_t seed = D;
    draw_floats(&seed, CAPACITY + OFFSETS, x, -1, 1);
    draw_floats(&seed, CAPACITY + OFFSETS, y, -1, 1);
    memcpy(before, y, sizeof(y));
    reef_axpy(D, y + offset, 0.7f, x + offset);
    for (size_t d = 0; d < CAPACITY + OFFSETS; d++) {
        if (d < offset || d >= offset + D)
            assert_true(y[d] == before[d]); // nothing around is touched
        else
            assert_true(fabs(y[d] - (before[d] + (double)0.7f * x[d])) < 2e-7);
    }
}

PLAIN_TEST(axpy_adds_a_multiple_and_touches_nothing_else) {
    for_every_size(check_axpy);
}

static const uint32_t gathered[ROWS] = {3, 0, 8, 3, 5, 1, 1, 7, 2};

static void check_rows(size_t D, size_t offset) {
    static float rows[ROWS * (CAPACITY + OFFSETS)];
    const size_t stride = CAPACITY + 1;
    float x[CAPACITY + OFFSETS], out[ROWS];
    float y[CAPACITY + OFFSETS], expected[CAPACITY + OFFSETS];
    uint64_t seed = D;
    draw_floats(&seed, sizeof(rows) / sizeof(*rows), rows, -1, 1);
    draw_floats(&seed, CAPACITY + OFFSETS, x, -1, 1);
    draw_floats(&seed, CAPACITY + OFFSETS, y, -1, 1);
    memcpy(expected, y, sizeof(y));
    const float *pointers[ROWS];
    for (size_t k = 0; k < ROWS; k++) pointers[k] = rows + gathered[k] * stride;
    for (size_t K = 0; K <= ROWS; K++) {
        reef_dot_rows(K, D, out, x + offset, pointers, offset, D);
        for (size_t k = 0; k < K; k++) {
            float one = reef_dot(D, rows + offset + gathered[k] * stride, x + offset);
            assert_memory_equal(&out[k], &one, sizeof(one));
            reef_axpy(D, expected + offset, out[k], rows + offset + gathered[k] * stride);
        }
        reef_axpy_rows(K, D, y + offset, out, pointers, offset);
        assert_memory_equal(y, expected, sizeof(y));
    }
}

PLAIN_TEST(gathered_rows_have_the_bits_of_single_ones) {
    for_every_size(check_rows);
}

// Rows of whole numbers as floats, whose products and sums the scale then multiplies.
static void check_rows_i8(size_t D, size_t offset) {
    enum { WIDTH = CAPACITY + OFFSETS };
    static float rows[ROWS][WIDTH];
    float x[WIDTH], out[ROWS], expected_out[ROWS], alpha[ROWS];
    float y[WIDTH], expected[WIDTH];
    uint64_t seed = D;
    draw_floats(&seed, WIDTH, x, -1, 1);
    draw_floats(&seed, WIDTH, y, -1, 1);
    memcpy(expected, y, sizeof(y));
    const float *pointers[ROWS];
    const int8_t *i8_pointers[ROWS];
    for (size_t k = 0; k < ROWS; k++) {
        // Of just its size, so that a load beyond it shows under the sanitizer.
        int8_t *row = room(REEF_I8_SCALE_BYTES + offset + D);
        draw_floats(&seed, offset + D, rows[k], -3, 3);
        reef_i8_round(offset + D, row, rows[k]);
        for (size_t d = 0; d < offset + D; d++) rows[k][d] = row[REEF_I8_SCALE_BYTES + d];
        pointers[k] = rows[k];
        i8_pointers[k] = row;
    }
    for (size_t K = 0; K <= ROWS; K++) {
        reef_dot_rows(K, D, expected_out, x + offset, pointers, offset, D);
        for (size_t k = 0; k < K; k++) expected_out[k] *= reef_i8_scale(i8_pointers[k]);
        reef_dot_rows_i8(K, D, out, x + offset, i8_pointers, offset, 1 << 18);
        assert_memory_equal(out, expected_out, K * sizeof(*out));
        for (size_t k = 0; k < K; k++) alpha[k] = out[k] * reef_i8_scale(i8_pointers[k]);
        reef_axpy_rows(K, D, expected + offset, alpha, pointers, offset);
        reef_axpy_rows_i8(K, D, y + offset, out, i8_pointers, offset);
        assert_memory_equal(y, expected, sizeof(y));
    }
    for (size_t k = 0; k < ROWS; k++) free((void *)i8_pointers[k]);
}

PLAIN_TEST(int8_rows_have_the_bits_of_whole_numbers_and_a_scale) {
    for_every_size(check_rows_i8);
}

static void assert_i8(size_t D, const float *x, float scale, const int8_t *values) {
    int8_t row[16];
    reef_i8_round(D, row, x);
    if (isnan(scale))
        assert_true(isnan(reef_i8_scale(row)));
    else
        assert_true(reef_i8_scale(row) == scale);
    assert_memory_equal(row + REEF_I8_SCALE_BYTES, values, D);
}

PLAIN_TEST(int8_rounds_to_the_nearest_multiple_of_a_scale) {
    // Half way to even; the largest in size is 127 or -127.
    assert_i8(6, (float[]){0.5f, 1.5f, -2.5f, 63.4f, 126.6f, -127}, 1,
              (int8_t[]){0, 2, -2, 63, 127, -127});
    assert_i8(3, (float[]){254, -1, 3}, 2, (int8_t[]){127, 0, 2});
    assert_i8(2, (float[]){0, -0.0f}, 0, (int8_t[]){0, 0});
    assert_i8(2, (float[]){1, NAN}, NAN, (int8_t[]){0, 0});
    assert_i8(2, (float[]){-INFINITY, 1}, NAN, (int8_t[]){0, 0});
    // A scale that is hardly a float: 100 of the least ones, and as many as 127 take.
    const float least = 0x1p-149f;
    assert_i8(2, (float[]){100 * least, -least}, least, (int8_t[]){100, -1});
    assert_i8(1, (float[]){-FLT_MAX}, FLT_MAX / 127, (int8_t[]){-127});
    // Rounding a row that was rounded changes nothing.
    uint64_t seed = 5;
    for (int repeat = 0; repeat < 1000; repeat++) {
        float x[12];
        int8_t row[16], again[16];
        draw_floats(&seed, 12, x, -1, 1);
        reef_i8_round(12, row, x);
        const float scale = reef_i8_scale(row);
        for (size_t d = 0; d < 12; d++) {
            const float back = scale * (float)row[REEF_I8_SCALE_BYTES + d];
            assert_true(fabsf(back - x[d]) <= 0.5001f * scale);
            x[d] = back;
        }
        reef_i8_round(12, again, x);
        assert_memory_equal(row + REEF_I8_SCALE_BYTES, again + REEF_I8_SCALE_BYTES, 12);
    }
}

// Rows are allocations of just their size, so that a load beyond one shows under the sanitizer; a
// prefetch there, on unmapped pages, too, must do nothing.
PLAIN_TEST(prefetching_beyond_a_row_is_harmless) {
    for (size_t D = 1; D <= SIZE_MAX_TESTED; D++) {
        float *row = room(D * sizeof(*row)), *x = room(D * sizeof(*x)), out[2];
        int8_t *whole = room(REEF_I8_SCALE_BYTES + D);
        for (size_t d = 0; d < D; d++) row[d] = x[d] = 1;
        reef_i8_round(D, whole, row);
        reef_dot_rows(2, D, out, x, (const float *[]){row, row}, 0, 1 << 18);
        assert_true(out[0] == (float)D && out[1] == (float)D);
        reef_dot_rows_i8(2, D, out, x, (const int8_t *[]){whole, whole}, 0, 1 << 18);
        for (size_t k = 0; k < 2; k++) assert_true(fabsf(out[k] - (float)D) < 1e-6f * (float)D);
        reef_axpy_rows(2, D, x, out, (const float *[]){row, row}, 0);
        for (size_t d = 0; d < D; d++) assert_true(fabsf(x[d] - (float)(2 * D + 1)) < 1e-6f * x[d]);
    }
}

static void check_exp(size_t D, size_t offset) {
    float x[CAPACITY + OFFSETS], y[CAPACITY + OFFSETS];
    uint64_t seed = D;
    draw_floats(&seed, CAPACITY + OFFSETS, x, -20, 20);
    for (size_t d = 0; d < CAPACITY + OFFSETS; d++) y[d] = -7;
    reef_exp(D, y + offset, x + offset);
    for (size_t d = 0; d < CAPACITY + OFFSETS; d++) {
        if (d < offset || d >= offset + D)
            assert_true(y[d] == -7);
        else
            assert_ulps(exp((double)x[d]), y[d], 2);
    }
    reef_exp(D, x + offset, x + offset);
    assert_memory_equal(x + offset, y + offset, D * sizeof(*x)); // in place
}

PLAIN_TEST(exp_is_within_two_ulp_of_libm) {
    for_every_size(check_exp);
    float x[CAPACITY], y[CAPACITY];
    for (int block = -104 * 4; block < 90 * 4; block++) {
        for (int i = 0; i < CAPACITY; i++)
            x[i] = (float)block / 4 + (float)i * (0.25f / (float)CAPACITY);
        reef_exp(CAPACITY, y, x);
        for (int i = 0; i < CAPACITY; i++) {
            double truth = exp((double)x[i]);
            if (truth > FLT_MAX)
                assert_true(y[i] == INFINITY || y[i] > 0.9999f * FLT_MAX);
            else
                assert_ulps(truth, y[i], 2);
        }
    }
}

PLAIN_TEST(exp_is_exact_at_its_ends) {
    const float x[] = {0,      -0.0f,    -INFINITY, INFINITY, NAN,    -NAN,
                       -1e30f, -FLT_MAX, -104.5f,   FLT_MAX,  88.73f, 1e30f};
    const float expected[] = {1, 1, 0, INFINITY, NAN, NAN, 0, 0, 0, INFINITY, INFINITY, INFINITY};
    enum { COUNT = sizeof(x) / sizeof(*x) };
    for (size_t i = 0; i < COUNT; i++) {
        float around[33] = {0}; // in a whole vector and behind the last one
        for (size_t place = 0; place < 33; place++) {
            float y[33];
            memset(around, 0, sizeof(around));
            around[place] = x[i];
            reef_exp(33, y, around);
            if (isnan(expected[i]))
                assert_true(isnan(y[place]));
            else
                assert_true(y[place] == expected[i] && !signbit(y[place]));
            assert_true(y[(place + 1) % 33] == 1);
        }
    }
}

static void check_softmax(size_t D, size_t offset) {
    if (D == 0) return;
    float x[CAPACITY + OFFSETS], y[CAPACITY + OFFSETS];
    uint64_t seed = D;
    draw_floats(&seed, CAPACITY + OFFSETS, x, -9, 9);
    if (D > 2) x[offset + D / 2] = -INFINITY;
    if (D > 2) x[offset + D - 1] = -INFINITY;
    memcpy(y, x, sizeof(x));
    reef_softmax(D, y + offset);
    double max = -INFINITY, sum = 0, total = 0;
    for (size_t d = offset; d < offset + D; d++) max = fmax(max, x[d]);
    for (size_t d = offset; d < offset + D; d++) sum += exp(x[d] - max);
    for (size_t d = 0; d < CAPACITY + OFFSETS; d++) {
        if (d < offset || d >= offset + D) {
            assert_true(y[d] == x[d]);
        } else {
            assert_ulps(exp(x[d] - max) / sum, y[d], 16); // the argument's rounding counts, too
            total += y[d];
        }
    }
    assert_true(fabs(total - 1) < 1e-6);
}

PLAIN_TEST(softmax_agrees_with_libm_and_sums_to_one) {
    for_every_size(check_softmax);
}

PLAIN_TEST(softmax_holds_at_extremes) {
    for (size_t D = 1; D <= 40; D++) {
        float row[40];
        for (size_t d = 0; d < D; d++) row[d] = 3e38f;
        reef_softmax(D, row);
        for (size_t d = 0; d < D; d++) assert_true(fabs(row[d] - 1.0 / (double)D) < 1e-7);
        // One entry left by the mask, at the far end of the range of numbers.
        for (size_t d = 0; d < D; d++) row[d] = -INFINITY;
        row[D / 3] = -3e38f;
        reef_softmax(D, row);
        for (size_t d = 0; d < D; d++) assert_true(row[d] == (d == D / 3 ? 1 : 0));
        for (size_t d = 0; d < D; d++) row[d] = 1;
        row[D - 1] = NAN;
        reef_softmax(D, row);
        for (size_t d = 0; d < D; d++) assert_true(isnan(row[d]));
    }
}

static double true_gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static void check_gelu(size_t D, size_t offset) {
    float x[CAPACITY + OFFSETS], y[CAPACITY + OFFSETS];
    uint64_t seed = D;
    draw_floats(&seed, CAPACITY + OFFSETS, x, -6, 6);
    for (size_t d = 0; d < CAPACITY + OFFSETS; d++) y[d] = -7;
    reef_gelu(D, y + offset, x + offset);
    for (size_t d = 0; d < CAPACITY + OFFSETS; d++) {
        if (d < offset || d >= offset + D)
            assert_true(y[d] == -7);
        else
            assert_true(fabs(y[d] - true_gelu(x[d])) < 1e-6);
    }
}

PLAIN_TEST(gelu_agrees_with_its_definition) {
    for_every_size(check_gelu);
}

PLAIN_TEST(gelu_holds_at_extremes) {
    const float x[] = {0, 50, -50, 1e20f, -1e20f, FLT_MAX, -FLT_MAX};
    const float gelu[] = {0, 50, 0, 1e20f, 0, FLT_MAX, 0};
    const float slope[] = {0.5f, 1, 0, 1, 0, 1, 0};
    enum { COUNT = sizeof(x) / sizeof(*x) };
    float ones[COUNT], y[COUNT];
    for (size_t i = 0; i < COUNT; i++) ones[i] = 1;
    reef_gelu(COUNT, y, x);
    for (size_t i = 0; i < COUNT; i++) assert_true(y[i] == gelu[i]);
    reef_gelu_backward(COUNT, y, ones, x);
    for (size_t i = 0; i < COUNT; i++) assert_true(fabsf(y[i] - slope[i]) < 1e-6f);
    const float not_a_number = NAN;
    reef_gelu(1, y, &not_a_number);
    assert_true(isnan(y[0]));
    reef_gelu_backward(1, y, ones, &not_a_number);
    assert_true(isnan(y[0]));
}

static double true_slope(double x) {
    double h = 1e-5;
    return (true_gelu(x + h) - true_gelu(x - h)) / (2 * h);
}

static void check_gelu_backward(size_t D, size_t offset) {
    float x[CAPACITY + OFFSETS], d_y[CAPACITY + OFFSETS], d_x[CAPACITY + OFFSETS];
    uint64_t seed = D;
    draw_floats(&seed, CAPACITY + OFFSETS, x, -8, 8);
    draw_floats(&seed, CAPACITY + OFFSETS, d_y, -1, 1);
    for (size_t d = 0; d < CAPACITY + OFFSETS; d++) d_x[d] = -7;
    reef_gelu_backward(D, d_x + offset, d_y + offset, x + offset);
    for (size_t d = 0; d < CAPACITY + OFFSETS; d++) {
        if (d < offset || d >= offset + D)
            assert_true(d_x[d] == -7);
        else
            assert_true(fabs(d_x[d] - d_y[d] * true_slope(x[d])) < 2e-6);
    }
    reef_gelu_backward(D, d_y + offset, d_y + offset, x + offset);
    assert_memory_equal(d_y + offset, d_x + offset, D * sizeof(*d_x)); // in place
}

PLAIN_TEST(gelu_backward_is_the_slope_of_gelu) {
    for_every_size(check_gelu_backward);
}

typedef struct gelu_loss_context {
    float x[37], y[37], d_y[37];
} gelu_loss_context;

static double gelu_loss(void *context) {
    gelu_loss_context *c = context;
    double loss = 0;
    reef_gelu(37, c->y, c->x);
    for (size_t i = 0; i < 37; i++) loss += (double)c->y[i] * c->d_y[i];
    return loss;
}

PLAIN_TEST(gelu_backward_agrees_with_finite_differences) {
    gelu_loss_context c;
    float d_x[37];
    uint64_t seed = 5;
    draw_floats(&seed, 37, c.x, -3, 3);
    draw_floats(&seed, 37, c.d_y, -1, 1);
    reef_gelu_backward(37, d_x, c.d_y, c.x);
    assert_true(gradcheck_error_max(37, c.x, d_x, GRADCHECK_STEP, gelu_loss, &c) < GRADCHECK_LIMIT);
    d_x[20] += 0.01f;
    assert_false(gradcheck_error_max(37, c.x, d_x, GRADCHECK_STEP, gelu_loss, &c) <
                 GRADCHECK_LIMIT);
}

static void check_adam(size_t D, size_t offset) {
    enum { LENGTH = CAPACITY + OFFSETS };
    const reef_adam adam = {
        .learning_rate = 3e-3f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f};
    float param[LENGTH], m[LENGTH] = {0}, v[LENGTH] = {0}, grad[LENGTH], first[LENGTH];
    double p2[LENGTH], m2[LENGTH] = {0}, v2[LENGTH] = {0};
    uint64_t seed = D;
    draw_floats(&seed, LENGTH, param, -1, 1);
    memcpy(first, param, sizeof(param));
    for (size_t d = 0; d < LENGTH; d++) p2[d] = param[d];
    for (uint64_t count = 1; count <= 12; count++) {
        draw_floats(&seed, LENGTH, grad, -2, 2);
        reef_adam_update(D, param + offset, m + offset, v + offset, grad + offset, 0.25f, count,
                         &adam);
        for (size_t d = offset; d < offset + D; d++) {
            double g = 0.25 * grad[d];
            m2[d] = (double)adam.beta1 * m2[d] + (1 - (double)adam.beta1) * g;
            v2[d] = (double)adam.beta2 * v2[d] + (1 - (double)adam.beta2) * g * g;
            double m_hat = m2[d] / (1 - pow((double)adam.beta1, (double)count));
            double v_hat = v2[d] / (1 - pow((double)adam.beta2, (double)count));
            p2[d] -= (double)adam.learning_rate * m_hat / (sqrt(v_hat) + (double)adam.epsilon);
        }
    }
    for (size_t d = 0; d < LENGTH; d++) {
        if (d < offset || d >= offset + D) {
            assert_true(param[d] == first[d] && m[d] == 0 && v[d] == 0);
        } else {
            assert_true(fabs(param[d] - p2[d]) < 1e-6);
            assert_true(fabs(m[d] - m2[d]) < 1e-6);
            assert_true(fabs(v[d] - v2[d]) < 1e-6);
        }
    }
}

PLAIN_TEST(adam_follows_the_algorithm_in_double) {
    for_every_size(check_adam);
}

PLAIN_TEST(adam_with_no_gradient_yet_moves_nothing) {
    const reef_adam adam = {
        .learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
    float param[19], m[19] = {0}, v[19] = {0};
    const float grad[19] = {0};
    for (size_t d = 0; d < 19; d++) param[d] = (float)d;
    reef_adam_update(19, param, m, v, grad, 1, 1, &adam);
    for (size_t d = 0; d < 19; d++) assert_true(param[d] == (float)d);
    // After a very long time the bias correction is 1.
    reef_adam_update(19, param, m, v, grad, 1, UINT64_MAX, &adam);
    for (size_t d = 0; d < 19; d++) assert_true(param[d] == (float)d);
}

static void check_average(size_t D, size_t offset) {
    enum { LENGTH = CAPACITY + OFFSETS };
    const float rate = 0.15f;
    float param[LENGTH], average[LENGTH], first[LENGTH];
    double expected[LENGTH];
    uint64_t seed = D;
    draw_floats(&seed, LENGTH, average, -1, 1);
    memcpy(first, average, sizeof(first));
    for (uint64_t count = 1; count <= 80; count += count < 4 ? 1 : 19) {
        draw_floats(&seed, LENGTH, param, -2, 2);
        float moved[LENGTH], again[LENGTH];
        memcpy(moved + 1, param + offset, D * sizeof(*moved));
        memcpy(again + 2, average + offset, D * sizeof(*again));
        reef_average_update(D, average + offset, param + offset, count, rate);
        reef_average_update(D, again + 2, moved + 1, count, rate);
        assert_memory_equal(average + offset, again + 2, D * sizeof(*again)); // wherever they lie
        double share = fmax((double)rate, 1 / (1 + 0.1 * (double)count));
        for (size_t d = offset; d < offset + D; d++) {
            if (count == 1) assert_true(average[d] == param[d]);
            expected[d] =
                count == 1 ? param[d] : expected[d] + share * ((double)param[d] - expected[d]);
            assert_true(fabs(average[d] - expected[d]) < 1e-6);
        }
    }
    for (size_t d = 0; d < LENGTH; d++)
        if (d < offset || d >= offset + D) assert_true(average[d] == first[d]);
}

PLAIN_TEST(an_average_follows_its_definition_in_double) {
    for_every_size(check_average);
}

// Small integers and halves: every product and sum is exact, so the kernels must agree to the bit.
static void check_exact_average(size_t D, size_t offset) {
    enum { LENGTH = CAPACITY + OFFSETS };
    float param[LENGTH], average[LENGTH], plain[LENGTH];
    uint64_t seed = D + 1;
    draw_ints(&seed, LENGTH, param, -50, 50);
    draw_ints(&seed, LENGTH, average, -50, 50);
    memcpy(plain, average, sizeof(plain));
    reef_average_update(D, average + offset, param + offset, 1000, 0.5f);
    reef_kernels_scalar.approach(D, plain + offset, param + offset, 0.5f);
    assert_memory_equal(average, plain, sizeof(plain));
    draw_floats(&seed, LENGTH, param, -1, 1);
    reef_average_update(D, average + offset, param + offset, 1000, 1); // to the bit as well
    assert_memory_equal(average + offset, param + offset, D * sizeof(*param));
}

PLAIN_TEST(an_average_is_that_of_the_plain_kernel) {
    for_every_size(check_exact_average);
}

// ---- denormal numbers, infinities and NaN -------------------------------------------------------

#define UNIT 0x1p-149f // the smallest denormal; sums of whole multiples are exact

static void check_denormal(size_t D, size_t offset) {
    enum { LENGTH = CAPACITY + OFFSETS };
    const reef_adam adam = {.learning_rate = 1, .beta1 = 0.5f, .beta2 = 0.5f, .epsilon = 1e-8f};
    float ones[LENGTH], tiny[LENGTH], y[LENGTH], expected[LENGTH], zeros[LENGTH] = {0};
    double sum = 0;
    uint64_t seed = D;
    for (size_t i = 0; i < LENGTH; i++) {
        ones[i] = 1;
        tiny[i] = (float)draw_int(&seed, 4, 2000) * 2 * UNIT;
    }
    for (size_t d = offset; d < offset + D; d++) sum += tiny[d];
    const float *rows[] = {tiny};
    assert_true(reef_dot(D, tiny + offset, ones) == (float)sum);
    reef_dot_rows(1, D, y, ones, rows, offset, D);
    assert_true(y[0] == (float)sum);

    memcpy(y, tiny, sizeof(y));
    reef_axpy(D, y, 3, tiny + offset);
    reef_axpy_rows(1, D, y, ones, rows, offset);
    for (size_t d = 0; d < D; d++) assert_true(y[d] == tiny[d] + 4 * tiny[offset + d]);

    reef_exp(D, y, tiny + offset);
    for (size_t d = 0; d < D; d++) assert_true(y[d] == 1);
    reef_gelu(D, y, tiny + offset); // half of it, as is the slope
    reef_gelu_backward(D, expected, tiny + offset, zeros);
    for (size_t d = 0; d < D; d++) {
        assert_true(fabsf(y[d] - tiny[offset + d] / 2) <= UNIT);
        assert_true(expected[d] == tiny[offset + d] / 2);
    }

    float m[LENGTH] = {0}, v[LENGTH] = {0}, param[LENGTH] = {0};
    reef_adam_update(D, param, m, v, tiny + offset, 1, 1, &adam);
    for (size_t d = 0; d < D; d++) {
        assert_true(m[d] == tiny[offset + d] / 2); // beta1 is a half
        assert_true(v[d] == 0);                    // the square is too small for any float
        assert_true(param[d] < 0);
    }

    for (size_t d = 0; d < D; d++) y[d] = d == 0 ? 0 : -90.0f - (float)(d % 12);
    reef_softmax(D, y);
    for (size_t d = 1; d < D; d++)
        assert_true(fabs(y[d] - exp(-90.0 - (double)(d % 12))) <= 8 * (double)UNIT);
}

PLAIN_TEST(denormal_numbers_are_not_flushed_to_zero) {
    for_every_size(check_denormal);
}

// What is not finite at `place` of D values shows where it must and nowhere else.
static void check_special(size_t D, size_t place, float special) {
    const reef_adam adam = {
        .learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f};
    float x[SIZE_MAX_TESTED], y[SIZE_MAX_TESTED], ones[SIZE_MAX_TESTED];
    for (size_t d = 0; d < D; d++) x[d] = ones[d] = y[d] = 1;
    x[place] = special;

    float sums[2] = {reef_dot(D, x, ones)};
    reef_dot_rows(1, D, sums + 1, ones, (const float *[]){x}, 0, D);
    for (size_t i = 0; i < 2; i++)
        assert_true(isnan(special) ? isnan(sums[i]) : sums[i] == special);
    float zero = 0;
    reef_axpy(D, y, 1, x);
    for (size_t d = 0; d < D; d++) assert_true(d == place ? !isfinite(y[d]) : y[d] == 2);
    for (size_t d = 0; d < D; d++) y[d] = 1;
    reef_axpy_rows(1, D, y, ones, (const float *[]){x}, 0);
    for (size_t d = 0; d < D; d++) assert_true(d == place ? !isfinite(y[d]) : y[d] == 2);
    reef_axpy_rows(1, D, y, &zero, (const float *[]){x}, 0); // 0 * infinity is NaN, too
    for (size_t d = 0; d < D; d++) assert_true(d == place ? isnan(y[d]) : y[d] == 2);

    memcpy(y, x, D * sizeof(*y));
    reef_softmax(D, y);
    for (size_t d = 0; d < D; d++) {
        if (special == -INFINITY && D > 1)
            assert_true(d == place ? y[d] == 0 : fabs(y[d] - 1.0 / (double)(D - 1)) < 1e-6);
        else
            assert_true(isnan(y[d]));
    }

    reef_gelu(D, y, x);
    for (size_t d = 0; d < D; d++) {
        if (d != place)
            assert_true(fabs(y[d] - true_gelu(1)) < 1e-6);
        else
            assert_true(special == INFINITY ? y[d] == INFINITY : isnan(y[d]));
    }
    reef_gelu_backward(D, y, ones, x);
    for (size_t d = 0; d < D; d++) {
        if (d != place)
            assert_true(fabs(y[d] - true_slope(1)) < 2e-6);
        else
            assert_true(isnan(special) ? isnan(y[d]) : fabsf(y[d] - (special > 0)) < 1e-6f);
    }

    float param[SIZE_MAX_TESTED] = {0}, m[SIZE_MAX_TESTED] = {0}, v[SIZE_MAX_TESTED] = {0};
    reef_adam_update(D, param, m, v, x, 1, 1, &adam);
    for (size_t d = 0; d < D; d++) {
        assert_true(d == place ? isnan(param[d]) : fabsf(param[d] + 1e-3f) < 1e-6f);
        assert_int_equal(isfinite(m[d]) && isfinite(v[d]), d != place);
    }
}

PLAIN_TEST(what_is_not_finite_stays_where_it_belongs) {
    static const float SPECIAL[] = {NAN, INFINITY, -INFINITY};
    for (size_t D = 1; D <= SIZE_MAX_TESTED; D++)
        for (size_t place = 0; place < D; place += 1 + D / 16)
            for (size_t i = 0; i < 3; i++) check_special(D, place, SPECIAL[i]);
}

PLAIN_TEST(topk_is_that_of_the_plain_kernel) {
    float row[CAPACITY + OFFSETS], scores[CAPACITY], expected_scores[CAPACITY];
    uint16_t indices[CAPACITY], expected[CAPACITY];
    uint64_t seed = 3;
    for (size_t D = 1; D <= CAPACITY; D += D < 70 ? 1 : 37) {
        for (size_t K = 1; K <= D; K += 1 + K / 3) {
            size_t offset = D % OFFSETS;
            if (K % 2 == 0)
                draw_floats(&seed, D, row + offset, -1, 1);
            else
                draw_ints(&seed, D, row + offset, -3, 3);
            assert_true(reef_kernels_scalar.topk(D, row + offset, K, expected_scores, expected));
            assert_true(reef_kernels()->topk(D, row + offset, K, scores, indices));
            assert_memory_equal(indices, expected, K * sizeof(*indices));
            assert_memory_equal(scores, expected_scores, K * sizeof(*scores));
            row[offset + draw_bits(&seed) % D] = NAN;
            assert_false(reef_kernels()->topk(D, row + offset, K, scores, indices));
        }
    }
}

PLAIN_TEST(topk_of_a_row_that_is_a_few_times_as_long_is_that_of_the_plain_kernel) {
    float row[1024], scores[64], expected_scores[64];
    uint16_t indices[64], expected[64];
    uint64_t seed = 4;
    for (size_t D = 80; D <= 1024; D += D < 256 ? 16 : 128)
        for (size_t K = 33; K <= 64; K++) {
            draw_floats(&seed, D, row, -1, K % 3 == 0 ? -0.5f : 1);
            assert_true(reef_kernels_scalar.topk(D, row, K, expected_scores, expected));
            assert_true(reef_kernels()->topk(D, row, K, scores, indices));
            assert_memory_equal(indices, expected, K * sizeof(*indices));
            assert_memory_equal(scores, expected_scores, K * sizeof(*scores));
            row[D - 1] = NAN;
            assert_false(reef_kernels()->topk(D, row, K, scores, indices));
        }
}

// Scores that differ in their last bits alone, of either sign, and zeros of either sign.
static void draw_neighbours(uint64_t *seed, size_t D, float *row) {
    for (size_t d = 0; d < D; d++) {
        float size = 1.0f + (float)(draw_bits(seed) % 256) * FLT_EPSILON;
        uint64_t draw = draw_bits(seed) % 8;
        row[d] = draw == 0 ? 0.0f : draw == 1 ? -0.0f : draw % 2 == 0 ? size : -size;
    }
}

PLAIN_TEST(topk_tells_scores_apart_by_their_last_bits) {
    float row[128], scores[128], expected_scores[128];
    uint16_t indices[128], expected[128];
    uint64_t seed = 5;
    for (size_t D = 33; D <= 128; D++)
        for (size_t K = 1; K <= D; K += 1 + K / 5) {
            draw_neighbours(&seed, D, row);
            assert_true(reef_kernels_scalar.topk(D, row, K, expected_scores, expected));
            assert_true(reef_kernels()->topk(D, row, K, scores, indices));
            assert_memory_equal(indices, expected, K * sizeof(*indices));
            assert_memory_equal(scores, expected_scores, K * sizeof(*scores));
        }
}

static int falling(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

// Positions are those of the plain kernel, or are left to the caller where sums are near.
PLAIN_TEST(pairs_are_those_of_the_plain_kernel) {
    enum { COUNT = 64 };
    float a[COUNT], b[COUNT];
    uint32_t positions[COUNT], expected[COUNT];
    uint64_t seed = 9;
    size_t ranked = 0, all = 0;
    for (int round = 0; round < 3000; round++) {
        size_t topk = 16 + draw_bits(&seed) % 49;
        float spread = round % 3 == 0 ? 0.01f : 1;
        for (size_t i = 0; i < COUNT; i++) {
            draw_floats(&seed, 1, &a[i], 1 - spread, 1 + spread);
            draw_floats(&seed, 1, &b[i], -spread, spread);
        }
        qsort(a, COUNT, sizeof(*a), falling);
        qsort(b, COUNT, sizeof(*b), falling);
        float least = INFINITY; // the first rows and columns have more sums than topk
        for (size_t p = 0; p < 10; p++)
            least = fminf(least, a[p] + b[(topk + 9) / 10 - 1 < 9 ? (topk + 9) / 10 - 1 : 9]);
        bool plain = reef_kernels_scalar.rank_pairs(COUNT, a, COUNT, b, least, topk, expected);
        bool found = reef_kernels()->rank_pairs(COUNT, a, COUNT, b, least, topk, positions);
        if (found) {
            assert_true(plain);
            assert_memory_equal(positions, expected, topk * sizeof(*positions));
        }
        ranked += found && round % 3 != 0;
        all += plain && round % 3 != 0;
    }
    assert_true(ranked * 10 >= all * 9 && all > 500);
}

PLAIN_TEST(unknown_kernels_are_refused) {
    const char *before = reef_kernels_name();
    must_fail(reef_kernels_choose("sse9", &why), REEF_ERR_INVALID, "sse9");
    assert_string_equal(reef_kernels_name(), before);
}

static int run_with(const char *kernels) {
    if (reef_kernels_choose(kernels, NULL) != REEF_OK) return 0; // not on this CPU
    print_message("kernels: %s\n", reef_kernels_name());
    return test_run(NULL, NULL);
}

int main(void) {
    return run_with("scalar") + run_with("avx2") + run_with("avx512");
}
