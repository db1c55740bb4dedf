// A PEER layer by itself, in memory or on disk, for measurements of its speed.
#ifndef REEF_LAYER_BENCH_H
#define REEF_LAYER_BENCH_H

#include "reef_model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- one layer by itself ------------------------------------------------------------------------

/** A PEER layer with random weights and tokens and nothing around it, for measurements. */
typedef struct reef_layer_bench reef_layer_bench;

typedef struct reef_layer_bench_options {
    reef_router_shape shape; // with batch norm
    size_t tokens;           // of one pass; a whole number of pieces
    size_t piece_tokens;     // that one worker takes at a time
    uint64_t seed;           // of tokens and weights: the same seed and shape draw the same
    // As a sealed generation: nothing learns, moments have no memory, and the router is folded.
    bool sealed;
    // The other fields but the last are of a sealed layer only. Type of the rows: REEF_F32, also
    // when zero, REEF_BF16 or REEF_I8, which are drawn in floats and rounded.
    reef_dtype dtype;
    // Rows that lie elsewhere and stay there while the layer lives, or NULL: the layer draws its
    // own. Row n is row n mod 2^row_block_shift of block n >> row_block_shift, which is aligned for
    // its type.
    const void *const *row_blocks;
    uint32_t row_block_shift; // 32: all in one block
    // Called in every pass when the experts of all tokens are known and before their rows are read,
    // such as to fetch these: `indices` (tokens, heads, topk), `count` of them. Its time counts
    // with the experts. May be NULL.
    void (*chosen)(void *context, size_t count, const reef_expert_id *indices);
    void *chosen_context;
    // A layer of the same tokens and d_model, which lives longer: this one takes its tokens and
    // gradients and adds to its outputs, as generations of one pool do. NULL: tokens of its own.
    const reef_layer_bench *beside;
} reef_layer_bench_options;

/** Where the time of a pass went; what a pass does not do is 0. */
typedef struct reef_layer_seconds {
    double retrieval, experts; // forward
    double loss, experts_backward, retrieval_backward;
    double sort, experts_update; // pairs by expert; gradients of experts and their Adam in one pass
    double retrieval_update;     // Adam and running statistics of the router
} reef_layer_seconds;

/**
 * Rows of experts and their moments ask for huge pages. INVALID when sizes do not fit; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status
reef_layer_bench_new(reef_layer_bench **out,
                     const reef_layer_bench_options *options,
                     reef_thread_pool *workers, // draw the values
                     reef_error *err);
REEF_API void reef_layer_bench_free(reef_layer_bench *layer); // accepts NULL
/** Other tokens and targets, for a layer that has its own: those of a new layer with this seed. */
REEF_API void reef_layer_bench_draw_tokens(reef_layer_bench *layer, uint64_t seed);
/**
 * The layer's own rows, (side * side, 2 * d_model) of its type; they change with each step. Or
 * NULL.
 */
REEF_API const void *reef_layer_bench_rows(const reef_layer_bench *layer);
/** Bytes of the layer's own rows; of the moments of rows and router, 0 in a sealed layer. */
REEF_API size_t reef_layer_bench_row_bytes(const reef_layer_bench *layer);
REEF_API size_t reef_layer_bench_moment_bytes(const reef_layer_bench *layer);
/** The output (tokens, d_model) of the last pass but retrieve; of all layers beside each other. */
REEF_API const float *reef_layer_bench_output(const reef_layer_bench *layer);
/**
 * The folded router of the last retrieve or forward, and what that left behind: queries and choice.
 */
REEF_API const reef_router_params *reef_layer_bench_router(const reef_layer_bench *layer);
REEF_API const reef_router_tape *reef_layer_bench_tape(const reef_layer_bench *layer);

/** From now on all sub-keys are scored, or those that the router's first pass leaves. */
REEF_API void reef_layer_bench_score_all(reef_layer_bench *layer, bool all);

/**
 * One pass over the layer's tokens each. retrieve and forward evaluate, with the batch norm folded.
 * backward is forward and backward in training mode, up to the gradients of tokens and router;
 * gradients of experts are only ever computed by step, which is backward and the optimisers of
 * both. A sealed layer's backward stops at the gradient of the tokens, and its step is that.
 * seconds  written
 * Errors: INVALID when the router's queries are not finite.
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_retrieve(reef_layer_bench *layer,
                                                               reef_thread_pool *workers,
                                                               reef_layer_seconds *seconds,
                                                               reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_forward(reef_layer_bench *layer,
                                                              reef_thread_pool *workers,
                                                              reef_layer_seconds *seconds,
                                                              reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_backward(reef_layer_bench *layer,
                                                               reef_thread_pool *workers,
                                                               reef_layer_seconds *seconds,
                                                               reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_step(reef_layer_bench *layer,
                                                           reef_thread_pool *workers,
                                                           reef_layer_seconds *seconds,
                                                           reef_error *err);
/**
 * A training step of a pool of generations that all fire: every layer adds its output, the loss is
 * that of the sum, and the open layers learn. Layers after the first were made beside one of them.
 * seconds  written; of all layers together
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_bench_step_all(size_t count,
                                                               reef_layer_bench *const *layers,
                                                               reef_thread_pool *workers,
                                                               reef_layer_seconds *seconds,
                                                               reef_error *err);
/** How many experts the last pass of an open layer chose at least once. */
REEF_API size_t reef_layer_bench_touched(reef_layer_bench *layer);
/** Mean squared error of the last pass but retrieve: steps bring it down. */
REEF_API double reef_layer_bench_loss(const reef_layer_bench *layer);

// ---- one layer on disk --------------------------------------------------------------------------

/** The rows of one sealed layer in a pool of their own, read in place: more than fit memory. */
typedef struct reef_layer_pool reef_layer_pool;

/**
 * Make such a pool in directory `path`: side * side rows of w_down and w_up, drawn and rounded to
 * bf16.
 * progress  may be NULL; called with the bytes of rows written so far
 * Errors: INVALID the directory exists; FULL; IO; NO_MEMORY. What was written stays.
 */
REEF_API REEF_MUST_CHECK reef_status
reef_layer_pool_write(const char *path,
                      const reef_router_shape *shape,
                      uint64_t seed,
                      reef_thread_pool *workers, // draw the values
                      void (*progress)(void *context, uint64_t bytes),
                      void *context,
                      reef_error *err);

/** `shape` as it was written; `memory_bytes`: what the process may hold, see reef_model_options. */
REEF_API REEF_MUST_CHECK reef_status reef_layer_pool_open(reef_layer_pool **out,
                                                          const char *path,
                                                          const reef_router_shape *shape,
                                                          uint64_t memory_bytes,
                                                          reef_error *err);
REEF_API void reef_layer_pool_close(reef_layer_pool *pool); // accepts NULL
/** For reef_layer_bench_options: row_blocks, with row_block_shift written. */
REEF_API const void *const *reef_layer_pool_blocks(const reef_layer_pool *pool,
                                                   uint32_t *block_shift);
/**
 * For reef_layer_bench_options: chosen, with the pool as its context. Begins to fetch those rows.
 */
REEF_API void reef_layer_pool_chosen(void *pool, size_t count, const reef_expert_id *indices);
/** After each pass: the thread that fetches is done with the pass's indices. */
REEF_API void reef_layer_pool_finish(reef_layer_pool *pool);
/** How often the process grew too large and released all rows. */
REEF_API uint64_t reef_layer_pool_drops(const reef_layer_pool *pool);

#endif
