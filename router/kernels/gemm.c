// Matrix products: the one door to BLAS.
//
// What always holds: OpenBLAS runs on the calling thread alone, so that our workers decide what
// runs where and a product has the same bits whichever thread computes it and whatever the others
// do. Measured with OpenBLAS 0.3.21 on Zen 5 (kernels "Haswell" and "SkylakeX", M from 1 to 192):
// with M, N, K and strides fixed, a row of C never depends on the other rows of A, not even on NaN
// in them. It does depend on M and, with the Haswell kernels, on the row's position among the M
// rows: callers that want equal bits keep a row at its position in a piece of fixed height.
#include "reef_kernels.h"

#include <cblas.h>

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t blas_once = PTHREAD_ONCE_INIT;

// Programs of our own never claim: for them it is set once.
static void set_up_blas(void) {
    openblas_set_num_threads(1);
}

// In a process whose other parts use the same BLAS: the setting is the process's, not ours alone.
static pthread_mutex_t alone_mutex = PTHREAD_MUTEX_INITIALIZER;
static size_t alone_count; // claims that are not given back
static int threads_before; // the first of them
static bool claim_is_left; // by threads that a fork left behind, with BLAS as they had it

static void before_fork(void) {
    pthread_mutex_lock(&alone_mutex);
}

static void after_fork(void) {
    pthread_mutex_unlock(&alone_mutex);
}

static void in_child(void) {
    // The threads that claimed do not exist here, so their claims are never given back.
    if (alone_count > 0) claim_is_left = true;
    alone_count = 0;
    pthread_mutex_unlock(&alone_mutex);
}

static void heed_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, in_child); // without memory for it: not heeded
}

void reef_gemm_claim(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, heed_forks);
    pthread_mutex_lock(&alone_mutex);
    if (alone_count++ == 0) {
        // A claim left by a fork has set 1 already: reading it would lose the original number.
        if (!claim_is_left) threads_before = openblas_get_num_threads();
        claim_is_left = false;
        if (threads_before != 1) openblas_set_num_threads(1);
    }
    pthread_mutex_unlock(&alone_mutex);
}

void reef_gemm_give_back(void) {
    pthread_mutex_lock(&alone_mutex);
    if (--alone_count == 0 && threads_before != 1) openblas_set_num_threads(threads_before);
    pthread_mutex_unlock(&alone_mutex);
}

const char *reef_gemm_name(void) {
    return openblas_get_corename();
}

#if defined(__x86_64__)
#define ADVICE(core)                                                                               \
    "OpenBLAS does not know this CPU and takes its Prescott kernels, which have no AVX; "          \
    "OPENBLAS_CORETYPE=" core " in the environment makes matrix products faster"

static bool runs_skylakex(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

const char *reef_gemm_advice(void) {
#if defined(__x86_64__)
    // Who sets the variable has chosen, for equal bits on several machines perhaps.
    bool chosen = getenv("OPENBLAS_CORETYPE") != NULL;
    bool plain = strcmp(reef_gemm_name(), "Prescott") == 0;
    if (!chosen && plain && runs_skylakex()) return ADVICE("SkylakeX");
    if (!chosen && plain && __builtin_cpu_supports("avx2")) return ADVICE("Haswell");
#endif
    return NULL;
}

// C = beta * C, for products over nothing.
static void scale(size_t M, size_t N, float beta, float *c, size_t ldc) {
    for (size_t i = 0; i < M; i++)
        // beta 0 means that c is not read: it may hold NaN.
        for (size_t j = 0; j < N; j++) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

void reef_gemm(bool transpose_a,
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
    // Settled here, whatever a BLAS does with empty products: with K = 0 beta still applies.
    if (M == 0 || N == 0) return;
    if (K == 0) {
        scale(M, N, beta, c, ldc);
        return;
    }
    // blasint is an int in most builds of OpenBLAS; a size that wraps would corrupt memory.
    assert(M <= INT_MAX && N <= INT_MAX && K <= INT_MAX);
    assert(lda <= INT_MAX && ldb <= INT_MAX && ldc <= INT_MAX);
    assert(lda >= (transpose_a ? M : K) && ldb >= (transpose_b ? K : N) && ldc >= N);

    // Here, not at program start: a library has no main. One thread, for equal bits.
    pthread_once(&blas_once, set_up_blas);
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (blasint)M, (blasint)N, (blasint)K, alpha,
                a, (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}
