// The arithmetic that the router and the modules that use it share: matrix products, the few loops
// over rows that everything is built from, and the workers that run fixed pieces of work.
//
// What always holds: a result depends on its inputs and shapes only, never on the number of
// threads, on alignment or on what else is in the batch. Work is cut into pieces whose number does
// not depend on the threads; whoever reduces over pieces does so in piece order.
#ifndef REEF_KERNELS_H
#define REEF_KERNELS_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** Name of the kernels in use, "scalar", "avx2" or "avx512"; REEF_ISA in the environment of the
 *  *programs* chooses through reef_kernels_choose. */
REEF_API const char *reef_kernels_name(void);

/** Choose kernels by name; NULL means the best this CPU runs (the default). INVALID when unknown or
 *  not supported here. Not thread-safe: call before any other kernel. */
REEF_API REEF_MUST_CHECK reef_status reef_kernels_choose(const char *name, reef_error *err);

// ---- matrix products (OpenBLAS, single-threaded) ------------------------------------------------

/**
 * C = alpha * op(A) op(B) + beta * C, row-major: op(A) is M x K, op(B) is K x N, C is M x N.
 * `transpose_a`: A is stored K x M. `lda`, `ldb`, `ldc` are row strides in floats.
 * With beta == 0, C is not read. Callers keep M fixed for rows of tokens (whole pieces), so that a
 * row's result does not depend on its neighbours.
 */
REEF_API void reef_gemm(bool transpose_a,
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

/**
 * Between the two BLAS runs on the calling thread alone whatever the rest of the process has set,
 * and afterwards as it was. For libraries in programs that use the same BLAS; may be nested, from
 * any thread.
 */
REEF_API void reef_gemm_claim(void);
REEF_API void reef_gemm_give_back(void);

/** Name of the kernels that BLAS chose for this CPU, such as "Haswell": the other half, beside
 *  reef_kernels_name, of what bits depend on. */
REEF_API const char *reef_gemm_name(void);

/**
 * What slows the products and how to mend it, a constant text; NULL: nothing does. An OpenBLAS that
 * is older than the CPU may not know it, and then takes kernels without AVX.
 */
REEF_API const char *reef_gemm_advice(void);

/**
 * For functions that only prefetch: GCC removes a call without effects, unless it was inlined
 * before.
 */
#define REEF_PREFETCH_ONLY __attribute__((always_inline))

// ---- rows ---------------------------------------------------------------------------------------
//
// Sizes may be anything, 0 too, and arrays aligned for their type only. Denormal numbers are not
// flushed to zero. Infinities and NaN go through sums and products as IEEE 754 says, 0 * infinity =
// NaN included: a dot product has them, an elementwise kernel in their own elements only.

REEF_API float reef_dot(size_t D, const float *a, const float *b);
/** y += alpha * x */
REEF_API void reef_axpy(size_t D, float *y, float alpha, const float *x);

/**
 * A row of whole numbers of a byte: a float, the scale, in the first four bytes, then its D values,
 * each a multiple of the scale. A row may begin at any address.
 */
#define REEF_I8_SCALE_BYTES sizeof(float)

/**
 * row (D + REEF_I8_SCALE_BYTES bytes) = x with the largest value as 127 or -127, the others rounded
 * to the nearest, to even between two. A row of zeros has scale 0; a value that is not finite makes
 * the whole row NaN.
 */
REEF_API void reef_i8_round(size_t D, int8_t *row, const float *x);

/** The scale of a row. */
static inline float reef_i8_scale(const int8_t *row) {
    float scale;
    memcpy(&scale, row, sizeof(scale));
    return scale;
}

/**
 * out[k] = dot(rows[k] + offset, x) over D values of K rows that lie anywhere, with the bits of
 * reef_dot. The first `span` values of a row are prefetched a few rows ahead, so that the other
 * part of an expert's row is in cache when reef_axpy_rows follows; `span` may reach beyond the
 * memory there. The int8 twin sums the products of the whole numbers and multiplies the sum by the
 * scale; offset and span count values.
 */
REEF_API void reef_dot_rows(size_t K,
                            size_t D,
                            float *out,               // (K) written
                            const float *x,           // (D)
                            const float *const *rows, // (K)
                            size_t offset,
                            size_t span);
REEF_API void reef_dot_rows_i8(size_t K,
                               size_t D,
                               float *out,
                               const float *x,
                               const int8_t *const *rows,
                               size_t offset,
                               size_t span);
/**
 * y += sum over k of alpha[k] * (rows[k] + offset), in the order of k, with the bits of K
 * reef_axpy; of int8 rows alpha[k] * scale is rounded first.
 */
REEF_API void reef_axpy_rows(size_t K,
                             size_t D,
                             float *y,                 // (D) accumulated into
                             const float *alpha,       // (K)
                             const float *const *rows, // (K)
                             size_t offset);
REEF_API void reef_axpy_rows_i8(
    size_t K, size_t D, float *y, const float *alpha, const int8_t *const *rows, size_t offset);
/**
 * y = x for all D: exp, to within a few ulp of expf; exact at 0; exp(-inf) = 0, exp(inf) = inf. In
 * place allowed.
 */
REEF_API void reef_exp(size_t D, float *y, const float *x);
/** In place softmax of one row. Fully masked entries may be -INFINITY (not all of them). NaN or
 *  INFINITY anywhere makes the whole row NaN. */
REEF_API void reef_softmax(size_t D, float *row);
/** GELU, tanh form (Hendrycks & Gimpel 2016): 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
 *  INFINITY stays, -INFINITY gives NaN. */
REEF_API void reef_gelu(size_t D, float *y, const float *x);
/**
 * d_x = d_y * gelu'(x); in place (d_x == d_y) allowed. The slope is 1 at INFINITY, 0 at -INFINITY.
 */
REEF_API void reef_gelu_backward(size_t D, float *d_x, const float *d_y, const float *x);

typedef struct reef_adam {
    float learning_rate, beta1, beta2, epsilon;
} reef_adam;

/** The bias correction of one update. */
typedef struct reef_adam_bias {
    double rate; // 1 - beta1^count: the rate is divided by it
    float root;  // 1 / sqrt(1 - beta2^count)
} reef_adam_bias;

/** Of update number `count` >= 1. Costs two powers: of many rows of few parameters it is kept. */
REEF_API reef_adam_bias reef_adam_bias_at(uint64_t count, const reef_adam *adam);

/**
 * One Adam step over D parameters (Kingma & Ba 2015, algorithm 1), `count` >= 1 counts this step.
 * param -= lr * (m / (1 - beta1^count)) / (sqrt(v / (1 - beta2^count)) + epsilon); grad times
 * `scale` first (gradient clipping). Where the gradient is not finite, the parameter becomes NaN.
 */
REEF_API void reef_adam_update(size_t D,
                               float *param,
                               float *adam_m,
                               float *adam_v,
                               const float *grad,
                               float scale,
                               uint64_t count,
                               const reef_adam *adam);

/** The same with the correction of that update, to the bit. */
REEF_API void reef_adam_update_with(size_t D,
                                    float *param,
                                    float *adam_m,
                                    float *adam_v,
                                    const float *grad,
                                    float scale,
                                    reef_adam_bias bias,
                                    const reef_adam *adam);

/**
 * Take D parameters, after their update number `count` >= 1, into their running average (Polyak &
 * Juditsky 1992, with exponential weights): average += max(rate, 1 / (1 + count / 10)) * (param -
 * average), rate in 0 .. 1. Young averages forget their first values sooner; with `count` 1, and
 * with a rate of 1, it becomes the parameters to the bit.
 */
REEF_API void reef_average_update(
    size_t D, float *average, const float *param, uint64_t count, float rate);

// ---- workers ------------------------------------------------------------------------------------

typedef struct reef_thread_pool reef_thread_pool;

/** `thread_count` threads including the caller's; 0 means one per core that we may run on. */
REEF_API REEF_MUST_CHECK reef_status reef_thread_pool_new(reef_thread_pool **out,
                                                          size_t thread_count,
                                                          reef_error *err);
REEF_API void reef_thread_pool_free(reef_thread_pool *workers);
REEF_API size_t reef_thread_pool_count(const reef_thread_pool *workers);

/** From their next job on the workers give way to other threads; see reef_thread_give_way. */
REEF_API void reef_thread_pool_give_way(reef_thread_pool *workers, int niceness);

/**
 * Call `work(context, piece)` for every piece in 0 .. piece_count - 1, on any thread in any order,
 * and return when all are done (with their writes visible). The caller's thread works too. One call
 * at a time per workers; `work` must not call back. `workers` NULL runs everything on the caller's
 * thread. Waiting threads spin for some microseconds, then sleep.
 */
REEF_API void reef_thread_pool_run(reef_thread_pool *workers,
                                   size_t piece_count,
                                   void (*work)(void *context, size_t piece),
                                   void *context);

#endif
