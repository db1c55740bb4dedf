// Matrix products against naive loops, and what fixed pieces rely on: a row of a product of fixed
// shape is the same whatever its neighbours hold, and whichever thread computes it.
#include "reef_kernels.h"

#include "draw.h"
#include "test.h"

#include <math.h>

enum { SIDE = 70, PADDING = 3 };

typedef struct matrices {
    float a[(SIDE + PADDING) * SIDE], b[(SIDE + PADDING) * SIDE];
    float c[(SIDE + PADDING) * SIDE], before[(SIDE + PADDING) * SIDE];
} matrices;

static void check_product(matrices *m,
                          bool transpose_a,
                          bool transpose_b,
                          size_t M,
                          size_t N,
                          size_t K,
                          float alpha,
                          float beta) {
    size_t lda = (transpose_a ? M : K) + PADDING, ldb = (transpose_b ? K : N) + PADDING;
    size_t ldc = N + PADDING;
    memcpy(m->c, m->before, sizeof(m->c));
    reef_gemm(transpose_a, transpose_b, M, N, K, alpha, m->a, lda, m->b, ldb, beta, m->c, ldc);
    for (size_t i = 0; i < M; i++) {
        for (size_t j = 0; j < ldc; j++) {
            double truth = m->before[i * ldc + j];
            if (j < N) {
                truth = beta == 0 ? 0 : beta * truth; // C is not read, it may be NaN
                for (size_t k = 0; k < K; k++)
                    truth += (double)alpha * m->a[transpose_a ? k * lda + i : i * lda + k] *
                             m->b[transpose_b ? j * ldb + k : k * ldb + j];
            }
            if (isnan(truth)) // padding, untouched
                assert_true(isnan(m->c[i * ldc + j]));
            else
                assert_true(fabs(m->c[i * ldc + j] - truth) < 1e-4);
        }
    }
}

PLAIN_TEST(product_agrees_with_naive_loops) {
    const size_t sizes[] = {0, 1, 2, 5, 16, 33, 64, 67};
    enum { SIZES = sizeof(sizes) / sizeof(*sizes) };
    matrices *m = room(sizeof(*m));
    uint64_t seed = 1;
    draw_floats(&seed, sizeof(m->a) / sizeof(*m->a), m->a, -1, 1);
    draw_floats(&seed, sizeof(m->b) / sizeof(*m->b), m->b, -1, 1);
    for (size_t n = 0; n < SIZES * SIZES * SIZES * 4; n++) {
        size_t M = sizes[n / 4 % SIZES], N = sizes[n / 4 / SIZES % SIZES];
        size_t K = sizes[n / 4 / SIZES / SIZES];
        draw_floats(&seed, sizeof(m->c) / sizeof(*m->c), m->before, -1, 1);
        check_product(m, n & 1, n & 2, M, N, K, 0.5f, 1);
        check_product(m, n & 1, n & 2, M, N, K, 1, -0.5f);
        for (size_t i = 0; i < sizeof(m->c) / sizeof(*m->c); i++) m->before[i] = NAN;
        check_product(m, n & 1, n & 2, M, N, K, 1, 0);
    }
}

enum { ROWS = 48, WIDTH = 96, DEPTH = 130 };

PLAIN_TEST(a_row_does_not_depend_on_its_neighbours) {
    static float a[ROWS * DEPTH], b[DEPTH * WIDTH], c[ROWS * WIDTH], expected[ROWS * WIDTH];
    uint64_t seed = 2;
    for (int transpose_b = 0; transpose_b < 2; transpose_b++) {
        size_t ldb = transpose_b ? DEPTH : WIDTH;
        draw_floats(&seed, ROWS * DEPTH, a, -1, 1);
        draw_floats(&seed, DEPTH * WIDTH, b, -1, 1);
        reef_gemm(false, transpose_b, ROWS, WIDTH, DEPTH, 1, a, DEPTH, b, ldb, 0, expected, WIDTH);
        for (size_t row = 0; row < ROWS; row++) {
            float kept[DEPTH];
            memcpy(kept, a + row * DEPTH, sizeof(kept));
            draw_floats(&seed, ROWS * DEPTH, a, -1000, 1000);
            for (size_t i = 0; i < DEPTH; i++) a[(row + 1) % ROWS * DEPTH + i] = NAN;
            memcpy(a + row * DEPTH, kept, sizeof(kept));
            reef_gemm(false, transpose_b, ROWS, WIDTH, DEPTH, 1, a, DEPTH, b, ldb, 0, c, WIDTH);
            assert_memory_equal(c + row * WIDTH, expected + row * WIDTH, WIDTH * sizeof(*c));
            // The rows before are random now, so their reference is computed again.
            draw_floats(&seed, ROWS * DEPTH, a, -1, 1);
            reef_gemm(false, transpose_b, ROWS, WIDTH, DEPTH, 1, a, DEPTH, b, ldb, 0, expected,
                      WIDTH);
        }
    }
}

typedef struct many_products {
    float a[ROWS * DEPTH], b[DEPTH * WIDTH];
    float c[40][ROWS * WIDTH];
} many_products;

static void one_product(void *context, size_t piece) {
    many_products *p = context;
    reef_gemm(false, false, ROWS, WIDTH, DEPTH, 1, p->a, DEPTH, p->b, WIDTH, 0, p->c[piece], WIDTH);
}

PLAIN_TEST(products_at_the_same_time_have_the_same_bits) {
    many_products *p = room(sizeof(*p));
    uint64_t seed = 3;
    draw_floats(&seed, ROWS * DEPTH, p->a, -1, 1);
    draw_floats(&seed, DEPTH * WIDTH, p->b, -1, 1);
    reef_thread_pool *workers;
    assert_int_equal(reef_thread_pool_new(&workers, 4, NULL), REEF_OK);
    for (int repeat = 0; repeat < 10; repeat++) {
        reef_thread_pool_run(workers, 40, one_product, p);
        for (size_t piece = 1; piece < 40; piece++)
            assert_memory_equal(p->c[piece], p->c[0], sizeof(p->c[0]));
    }
    reef_thread_pool_free(workers);
}

PLAIN_TEST(the_kernels_of_blas_have_a_name) {
    assert_true(strlen(reef_gemm_name()) > 0);
}

// test_numerics runs this with the kernels for Prescott as well.
PLAIN_TEST(slow_products_are_explained) {
    const char *name = reef_gemm_name(), *set = getenv("OPENBLAS_CORETYPE");
    char *before = set == NULL ? NULL : strdup(set);
    bool slow = false;
#if defined(__x86_64__)
    slow = strcmp(name, "Prescott") == 0 && __builtin_cpu_supports("avx2");
#endif
    assert_int_equal(unsetenv("OPENBLAS_CORETYPE"), 0);
    assert_int_equal(reef_gemm_advice() != NULL, slow);
    // Who has chosen knows.
    assert_int_equal(setenv("OPENBLAS_CORETYPE", name, 1), 0);
    assert_null(reef_gemm_advice());
    if (before == NULL) assert_int_equal(unsetenv("OPENBLAS_CORETYPE"), 0);
    free(before);
}

RUN_TESTS
