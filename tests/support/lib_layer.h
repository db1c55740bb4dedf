// A small layer in a pool of its own, and a task for it: what tests of libreef share.
#ifndef LIB_LAYER_H
#define LIB_LAYER_H

#include "draw.h"
#include "lib_pool.h"

#include <assert.h>
#include <stdlib.h>

// Odd sizes, so that a swapped stride shows; ROWS is one whole piece and part of another.
enum { D = 7, HEADS = 2, TOPK = 3, D_KEY = 6, SIDE = 5, ROWS = 75 };

static inline reef_layer_options lib_layer_options(void) {
    return (reef_layer_options){.size = sizeof(reef_layer_options),
                                .d_model = D,
                                .heads = HEADS,
                                .topk = TOPK,
                                .d_key = D_KEY,
                                .side = SIDE,
                                .seed = 3,
                                .learning_rate = 0.01f};
}

static inline reef_pool *lib_layer_new(const char *path, const reef_layer_options *options) {
    must(reef_pool_create_layer(path, options, &why));
    return lib_pool_open(path, 1, NULL, 2);
}

typedef struct layer_fixture {
    char directory[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES];
    reef_pool *layer; // open for writing, in `path`
    reef_tape *tape;
} layer_fixture;

static inline int layer_setup(void **state) {
    layer_fixture *f = room(sizeof(*f));
    const reef_layer_options options = lib_layer_options();
    temp_dir_new(f->directory);
    temp_dir_join(f->path, f->directory, "pool");
    f->layer = lib_layer_new(f->path, &options);
    must(reef_tape_new(&f->tape, &why));
    *state = f;
    return 0;
}

static inline int layer_teardown(void **state) {
    layer_fixture *f = *state;
    reef_tape_free(f->tape);
    reef_pool_close(f->layer);
    temp_dir_remove(f->directory);
    return 0;
}

/** A test with a layer, and a tape for it. */
#define LAYER_TEST(name) TEST_WITH(name, layer_setup, layer_teardown, layer_fixture *f)

/**
 * Rows of batch number `batch` of a task, and what the layer should make of them: a fixed linear
 * map.
 */
static inline void lib_batch(uint64_t task, uint64_t batch, size_t rows, float *x, float *target) {
    uint64_t state = 1000 * task + batch, map = 77 * task;
    float m[D * D];
    draw_floats(&map, D * D, m, -0.7f, 0.7f);
    draw_floats(&state, rows * D, x, -1.0f, 1.0f);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < D; i++) {
            target[r * D + i] = 0;
            for (size_t j = 0; j < D; j++) target[r * D + i] += m[i * D + j] * x[r * D + j];
        }
}

/** One step on a batch of a task. Returns the mean squared error before it. */
static inline double lib_train_step(
    reef_pool *pool, reef_tape *tape, uint64_t task, uint64_t batch, const uint8_t *mask) {
    float x[ROWS * D], target[ROWS * D], y[ROWS * D], d_y[ROWS * D], d_x[ROWS * D];
    const reef_layer_call call = {.size = sizeof(call), .train = 1, .mask = mask};
    double sum = 0;
    lib_batch(task, batch, ROWS, x, target);
    must(reef_layer_forward(pool, &call, ROWS, x, y, tape, &why));
    for (size_t i = 0; i < ROWS * D; i++) {
        d_y[i] = 2.0f * (y[i] - target[i]) / (ROWS * D);
        sum += ((double)y[i] - (double)target[i]) * ((double)y[i] - (double)target[i]);
    }
    must(reef_layer_backward(pool, tape, x, d_y, d_x, &why));
    must(reef_layer_step(pool, 0.0f, &why));
    return sum / (ROWS * D);
}

/** Steps `from` .. `end - 1` of a task; the error of the last one. */
static inline double lib_train(reef_pool *pool, uint64_t task, uint64_t from, uint64_t end) {
    reef_tape *tape;
    double loss = 0;
    must(reef_tape_new(&tape, &why));
    for (uint64_t step = from; step < end; step++)
        loss = lib_train_step(pool, tape, task, step, NULL);
    reef_tape_free(tape);
    return loss;
}

/** The layer's output for batch 0 of task 9, as of its first `generations` (0: all). */
static inline void lib_outputs(reef_pool *pool, uint32_t generations, float y[ROWS * D]) {
    float x[ROWS * D], target[ROWS * D];
    const reef_layer_call call = {.size = sizeof(call), .generations = generations};
    lib_batch(9, 0, ROWS, x, target);
    must(reef_layer_forward(pool, &call, ROWS, x, y, NULL, &why));
}

#endif
