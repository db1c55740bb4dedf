// What computes. Of one PEER layer the caller's arrays go straight to the trainer of the pool, or
// to the state that was opened; models of bytes are trained on a stream, and asked about texts.
#include "lib.h"

// ---- one PEER layer -----------------------------------------------------------------------------

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
    reef_status status = reef_lib_enter_writer(pool, "take a step", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_layer_step(pool->trainer, learning_rate, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_layer_discard(reef_pool *pool, reef_error *err) {
    reef_status status = reef_lib_enter_writer(pool, "discard gradients", err);
    if (status != REEF_OK) return status;
    reef_trainer_layer_discard(pool->trainer);
    reef_lib_leave(pool);
    return REEF_OK;
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
    reef_status status = reef_lib_enter_writer(pool, "set a parameter", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_layer_write(pool->trainer, name, values, count, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_layer_gradient(
    reef_pool *pool, const char *name, float *out, size_t count, reef_error *err) {
    reef_status status = reef_lib_enter_writer(pool, "read gradients", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_layer_gradient(pool->trainer, name, out, count, err);
    reef_lib_leave(pool);
    return status;
}

// ---- a model of bytes ---------------------------------------------------------------------------

reef_status reef_pool_train(
    reef_pool *pool, const char *source, const void *bytes, size_t count, reef_error *err) {
    reef_status status = reef_lib_enter_writer(pool, "train", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_feed(pool->trainer, source, bytes, count, NULL, NULL, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_cursor(reef_pool *pool,
                             const char *source,
                             uint64_t *bytes,
                             reef_error *err) {
    reef_status status = reef_lib_enter_writer(pool, "read a cursor", err);
    if (status != REEF_OK) return status;
    *bytes = reef_trainer_cursor(pool->trainer, source);
    reef_lib_leave(pool);
    return REEF_OK;
}

reef_status reef_pool_read_training(reef_pool *pool, reef_training_info *out, reef_error *err) {
    reef_trainer_status now = {0};
    reef_status status = reef_lib_enter_writer(pool, "read the state of training", err);
    if (status != REEF_OK) return status;
    reef_trainer_status_read(pool->trainer, &now);
    reef_lib_leave(pool);
    const reef_training_info info = {
        .step = now.step,
        .position = now.stream_bytes,
        .waiting = now.pending_bytes,
        .generation = now.generation,
        .bits_per_byte = now.bits_per_byte,
        .last_bits_per_byte = now.last_bits_per_byte,
        .learning_rate = now.learning_rate,
    };
    return reef_lib_give(out, &info, sizeof(info), "reef_training_info", err);
}

// ---- questions ----------------------------------------------------------------------------------

// What a writer evaluates is its last commit, so first that has to be what was trained. A marker
// line in the stream moves it on without a step, and may have sealed a generation.
reef_status reef_lib_catch_up(reef_pool *pool, reef_error *err) {
    reef_trainer_status now;
    reef_commit commit;
    if (pool->trainer == NULL) return REEF_OK;
    reef_trainer_status_read(pool->trainer, &now);
    reef_status status = reef_store_read_commit(pool->store, &commit, err);
    if (status == REEF_OK && (now.dirty_since_step > 0 || now.stream_bytes != commit.stream_bytes))
        status = reef_trainer_commit(pool->trainer, &commit, err);
    if (status != REEF_OK) return status;
    // Reopening reads what a commit changed, so it happens once for each.
    if (pool->model != NULL && pool->model_commit == commit.number) return REEF_OK;
    status = reef_model_reopen(&pool->model, pool->store, NULL, &pool->model_options, err);
    if (status == REEF_OK) status = reef_lib_check_kinds(pool->model, err);
    if (status == REEF_OK) pool->model_commit = commit.number;
    return status;
}

// Under the state that was opened, or of a writer under its last commit. `out` may be NULL.
static reef_status evaluate(reef_pool *pool,
                            const void *bytes,
                            size_t count,
                            float *bits,
                            reef_score *score,
                            reef_evaluation *out,
                            reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_catch_up(pool, err);
    if (status == REEF_OK)
        status = reef_model_score(pool->model, bytes, count, bits, score, NULL, NULL, err);
    reef_lib_unpin(pool);
    reef_lib_leave(pool);
    if (status != REEF_OK || out == NULL) return status;
    const reef_evaluation evaluation = {
        .bytes = score->bytes, .bits = score->bits, .bits_per_byte = score->bits_per_byte};
    return reef_lib_give(out, &evaluation, sizeof(evaluation), "reef_evaluation", err);
}

reef_status reef_pool_evaluate(reef_pool *pool,
                               const void *bytes,
                               size_t count,
                               float *bits,
                               reef_evaluation *out,
                               reef_error *err) {
    reef_score score = {0};
    return evaluate(pool, bytes, count, bits, &score, out, err);
}

_Static_assert(REEF_CANDIDATES == REEF_ANSWERS_MAX, "as in reef/reef.h");

reef_status reef_pool_evaluate_kinds(reef_pool *pool,
                                     const void *bytes,
                                     size_t count,
                                     uint32_t width,
                                     uint32_t *kinds,
                                     float *weights,
                                     reef_evaluation *out,
                                     reef_error *err) {
    reef_score score = {.answers = {.width = width, .kinds = kinds, .weights = weights}};
    if (pool->config.memory == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "pool %.120s has no context memories, by which kinds answer",
                         reef_store_path(pool->store));
    if (kinds == NULL || width == 0 || width > REEF_ANSWERS_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%u candidates of each byte: give an array for 1 to %u", width,
                         REEF_ANSWERS_MAX);
    return evaluate(pool, bytes, count, NULL, &score, out, err);
}

reef_status reef_pool_generate(reef_pool *pool,
                               const void *prompt,
                               size_t prompt_bytes,
                               const reef_generate_options *options,
                               void *out,
                               size_t count,
                               reef_error *err) {
    reef_generate_options own;
    reef_status status = reef_lib_take(&own, sizeof(own), options, "reef_generate_options", err);
    if (status != REEF_OK) return status;
    // Written so that NaN is refused as well.
    if (!(own.temperature >= 0.0f && own.top_p >= 0.0f && own.top_p <= 1.0f))
        return reef_fail(err, REEF_ERR_INVALID,
                         "temperature %g, top_p %g: the one is 0 or more, the other 0 to 1",
                         (double)own.temperature, (double)own.top_p);
    const reef_sampling sampling = {
        .seed = own.seed, .temperature = own.temperature, .top_p = own.top_p};
    status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_catch_up(pool, err);
    if (status == REEF_OK)
        status = reef_model_generate(pool->model, prompt, prompt_bytes, count, &sampling, out, err);
    reef_lib_unpin(pool);
    reef_lib_leave(pool);
    return status;
}
