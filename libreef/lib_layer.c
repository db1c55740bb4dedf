// One PEER layer: the caller's arrays go straight to the trainer of the pool, or to the state that
// was opened.
#include "lib.h"

static reef_layer_tape *inside(reef_tape *tape) {
    return (reef_layer_tape *)(void *)tape;
}

reef_status reef_tape_new(reef_tape **out, reef_error *err) {
    reef_layer_tape *tape;
    reef_status status = reef_layer_tape_new(&tape, err);
    *out = (reef_tape *)(void *)tape;
    return status;
}

void reef_tape_free(reef_tape *tape) {
    reef_layer_tape_free(inside(tape));
}

reef_status reef_layer_forward(reef_pool *pool,
                               const reef_layer_call *call,
                               size_t rows,
                               const float *x,
                               float *y,
                               reef_tape *tape,
                               reef_error *err) {
    reef_layer_call own;
    reef_status status = reef_lib_take(&own, sizeof(own), call, "reef_layer_call", err);
    if (status != REEF_OK) return status;
    const reef_layer_choice choice = {
        .generations = own.generations, .mask = own.mask, .train = own.train != 0};
    status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    // A writer computes with rows that are not committed yet, a reader with a commit.
    status = pool->trainer != NULL
                 ? reef_trainer_layer_forward(pool->trainer, &choice, rows, x, y, inside(tape), err)
                 : reef_model_layer_forward(pool->model, &choice, rows, x, y, inside(tape), err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_layer_backward(reef_pool *pool,
                                reef_tape *tape,
                                const float *x,
                                const float *d_y,
                                float *d_x,
                                reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = pool->trainer != NULL
                 ? reef_trainer_layer_backward(pool->trainer, inside(tape), x, d_y, d_x, err)
                 : reef_model_layer_backward(pool->model, inside(tape), x, d_y, d_x, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_layer_step(reef_pool *pool, float learning_rate, reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_check_writer(pool, "take a step", err);
    if (status == REEF_OK) status = reef_trainer_layer_step(pool->trainer, learning_rate, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_layer_discard(reef_pool *pool, reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_check_writer(pool, "discard gradients", err);
    if (status == REEF_OK) reef_trainer_layer_discard(pool->trainer);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_layer_read(reef_pool *pool,
                            uint32_t generation,
                            const char *name,
                            float *out,
                            size_t count,
                            reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = pool->trainer != NULL
                 ? reef_trainer_layer_read(pool->trainer, generation, name, out, count, err)
                 : reef_model_layer_read(pool->model, generation, name, out, count, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_layer_write(
    reef_pool *pool, const char *name, const float *values, size_t count, reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_check_writer(pool, "set a parameter", err);
    if (status == REEF_OK)
        status = reef_trainer_layer_write(pool->trainer, name, values, count, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_layer_gradient(
    reef_pool *pool, const char *name, float *out, size_t count, reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_check_writer(pool, "read gradients", err);
    if (status == REEF_OK)
        status = reef_trainer_layer_gradient(pool->trainer, name, out, count, err);
    reef_lib_leave(pool);
    return status;
}
