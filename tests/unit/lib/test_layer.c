// One PEER layer through the library as programs of others see it: only reef/reef.h is included
// here.
#include <reef/reef.h>

#include "lib_layer.h"
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static size_t count_of(const char *name, size_t side) {
    if (name[0] == 'w' && strcmp(name, "w_query") != 0) return side * side * D;
    if (strcmp(name, "w_query") == 0) return (size_t)D * HEADS * D_KEY;
    return name[0] == 's' ? side * D_KEY / 2 : (size_t)HEADS * D_KEY;
}

static void assert_same_outputs(const float *a, const float *b) {
    assert_memory_equal(a, b, ROWS * D * sizeof(*a));
}

// The first, since it forks: this process has no thread of a pool yet.
DIRECTORY_TEST(killed_and_reopened_it_goes_on_to_the_same_bits) {
    WITHIN(directory, whole);
    WITHIN(directory, killed);
    reef_layer_options options = lib_layer_options();
    float expected[ROWS * D], y[ROWS * D];
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        reef_pool *pool = lib_layer_new(killed, &options);
        (void)lib_train(pool, 1, 0, 6);
        must(reef_pool_seal(pool, 0, &why));
        (void)lib_train(pool, 2, 0, 4);
        must(reef_pool_commit(pool, NULL, &why));
        (void)lib_train(pool, 2, 4, 7); // is lost
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));

    reef_pool *pool = lib_layer_new(whole, &options);
    (void)lib_train(pool, 1, 0, 6);
    must(reef_pool_seal(pool, 0, &why));
    (void)lib_train(pool, 2, 0, 10);
    lib_outputs(pool, 0, expected);
    reef_pool_close(pool);

    pool = lib_pool_open(killed, 1, NULL, 1);
    reef_pool_info info = {.size = sizeof(info)};
    must(reef_pool_read_info(pool, &info, &why));
    assert_int_equal(info.step, 10);
    assert_int_equal(info.position, 10 * ROWS);
    (void)lib_train(pool, 2, 4, 10);
    lib_outputs(pool, 0, y);
    assert_same_outputs(y, expected);
    reef_pool_close(pool);
}

// ---- gradients ----------------------------------------------------------------------------------

#define LIMIT 1e-3 // right ones are near 1e-4, a wrong coefficient in one term near 1e-1

typedef struct gradients {
    reef_pool *pool;
    reef_tape *tape;
    reef_layer_call call;
    const char *name; // of the parameter that is moved; NULL: x
    size_t count;
    float values[1024];
    float x[ROWS * D], d_y[ROWS * D];
} gradients;

static double loss_of(void *context) {
    gradients *g = context;
    float y[ROWS * D];
    double sum = 0;
    if (g->name != NULL) must(reef_layer_write(g->pool, g->name, g->values, g->count, &why));
    must(reef_layer_forward(g->pool, &g->call, ROWS, g->x, y, g->tape, &why));
    for (size_t i = 0; i < ROWS * D; i++) sum += (double)y[i] * (double)g->d_y[i];
    return sum;
}

// gradcheck_error_max of the elements at which both sides of a step agree. At a few a step changes
// which experts are chosen: there the loss jumps, and has no slope.
static double smooth_error_max(size_t count, float *x, const float *d_x, gradients *g) {
    double worst = 0, middle = loss_of(g);
    size_t jumps = 0;
    for (size_t i = 0; i < count; i++) {
        const float kept = x[i], step = 2e-3f;
        volatile float above = kept + step, below = kept - step;
        x[i] = above;
        double up = (loss_of(g) - middle) / ((double)above - (double)kept);
        x[i] = below;
        double down = (middle - loss_of(g)) / ((double)kept - (double)below);
        x[i] = kept;
        if (fabs(up - down) > 0.01) {
            jumps++;
            continue;
        }
        double analytic = (double)d_x[i], numeric = (up + down) / 2;
        double size = fmax(0.1, fmax(fabs(analytic), fabs(numeric)));
        worst = fmax(worst, fabs(analytic - numeric) / size);
    }
    assert_true(jumps <= count / 2);
    return worst;
}

// Keys far apart and short steps, so that a step seldom changes which experts are chosen.
static void spread_keys(gradients *g) {
    static const char *const names[] = {"sub_keys_a", "sub_keys_b"};
    uint64_t state = 5;
    for (size_t n = 0; n < 2; n++) {
        float keys[SIDE * D_KEY / 2];
        draw_floats(&state, SIDE * D_KEY / 2, keys, -2.0f, 2.0f);
        must(reef_layer_write(g->pool, names[n], keys, SIDE * D_KEY / 2, &why));
    }
}

static void check_gradients(const char *path, const reef_layer_options *options, uint8_t *mask) {
    static const char *const names[] = {"w_down",     "w_up",       "w_gate",   "w_query",
                                        "sub_keys_a", "sub_keys_b", "bn_scale", "bn_shift"};
    gradients g = {.pool = lib_layer_new(path, options)};
    float d_x[ROWS * D], d_values[sizeof(names) / sizeof(*names)][1024];
    uint64_t state = 11;
    size_t checked = 0;
    must(reef_tape_new(&g.tape, &why));
    g.call = (reef_layer_call){.size = sizeof(g.call), .train = 1, .mask = mask};
    draw_floats(&state, ROWS * D, g.x, -1.0f, 1.0f);
    draw_floats(&state, ROWS * D, g.d_y, -0.1f, 0.1f);
    spread_keys(&g);

    (void)loss_of(&g);
    must(reef_layer_backward(g.pool, g.tape, g.x, g.d_y, d_x, &why));
    for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
        reef_status status =
            reef_layer_gradient(g.pool, names[n], d_values[n], count_of(names[n], SIDE), &why);
        if (status != REEF_OK) assert_int_equal(status, REEF_ERR_NOT_FOUND);
        d_values[n][1023] = status == REEF_OK ? 1.0f : 0.0f; // is there
    }
    must(reef_layer_discard(g.pool, &why));
    double error = smooth_error_max(ROWS * D, g.x, d_x, &g);
    if (error >= LIMIT) fail_msg("x: error %g", error);
    for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
        if (d_values[n][1023] == 0.0f) continue;
        g.name = names[n];
        g.count = count_of(names[n], SIDE);
        must(reef_layer_read(g.pool, 0, g.name, g.values, g.count, &why));
        error = smooth_error_max(g.count, g.values, d_values[n], &g);
        if (error >= LIMIT) fail_msg("%s: error %g", g.name, error);
        (void)loss_of(&g); // with the values as they were
        checked++;
    }
    assert_true(checked >= 5);
    reef_tape_free(g.tape);
    reef_pool_close(g.pool);
}

DIRECTORY_TEST(backward_agrees_with_finite_differences) {
    WITHIN(directory, plain);
    WITHIN(directory, normed);
    WITHIN(directory, gated);
    WITHIN(directory, sigmoid);
    reef_layer_options options = lib_layer_options();
    check_gradients(normed, &options, NULL);
    options.no_batch_norm = 1;
    check_gradients(plain, &options, NULL);
    options.expert = "glu";
    uint8_t mask[ROWS];
    for (size_t r = 0; r < ROWS; r++) mask[r] = r % 3 != 0;
    check_gradients(gated, &options, mask);
    options.expert = "gelu";
    options.score = "sigmoid";
    check_gradients(sigmoid, &options, NULL);
}

// The gradient of x through what is sealed, beside an open generation that learns.
DIRECTORY_TEST(gradients_pass_through_sealed_generations) {
    WITHIN(directory, pool);
    reef_layer_options options = lib_layer_options();
    options.no_batch_norm = 1;
    gradients g = {.pool = lib_layer_new(pool, &options)};
    float d_x[ROWS * D], d_evaluated[ROWS * D];
    uint64_t draws = 12;
    must(reef_tape_new(&g.tape, &why));
    spread_keys(&g);
    must(reef_pool_seal(g.pool, SIDE, &why));
    spread_keys(&g);
    (void)lib_train(g.pool, 1, 0, 3);
    draw_floats(&draws, ROWS * D, g.x, -1.0f, 1.0f);
    draw_floats(&draws, ROWS * D, g.d_y, -0.1f, 0.1f);
    g.call = (reef_layer_call){.size = sizeof(g.call), .train = 1};
    (void)loss_of(&g);
    must(reef_layer_backward(g.pool, g.tape, g.x, g.d_y, d_x, &why));
    must(reef_layer_discard(g.pool, &why));
    double error = smooth_error_max(ROWS * D, g.x, d_x, &g);
    if (error >= LIMIT) fail_msg("x: error %g", error);
    // Evaluated, without batch norm, it is the same function.
    g.call.train = 0;
    (void)loss_of(&g);
    must(reef_layer_backward(g.pool, g.tape, g.x, g.d_y, d_evaluated, &why));
    for (size_t i = 0; i < ROWS * D; i++) assert_true(fabsf(d_x[i] - d_evaluated[i]) <= 1e-5f);
    reef_tape_free(g.tape);
    reef_pool_close(g.pool);
}

// ---- bits ---------------------------------------------------------------------------------------

DIRECTORY_TEST(any_number_of_threads_gives_the_same_bits) {
    WITHIN(directory, one);
    WITHIN(directory, four);
    const char *const paths[] = {one, four};
    float y[2][ROWS * D], w_up[2][SIDE * SIDE * D];
    reef_layer_options options = lib_layer_options();
    for (int p = 0; p < 2; p++) {
        must(reef_pool_create_layer(paths[p], &options, &why));
        reef_pool *pool = lib_pool_open(paths[p], 1, NULL, p == 0 ? 1 : 4);
        (void)lib_train(pool, 1, 0, 20);
        lib_outputs(pool, 0, y[p]);
        must(reef_layer_read(pool, 0, "w_up", w_up[p], SIDE * SIDE * D, &why));
        reef_pool_close(pool);
    }
    assert_same_outputs(y[0], y[1]);
    assert_memory_equal(w_up[0], w_up[1], sizeof(w_up[0]));
}

LAYER_TEST(a_row_does_not_depend_on_the_rows_beside_it) {
    float x[ROWS * D], target[ROWS * D], all[ROWS * D], some[ROWS * D];
    (void)lib_train(f->layer, 1, 0, 5);
    lib_batch(2, 0, ROWS, x, target);
    must(reef_layer_forward(f->layer, NULL, ROWS, x, all, NULL, &why));
    for (size_t rows = 1; rows < ROWS; rows += 9) {
        must(reef_layer_forward(f->layer, NULL, rows, x, some, NULL, &why));
        assert_memory_equal(some, all, rows * D * sizeof(float));
    }
    // With a tape too, for which nothing is cut into stretches.
    must(reef_layer_forward(f->layer, NULL, ROWS, x, some, f->tape, &why));
    assert_same_outputs(some, all);
}

// Sizes at which BLAS sums products of few rows in another order than those of many.
DIRECTORY_TEST(nor_does_a_row_of_a_wide_layer) {
    WITHIN(directory, pool);
    enum { WIDE = 200, COUNT = 70 };
    static float x[COUNT * WIDE], all[COUNT * WIDE], some[COUNT * WIDE];
    const reef_layer_options options = {
        .size = sizeof(options), .d_model = WIDE, .heads = 3, .topk = 8, .d_key = 90, .side = 40};
    reef_pool *layer = lib_layer_new(pool, &options);
    uint64_t draws = 7;
    draw_floats(&draws, COUNT * WIDE, x, -1.0f, 1.0f);
    must(reef_layer_forward(layer, NULL, COUNT, x, all, NULL, &why));
    for (size_t rows = 1; rows < COUNT; rows++) {
        must(reef_layer_forward(layer, NULL, rows, x, some, NULL, &why));
        assert_memory_equal(some, all, rows * WIDE * sizeof(float));
    }
    reef_pool_close(layer);
}

LAYER_TEST(as_of_stays_the_same_bits_after_further_training) {
    float sealed[ROWS * D], begun[ROWS * D], marked[ROWS * D], now[ROWS * D], again[ROWS * D];
    (void)lib_train(f->layer, 1, 0, 15);
    lib_outputs(f->layer, 0, sealed);
    must(reef_pool_seal(f->layer, 0, &why));
    lib_outputs(f->layer, 0, begun); // the new one adds nothing yet
    assert_same_outputs(begun, sealed);
    (void)lib_train(f->layer, 2, 0, 15);
    lib_outputs(f->layer, 0, marked);
    assert_memory_not_equal(marked, sealed, sizeof(marked));
    lib_outputs(f->layer, 1, again);
    assert_same_outputs(again, sealed);
    must(reef_pool_snapshot(f->layer, "halfway", &why));
    must(reef_pool_seal(f->layer, 0, &why));
    (void)lib_train(f->layer, 3, 0, 15);
    must(reef_pool_commit(f->layer, NULL, &why));
    lib_outputs(f->layer, 0, now);

    const char *const states[] = {"0", "halfway", "1", "now", NULL};
    const float *const expected[] = {sealed, marked, marked, now, now};
    for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
        reef_pool *reader = lib_pool_open(f->path, 0, states[i], 1);
        lib_outputs(reader, 0, again);
        assert_same_outputs(again, expected[i]);
        lib_outputs(reader, 1, again);
        assert_same_outputs(again, sealed);
        reef_pool_close(reader);
    }
    lib_outputs(f->layer, 2, again);
    assert_same_outputs(again, marked);
}

// The running statistics of queries too: they move with the step, batch by batch, or are forgotten
// with the rest.
LAYER_TEST(backward_alone_changes_nothing) {
    float x[ROWS * D], y[ROWS * D], d_x[ROWS * D], d_y[ROWS * D], before[ROWS * D], after[ROWS * D];
    uint64_t seed = 17;
    const reef_layer_call call = {.size = sizeof(call), .train = 1};
    (void)lib_train(f->layer, 1, 0, 3);
    must(reef_pool_commit(f->layer, NULL, &why));
    lib_outputs(f->layer, 0, before);
    draw_floats(&seed, ROWS * D, x, -1.0f, 1.0f);
    draw_floats(&seed, ROWS * D, d_y, -0.1f, 0.1f);
    for (size_t i = 0; i < 7; i++) {
        must(reef_layer_forward(f->layer, &call, ROWS, x, y, f->tape, &why));
        must(reef_layer_backward(f->layer, f->tape, x, d_y, d_x, &why));
    }
    lib_outputs(f->layer, 0, after);
    assert_same_outputs(after, before);
    must(reef_pool_commit(f->layer, NULL, &why)); // without what is collected
    reef_pool_close(f->layer);
    f->layer = lib_pool_open(f->path, 1, NULL, 1);
    lib_outputs(f->layer, 0, after);
    assert_same_outputs(after, before);
}

// What is sealed stays in the file: the same bits as from memory, while reading and while learning
// on top of it.
DIRECTORY_TEST(rows_that_are_read_in_place_have_the_same_bits) {
    WITHIN(directory, memory);
    WITHIN(directory, place);
    const char *const paths[] = {memory, place};
    reef_layer_options options = lib_layer_options();
    float y[2][ROWS * D], sealed[ROWS * D], again[ROWS * D];
    for (int p = 0; p < 2; p++) {
        reef_pool *pool = lib_layer_new(paths[p], &options);
        (void)lib_train(pool, 1, 0, 5);
        must(reef_pool_seal(pool, 0, &why));
        lib_outputs(pool, 1, sealed);
        reef_pool_close(pool);
        const reef_pool_options little = {
            .size = sizeof(little), .write = 1, .threads = 2, .memory_bytes = p == 0 ? 0 : 1};
        must(reef_pool_open(&pool, paths[p], &little, &why));
        (void)lib_train(pool, 2, 0, 5);
        must(reef_pool_commit(pool, NULL, &why));
        (void)lib_train(pool, 2, 5, 8);
        lib_outputs(pool, 0, y[p]);
        lib_outputs(pool, 1, again);
        assert_same_outputs(again, sealed);
        must(reef_pool_commit(pool, NULL, &why));
        reef_pool_close(pool);
        const reef_pool_options reading = {.size = sizeof(reading), .memory_bytes = 1};
        must(reef_pool_open(&pool, paths[p], &reading, &why));
        lib_outputs(pool, 0, again);
        assert_same_outputs(again, y[p]);
        reef_pool_close(pool);
    }
    assert_same_outputs(y[1], y[0]);
}

typedef struct caller {
    reef_pool *pool;
    pthread_t thread;
    float y[ROWS * D];
} caller;

static void *call_often(void *context) {
    caller *c = context;
    for (int i = 0; i < 20; i++) lib_outputs(c->pool, 0, c->y);
    return NULL;
}

LAYER_TEST(calls_of_many_threads_are_serialised) {
    static caller callers[4];
    float expected[ROWS * D];
    lib_outputs(f->layer, 0, expected);
    for (size_t i = 0; i < 4; i++) {
        callers[i].pool = f->layer;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        assert_same_outputs(callers[i].y, expected);
    }
}

// ---- learning -----------------------------------------------------------------------------------

LAYER_TEST(steps_bring_the_loss_down) {
    double before = lib_train(f->layer, 1, 0, 1), after = lib_train(f->layer, 1, 1, 400);
    assert_true(after < 0.5 * before);
}

// What is collected over several batches is one step, that of all of them together.
DIRECTORY_TEST(many_batches_give_the_step_of_one) {
    WITHIN(directory, parts);
    WITHIN(directory, whole);
    enum { FIRST = 30 };
    const char *const paths[] = {whole, parts};
    reef_layer_options options = lib_layer_options();
    options.no_batch_norm = 1;
    float x[ROWS * D], d_y[ROWS * D], y[ROWS * D], d_x[ROWS * D];
    float rows[2][SIDE * SIDE * D], query[2][D * HEADS * D_KEY];
    lib_batch(1, 0, ROWS, x, d_y);
    for (int p = 0; p < 2; p++) {
        reef_pool *pool = lib_layer_new(paths[p], &options);
        reef_tape *tapes[2];
        reef_pool_info info = {.size = sizeof(info)};
        const reef_layer_call call = {.size = sizeof(call), .train = 1};
        size_t cut = p == 0 ? ROWS : FIRST, count = p == 0 ? 1 : 2;
        for (size_t i = 0; i < count; i++) { // both forwards, then both backwards
            size_t at = i * cut, n = i == 0 ? cut : ROWS - cut;
            must(reef_tape_new(&tapes[i], &why));
            must(reef_layer_forward(pool, &call, n, x + at * D, y, tapes[i], &why));
        }
        for (size_t i = 0; i < count; i++)
            must(
                reef_layer_backward(pool, tapes[i], x + i * cut * D, d_y + i * cut * D, d_x, &why));
        must(reef_pool_read_info(pool, &info, &why));
        assert_int_equal(info.collected, ROWS);
        must(reef_layer_step(pool, 0.02f, &why));
        must(reef_pool_read_info(pool, &info, &why));
        assert_int_equal(info.collected, 0);
        assert_int_equal(info.step, 1);
        must(reef_layer_read(pool, 0, "w_up", rows[p], SIDE * SIDE * D, &why));
        must(reef_layer_read(pool, 0, "w_query", query[p], D * HEADS * D_KEY, &why));
        for (size_t i = 0; i < count; i++) reef_tape_free(tapes[i]);
        reef_pool_close(pool);
    }
    assert_memory_equal(rows[0], rows[1], sizeof(rows[0]));
    // Sums of products are rounded in another order.
    for (size_t i = 0; i < D * HEADS * D_KEY; i++)
        assert_true(fabsf(query[0][i] - query[1][i]) < 1e-3f);
}

LAYER_TEST(a_mask_decides_row_by_row) {
    uint8_t mask[2 * ROWS];
    float x[ROWS * D], target[ROWS * D], first[ROWS * D], both[ROWS * D], masked[ROWS * D];
    (void)lib_train(f->layer, 1, 0, 5);
    must(reef_pool_seal(f->layer, 0, &why));
    (void)lib_train(f->layer, 2, 0, 5);
    lib_batch(9, 0, ROWS, x, target);
    lib_outputs(f->layer, 1, first);
    lib_outputs(f->layer, 2, both);
    for (size_t r = 0; r < ROWS; r++) {
        mask[r] = r % 5 != 4;
        mask[ROWS + r] = r % 2;
    }
    const reef_layer_call call = {.size = sizeof(call), .mask = mask};
    must(reef_layer_forward(f->layer, &call, ROWS, x, masked, NULL, &why));
    for (size_t r = 0; r < ROWS; r++) {
        const float *expected = mask[ROWS + r] ? both : first;
        if (mask[r]) assert_memory_equal(masked + r * D, expected + r * D, D * sizeof(float));
        for (size_t d = 0; !mask[r] && !mask[ROWS + r] && d < D; d++)
            assert_true(masked[r * D + d] == 0.0f);
    }
    // Where it takes no part, the open generation learns nothing.
    float before[SIDE * SIDE * D], after[SIDE * SIDE * D];
    uint64_t counts[SIDE * SIDE], sum = 0;
    memset(mask + ROWS, 0, ROWS);
    must(reef_layer_read(f->layer, 1, "w_up", before, SIDE * SIDE * D, &why));
    (void)lib_train_step(f->layer, f->tape, 2, 5, mask);
    must(reef_layer_read(f->layer, 1, "w_up", after, SIDE * SIDE * D, &why));
    assert_memory_equal(before, after, sizeof(before));
    // And of the rest only the rows that it met count as uses.
    memset(mask + ROWS, 1, 10);
    (void)lib_train_step(f->layer, f->tape, 2, 6, mask);
    must(reef_pool_commit(f->layer, NULL, &why));
    must(reef_pool_usage(f->layer, 1, 0, 0, 0, counts, NULL, SIDE * SIDE, &why));
    for (size_t n = 0; n < SIDE * SIDE; n++) sum += counts[n];
    assert_int_equal(sum, (5 * ROWS + 10) * HEADS * TOPK);
}

// A state that was opened before a writer let the generation grow still reports its own experts.
LAYER_TEST(usage_of_what_has_grown_since_is_that_of_the_experts_there_were) {
    enum { LARGER = 7 };
    uint64_t all[LARGER * LARGER], ours[SIDE * SIDE];
    double weights[LARGER * LARGER], our_weights[SIDE * SIDE];
    (void)lib_train(f->layer, 1, 0, 5);
    must(reef_pool_commit(f->layer, NULL, &why));
    reef_pool *reader = lib_pool_open(f->path, 0, NULL, 1);
    must(reef_pool_grow(f->layer, LARGER, &why));
    (void)lib_train(f->layer, 1, 5, 10);
    must(reef_pool_commit(f->layer, NULL, &why));
    must(reef_pool_usage(f->layer, 0, 0, 0, 0, all, weights, LARGER * LARGER, &why));
    must(reef_pool_usage(reader, 0, 0, 0, 0, ours, our_weights, SIDE * SIDE, &why));
    assert_memory_equal(ours, all, sizeof(ours));
    assert_memory_equal(our_weights, weights, sizeof(our_weights));
    assert_int_equal(reef_pool_usage(reader, 0, 0, 0, 0, all, NULL, LARGER * LARGER, &why),
                     REEF_ERR_INVALID);
    memset(ours, 0, sizeof(ours));
    must(reef_pool_usage(reader, 0, 0, 1, 0, ours, NULL, SIDE * SIDE, &why));
    assert_memory_equal(ours, all, sizeof(ours));
    reef_pool_close(reader);
}

LAYER_TEST(growing_keeps_experts_and_ids) {
    enum { LARGER = 7 };
    float before[SIDE * SIDE * D], after[LARGER * LARGER * D];
    (void)lib_train(f->layer, 1, 0, 5);
    must(reef_layer_read(f->layer, 0, "w_up", before, SIDE * SIDE * D, &why));
    must(reef_pool_grow(f->layer, LARGER, &why));
    must(reef_layer_read(f->layer, 0, "w_up", after, LARGER * LARGER * D, &why));
    assert_memory_equal(after, before, sizeof(before));
    for (size_t i = SIDE * SIDE * D; i < LARGER * LARGER * D; i++) assert_true(after[i] == 0.0f);
    assert_int_equal(reef_expert_id_of(SIDE, SIDE), SIDE * SIDE + SIDE);
    (void)lib_train(f->layer, 1, 5, 10); // and continues
    reef_generation_info info = {.size = sizeof(info)};
    must(reef_pool_read_generation(f->layer, 0, &info, &why));
    assert_int_equal(info.side, LARGER);
    assert_false(info.sealed);
}

// ---- sealing in int8 ----------------------------------------------------------------------------

DIRECTORY_TEST(sealed_rows_in_int8_are_rounded_once) {
    WITHIN(directory, pool);
    reef_layer_options options = lib_layer_options();
    options.seal_dtype = "int8";
    reef_pool *layer = lib_layer_new(pool, &options);
    float open[ROWS * D], sealed[ROWS * D], later[ROWS * D];
    (void)lib_train(layer, 1, 0, 5);
    lib_outputs(layer, 0, open);
    must(reef_pool_seal(layer, 0, &why));
    lib_outputs(layer, 0, sealed);
    assert_memory_not_equal(open, sealed, sizeof(open));
    for (size_t i = 0; i < ROWS * D; i++) assert_true(fabsf(open[i] - sealed[i]) < 0.05f);
    (void)lib_train(layer, 2, 0, 5);
    lib_outputs(layer, 1, later);
    assert_same_outputs(later, sealed);
    reef_pool_close(layer);
    layer = lib_pool_open(pool, 0, "0", 2);
    lib_outputs(layer, 0, later);
    assert_same_outputs(later, sealed);
    reef_pool_close(layer);
}

// ---- tapes --------------------------------------------------------------------------------------

enum { WIDEST = 64 };

// Of a forward and a backward with this tape.
static void pass_through(reef_pool *layer, reef_tape *tape, size_t d_model, float *y, float *d_x) {
    static float x[ROWS * WIDEST], d_y[ROWS * WIDEST];
    const reef_layer_call call = {.size = sizeof(call), .train = 1};
    uint64_t draws = 4;
    draw_floats(&draws, ROWS * d_model, x, -1.0f, 1.0f);
    draw_floats(&draws, ROWS * d_model, d_y, -0.1f, 0.1f);
    must(reef_layer_forward(layer, &call, ROWS, x, y, tape, &why));
    must(reef_layer_backward(layer, tape, x, d_y, d_x, &why));
    must(reef_layer_discard(layer, &why));
}

DIRECTORY_TEST(a_tape_serves_one_layer_after_another) {
    static float y[2][ROWS * WIDEST], d_x[2][ROWS * WIDEST];
    reef_layer_options others[6];
    for (size_t i = 0; i < 6; i++) others[i] = lib_layer_options();
    others[0].d_model = WIDEST;
    others[1].heads = 3; // with as many experts a row
    others[1].topk = 2;
    others[2].topk = 4;
    others[3].d_key = 40;
    others[4].expert = "glu";
    others[5].score = "relu";
    for (size_t i = 0; i < 12; i++) {
        char first_path[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES], name[32];
        reef_layer_options first_options = lib_layer_options();
        reef_tape *used, *fresh;
        first_options.no_batch_norm = i < 6; // of the first one
        snprintf(name, sizeof(name), "first%zu", i);
        temp_dir_join(first_path, directory, name);
        snprintf(name, sizeof(name), "other%zu", i);
        temp_dir_join(path, directory, name);
        reef_pool *first = lib_layer_new(first_path, &first_options);
        reef_pool *other = lib_layer_new(path, &others[i % 6]);
        size_t d_model = others[i % 6].d_model, bytes = ROWS * d_model * sizeof(float);
        must(reef_tape_new(&used, &why));
        must(reef_tape_new(&fresh, &why));
        pass_through(first, used, D, y[0], d_x[0]);
        pass_through(other, used, d_model, y[0], d_x[0]);
        pass_through(other, fresh, d_model, y[1], d_x[1]);
        assert_memory_equal(y[0], y[1], bytes);
        assert_memory_equal(d_x[0], d_x[1], bytes);
        reef_tape_free(used);
        reef_tape_free(fresh);
        reef_pool_close(other);
        reef_pool_close(first);
    }
}

LAYER_TEST(no_row_is_no_batch) {
    float var[2][HEADS * D_KEY], y[ROWS * D], d_x[ROWS * D], none[1];
    const reef_layer_call call = {.size = sizeof(call), .train = 1};
    for (size_t empty = 0; empty < 2; empty++) {
        reef_tape *tape;
        must(reef_tape_new(&tape, &why));
        for (size_t n = 0; n < 2; n++) {
            float x[ROWS * D], d_y[ROWS * D];
            uint64_t draws = 9;
            draw_floats(&draws, ROWS * D, x, -1.0f, 1.0f);
            draw_floats(&draws, ROWS * D, d_y, -0.1f, 0.1f);
            if (empty && n == 0) { // a new tape
                must(reef_layer_forward(f->layer, &call, 0, none, none, tape, &why));
                must(reef_layer_backward(f->layer, tape, none, none, none, &why));
            }
            must(reef_layer_forward(f->layer, &call, ROWS, x, y, tape, &why));
            must(reef_layer_backward(f->layer, tape, x, d_y, d_x, &why));
            if (empty) {
                must(reef_layer_forward(f->layer, &call, 0, none, none, tape, &why));
                must(reef_layer_backward(f->layer, tape, none, none, none, &why));
            }
        }
        must(reef_layer_forward(f->layer, NULL, 0, NULL, NULL, NULL, &why));
        must(reef_layer_step(f->layer, 0.0f, &why));
        must(reef_layer_read(f->layer, 0, "bn_var", var[empty], HEADS * D_KEY, &why));
        reef_tape_free(tape);
        reef_pool_close(f->layer); // the step is forgotten
        f->layer = lib_pool_open(f->path, 1, NULL, 2);
    }
    assert_memory_equal(var[0], var[1], sizeof(var[0]));
}

// ---- mistakes -----------------------------------------------------------------------------------

LAYER_TEST(mistakes_are_reported_and_change_nothing) {
    reef_layer_options options = lib_layer_options();
    reef_pool *other;
    reef_tape *unused;
    float x[ROWS * D], target[ROWS * D], y[ROWS * D], before[ROWS * D], after[ROWS * D];
    reef_layer_call train = {.size = sizeof(train), .train = 1};
    must(reef_tape_new(&unused, &why));
    (void)lib_train(f->layer, 1, 0, 3);
    must(reef_pool_commit(f->layer, NULL, &why));
    lib_outputs(f->layer, 0, before);
    lib_batch(1, 0, ROWS, x, target);

    must_fail(reef_pool_create_layer(f->path, &options, &why), REEF_ERR_INVALID, "exists");
    must_fail(reef_pool_open(&other, f->path,
                             &(reef_pool_options){.size = sizeof(reef_pool_options), .write = 1},
                             &why),
              REEF_ERR_BUSY, "writ");
    assert_null(other);
    must_fail(reef_pool_open(&other, f->path, &(reef_pool_options){.size = 0}, &why),
              REEF_ERR_INVALID, "sizeof");
    must_fail(reef_layer_backward(f->layer, unused, x, y, y, &why), REEF_ERR_INVALID, "no forward");
    must_fail(reef_layer_forward(f->layer, &train, ROWS, x, y, NULL, &why), REEF_ERR_INVALID,
              "tape");
    train.generations = 2;
    must_fail(reef_layer_forward(f->layer, &train, ROWS, x, y, f->tape, &why), REEF_ERR_INVALID,
              "2 generations");
    train.generations = 0;
    // A step that came between.
    must(reef_layer_forward(f->layer, &train, ROWS, x, y, f->tape, &why));
    must(reef_layer_forward(f->layer, &train, ROWS, x, y, unused, &why));
    must(reef_layer_backward(f->layer, unused, x, y, target, &why));
    must_fail(reef_layer_backward(f->layer, unused, x, y, target, &why), REEF_ERR_INVALID,
              "no forward");
    must_fail(reef_pool_seal(f->layer, 0, &why), REEF_ERR_INVALID, "collected");
    must_fail(reef_pool_grow(f->layer, 9, &why), REEF_ERR_INVALID, "collected");
    must_fail(reef_layer_write(f->layer, "w_up", y, SIDE * SIDE * D, &why), REEF_ERR_INVALID,
              "collected");
    must(reef_layer_step(f->layer, 1e-3f, &why));
    must_fail(reef_layer_backward(f->layer, f->tape, x, y, target, &why), REEF_ERR_INVALID,
              "changed");
    must_fail(reef_layer_step(f->layer, -1.0f, &why), REEF_ERR_INVALID, "learning rate");
    must_fail(reef_layer_read(f->layer, 0, "w_up", y, 3, &why), REEF_ERR_INVALID, "175 values");
    must_fail(reef_layer_read(f->layer, 0, "query_bias", y, 12, &why), REEF_ERR_NOT_FOUND, "open");
    must_fail(reef_layer_read(f->layer, 1, "w_up", y, 3, &why), REEF_ERR_NOT_FOUND, "generation 1");
    must_fail(reef_pool_train(f->layer, "text", "abc", 3, &why), REEF_ERR_INVALID, "no stream");
    x[3 * D] = (float)NAN;
    must_fail(reef_layer_forward(f->layer, NULL, ROWS, x, y, NULL, &why), REEF_ERR_INVALID,
              "row 3");
    reef_pool_close(f->layer); // the step is forgotten

    f->layer = lib_pool_open(f->path, 0, NULL, 1);
    lib_outputs(f->layer, 0, after);
    assert_same_outputs(after, before);
    must_fail(reef_layer_forward(f->layer, &train, ROWS, x, y, f->tape, &why), REEF_ERR_INVALID,
              "reading");
    must_fail(reef_pool_commit(f->layer, NULL, &why), REEF_ERR_INVALID, "opened for reading");
    must_fail(reef_layer_step(f->layer, 0, &why), REEF_ERR_INVALID, "opened for reading");
    must_fail(reef_pool_evaluate(f->layer, "abc", 3, NULL, NULL, &why), REEF_ERR_INVALID, "layer");
    reef_tape_free(unused);
    reef_tape_free(NULL);
    reef_pool_close(NULL);
}

DIRECTORY_TEST(sizes_that_do_not_fit_make_no_pool) {
    WITHIN(directory, pool);
    reef_layer_options options = lib_layer_options();
    options.d_model = 0;
    must_fail(reef_pool_create_layer(pool, &options, &why), REEF_ERR_INVALID, "d_model");
    options = lib_layer_options();
    options.topk = SIDE + 1;
    must_fail(reef_pool_create_layer(pool, &options, &why), REEF_ERR_INVALID, "topk");
    options = lib_layer_options();
    options.expert = "swish";
    must_fail(reef_pool_create_layer(pool, &options, &why), REEF_ERR_INVALID, "gelu, relu or glu");
    options = lib_layer_options();
    options.experts_max = SIDE * SIDE + 1;
    reef_pool *layer = lib_layer_new(pool, &options);
    must_fail(reef_pool_seal(layer, 0, &why), REEF_ERR_FULL, "no room");
    must_fail(reef_pool_grow(layer, SIDE + 1, &why), REEF_ERR_FULL, "experts_max");
    reef_pool_close(layer);
    WITHIN(directory, other);
    options.experts_max = SIDE * SIDE - 1;
    must_fail(reef_pool_create_layer(other, &options, &why), REEF_ERR_INVALID,
              "25 experts of the first");
}

LAYER_TEST(arrays_that_overlap_are_refused) {
    reef_layer_call train = {.size = sizeof(train), .train = 1};
    float x[2 * ROWS * D], d_y[2 * ROWS * D], y[ROWS * D], target[ROWS * D], d_x[ROWS * D];
    lib_batch(1, 0, ROWS, x, target);
    memcpy(d_y, target, sizeof(target));
    const size_t places[] = {0, 1, ROWS * D - 1};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        size_t at = places[i];
        must_fail(reef_layer_forward(f->layer, NULL, ROWS, x, x + at, NULL, &why), REEF_ERR_INVALID,
                  "memory of x");
        must_fail(reef_layer_forward(f->layer, &train, ROWS, x + at, x, f->tape, &why),
                  REEF_ERR_INVALID, "memory of x");
        must(reef_layer_forward(f->layer, &train, ROWS, x, y, f->tape, &why));
        must_fail(reef_layer_backward(f->layer, f->tape, x, d_y, x + at, &why), REEF_ERR_INVALID,
                  "memory of x or d_y");
        must_fail(reef_layer_backward(f->layer, f->tape, x, d_y + at, d_y, &why), REEF_ERR_INVALID,
                  "memory of x or d_y");
        must(reef_layer_backward(f->layer, f->tape, x, x, d_x, &why)); // both are only read
    }
    // Beside each other they may lie.
    must(reef_layer_forward(f->layer, NULL, ROWS, x, x + ROWS * D, NULL, &why));
    must(reef_layer_forward(f->layer, NULL, ROWS, x + ROWS * D, x, NULL, &why));
}

LAYER_TEST(a_reopened_layer_knows_no_earlier_forward) {
    float x[ROWS * D], target[ROWS * D], y[ROWS * D], d_x[ROWS * D];
    lib_batch(1, 0, ROWS, x, target);
    for (size_t i = 0; i < 20; i++) { // the memory of one may well be that of the next
        const reef_layer_call call = {.size = sizeof(call)};
        must(reef_layer_forward(f->layer, &call, ROWS, x, y, f->tape, &why));
        reef_pool_close(f->layer);
        f->layer = lib_pool_open(f->path, 1, NULL, 2);
        must_fail(reef_layer_backward(f->layer, f->tape, x, target, d_x, &why), REEF_ERR_INVALID,
                  "no forward");
    }
}

// ---- values that are not finite -----------------------------------------------------------------

static void assert_same_layer(reef_pool *layer, const float *before) {
    float after[ROWS * D];
    lib_outputs(layer, 0, after);
    assert_same_outputs(after, before);
}

LAYER_TEST(gradients_that_are_not_finite_change_nothing) {
    const float wrong[] = {NAN, INFINITY, -INFINITY};
    const reef_layer_call train = {.size = sizeof(train), .train = 1};
    float x[ROWS * D], d_y[ROWS * D], y[ROWS * D], d_x[ROWS * D], before[ROWS * D];
    reef_pool_info info = {.size = sizeof(info)};
    (void)lib_train(f->layer, 1, 0, 3);
    lib_outputs(f->layer, 0, before);
    lib_batch(1, 3, ROWS, x, d_y);
    must(reef_layer_forward(f->layer, &train, ROWS, x, y, f->tape, &why));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        float kept = d_y[3 * D + 2];
        d_y[3 * D + 2] = wrong[i];
        must_fail(reef_layer_backward(f->layer, f->tape, x, d_y, d_x, &why), REEF_ERR_INVALID,
                  "row 3 of 75");
        d_y[3 * D + 2] = kept;
    }
    must(reef_pool_read_info(f->layer, &info, &why));
    assert_int_equal(info.collected, 0);
    must(reef_layer_backward(f->layer, f->tape, x, d_y, d_x, &why)); // the tape is as it was

    // What is collected and finite, but of no use to a step.
    must_fail(reef_layer_step(f->layer, 3e38f, &why), REEF_ERR_INVALID, "learning rate of 3e+38");
    must(reef_layer_discard(f->layer, &why));
    assert_same_layer(f->layer, before);
    for (size_t i = 0; i < ROWS * D; i++) d_y[i] *= 1e30f;
    must(reef_layer_forward(f->layer, &train, ROWS, x, y, f->tape, &why));
    must(reef_layer_backward(f->layer, f->tape, x, d_y, d_x, &why));
    must_fail(reef_layer_step(f->layer, 0, &why), REEF_ERR_INVALID, "discard");
    assert_same_layer(f->layer, before);
    must(reef_layer_discard(f->layer, &why));

    // A generation that adds nothing yet: only its experts have a gradient.
    must(reef_pool_seal(f->layer, 0, &why));
    must(reef_layer_forward(f->layer, &train, ROWS, x, y, f->tape, &why));
    must(reef_layer_backward(f->layer, f->tape, x, d_y, d_x, &why));
    must_fail(reef_layer_step(f->layer, 0, &why), REEF_ERR_INVALID, "discard");
    must(reef_layer_discard(f->layer, &why));
    assert_same_layer(f->layer, before);
    (void)lib_train(f->layer, 1, 4, 9); // and it continues
}

LAYER_TEST(variances_stay_variances) {
    const reef_layer_call train = {.size = sizeof(train), .train = 1};
    float x[ROWS * D], d_y[ROWS * D], y[ROWS * D], before[ROWS * D], var[HEADS * D_KEY] = {0};
    (void)lib_train(f->layer, 1, 0, 3);
    lib_outputs(f->layer, 0, before);
    lib_batch(1, 3, ROWS, x, d_y);
    for (size_t i = 0; i < D; i++) x[70 * D + i] = 1e20f; // its queries are finite
    must_fail(reef_layer_forward(f->layer, &train, ROWS, x, y, f->tape, &why), REEF_ERR_INVALID,
              "row 70 of 75");
    must_fail(reef_layer_backward(f->layer, f->tape, x, d_y, y, &why), REEF_ERR_INVALID,
              "no forward");
    var[4] = -1.0f;
    must_fail(reef_layer_write(f->layer, "bn_var", var, HEADS * D_KEY, &why), REEF_ERR_INVALID,
              "value 4 of bn_var is -1");
    assert_same_layer(f->layer, before);
    var[4] = 0.0f;
    must(reef_layer_write(f->layer, "bn_var", var, HEADS * D_KEY, &why));
    must(reef_layer_write(f->layer, "bn_mean", var, HEADS * D_KEY, &why));
    // Far out, but nothing overflows.
    for (size_t i = 0; i < D; i++) x[70 * D + i] = 1e12f;
    must(reef_layer_forward(f->layer, &train, ROWS, x, y, f->tape, &why));
    must(reef_layer_backward(f->layer, f->tape, x, d_y, before, &why));
    must(reef_layer_step(f->layer, 0, &why));
    lib_outputs(f->layer, 0, before);
}

RUN_TESTS
