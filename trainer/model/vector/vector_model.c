// A read-only copy of some state of a vector model, and its predictions.
#include "model_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_vector_network_load(reef_vector_network **out,
                                     reef_txn *txn,
                                     const reef_config *config,
                                     size_t count,
                                     const uint32_t *records,
                                     reef_error *err) {
    *out = NULL;
    reef_vector_network *network = calloc(1, sizeof(*network));
    if (network == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a model");
    network->config = *config;
    reef_status status = REEF_OK;
    for (size_t g = 0; status == REEF_OK && g < count; g++)
        status = reef_vector_load_generation(network, txn, records[g], err);
    if (status == REEF_OK)
        *out = network;
    else
        reef_vector_network_free(network);
    return status;
}

void reef_vector_network_free(reef_vector_network *network) {
    if (network == NULL) return;
    reef_vector_network_release(network);
    free(network);
}

size_t reef_model_class_count(const reef_model *model) {
    return model->vector == NULL ? 0 : model->vector->class_count;
}

void reef_model_classes(const reef_model *model, int32_t *labels) {
    const reef_vector_network *network = model->vector;
    if (network != NULL) memcpy(labels, network->labels, network->class_count * sizeof(*labels));
}

// ---- predictions --------------------------------------------------------------------------------

// One set of pieces at a time, so that memory does not grow with the question.
#define PIECES_AT_ONCE 32

typedef struct question {
    const reef_vector_network *network;
    size_t count, first; // rows in all; the first of this pass
    const float *vectors;
    int32_t *labels;
    float *scores;         // may be NULL
    uint32_t *generations; // may be NULL
    float *memory;         // (PIECES_AT_ONCE, piece_floats)
    size_t piece_floats;
} question;

static size_t piece_floats(const reef_vector_network *network) {
    return reef_vector_mix_floats(network) +
           REEF_VECTOR_PIECE *
               (network->config.inputs + network->class_count + network->generation_count);
}

static void answer_piece(void *context, size_t piece) {
    const question *q = context;
    size_t D = q->network->config.inputs, C = q->network->class_count,
           G = q->network->generation_count;
    size_t from = q->first + piece * REEF_VECTOR_PIECE, left = q->count - from;
    size_t rows = left < REEF_VECTOR_PIECE ? left : REEF_VECTOR_PIECE;
    float *vectors = q->memory + piece * q->piece_floats;
    float *scores = vectors + REEF_VECTOR_PIECE * D, *weights = scores + REEF_VECTOR_PIECE * C;
    memset(vectors, 0, REEF_VECTOR_PIECE * D * sizeof(*vectors));
    memcpy(vectors, q->vectors + from * D, rows * D * sizeof(*vectors));
    reef_vector_mix(q->network, scores, weights, vectors, weights + REEF_VECTOR_PIECE * G);
    for (size_t i = 0; i < rows; i++) {
        q->labels[from + i] = C == 0 ? -1 : q->network->labels[reef_vector_best(C, scores + i * C)];
        if (q->generations != NULL)
            q->generations[from + i] = (uint32_t)reef_vector_best(G, weights + i * G);
    }
    if (q->scores != NULL && C > 0)
        memcpy(q->scores + from * C, scores, rows * C * sizeof(*scores));
}

reef_status reef_model_predict(reef_model *model,
                               size_t count,
                               const float *vectors,
                               int32_t *labels,
                               float *scores,
                               uint32_t *generations,
                               reef_error *err) {
    // Checked first: nothing may be written for a model of text.
    const reef_vector_network *network = model->vector;
    if (network == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool holds a language model, which predicts no classes of vectors; "
                         "score or continue a text with it");
    size_t D = network->config.inputs;
    for (size_t i = 0; i < count * D; i++)
        // A single NaN would reach every class of its row.
        if (!isfinite(vectors[i]))
            return reef_fail(err, REEF_ERR_INVALID,
                             "vector %zu has %f in column %zu (both from 0); values must be finite",
                             i / D, (double)vectors[i], i % D);
    question q = {.network = network,
                  .count = count,
                  .vectors = vectors,
                  .labels = labels,
                  .scores = scores,
                  .generations = generations,
                  .piece_floats = piece_floats(network)};
    // Memory for some pieces only, so that it does not grow with the number of vectors.
    q.memory = malloc(PIECES_AT_ONCE * q.piece_floats * sizeof(*q.memory));
    if (q.memory == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for predictions");
    // Pieces have a fixed size, so the result does not depend on the number of threads.
    for (; q.first < count; q.first += PIECES_AT_ONCE * REEF_VECTOR_PIECE) {
        size_t pieces = (count - q.first + REEF_VECTOR_PIECE - 1) / REEF_VECTOR_PIECE;
        reef_thread_pool_run(model->workers, pieces < PIECES_AT_ONCE ? pieces : PIECES_AT_ONCE,
                             answer_piece, &q);
    }
    free(q.memory);
    return REEF_OK;
}
