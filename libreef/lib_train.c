// Models of bytes: train, and measure the loss of a text.
#include "lib.h"

#include <math.h>

reef_status reef_pool_train(
    reef_pool *pool, const char *source, const void *bytes, size_t count, reef_error *err) {
    reef_lib_enter(pool);
    reef_status status = reef_lib_check_writer(pool, "train", err);
    if (status == REEF_OK)
        status = reef_trainer_feed(pool->trainer, source, bytes, count, NULL, NULL, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_cursor(reef_pool *pool,
                             const char *source,
                             uint64_t *bytes,
                             reef_error *err) {
    reef_lib_enter(pool);
    reef_status status = reef_lib_check_writer(pool, "read a cursor", err);
    if (status == REEF_OK) *bytes = reef_trainer_cursor(pool->trainer, source);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_read_training(reef_pool *pool, reef_training_info *out, reef_error *err) {
    reef_trainer_status now = {0};
    reef_lib_enter(pool);
    reef_status status = reef_lib_check_writer(pool, "read the state of training", err);
    if (status == REEF_OK) reef_trainer_status_read(pool->trainer, &now);
    reef_lib_leave(pool);
    if (status != REEF_OK) return status;
    const reef_training_info info = {
        .step = now.step,
        .position = now.stream_bytes,
        .waiting = now.carried_bytes,
        .skipped = now.skipped_bytes,
        .generation = now.generation,
        // Where there was no batch so far both are 0, which no text has.
        .bits_per_byte = now.bits_per_byte > 0 ? now.bits_per_byte : (double)NAN,
        .last_bits_per_byte = now.last_bits_per_byte > 0 ? now.last_bits_per_byte : (double)NAN,
        .learning_rate = now.learning_rate,
    };
    return reef_lib_give(out, &info, sizeof info, "reef_training_info", err);
}

// What a writer evaluates is its last commit, so first that has to be what was trained.
static reef_status catch_up(reef_pool *pool, reef_error *err) {
    reef_trainer_status now;
    reef_txn *txn = NULL;
    reef_commit commit;
    reef_status status = REEF_OK;
    if (pool->trainer == NULL) return REEF_OK;
    reef_trainer_status_read(pool->trainer, &now);
    if (now.dirty_since_step > 0) status = reef_trainer_commit(pool->trainer, NULL, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    if (pool->model != NULL && pool->model_commit == commit.number) return REEF_OK;
    status = reef_model_reopen(&pool->model, pool->store, NULL, &pool->model_options, err);
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
    reef_lib_enter(pool);
    reef_status status = catch_up(pool, err);
    if (status == REEF_OK)
        status = reef_model_score(pool->model, bytes, count, bits, &score, NULL, NULL, err);
    if (pool->trainer != NULL && pool->model != NULL) reef_model_rest(pool->model);
    reef_lib_leave(pool);
    if (status != REEF_OK) return status;
    const reef_evaluation evaluation = {
        .bytes = score.bytes, .bits = score.bits, .bits_per_byte = score.bits_per_byte};
    return reef_lib_give(out, &evaluation, sizeof evaluation, "reef_evaluation", err);
}
