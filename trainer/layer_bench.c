// One PEER layer by itself, with random weights and tokens, for `reef bench peer`.
//
// The passes call what a model's passes call (router, experts, the experts' update), in the same order
// and cut into pieces the same way, but with nothing around them. What always holds: memory is allocated
// and touched when the layer is made; a pass allocates nothing, and its bits do not depend on the
// workers. Which passes are run, how often, and what the times are compared with, is the caller's.
#include "experts.h"
#include "huge.h"
#include "model.h"
#include "random.h"
#include "reef_trainer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 64 };
// Rows of experts that one piece draws, and parameters of the router that one piece updates.
enum { ROWS_PER_PIECE = 4096, VALUES_PER_PIECE = 8192 };

// Streams of the random numbers; the rows of experts have one per piece from the last on.
enum { STREAM_X, STREAM_TARGET, STREAM_QUERY, STREAM_KEYS_A, STREAM_KEYS_B, STREAM_ROWS };

// The rates of the default configuration: large enough that every step changes something.
static const reef_adam ADAM = {1e-3f, 0.9f, 0.999f, 1e-8f};
#define BN_MOMENTUM 0.1f

struct reef_layer_bench {
    reef_layer_bench_options options;
    size_t expert_count, P, D; // side * side; heads * topk; d_model
    reef_expert_shape shape;
    const void *block; // of all rows
    reef_expert_rows rows;

    float *experts; // (N, 2 * D), as are the moments; huge pages
    reef_expert_moments moments;
    reef_expert_pairs pairs;

    size_t value_count; // of the router's trained parameters
    float *values;      // those, their gradients, adam_m, adam_v; then running statistics, fold
    reef_router_params params; // views of `values`
    reef_router_params grads;
    reef_router_params folded;
    bool fold_is_stale;
    uint64_t steps;

    reef_router_tape tape;
    float *activations;                // one block with all that follows
    float *x, *target, *y, *d_x, *d_y; // (tokens, D)
    float *hidden, *d_hidden, *d_gate; // (tokens, P)
};

// ---- memory --------------------------------------------------------------------------------------

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
    size_t at = 0, width = shape->head_count * shape->d_key, table = shape->side * shape->d_key / 2;
    params->w_query = carve(block, &at, shape->d_model * width);
    params->sub_keys_a = carve(block, &at, table);
    params->sub_keys_b = carve(block, &at, table);
    params->bn_scale = carve(block, &at, width);
    params->bn_shift = carve(block, &at, width);
    return at;
}

static reef_status allocate_router(reef_layer_bench *layer, reef_error *err) {
    const reef_router_shape *shape = &layer->options.shape;
    size_t width = shape->head_count * shape->d_key;
    reef_router_params none;
    size_t count = carve_trained(shape, &none, NULL);
    layer->value_count = count;
    layer->values = calloc(4 * count + (shape->d_model + 3) * width, sizeof(float));
    if (layer->values == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for a router of %zu parameters", count);
    carve_trained(shape, &layer->params, layer->values);
    carve_trained(shape, &layer->grads, layer->values + count);
    float *rest = layer->values + 4 * count;
    layer->params.bn_mean = rest;
    layer->params.bn_var = rest + width;
    layer->folded = (reef_router_params){.query_bias = rest + 2 * width,
                                         .w_query = rest + 3 * width,
                                         .sub_keys_a = layer->params.sub_keys_a,
                                         .sub_keys_b = layer->params.sub_keys_b};
    return reef_router_tape_init(&layer->tape, shape, layer->options.tokens,
                                 layer->options.piece_tokens, true, err);
}

static size_t carve_activations(reef_layer_bench *layer, float *block) {
    size_t at = 0, wide = layer->options.tokens * layer->D,
           chosen = layer->options.tokens * layer->P;
    layer->x = carve(block, &at, wide);
    layer->target = carve(block, &at, wide);
    layer->y = carve(block, &at, wide);
    layer->d_x = carve(block, &at, wide);
    layer->d_y = carve(block, &at, wide);
    layer->hidden = carve(block, &at, chosen);
    layer->d_hidden = carve(block, &at, chosen);
    layer->d_gate = carve(block, &at, chosen);
    return at;
}

static reef_status allocate(reef_layer_bench *layer, reef_error *err) {
    size_t N = layer->expert_count, row = 2 * layer->D;
    reef_status status = allocate_router(layer, err);
    if (status != REEF_OK) return status;
    status = reef_expert_pairs_init(&layer->pairs, layer->options.tokens * layer->P, N, row, err);
    if (status != REEF_OK) return status;
    layer->activations = reef_huge_new(carve_activations(layer, NULL), sizeof(float));
    layer->experts = reef_huge_new(N * row, sizeof(float));
    layer->moments.adam_m = reef_huge_new(N * row, sizeof(float));
    layer->moments.adam_v = reef_huge_new(N * row, sizeof(float));
    layer->moments.counts = calloc(N, sizeof(uint32_t));
    if (layer->activations == NULL || layer->experts == NULL || layer->moments.adam_m == NULL ||
        layer->moments.adam_v == NULL || layer->moments.counts == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for %zu experts of width %zu", N,
                         layer->D);
    layer->block = layer->experts;
    layer->rows = (reef_expert_rows){REEF_F32, REEF_EXPERT_ONE_BLOCK, &layer->block};
    carve_activations(layer, layer->activations);
    return REEF_OK;
}

// ---- initial values ------------------------------------------------------------------------------

// Variances are those of a model's first generation. Uniform values for the rows: a billion normal
// ones would take longer than the measurement.
static void draw_rows(void *context, size_t piece) {
    reef_layer_bench *layer = context;
    size_t D = layer->D, first = piece * ROWS_PER_PIECE, end = first + ROWS_PER_PIECE;
    if (end > layer->expert_count) end = layer->expert_count;
    size_t at = first * 2 * D, floats = (end - first) * 2 * D;
    reef_random_uniform(floats, layer->experts + at, 1.0f, layer->options.seed,
                        STREAM_ROWS + piece);
    float down = sqrtf(3.0f / (float)D), up = sqrtf(3.0f / (float)layer->P);
    for (size_t n = first; n < end; n++) {
        float *row = layer->experts + n * 2 * D;
        for (size_t d = 0; d < D; d++) {
            row[d] *= down;
            row[D + d] *= up;
        }
    }
    memset(layer->moments.adam_m + at, 0, floats * sizeof(float));
    memset(layer->moments.adam_v + at, 0, floats * sizeof(float));
}

static void initialise(reef_layer_bench *layer, reef_workers *workers) {
    const reef_router_shape *shape = &layer->options.shape;
    const reef_router_params *params = &layer->params;
    size_t wide = layer->options.tokens * layer->D, width = shape->head_count * shape->d_key;
    size_t table = shape->side * shape->d_key / 2;
    uint64_t seed = layer->options.seed;
    memset(layer->activations, 0, carve_activations(layer, layer->activations) * sizeof(float));
    reef_random_normal(wide, layer->x, 1.0f, seed, STREAM_X);
    reef_random_normal(wide, layer->target, 1.0f, seed, STREAM_TARGET);
    reef_random_normal(layer->D * width, params->w_query, 1.0f / sqrtf((float)layer->D), seed,
                       STREAM_QUERY);
    float key = 1.0f / sqrtf((float)shape->d_key);
    reef_random_uniform(table, params->sub_keys_a, key, seed, STREAM_KEYS_A);
    reef_random_uniform(table, params->sub_keys_b, key, seed, STREAM_KEYS_B);
    for (size_t c = 0; c < width; c++) params->bn_scale[c] = params->bn_var[c] = 1.0f;
    layer->fold_is_stale = true;
    reef_workers_run(workers, (layer->expert_count + ROWS_PER_PIECE - 1) / ROWS_PER_PIECE,
                     draw_rows, layer);
}

reef_status reef_layer_bench_new(reef_layer_bench **out,
                                 const reef_layer_bench_options *options,
                                 reef_workers *workers,
                                 reef_error *err) {
    *out = NULL;
    reef_status status = reef_router_shape_check(&options->shape, err);
    if (status != REEF_OK) return status;
    assert(options->shape.batch_norm); // the layout has its parameters
    reef_layer_bench *layer = calloc(1, sizeof *layer);
    if (layer == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for a layer");
    layer->options = *options;
    layer->expert_count = options->shape.side * options->shape.side;
    layer->P = options->shape.head_count * options->shape.topk;
    layer->D = options->shape.d_model;
    layer->shape = (reef_expert_shape){REEF_EXPERT_GELU, layer->P, layer->D};
    status = allocate(layer, err);
    if (status == REEF_OK) {
        initialise(layer, workers);
        *out = layer;
        layer = NULL; // the caller owns it now
    }
    reef_layer_bench_free(layer);
    return status;
}

void reef_layer_bench_free(reef_layer_bench *layer) {
    if (layer == NULL) return;
    reef_router_tape_release(&layer->tape);
    reef_expert_pairs_release(&layer->pairs);
    size_t floats = layer->expert_count * 2 * layer->D;
    reef_huge_free(layer->experts, floats, sizeof(float));
    reef_huge_free(layer->moments.adam_m, floats, sizeof(float));
    reef_huge_free(layer->moments.adam_v, floats, sizeof(float));
    free(layer->moments.counts);
    free(layer->values);
    reef_huge_free(layer->activations, carve_activations(layer, NULL), sizeof(float));
    free(layer);
}

const float *reef_layer_bench_rows(const reef_layer_bench *layer) {
    return layer->experts;
}

size_t reef_layer_bench_touched(reef_layer_bench *layer) {
    reef_expert_pairs_sort(&layer->pairs, layer->options.tokens, layer->P, layer->tape.indices,
                           NULL);
    size_t touched = 0;
    for (size_t e = 0; e < layer->expert_count; e++)
        touched += layer->pairs.starts[e] < layer->pairs.starts[e + 1];
    return touched;
}

// ---- passes --------------------------------------------------------------------------------------

static size_t piece_count(const reef_layer_bench *layer) {
    return layer->options.tokens / layer->options.piece_tokens;
}

static void forward_piece(const reef_layer_bench *layer, size_t piece, float *hidden) {
    size_t T = layer->options.piece_tokens, D = layer->D, P = layer->P, row = piece * T;
    memset(layer->y + row * D, 0, T * D * sizeof(float));
    reef_experts_forward(&layer->shape, T, layer->y + row * D, hidden, layer->x + row * D,
                         layer->tape.indices + row * P, layer->tape.gate + row * P, &layer->rows,
                         NULL);
}

static void evaluate_piece(void *context, size_t piece) {
    forward_piece(context, piece, NULL);
}

static void train_piece(void *context, size_t piece) {
    const reef_layer_bench *layer = context;
    forward_piece(layer, piece, layer->hidden + piece * layer->options.piece_tokens * layer->P);
}

// Mean squared error: d_y = 2 (y - target) / (tokens * D).
static void loss_piece(void *context, size_t piece) {
    const reef_layer_bench *layer = context;
    size_t count = layer->options.piece_tokens * layer->D, at = piece * count;
    float scale = 2.0f / (float)(layer->options.tokens * layer->D);
    for (size_t i = at; i < at + count; i++)
        layer->d_y[i] = scale * (layer->y[i] - layer->target[i]);
}

static void backward_piece(void *context, size_t piece) {
    const reef_layer_bench *layer = context;
    size_t T = layer->options.piece_tokens, D = layer->D, P = layer->P, row = piece * T;
    memset(layer->d_x + row * D, 0, T * D * sizeof(float));
    reef_experts_backward(&layer->shape, T, layer->d_x + row * D, layer->d_gate + row * P,
                          layer->d_hidden + row * P, layer->d_y + row * D, layer->hidden + row * P,
                          layer->tape.indices + row * P, layer->tape.gate + row * P, &layer->rows,
                          NULL);
}

static void update_piece(void *context, size_t piece) {
    const reef_layer_bench *layer = context;
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

reef_status reef_layer_bench_retrieve(reef_layer_bench *layer,
                                      reef_workers *workers,
                                      reef_layer_seconds *seconds,
                                      reef_error *err) {
    *seconds = (reef_layer_seconds){0};
    if (layer->fold_is_stale)
        reef_router_fold(&layer->options.shape, &layer->params, layer->folded.w_query,
                         layer->folded.query_bias);
    layer->fold_is_stale = false;
    double clock = reef_seconds();
    reef_status status =
        reef_router_forward(&layer->options.shape, &layer->folded, REEF_ROUTER_FOLDED, workers,
                            layer->options.tokens, layer->x, NULL, &layer->tape, err);
    seconds->retrieval = lap(&clock);
    return status;
}

reef_status reef_layer_bench_forward(reef_layer_bench *layer,
                                     reef_workers *workers,
                                     reef_layer_seconds *seconds,
                                     reef_error *err) {
    reef_status status = reef_layer_bench_retrieve(layer, workers, seconds, err);
    if (status != REEF_OK) return status;
    double clock = reef_seconds();
    reef_workers_run(workers, piece_count(layer), evaluate_piece, layer);
    seconds->experts = lap(&clock);
    return REEF_OK;
}

reef_status reef_layer_bench_backward(reef_layer_bench *layer,
                                      reef_workers *workers,
                                      reef_layer_seconds *seconds,
                                      reef_error *err) {
    const reef_router_shape *shape = &layer->options.shape;
    *seconds = (reef_layer_seconds){0};
    double clock = reef_seconds();
    memset(layer->values + layer->value_count, 0, layer->value_count * sizeof(float));
    reef_status status =
        reef_router_forward(shape, &layer->params, REEF_ROUTER_TRAIN, workers,
                            layer->options.tokens, layer->x, NULL, &layer->tape, err);
    seconds->retrieval = lap(&clock);
    if (status != REEF_OK) return status;
    reef_workers_run(workers, piece_count(layer), train_piece, layer);
    seconds->experts = lap(&clock);
    reef_workers_run(workers, piece_count(layer), loss_piece, layer);
    seconds->loss = lap(&clock);
    reef_workers_run(workers, piece_count(layer), backward_piece, layer);
    seconds->experts_backward = lap(&clock);
    reef_router_backward(shape, &layer->params, REEF_ROUTER_TRAIN, workers, layer->options.tokens,
                         layer->x, NULL, &layer->tape, layer->d_gate, layer->d_x, &layer->grads);
    seconds->retrieval_backward = lap(&clock);
    return REEF_OK;
}

reef_status reef_layer_bench_step(reef_layer_bench *layer,
                                  reef_workers *workers,
                                  reef_layer_seconds *seconds,
                                  reef_error *err) {
    reef_status status = reef_layer_bench_backward(layer, workers, seconds, err);
    if (status != REEF_OK) return status;
    double clock = reef_seconds();
    reef_expert_pairs_sort(&layer->pairs, layer->options.tokens, layer->P, layer->tape.indices,
                           NULL);
    seconds->sort = lap(&clock);
    reef_experts_update(workers, &layer->shape, layer->experts, &layer->moments, &layer->pairs,
                        layer->x, layer->d_y, layer->tape.gate, layer->hidden, layer->d_hidden,
                        &(reef_expert_update){.adam = ADAM});
    seconds->experts_update = lap(&clock);
    layer->steps++;
    reef_router_update_stats(&layer->options.shape, &layer->params, &layer->tape, BN_MOMENTUM);
    reef_workers_run(workers, (layer->value_count + VALUES_PER_PIECE - 1) / VALUES_PER_PIECE,
                     update_piece, layer);
    seconds->retrieval_update = lap(&clock);
    layer->fold_is_stale = true;
    return REEF_OK;
}

double reef_layer_bench_loss(const reef_layer_bench *layer) {
    size_t count = layer->options.tokens * layer->D;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double error = (double)layer->y[i] - (double)layer->target[i];
        sum += error * error;
    }
    return sum / (double)count;
}
