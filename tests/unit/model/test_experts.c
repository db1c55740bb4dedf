// The experts against a plain reference in double, their backward against finite differences, and
// the promises of the update pass: frozen rows, thread counts, lazy Adam, usage.
#include "experts.h"

#include "checked.h"
#include "gradcheck.h"

#include <float.h>
#include <math.h>

// Odd, unequal sizes, so that a swapped stride shows. P_LONG is more than the kernels handle at
// once.
enum { ROWS = 5, P = 7, D = 11, N = 13, P_LONG = 300, VECTORS_MAX = 3, ROW_MAX = VECTORS_MAX * D };

static reef_expert_kind tested_kind;

typedef struct fixture {
    reef_expert_shape shape;
    size_t rows, p_count, d_model, expert_count;
    size_t row_values, hidden_values, vectors; // of the shape
    float *x, *y, *d_y, *d_x;
    float *gate, *hidden, *d_gate, *factors;
    float *experts, *adam_m, *adam_v, *average;
    const void *block; // the experts, as rows
    uint32_t *counts;
    reef_expert_id *indices;
    uint8_t *active, *flags, *dirty;
    reef_usage *usage;
    reef_expert_pairs pairs;
} fixture;

static uint64_t random_state;

static uint32_t random_u32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static float random_float(void) { // -1 .. 1
    return (float)(random_u32() >> 8) / 8388608.0f - 1.0f;
}

static float *random_floats(size_t count) {
    float *values = room(count * sizeof(*values));
    for (size_t i = 0; i < count; i++) values[i] = random_float();
    return values;
}

static size_t least_of(size_t a, size_t b) {
    return a < b ? a : b;
}

static void *zeros(size_t count, size_t bytes) {
    return room(count * bytes);
}

static void fixture_init(fixture *f, size_t rows, size_t p_count, size_t d_model, size_t experts) {
    random_state = 20240704;
    *f = (fixture){.shape = {tested_kind, p_count, d_model},
                   .rows = rows,
                   .p_count = p_count,
                   .d_model = d_model,
                   .expert_count = experts};
    f->row_values = reef_expert_row_values(&f->shape);
    f->hidden_values = reef_expert_hidden_values(&f->shape);
    f->vectors = reef_expert_vectors(&f->shape);
    f->x = random_floats(rows * d_model);
    f->d_y = random_floats(rows * d_model);
    f->y = zeros(rows * d_model, sizeof(float));
    f->d_x = zeros(rows * d_model, sizeof(float));
    f->gate = random_floats(rows * p_count);
    for (size_t i = 0; i < rows * p_count; i++) f->gate[i] = 0.5f + 0.5f * f->gate[i];
    f->hidden = zeros(rows * f->hidden_values, sizeof(float));
    f->d_gate = zeros(rows * p_count, sizeof(float));
    f->factors = zeros(rows * p_count * f->vectors, sizeof(float));
    f->experts = random_floats(experts * f->row_values);
    f->block = f->experts;
    f->adam_m = zeros(experts * f->row_values, sizeof(float));
    f->adam_v = zeros(experts * f->row_values, sizeof(float));
    f->average = random_floats(experts * f->row_values);
    f->counts = zeros(experts, sizeof(*f->counts));
    f->indices = zeros(rows * p_count, sizeof(*f->indices));
    // Few experts and many selections: the same expert comes up again, even for one token.
    for (size_t i = 0; i < rows * p_count; i++) f->indices[i] = random_u32() % (uint32_t)experts;
    f->active = zeros(rows, 1);
    memset(f->active, 1, rows);
    f->flags = zeros(experts, 1);
    f->dirty = zeros(experts, 1);
    f->usage = zeros(experts, sizeof(*f->usage));
    must(reef_expert_pairs_init(&f->pairs, rows * p_count, experts, f->row_values, &why));
}

static void fixture_release(fixture *f) {
    reef_expert_pairs_release(&f->pairs);
}

static int setup(void **state) {
    fixture *f = zeros(1, sizeof(*f));
    fixture_init(f, ROWS, P, D, N);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture_release(*state);
    return 0;
}

static reef_expert_rows rows_of(const fixture *f) {
    return (reef_expert_rows){REEF_F32, REEF_EXPERT_ONE_BLOCK, &f->block, NULL};
}

static void forward(fixture *f) {
    reef_expert_rows experts = rows_of(f);
    reef_experts_forward(&f->shape, f->rows, f->y, f->hidden, f->x, f->indices, f->gate, &experts,
                         f->active);
}

static void backward(fixture *f) {
    reef_expert_rows experts = rows_of(f);
    reef_experts_backward(&f->shape, f->rows, f->d_x, f->d_gate, f->factors, f->d_y, f->hidden,
                          f->indices, f->gate, &experts, f->active);
}

static void update_with(fixture *f, reef_thread_pool *workers, const reef_expert_update *update) {
    reef_expert_moments moments = {f->adam_m, f->adam_v, f->average, f->counts};
    reef_expert_pairs_sort(&f->pairs, workers, f->rows, f->p_count, f->indices, f->active);
    reef_experts_update(workers, &f->shape, f->experts, &moments, &f->pairs, f->x, f->d_y, f->gate,
                        f->factors, update);
}

static const reef_adam ADAM = {
    .learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.98f, .epsilon = 1e-8f};

// ---- forward ------------------------------------------------------------------------------------

static double gelu_plain(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double dot_plain(size_t count, const float *a, const float *b) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

// What multiplies w_up, before the gate.
static double activation_plain(const reef_expert_shape *shape, const float *row, const float *x) {
    if (shape->kind == REEF_EXPERT_VALUE) return 1;
    double down = dot_plain(shape->D, row, x);
    if (shape->kind == REEF_EXPERT_RELU) return fmax(0, down);
    if (shape->kind == REEF_EXPERT_GELU) return gelu_plain(down);
    return gelu_plain(dot_plain(shape->D, row + 2 * shape->D, x)) * down;
}

static void forward_plain(const fixture *f, double *y) {
    size_t width = f->d_model, w_up = f->shape.kind == REEF_EXPERT_VALUE ? 0 : width;
    for (size_t t = 0; t < f->rows; t++) {
        for (size_t p = 0; p < f->p_count; p++) {
            const float *row = f->experts + f->indices[t * f->p_count + p] * f->row_values;
            double weight = (double)f->gate[t * f->p_count + p] *
                            activation_plain(&f->shape, row, f->x + t * width);
            for (size_t d = 0; d < width; d++) y[t * width + d] += weight * (double)row[w_up + d];
        }
    }
}

static void assert_forward_is_plain(fixture *f) {
    double *expected = zeros(f->rows * f->d_model, sizeof(*expected));
    for (size_t i = 0; i < f->rows * f->d_model; i++) {
        f->y[i] = random_float(); // y is accumulated into
        expected[i] = (double)f->y[i];
    }
    forward_plain(f, expected);
    forward(f);
    for (size_t i = 0; i < f->rows * f->d_model; i++) {
        double size = fmax(1, fabs(expected[i]));
        assert_true(fabs((double)f->y[i] - expected[i]) < 1e-4 * size);
    }
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, fixture *f)

FIXTURE_TEST(forward_equals_the_plain_sum_in_double) {
    assert_forward_is_plain(f);
}

PLAIN_TEST(more_experts_than_one_chunk_are_summed_completely) {
    fixture f;
    fixture_init(&f, 3, P_LONG, 17, 29);
    assert_forward_is_plain(&f);
    fixture_release(&f);
}

FIXTURE_TEST(forward_without_hidden_gives_the_same_bits) {
    float *y = zeros(ROWS * D, sizeof(*y));
    forward(f);
    reef_expert_rows experts = rows_of(f);
    reef_experts_forward(&f->shape, ROWS, y, NULL, f->x, f->indices, f->gate, &experts, NULL);
    assert_memory_equal(y, f->y, ROWS * D * sizeof(*y));
}

FIXTURE_TEST(a_token_does_not_depend_on_its_neighbours) {
    float y[D] = {0};
    forward(f);
    for (size_t t = 0; t < ROWS; t++) {
        memset(y, 0, sizeof(y));
        reef_expert_rows experts = rows_of(f);
        reef_experts_forward(&f->shape, 1, y, NULL, f->x + t * D, f->indices + t * P,
                             f->gate + t * P, &experts, NULL);
        assert_memory_equal(y, f->y + t * D, sizeof(y));
    }
}

// A sealed generation passes gradients on and keeps nothing for an update.
FIXTURE_TEST(backward_without_factors_gives_the_same_bits) {
    const size_t wide = ROWS * D * sizeof(float), chosen = ROWS * P * sizeof(float);
    float *d_x = zeros(ROWS * D, sizeof(*d_x)), *d_gate = zeros(ROWS * P, sizeof(*d_gate));
    reef_expert_rows experts = rows_of(f);
    f->active[1] = 0;
    forward(f);
    backward(f);
    reef_experts_backward(&f->shape, ROWS, d_x, d_gate, NULL, f->d_y, f->hidden, f->indices,
                          f->gate, &experts, f->active);
    assert_memory_equal(d_x, f->d_x, wide);
    assert_memory_equal(d_gate, f->d_gate, chosen);
}

FIXTURE_TEST(skipped_tokens_do_not_change_by_one_bit) {
    for (size_t i = 0; i < ROWS * D; i++) f->y[i] = f->d_x[i] = i % 2 ? -0.0f : random_float();
    float *y = zeros(ROWS * D, sizeof(*y)), *d_x = zeros(ROWS * D, sizeof(*d_x));
    memcpy(y, f->y, ROWS * D * sizeof(*y));
    memcpy(d_x, f->d_x, ROWS * D * sizeof(*d_x));
    f->active[0] = f->active[3] = 0;
    // The router leaves the indices of skipped tokens unspecified: nothing may be read there.
    for (size_t p = 0; p < P; p++) f->indices[p] = f->indices[3 * P + p] = UINT32_MAX;
    memset(f->d_gate, 1, ROWS * P * sizeof(float));
    memset(f->factors, 1, ROWS * P * f->vectors * sizeof(float));
    forward(f);
    backward(f);
    for (size_t t = 0; t < ROWS; t++) {
        bool same_y = memcmp(y + t * D, f->y + t * D, D * sizeof(*y)) == 0;
        bool same_d_x = memcmp(d_x + t * D, f->d_x + t * D, D * sizeof(*d_x)) == 0;
        assert_true(same_y == !f->active[t]);
        // Values do not depend on the token.
        assert_true(same_d_x == (!f->active[t] || f->shape.kind == REEF_EXPERT_VALUE));
        for (size_t p = 0; p < P && !f->active[t]; p++) {
            assert_true(f->d_gate[t * P + p] == 0);
            for (size_t i = 0; i < f->vectors; i++)
                assert_true(f->factors[(t * P + p) * f->vectors + i] == 0);
        }
    }
}

// ---- where rows lie -----------------------------------------------------------------------------

/** What a forward and a backward leave. */
typedef struct results {
    float *y, *hidden, *d_x, *d_gate, *factors;
} results;

static void compute(const fixture *f, const reef_expert_rows *experts, results *r) {
    size_t wide = f->rows * f->d_model, pairs = f->rows * f->p_count;
    *r = (results){zeros(wide, sizeof(float)), zeros(f->rows * f->hidden_values, sizeof(float)),
                   zeros(wide, sizeof(float)), zeros(pairs, sizeof(float)),
                   zeros(pairs * f->vectors, sizeof(float))};
    reef_experts_forward(&f->shape, f->rows, r->y, r->hidden, f->x, f->indices, f->gate, experts,
                         f->active);
    reef_experts_backward(&f->shape, f->rows, r->d_x, r->d_gate, r->factors, f->d_y, r->hidden,
                          f->indices, f->gate, experts, f->active);
}

static void assert_same_bits_as_in_one_block(const fixture *f, const reef_expert_rows *experts) {
    reef_expert_rows plain = rows_of(f);
    results one, other;
    compute(f, &plain, &one);
    compute(f, experts, &other);
    size_t wide = f->rows * f->d_model * sizeof(float),
           pairs = f->rows * f->p_count * sizeof(float);
    assert_memory_equal(one.y, other.y, wide);
    assert_memory_equal(one.d_x, other.d_x, wide);
    assert_memory_equal(one.hidden, other.hidden, f->rows * f->hidden_values * sizeof(float));
    assert_memory_equal(one.d_gate, other.d_gate, pairs);
    assert_memory_equal(one.factors, other.factors, pairs * f->vectors);
}

// The rows in blocks of 2^block_shift, each an allocation of its own made in shuffled order and of
// just the size of its rows, so that a read beyond it shows.
static void assert_blocks_do_not_matter(const fixture *f, reef_dtype dtype, uint32_t block_shift) {
    const size_t block_rows = (size_t)1 << block_shift;
    const size_t row_bytes = reef_row_bytes(dtype, f->row_values);
    const size_t block_count = (f->expert_count + block_rows - 1) / block_rows;
    void **blocks = zeros(block_count, sizeof(*blocks));
    for (size_t i = 0; i < block_count; i++) {
        size_t b = (i * 5 + 3) % block_count; // a permutation: no count here is a multiple of 5
        size_t first = b * block_rows, count = least_of(block_rows, f->expert_count - first);
        const float *rows = f->experts + first * f->row_values;
        blocks[b] = malloc(count * row_bytes);
        assert_non_null(blocks[b]);
        for (size_t n = 0; dtype == REEF_I8 && n < count; n++)
            reef_i8_round(f->row_values, (int8_t *)blocks[b] + n * row_bytes,
                          rows + n * f->row_values);
        if (dtype == REEF_F32) memcpy(blocks[b], rows, count * row_bytes);
    }
    for (size_t b = 0; b < block_count; b++) assert_non_null(blocks[b]);
    assert_same_bits_as_in_one_block(
        f, &(reef_expert_rows){dtype, block_shift, (const void *const *)blocks, NULL});
    for (size_t b = 0; b < block_count; b++) free(blocks[b]);
}

FIXTURE_TEST(rows_in_blocks_give_the_bits_of_one_block) {
    f->active[1] = 0;
    for (uint32_t shift = 0; shift < 5; shift++) assert_blocks_do_not_matter(f, REEF_F32, shift);
    assert_blocks_do_not_matter(f, REEF_F32, REEF_EXPERT_ONE_BLOCK - 1);
}

// Whole numbers, the largest 127 in size, so that scales are 1 and products are not rounded.
PLAIN_TEST(int8_rows_give_the_bits_of_equal_float_rows) {
    static const size_t WIDTHS[] = {1, 11, 16, 67, 256};
    for (size_t i = 0; i < sizeof(WIDTHS) / sizeof(WIDTHS[0]); i++) {
        fixture f;
        fixture_init(&f, 3, i == 0 ? P_LONG : P, WIDTHS[i], N);
        for (size_t n = 0; n < N * f.row_values; n++)
            f.experts[n] = n % f.row_values == 0 ? 127 : (float)((int)(n * 37 % 255) - 127);
        assert_blocks_do_not_matter(&f, REEF_I8, 0);
        assert_blocks_do_not_matter(&f, REEF_I8, 2);
        assert_blocks_do_not_matter(&f, REEF_I8, REEF_EXPERT_ONE_BLOCK - 1);
        fixture_release(&f);
    }
}

// ---- gradients ----------------------------------------------------------------------------------

static double forward_loss(void *context) {
    fixture *f = context;
    memset(f->y, 0, f->rows * f->d_model * sizeof(float));
    forward(f);
    double loss = 0;
    for (size_t i = 0; i < f->rows * f->d_model; i++) loss += (double)f->y[i] * (double)f->d_y[i];
    return loss;
}

// ReLU has no slope at 0, and finite differences across it mean nothing: tokens are drawn again
// until every hidden value is further away than a step of x or of a row takes it.
static void keep_off_the_kink(fixture *f) {
    for (size_t t = 0; t < f->rows; t++) {
        double nearest;
        do {
            for (size_t d = 0; d < D; d++) f->x[t * D + d] = random_float();
            nearest = INFINITY;
            for (size_t p = 0; p < P; p++) {
                const float *row = f->experts + f->indices[t * P + p] * f->row_values;
                nearest = fmin(nearest, fabs(dot_plain(D, row, f->x + t * D)));
            }
        } while (nearest < 2 * (double)GRADCHECK_STEP);
    }
}

FIXTURE_TEST(backward_agrees_with_finite_differences) {
    keep_off_the_kink(f);
    f->active[2] = 0;
    forward_loss(f);
    backward(f);
    assert_true(gradcheck_error_max(ROWS * D, f->x, f->d_x, GRADCHECK_STEP, forward_loss, f) <
                GRADCHECK_LIMIT);
    assert_true(gradcheck_error_max(ROWS * P, f->gate, f->d_gate, GRADCHECK_STEP, forward_loss, f) <
                GRADCHECK_LIMIT);
}

// The pairs of an expert from *begin on; returns their number.
static size_t pairs_of(const fixture *f, size_t expert, size_t *begin) {
    *begin = 0;
    while (*begin < f->pairs.pair_count && reef_pair_expert(f->pairs.sorted[*begin]) != expert)
        (*begin)++;
    return *begin < f->pairs.pair_count ? reef_expert_pairs_end(&f->pairs, *begin) - *begin : 0;
}

// Returns the number of the expert's pairs.
static size_t row_gradient(const fixture *f, size_t expert, float *row_grad) {
    size_t begin, count = pairs_of(f, expert, &begin);
    reef_expert_row_gradient(&f->shape, count, row_grad, f->pairs.sorted + begin, f->x, f->d_y,
                             f->factors);
    return count;
}

FIXTURE_TEST(row_gradients_agree_with_finite_differences) {
    float row_grad[ROW_MAX];
    keep_off_the_kink(f);
    f->active[2] = 0;
    forward_loss(f);
    backward(f);
    reef_expert_pairs_sort(&f->pairs, NULL, ROWS, P, f->indices, f->active);
    for (size_t e = 0; e < N; e++) {
        row_gradient(f, e, row_grad);
        assert_true(gradcheck_error_max(f->row_values, f->experts + e * f->row_values, row_grad,
                                        GRADCHECK_STEP, forward_loss, f) < GRADCHECK_LIMIT);
    }
}

// One Adam step from zero moments leaves adam_m = (1 - beta1) * gradient.
FIXTURE_TEST(the_update_steps_along_the_row_gradient) {
    float row_grad[ROW_MAX];
    forward(f);
    backward(f);
    update_with(f, NULL, &(reef_expert_update){.adam = ADAM});
    for (size_t e = 0; e < N; e++) {
        size_t count = row_gradient(f, e, row_grad);
        for (size_t d = 0; d < f->row_values; d++) {
            float expected = (1.0f - ADAM.beta1) * row_grad[d];
            assert_true(fabsf(f->adam_m[e * f->row_values + d] - expected) <=
                        1e-6f * fabsf(expected));
        }
        assert_int_equal(f->counts[e], count > 0);
    }
}

// ---- pairs --------------------------------------------------------------------------------------

static void assert_sorted(size_t rows, size_t p_count, size_t expert_count, size_t threads) {
    size_t count = rows * p_count, listed = 0;
    reef_expert_id *indices = zeros(count + 1, sizeof(*indices));
    uint8_t *active = zeros(rows + 1, 1), *seen = zeros(count + 1, 1);
    reef_thread_pool *workers = NULL;
    reef_expert_pairs pairs;
    assert_int_equal(reef_thread_pool_new(&workers, threads, NULL), REEF_OK);
    assert_int_equal(reef_expert_pairs_init(&pairs, count, expert_count, D, NULL), REEF_OK);
    for (size_t t = 0; t < rows; t++) {
        active[t] = random_u32() % 4 != 0;
        // Half of the selections in a few busy experts, the last among them. Those of skipped
        // tokens are unspecified: nothing may be read there.
        for (size_t i = t * p_count; i < (t + 1) * p_count; i++) {
            uint32_t drawn =
                random_u32() % (uint32_t)(i % 2 ? least_of(3, expert_count) : expert_count);
            indices[i] = active[t] ? (uint32_t)expert_count - 1 - drawn : UINT32_MAX;
        }
    }
    reef_expert_pairs_sort(&pairs, workers, rows, p_count, indices, active);
    for (size_t i = 0; i < pairs.pair_count; i++) {
        size_t index = reef_pair_index(pairs.sorted[i]);
        assert_int_equal(reef_pair_expert(pairs.sorted[i]), indices[index]);
        if (i > 0) assert_true(pairs.sorted[i - 1] < pairs.sorted[i]); // by expert, then by token
        seen[index] = 1;
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(seen[i], active[i / p_count]);
        listed += seen[i];
    }
    assert_int_equal(listed, pairs.pair_count);
    for (size_t at = 0, end; at < pairs.pair_count; at = end) {
        end = reef_expert_pairs_end(&pairs, at);
        assert_true(reef_pair_expert(pairs.sorted[at]) == reef_pair_expert(pairs.sorted[end - 1]));
        assert_true(end == pairs.pair_count ||
                    reef_pair_expert(pairs.sorted[at]) < reef_pair_expert(pairs.sorted[end]));
    }
    reef_expert_pairs_release(&pairs);
    reef_thread_pool_free(workers);
}

// Ids of one to three digits of the sort; pairs of one piece, of some, and of as many as there are.
FIXTURE_TEST(pairs_are_sorted_by_expert_and_then_by_token) {
    static const size_t EXPERTS[] = {1, 2, 13, 4095, 4096, 4097, 1 << 20, (1 << 24) + 1, 1 << 28};
    static const size_t TOKENS[] = {0, 1, 5, 33, 200, 1000, 20000};
    for (size_t i = 0; i < sizeof(EXPERTS) / sizeof(EXPERTS[0]); i++)
        for (size_t n = 0; n < sizeof(TOKENS) / sizeof(TOKENS[0]); n++)
            assert_sorted(TOKENS[n], P, EXPERTS[i], 1 + n % 3);
}

FIXTURE_TEST(a_step_without_active_tokens_changes_nothing) {
    forward(f);
    backward(f);
    memset(f->active, 0, ROWS);
    float *experts = zeros(N * f->row_values, sizeof(*experts));
    memcpy(experts, f->experts, N * f->row_values * sizeof(*experts));
    update_with(f, NULL, &(reef_expert_update){.adam = ADAM, .dirty = f->dirty, .usage = f->usage});
    assert_memory_equal(experts, f->experts, N * f->row_values * sizeof(*experts));
    for (size_t e = 0; e < N; e++) assert_int_equal(f->dirty[e] + f->counts[e], 0);
}

FIXTURE_TEST(too_many_selections_for_32_bits_are_refused) {
    reef_expert_pairs pairs;
    assert_int_equal(reef_expert_pairs_init(&pairs, (size_t)UINT32_MAX + 1, 1, 1, &why),
                     REEF_ERR_INVALID);
    reef_expert_pairs_release(&pairs);
}

// ---- update -------------------------------------------------------------------------------------

FIXTURE_TEST(frozen_rows_do_not_change_by_one_bit) {
    float before[4][N * ROW_MAX];
    const size_t all_bytes = N * f->row_values * sizeof(float);
    forward(f);
    backward(f);
    for (size_t i = 0; i < N * f->row_values; i++) {
        f->adam_m[i] = random_float();
        f->adam_v[i] = fabsf(random_float());
    }
    for (size_t e = 0; e < N; e++) f->flags[e] = e % 2;
    memcpy(before[0], f->experts, all_bytes);
    memcpy(before[1], f->adam_m, all_bytes);
    memcpy(before[2], f->adam_v, all_bytes);
    memcpy(before[3], f->average, all_bytes);
    update_with(f, NULL,
                &(reef_expert_update){
                    .adam = ADAM, .flags = f->flags, .dirty = f->dirty, .usage = f->usage});
    for (size_t e = 0; e < N; e++) {
        size_t at = e * f->row_values, bytes = f->row_values * sizeof(float), begin;
        bool selected = pairs_of(f, e, &begin) > 0;
        bool moved = selected && !f->flags[e];
        assert_true((memcmp(before[0] + at, f->experts + at, bytes) != 0) == moved);
        assert_true((memcmp(before[1] + at, f->adam_m + at, bytes) != 0) == moved);
        assert_true((memcmp(before[2] + at, f->adam_v + at, bytes) != 0) == moved);
        assert_true((memcmp(before[3] + at, f->average + at, bytes) != 0) == moved);
        assert_int_equal(f->counts[e], moved);
        assert_int_equal(f->dirty[e], moved);
        assert_true((f->usage[e].count > 0) == selected); // frozen experts are still used
    }
}

FIXTURE_TEST(usage_totals_are_exact) {
    const size_t steps = 3;
    f->active[4] = 0;
    for (size_t i = 0; i < steps; i++) {
        forward(f);
        backward(f);
        update_with(f, NULL, &(reef_expert_update){.adam = ADAM, .usage = f->usage});
    }
    reef_usage expected[N] = {{0}};
    for (size_t i = 0; i < (ROWS - 1) * P; i++) {
        reef_usage *usage = &expected[f->indices[i]];
        usage->count += steps;
        usage->score += steps * (uint64_t)llround((double)f->gate[i] * REEF_USAGE_SCORE_ONE);
    }
    for (size_t e = 0; e < N; e++) {
        assert_true(f->usage[e].count == expected[e].count);
        assert_true(f->usage[e].score == expected[e].score);
    }
}

// A ReLU score has no bound: what one selection adds has, up to an infinite score.
FIXTURE_TEST(usage_of_huge_scores_is_cut_and_exact_in_any_order) {
    static const float GATES[] = {INFINITY, 4097, 4096, FLT_MAX, 0.25f, 0};
    static const uint64_t UNITS[] = {4096, 4096, 4096, 4096, 0, 0}; // whole ones
    enum { COUNT = sizeof(GATES) / sizeof(GATES[0]) };
    uint64_t expected[N] = {0};
    reef_usage forwards[N];
    forward(f);
    backward(f);
    for (size_t i = 0; i < ROWS * P; i++) {
        f->gate[i] = GATES[i % COUNT];
        expected[f->indices[i]] += UNITS[i % COUNT] << 20;
        if (GATES[i % COUNT] == 0.25f) expected[f->indices[i]] += 1 << 18;
    }
    update_with(f, NULL, &(reef_expert_update){.adam = ADAM, .usage = f->usage});
    for (size_t e = 0; e < N; e++) assert_true(f->usage[e].score == expected[e]);

    memcpy(forwards, f->usage, sizeof(forwards));
    memset(f->usage, 0, sizeof(forwards));
    for (size_t i = 0; i < ROWS * P / 2; i++) { // the same selections from the end
        size_t other = ROWS * P - 1 - i;
        float gate = f->gate[i];
        reef_expert_id id = f->indices[i];
        f->gate[i] = f->gate[other];
        f->gate[other] = gate;
        f->indices[i] = f->indices[other];
        f->indices[other] = id;
    }
    update_with(f, NULL, &(reef_expert_update){.adam = ADAM, .usage = f->usage});
    assert_memory_equal(forwards, f->usage, sizeof(forwards));
}

FIXTURE_TEST(clipping_bounds_the_norm_of_each_row) {
    const float clip = 1.5f;
    float row_grad[ROW_MAX];
    size_t clipped = 0, whole = 0;
    forward(f);
    backward(f);
    update_with(f, NULL, &(reef_expert_update){.adam = ADAM, .clip = clip});
    for (size_t e = 0; e < N; e++) {
        row_gradient(f, e, row_grad);
        double norm = 0, stepped = 0;
        for (size_t d = 0; d < f->row_values; d++) {
            double m = (double)f->adam_m[e * f->row_values + d] / (1 - (double)ADAM.beta1);
            norm += (double)row_grad[d] * (double)row_grad[d];
            stepped += m * m;
        }
        norm = sqrt(norm);
        *(norm > (double)clip ? &clipped : &whole) += 1;
        assert_true(fabs(sqrt(stepped) - fmin(norm, (double)clip)) < 1e-5);
    }
    assert_true(clipped > 0 && whole > 0); // otherwise the bound above proves nothing
}

// Dense Adam over all rows equals the lazy one as long as every row is selected in every step, and
// a row that sat out some steps equals a dense row that never saw them.
FIXTURE_TEST(lazy_adam_equals_dense_adam_with_the_row_s_own_count) {
    const size_t row = f->row_values, bytes = N * row * sizeof(float);
    float param[N * ROW_MAX], adam_m[N * ROW_MAX] = {0}, adam_v[N * ROW_MAX] = {0};
    float row_grad[ROW_MAX];
    uint64_t counts[N] = {0};
    memcpy(param, f->experts, bytes);
    for (size_t step = 0; step < 6; step++) {
        for (size_t i = 0; i < ROWS * P; i++) f->indices[i] = random_u32() % N;
        forward(f);
        backward(f);
        update_with(f, NULL, &(reef_expert_update){.adam = ADAM});
        for (size_t e = 0; e < N; e++) {
            if (row_gradient(f, e, row_grad) == 0) continue;
            counts[e]++;
            reef_adam_update(row, param + e * row, adam_m + e * row, adam_v + e * row, row_grad,
                             1.0f, counts[e], &ADAM);
        }
        assert_memory_equal(param, f->experts, bytes);
        assert_memory_equal(adam_m, f->adam_m, bytes);
        assert_memory_equal(adam_v, f->adam_v, bytes);
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t e = 0; e < N; e++) {
        assert_int_equal(counts[e], f->counts[e]);
        least = counts[e] < least ? counts[e] : least;
        most = counts[e] > most ? counts[e] : most;
    }
    assert_true(least < most); // some rows did not take part
}

// Corrections are kept for the first updates of a row, and for the betas that were last given.
FIXTURE_TEST(a_row_is_corrected_by_its_count_and_by_the_betas_of_the_step) {
    const size_t row = f->row_values, bytes = N * row * sizeof(float);
    static const uint32_t FIRST[] = {0, REEF_EXPERT_BIASES - 3, REEF_EXPERT_BIASES - 2,
                                     REEF_EXPERT_BIASES - 1, UINT32_MAX};
    float param[N * ROW_MAX], adam_m[N * ROW_MAX] = {0}, adam_v[N * ROW_MAX] = {0};
    float row_grad[ROW_MAX];
    memcpy(param, f->experts, bytes);
    for (size_t e = 0; e < N; e++) f->counts[e] = FIRST[e % (sizeof(FIRST) / sizeof(FIRST[0]))];
    for (size_t step = 0; step < 6; step++) {
        // Long memories, whose corrections are far from 1 at any count.
        reef_adam adam = {.learning_rate = 0.01f,
                          .beta1 = step < 3 ? 0.9f : 0.9999f,
                          .beta2 = step < 4 ? 0.99995f : 0.98f,
                          .epsilon = 1e-8f};
        uint32_t before[N];
        memcpy(before, f->counts, sizeof(before));
        for (size_t i = 0; i < ROWS * P; i++) f->indices[i] = random_u32() % N;
        forward(f);
        backward(f);
        update_with(f, NULL, &(reef_expert_update){.adam = adam});
        for (size_t e = 0; e < N; e++) {
            if (row_gradient(f, e, row_grad) == 0) continue;
            uint32_t count = before[e] < UINT32_MAX ? before[e] + 1 : UINT32_MAX;
            assert_int_equal(f->counts[e], count);
            reef_adam_update(row, param + e * row, adam_m + e * row, adam_v + e * row, row_grad,
                             1.0f, count, &adam);
        }
        assert_memory_equal(param, f->experts, bytes);
    }
}

FIXTURE_TEST(averages_are_of_the_rows_that_each_update_left) {
    const size_t row = f->row_values;
    float average[N * ROW_MAX];
    uint32_t counts[N] = {0}, most = 0;
    memcpy(average, f->average, N * row * sizeof(float));
    for (size_t step = 0; step < 40; step++) {
        for (size_t i = 0; i < ROWS * P; i++) f->indices[i] = random_u32() % N;
        forward(f);
        backward(f);
        update_with(f, NULL, &(reef_expert_update){.adam = ADAM, .average_rate = 0.3f});
        for (size_t e = 0; e < N; e++) {
            if (f->counts[e] == counts[e]) continue; // not met
            counts[e]++;
            most = counts[e] > most ? counts[e] : most;
            reef_average_update(row, average + e * row, f->experts + e * row, counts[e], 0.3f);
        }
        assert_memory_equal(average, f->average, N * row * sizeof(float));
    }
    assert_true(most > 30); // beyond where the rate given is the larger one
    assert_memory_not_equal(average, f->experts, N * row * sizeof(float));
}

// The averages are a by-product: rows and moments are the same without.
FIXTURE_TEST(without_averages_the_rows_are_the_same) {
    fixture other;
    fixture_init(&other, ROWS, P, D, N);
    other.average = NULL;
    for (size_t step = 0; step < 5; step++) {
        fixture *both[] = {f, &other};
        for (size_t i = 0; i < 2; i++) {
            forward(both[i]);
            backward(both[i]);
            update_with(both[i], NULL, &(reef_expert_update){.adam = ADAM, .average_rate = 0.3f});
        }
    }
    const size_t bytes = N * f->row_values * sizeof(float);
    assert_memory_equal(f->experts, other.experts, bytes);
    assert_memory_equal(f->adam_m, other.adam_m, bytes);
    assert_memory_equal(f->adam_v, other.adam_v, bytes);
    fixture_release(&other);
}

static void train_some_steps(fixture *f, size_t threads) {
    reef_thread_pool *workers = NULL;
    assert_int_equal(reef_thread_pool_new(&workers, threads, NULL), REEF_OK);
    fixture_init(f, 24, 20, 33, 200);
    for (size_t step = 0; step < 3; step++) {
        // Two thirds of the selections meet a few busy experts.
        for (size_t i = 0; i < f->rows * f->p_count; i++)
            f->indices[i] = random_u32() % (i % 3 == 0 ? 200 : 5);
        forward(f);
        backward(f);
        update_with(f, workers,
                    &(reef_expert_update){.adam = ADAM,
                                          .average_rate = 0.3f,
                                          .clip = 1,
                                          .dirty = f->dirty,
                                          .usage = f->usage});
    }
    reef_thread_pool_free(workers);
}

FIXTURE_TEST(any_number_of_threads_gives_the_same_bits) {
    static const size_t THREADS[] = {2, 3, 8};
    fixture one, many;
    train_some_steps(&one, 1);
    size_t bytes = one.expert_count * one.row_values * sizeof(float);
    for (size_t i = 0; i < sizeof(THREADS) / sizeof(THREADS[0]); i++) {
        train_some_steps(&many, THREADS[i]);
        assert_memory_equal(one.experts, many.experts, bytes);
        assert_memory_equal(one.adam_m, many.adam_m, bytes);
        assert_memory_equal(one.adam_v, many.adam_v, bytes);
        assert_memory_equal(one.average, many.average, bytes);
        assert_memory_equal(one.counts, many.counts, one.expert_count * sizeof(*one.counts));
        assert_memory_equal(one.dirty, many.dirty, one.expert_count);
        assert_memory_equal(one.usage, many.usage, one.expert_count * sizeof(*one.usage));
        fixture_release(&many);
    }
    fixture_release(&one);
}

static int run_with(reef_expert_kind kind, const char *name) {
    tested_kind = kind;
    print_message("kind: %s\n", name);
    return test_run(NULL, NULL);
}

int main(void) {
    return run_with(REEF_EXPERT_GELU, "gelu") + run_with(REEF_EXPERT_RELU, "relu") +
           run_with(REEF_EXPERT_GLU, "glu") + run_with(REEF_EXPERT_VALUE, "value");
}
