// Sizes of a model's parts, and views of their parameters: what configuration, generations and
// kernels all speak of.
#ifndef REEF_SHAPES_H
#define REEF_SHAPES_H

#include "reef_config.h"
#include "reef_kernels.h"
#include "reef_router.h"
#include "reef_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- retrieved experts --------------------------------------------------------------------------

typedef struct reef_expert_shape {
    reef_expert_kind kind;
    size_t P; // experts per token: heads * topk
    size_t D; // width of a token
} reef_expert_shape;

/** Vectors of one row: w_down and w_up, gated ones also w_gate, values w_up alone. */
static inline size_t reef_expert_vectors(const reef_expert_shape *shape) {
    if (shape->kind == REEF_EXPERT_VALUE) return 1;
    return shape->kind == REEF_EXPERT_GLU ? 3 : 2;
}

/** Which of them is w_up. */
static inline size_t reef_expert_up(const reef_expert_shape *shape) {
    return shape->kind == REEF_EXPERT_VALUE ? 0 : 1;
}

/** Values of one row: 2 * D, gated 3 * D, values D. */
static inline size_t reef_expert_row_values(const reef_expert_shape *shape) {
    return reef_expert_vectors(shape) * shape->D;
}

/**
 * Floats of `hidden` per token: w_down . x of its P experts, gated ones followed by P w_gate . x;
 * none of values.
 */
static inline size_t reef_expert_hidden_values(const reef_expert_shape *shape) {
    if (shape->kind == REEF_EXPERT_VALUE) return 0;
    return (shape->kind == REEF_EXPERT_GLU ? 2 : 1) * shape->P;
}

/**
 * Rows that other ranks own, as one pass needs them: see row_exchange.c. They lie one after the
 * other, of the table's type.
 */
typedef struct reef_fetched_rows {
    uint32_t *places;    // (N) of each expert's row in `rows`; REEF_ROW_NOT_FETCHED: not there
    void *rows;          // (count, row values)
    reef_expert_id *ids; // (count) whose they are
    size_t expert_count, count, ids_capacity, bytes_capacity;
} reef_fetched_rows;

#define REEF_ROW_NOT_FETCHED UINT32_MAX

/**
 * The rows of a layer's experts where they lie: in one block of memory, or in blocks anywhere, such
 * as in the store's map. Row n is row n mod 2^block_shift of block n >> block_shift.
 */
typedef struct reef_expert_rows {
    reef_dtype dtype;                 // REEF_F32 or REEF_I8
    uint32_t block_shift;             // 32 where all rows are in one block
    const void *const *blocks;        // each aligned for its type; NULL: another rank owns it
    const reef_fetched_rows *fetched; // of such blocks; a pass sets it
} reef_expert_rows;

#define REEF_EXPERT_ONE_BLOCK 32u

/**
 * Over how many ranks the rows of a pool are divided, by whole blocks, and whose this process is;
 * see reef_shard.h. `count` 0 or 1: all rows are here.
 */
typedef struct reef_row_division {
    uint32_t rank, count;
} reef_row_division;

/** Which rows of a table are here, one block after the other. */
typedef struct reef_row_share {
    uint32_t count;       // every so many blocks one is here; 1: all are
    uint32_t first;       // the first one that is; block 0 where all are
    uint32_t block_shift; // a block has 2^block_shift rows
} reef_row_share;

static inline bool reef_row_is_here(const reef_row_share *share, size_t n) {
    return share->count <= 1 || (n >> share->block_shift) % share->count == share->first;
}

/** Where row n, which is here, stands among those that are. */
static inline size_t reef_row_place(const reef_row_share *share, size_t n) {
    if (share->count <= 1) return n;
    size_t block = (n >> share->block_shift) / share->count, shift = share->block_shift;
    return (block << shift) + (n & (((size_t)1 << shift) - 1));
}

/** How many of the rows 0 .. n - 1 are here. */
static inline size_t reef_rows_here(const reef_row_share *share, size_t n) {
    if (share->count <= 1) return n;
    size_t whole = n >> share->block_shift, rest = n & (((size_t)1 << share->block_shift) - 1);
    size_t blocks = (whole + share->count - 1 - share->first) / share->count;
    return (blocks << share->block_shift) + (whole % share->count == share->first ? rest : 0);
}

/** Bytes of one row; of int8 its scale comes first. */
static inline size_t reef_row_bytes(reef_dtype dtype, size_t values) {
    if (dtype == REEF_I8) return REEF_I8_SCALE_BYTES + values;
    return values * sizeof(float);
}

/** What training keeps beside the rows of one layer of the open generation. */
typedef struct reef_expert_moments {
    // Of the rows that are here, one after the other: all N where rows are not divided.
    float *adam_m;    // (here, row values)
    float *adam_v;    // (here, row values)
    float *average;   // (here, row values) of each over its updates; NULL: none is kept
    uint32_t *counts; // (here) updates of each row: lazy Adam's own bias correction
} reef_expert_moments;

#define REEF_ATTENTION_ROWS ((size_t)64) // rows of queries that attention takes at a time

// ---- mixtures of experts ------------------------------------------------------------------------

typedef struct reef_moe_shape {
    size_t T, D, F, E; // tokens of a window, their width, hidden width of an expert, experts
    size_t C;          // tokens that an expert takes of a window in training; 1 to T
} reef_moe_shape;

/** Parameters of one layer; gradients of one have the same form, without thresholds. */
typedef struct reef_moe_params {
    float *w_router;  // (D, E)
    float *w_in;      // (E, D, F)
    float *w_out;     // (E, F, D)
    float *threshold; // (E) of scores
} reef_moe_params;

#endif
