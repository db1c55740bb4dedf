// The router's forward and backward: against the plain router in double, against exhaustive search,
// and the same bits for any number of threads.
#include "checked.h"
#include "draw.h"
#include "exhaustive_pairs.h"
#include "gradcheck.h"
#include "plain_router.h"
#include "reef_router.h"

#include <math.h>

// A router of any shape with room for its parameters, their gradients and a batch.
typedef struct router {
    reef_router_shape shape;
    reef_router_params params, grads;
    reef_router_tape tape;
    size_t rows, width, gates; // gates = rows * H * K
    float *x, *d_x, *d_gate;
    float *block;
    size_t block_floats;
} router;

// All arrays in one block, so that it can be filled and compared at once. Called twice: to measure,
// and to carve.
static size_t lay_out(router *r, float *block) {
    const size_t key_table = r->shape.side * reef_router_key_row(&r->shape);
    const size_t weights = r->shape.d_model * r->width;
    struct {
        float **array;
        size_t count;
    } arrays[] = {
        {&r->params.w_query, weights},
        {&r->params.bn_scale, r->width},
        {&r->params.bn_shift, r->width},
        {&r->params.bn_mean, r->width},
        {&r->params.bn_var, r->width},
        {&r->params.sub_keys_a, key_table},
        {&r->params.sub_keys_b, key_table},
        {&r->grads.w_query, weights},
        {&r->grads.bn_scale, r->width},
        {&r->grads.bn_shift, r->width},
        {&r->grads.sub_keys_a, key_table},
        {&r->grads.sub_keys_b, key_table},
        {&r->x, r->rows * r->shape.d_model},
        {&r->d_x, r->rows * r->shape.d_model},
        {&r->d_gate, r->gates},
    };
    size_t at = 0;
    for (size_t n = 0; n < sizeof(arrays) / sizeof(*arrays); n++) {
        if (block != NULL) *arrays[n].array = block + at;
        at += arrays[n].count;
    }
    return at;
}

static void fill(router *r, uint64_t seed) {
    draw_floats(&seed, r->block_floats, r->block, -1, 1);
    for (size_t c = 0; c < r->width; c++) {
        r->params.bn_scale[c] += 1.5f;
        r->params.bn_var[c] += 1.5f;
    }
    for (size_t n = 0; n < r->gates; n++) r->d_gate[n] *= 4; // softmax makes gradients small
}

static bool head_keys; // of the routers of this run: does each head have tables of its own?

static router make(reef_router_shape shape, size_t rows, size_t piece_rows, uint64_t seed) {
    router r = {.shape = shape, .rows = rows};
    r.shape.head_keys = head_keys;
    r.width = shape.head_count * shape.d_key;
    r.gates = rows * shape.head_count * shape.topk;
    r.block_floats = lay_out(&r, NULL);
    r.block = calloc(r.block_floats, sizeof(*r.block));
    assert_non_null(r.block);
    lay_out(&r, r.block);
    fill(&r, seed);
    assert_int_equal(reef_router_tape_init(&r.tape, &r.shape, rows, piece_rows, true, NULL),
                     REEF_OK);
    return r;
}

static void release(router *r) {
    reef_router_tape_release(&r->tape);
    free(r->block);
}

static void clear_grads(router *r) {
    const size_t key_table = r->shape.side * reef_router_key_row(&r->shape);
    memset(r->grads.w_query, 0, r->shape.d_model * r->width * sizeof(float));
    memset(r->grads.bn_scale, 0, r->width * sizeof(float));
    memset(r->grads.bn_shift, 0, r->width * sizeof(float));
    memset(r->grads.sub_keys_a, 0, key_table * sizeof(float));
    memset(r->grads.sub_keys_b, 0, key_table * sizeof(float));
    memset(r->d_x, 0, r->rows * r->shape.d_model * sizeof(float));
}

static void forward(router *r, reef_router_mode mode, reef_thread_pool *workers) {
    reef_status status = reef_router_forward(&r->shape, &r->params, mode, workers, r->rows, r->x,
                                             NULL, &r->tape, &why);
    if (status != REEF_OK) fail_msg("%s", why.message);
}

static void backward(router *r,
                     reef_router_mode mode,
                     reef_thread_pool *workers,
                     reef_router_params *grads) {
    reef_router_backward(&r->shape, &r->params, mode, workers, r->rows, r->x, NULL, &r->tape,
                         r->d_gate, r->d_x, grads);
}

// The folded router of `r`, in arrays of its own.
typedef struct folded {
    reef_router_params params;
    float *block;
} folded;

static folded fold(const router *r) {
    folded f = {.params = {.sub_keys_a = r->params.sub_keys_a, .sub_keys_b = r->params.sub_keys_b}};
    f.block = calloc((r->shape.d_model + 1) * r->width, sizeof(*f.block));
    assert_non_null(f.block);
    f.params.w_query = f.block;
    f.params.query_bias = f.block + r->shape.d_model * r->width;
    reef_router_fold(&r->shape, &r->params, f.params.w_query, f.params.query_bias);
    return f;
}

// Odd and unequal, so that a swapped stride shows.
static const reef_router_shape odd = {
    .d_model = 7, .head_count = 3, .topk = 3, .d_key = 6, .side = 5, .batch_norm = true};

static const reef_router_score all_scores[] = {REEF_SCORE_SOFTMAX, REEF_SCORE_SIGMOID,
                                               REEF_SCORE_RELU};
enum { SCORE_COUNT = sizeof(all_scores) / sizeof(*all_scores) };

static reef_router_shape odd_with(reef_router_score score, bool batch_norm) {
    reef_router_shape shape = odd;
    shape.score = score;
    shape.batch_norm = batch_norm;
    return shape;
}

// ---- forward ------------------------------------------------------------------------------------

// The gates agree with the plain router's for the same choice, and no pair left out scores more
// than the worst one chosen.
static void assert_agrees_with_plain(router *r, plain_norm norm) {
    const size_t H = r->shape.head_count, K = r->shape.topk;
    double *gate = room(r->gates * sizeof(*gate));
    double *query = room(r->rows * r->width * sizeof(*query));
    plain_gate(&r->shape, &r->params, norm, r->rows, r->x, r->tape.index_a, r->tape.index_b, gate);
    plain_queries(&r->shape, &r->params, norm, r->rows, r->x, query);
    for (size_t n = 0; n < r->rows * H; n++) {
        const double *q = query + n * r->shape.d_key;
        double worst = INFINITY;
        for (size_t k = n * K; k < (n + 1) * K; k++) {
            assert_true(fabs(gate[k] - r->tape.gate[k]) < 1e-5 * fmax(1, gate[k]));
            size_t i = r->tape.index_a[k], j = r->tape.index_b[k];
            assert_int_equal(r->tape.indices[k], reef_expert_id_of((uint32_t)i, (uint32_t)j));
            double score = plain_score(&r->shape, &r->params, q, n % H, i, j);
            assert_true(score <= worst + 1e-5); // best first
            worst = fmin(worst, score);
        }
        size_t better = 0;
        for (size_t i = 0; i < r->shape.side; i++)
            for (size_t j = 0; j < r->shape.side; j++)
                better += plain_score(&r->shape, &r->params, q, n % H, i, j) > worst + 1e-5;
        assert_true(better < K);
    }
}

static const size_t some_sides[][3] = {{1, 1, 2},   {3, 3, 4},    {5, 3, 6},   {8, 8, 8},
                                       {17, 4, 10}, {40, 16, 12}, {64, 32, 16}};

PLAIN_TEST(forward_agrees_with_the_plain_router) {
    for (size_t n = 0; n < sizeof(some_sides) / sizeof(*some_sides); n++) {
        for (size_t kind = 0; kind < 2 * SCORE_COUNT; kind++) {
            const bool batch_norm = kind % 2 == 1;
            router r = make((reef_router_shape){.d_model = 5 + n,
                                                .head_count = 3,
                                                .side = some_sides[n][0],
                                                .topk = some_sides[n][1],
                                                .d_key = some_sides[n][2],
                                                .batch_norm = batch_norm,
                                                .score = all_scores[kind / 2]},
                            35, 5, n);
            forward(&r, REEF_ROUTER_TRAIN, NULL);
            assert_agrees_with_plain(&r, batch_norm ? PLAIN_NORM_BATCH : PLAIN_NORM_NONE);
            r.rows = 33; // the last piece is shorter
            forward(&r, REEF_ROUTER_TRAIN, NULL);
            assert_agrees_with_plain(&r, batch_norm ? PLAIN_NORM_BATCH : PLAIN_NORM_NONE);
            release(&r);
        }
    }
}

PLAIN_TEST(score_functions_hold_for_scores_of_any_size) {
    // One expert; its score is x. Without a bound on exp, sigmoid(-100) would be 0 or no number.
    const float scores[] = {0,    1e-30f, 0.5f,   -0.5f, 16,    -16,   60,    -60,
                            87.5, -87.5,  100.0f, -100,  1e10f, -1e10, 1e38f, -1e38f};
    enum { ROWS = sizeof(scores) / sizeof(*scores) };
    for (size_t kind = 0; kind < SCORE_COUNT; kind++) {
        router r = make((reef_router_shape){.d_model = 1,
                                            .head_count = 1,
                                            .topk = 1,
                                            .d_key = 2,
                                            .side = 1,
                                            .score = all_scores[kind]},
                        ROWS, ROWS, 1);
        memcpy(r.x, scores, sizeof(scores));
        r.params.w_query[0] = r.params.sub_keys_a[0] = 1;
        r.params.w_query[1] = r.params.sub_keys_b[0] = 0;
        forward(&r, REEF_ROUTER_TRAIN, NULL);
        for (size_t n = 0; n < ROWS; n++) {
            double gate = scores[n];
            plain_score_function(r.shape.score, 1, &gate);
            if (r.shape.score == REEF_SCORE_SOFTMAX) gate = 1; // the plain exp overflows
            // Where floats are sparse, to the nearest of them.
            assert_true(fabs(r.tape.gate[n] - gate) <= 1e-6 * gate + 2e-45);
        }
        release(&r);
    }
}

// Whole numbers all the way: every product is exact, and ties are everywhere.
static void check_exact_retrieval(size_t side, size_t rows, uint64_t seed) {
    enum { TOPKS = 5 };
    const size_t topks[TOPKS] = {1, 2, 5, 16, side};
    router r = make((reef_router_shape){.d_model = 4,
                                        .head_count = 3,
                                        .topk = 1,
                                        .d_key = 6,
                                        .side = side,
                                        .batch_norm = false},
                    rows, rows / 2, seed);
    reef_router_tape tapes[TOPKS] = {0};
    draw_ints(&seed, r.block_floats, r.block, -1, 1);
    for (size_t t = 0; t < TOPKS && topks[t] <= side; t++) {
        reef_router_shape shape = r.shape;
        shape.topk = topks[t];
        assert_int_equal(reef_router_tape_init(&tapes[t], &shape, rows, rows / 2, true, NULL),
                         REEF_OK);
        assert_int_equal(reef_router_forward(&shape, &r.params, REEF_ROUTER_TRAIN, NULL, rows, r.x,
                                             NULL, &tapes[t], NULL),
                         REEF_OK);
    }
    assert_non_null(tapes[0].query);

    const size_t half = r.shape.d_key / 2, row = reef_router_key_row(&r.shape);
    float *scores = room(2 * side * sizeof(*scores));
    scored_pair *pairs = room(side * side * sizeof(*pairs));
    for (size_t n = 0; n < rows * r.shape.head_count; n++) {
        const float *q = tapes[0].query + n * r.shape.d_key;
        const size_t table = n % reef_router_tables(&r.shape) * half;
        memset(scores, 0, 2 * side * sizeof(*scores));
        for (size_t i = 0; i < side; i++) {
            for (size_t c = 0; c < half; c++) {
                scores[i] += q[c] * r.params.sub_keys_a[i * row + table + c];
                scores[side + i] += q[half + c] * r.params.sub_keys_b[i * row + table + c];
            }
        }
        exhaustive_pairs(side, scores, scores + side, pairs);
        for (size_t t = 0; t < TOPKS && topks[t] <= side; t++) {
            for (size_t k = 0; k < topks[t]; k++) {
                size_t at = n * topks[t] + k;
                assert_int_equal(tapes[t].indices[at], pairs[k].id);
                assert_int_equal(tapes[t].index_a[at], pairs[k].i);
                assert_int_equal(tapes[t].index_b[at], pairs[k].j);
            }
        }
    }
    for (size_t t = 0; t < TOPKS; t++) reef_router_tape_release(&tapes[t]);
    release(&r);
}

PLAIN_TEST(retrieval_equals_exhaustive_search_on_ties) {
    for (size_t side = 1; side <= 70; side++) check_exact_retrieval(side, 8, side);
    check_exact_retrieval(21, 2 * 50, 1); // 150 queries a piece: more than one tile
}

// ---- the first pass -----------------------------------------------------------------------------

// How keys and tokens of a test look beside evenly drawn ones.
typedef enum look {
    LOOK_EVEN,
    LOOK_WHOLE,
    LOOK_TWINS,
    LOOK_SHIFTED,
    LOOK_UNEQUAL,
    LOOK_ZEROS,
    LOOK_COUNT
} look;

static void dress(router *r, look how, uint64_t *seed) {
    const size_t keys = r->shape.side * reef_router_key_row(&r->shape);
    float *tables[] = {r->params.sub_keys_a, r->params.sub_keys_b};
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < keys; i++) {
            if (how == LOOK_SHIFTED) tables[t][i] += 2;
            if (how == LOOK_UNEQUAL && i / r->shape.d_key % 40 == 7) tables[t][i] *= 5;
            if (how == LOOK_TWINS && i >= keys / 2) tables[t][i] = tables[t][i - keys / 2];
        }
    if (how == LOOK_WHOLE) { // exact products, and ties everywhere
        draw_ints(seed, r->shape.d_model * r->width, r->params.w_query, -1, 1);
        for (size_t t = 0; t < 2; t++) draw_ints(seed, keys, tables[t], -1, 1);
        draw_ints(seed, r->rows * r->shape.d_model, r->x, -1, 1);
    }
    // Of all zeros in the middle of a piece, and of one more row.
    if (how == LOOK_ZEROS) memset(r->x + 3 * r->shape.d_model, 0, r->shape.d_model * sizeof(float));
}

// With the first pass, with several threads, and with all sub-keys scored: the same bits.
static void check_first_pass(
    reef_router_shape shape, look how, size_t rows, reef_thread_pool *workers, size_t *made) {
    uint64_t seed = shape.side + shape.d_key + shape.topk + how;
    router r = make(shape, rows, rows / 2, seed);
    dress(&r, how, &seed);
    const size_t gates = r.gates;
    reef_expert_id *indices = room(gates * sizeof(*indices));
    float *gate = room(gates * sizeof(*gate));
    uint16_t *index = room(2 * gates * sizeof(*index));
    *made += r.tape.coarse != NULL;
    for (int mode = 0; mode < 2; mode++) { // all scores come first
        r.tape.score_all = true;
        forward(&r, REEF_ROUTER_TRAIN, NULL);
        memcpy(indices, r.tape.indices, gates * sizeof(*indices));
        memcpy(gate, r.tape.gate, gates * sizeof(*gate));
        memcpy(index, r.tape.index_a, gates * sizeof(*index));
        memcpy(index + gates, r.tape.index_b, gates * sizeof(*index));
        r.tape.score_all = false;
        forward(&r, REEF_ROUTER_TRAIN, mode == 0 ? NULL : workers);
        assert_memory_equal(indices, r.tape.indices, gates * sizeof(*indices));
        assert_memory_equal(gate, r.tape.gate, gates * sizeof(*gate));
        assert_memory_equal(index, r.tape.index_a, gates * sizeof(*index));
        assert_memory_equal(index + gates, r.tape.index_b, gates * sizeof(*index));
    }
    release(&r);
}

PLAIN_TEST(the_first_pass_leaves_every_bit) {
    reef_thread_pool *workers;
    assert_int_equal(reef_thread_pool_new(&workers, 3, NULL), REEF_OK);
    const size_t sides[] = {384, 405, 520}, keys[] = {16, 64, 128}, topks[] = {1, 5, 16, 23};
    size_t made = 0;
    for (size_t s = 0; s < 3; s++)
        for (size_t k = 0; k < 3; k++)
            for (look how = 0; how < LOOK_COUNT; how++) {
                // A tile has 128 queries: of both heads together, or of each.
                const reef_router_shape shape = {.d_model = 24,
                                                 .head_count = 2,
                                                 .topk = topks[(s + k + how) % 4],
                                                 .d_key = keys[k],
                                                 .side = sides[s],
                                                 .batch_norm = how % 2 == 0,
                                                 .score = all_scores[how % SCORE_COUNT]};
                check_first_pass(shape, how, 256, workers, &made);
            }
    assert_true(made == 54 || strcmp(reef_kernels_name(), "scalar") == 0);
    reef_thread_pool_free(workers);
}

PLAIN_TEST(folded_router_agrees_with_running_statistics) {
    for (size_t kind = 0; kind < 2 * SCORE_COUNT; kind++) {
        const bool batch_norm = kind % 2 == 1;
        router r = make(odd_with(all_scores[kind / 2], batch_norm), 24, 8, 3);
        folded f = fold(&r);
        must(reef_router_forward(&r.shape, &f.params, REEF_ROUTER_FOLDED, NULL, r.rows, r.x, NULL,
                                 &r.tape, &why));
        assert_agrees_with_plain(&r, batch_norm ? PLAIN_NORM_RUNNING : PLAIN_NORM_NONE);
        free(f.block);
        release(&r);
    }
}

PLAIN_TEST(running_statistics_move_towards_the_batch) {
    router r = make(odd, 24, 8, 4);
    forward(&r, REEF_ROUTER_TRAIN, NULL);
    for (int repeat = 0; repeat < 200; repeat++)
        reef_router_update_stats(&r.shape, &r.params, &r.tape, 0.25f);
    for (size_t c = 0; c < r.width; c++) {
        double mean = 0, var = 0;
        for (size_t row = 0; row < r.rows; row++)
            mean += plain_raw(&r.shape, &r.params, r.x, row, c) / (double)r.rows;
        for (size_t row = 0; row < r.rows; row++)
            var += pow(plain_raw(&r.shape, &r.params, r.x, row, c) - mean, 2) / (double)r.rows;
        assert_true(fabs(r.params.bn_mean[c] - mean) < 1e-5);
        assert_true(fabs(r.params.bn_var[c] - var) < 1e-5);
    }
    r.params.bn_mean[2] = 1;
    r.tape.batch_mean[2] = 5;
    reef_router_update_stats(&r.shape, &r.params, &r.tape, 0.25f);
    assert_true(r.params.bn_mean[2] == 2);
    release(&r);
}

static void check_row_does_not_depend_on_the_rest(reef_router_score score) {
    enum { ROWS = 24, PIECE = 8 };
    router r = make(odd_with(score, true), ROWS, PIECE, 5);
    folded f = fold(&r);
    const size_t row_gates = r.shape.head_count * r.shape.topk;
    float gate[ROWS * 9];
    reef_expert_id indices[ROWS * 9];
    assert_int_equal(r.gates, ROWS * 9);
    for (size_t row = 0; row < ROWS; row++) {
        fill(&r, 5);
        for (int other = 0; other < 2; other++) {
            uint64_t seed = row;
            for (size_t n = 0; other == 1 && n < ROWS; n++)
                if (n != row) draw_floats(&seed, 7, r.x + n * 7, -30, 30);
            const uint8_t active[ROWS / PIECE] = {other == 0 || row / PIECE == 0,
                                                  other == 0 || row / PIECE == 1,
                                                  other == 0 || row / PIECE == 2};
            must(reef_router_forward(&r.shape, &f.params, REEF_ROUTER_FOLDED, NULL, ROWS, r.x,
                                     active, &r.tape, &why));
            if (other == 0) {
                memcpy(gate, r.tape.gate, sizeof(gate));
                memcpy(indices, r.tape.indices, sizeof(indices));
            }
        }
        size_t at = row * row_gates;
        assert_memory_equal(gate + at, r.tape.gate + at, row_gates * sizeof(*gate));
        assert_memory_equal(indices + at, r.tape.indices + at, row_gates * sizeof(*indices));
    }
    free(f.block);
    release(&r);
}

PLAIN_TEST(a_row_does_not_depend_on_the_rest_of_the_batch) {
    for (size_t n = 0; n < SCORE_COUNT; n++) check_row_does_not_depend_on_the_rest(all_scores[n]);
}

// ---- backward -----------------------------------------------------------------------------------

typedef struct loss_context {
    router *r;
    plain_norm norm;
    const reef_router_params *params;
} loss_context;

// dot(gate, d_gate) with the experts that the forward chose.
static double router_loss(void *context) {
    static double gate[PLAIN_ROWS_MAX * PLAIN_TOPK_MAX];
    const loss_context *c = context;
    router *r = c->r;
    double loss = 0;
    plain_gate(&r->shape, c->params, c->norm, r->rows, r->x, r->tape.index_a, r->tape.index_b,
               gate);
    for (size_t n = 0; n < r->gates; n++) loss += gate[n] * r->d_gate[n];
    return loss;
}

static void assert_gradient(
    size_t D, float *x, const float *d_x, loss_context *c, const char *name) {
    // The loss is in double, so a small step has no rounding to drown in.
    double error = gradcheck_error_max(D, x, d_x, 1e-3f, router_loss, c);
    if (!(error < 1e-4)) fail_msg("gradient of %s is off by %g", name, error);
    // And a gradient that is nearly right is noticed.
    float *spoilt = copied(d_x, D * sizeof(*spoilt));
    spoilt[D / 2] += 0.01f;
    assert_false(gradcheck_error_max(D, x, spoilt, 1e-3f, router_loss, c) < 1e-4);
}

static void check_gradients(router *r, loss_context *c) {
    const size_t key_table = r->shape.side * reef_router_key_row(&r->shape);
    reef_router_params *params = &r->params, *grads = &r->grads;
    assert_gradient(r->rows * r->shape.d_model, r->x, r->d_x, c, "x");
    assert_gradient(r->shape.d_model * r->width, params->w_query, grads->w_query, c, "w_query");
    assert_gradient(key_table, params->sub_keys_a, grads->sub_keys_a, c, "sub_keys_a");
    assert_gradient(key_table, params->sub_keys_b, grads->sub_keys_b, c, "sub_keys_b");
    if (c->norm != PLAIN_NORM_BATCH) return;
    assert_gradient(r->width, params->bn_scale, grads->bn_scale, c, "bn_scale");
    assert_gradient(r->width, params->bn_shift, grads->bn_shift, c, "bn_shift");
}

// A router for gradients. Of few experts some are chosen that score less than zero, where relu is
// flat; none may stand so close to zero that a step crosses it.
static router make_for_gradients(reef_router_score score, bool batch_norm) {
    reef_router_shape shape = odd_with(score, batch_norm);
    if (score == REEF_SCORE_RELU) shape.side = 3;
    return make(shape, 20, 5, head_keys ? 8 : 6); // seeds for which all that holds
}

static void assert_relu_is_smooth_here(const router *r, plain_norm norm) {
    static double query[PLAIN_ROWS_MAX * PLAIN_WIDTH_MAX];
    if (r->shape.score != REEF_SCORE_RELU) return;
    plain_queries(&r->shape, &r->params, norm, r->rows, r->x, query);
    size_t above = 0;
    for (size_t n = 0; n < r->gates; n++) {
        double score = plain_score(
            &r->shape, &r->params, query + n / r->shape.topk * r->shape.d_key,
            n / r->shape.topk % r->shape.head_count, r->tape.index_a[n], r->tape.index_b[n]);
        assert_true(fabs(score) > 0.01);
        above += score > 0;
    }
    assert_true(above > r->gates / 4 && above < r->gates - r->gates / 32);
}

static void check_train_gradients(reef_router_score score, bool batch_norm) {
    const plain_norm norm = batch_norm ? PLAIN_NORM_BATCH : PLAIN_NORM_NONE;
    router r = make_for_gradients(score, batch_norm);
    clear_grads(&r);
    forward(&r, REEF_ROUTER_TRAIN, NULL);
    backward(&r, REEF_ROUTER_TRAIN, NULL, &r.grads);
    assert_relu_is_smooth_here(&r, norm);
    check_gradients(&r, &(loss_context){.r = &r, .norm = norm, .params = &r.params});
    release(&r);
}

PLAIN_TEST(backward_agrees_with_finite_differences_with_batch_norm) {
    for (size_t n = 0; n < SCORE_COUNT; n++) check_train_gradients(all_scores[n], true);
}

PLAIN_TEST(backward_agrees_with_finite_differences_without_batch_norm) {
    for (size_t n = 0; n < SCORE_COUNT; n++) check_train_gradients(all_scores[n], false);
}

static void check_folded_gradients(reef_router_score score) {
    router r = make_for_gradients(score, true);
    folded f = fold(&r);
    clear_grads(&r);
    reef_router_params unfolded = r.params;
    r.params = f.params;
    forward(&r, REEF_ROUTER_FOLDED, NULL);
    backward(&r, REEF_ROUTER_FOLDED, NULL, NULL);
    assert_relu_is_smooth_here(&r, PLAIN_NORM_NONE);
    loss_context c = {.r = &r, .norm = PLAIN_NORM_NONE, .params = &r.params};
    assert_gradient(r.rows * r.shape.d_model, r.x, r.d_x, &c, "x");

    // With gradients of parameters, too, as long as someone wants them.
    clear_grads(&r);
    backward(&r, REEF_ROUTER_FOLDED, NULL, &r.grads);
    check_gradients(&r, &c);
    r.params = unfolded;
    free(f.block);
    release(&r);
}

PLAIN_TEST(backward_agrees_with_finite_differences_when_folded) {
    for (size_t n = 0; n < SCORE_COUNT; n++) check_folded_gradients(all_scores[n]);
}

PLAIN_TEST(backward_accumulates) {
    router r = make(odd, 20, 5, 23);
    forward(&r, REEF_ROUTER_TRAIN, NULL);
    clear_grads(&r);
    backward(&r, REEF_ROUTER_TRAIN, NULL, &r.grads);
    float *once = copied(r.block, r.block_floats * sizeof(*once));
    backward(&r, REEF_ROUTER_TRAIN, NULL, &r.grads);
    const float *first = r.grads.w_query;
    for (size_t n = (size_t)(first - r.block); r.block + n < r.x; n++)
        assert_true(fabsf(r.block[n] - 2 * once[n]) < 1e-5f * (1 + fabsf(once[n])));
    for (size_t n = (size_t)(r.d_x - r.block); r.block + n < r.d_gate; n++)
        assert_true(fabsf(r.block[n] - 2 * once[n]) < 1e-5f * (1 + fabsf(once[n])));
    release(&r);
}

// 18 rows in pieces of 5, and in two whole ones.
PLAIN_TEST(a_shorter_last_piece_has_the_gradients_of_whole_ones) {
    router r = make(odd, 20, 5, 23);
    reef_router_tape tape = r.tape, whole;
    r.rows = 18;
    assert_int_equal(reef_router_tape_init(&whole, &r.shape, 18, 9, true, NULL), REEF_OK);
    float *cut = room(r.block_floats * sizeof(*cut));
    clear_grads(&r);
    forward(&r, REEF_ROUTER_TRAIN, NULL);
    backward(&r, REEF_ROUTER_TRAIN, NULL, &r.grads);
    memcpy(cut, r.block, r.block_floats * sizeof(*cut));
    r.tape = whole;
    clear_grads(&r);
    forward(&r, REEF_ROUTER_TRAIN, NULL);
    backward(&r, REEF_ROUTER_TRAIN, NULL, &r.grads);
    for (size_t n = 0; n < r.block_floats; n++)
        assert_true(fabsf(r.block[n] - cut[n]) < 1e-5f * (1 + fabsf(cut[n])));
    r.tape = tape;
    reef_router_tape_release(&whole);
    release(&r);
}

PLAIN_TEST(inactive_pieces_get_and_give_no_gradient) {
    router r = make(odd, 20, 5, 24);
    folded f = fold(&r);
    const uint8_t active[4] = {1, 0, 1, 0};
    reef_router_params unfolded = r.params;
    r.params = f.params;
    clear_grads(&r);
    // The content of an inactive piece does not matter, not even NaN.
    for (size_t d = 0; d < 5 * 7; d++) r.x[5 * 7 + d] = NAN;
    must(reef_router_forward(&r.shape, &r.params, REEF_ROUTER_FOLDED, NULL, r.rows, r.x, active,
                             &r.tape, &why));
    reef_router_backward(&r.shape, &r.params, REEF_ROUTER_FOLDED, NULL, r.rows, r.x, active,
                         &r.tape, r.d_gate, r.d_x, NULL);
    for (size_t row = 0; row < r.rows; row++) {
        double size = 0;
        for (size_t d = 0; d < 7; d++) size += fabs((double)r.d_x[row * 7 + d]);
        if (active[row / 5])
            assert_true(size > 1e-4);
        else
            assert_true(size == 0);
    }
    r.params = unfolded;
    free(f.block);
    release(&r);
}

// ---- threads ------------------------------------------------------------------------------------

// Everything that a forward and a backward write, for a batch of many pieces and tiles.
static float *run_with_threads(reef_router_score score, size_t threads, size_t *count) {
    router r = make((reef_router_shape){.d_model = 70,
                                        .head_count = 4,
                                        .topk = 6,
                                        .d_key = 36,
                                        .side = 70,
                                        .batch_norm = true,
                                        .score = score},
                    35 * 12, 12, 31);
    reef_thread_pool *workers = NULL;
    if (threads > 0) assert_int_equal(reef_thread_pool_new(&workers, threads, NULL), REEF_OK);
    clear_grads(&r);
    forward(&r, REEF_ROUTER_TRAIN, workers);
    backward(&r, REEF_ROUTER_TRAIN, workers, &r.grads);
    reef_router_update_stats(&r.shape, &r.params, &r.tape, 0.1f);

    *count = r.block_floats + 2 * r.gates;
    float *all = room(*count * sizeof(*all));
    memcpy(all, r.block, r.block_floats * sizeof(*all));
    memcpy(all + r.block_floats, r.tape.gate, r.gates * sizeof(*all));
    memcpy(all + r.block_floats + r.gates, r.tape.indices, r.gates * sizeof(*all));
    reef_thread_pool_free(workers);
    release(&r);
    return all;
}

PLAIN_TEST(any_number_of_threads_gives_the_same_bits) {
    const size_t threads[] = {1, 2, 3, 8, 70};
    for (size_t kind = 0; kind < SCORE_COUNT; kind++) {
        size_t count, again;
        float *alone = run_with_threads(all_scores[kind], 0, &count);
        for (size_t n = 0; n < sizeof(threads) / sizeof(*threads); n++) {
            float *together = run_with_threads(all_scores[kind], threads[n], &again);
            assert_int_equal(again, count);
            assert_memory_equal(together, alone, count * sizeof(*alone));
            free(together);
        }
        free(alone);
    }
}

// ---- errors -------------------------------------------------------------------------------------

static void assert_names_row(router *r, reef_router_mode mode, const char *row) {
    must_fail(
        reef_router_forward(&r->shape, &r->params, mode, NULL, r->rows, r->x, NULL, &r->tape, &why),
        REEF_ERR_INVALID, row);
}

PLAIN_TEST(a_query_that_is_not_finite_is_named) {
    const float wrong[] = {NAN, INFINITY, -INFINITY, 3e38f};
    router r = make(odd, 20, 5, 41);
    folded f = fold(&r);
    reef_router_params unfolded = r.params;
    for (size_t c = 0; c < r.width; c++) f.params.w_query[c] = unfolded.w_query[c] = 7;
    for (size_t n = 0; n < sizeof(wrong) / sizeof(*wrong); n++) {
        float *place = r.x + 13 * r.shape.d_model;
        float before = *place;
        *place = wrong[n];
        assert_names_row(&r, REEF_ROUTER_TRAIN, "row 13 of 20");
        r.shape.batch_norm = false;
        assert_names_row(&r, REEF_ROUTER_TRAIN, "row 13 of 20");
        r.params = f.params;
        assert_names_row(&r, REEF_ROUTER_FOLDED, "row 13 of 20");
        r.params = unfolded;
        r.shape.batch_norm = true;
        *place = before;
    }
    forward(&r, REEF_ROUTER_TRAIN, NULL); // and the router is as good as before

    r.params.sub_keys_a[4] = NAN;
    assert_names_row(&r, REEF_ROUTER_TRAIN, "row 0 of 20");
    free(f.block);
    release(&r);
}

// The queries are finite, but not the mean of their squares.
PLAIN_TEST(a_variance_that_overflows_is_named) {
    router r = make(odd, 20, 5, 43);
    float *place = r.x + 13 * r.shape.d_model, before = *place;
    r.x[4 * r.shape.d_model] = 1e16f; // far out, but not the farthest
    *place = -1e20f;
    assert_names_row(&r, REEF_ROUTER_TRAIN, "row 13 of 20");
    *place = before;
    forward(&r, REEF_ROUTER_TRAIN, NULL);
    release(&r);
}

PLAIN_TEST(scores_that_overflow_are_named) {
    router r = make(odd_with(REEF_SCORE_SOFTMAX, false), 20, 5, 42);
    float *tables[] = {r.params.sub_keys_a, r.params.sub_keys_b};
    const size_t half = r.shape.d_key / 2, D = r.shape.d_model;
    // Every query is the first value of its token, over and over: finite, and mostly below 1.
    for (size_t d = 0; d < D; d++)
        for (size_t c = 0; c < r.width; c++) r.params.w_query[d * r.width + c] = d == 0;
    for (size_t n = 0; n < 2; n++) {
        const struct {
            float x, keys; // of the row named; first value of every key of the table
        } wrong[] = {{3, 3e38f}, {-3, 3e38f}, {3, -3e38f}};
        for (size_t w = 0; w < sizeof(wrong) / sizeof(*wrong); w++) {
            for (size_t i = 0; i < r.shape.side; i++) tables[n][i * half] = wrong[w].keys;
            r.x[17 * D] = 0.5f;
            forward(&r, REEF_ROUTER_TRAIN, NULL);
            r.x[17 * D] = wrong[w].x;
            assert_names_row(&r, REEF_ROUTER_TRAIN, "row 17 of 20");
            for (size_t i = 0; i < r.shape.side; i++) tables[n][i * half] = 0.1f;
        }
        // One key that scores minus infinity ranks like any other that is not chosen.
        tables[n][0] = -3e38f;
        forward(&r, REEF_ROUTER_TRAIN, NULL);
        tables[n][0] = 3e38f; // but one that scores infinity would be
        assert_names_row(&r, REEF_ROUTER_TRAIN, "row 17 of 20");
        tables[n][0] = 0.1f;
    }
    release(&r);
}

PLAIN_TEST(shapes_that_do_not_fit_together_are_refused) {
    const struct {
        reef_router_shape shape;
        const char *named;
    } wrong[] = {
        {{.d_model = 0, .head_count = 3, .topk = 3, .d_key = 6, .side = 5}, "d_model is 0"},
        {{.d_model = 7, .head_count = 0, .topk = 3, .d_key = 6, .side = 5}, "head_count is 0"},
        {{.d_model = 7, .head_count = 3, .topk = 0, .d_key = 6, .side = 5}, "topk is 0"},
        {{.d_model = 7, .head_count = 3, .topk = 3, .d_key = 0, .side = 5}, "d_key is 0"},
        {{.d_model = 7, .head_count = 3, .topk = 3, .d_key = 7, .side = 5}, "d_key is 7"},
        {{.d_model = 7, .head_count = 3, .topk = 3, .d_key = 6, .side = 0}, "side is 0"},
        {{.d_model = 7, .head_count = 3, .topk = 6, .d_key = 6, .side = 5}, "topk is 6"},
        {{.d_model = 7, .head_count = 3, .topk = 3, .d_key = 6, .side = 65537}, "side is 65537"},
        {{.d_model = SIZE_MAX, .head_count = 3, .topk = 3, .d_key = 6, .side = 5}, "d_model is"},
        {{.d_model = 7, .head_count = 3, .topk = 3, .d_key = 6, .side = 5, .score = 3},
         "no score function 3"},
    };
    must(reef_router_shape_check(&odd, &why));
    for (size_t n = 0; n < sizeof(wrong) / sizeof(*wrong); n++) {
        reef_router_tape tape;
        must_fail(reef_router_shape_check(&wrong[n].shape, &why), REEF_ERR_INVALID, wrong[n].named);
        assert_int_equal(reef_router_tape_init(&tape, &wrong[n].shape, 20, 5, true, &why),
                         REEF_ERR_INVALID);
        reef_router_tape_release(&tape); // nothing was left behind
    }
}

PLAIN_TEST(tapes_hold_whole_pieces) {
    const size_t wrong[][2] = {{0, 5}, {20, 0}, {20, 3}, {SIZE_MAX / 5 * 5, 5}};
    reef_router_tape tape;
    for (size_t n = 0; n < sizeof(wrong) / sizeof(*wrong); n++)
        assert_int_equal(reef_router_tape_init(&tape, &odd, wrong[n][0], wrong[n][1], true, &why),
                         REEF_ERR_INVALID);
    // Fewer rows than the tape has room for, and a tape for evaluation only.
    router r = make(odd, 20, 5, 51);
    folded f = fold(&r);
    must(reef_router_tape_init(&tape, &odd, 40, 5, false, &why));
    assert_null(tape.d_query);
    for (size_t rows = 0; rows <= 20; rows += 5)
        must(reef_router_forward(&odd, &f.params, REEF_ROUTER_FOLDED, NULL, rows, r.x, NULL, &tape,
                                 &why));
    r.params = f.params;
    forward(&r, REEF_ROUTER_FOLDED, NULL);
    assert_memory_equal(tape.gate, r.tape.gate, r.gates * sizeof(*tape.gate));
    reef_router_tape_release(&tape);
    free(f.block);
    release(&r);
}

static int run_with(const char *kernels) {
    // numerics/run names one of ours beside each kernel of OpenBLAS; else all have their turn.
    const char *isa = getenv("REEF_ISA");
    if (isa != NULL && strcmp(isa, kernels) != 0) return 0;
    if (reef_kernels_choose(kernels, NULL) != REEF_OK) return 0; // not on this CPU
    print_message("kernels: %s\n", reef_kernels_name());
    return test_run(NULL, NULL);
}

// With whatever kernels are the last of run_with's: which sub-keys are read does not depend on
// them, so numerics/run need not come for it.
static int run_with_tables_for_each_head(void) {
    if (getenv("REEF_ISA") != NULL) return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_agrees_with_the_plain_router),
        cmocka_unit_test(retrieval_equals_exhaustive_search_on_ties),
        cmocka_unit_test(the_first_pass_leaves_every_bit),
        cmocka_unit_test(folded_router_agrees_with_running_statistics),
        cmocka_unit_test(a_row_does_not_depend_on_the_rest_of_the_batch),
        cmocka_unit_test(backward_agrees_with_finite_differences_with_batch_norm),
        cmocka_unit_test(backward_agrees_with_finite_differences_without_batch_norm),
        cmocka_unit_test(backward_agrees_with_finite_differences_when_folded),
        cmocka_unit_test(backward_accumulates),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(a_query_that_is_not_finite_is_named),
    };
    head_keys = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    return run_with("scalar") + run_with("avx2") + run_with("avx512") +
           run_with_tables_for_each_head();
}
