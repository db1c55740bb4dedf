// A batch of the stream of a vector model: its records, and the scores that the open generation
// gives them.
#include "vector_stream.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int32_t record_label(const uint8_t *record) {
    int32_t label;
    memcpy(&label, record, sizeof(label));
    return label;
}

reef_status reef_vector_record_check(const uint8_t *record,
                                     size_t D,
                                     uint64_t number,
                                     reef_error *err) {
    int32_t label = record_label(record);
    // -1 means no label. Other negative numbers are most likely a column that was read as the label
    // by mistake.
    if (label < -1)
        return reef_fail(err, REEF_ERR_INVALID,
                         "example %" PRIu64
                         " of the stream has the label %d; labels are 0 or more, "
                         "or -1 for none",
                         number, label);
    // One infinite value would make every sum that it enters infinite, and every later solution
    // with it.
    for (size_t d = 0; d < D; d++) {
        float value;
        memcpy(&value, record + REEF_VECTOR_LABEL_BYTES + d * sizeof(value), sizeof(value));
        if (!isfinite(value))
            return reef_fail(err, REEF_ERR_INVALID,
                             "example %" PRIu64
                             " of the stream has %f in column %zu (both from 0); "
                             "values must be finite: leave such examples out or fill the gap",
                             number, (double)value, d);
    }
    return REEF_OK;
}

static bool is_among(const int32_t *labels, size_t count, int32_t label, size_t *at) {
    for (*at = 0; *at < count && labels[*at] != label; ++*at) {
    }
    return *at < count;
}

static reef_status too_many_classes(int32_t label, reef_error *err) {
    return reef_fail(err, REEF_ERR_FULL,
                     "label %d would be the pool's class number %d, and %d is the most", label,
                     REEF_CLASS_COUNT_MAX + 1, REEF_CLASS_COUNT_MAX);
}

// Labels that are not classes of the model yet.
typedef struct fresh_labels {
    const reef_vector_network *network;
    int32_t labels[REEF_CLASS_COUNT_MAX];
    size_t count;
} fresh_labels;

// False if it is full.
static bool note_label(fresh_labels *fresh, int32_t label) {
    const reef_vector_network *network = fresh->network;
    size_t index;
    if (label < 0 || is_among(network->labels, network->class_count, label, &index) ||
        is_among(fresh->labels, fresh->count, label, &index))
        return true;
    if (network->class_count + fresh->count == REEF_CLASS_COUNT_MAX) return false;
    fresh->labels[fresh->count++] = label;
    return true;
}

// Those are at most the records before it, so most of the time no search is needed.
reef_status reef_vector_label_check(const reef_vector_network *network,
                                    const uint8_t *records,
                                    size_t at,
                                    reef_error *err) {
    size_t each = reef_vector_record_bytes(&network->config);
    if (network->class_count + at < REEF_CLASS_COUNT_MAX) return REEF_OK;
    fresh_labels fresh = {.network = network};
    for (size_t i = 0; i < at; i++) (void)note_label(&fresh, record_label(records + i * each));
    int32_t label = record_label(records + at * each);
    return note_label(&fresh, label) ? REEF_OK : too_many_classes(label, err);
}

reef_status reef_trainer_check_labels(const reef_trainer *trainer,
                                      size_t count,
                                      const int32_t *labels,
                                      reef_error *err) {
    const reef_vector_network *network = &trainer->vector->network;
    size_t each = reef_vector_record_bytes(&network->config),
           waiting = trainer->pending_bytes / each;
    // The cheap bound first: only near the limit are the labels themselves counted.
    if (network->class_count + waiting + count <= REEF_CLASS_COUNT_MAX) return REEF_OK;
    fresh_labels fresh = {.network = network};
    // Records that wait were accepted, so their labels will become classes.
    for (size_t i = 0; i < waiting; i++)
        (void)note_label(&fresh, record_label(trainer->pending + i * each));
    for (size_t i = 0; i < count; i++)
        if (!note_label(&fresh, labels[i])) return too_many_classes(labels[i], err);
    return REEF_OK;
}

// Class of a label, the next new one when it was never seen.
static reef_status class_of(reef_vector_network *network,
                            int32_t label,
                            int32_t *out,
                            reef_error *err) {
    size_t index;
    *out = -1;
    if (label < 0) return REEF_OK;
    // Classes are numbered in the order of their first example, which the stream alone decides.
    if (!is_among(network->labels, network->class_count, label, &index)) {
        if (network->class_count == REEF_CLASS_COUNT_MAX) return too_many_classes(label, err);
        network->labels[network->class_count++] = label;
    }
    *out = (int32_t)index;
    return REEF_OK;
}

reef_status reef_vector_batch_read(reef_vector *vector,
                                   const uint8_t *bytes,
                                   size_t rows,
                                   reef_error *err) {
    size_t D = vector->network.config.inputs,
           each = reef_vector_record_bytes(&vector->network.config);
    // The padding rows of the last piece are zero and have no class.
    memset(vector->vectors, 0, REEF_VECTOR_BATCH_MAX * D * sizeof(float));
    for (size_t i = 0; i < rows; i++) {
        const uint8_t *record = bytes + i * each;
        reef_status status =
            class_of(&vector->network, record_label(record), &vector->classes[i], err);
        if (status != REEF_OK) return status;
        memcpy(vector->vectors + i * D, record + REEF_VECTOR_LABEL_BYTES, D * sizeof(float));
    }
    return REEF_OK;
}

typedef struct scoring {
    const reef_vector *vector;
    const reef_vector_generation *generation;
    float *hidden; // (rows, padded of `shape`)
    const reef_ridge_shape *shape;
    float *scores; // (rows, classes of the head); NULL for none
} scoring;

static void score_piece(void *context, size_t piece) {
    const scoring *s = context;
    size_t from = piece * REEF_VECTOR_PIECE, D = s->generation->inputs, width = s->shape->padded;
    size_t C = s->generation->head.class_count;
    float *z = s->vector->z + from * (D + 1), *hidden = s->hidden + from * width;
    reef_vector_standardise(s->generation, REEF_VECTOR_PIECE, z, s->vector->vectors + from * D);
    reef_vector_hidden(s->generation, s->shape->size, width, hidden, z);
    if (s->scores == NULL || C == 0) return;
    reef_gemm(false, true, REEF_VECTOR_PIECE, C, width, 1.0f, hidden, width,
              s->generation->head.w_up, width, 0.0f, s->scores + from * C, C);
}

static size_t pieces_of(size_t rows) {
    return (rows + REEF_VECTOR_PIECE - 1) / REEF_VECTOR_PIECE;
}

void reef_vector_batch_score(reef_trainer *trainer, size_t rows) {
    reef_vector *vector = trainer->vector;
    reef_vector_generation *open = reef_vector_open(vector);
    if (!open->drawn)
        reef_vector_generation_draw(open, &vector->network.config,
                                    reef_open_generation(trainer)->info.generation, rows,
                                    vector->vectors, vector->z, vector->hidden);
    scoring s = {vector, open, vector->hidden, &open->shape, vector->scores};
    reef_thread_pool_run(trainer->workers, pieces_of(rows), score_piece, &s);
}

void reef_vector_batch_gate(reef_trainer *trainer, size_t rows) {
    reef_vector *vector = trainer->vector;
    scoring s = {vector, vector->network.generations[0], vector->gate_hidden, &vector->gate.shape,
                 NULL};
    reef_thread_pool_run(trainer->workers, pieces_of(rows), score_piece, &s);
}
