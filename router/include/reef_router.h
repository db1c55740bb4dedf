// Which experts: query network, query batch norm, product keys with top-k, score functions, usage.
//
// The router knows nothing of losses and owns no parameters: it works on views of the caller's
// arrays. He 2024 section 2; Lample et al. 2019 for product keys and query batch norm.
#ifndef REEF_ROUTER_H
#define REEF_ROUTER_H

#include "reef_error.h"
#include "reef_kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t reef_expert_id;

/**
 * The id of key pair (i, j) in shell order, so that a grid grows without changing any id:
 * id = m*m + (i == m ? m + (m - j) : i) with m = max(i, j). A bijection onto 0 .. side*side - 1.
 */
REEF_API reef_expert_id reef_expert_id_of(uint32_t i, uint32_t j);
/** The inverse of reef_expert_id_of. */
REEF_API void reef_expert_pair_of(reef_expert_id id, uint32_t *i, uint32_t *j);

/**
 * Bounds of a shape: a row of sub-keys fits 16 bits, an expert id 32; the others are far from use.
 */
#define REEF_SIDE_MAX 65536u
#define REEF_HEAD_COUNT_MAX 1024u
#define REEF_WIDTH_MAX 65536u          // of d_model and d_key
#define REEF_ROUTER_ROWS_MAX 16777216u // of a tape

/**
 * How the K scores of a head become its gate; He 2024 eq. 2 leaves the choice between the first
 * two.
 */
typedef enum reef_router_score {
    REEF_SCORE_SOFTMAX, // exp(s_k) / sum over l of exp(s_l): a head's gate sums to 1
    REEF_SCORE_SIGMOID, // 1 / (1 + exp(-s_k)): each expert by itself
    REEF_SCORE_RELU,    // max(0, s_k): unbounded; an expert that scores 0 or less takes no part
} reef_router_score;

typedef struct reef_router_shape {
    size_t d_model;    // D, width of a token
    size_t head_count; // H
    size_t topk;       // K, experts per head; at most side
    size_t d_key;      // query width per head, even; each half meets one table of sub-keys
    size_t side;       // S, sub-keys per side, at most REEF_SIDE_MAX; side*side experts
    bool batch_norm;   // query batch norm (He 2024 uses it; off in the ablation)
    bool head_keys;    // sub-keys: a table for each head, or (He 2024) one for all of them
    reef_router_score score;
} reef_router_shape;

/** Tables that a half of the queries may meet, which lie row by row beside each other: 1 or H. */
static inline size_t reef_router_tables(const reef_router_shape *shape) {
    return shape->head_keys ? shape->head_count : 1;
}

/** Floats of one row of sub_keys_a or sub_keys_b: the sub-keys of that number in all tables. */
static inline size_t reef_router_key_row(const reef_router_shape *shape) {
    return reef_router_tables(shape) * (shape->d_key / 2);
}

/**
 * REEF_ERR_INVALID, with the value and the remedy, if the sizes do not fit together or there is no
 * such score function.
 */
REEF_API REEF_MUST_CHECK reef_status reef_router_shape_check(const reef_router_shape *shape,
                                                             reef_error *err);

/**
 * Parameters of one router; also used for their gradients (then query_bias, bn_mean, bn_var are
 * NULL). All row-major. While a generation is open: w_query, bn_scale, bn_shift, bn_mean, bn_var,
 * query_bias NULL. Folded (sealed, or open but evaluated): w_query and query_bias, the bn_ fields
 * are NULL.
 */
typedef struct reef_router_params {
    float *w_query;    // (D, H*d_key)
    float *query_bias; // (H*d_key) only when folded
    float *bn_scale;   // (H*d_key) NULL without batch norm
    float *bn_shift;   // (H*d_key)
    float *bn_mean;    // (H*d_key) running
    float *bn_var;     // (H*d_key) running, biased
    float *sub_keys_a; // (S, tables, d_key/2): so a table that grows keeps the positions of its
                       // rows
    float *sub_keys_b; // (S, tables, d_key/2)
} reef_router_params;

#define REEF_BN_EPSILON 1e-5f

/**
 * Fold the running batch norm into a linear map: q = x w + bias. Without batch norm a copy, bias 0.
 */
REEF_API void reef_router_fold(const reef_router_shape *shape,
                               const reef_router_params *params,
                               float *w_query,     // (D, H*d_key) written
                               float *query_bias); // (H*d_key) written

typedef enum reef_router_mode {
    REEF_ROUTER_TRAIN,  // batch statistics over all rows; parameters unfolded
    REEF_ROUTER_FOLDED, // q = x w_query + query_bias
} reef_router_mode;

/**
 * What one forward leaves for its backward and for the experts. Allocated once for `rows_max` rows.
 */
typedef struct reef_router_tape {
    size_t rows_max, piece_rows;
    float *query;            // (rows, H, d_key) as it meets the sub-keys
    float *query_raw;        // (rows, H*d_key) before batch norm; train mode only
    float *batch_mean;       // (H*d_key) train mode
    float *batch_var;        // (H*d_key) biased; train mode
    float *d_query;          // (rows, H*d_key) scratch of backward
    float *piece_grads;      // scratch: sub-key gradients, one set per group of pieces
    float *scratch;          // scratch: score rows and lists, one set per piece that runs at once
    reef_expert_id *indices; // (rows, H, K) best first, the lower id first among equal scores
    uint16_t *index_a;       // (rows, H, K) row of sub_keys_a of each chosen expert
    uint16_t *index_b;       // (rows, H, K)
    float *gate;             // (rows, H, K) weights: the shape's score function of the K scores
    size_t tile_rows;        // queries whose scores are computed together
    size_t tile_stride;      // floats from one query's scores to the next one's; at least S
    size_t slot_count;       // sets in `scratch`
    size_t slot_floats;      // floats of one of them
    struct coarse_table *coarse;      // (2, tables) sub-keys in bytes; NULL: no first pass
    const struct pair_stairs *stairs; // of K, see router_internal.h
    // The caller's to set: a forward chooses experts for pieces choose_first to choose_end - 1
    // alone, because others choose for the rest, and a backward adds to their d_x alone; both 0:
    // all.
    size_t choose_first, choose_end;
    bool score_all; // the caller's to set: no first pass; the choice is the same
} reef_router_tape;

/**
 * A tape without `backward` serves folded forwards only. INVALID when sizes do not fit; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_router_tape_init(reef_router_tape *tape,
                                                           const reef_router_shape *shape,
                                                           size_t rows_max,
                                                           size_t piece_rows,
                                                           bool backward, // false saves the memory
                                                           reef_error *err);
REEF_API void reef_router_tape_release(reef_router_tape *tape); // accepts the zeroed tape

/**
 * Retrieve the experts of `rows` tokens: queries, scores against both tables, top-k of each, the
 * best K of the pairs with (i+1)(j+1) <= K, score function (He 2024 eq. 1-5). Exact. Of many
 * sub-keys most are left out after a first pass in bytes that bounds their scores; ids and weights
 * have the bits of scoring all of them.
 *
 * x             (rows, D); if rows is not a multiple of tape->piece_rows the last piece is shorter,
 *               and the bits of its rows then depend on their number (pad them where that matters)
 * piece_active  (pieces) or NULL: pieces with 0 are skipped, their outputs unspecified.
 *               In train mode all pieces take part.
 *
 * Errors: INVALID when a query, one of its best scores or in train mode the variance of queries is
 * not finite (names the row); outputs are then unspecified. Threads: `workers` run the pieces; one
 * call at a time per tape. Allocates nothing.
 */
REEF_API REEF_MUST_CHECK reef_status reef_router_forward(const reef_router_shape *shape,
                                                         const reef_router_params *params,
                                                         reef_router_mode mode,
                                                         reef_thread_pool *workers,
                                                         size_t rows,
                                                         const float *x,
                                                         const uint8_t *piece_active,
                                                         reef_router_tape *tape,
                                                         reef_error *err);

/**
 * Backward of reef_router_forward for the same arguments and tape, indices held fixed.
 *
 * d_gate  (rows, H, K) gradient of tape->gate
 * d_x     (rows, D) accumulated into
 * grads   parameter gradients, accumulated into; NULL when the generation is sealed (folded mode)
 */
REEF_API void reef_router_backward(const reef_router_shape *shape,
                                   const reef_router_params *params,
                                   reef_router_mode mode,
                                   reef_thread_pool *workers,
                                   size_t rows,
                                   const float *x,
                                   const uint8_t *piece_active,
                                   reef_router_tape *tape,
                                   const float *d_gate,
                                   float *d_x,
                                   reef_router_params *grads);

/** Move the running statistics: running = (1 - momentum) * running + momentum * batch. */
REEF_API void reef_router_update_stats(const reef_router_shape *shape,
                                       reef_router_params *params,
                                       const reef_router_tape *tape,
                                       float momentum);

// ---- usage --------------------------------------------------------------------------------------

#define REEF_USAGE_SCORE_ONE 1048576u // accumulated scores are fixed point with 20 fraction bits

// The most that one selection adds: a ReLU score has no bound of its own. 2^32 selections fit the
// sum.
#define REEF_USAGE_SCORE_MAX 4096.0

/**
 * How often an expert was chosen, and z' of He 2024 section 3.3: the sum of its router scores, each
 * cut to REEF_USAGE_SCORE_MAX.
 */
typedef struct reef_usage {
    uint64_t count;
    uint64_t score; // in 1/REEF_USAGE_SCORE_ONE
} reef_usage;

typedef struct reef_usage_summary {
    uint64_t expert_count, used_count, selections;
    double used_percent; // "expert usage": share of experts with z_i != 0
    double unevenness;   // log N + sum z_i log z_i over used experts; nats; 0 for uniform use
} reef_usage_summary;

REEF_API void reef_usage_summarise(size_t expert_count,
                                   const reef_usage *usage,
                                   reef_usage_summary *out);

#endif
