// The scalar kernels: one plain loop per definition, for any CPU. They are what the faster ones are
// tested against, so nothing here is clever.
#include "kernels_internal.h"

#include <math.h>
#include <string.h>

static float dot(size_t D, const float *a, const float *b) {
    float sum = 0;
    for (size_t d = 0; d < D; d++) sum += a[d] * b[d];
    return sum;
}

static void axpy(size_t D, float *y, float alpha, const float *x) {
    for (size_t d = 0; d < D; d++) y[d] += alpha * x[d];
}

static void dot_rows(size_t K,
                     size_t D,
                     float *out,
                     const float *x,
                     const float *const *rows,
                     size_t offset,
                     size_t span) {
    // Nothing is prefetched here.
    (void)span;
    for (size_t k = 0; k < K; k++) out[k] = dot(D, rows[k] + offset, x);
}

static void axpy_rows(
    size_t K, size_t D, float *y, const float *alpha, const float *const *rows, size_t offset) {
    for (size_t k = 0; k < K; k++) axpy(D, y, alpha[k], rows[k] + offset);
}

static void dot_rows_i8(size_t K,
                        size_t D,
                        float *out,
                        const float *x,
                        const int8_t *const *rows,
                        size_t offset,
                        size_t span) {
    (void)span;
    for (size_t k = 0; k < K; k++) {
        const int8_t *values = rows[k] + REEF_I8_SCALE_BYTES + offset;
        out[k] = 0;
        for (size_t d = 0; d < D; d++) out[k] += (float)values[d] * x[d];
        out[k] *= reef_i8_scale(rows[k]);
    }
}

static void axpy_rows_i8(
    size_t K, size_t D, float *y, const float *alpha, const int8_t *const *rows, size_t offset) {
    for (size_t k = 0; k < K; k++) {
        const int8_t *values = rows[k] + REEF_I8_SCALE_BYTES + offset;
        const float factor = alpha[k] * reef_i8_scale(rows[k]);
        for (size_t d = 0; d < D; d++) y[d] += factor * (float)values[d];
    }
}

// 2^n for n in -126 .. 127.
static float power_of_two(int n) {
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return power;
}

// Written so that NaN fails every comparison and comes out as NaN.
static float exp_one(float x) {
    if (isnan(x)) return x;
    if (x < EXP_X_MIN) return 0;
    if (x > EXP_X_MAX) return INFINITY;
    // Adding and subtracting a large constant rounds to an integer, as the vectors do.
    float n = (x * EXP_LOG2E + EXP_ROUND) - EXP_ROUND;
    // log 2 in two parts (Cody & Waite 1980): the first product is exact.
    float r = (x - n * EXP_LOG2_HIGH) - n * EXP_LOG2_LOW;
    float p = EXP_P0;
    p = p * r + EXP_P1;
    p = p * r + EXP_P2;
    p = p * r + EXP_P3;
    p = p * r + EXP_P4;
    p = p * r + EXP_P5;
    p = p * (r * r) + r + 1.0f;
    // Two factors, because 2^n itself may not be a normal float at the ends of the range.
    int half = (int)n / 2;
    return p * power_of_two(half) * power_of_two((int)n - half);
}

static void exp_all(size_t D, float *y, const float *x) {
    for (size_t d = 0; d < D; d++) y[d] = exp_one(x[d]);
}

static void softmax(size_t D, float *row) {
    float max = row[0];
    for (size_t d = 1; d < D; d++) max = row[d] > max ? row[d] : max;
    float sum = 0;
    for (size_t d = 0; d < D; d++) {
        // Relative to the maximum, so that no exponential overflows.
        row[d] = exp_one(row[d] - max);
        sum += row[d];
    }
    for (size_t d = 0; d < D; d++) row[d] *= 1.0f / sum;
}

static void gelu(size_t D, float *y, const float *x) {
    for (size_t d = 0; d < D; d++) {
        float u = GELU_ROOT * (x[d] + GELU_CUBE * x[d] * x[d] * x[d]);
        y[d] = x[d] / (1.0f + exp_one(-2.0f * u));
    }
}

// With s = 1 / (1 + exp(-2 u)): gelu = x s and gelu' = s + x s (1 - s) 2 u'.
static void gelu_backward(size_t D, float *d_x, const float *d_y, const float *x) {
    for (size_t d = 0; d < D; d++) {
        float v = x[d];
        // Beyond the bound the slope is 0 or 1 in floats, while u' would overflow.
        v = v > GELU_X_MAX ? GELU_X_MAX : v < -GELU_X_MAX ? -GELU_X_MAX : v;
        float u = GELU_ROOT * (v + GELU_CUBE * v * v * v);
        float slope = GELU_ROOT * (1.0f + 3.0f * GELU_CUBE * v * v); // u'
        float s = 1.0f / (1.0f + exp_one(-2.0f * u));
        d_x[d] = d_y[d] * (s + v * s * (1.0f - s) * 2.0f * slope);
    }
}

static void adam(size_t D,
                 float *param,
                 float *adam_m,
                 float *adam_v,
                 const float *grad,
                 const reef_adam_step *step) {
    for (size_t d = 0; d < D; d++) {
        float g = grad[d] * step->scale;
        adam_m[d] = step->beta1 * adam_m[d] + (1.0f - step->beta1) * g;
        adam_v[d] = step->beta2 * adam_v[d] + (1.0f - step->beta2) * g * g;
        param[d] -= step->rate * adam_m[d] / (sqrtf(adam_v[d]) * step->root + step->epsilon);
    }
}

static void approach(size_t D, float *average, const float *param, float share) {
    for (size_t d = 0; d < D; d++) average[d] += share * (param[d] - average[d]);
}

// Insertion into a sorted list. Equal scores keep the order of their indices, because a newcomer
// stops behind the entries it does not exceed.
static bool topk(size_t D, const float *row, size_t K, float *scores, uint16_t *indices) {
    size_t count = 0;
    for (size_t d = 0; d < D; d++) {
        // NaN compares with nothing, so it has no rank.
        if (isnan(row[d])) return false;
        if (count == K && row[d] <= scores[K - 1]) continue;
        size_t slot = count < K ? count++ : K - 1;
        for (; slot > 0 && scores[slot - 1] < row[d]; slot--) {
            scores[slot] = scores[slot - 1];
            indices[slot] = indices[slot - 1];
        }
        scores[slot] = row[d];
        indices[slot] = (uint16_t)d;
    }
    return true;
}

static bool rank_pairs(size_t count_a,
                       const float *a,
                       size_t count_b,
                       const float *b,
                       float least,
                       size_t topk,
                       uint32_t *positions) {
    float sums[RANK_PAIRS_MAX];
    uint32_t places[RANK_PAIRS_MAX];
    size_t count = 0;
    for (size_t p = 0; p < count_a; p++)
        for (size_t q = 0; q < count_b && a[p] + b[q] >= least; q++) {
            if (count == RANK_PAIRS_MAX) return false;
            // Insertion, as above; equal sums have no order here.
            size_t slot = count++;
            for (; slot > 0 && sums[slot - 1] < a[p] + b[q]; slot--) {
                sums[slot] = sums[slot - 1];
                places[slot] = places[slot - 1];
            }
            sums[slot] = a[p] + b[q];
            places[slot] = (uint32_t)(p << 16 | q);
        }
    for (size_t k = 0; k < topk && k + 1 < count; k++)
        if (sums[k] == sums[k + 1]) return false;
    memcpy(positions, places, topk * sizeof(*positions));
    return true;
}

const reef_kernel_table reef_kernels_scalar = {
    .name = "scalar",
    .dot = dot,
    .axpy = axpy,
    .dot_rows = dot_rows,
    .axpy_rows = axpy_rows,
    .dot_rows_i8 = dot_rows_i8,
    .axpy_rows_i8 = axpy_rows_i8,
    .exp = exp_all,
    .softmax = softmax,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .adam = adam,
    .approach = approach,
    .topk = topk,
    .rank_pairs = rank_pairs,
};
