// How a layer by itself learns: forward for training, backward, the step, boundaries, parameters by
// name.
#ifndef REEF_LAYER_TRAINER_H
#define REEF_LAYER_TRAINER_H

#include "reef_layer.h"
#include "reef_trainer.h"

/** reef_model_layer_forward of the generations in training, committed or not. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_layer_forward(reef_trainer *trainer,
                                                                const reef_layer_choice *choice,
                                                                size_t rows,
                                                                const float *x,
                                                                float *y,
                                                                reef_layer_tape *tape,
                                                                reef_error *err);

/** reef_model_layer_backward of the generations in training. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_layer_backward(reef_trainer *trainer,
                                                                 reef_layer_tape *tape,
                                                                 const float *x,
                                                                 const float *d_y,
                                                                 float *d_x,
                                                                 reef_error *err);
/**
 * Adam on what was collected: dense Adam for the router, lazy Adam for the rows of the experts that
 * were chosen. Nothing happens where nothing was collected.
 *
 * learning_rate  of the router, times expert_rate of the experts; 0: the configuration's
 *
 * Errors: INVALID a learning rate beyond REEF_LEARNING_RATE_MAX; a gradient that is not finite, or
 * whose square is not: nothing has changed, and it waits until it is discarded. NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_layer_step(reef_trainer *trainer,
                                                             float learning_rate,
                                                             reef_error *err);
/** Forget what was collected. */
REEF_API void reef_trainer_layer_discard(reef_trainer *trainer);
/** Rows whose gradients are collected. */
REEF_API size_t reef_trainer_layer_collected(const reef_trainer *trainer);

/**
 * Seal the open generation, trained or not, and open the next, which adds nothing at first.
 * Commits.
 *
 * side        of the next; 0: the configuration's side
 * seal_dtype  as in reef_trainer_seal
 *
 * Errors: INVALID gradients are collected; FULL experts_max, the disk.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_layer_seal(reef_trainer *trainer,
                                                             uint32_t side,
                                                             const char *seal_dtype,
                                                             reef_sealing *out,
                                                             reef_error *err);

REEF_API REEF_MUST_CHECK reef_status reef_trainer_layer_read(reef_trainer *trainer,
                                                             uint32_t generation,
                                                             const char *name,
                                                             float *out,
                                                             size_t count,
                                                             reef_error *err);
/**
 * Give a parameter of the open generation these values; its moments are reset. INVALID: values that
 * are not finite, a variance below 0.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_layer_write(
    reef_trainer *trainer, const char *name, const float *values, size_t count, reef_error *err);
/**
 * The gradient that was collected of a parameter of the open generation; zeros where nothing was.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_layer_gradient(
    reef_trainer *trainer, const char *name, float *out, size_t count, reef_error *err);

/** Generations in memory: of the state, or of what is being trained. */
REEF_API size_t reef_trainer_generation_count(const reef_trainer *trainer);
REEF_API const reef_generation_record *reef_trainer_generation(const reef_trainer *trainer,
                                                               size_t g);
REEF_API const reef_config *reef_trainer_config(const reef_trainer *trainer);

#endif
