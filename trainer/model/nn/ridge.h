// Ridge regression in closed form (Hoerl & Kennard 1970): the minimum over W of
//
//   sum over examples of |h W - y|^2  +  penalty * |W|^2     is     W = (H'H + penalty I)^-1 H'Y.
//
// H'H is a sum over examples, so what was learned does not depend on their order, and none is
// forgotten. Symmetric matrices are kept as the tiles of their lower half, tile (i, j) with j <= i
// at index i (i + 1) / 2 + j, each row-major. Every tile is one piece of work, so bits do not
// depend on threads.
#ifndef REEF_RIDGE_H
#define REEF_RIDGE_H

#include "reef_kernels.h"

#define REEF_RIDGE_TILE 256

typedef struct reef_ridge_shape {
    size_t size;   // rows and columns that are used
    size_t tile;   // rows of a tile
    size_t tiles;  // per side
    size_t padded; // tiles * tile >= size; what lies beyond `size` is zero
} reef_ridge_shape;

reef_ridge_shape reef_ridge_shape_of(size_t size);
size_t reef_ridge_tile_count(const reef_ridge_shape *shape);
/** Floats of a symmetric matrix, and of one of its tiles. */
size_t reef_ridge_floats(const reef_ridge_shape *shape);
size_t reef_ridge_tile_floats(const reef_ridge_shape *shape);
/** Sum of the diagonal. */
double reef_ridge_trace(const reef_ridge_shape *shape, const float *gram);

/**
 * gram += hidden' hidden. hidden (rows, padded of `shape` or wider), its rows `stride` floats
 * apart.
 */
void reef_ridge_add(const reef_ridge_shape *shape,
                    reef_thread_pool *workers,
                    float *gram,
                    size_t rows,
                    const float *hidden,
                    size_t stride);

/** Floats of scratch that reef_ridge_solve needs. */
size_t reef_ridge_scratch(const reef_ridge_shape *shape, size_t columns);

/**
 * Solve (gram + penalty I) X = B by Cholesky decomposition, tile by tile.
 *
 * gram     destroyed
 * x        (padded, columns) row-major: B, replaced by X
 * scratch  reef_ridge_scratch floats
 *
 * Returns false when rounding left no positive definite matrix: try again with a larger penalty.
 */
bool reef_ridge_solve(const reef_ridge_shape *shape,
                      reef_thread_pool *workers,
                      float *gram,
                      double penalty,
                      size_t columns,
                      float *x,
                      float *scratch);

#endif
