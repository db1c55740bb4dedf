// The drift test of a vector model.
//
// Errors count only on labels that the head knows well ("mature"), so new classes open no
// generation, they widen the head. The error rate tolerated lies half way between the errors that
// the open generation usually makes and those of guessing. Errors beyond it add up, example by
// example, and the sum is never below zero (Page 1954). Where it last was zero is where a change
// began, if there is one.
#include "vector_stream.h"

#include <math.h>
#include <stdlib.h>

#define MATURE_EXAMPLES 256  // of a label in the head's solution, and at least
#define MATURE_SHARE 0.25    // this share of an even part of all examples
#define EXPECT_EXAMPLES 256  // tested ones, before anything is expected
#define SKILL_MIN 0.25       // of the way from guessing to no error, before drift is tested
#define IN_RANGE_SHARE 0.125 // of the way from what is expected to guessing

static bool is_mature(const reef_vector *vector, int32_t class) {
    if (class < 0) return false;
    double even = (double)vector->solved_examples / (double)vector->network.class_count;
    double count = (double)vector->solved_class_examples[class];
    return count >= MATURE_EXAMPLES && count >= MATURE_SHARE * even;
}

reef_vector_tally reef_vector_tally_count(const reef_vector *vector,
                                          size_t rows,
                                          size_t C,
                                          const float *scores) {
    reef_vector_tally t = {0};
    for (size_t i = 0; i < rows; i++) {
        int32_t class = vector->classes[i];
        // Unlabelled rows cannot be wrong.
        if (class < 0) continue;
        bool wrong = C == 0 || reef_vector_best(C, scores + i * C) != (size_t) class;
        t.labelled++;
        t.wrong += wrong;
        // A class with few examples is expected to be wrong often; it would look like drift.
        if (!is_mature(vector, class)) continue;
        t.mature++;
        t.mature_wrong += wrong;
    }
    return t;
}

// Errors on the batch's mature labels when all generations answer under their gate.
static reef_status count_together(reef_vector *vector,
                                  size_t rows,
                                  reef_vector_tally *out,
                                  reef_error *err) {
    const reef_vector_network *network = &vector->network;
    // Scratch is made when the test first needs it: most batches never do.
    if (vector->scratch == NULL)
        vector->scratch = malloc(reef_vector_mix_floats(network) * sizeof(*vector->scratch));
    if (network->generation_count > vector->weights_capacity) {
        free(vector->weights);
        vector->weights_capacity = 0;
        vector->weights =
            malloc(REEF_VECTOR_PIECE * network->generation_count * sizeof(*vector->weights));
    }
    if (vector->scratch == NULL || vector->weights == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu generations",
                         network->generation_count);
    vector->weights_capacity = network->generation_count;
    // Piece by piece, as predictions are computed, so the scores are bit for bit those that a
    // reader gets.
    for (size_t from = 0; from < rows; from += REEF_VECTOR_PIECE)
        reef_vector_mix(network, vector->scores + from * network->class_count, vector->weights,
                        vector->vectors + from * network->config.inputs, vector->scratch);
    *out = reef_vector_tally_count(vector, rows, network->class_count, vector->scores);
    return REEF_OK;
}

double reef_vector_expected_errors(const reef_vector *vector) {
    uint64_t errors = 0, tested = 0;
    for (uint32_t i = 0; i < vector->history; i++) {
        errors += vector->errors[i];
        tested += vector->tested[i];
    }
    return tested < EXPECT_EXAMPLES ? (double)NAN : (double)errors / (double)tested;
}

static double guessing(const reef_vector *vector) {
    size_t C = reef_vector_open(vector)->head.class_count;
    return C == 0 ? 0.0 : 1.0 - 1.0 / (double)C;
}

double reef_vector_errors_tolerated(const reef_vector *vector) {
    double expected = reef_vector_expected_errors(vector), guess = guessing(vector);
    if (vector->network.config.boundaries != REEF_BOUNDARIES_DRIFT || vector->baseline) return 2.0;
    if (!(expected <= (1.0 - SKILL_MIN) * guess)) return 2.0; // NaN too
    return 0.5 * (expected + guess);
}

reef_status reef_vector_is_in_range(reef_vector *vector, size_t rows, bool *out, reef_error *err) {
    *out = false;
    if (vector->network.generation_count == 1) return REEF_OK;
    reef_vector_tally together;
    double expected = reef_vector_expected_errors(vector);
    for (size_t g = 0; g + 1 < vector->network.generation_count; g++)
        expected = fmax(expected, vector->network.generations[g]->reference);
    reef_status status = count_together(vector, rows, &together, err);
    double limit = expected + IN_RANGE_SHARE * fmax(0.0, guessing(vector) - expected);
    *out = status == REEF_OK && (double)together.mature_wrong <= limit * (double)together.mature;
    return status;
}

void reef_vector_tally_remember(reef_vector *vector, const reef_vector_tally *t) {
    if (t->mature == 0) return;
    vector->errors[vector->next] = t->mature_wrong;
    vector->tested[vector->next] = t->mature;
    vector->next = (vector->next + 1) % REEF_VECTOR_DRIFT_WINDOW;
    if (vector->history < REEF_VECTOR_DRIFT_WINDOW) vector->history++;
}

double reef_vector_excess(
    const reef_vector *vector, size_t rows, double limit, double excess, size_t *zero) {
    size_t C = reef_vector_open(vector)->head.class_count;
    *zero = 0;
    for (size_t i = 0; i < rows; i++) {
        int32_t class = vector->classes[i];
        if (is_mature(vector, class)) {
            bool wrong = reef_vector_best(C, vector->scores + i * C) != (size_t) class;
            // CUSUM (Page 1954): errors above the limit add up, others reduce the sum, and it never
            // falls below zero.
            excess = fmax(0.0, excess + (wrong ? 1.0 : 0.0) - limit);
        }
        // After the last zero the examples may already be of the new domain.
        if (excess == 0.0) *zero = i + 1;
    }
    return excess;
}
