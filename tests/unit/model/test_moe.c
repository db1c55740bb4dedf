// The mixture of experts by itself: who takes which tokens, its sums against a plain one in double,
// its gradients, and what evaluation promises about later tokens.
#include "moe.h"

#include "draw.h"
#include "gradcheck.h"
#include "test.h"

#include <math.h>

typedef struct mixture {
    reef_moe_shape shape;
    size_t windows;
    reef_moe_params params, grads;
    reef_moe_tape tape;
    float *x, *y, *d_x, *d_y;
    float *block;
    size_t floats;
    uint16_t *taken; // (windows, E, 1 + T): who took what before a step of a finite difference
    bool choose, moved;
} mixture;

static size_t lay_out(mixture *m, float *block) {
    const reef_moe_shape *s = &m->shape;
    size_t tokens = m->windows * s->T * s->D, matrix = s->E * s->D * s->F;
    struct {
        float **array;
        size_t count;
    } arrays[] = {
        {&m->params.w_router, s->D * s->E},
        {&m->params.w_in, matrix},
        {&m->params.w_out, matrix},
        {&m->params.threshold, s->E},
        {&m->x, tokens},
        {&m->d_y, tokens},
        {&m->y, tokens},
        {&m->d_x, tokens},
        {&m->grads.w_router, s->D * s->E},
        {&m->grads.w_in, matrix},
        {&m->grads.w_out, matrix},
    };
    size_t at = 0;
    for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++) {
        if (block != NULL) *arrays[i].array = block + at;
        at += arrays[i].count;
    }
    return at;
}

// Results are zero, everything before them is drawn; an expert takes about as much by thresholds as
// by choice.
static mixture make(reef_moe_shape shape, size_t windows, uint64_t seed) {
    mixture m = {.shape = shape, .windows = windows};
    m.floats = lay_out(&m, NULL);
    m.block = calloc(m.floats, sizeof(*m.block));
    m.taken = calloc(windows * shape.E * (1 + shape.T), sizeof(*m.taken));
    assert_true(m.block != NULL && m.taken != NULL);
    lay_out(&m, m.block);
    draw_floats(&seed, (size_t)(m.y - m.block), m.block, -1, 1);
    for (size_t e = 0; e < shape.E; e++) m.params.threshold[e] = 1.0f / (float)shape.E;
    assert_int_equal(reef_moe_tape_init(&m.tape, &shape, windows, true, NULL), REEF_OK);
    return m;
}

static void release(mixture *m) {
    reef_moe_tape_release(&m->tape);
    free(m->block);
    free(m->taken);
}

static size_t window_floats(const mixture *m) {
    return m->shape.T * m->shape.D;
}

static void forward_window(void *context, size_t w) {
    mixture *m = context;
    size_t at = w * window_floats(m);
    reef_moe_forward(&m->shape, &m->params, &m->tape, w, m->y + at, m->x + at);
}

static void forward(mixture *m, reef_thread_pool *workers, bool choose) {
    memset(m->y, 0, m->windows * window_floats(m) * sizeof(*m->y));
    reef_moe_begin(&m->tape, m->windows, choose);
    reef_thread_pool_run(workers, m->windows, forward_window, m);
}

static void backward_window(void *context, size_t w) {
    mixture *m = context;
    size_t at = w * window_floats(m);
    reef_moe_backward(&m->shape, &m->params, &m->tape, w, m->d_x + at, m->d_y + at, m->x + at);
}

// Results of backward are everything from d_x on.
static void backward(mixture *m, reef_thread_pool *workers) {
    memset(m->d_x, 0, (m->floats - (size_t)(m->d_x - m->block)) * sizeof(float));
    reef_thread_pool_run(workers, m->windows, backward_window, m);
    if (m->tape.chosen) reef_moe_gradients(&m->shape, &m->grads, &m->tape, workers, m->x);
}

// ---- who takes what -----------------------------------------------------------------------------

static double score_plain(const mixture *m, size_t w, size_t t, size_t e) {
    const float *x = m->x + (w * m->shape.T + t) * m->shape.D;
    double sum = 0, own = 0;
    for (size_t i = 0; i < m->shape.E; i++) {
        double logit = 0;
        for (size_t d = 0; d < m->shape.D; d++)
            logit += (double)x[d] * (double)m->params.w_router[d * m->shape.E + i];
        sum += exp(logit);
        if (i == e) own = exp(logit);
    }
    return own / sum;
}

static bool takes(const mixture *m, size_t w, size_t e, size_t t) {
    size_t place = w * m->shape.E + e;
    for (size_t i = 0; i < m->tape.counts[place]; i++)
        if (m->tape.tokens[place * m->shape.T + i] == t) return true;
    return false;
}

// Tokens of a window that an expert prefers to t: of a higher score, or of the same and earlier.
static size_t preferred(const mixture *m, size_t w, size_t e, size_t t) {
    const float *scores = m->tape.scores + w * m->shape.T * m->shape.E + e;
    size_t E = m->shape.E, count = 0;
    for (size_t u = 0; u < m->shape.T; u++)
        count += scores[u * E] > scores[t * E] || (scores[u * E] == scores[t * E] && u < t);
    return count;
}

static void assert_best_are_taken(const mixture *m) {
    for (size_t w = 0; w < m->windows; w++)
        for (size_t e = 0; e < m->shape.E; e++) {
            const uint16_t *tokens = m->tape.tokens + (w * m->shape.E + e) * m->shape.T;
            assert_int_equal(m->tape.counts[w * m->shape.E + e], m->shape.C);
            for (size_t t = 0; t < m->shape.T; t++)
                assert_int_equal(takes(m, w, e, t), preferred(m, w, e, t) < m->shape.C);
            for (size_t i = 1; i < m->shape.C; i++) assert_true(tokens[i - 1] < tokens[i]);
        }
}

PLAIN_TEST(each_expert_takes_its_best_tokens) {
    for (size_t C = 1; C <= 9; C++) {
        mixture m = make((reef_moe_shape){9, 5, 7, 3, C}, 2, C);
        forward(&m, NULL, true);
        assert_best_are_taken(&m);
        for (size_t w = 0; w < 2; w++)
            for (size_t t = 0; t < 9; t++)
                for (size_t e = 0; e < 3; e++) {
                    double score = (double)m.tape.scores[(w * 9 + t) * 3 + e];
                    assert_true(fabs(score - score_plain(&m, w, t, e)) < 1e-6);
                }
        release(&m);
    }
}

PLAIN_TEST(among_equals_the_earlier_token_is_taken) {
    mixture m = make((reef_moe_shape){12, 2, 3, 4, 5}, 1, 8);
    for (size_t t = 0; t < 12; t++) // three different tokens, again and again
        for (size_t d = 0; d < 2; d++) m.x[t * 2 + d] = (float)((t * 7 / 2 + d) % 3);
    forward(&m, NULL, true);
    assert_best_are_taken(&m);
    memset(m.x, 0, 24 * sizeof(*m.x)); // all score the same
    forward(&m, NULL, true);
    assert_best_are_taken(&m);
    for (size_t e = 0; e < 4; e++) assert_true(takes(&m, 0, e, 4) && !takes(&m, 0, e, 5));
    release(&m);
}

PLAIN_TEST(a_score_that_is_no_number_does_not_stop_it) {
    mixture m = make((reef_moe_shape){6, 2, 3, 2, 3}, 1, 8);
    m.x[3] = NAN;
    forward(&m, NULL, true);
    for (size_t e = 0; e < 2; e++) assert_int_equal(m.tape.counts[e], 3);
    forward(&m, NULL, false);
    for (size_t e = 0; e < 2; e++) assert_false(takes(&m, 0, e, 1));
    release(&m);
}

PLAIN_TEST(by_thresholds_every_token_that_reaches_one_is_taken) {
    mixture m = make((reef_moe_shape){13, 5, 7, 3, 2}, 2, 21);
    size_t most = 0;
    forward(&m, NULL, false);
    // Exactly at the score of a token: that one too.
    for (size_t e = 0; e < 3; e++) m.params.threshold[e] = m.tape.scores[(e + 4) * 3 + e];
    forward(&m, NULL, false);
    for (size_t e = 0; e < 3; e++) {
        assert_true(takes(&m, 0, e, e + 4));
        for (size_t w = 0; w < 2; w++) {
            for (size_t t = 0; t < 13; t++)
                assert_int_equal(takes(&m, w, e, t),
                                 m.tape.scores[(w * 13 + t) * 3 + e] >= m.params.threshold[e]);
            if (m.tape.counts[w * 3 + e] > most) most = m.tape.counts[w * 3 + e];
        }
    }
    assert_true(most > 2 * m.shape.C); // several blocks, the last one not full
    release(&m);
}

PLAIN_TEST(thresholds_follow_the_lowest_scores_taken) {
    mixture m = make((reef_moe_shape){9, 5, 7, 3, 4}, 3, 33);
    float before[3], mean[3] = {0};
    forward(&m, NULL, true);
    for (size_t e = 0; e < 3; e++) {
        before[e] = m.params.threshold[e];
        for (size_t w = 0; w < 3; w++) {
            float lowest = INFINITY;
            for (size_t t = 0; t < 9; t++)
                if (takes(&m, w, e, t)) lowest = fminf(lowest, m.tape.scores[(w * 9 + t) * 3 + e]);
            mean[e] += lowest / 3;
        }
    }
    reef_moe_update_thresholds(&m.shape, &m.params, &m.tape, 0.25f);
    for (size_t e = 0; e < 3; e++) {
        assert_true(fabsf(m.params.threshold[e] - (0.75f * before[e] + 0.25f * mean[e])) < 1e-6f);
        assert_true(fabsf(mean[e] - before[e]) > 1e-3f);
    }
    // With the whole mean and one window, evaluation takes what training did.
    mixture one = make((reef_moe_shape){9, 5, 7, 3, 4}, 1, 34);
    forward(&one, NULL, true);
    reef_moe_update_thresholds(&one.shape, &one.params, &one.tape, 1.0f);
    uint16_t chosen[3 * 9];
    memcpy(chosen, one.tape.tokens, sizeof(chosen));
    forward(&one, NULL, false);
    for (size_t e = 0; e < 3; e++) {
        assert_int_equal(one.tape.counts[e], 4);
        assert_memory_equal(chosen + e * 9, one.tape.tokens + e * 9, 4 * sizeof(*chosen));
    }
    release(&one);
    release(&m);
}

// ---- forward ------------------------------------------------------------------------------------

static double gelu_plain(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double output_plain(const mixture *m, size_t w, size_t t, size_t d) {
    const reef_moe_shape *s = &m->shape;
    const float *x = m->x + (w * s->T + t) * s->D;
    double y = 0;
    for (size_t e = 0; e < s->E; e++) {
        double own = 0;
        for (size_t f = 0; f < s->F && takes(m, w, e, t); f++) {
            double in = 0;
            for (size_t i = 0; i < s->D; i++)
                in += (double)x[i] * (double)m->params.w_in[(e * s->D + i) * s->F + f];
            own += gelu_plain(in) * (double)m->params.w_out[(e * s->F + f) * s->D + d];
        }
        y += score_plain(m, w, t, e) * own;
    }
    return y;
}

PLAIN_TEST(forward_equals_the_plain_sum_in_double) {
    for (int choose = 0; choose < 2; choose++) {
        mixture m = make((reef_moe_shape){11, 6, 9, 3, 4}, 3, 5);
        forward(&m, NULL, choose);
        for (size_t i = 0; i < m.windows * window_floats(&m); i++) {
            double plain = output_plain(&m, i / window_floats(&m), i / 6 % 11, i % 6);
            assert_true(fabs((double)m.y[i] - plain) < 1e-5 * fmax(1, fabs(plain)));
        }
        release(&m);
    }
}

// Changing a token changes nothing of those before it, when thresholds decide; when experts choose,
// it does.
PLAIN_TEST(later_tokens_change_no_earlier_bit) {
    mixture m = make((reef_moe_shape){64, 32, 48, 4, 16}, 1, 9);
    float *before = room(window_floats(&m) * sizeof(*before));
    for (int choose = 0; choose < 2; choose++) {
        size_t peeked = 0;
        for (size_t t = 1; t < 64; t += 3) {
            uint64_t seed = 100 + t;
            forward(&m, NULL, choose);
            memcpy(before, m.y, window_floats(&m) * sizeof(*before));
            draw_floats(&seed, (64 - t) * 32, m.x + t * 32, -3, 3);
            forward(&m, NULL, choose);
            bool same = memcmp(before, m.y, t * 32 * sizeof(*before)) == 0;
            assert_true(same || choose);
            peeked += !same;
            assert_memory_not_equal(before + t * 32, m.y + t * 32, (64 - t) * 32 * sizeof(*before));
        }
        assert_int_equal(peeked > 0, choose);
    }
    release(&m);
}

// ---- gradients ----------------------------------------------------------------------------------

static void remember_taken(mixture *m) {
    size_t T = m->shape.T;
    for (size_t place = 0; place < m->windows * m->shape.E; place++) {
        m->taken[place * (1 + T)] = (uint16_t)m->tape.counts[place];
        memcpy(m->taken + place * (1 + T) + 1, m->tape.tokens + place * T, T * sizeof(*m->taken));
    }
}

static bool is_remembered(const mixture *m, size_t place) {
    const uint16_t *taken = m->taken + place * (1 + m->shape.T);
    return taken[0] == m->tape.counts[place] &&
           memcmp(taken + 1, m->tape.tokens + place * m->shape.T, taken[0] * sizeof(*taken)) == 0;
}

static double loss(void *context) {
    mixture *m = context;
    double sum = 0;
    forward(m, NULL, m->choose);
    for (size_t place = 0; place < m->windows * m->shape.E; place++)
        m->moved |= !is_remembered(m, place);
    for (size_t i = 0; i < m->windows * window_floats(m); i++)
        sum += (double)m->y[i] * (double)m->d_y[i];
    return sum;
}

// Every element whose steps keep the choice, and most of them do.
static void check(mixture *m, size_t count, float *values, const float *gradient) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        m->moved = false;
        double error =
            gradcheck_error_max(1, values + i, gradient + i, 3 * GRADCHECK_STEP / 10, loss, m);
        if (m->moved) continue;
        kept++;
        assert_true(error < GRADCHECK_LIMIT);
    }
    assert_true(4 * kept > 3 * count);
}

static float *copy_of(const float *values, size_t count) {
    float *copy = copied(values, count * sizeof(*copy));
    return copy;
}

PLAIN_TEST(backward_agrees_with_finite_differences) {
    for (int choose = 0; choose < 2; choose++) {
        mixture m = make((reef_moe_shape){7, 5, 6, 3, 3}, 2, 71);
        size_t tokens = m.windows * window_floats(&m), matrix = 3 * 5 * 6;
        m.choose = choose;
        forward(&m, NULL, choose);
        remember_taken(&m);
        backward(&m, NULL);
        float *d_x = copy_of(m.d_x, tokens), *d_router = copy_of(m.grads.w_router, 15);
        float *d_in = copy_of(m.grads.w_in, matrix), *d_out = copy_of(m.grads.w_out, matrix);
        check(&m, tokens, m.x, d_x);
        if (choose) { // by thresholds, nothing trains
            check(&m, 15, m.params.w_router, d_router);
            check(&m, matrix, m.params.w_in, d_in);
            check(&m, matrix, m.params.w_out, d_out);
        }
        release(&m);
    }
}

PLAIN_TEST(any_number_of_threads_gives_the_same_bits) {
    for (int choose = 0; choose < 2; choose++) {
        mixture one = make((reef_moe_shape){33, 17, 29, 5, 7}, 6, 3);
        forward(&one, NULL, choose);
        backward(&one, NULL);
        for (size_t threads = 2; threads <= 4; threads++) {
            reef_thread_pool *workers = NULL;
            mixture many = make((reef_moe_shape){33, 17, 29, 5, 7}, 6, 3);
            assert_int_equal(reef_thread_pool_new(&workers, threads, NULL), REEF_OK);
            forward(&many, workers, choose);
            backward(&many, workers);
            assert_memory_equal(one.block, many.block, one.floats * sizeof(*one.block));
            reef_thread_pool_free(workers);
            release(&many);
        }
        release(&one);
    }
}

RUN_TESTS
