// The dense kernels of the transformer against plain loops in double, and every backward against
// finite differences of its forward.
#include "transformer.h"

#include "gradcheck.h"
#include "test.h"

#include <math.h>

// Odd, unequal sizes, so that a swapped stride shows. WIDE is past a whole number of vectors.
enum { ROWS = 5, D = 7, WIDE = 37, T = 6, A = 3, HEAD = 5, AD = A * HEAD, V = 11, V_LONG = 600 };

static uint64_t random_state;

static float random_float(void) { // -1 .. 1
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(random_state >> 40) / 8388608.0f - 1.0f;
}

static void random_fill(size_t count, float *values) {
    for (size_t i = 0; i < count; i++) values[i] = random_float();
}

static int setup(void **state) {
    random_state = 17;
    return 0;
}

static double dot_double(size_t count, const float *a, const float *b) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void assert_near(double value, double expected, double limit) {
    assert_true(fabs(value - expected) <= limit * fmax(1, fabs(expected)));
}

// ---- layer norm ---------------------------------------------------------------------------------

typedef struct norm_fixture {
    size_t width;
    float x[ROWS * WIDE], y[ROWS * WIDE], d_y[ROWS * WIDE], d_x[ROWS * WIDE];
    float scale[WIDE], shift[WIDE], d_scale[WIDE], d_shift[WIDE];
    float mean[ROWS], rstd[ROWS];
} norm_fixture;

static void norm_init(norm_fixture *f, size_t width) {
    *f = (norm_fixture){.width = width};
    random_fill(ROWS * width, f->x);
    random_fill(ROWS * width, f->d_y);
    random_fill(width, f->scale);
    random_fill(width, f->shift);
}

static void norm_forward(norm_fixture *f) {
    reef_layer_norm_forward(ROWS, f->width, f->y, f->mean, f->rstd, f->x, f->scale, f->shift);
}

static double norm_loss(void *context) {
    norm_fixture *f = context;
    norm_forward(f);
    return dot_double(ROWS * f->width, f->y, f->d_y);
}

#define DRAWN_TEST(name) TEST_WITH(name, setup, NULL, void *none)

DRAWN_TEST(layer_norm_equals_plain_loops) {
    static const size_t WIDTHS[] = {D, 16, WIDE};
    for (size_t i = 0; i < sizeof(WIDTHS) / sizeof(WIDTHS[0]); i++) {
        norm_fixture f;
        size_t width = WIDTHS[i];
        norm_init(&f, width);
        norm_forward(&f);
        for (size_t t = 0; t < ROWS; t++) {
            double mean = 0, var = 0;
            for (size_t d = 0; d < width; d++) mean += (double)f.x[t * width + d];
            mean /= (double)width;
            for (size_t d = 0; d < width; d++)
                var += ((double)f.x[t * width + d] - mean) * ((double)f.x[t * width + d] - mean);
            double rstd = 1 / sqrt(var / (double)width + (double)REEF_LAYER_NORM_EPSILON);
            for (size_t d = 0; d < width; d++) {
                double n = ((double)f.x[t * width + d] - mean) * rstd;
                assert_near((double)f.y[t * width + d], n * (double)f.scale[d] + (double)f.shift[d],
                            1e-5);
            }
        }
    }
}

DRAWN_TEST(layer_norm_backward_agrees_with_finite_differences) {
    static const size_t WIDTHS[] = {D, WIDE};
    for (size_t i = 0; i < sizeof(WIDTHS) / sizeof(WIDTHS[0]); i++) {
        norm_fixture f;
        size_t width = WIDTHS[i];
        norm_init(&f, width);
        norm_loss(&f);
        reef_layer_norm_backward(ROWS, width, f.d_x, f.d_scale, f.d_shift, f.d_y, f.x, f.mean,
                                 f.rstd, f.scale);
        assert_true(gradcheck_error_max(ROWS * width, f.x, f.d_x, GRADCHECK_STEP, norm_loss, &f) <
                    GRADCHECK_LIMIT);
        assert_true(gradcheck_error_max(width, f.scale, f.d_scale, GRADCHECK_STEP, norm_loss, &f) <
                    GRADCHECK_LIMIT);
        assert_true(gradcheck_error_max(width, f.shift, f.d_shift, GRADCHECK_STEP, norm_loss, &f) <
                    GRADCHECK_LIMIT);
    }
}

DRAWN_TEST(layer_norm_backward_accumulates_and_leaves_sealed_parameters_alone) {
    norm_fixture f;
    float once[ROWS * D];
    norm_init(&f, D);
    norm_forward(&f);
    reef_layer_norm_backward(ROWS, D, f.d_x, NULL, NULL, f.d_y, f.x, f.mean, f.rstd, f.scale);
    memcpy(once, f.d_x, sizeof(once));
    reef_layer_norm_backward(ROWS, D, f.d_x, NULL, NULL, f.d_y, f.x, f.mean, f.rstd, f.scale);
    for (size_t i = 0; i < ROWS * D; i++) assert_near((double)f.d_x[i], 2 * (double)once[i], 1e-6);
}

// ---- gradients of weights -----------------------------------------------------------------------

// Each of the three tile sizes, with whole and with broken tiles at both edges.
DRAWN_TEST(weight_gradients_equal_plain_loops) {
    static const struct {
        size_t in, out;
    } SHAPES[] = {{1, 1}, {7, 300}, {65, 129}, {130, 513}, {300, 257}, {512, 520}, {600, 40}};
    enum { COUNT = sizeof(SHAPES) / sizeof(SHAPES[0]), BATCH = 9 };
    reef_weight_product products[COUNT];
    float *memory[COUNT][3];
    for (size_t n = 0; n < COUNT; n++) {
        size_t in = SHAPES[n].in, out = SHAPES[n].out;
        const size_t sizes[3] = {in * out, BATCH * in, BATCH * out};
        for (size_t i = 0; i < 3; i++) {
            memory[n][i] = test_malloc(sizes[i] * sizeof(float));
            random_fill(sizes[i], memory[n][i]);
        }
        for (size_t i = 0; i < in * out; i++) memory[n][0][i] = 0.5f; // added to
        products[n] = (reef_weight_product){in, out, memory[n][0], memory[n][1], memory[n][2]};
    }
    reef_weight_gradients(NULL, BATCH, COUNT, products);
    for (size_t n = 0; n < COUNT; n++) {
        const reef_weight_product *p = &products[n];
        for (size_t i = 0; i < p->in; i++)
            for (size_t j = 0; j < p->out; j++) {
                double sum = 0.5;
                for (size_t t = 0; t < BATCH; t++)
                    sum += (double)p->x[t * p->in + i] * (double)p->d_y[t * p->out + j];
                assert_near((double)p->d_w[i * p->out + j], sum, 1e-5);
            }
        for (size_t i = 0; i < 3; i++) test_free(memory[n][i]);
    }
}

// ---- attention ----------------------------------------------------------------------------------

typedef struct attention_fixture {
    float qkv[T * 3 * AD], d_qkv[T * 3 * AD], probs[A * T * T], d_probs[T * T];
    float out[T * AD], d_out[T * AD];
} attention_fixture;

static void attention_init(attention_fixture *f) {
    random_fill(T * 3 * AD, f->qkv);
    random_fill(T * AD, f->d_out);
}

static double attention_loss(void *context) {
    attention_fixture *f = context;
    reef_attention_forward(T, AD, A, f->out, f->probs, f->qkv);
    return dot_double(T * AD, f->out, f->d_out);
}

static void attention_plain(const float *qkv, double *probs, double *out) {
    for (size_t a = 0; a < A; a++) {
        for (size_t t = 0; t < T; t++) {
            const float *q = qkv + t * 3 * AD + a * HEAD;
            double *p = probs + (a * T + t) * T, sum = 0;
            for (size_t s = 0; s <= t; s++) {
                p[s] = exp(dot_double(HEAD, q, qkv + s * 3 * AD + AD + a * HEAD) / sqrt(HEAD));
                sum += p[s];
            }
            for (size_t s = 0; s <= t; s++) {
                const float *v = qkv + s * 3 * AD + 2 * AD + a * HEAD;
                p[s] /= sum;
                for (size_t d = 0; d < HEAD; d++) out[t * AD + a * HEAD + d] += p[s] * (double)v[d];
            }
        }
    }
}

DRAWN_TEST(attention_equals_plain_loops) {
    attention_fixture f;
    double probs[A * T * T] = {0}, out[T * AD] = {0};
    attention_init(&f);
    memset(f.probs, 0xff, sizeof(f.probs)); // NaN: every entry has to be written
    memset(f.out, 0xff, sizeof(f.out));
    reef_attention_forward(T, AD, A, f.out, f.probs, f.qkv);
    attention_plain(f.qkv, probs, out);
    for (size_t i = 0; i < A * T * T; i++) assert_near((double)f.probs[i], probs[i], 1e-5);
    for (size_t i = 0; i < T * AD; i++) assert_near((double)f.out[i], out[i], 1e-5);
}

DRAWN_TEST(probabilities_above_the_diagonal_are_zero) {
    attention_fixture f;
    attention_init(&f);
    attention_loss(&f);
    for (size_t a = 0; a < A; a++)
        for (size_t t = 0; t < T; t++)
            for (size_t s = t + 1; s < T; s++) assert_true(f.probs[(a * T + t) * T + s] == 0);
}

DRAWN_TEST(later_tokens_do_not_change_earlier_ones_by_one_bit) {
    attention_fixture f;
    float before[T * AD];
    const size_t changed = 4;
    attention_init(&f);
    attention_loss(&f);
    memcpy(before, f.out, sizeof(before));
    random_fill((T - changed) * 3 * AD, f.qkv + changed * 3 * AD);
    attention_loss(&f);
    assert_memory_equal(before, f.out, changed * AD * sizeof(float));
    assert_memory_not_equal(before + changed * AD, f.out + changed * AD,
                            (T - changed) * AD * sizeof(float));
}

DRAWN_TEST(attention_backward_agrees_with_finite_differences) {
    attention_fixture f;
    attention_init(&f);
    attention_loss(&f);
    memset(f.d_qkv, 0xff, sizeof(f.d_qkv)); // written, not accumulated into
    memset(f.d_probs, 0xff, sizeof(f.d_probs));
    reef_attention_backward(T, AD, A, f.d_qkv, f.d_probs, f.d_out, f.qkv, f.probs);
    assert_true(gradcheck_error_max(T * 3 * AD, f.qkv, f.d_qkv, GRADCHECK_STEP, attention_loss,
                                    &f) < GRADCHECK_LIMIT);
}

// Attention of any size on the heap, and its gradient in double loops.
typedef struct attention_case {
    size_t tokens, heads, width, D;
    float *qkv, *d_qkv, *probs, *d_probs, *out, *d_out;
    double *plain_probs, *plain_out, *plain_d_qkv;
} attention_case;

static const size_t TOKENS[] = {1, 7, 33, 63, 64, 65, 128, 200};
static const size_t HEADS[] = {1, 3, 8};
enum { TOKEN_SIZES = sizeof(TOKENS) / sizeof(TOKENS[0]) };
enum { HEAD_SIZES = sizeof(HEADS) / sizeof(HEADS[0]) };

// Everything that is written starts as NaN, so that a forgotten entry shows.
static float *nans(size_t count) {
    float *values = test_malloc(count * sizeof(*values));
    memset(values, 0xff, count * sizeof(*values));
    return values;
}

static double *zeros(size_t count) {
    return test_calloc(count, sizeof(double));
}

static void case_init(attention_case *c, size_t tokens, size_t heads) {
    size_t width = 5 + tokens % 4, width_all = heads * width;
    *c = (attention_case){.tokens = tokens, .heads = heads, .width = width, .D = width_all};
    c->qkv = nans(tokens * 3 * width_all);
    c->d_qkv = nans(tokens * 3 * width_all);
    c->probs = nans(heads * tokens * tokens);
    c->d_probs = nans(REEF_ATTENTION_ROWS * tokens);
    c->out = nans(tokens * width_all);
    c->d_out = nans(tokens * width_all);
    c->plain_probs = zeros(heads * tokens * tokens);
    c->plain_out = zeros(tokens * width_all);
    c->plain_d_qkv = zeros(tokens * 3 * width_all);
    random_fill(tokens * 3 * width_all, c->qkv);
    random_fill(tokens * width_all, c->d_out);
}

static void case_release(attention_case *c) {
    float *const all[] = {c->qkv, c->d_qkv, c->probs, c->d_probs, c->out, c->d_out};
    double *const plain[] = {c->plain_probs, c->plain_out, c->plain_d_qkv};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) test_free(all[i]);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) test_free(plain[i]);
}

// One query's share of every gradient; probabilities as case_plain_row left them.
static void case_plain_row_backward(attention_case *c, size_t a, size_t t) {
    size_t stride = 3 * c->D, at = a * c->width;
    const double *p = c->plain_probs + (a * c->tokens + t) * c->tokens;
    const float *d_out = c->d_out + t * c->D + at, *q = c->qkv + t * stride + at;
    double *d_q = c->plain_d_qkv + t * stride + at, mean = 0, root = sqrt((double)c->width);
    for (size_t s = 0; s <= t; s++)
        mean += p[s] * dot_double(c->width, d_out, c->qkv + s * stride + 2 * c->D + at);
    for (size_t s = 0; s <= t; s++) {
        const float *k = c->qkv + s * stride + c->D + at, *v = k + c->D;
        double *d_k = c->plain_d_qkv + s * stride + c->D + at, *d_v = d_k + c->D;
        double d_score = p[s] * (dot_double(c->width, d_out, v) - mean) / root;
        for (size_t d = 0; d < c->width; d++) {
            d_q[d] += d_score * (double)k[d];
            d_k[d] += d_score * (double)q[d];
            d_v[d] += p[s] * (double)d_out[d];
        }
    }
}

static void case_plain_row(attention_case *c, size_t a, size_t t) {
    size_t stride = 3 * c->D, at = a * c->width;
    double *p = c->plain_probs + (a * c->tokens + t) * c->tokens, sum = 0;
    double *out = c->plain_out + t * c->D + at, root = sqrt((double)c->width);
    for (size_t s = 0; s <= t; s++) {
        const float *k = c->qkv + s * stride + c->D + at;
        p[s] = exp(dot_double(c->width, c->qkv + t * stride + at, k) / root);
        sum += p[s];
    }
    for (size_t s = 0; s <= t; s++) {
        const float *v = c->qkv + s * stride + 2 * c->D + at;
        p[s] /= sum;
        for (size_t d = 0; d < c->width; d++) out[d] += p[s] * (double)v[d];
    }
}

static void assert_attention_case(size_t tokens, size_t heads) {
    attention_case c;
    case_init(&c, tokens, heads);
    for (size_t a = 0; a < heads; a++)
        for (size_t t = 0; t < tokens; t++) {
            case_plain_row(&c, a, t);
            case_plain_row_backward(&c, a, t);
        }
    reef_attention_forward(tokens, c.D, heads, c.out, c.probs, c.qkv);
    reef_attention_backward(tokens, c.D, heads, c.d_qkv, c.d_probs, c.d_out, c.qkv, c.probs);
    for (size_t row = 0; row < heads * tokens; row++)
        for (size_t s = 0; s <= row % tokens; s++)
            assert_near((double)c.probs[row * tokens + s], c.plain_probs[row * tokens + s], 1e-5);
    for (size_t i = 0; i < tokens * c.D; i++) assert_near((double)c.out[i], c.plain_out[i], 1e-5);
    for (size_t i = 0; i < tokens * 3 * c.D; i++)
        assert_near((double)c.d_qkv[i], c.plain_d_qkv[i], 1e-5);
    case_release(&c);
}

DRAWN_TEST(attention_of_any_size_equals_plain_loops_both_ways) {
    for (size_t i = 0; i < TOKEN_SIZES; i++)
        for (size_t j = 0; j < HEAD_SIZES; j++) assert_attention_case(TOKENS[i], HEADS[j]);
}

// Over the edge of a block of queries, in its middle, and in the last block.
DRAWN_TEST(later_tokens_change_no_earlier_bit_in_long_windows) {
    static const size_t CHANGED[] = {1, 63, 64, 65, 100, 199};
    for (size_t i = 0; i < sizeof(CHANGED) / sizeof(CHANGED[0]); i++) {
        attention_case c;
        case_init(&c, 200, 3);
        size_t kept = CHANGED[i] * c.D;
        float *before = nans(200 * c.D);
        reef_attention_forward(200, c.D, 3, c.out, c.probs, c.qkv);
        memcpy(before, c.out, 200 * c.D * sizeof(float));
        random_fill((200 - CHANGED[i]) * 3 * c.D, c.qkv + CHANGED[i] * 3 * c.D);
        reef_attention_forward(200, c.D, 3, c.out, c.probs, c.qkv);
        assert_memory_equal(before, c.out, kept * sizeof(float));
        assert_memory_not_equal(before + kept, c.out + kept, (200 * c.D - kept) * sizeof(float));
        test_free(before);
        case_release(&c);
    }
}

// ---- cross-entropy ------------------------------------------------------------------------------

typedef struct entropy_fixture {
    size_t classes;
    float logits[ROWS * V_LONG], d_logits[ROWS * V_LONG], weight[ROWS];
    uint8_t targets[ROWS];
    size_t ids[ROWS]; // the same
    double loss[ROWS];
} entropy_fixture;

static void entropy_init(entropy_fixture *f, size_t classes, float spread) {
    f->classes = classes;
    random_fill(ROWS * classes, f->logits);
    for (size_t i = 0; i < ROWS * classes; i++) f->logits[i] *= spread;
    for (size_t t = 0; t < ROWS; t++) {
        size_t id = f->ids[t] = t == 2 ? classes - 1 : t * 5 % classes;
        f->targets[t] = (uint8_t)id;
        f->weight[t] = 0.25f * (float)t; // the first row counts nothing
    }
}

static double entropy_loss(void *context) {
    entropy_fixture *f = context;
    double sum = 0;
    reef_cross_entropy(ROWS, f->classes, f->loss, f->logits, f->targets, NULL, false);
    for (size_t t = 0; t < ROWS; t++) sum += (double)f->weight[t] * f->loss[t];
    return sum;
}

static void entropy_gradient(entropy_fixture *f, const float *weight) {
    memcpy(f->d_logits, f->logits, sizeof(f->d_logits));
    reef_cross_entropy(ROWS, f->classes, f->loss, f->d_logits, f->targets, weight, true);
}

DRAWN_TEST(cross_entropy_equals_plain_loops) {
    static const size_t CLASSES[] = {V, 256};
    for (size_t i = 0; i < sizeof(CLASSES) / sizeof(CLASSES[0]); i++) {
        entropy_fixture f;
        size_t classes = CLASSES[i];
        entropy_init(&f, classes, 30); // far apart: the maximum has to be taken out
        entropy_gradient(&f, NULL);
        for (size_t t = 0; t < ROWS; t++) {
            const float *row = f.logits + t * classes;
            double sum = 0, target = (double)row[f.ids[t]];
            for (size_t v = 0; v < classes; v++) sum += exp((double)row[v] - target);
            assert_near(f.loss[t], log(sum), 1e-6);
            for (size_t v = 0; v < classes; v++) {
                double p = exp((double)row[v] - target) / sum;
                assert_near((double)f.d_logits[t * classes + v], p - (v == f.ids[t]), 1e-5);
            }
        }
    }
}

DRAWN_TEST(cross_entropy_gradient_agrees_with_finite_differences) {
    entropy_fixture f;
    entropy_init(&f, V, 1);
    entropy_gradient(&f, f.weight);
    assert_true(gradcheck_error_max(ROWS * V, f.logits, f.d_logits, GRADCHECK_STEP, entropy_loss,
                                    &f) < GRADCHECK_LIMIT);
    for (size_t v = 0; v < V; v++) assert_true(f.d_logits[v] == 0); // weight 0
}

DRAWN_TEST(scoring_leaves_the_logits_and_gives_the_loss_of_training) {
    entropy_fixture f;
    double loss[ROWS];
    entropy_init(&f, 256, 5);
    entropy_gradient(&f, f.weight);
    memcpy(loss, f.loss, sizeof(loss));
    memcpy(f.d_logits, f.logits, sizeof(f.d_logits));
    entropy_loss(&f);
    assert_memory_equal(f.d_logits, f.logits, ROWS * 256 * sizeof(float));
    assert_memory_equal(loss, f.loss, sizeof(loss));
}

DRAWN_TEST(an_impossible_target_has_a_finite_loss) {
    float logits[3] = {0, 200, -300};
    uint8_t target = 2;
    double loss = 0;
    reef_cross_entropy(1, 3, &loss, logits, &target, NULL, true);
    assert_near(loss, 500, 1e-9);
    assert_near((double)logits[1], 1, 1e-6);
    assert_near((double)logits[2], -1, 1e-6);
}

// ---- embedding ----------------------------------------------------------------------------------

DRAWN_TEST(embedding_gradient_is_the_sum_over_tokens) {
    float d_x[ROWS * D], d_table[V * D], expected[V * D];
    const uint8_t tokens[ROWS] = {3, 9, 3, 0, 9};
    random_fill(ROWS * D, d_x);
    random_fill(V * D, d_table);
    memcpy(expected, d_table, sizeof(expected));
    for (size_t t = 0; t < ROWS; t++)
        for (size_t d = 0; d < D; d++) expected[tokens[t] * D + d] += d_x[t * D + d];
    reef_embedding_backward(ROWS, D, d_table, d_x, tokens);
    assert_memory_equal(expected, d_table, sizeof(expected));
}

RUN_TESTS
