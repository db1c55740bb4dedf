// See lab_layer.h.
//
// The passes call what a model's passes call (router, experts, the experts' update), in the same
// order and cut into pieces the same way, but with nothing around them. What always holds: memory
// is allocated and touched when the layer is made; a pass allocates nothing, and its bits do not
// depend on the workers. Which passes are run, how often, and what the times are compared with, is
// the caller's.
#include "lab_layer.h"

#include "experts.h"
#include "reef_system.h"
#include "reef_huge_page.h"
#include "reef_random.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 64 };
// Values of rows that are drawn together, on the stack, and how many such slabs one piece draws;
// and parameters of the router that one piece updates.
enum { VALUES_PER_SLAB = 1024, SLABS_PER_PIECE = 2048, VALUES_PER_PIECE = 8192 };

// Streams of the random numbers; the rows of experts have one per slab from the last on.
enum { STREAM_X, STREAM_TARGET, STREAM_QUERY, STREAM_KEYS_A, STREAM_KEYS_B, STREAM_ROWS };

// The rates of the default configuration: large enough that every step changes something.
static const reef_adam ADAM = {1e-3f, 0.9f, 0.999f, 1e-8f};
#define BN_MOMENTUM 0.1f
#define SEED 1
#define PIECE_TOKENS_MAX 128 // that one worker takes at a time, as of a model's windows

struct reef_lab_layer {
    reef_lab_layer_options options;
    size_t piece_tokens;
    size_t expert_count, P, D; // side * side; heads * topk; d_model
    reef_expert_shape shape;

    float *experts;    // (N, 2 * D) on huge pages
    const void *block; // of those
    reef_expert_rows rows;

    // Of an open layer; a sealed one has neither.
    reef_expert_moments moments;
    reef_expert_pairs pairs;

    size_t value_count; // of the router's parameters
    float *values;      // those; of an open layer gradients, adam_m, adam_v; then statistics, fold
    reef_router_params params; // views of `values`
    reef_router_params grads;
    reef_router_params folded;
    bool fold_is_stale;
    uint64_t steps;

    reef_router_tape tape;
    float *activations;                // one block with the next lines
    float *x, *target, *y, *d_x, *d_y; // (tokens, D)
    float *hidden, *d_gate;            // (tokens, P)
    float *factors;                    // (tokens, P, 2)
};

// ---- memory -------------------------------------------------------------------------------------

// The next `count` floats of the block, from a new cache line on; NULL while it is only measured.
static float *carve(float *block, size_t *at, size_t count) {
    const size_t line = LINE_BYTES / sizeof(float);
    float *array = block == NULL ? NULL : block + *at;
    *at += (count + line - 1) / line * line;
    return array;
}

static size_t carve_trained(const reef_router_shape *shape,
                            reef_router_params *params,
                            float *block) {
    size_t at = 0, width = shape->head_count * shape->d_key,
           table = shape->side * reef_router_key_row(shape);
    params->w_query = carve(block, &at, shape->d_model * width);
    params->sub_keys_a = carve(block, &at, table);
    params->sub_keys_b = carve(block, &at, table);
    params->bn_scale = carve(block, &at, width);
    params->bn_shift = carve(block, &at, width);
    return at;
}

static reef_status allocate_router(reef_lab_layer *layer, reef_error *err) {
    const reef_router_shape *shape = &layer->options.shape;
    size_t width = shape->head_count * shape->d_key, sets = layer->options.sealed ? 1 : 4;
    reef_router_params none;
    size_t count = carve_trained(shape, &none, NULL);
    layer->value_count = count;
    layer->values = calloc(sets * count + (shape->d_model + 3) * width, sizeof(float));
    if (layer->values == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a router of %zu parameters",
                         count);
    carve_trained(shape, &layer->params, layer->values);
    if (!layer->options.sealed) carve_trained(shape, &layer->grads, layer->values + count);
    float *rest = layer->values + sets * count;
    layer->params.bn_mean = rest;
    layer->params.bn_var = rest + width;
    layer->folded = (reef_router_params){.query_bias = rest + 2 * width,
                                         .w_query = rest + 3 * width,
                                         .sub_keys_a = layer->params.sub_keys_a,
                                         .sub_keys_b = layer->params.sub_keys_b};
    return reef_router_tape_init(&layer->tape, shape, layer->options.tokens, layer->piece_tokens,
                                 true, err);
}

static size_t carve_activations(reef_lab_layer *layer, float *block) {
    size_t at = 0, chosen = layer->options.tokens * layer->P,
           wide = layer->options.tokens * layer->D;
    layer->x = carve(block, &at, wide);
    layer->target = carve(block, &at, wide);
    layer->y = carve(block, &at, wide);
    layer->d_x = carve(block, &at, wide);
    layer->d_y = carve(block, &at, wide);
    layer->hidden = carve(block, &at, chosen);
    layer->factors = carve(block, &at, chosen * reef_expert_vectors(&layer->shape));
    layer->d_gate = carve(block, &at, chosen);
    return at;
}

static reef_status allocate_activations(reef_lab_layer *layer, reef_error *err) {
    layer->activations = reef_huge_page_new(carve_activations(layer, NULL), sizeof(float));
    if (layer->activations == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pass over %zu tokens",
                         layer->options.tokens);
    carve_activations(layer, layer->activations);
    return REEF_OK;
}

static size_t row_value_count(const reef_lab_layer *layer) {
    return layer->expert_count * 2 * layer->D;
}

static reef_status allocate_moments(reef_lab_layer *layer, reef_error *err) {
    size_t values = row_value_count(layer);
    layer->moments.adam_m = reef_huge_page_new(values, sizeof(float));
    layer->moments.adam_v = reef_huge_page_new(values, sizeof(float));
    layer->moments.counts = calloc(layer->expert_count, sizeof(uint32_t));
    if (layer->moments.adam_m == NULL || layer->moments.adam_v == NULL ||
        layer->moments.counts == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY,
                         "no memory for the moments of %zu experts of width %zu",
                         layer->expert_count, layer->D);
    return reef_expert_pairs_init(&layer->pairs, layer->options.tokens * layer->P,
                                  layer->expert_count, 2 * layer->D, err);
}

static reef_status allocate_rows(reef_lab_layer *layer, reef_error *err) {
    layer->experts = reef_huge_page_new(row_value_count(layer), sizeof(float));
    if (layer->experts == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu experts of width %zu",
                         layer->expert_count, layer->D);
    layer->block = layer->experts;
    layer->rows = (reef_expert_rows){
        .dtype = REEF_F32, .block_shift = REEF_EXPERT_ONE_BLOCK, .blocks = &layer->block};
    return REEF_OK;
}

static reef_status allocate_layer(reef_lab_layer *layer, reef_error *err) {
    reef_status status = allocate_router(layer, err);
    if (status == REEF_OK) status = allocate_activations(layer, err);
    if (status == REEF_OK) status = allocate_rows(layer, err);
    if (status == REEF_OK && !layer->options.sealed) status = allocate_moments(layer, err);
    return status;
}

// ---- initial values -----------------------------------------------------------------------------

// `count` values from value `at` on, all in one slab. Variances are those of a model's first
// generation; uniform values, because a billion normal ones would take longer than the measurement.
static void draw_slab(const reef_lab_layer *layer, size_t at, size_t count) {
    const float down = sqrtf(3.0f / (float)layer->D), up = sqrtf(3.0f / (float)layer->P);
    float slab[VALUES_PER_SLAB];
    reef_random_uniform(count, slab, 1.0f, SEED, STREAM_ROWS + at / VALUES_PER_SLAB);
    for (size_t i = 0; i < count;) {
        size_t vector = (at + i) / layer->D, end = (vector + 1) * layer->D - at;
        if (end > count) end = count;
        for (; i < end; i++) slab[i] *= vector % 2 == 0 ? down : up;
    }
    memcpy(layer->experts + at, slab, count * sizeof(float));
}

static void draw_piece(void *context, size_t piece) {
    const reef_lab_layer *layer = context;
    size_t all = row_value_count(layer), at = piece * SLABS_PER_PIECE * VALUES_PER_SLAB;
    for (size_t s = 0; s < SLABS_PER_PIECE && at < all; s++, at += VALUES_PER_SLAB) {
        size_t count = all - at < VALUES_PER_SLAB ? all - at : VALUES_PER_SLAB;
        draw_slab(layer, at, count);
        if (layer->options.sealed) continue;
        memset(layer->moments.adam_m + at, 0, count * sizeof(float));
        memset(layer->moments.adam_v + at, 0, count * sizeof(float));
    }
}

static void draw_tokens(reef_lab_layer *layer) {
    size_t wide = layer->options.tokens * layer->D;
    reef_random_normal(wide, layer->x, 1.0f, SEED, STREAM_X);
    reef_random_normal(wide, layer->target, 1.0f, SEED, STREAM_TARGET);
}

static void draw_router(reef_lab_layer *layer) {
    const reef_router_shape *shape = &layer->options.shape;
    const reef_router_params *params = &layer->params;
    size_t width = shape->head_count * shape->d_key,
           table = shape->side * reef_router_key_row(shape);
    reef_random_normal(layer->D * width, params->w_query, 1.0f / sqrtf((float)layer->D), SEED,
                       STREAM_QUERY);
    float key = 1.0f / sqrtf((float)shape->d_key);
    reef_random_uniform(table, params->sub_keys_a, key, SEED, STREAM_KEYS_A);
    reef_random_uniform(table, params->sub_keys_b, key, SEED, STREAM_KEYS_B);
    for (size_t c = 0; c < width; c++) params->bn_scale[c] = params->bn_var[c] = 1.0f;
    layer->fold_is_stale = true;
}

static void initialise(reef_lab_layer *layer, reef_thread_pool *workers) {
    const size_t piece = (size_t)SLABS_PER_PIECE * VALUES_PER_SLAB;
    memset(layer->activations, 0, carve_activations(layer, layer->activations) * sizeof(float));
    draw_tokens(layer);
    draw_router(layer);
    reef_thread_pool_run(workers, (row_value_count(layer) + piece - 1) / piece, draw_piece, layer);
}

// A whole number of pieces: the largest size that divides the tokens.
static size_t piece_of(size_t tokens) {
    size_t piece = tokens < PIECE_TOKENS_MAX ? tokens : PIECE_TOKENS_MAX;
    while (tokens % piece != 0) piece--;
    return piece;
}

reef_status reef_lab_layer_new(reef_lab_layer **out,
                               const reef_lab_layer_options *options,
                               reef_thread_pool *workers,
                               reef_error *err) {
    *out = NULL;
    reef_status status = reef_router_shape_check(&options->shape, err);
    if (status != REEF_OK) return status;
    assert(options->shape.batch_norm); // the layout has its parameters
    reef_lab_layer *layer = calloc(1, sizeof(*layer));
    if (layer == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a layer");
    layer->options = *options;
    layer->piece_tokens = piece_of(options->tokens);
    layer->expert_count = options->shape.side * options->shape.side;
    layer->P = options->shape.head_count * options->shape.topk;
    layer->D = options->shape.d_model;
    layer->shape = (reef_expert_shape){REEF_EXPERT_GELU, layer->P, layer->D};
    status = allocate_layer(layer, err);
    if (status == REEF_OK) {
        initialise(layer, workers);
        *out = layer;
        layer = NULL; // the caller owns it now
    }
    reef_lab_layer_free(layer);
    return status;
}

void reef_lab_layer_free(reef_lab_layer *layer) {
    if (layer == NULL) return;
    size_t values = row_value_count(layer);
    reef_router_tape_release(&layer->tape);
    reef_expert_pairs_release(&layer->pairs);
    reef_huge_page_free(layer->experts, values, sizeof(float));
    reef_huge_page_free(layer->moments.adam_m, values, sizeof(float));
    reef_huge_page_free(layer->moments.adam_v, values, sizeof(float));
    free(layer->moments.counts);
    free(layer->values);
    reef_huge_page_free(layer->activations, carve_activations(layer, NULL), sizeof(float));
    free(layer);
}

const reef_router_tape *reef_lab_layer_tape(const reef_lab_layer *layer) {
    return &layer->tape;
}

size_t reef_lab_layer_touched(reef_lab_layer *layer) {
    assert(!layer->options.sealed); // it has no room to sort
    const reef_expert_pairs *pairs = &layer->pairs;
    reef_expert_pairs_sort(&layer->pairs, NULL, layer->options.tokens, layer->P,
                           layer->tape.indices, NULL);
    size_t touched = 0;
    for (size_t at = 0; at < pairs->pair_count; at = reef_expert_pairs_end(pairs, at)) touched++;
    return touched;
}

// ---- passes -------------------------------------------------------------------------------------

/** What the workers do with the layer. */
typedef struct layer_pass {
    reef_lab_layer *layer;
    bool train; // keep what backward needs
} layer_pass;

static void run_pieces(const layer_pass *pass,
                       reef_thread_pool *workers,
                       void (*work)(void *context, size_t piece)) {
    const reef_lab_layer *layer = pass->layer;
    reef_thread_pool_run(workers, layer->options.tokens / layer->piece_tokens, work, (void *)pass);
}

static void forward_piece(void *context, size_t piece) {
    const layer_pass *pass = context;
    const reef_lab_layer *layer = pass->layer;
    size_t T = layer->piece_tokens, D = layer->D, P = layer->P, row = piece * T;
    memset(layer->y + row * D, 0, T * D * sizeof(float));
    reef_experts_forward(&layer->shape, T, layer->y + row * D,
                         pass->train ? layer->hidden + row * P : NULL, layer->x + row * D,
                         layer->tape.indices + row * P, layer->tape.gate + row * P, &layer->rows,
                         NULL);
}

// Mean squared error: d_y = 2 (y - target) / (tokens * D).
static void loss_piece(void *context, size_t piece) {
    const reef_lab_layer *layer = ((const layer_pass *)context)->layer;
    size_t count = layer->piece_tokens * layer->D, at = piece * count;
    float scale = 2.0f / (float)(layer->options.tokens * layer->D);
    for (size_t i = at; i < at + count; i++)
        layer->d_y[i] = scale * (layer->y[i] - layer->target[i]);
}

static void backward_piece(void *context, size_t piece) {
    const layer_pass *pass = context;
    const reef_lab_layer *layer = pass->layer;
    size_t T = layer->piece_tokens, D = layer->D, P = layer->P, row = piece * T;
    memset(layer->d_x + row * D, 0, T * D * sizeof(float));
    reef_experts_backward(&layer->shape, T, layer->d_x + row * D, layer->d_gate + row * P,
                          layer->factors + row * P * reef_expert_vectors(&layer->shape),
                          layer->d_y + row * D, layer->hidden + row * P,
                          layer->tape.indices + row * P, layer->tape.gate + row * P, &layer->rows,
                          NULL);
}

static void update_piece(void *context, size_t piece) {
    const reef_lab_layer *layer = context;
    size_t at = piece * VALUES_PER_PIECE, rest = layer->value_count - at;
    size_t count = rest < VALUES_PER_PIECE ? rest : VALUES_PER_PIECE;
    float *values = layer->values + at;
    size_t set = layer->value_count; // from values to gradients to moments
    reef_adam_update(count, values, values + 2 * set, values + 3 * set, values + set, 1.0f,
                     layer->steps, &ADAM);
}

// The seconds since *from, which moves on.
static double lap(double *from) {
    double now = reef_seconds(), passed = now - *from;
    *from = now;
    return passed;
}

// A sealed layer is folded, an open one has to be folded again after each step; that is not timed.
static void fold(reef_lab_layer *layer) {
    if (layer->fold_is_stale)
        reef_router_fold(&layer->options.shape, &layer->params, layer->folded.w_query,
                         layer->folded.query_bias);
    layer->fold_is_stale = false;
}

static reef_status retrieve(reef_lab_layer *layer,
                            reef_router_mode mode,
                            reef_thread_pool *workers,
                            reef_lab_seconds *seconds,
                            reef_error *err) {
    if (mode == REEF_ROUTER_FOLDED) fold(layer);
    double clock = reef_seconds();
    reef_status status = reef_router_forward(
        &layer->options.shape, mode == REEF_ROUTER_FOLDED ? &layer->folded : &layer->params, mode,
        workers, layer->options.tokens, layer->x, NULL, &layer->tape, err);
    seconds->retrieval += lap(&clock);
    return status;
}

static reef_status forward(reef_lab_layer *layer,
                           bool train,
                           reef_thread_pool *workers,
                           reef_lab_seconds *seconds,
                           reef_error *err) {
    reef_status status =
        retrieve(layer, train ? REEF_ROUTER_TRAIN : REEF_ROUTER_FOLDED, workers, seconds, err);
    if (status != REEF_OK) return status;
    double clock = reef_seconds();
    run_pieces(&(layer_pass){layer, train}, workers, forward_piece);
    seconds->experts += lap(&clock);
    return REEF_OK;
}

static void backward(reef_lab_layer *layer, reef_thread_pool *workers, reef_lab_seconds *seconds) {
    double clock = reef_seconds();
    run_pieces(&(layer_pass){layer, true}, workers, backward_piece);
    seconds->experts_backward += lap(&clock);
    memset(layer->values + layer->value_count, 0, layer->value_count * sizeof(float));
    reef_router_backward(&layer->options.shape, &layer->params, REEF_ROUTER_TRAIN, workers,
                         layer->options.tokens, layer->x, NULL, &layer->tape, layer->d_gate,
                         layer->d_x, &layer->grads);
    seconds->retrieval_backward += lap(&clock);
}

static void update(reef_lab_layer *layer, reef_thread_pool *workers, reef_lab_seconds *seconds) {
    double clock = reef_seconds();
    reef_expert_pairs_sort(&layer->pairs, workers, layer->options.tokens, layer->P,
                           layer->tape.indices, NULL);
    seconds->sort += lap(&clock);
    reef_experts_update(workers, &layer->shape, layer->experts, &layer->moments, &layer->pairs,
                        layer->x, layer->d_y, layer->tape.gate, layer->factors,
                        &(reef_expert_update){.adam = ADAM});
    seconds->experts_update += lap(&clock);
    layer->steps++;
    reef_router_update_stats(&layer->options.shape, &layer->params, &layer->tape, BN_MOMENTUM);
    reef_thread_pool_run(workers, (layer->value_count + VALUES_PER_PIECE - 1) / VALUES_PER_PIECE,
                         update_piece, layer);
    seconds->retrieval_update += lap(&clock);
    layer->fold_is_stale = true;
}

static reef_status train(reef_lab_layer *layer,
                         bool learn,
                         reef_thread_pool *workers,
                         reef_lab_seconds *seconds,
                         reef_error *err) {
    assert(!layer->options.sealed);
    *seconds = (reef_lab_seconds){0};
    reef_status status = forward(layer, true, workers, seconds, err);
    if (status != REEF_OK) return status;
    double clock = reef_seconds();
    run_pieces(&(layer_pass){layer, true}, workers, loss_piece);
    seconds->loss = lap(&clock);
    backward(layer, workers, seconds);
    if (learn) update(layer, workers, seconds);
    return REEF_OK;
}

void reef_lab_layer_score_all(reef_lab_layer *layer, bool all) {
    layer->tape.score_all = all;
}

reef_status reef_lab_layer_retrieve(reef_lab_layer *layer,
                                    reef_thread_pool *workers,
                                    reef_lab_seconds *seconds,
                                    reef_error *err) {
    *seconds = (reef_lab_seconds){0};
    return retrieve(layer, REEF_ROUTER_FOLDED, workers, seconds, err);
}

reef_status reef_lab_layer_forward(reef_lab_layer *layer,
                                   reef_thread_pool *workers,
                                   reef_lab_seconds *seconds,
                                   reef_error *err) {
    *seconds = (reef_lab_seconds){0};
    return forward(layer, false, workers, seconds, err);
}

reef_status reef_lab_layer_backward(reef_lab_layer *layer,
                                    reef_thread_pool *workers,
                                    reef_lab_seconds *seconds,
                                    reef_error *err) {
    return train(layer, false, workers, seconds, err);
}

reef_status reef_lab_layer_step(reef_lab_layer *layer,
                                reef_thread_pool *workers,
                                reef_lab_seconds *seconds,
                                reef_error *err) {
    return train(layer, true, workers, seconds, err);
}

double reef_lab_layer_loss(const reef_lab_layer *layer) {
    size_t count = layer->options.tokens * layer->D;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double error = (double)layer->y[i] - (double)layer->target[i];
        sum += error * error;
    }
    return sum / (double)count;
}

double reef_lab_seconds_sum(const reef_lab_seconds *seconds) {
    return seconds->retrieval + seconds->experts + seconds->loss + seconds->experts_backward +
           seconds->retrieval_backward + seconds->sort + seconds->experts_update +
           seconds->retrieval_update;
}
