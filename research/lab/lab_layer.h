// One PEER layer with random weights and tokens and nothing around it, for measurements of its
// speed.
#ifndef REEF_LAB_LAYER_H
#define REEF_LAB_LAYER_H

#include "reef_model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct reef_lab_layer reef_lab_layer;

typedef struct reef_lab_layer_options {
    reef_router_shape shape; // with batch norm
    size_t tokens;           // of one pass
    // As a sealed generation: nothing learns, moments have no memory, and the router is folded.
    bool sealed;
} reef_lab_layer_options;

/** Where the time of a pass went; what a pass does not do is 0. */
typedef struct reef_lab_seconds {
    double retrieval, experts; // forward
    double loss, experts_backward, retrieval_backward;
    double sort, experts_update; // pairs by expert; gradients of experts and their Adam in one pass
    double retrieval_update;     // Adam and running statistics of the router
} reef_lab_seconds;

double reef_lab_seconds_sum(const reef_lab_seconds *seconds);

/**
 * The same shape draws the same values. Rows of experts and their moments ask for huge pages.
 * INVALID when sizes do not fit; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_lab_layer_new(reef_lab_layer **out,
                                               const reef_lab_layer_options *options,
                                               reef_thread_pool *workers, // draw the values
                                               reef_error *err);
void reef_lab_layer_free(reef_lab_layer *layer); // accepts NULL

/** What the last retrieve or forward left behind: queries and choice. */
const reef_router_tape *reef_lab_layer_tape(const reef_lab_layer *layer);
/** From now on all sub-keys are scored, or those that the router's first pass leaves. */
void reef_lab_layer_score_all(reef_lab_layer *layer, bool all);

/**
 * One pass over the layer's tokens each. retrieve and forward evaluate, with the batch norm folded.
 * backward is forward and backward in training mode, up to the gradients of tokens and router;
 * gradients of experts are only ever computed by step, which is backward and the optimisers of
 * both. backward and step are of open layers.
 * seconds  written
 * Errors: INVALID when the router's queries are not finite.
 */
typedef reef_status reef_lab_pass(reef_lab_layer *layer,
                                  reef_thread_pool *workers,
                                  reef_lab_seconds *seconds,
                                  reef_error *err);
REEF_MUST_CHECK reef_lab_pass reef_lab_layer_retrieve;
REEF_MUST_CHECK reef_lab_pass reef_lab_layer_forward;
REEF_MUST_CHECK reef_lab_pass reef_lab_layer_backward;
REEF_MUST_CHECK reef_lab_pass reef_lab_layer_step;

/** How many experts the last pass of an open layer chose at least once. */
size_t reef_lab_layer_touched(reef_lab_layer *layer);
/** Mean squared error of the last pass but retrieve: steps bring it down. */
double reef_lab_layer_loss(const reef_lab_layer *layer);

#endif
