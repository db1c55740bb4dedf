// See ridge.h. The decomposition is left-looking: a column of tiles takes all that the columns
// before it subtract from it, then is finished. The diagonal tiles of L are kept as their inverses,
// so every triangular solve is a product. Measured on MNIST, 4,096 units: the same accuracy as in
// double.
#include "ridge.h"

#include <math.h>
#include <string.h>

reef_ridge_shape reef_ridge_shape_of(size_t size) {
    size_t tile = size < REEF_RIDGE_TILE ? size : REEF_RIDGE_TILE;
    size_t tiles = (size + tile - 1) / tile;
    return (reef_ridge_shape){.size = size, .tile = tile, .tiles = tiles, .padded = tiles * tile};
}

size_t reef_ridge_tile_count(const reef_ridge_shape *shape) {
    return shape->tiles * (shape->tiles + 1) / 2;
}

size_t reef_ridge_tile_floats(const reef_ridge_shape *shape) {
    return shape->tile * shape->tile;
}

size_t reef_ridge_floats(const reef_ridge_shape *shape) {
    return reef_ridge_tile_count(shape) * reef_ridge_tile_floats(shape);
}

static float *tile_at(const reef_ridge_shape *shape, float *gram, size_t i, size_t j) {
    return gram + (i * (i + 1) / 2 + j) * reef_ridge_tile_floats(shape);
}

double reef_ridge_trace(const reef_ridge_shape *shape, const float *gram) {
    double sum = 0.0;
    for (size_t k = 0; k < shape->tiles; k++) {
        const float *tile = gram + (k * (k + 1) / 2 + k) * reef_ridge_tile_floats(shape);
        for (size_t i = 0; i < shape->tile; i++) sum += (double)tile[i * shape->tile + i];
    }
    return sum;
}

// ---- sums ---------------------------------------------------------------------------------------

typedef struct addition {
    const reef_ridge_shape *shape;
    float *gram;
    size_t rows, stride;
    const float *hidden;
} addition;

static void add_tile(void *context, size_t piece) {
    const addition *add = context;
    size_t i = 0, tile = add->shape->tile;
    while ((i + 1) * (i + 2) / 2 <= piece) i++;
    size_t j = piece - i * (i + 1) / 2;
    reef_gemm(true, false, tile, tile, add->rows, 1.0f, add->hidden + i * tile, add->stride,
              add->hidden + j * tile, add->stride, 1.0f, tile_at(add->shape, add->gram, i, j),
              tile);
}

void reef_ridge_add(const reef_ridge_shape *shape,
                    reef_thread_pool *workers,
                    float *gram,
                    size_t rows,
                    const float *hidden,
                    size_t stride) {
    addition add = {shape, gram, rows, stride, hidden};
    reef_thread_pool_run(workers, reef_ridge_tile_count(shape), add_tile, &add);
}

// ---- one tile -----------------------------------------------------------------------------------

// A = L L', row by row (Cholesky-Banachiewicz); the upper half is left as it is.
static bool decompose_tile(size_t n, float *a) {
    for (size_t i = 0; i < n; i++) {
        float *row = a + i * n;
        for (size_t j = 0; j < i; j++)
            row[j] = (row[j] - reef_dot(j, row, a + j * n)) / a[j * n + j];
        float pivot = row[i] - reef_dot(i, row, row);
        if (!(pivot > 0.0f) || !isfinite(pivot)) return false;
        row[i] = sqrtf(pivot);
    }
    return true;
}

// L^-1 with zeros above its diagonal, in place; `inverse` is scratch of the same size.
static void invert_tile(size_t n, float *l, float *inverse) {
    memset(inverse, 0, n * n * sizeof(*inverse));
    for (size_t i = 0; i < n; i++) {
        float *row = inverse + i * n, scale = -1.0f / l[i * n + i];
        for (size_t k = 0; k < i; k++) reef_axpy(k + 1, row, scale * l[i * n + k], inverse + k * n);
        row[i] = -scale;
    }
    memcpy(l, inverse, n * n * sizeof(*l));
}

// ---- decomposition and solution -----------------------------------------------------------------

typedef struct solution {
    const reef_ridge_shape *shape;
    float *gram;
    size_t k;       // the column, or the row of X, that is at work
    size_t columns; // of X
    float *x;
    float *scratch; // (padded, tile) and (tile, columns)
} solution;

// Tile (k + piece, k) minus what the columns before k take from it.
static void reduce_tile(void *context, size_t piece) {
    const solution *s = context;
    size_t i = s->k + piece, tile = s->shape->tile;
    float *target = tile_at(s->shape, s->gram, i, s->k);
    for (size_t j = 0; j < s->k; j++)
        reef_gemm(false, true, tile, tile, tile, -1.0f, tile_at(s->shape, s->gram, i, j), tile,
                  tile_at(s->shape, s->gram, s->k, j), tile, 1.0f, target, tile);
}

// L(i, k) = tile (i, k) times the transposed inverse of L(k, k).
static void finish_tile(void *context, size_t piece) {
    const solution *s = context;
    size_t i = s->k + 1 + piece, tile = s->shape->tile;
    float *target = tile_at(s->shape, s->gram, i, s->k), *copy = s->scratch + piece * tile * tile;
    memcpy(copy, target, tile * tile * sizeof(*copy));
    reef_gemm(false, true, tile, tile, tile, 1.0f, copy, tile,
              tile_at(s->shape, s->gram, s->k, s->k), tile, 0.0f, target, tile);
}

static bool decompose(solution *s, reef_thread_pool *workers) {
    size_t tiles = s->shape->tiles;
    for (s->k = 0; s->k < tiles; s->k++) {
        float *diagonal = tile_at(s->shape, s->gram, s->k, s->k);
        reef_thread_pool_run(workers, tiles - s->k, reduce_tile, s);
        if (!decompose_tile(s->shape->tile, diagonal)) return false;
        invert_tile(s->shape->tile, diagonal, s->scratch);
        reef_thread_pool_run(workers, tiles - s->k - 1, finish_tile, s);
    }
    return true;
}

// Row k of X is known: take it from the rows after it, where L(i, k) meets it.
static void forward_row(void *context, size_t piece) {
    const solution *s = context;
    size_t i = s->k + 1 + piece, tile = s->shape->tile, C = s->columns;
    reef_gemm(false, false, tile, C, tile, -1.0f, tile_at(s->shape, s->gram, i, s->k), tile,
              s->x + s->k * tile * C, C, 1.0f, s->x + i * tile * C, C);
}

static void backward_row(void *context, size_t piece) {
    const solution *s = context;
    size_t tile = s->shape->tile, C = s->columns;
    reef_gemm(true, false, tile, C, tile, -1.0f, tile_at(s->shape, s->gram, s->k, piece), tile,
              s->x + s->k * tile * C, C, 1.0f, s->x + piece * tile * C, C);
}

// Row k of X times the inverse of L(k, k), or of its transpose.
static void finish_row(const solution *s, bool transpose) {
    size_t tile = s->shape->tile, C = s->columns;
    float *row = s->x + s->k * tile * C;
    memcpy(s->scratch, row, tile * C * sizeof(*row));
    reef_gemm(transpose, false, tile, C, tile, 1.0f, tile_at(s->shape, s->gram, s->k, s->k), tile,
              s->scratch, C, 0.0f, row, C);
}

size_t reef_ridge_scratch(const reef_ridge_shape *shape, size_t columns) {
    size_t wider = columns > shape->padded ? columns : shape->padded;
    return shape->tile * wider;
}

bool reef_ridge_solve(const reef_ridge_shape *shape,
                      reef_thread_pool *workers,
                      float *gram,
                      double penalty,
                      size_t columns,
                      float *x,
                      float *scratch) {
    solution s = {.shape = shape, .gram = gram, .columns = columns, .x = x, .scratch = scratch};
    size_t tile = shape->tile;
    for (size_t k = 0; k < shape->tiles; k++)
        for (size_t i = 0; i < tile; i++)
            tile_at(shape, gram, k, k)[i * tile + i] += (float)penalty;
    if (!decompose(&s, workers)) return false;
    for (s.k = 0; s.k < shape->tiles; s.k++) {
        finish_row(&s, false);
        reef_thread_pool_run(workers, shape->tiles - s.k - 1, forward_row, &s);
    }
    for (size_t left = shape->tiles; left > 0; left--) {
        s.k = left - 1;
        finish_row(&s, true);
        reef_thread_pool_run(workers, s.k, backward_row, &s);
    }
    return true;
}
