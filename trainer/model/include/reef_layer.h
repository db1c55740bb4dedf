// One PEER layer by itself: a pool whose model is nothing else, forward and backward on the
// caller's arrays.
//
// Such a pool ("model": "layer") grows in generations as the others do: y is the sum of what they
// add, the open one learns, sealed ones never change. It has no stream: what the layer is for, what
// its loss is and which generations take part in which row is the caller's business. Rows are
// counted where pools of text count bytes.
#ifndef REEF_LAYER_H
#define REEF_LAYER_H

#include "reef_model.h"

/**
 * Rows that one worker takes at a time. The result depends on a row's position among so many, not
 * on more.
 */
#define REEF_LAYER_PIECE 64u

/** What one forward leaves for its backward; memory is kept for the next, of whichever pool. */
typedef struct reef_layer_tape reef_layer_tape;
REEF_API REEF_MUST_CHECK reef_status reef_layer_tape_new(reef_layer_tape **out, reef_error *err);
REEF_API void reef_layer_tape_free(reef_layer_tape *tape); // accepts NULL

/** Which part of the layer a forward computes. All-zero: all generations, as they are evaluated. */
typedef struct reef_layer_choice {
    size_t generations;  // the first so many; 0: all
    const uint8_t *mask; // (generations, rows) or NULL: where 0 a generation takes no part in a row
    bool train; // the open generation with batch statistics, and to learn from the backward
} reef_layer_choice;

/**
 * y = the sum over the chosen generations of their PEER layers at x.
 *
 * x     (rows, d_model)
 * y     (rows, d_model) written; no part of it may be the memory of x
 * tape  filled for a backward, or NULL: none will follow (train needs one)
 *
 * Errors: INVALID no such generation, a pool that is not a layer, values that are not finite,
 * arrays that overlap; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_layer_forward(reef_model *model,
                                                              const reef_layer_choice *choice,
                                                              size_t rows,
                                                              const float *x,
                                                              float *y,
                                                              reef_layer_tape *tape,
                                                              reef_error *err);

/**
 * d_x from d_y, for the x and the tape of a forward, which is used up. Of a forward that trains,
 * the gradients of the open generation's parameters are collected, over any number of calls, until
 * reef_trainer_layer_step.
 *
 * d_y  (rows, d_model)
 * d_x  (rows, d_model) written; no part of it may be the memory of x or d_y
 *
 * Errors: INVALID a tape without a forward, or that a step has overtaken; values of d_y that are
 * not finite, arrays that overlap; FULL too many rows are collected; NO_MEMORY. The tape is then as
 * it was.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_layer_backward(reef_model *model,
                                                               reef_layer_tape *tape,
                                                               const float *x,
                                                               const float *d_y,
                                                               float *d_x,
                                                               reef_error *err);

/**
 * Parameters by name: w_down, w_up and with glu w_gate, each (experts, d_model) in the order of
 * ids; w_query (d_model, heads * d_key), sub_keys_a and sub_keys_b (side, d_key / 2). An open
 * generation with a batch norm also has bn_scale, bn_shift, bn_mean and bn_var (heads * d_key). In
 * a sealed one it is folded into w_query, and query_bias (heads * d_key) is added.
 *
 * count  values that there are; INVALID where it is not what the caller's array has
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_layer_read(reef_model *model,
                                                           uint32_t generation,
                                                           const char *name,
                                                           float *out,
                                                           size_t count,
                                                           reef_error *err);

REEF_API const reef_generation_record *reef_model_generation(const reef_model *model, size_t g);

#endif
