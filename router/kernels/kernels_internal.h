// One table of kernels per instruction set, and the constants that all of them share. Private.
#ifndef REEF_KERNELS_INTERNAL_H
#define REEF_KERNELS_INTERNAL_H

#include "coarse.h"
#include "reef_kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What one Adam step needs beside the arrays, worked out once per row. */
typedef struct reef_adam_step {
    float scale;   // of the gradient
    float beta1;   // decay of adam_m
    float beta2;   // decay of adam_v
    float rate;    // learning rate / (1 - beta1^count)
    float root;    // 1 / sqrt(1 - beta2^count)
    float epsilon; // added to the root of adam_v
} reef_adam_step;

/** The kernels; reef_kernels.h says what each one does. */
typedef struct reef_kernel_table {
    const char *name;
    float (*dot)(size_t D, const float *a, const float *b);
    void (*axpy)(size_t D, float *y, float alpha, const float *x);
    void (*dot_rows)(size_t K,
                     size_t D,
                     float *out,
                     const float *x,
                     const float *const *rows,
                     size_t offset,
                     size_t span);
    void (*axpy_rows)(
        size_t K, size_t D, float *y, const float *alpha, const float *const *rows, size_t offset);
    void (*dot_rows_i8)(size_t K,
                        size_t D,
                        float *out,
                        const float *x,
                        const int8_t *const *rows,
                        size_t offset,
                        size_t span);
    void (*axpy_rows_i8)(
        size_t K, size_t D, float *y, const float *alpha, const int8_t *const *rows, size_t offset);
    void (*exp)(size_t D, float *y, const float *x);
    void (*softmax)(size_t D, float *row);
    void (*gelu)(size_t D, float *y, const float *x);
    void (*gelu_backward)(size_t D, float *d_x, const float *d_y, const float *x);
    void (*adam)(size_t D,
                 float *param,
                 float *adam_m,
                 float *adam_v,
                 const float *grad,
                 const reef_adam_step *step);
    void (*approach)(size_t D, float *average, const float *param, float share);
    /** The K <= D best of a row, best first and the lower index first among equals; D <= 65536.
     *  False when one is NaN. */
    bool (*topk)(size_t D, const float *row, size_t K, float *scores, uint16_t *indices);
    /**
     * The `topk` best sums of one score of a and one of b, by place: place in a << 16 | place in b.
     * Both lists fall; at least topk sums reach `least`. False, positions unspecified, where two of
     * the best are equal or nearly so, or more than RANK_PAIRS_MAX reach it.
     */
    bool (*rank_pairs)(size_t count_a,
                       const float *a,
                       size_t count_b,
                       const float *b,
                       float least,
                       size_t topk,
                       uint32_t *positions);
} reef_kernel_table;

// About 1.5 times topk scores reach the bound. Ranking them by counting takes a vector's step for
// each pair.
enum { RANK_PAIRS_MAX = 192 };

/** The table in use. */
const reef_kernel_table *reef_kernels(void);

/** The kernels of the first pass that go with it, see coarse.h; NULL: there are none. */
const reef_coarse_kernels *reef_kernels_coarse(void);

#if defined(__x86_64__)
/**
 * Whether this CPU has AVX-512 with dot products of bytes (VNNI) and compression of words (VBMI2).
 */
bool reef_cpu_runs_coarse_avx512(void);
#endif

// NOLINTBEGIN(readability-identifier-naming): tables that one is chosen of, no constants.
extern const reef_kernel_table reef_kernels_scalar;
#if defined(__x86_64__)
extern const reef_coarse_kernels reef_coarse_avx2;
extern const reef_coarse_kernels reef_coarse_avx512;
extern const reef_kernel_table reef_kernels_avx2;
extern const reef_kernel_table reef_kernels_avx512;
#endif
// NOLINTEND(readability-identifier-naming)

// exp(x) = 2^n exp(r), r = x - n log 2, |r| <= log(2) / 2; the polynomial is that of expf in the
// Cephes library (Moshier 1992). Log 2 is split in two so that n * log 2 loses nothing.
#define EXP_LOG2E 1.44269504088896341f
#define EXP_LOG2_HIGH 0.693359375f
#define EXP_LOG2_LOW (-2.12194440e-4f)
#define EXP_P0 1.9875691500e-4f
#define EXP_P1 1.3981999507e-3f
#define EXP_P2 8.3334519073e-3f
#define EXP_P3 4.1665795894e-2f
#define EXP_P4 1.6666665459e-1f
#define EXP_P5 5.0000001201e-1f
// Beyond these the result is 0 or infinity; inside, 2^n is a product of two normal numbers.
#define EXP_X_MIN (-105.0f)
#define EXP_X_MAX 90.0f
// Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits of the sum.
#define EXP_ROUND 12582912.0f

// GELU, tanh form: x / (1 + exp(-2 u)) with u = sqrt(2/pi) (x + 0.044715 x^3).
#define GELU_ROOT 0.79788456080286536f
#define GELU_CUBE 0.044715f
// Beyond +-20 the slope is 0 or 1 to the last bit; the cube of a large x would be infinite.
#define GELU_X_MAX 20.0f

// How many rows ahead gathered rows are prefetched; 4 and 8 measure alike.
#define PREFETCH_ROWS 8
#define LINE_BYTES 64 // of the caches

#endif
