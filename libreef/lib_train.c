// Models of bytes: train, and measure the loss of a text.
#include "lib.h"

reef_status reef_pool_train(
    reef_pool *pool, const char *source, const void *bytes, size_t count, reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_check_writer(pool, "train", err);
    if (status == REEF_OK)
        status = reef_trainer_feed(pool->trainer, source, bytes, count, NULL, NULL, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_cursor(reef_pool *pool,
                             const char *source,
                             uint64_t *bytes,
                             reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_check_writer(pool, "read a cursor", err);
    if (status == REEF_OK) *bytes = reef_trainer_cursor(pool->trainer, source);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_read_training(reef_pool *pool, reef_training_info *out, reef_error *err) {
    reef_trainer_status now = {0};
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_check_writer(pool, "read the state of training", err);
    // Copied under the lock and converted outside it.
    if (status == REEF_OK) reef_trainer_status_read(pool->trainer, &now);
    reef_lib_leave(pool);
    if (status != REEF_OK) return status;
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
    reef_status status = reef_lib_read_commit(pool, &commit, err);
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

reef_status reef_pool_evaluate(reef_pool *pool,
                               const void *bytes,
                               size_t count,
                               float *bits,
                               reef_evaluation *out,
                               reef_error *err) {
    reef_score score = {0};
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_catch_up(pool, err);
    if (status == REEF_OK)
        status = reef_model_score(pool->model, bytes, count, bits, &score, NULL, NULL, err);
    // Between calls no transaction stays open: it would keep pages from reuse.
    reef_lib_unpin(pool);
    reef_lib_leave(pool);
    if (status != REEF_OK) return status;
    const reef_evaluation evaluation = {
        .bytes = score.bytes, .bits = score.bits, .bits_per_byte = score.bits_per_byte};
    return reef_lib_give(out, &evaluation, sizeof(evaluation), "reef_evaluation", err);
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
