// See flop_count.h. Worker threads call these too.
#include "flop_count.h"

#include "reef_kernels.h"

#include <stdatomic.h>

static _Atomic uint64_t counted_gemm, counted_dot, counted_axpy, counted_dot_rows,
    counted_axpy_rows;

flop_count flop_count_take(void) {
    return (flop_count){.gemm = atomic_exchange(&counted_gemm, 0),
                        .dot = atomic_exchange(&counted_dot, 0),
                        .axpy = atomic_exchange(&counted_axpy, 0),
                        .dot_rows = atomic_exchange(&counted_dot_rows, 0),
                        .axpy_rows = atomic_exchange(&counted_axpy_rows, 0)};
}

// NOLINTBEGIN(bugprone-reserved-identifier): the names are the linker's.
void __real_reef_gemm(bool transpose_a,
                      bool transpose_b,
                      size_t M,
                      size_t N,
                      size_t K,
                      float alpha,
                      const float *a,
                      size_t lda,
                      const float *b,
                      size_t ldb,
                      float beta,
                      float *c,
                      size_t ldc);
void __wrap_reef_gemm(bool transpose_a,
                      bool transpose_b,
                      size_t M,
                      size_t N,
                      size_t K,
                      float alpha,
                      const float *a,
                      size_t lda,
                      const float *b,
                      size_t ldb,
                      float beta,
                      float *c,
                      size_t ldc);
void __wrap_reef_gemm(bool transpose_a,
                      bool transpose_b,
                      size_t M,
                      size_t N,
                      size_t K,
                      float alpha,
                      const float *a,
                      size_t lda,
                      const float *b,
                      size_t ldb,
                      float beta,
                      float *c,
                      size_t ldc) {
    atomic_fetch_add(&counted_gemm, 2 * (uint64_t)M * N * K);
    __real_reef_gemm(transpose_a, transpose_b, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
}

float __real_reef_dot(size_t D, const float *a, const float *b);
float __wrap_reef_dot(size_t D, const float *a, const float *b);
float __wrap_reef_dot(size_t D, const float *a, const float *b) {
    atomic_fetch_add(&counted_dot, 2 * (uint64_t)D);
    return __real_reef_dot(D, a, b);
}

void __real_reef_axpy(size_t D, float *y, float alpha, const float *x);
void __wrap_reef_axpy(size_t D, float *y, float alpha, const float *x);
void __wrap_reef_axpy(size_t D, float *y, float alpha, const float *x) {
    atomic_fetch_add(&counted_axpy, 2 * (uint64_t)D);
    __real_reef_axpy(D, y, alpha, x);
}

void __real_reef_dot_rows(size_t K,
                          size_t D,
                          float *out,
                          const float *x,
                          const float *const *rows,
                          size_t offset,
                          size_t span);
void __wrap_reef_dot_rows(size_t K,
                          size_t D,
                          float *out,
                          const float *x,
                          const float *const *rows,
                          size_t offset,
                          size_t span);
void __wrap_reef_dot_rows(size_t K,
                          size_t D,
                          float *out,
                          const float *x,
                          const float *const *rows,
                          size_t offset,
                          size_t span) {
    atomic_fetch_add(&counted_dot_rows, 2 * (uint64_t)K * D);
    __real_reef_dot_rows(K, D, out, x, rows, offset, span);
}

void __real_reef_axpy_rows(
    size_t K, size_t D, float *y, const float *alpha, const float *const *rows, size_t offset);
void __wrap_reef_axpy_rows(
    size_t K, size_t D, float *y, const float *alpha, const float *const *rows, size_t offset);
void __wrap_reef_axpy_rows(
    size_t K, size_t D, float *y, const float *alpha, const float *const *rows, size_t offset) {
    atomic_fetch_add(&counted_axpy_rows, 2 * (uint64_t)K * D);
    __real_reef_axpy_rows(K, D, y, alpha, rows, offset);
}
// NOLINTEND(bugprone-reserved-identifier)
