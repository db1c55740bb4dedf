// Kernels of the mixer: plain loops against a 64-bit reference, vectors against the plain loops.
#include "logistic.h"
#include "mix_layer.h"
#include "reef_kernels.h"

#include "draw.h"
#include "plain_mixer.h"
#include "test.h"

enum { SETS_MAX = 7, INPUTS_MAX = 64, REPEATS = 400 };

static const size_t SETS[] = {1, 2, 5, 6, 7}, INPUTS[] = {16, 32, 48, 64};

// One call's arrays, each with a guard behind what a kernel may write. Vectors are read from any
// address, so nothing is aligned on purpose: `shift` moves every array by some elements.
typedef struct arrays {
    int16_t in[INPUTS_MAX + 8], rate[SETS_MAX];
    int16_t w[SETS_MAX][INPUTS_MAX + 8];
    int32_t out[SETS_MAX + 1];
} arrays;

static const reef_mix_kernels *tested;

static int16_t draw_int16(uint64_t *seed, int low) {
    const int extremes[] = {low, -low - (low < -32767), INT16_MAX, 0, 1, -1, 3071, -3071};
    if (draw_int(seed, 0, 3) == 0) return (int16_t)extremes[draw_int(seed, 0, 7)];
    if (draw_int(seed, 0, 1) == 0) return (int16_t)draw_int(seed, -40, 40);
    return (int16_t)draw_int(seed, low, INT16_MAX);
}

static void draw_arrays(uint64_t *seed, arrays *a) {
    // Sums of two products fit in 32 bits as long as no input is -32768.
    for (size_t i = 0; i < INPUTS_MAX + 8; i++) {
        a->in[i] = draw_int16(seed, -32767);
        for (size_t k = 0; k < SETS_MAX; k++) a->w[k][i] = draw_int16(seed, INT16_MIN);
    }
    for (size_t k = 0; k < SETS_MAX; k++) {
        a->rate[k] = draw_int16(seed, -32767);
        a->out[k] = 0x5A5A5A5A;
    }
    a->out[SETS_MAX] = 0x5A5A5A5A;
}

static void call_all(const reef_mix_kernels *kernels, arrays *a, size_t K, size_t N, size_t shift) {
    int16_t *w[SETS_MAX];
    for (size_t k = 0; k < SETS_MAX; k++) w[k] = a->w[k] + shift;
    kernels->dot(K, N, a->out, a->in + shift, (const int16_t *const *)w);
    kernels->train(K, N, w, a->in + shift, a->rate);
}

static void call_plain(arrays *a, size_t K, size_t N, size_t shift) {
    int16_t *w[SETS_MAX];
    int64_t out[SETS_MAX];
    for (size_t k = 0; k < SETS_MAX; k++) w[k] = a->w[k] + shift;
    plain_dot(K, N, out, a->in + shift, (const int16_t *const *)w);
    plain_train(K, N, w, a->in + shift, a->rate);
    for (size_t k = 0; k < K; k++) {
        assert_true(out[k] >= INT32_MIN && out[k] <= INT32_MAX);
        a->out[k] = (int32_t)out[k];
    }
}

// Guards are in the arrays, so a kernel that writes behind its own shows here too.
static void assert_same(const arrays *a, const arrays *b, size_t K, size_t N) {
    if (memcmp(a->out, b->out, sizeof(a->out)) != 0) fail_msg("dot, K %zu N %zu", K, N);
    if (memcmp(a->w, b->w, sizeof(a->w)) != 0) fail_msg("train, K %zu N %zu", K, N);
}

// `fill` makes the inputs of one call; NULL leaves them as they were drawn.
static void assert_agrees(void (*fill)(uint64_t *seed, arrays *a)) {
    uint64_t seed = 17;
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (size_t n = 0; n < sizeof(INPUTS) / sizeof(*INPUTS); n++)
            for (size_t k = 0; k < sizeof(SETS) / sizeof(*SETS); k++) {
                arrays a, b;
                size_t shift = (size_t)draw_int(&seed, 0, 7);
                memset(&a, 0, sizeof(a));
                draw_arrays(&seed, &a);
                if (fill != NULL) fill(&seed, &a);
                memcpy(&b, &a, sizeof(a));
                call_all(tested, &a, SETS[k], INPUTS[n], shift);
                if (tested == &reef_mix_scalar)
                    call_plain(&b, SETS[k], INPUTS[n], shift);
                else
                    call_all(&reef_mix_scalar, &b, SETS[k], INPUTS[n], shift);
                assert_same(&a, &b, SETS[k], INPUTS[n]);
            }
}

PLAIN_TEST(kernels_agree_on_random_and_extreme_inputs) {
    assert_agrees(NULL);
}

static void fill_with_limits(uint64_t *seed, arrays *a) {
    const int16_t limits[] = {-32767, INT16_MAX};
    int16_t in = limits[draw_int(seed, 0, 1)], w = limits[draw_int(seed, 0, 1)];
    if (w < 0) w = INT16_MIN;
    for (size_t i = 0; i < INPUTS_MAX + 8; i++) {
        a->in[i] = in;
        for (size_t k = 0; k < SETS_MAX; k++) a->w[k][i] = w;
    }
    for (size_t k = 0; k < SETS_MAX; k++) a->rate[k] = limits[draw_int(seed, 0, 1)];
}

// Every weight saturates or comes back from the other end, and sums are as large as they get.
PLAIN_TEST(kernels_agree_where_everything_is_at_its_limit) {
    assert_agrees(fill_with_limits);
}

static void fill_with_halves(uint64_t *seed, arrays *a) {
    for (size_t i = 0; i < INPUTS_MAX + 8; i++) a->in[i] = (int16_t)(draw_int(seed, -3, 3) * 2 + 1);
    for (size_t k = 0; k < SETS_MAX; k++) a->rate[k] = draw_int(seed, 0, 1) ? 1 << 14 : -(1 << 14);
}

PLAIN_TEST(kernels_agree_where_changes_lie_between_two_numbers) {
    assert_agrees(fill_with_halves);
}

PLAIN_TEST(learning_from_the_error_brings_the_sum_nearer_to_the_bit) {
    uint64_t seed = 23;
    int16_t in[32], weights[32] = {0}, *w[1] = {weights};
    for (size_t i = 0; i < 32; i++) in[i] = (int16_t)draw_int(&seed, -2000, 2000);
    for (int step = 0; step < 200; step++) {
        const int16_t rate[1] = {400};
        int32_t before[1], after[1];
        tested->dot(1, 32, before, in, (const int16_t *const *)w);
        tested->train(1, 32, w, in, rate);
        tested->dot(1, 32, after, in, (const int16_t *const *)w);
        assert_true(after[0] > before[0] || after[0] > REEF_ODDS_MAX);
    }
}

static int run_with(const reef_mix_kernels *kernels) {
    const char *before = reef_kernels_name();
    if (reef_kernels_choose(kernels->name, NULL) != REEF_OK) return 0; // not on this CPU
    print_message("kernels: %s\n", kernels->name);
    tested = kernels;
    int failed = reef_mix_kernels_chosen() != kernels;
    failed += test_run(NULL, NULL);
    return failed + (reef_kernels_choose(before, NULL) != REEF_OK);
}

int main(void) {
    int failed = run_with(&reef_mix_scalar);
#if defined(__x86_64__)
    failed += run_with(&reef_mix_avx2) + run_with(&reef_mix_avx512);
#endif
    return failed;
}
