// Models of labelled vectors: learn examples, and predict classes.
#include "lib.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_BYTES_AT_ONCE ((size_t)1 << 20)

static reef_status check_kind(const reef_pool *pool, const char *what, reef_error *err) {
    if (reef_config_is_vector(&pool->config)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "cannot %s: the model of pool %.120s is %s, and labelled vectors are for a "
                     "model that was made with model=vector",
                     what, reef_store_path(pool->store), reef_config_word(&pool->config, "model"));
}

// ---- learning -----------------------------------------------------------------------------------

// All of them before the first is taken, so that a mistake leaves the stream where it was.
static reef_status check_examples(
    size_t rows, size_t inputs, const float *vectors, const int32_t *labels, reef_error *err) {
    for (size_t i = 0; labels != NULL && i < rows; i++)
        if (labels[i] < -1)
            return reef_fail(err, REEF_ERR_INVALID,
                             "example %zu has the label %" PRId32
                             "; labels are 0 or more, and -1 where there is none",
                             i, labels[i]);
    for (size_t i = 0; i < rows * inputs; i++)
        // One value that is not finite would spread to every parameter.
        if (!isfinite(vectors[i]))
            return reef_fail(
                err, REEF_ERR_INVALID,
                "example %zu has %f in column %zu (both from 0); values must be finite", i / inputs,
                (double)vectors[i], i % inputs);
    return REEF_OK;
}

// The stream's own form, see reef_config.h: a label and the values, little-endian as every machine
// that Reef runs on.
static void write_records(
    uint8_t *to, size_t rows, size_t inputs, const float *vectors, const int32_t *labels) {
    for (size_t i = 0; i < rows; i++) {
        int32_t label = labels == NULL ? -1 : labels[i];
        memcpy(to, &label, REEF_VECTOR_LABEL_BYTES);
        memcpy(to + REEF_VECTOR_LABEL_BYTES, vectors + i * inputs, inputs * sizeof(*vectors));
        to += REEF_VECTOR_LABEL_BYTES + inputs * sizeof(*vectors);
    }
}

static reef_status feed_vector(reef_pool *pool,
                               const char *source,
                               size_t rows,
                               const float *vectors,
                               const int32_t *labels,
                               reef_error *err) {
    size_t inputs = pool->config.inputs, each = reef_vector_record_bytes(&pool->config);
    // In pieces, so that memory does not grow with the number of rows.
    size_t most = each < RECORD_BYTES_AT_ONCE ? RECORD_BYTES_AT_ONCE / each : 1;
    uint8_t *records = malloc((rows < most ? rows : most) * each + 1);
    reef_status status = records != NULL ? REEF_OK
                                         : reef_fail(err, REEF_ERR_NO_MEMORY,
                                                     "no memory for records of %zu bytes", each);
    for (size_t at = 0; status == REEF_OK && at < rows; at += most) {
        size_t count = rows - at < most ? rows - at : most;
        write_records(records, count, inputs, vectors + at * inputs,
                      labels == NULL ? NULL : labels + at);
        status = reef_trainer_feed(pool->trainer, source, records, count * each, NULL, NULL, err);
    }
    free(records);
    return status;
}

reef_status reef_pool_learn(reef_pool *pool,
                            const char *source,
                            size_t rows,
                            const float *vectors,
                            const int32_t *labels,
                            reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_lib_check_writer(pool, "learn examples", err);
    if (status == REEF_OK) status = check_kind(pool, "learn examples", err);
    if (status == REEF_OK) status = check_examples(rows, pool->config.inputs, vectors, labels, err);
    if (status == REEF_OK && labels != NULL)
        status = reef_trainer_check_labels(pool->trainer, rows, labels, err);
    if (status == REEF_OK) status = feed_vector(pool, source, rows, vectors, labels, err);
    reef_lib_leave(pool);
    return status;
}

// ---- predicting ---------------------------------------------------------------------------------

reef_status reef_pool_classes(
    reef_pool *pool, int32_t *labels, size_t room, size_t *count, reef_error *err) {
    int32_t all[REEF_CLASS_COUNT_MAX];
    *count = 0;
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = check_kind(pool, "predict classes", err);
    if (status == REEF_OK) status = reef_lib_catch_up(pool, err);
    if (status == REEF_OK) {
        *count = reef_model_class_count(pool->model);
        reef_model_classes(pool->model, all);
        // The count is of all classes, so a caller with too little room can ask again.
        size_t shown = *count < room ? *count : room;
        if (shown > 0) memcpy(labels, all, shown * sizeof(*labels));
    }
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_predict(reef_pool *pool,
                              size_t rows,
                              const float *vectors,
                              int32_t *labels,
                              float *scores,
                              size_t classes,
                              uint32_t *generations,
                              reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = check_kind(pool, "predict classes", err);
    if (status == REEF_OK) status = reef_lib_catch_up(pool, err);
    // The state may have learned a class since the caller asked for their number.
    if (status == REEF_OK && scores != NULL && classes != reef_model_class_count(pool->model))
        status = reef_fail(err, REEF_ERR_INVALID,
                           "the scores have room for %zu classes, but the state knows %zu; "
                           "reef_pool_classes returns them",
                           classes, reef_model_class_count(pool->model));
    if (status == REEF_OK)
        status = reef_model_predict(pool->model, rows, vectors, labels, scores, generations, err);
    reef_lib_leave(pool);
    return status;
}
