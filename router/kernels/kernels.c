// Which kernels run: the best set this CPU has, or the one that was asked for.
//
// What always holds: every entry of a table computes the same thing as the plain one up to
// rounding, and each is a function of its inputs and sizes alone. The loops themselves are in
// kernels_scalar.c and kernels_vector.h.
#include "kernels_internal.h"

#include "reef_kernels.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define REEF_I8_MAX 127.0f

// Set on first use. Threads that race store the same pointer.
static _Atomic(const reef_kernel_table *) chosen;

#if defined(__x86_64__)
static bool cpu_runs_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool cpu_runs_avx512(void) {
    return cpu_runs_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

bool reef_cpu_runs_coarse_avx512(void) {
    return cpu_runs_avx512() && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512vbmi2");
}
#endif

// NULL if there is no such table or this CPU cannot run it.
static const reef_kernel_table *find_table(const char *name) {
#if defined(__x86_64__)
    if (strcmp(name, reef_kernels_avx512.name) == 0)
        return cpu_runs_avx512() ? &reef_kernels_avx512 : NULL;
    if (strcmp(name, reef_kernels_avx2.name) == 0)
        return cpu_runs_avx2() ? &reef_kernels_avx2 : NULL;
#endif
    return strcmp(name, reef_kernels_scalar.name) == 0 ? &reef_kernels_scalar : NULL;
}

static const reef_kernel_table *best_table(void) {
    // From the widest down.
    const reef_kernel_table *table = find_table("avx512");
    if (table == NULL) table = find_table("avx2");
    return table != NULL ? table : &reef_kernels_scalar;
}

const reef_kernel_table *reef_kernels(void) {
    // Relaxed: the tables are constants, and threads that race choose the same one.
    const reef_kernel_table *table = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (table == NULL) {
        table = best_table();
        atomic_store_explicit(&chosen, table, memory_order_relaxed);
    }
    return table;
}

const reef_coarse_kernels *reef_kernels_coarse(void) {
#if defined(__x86_64__)
    const reef_kernel_table *table = reef_kernels();
    // Coarse scores differ, what is chosen does not.
    if (table == &reef_kernels_avx512 && reef_cpu_runs_coarse_avx512()) return &reef_coarse_avx512;
    if (table != &reef_kernels_scalar) return &reef_coarse_avx2;
#endif
    return NULL;
}

const char *reef_kernels_name(void) {
    return reef_kernels()->name;
}

reef_status reef_kernels_choose(const char *name, reef_error *err) {
    const reef_kernel_table *table = name == NULL ? best_table() : find_table(name);
    if (table == NULL)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "no kernels \"%s\" on this CPU; there are scalar, avx2 and avx512, and \"%s\" "
            "is the best that runs here",
            name, best_table()->name);
    atomic_store_explicit(&chosen, table, memory_order_relaxed);
    return REEF_OK;
}

float reef_dot(size_t D, const float *a, const float *b) {
    return reef_kernels()->dot(D, a, b);
}

void reef_axpy(size_t D, float *y, float alpha, const float *x) {
    reef_kernels()->axpy(D, y, alpha, x);
}

// The scale of a row whose largest value is `most`, which is NaN where one is not finite.
static float i8_scale_of(float most) {
    return isfinite(most) ? most / REEF_I8_MAX : NAN;
}

static int8_t i8_value(float value, float scale) {
    if (!(scale > 0)) return 0;
    // Where a scale is hardly a float, it is rounded by so much that the quotient may not fit.
    return (int8_t)fmaxf(-REEF_I8_MAX, fminf(REEF_I8_MAX, rintf(value / scale)));
}

void reef_i8_round(size_t D, int8_t *row, const float *x) {
    float most = 0;
    bool finite = true;
    for (size_t d = 0; d < D; d++) {
        most = fmaxf(most, fabsf(x[d]));
        finite = finite && isfinite(x[d]);
    }
    const float scale = i8_scale_of(finite ? most : NAN);
    memcpy(row, &scale, sizeof(scale));
    for (size_t d = 0; d < D; d++) row[REEF_I8_SCALE_BYTES + d] = i8_value(x[d], scale);
}

void reef_dot_rows(size_t K,
                   size_t D,
                   float *out,
                   const float *x,
                   const float *const *rows,
                   size_t offset,
                   size_t span) {
    reef_kernels()->dot_rows(K, D, out, x, rows, offset, span);
}

void reef_dot_rows_i8(size_t K,
                      size_t D,
                      float *out,
                      const float *x,
                      const int8_t *const *rows,
                      size_t offset,
                      size_t span) {
    reef_kernels()->dot_rows_i8(K, D, out, x, rows, offset, span);
}

void reef_axpy_rows_i8(
    size_t K, size_t D, float *y, const float *alpha, const int8_t *const *rows, size_t offset) {
    reef_kernels()->axpy_rows_i8(K, D, y, alpha, rows, offset);
}

void reef_axpy_rows(
    size_t K, size_t D, float *y, const float *alpha, const float *const *rows, size_t offset) {
    reef_kernels()->axpy_rows(K, D, y, alpha, rows, offset);
}

void reef_exp(size_t D, float *y, const float *x) {
    reef_kernels()->exp(D, y, x);
}

void reef_softmax(size_t D, float *row) {
    if (D > 0) reef_kernels()->softmax(D, row);
}

void reef_gelu(size_t D, float *y, const float *x) {
    reef_kernels()->gelu(D, y, x);
}

void reef_gelu_backward(size_t D, float *d_x, const float *d_y, const float *x) {
    reef_kernels()->gelu_backward(D, d_x, d_y, x);
}

reef_adam_bias reef_adam_bias_at(uint64_t count, const reef_adam *adam) {
    assert(count >= 1);
    // In double: 1 - beta^count cancels for small counts.
    return (reef_adam_bias){
        .rate = 1 - pow(adam->beta1, (double)count),
        .root = (float)(1 / sqrt(1 - pow(adam->beta2, (double)count))),
    };
}

void reef_adam_update_with(size_t D,
                           float *param,
                           float *adam_m,
                           float *adam_v,
                           const float *grad,
                           float scale,
                           reef_adam_bias bias,
                           const reef_adam *adam) {
    reef_adam_step step = {
        .scale = scale,
        .beta1 = adam->beta1,
        .beta2 = adam->beta2,
        .rate = (float)(adam->learning_rate / bias.rate),
        .root = bias.root,
        .epsilon = adam->epsilon,
    };
    reef_kernels()->adam(D, param, adam_m, adam_v, grad, &step);
}

void reef_adam_update(size_t D,
                      float *param,
                      float *adam_m,
                      float *adam_v,
                      const float *grad,
                      float scale,
                      uint64_t count,
                      const reef_adam *adam) {
    reef_adam_update_with(D, param, adam_m, adam_v, grad, scale, reef_adam_bias_at(count, adam),
                          adam);
}

void reef_average_update(size_t D, float *average, const float *param, uint64_t count, float rate) {
    assert(count >= 1);
    // A young average moves faster, or the initial weights would stay in it for long.
    double young = count == 1 ? 1 : 1 / (1 + 0.1 * (double)count);
    float share = (float)fmax((double)rate, young);
    if (share >= 1)
        memcpy(average, param, D * sizeof(*average)); // whose sum would be one rounding away
    else
        reef_kernels()->approach(D, average, param, share);
}
