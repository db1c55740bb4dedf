// Which generation answers: a ridge regression on the first generation's experts, with the number
// of the generation as its target, solved from sums of all inputs so far. It needs no stored
// examples, and is what it would be had all domains come at once. Its scores become weights by a
// softmax, and the heads' scores are mixed with them: where two domains overlap, both have a say.
#include "vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT_MIN 0.01f // below this a generation is not asked
#define SHARPNESS_STEPS 13

void reef_vector_network_release(reef_vector_network *network) {
    for (size_t g = 0; g < network->generation_count; g++)
        reef_vector_generation_free(network->generations[g]);
    free(network->generations);
    free(network->labels);
    *network = (reef_vector_network){0};
}

reef_status reef_vector_network_reserve(reef_vector_network *network,
                                        size_t generation_count,
                                        reef_error *err) {
    if (network->labels == NULL)
        network->labels = calloc(REEF_CLASS_COUNT_MAX, sizeof(*network->labels));
    if (network->labels == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for labels");
    if (generation_count <= network->generation_capacity) return REEF_OK;
    reef_vector_generation **generations =
        realloc(network->generations, generation_count * sizeof(*generations));
    if (generations == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu generations",
                         generation_count);
    network->generations = generations;
    network->generation_capacity = generation_count;
    return REEF_OK;
}

uint64_t reef_vector_parameter_count(const reef_vector_network *network) {
    uint64_t count = 0, gate = reef_vector_gate_shape(&network->config).size;
    for (size_t g = 0; g < network->generation_count; g++) {
        const reef_vector_generation *generation = network->generations[g];
        count += 2 * generation->inputs + generation->rows * generation->row_values +
                 generation->expert_count * generation->head.class_count +
                 generation->head.gate_count * gate;
    }
    return count;
}

// ---- weights ------------------------------------------------------------------------------------

void reef_vector_gate_weigh(size_t rows, size_t G, float sharpness, float *scores) {
    for (size_t i = 0; i < rows; i++) {
        float *row = scores + i * G;
        for (size_t g = 0; g < G; g++) row[g] *= sharpness;
        reef_softmax(G, row);
    }
}

// -log softmax(sharpness * scores)[truth]
static double surprise(size_t G, const float *scores, uint32_t truth, double sharpness) {
    double top = (double)scores[reef_vector_best(G, scores)], sum = 0.0;
    for (size_t g = 0; g < G; g++) sum += exp(sharpness * ((double)scores[g] - top));
    return log(sum) - sharpness * ((double)scores[truth] - top);
}

float reef_vector_gate_sharpen(size_t count,
                               size_t G,
                               const float *scores,
                               const uint32_t *generations) {
    double best = INFINITY, chosen = 8.0;
    for (int step = 0; step < SHARPNESS_STEPS; step++) {
        double sharpness = pow(2.0, 0.5 * step), total = 0.0;
        for (size_t g = 0; g < G; g++) {
            double sum = 0.0;
            size_t members = 0;
            for (size_t i = 0; i < count; i++) {
                if (generations[i] != g) continue;
                sum += surprise(G, scores + i * G, generations[i], sharpness);
                members++;
            }
            if (members > 0) total += sum / (double)members;
        }
        if (total >= best) continue;
        best = total;
        chosen = sharpness;
    }
    return (float)chosen;
}

// ---- mixing -------------------------------------------------------------------------------------

size_t reef_vector_mix_floats(const reef_vector_network *network) {
    const reef_vector_generation *first = network->generations[0];
    return REEF_VECTOR_PIECE * (first->inputs + 1 + first->shape.padded + REEF_CLASS_COUNT_MAX);
}

// The generations' weights for each row; all on the last one without a gate.
static void weigh_generations(const reef_vector_network *network,
                              float *weights,
                              const float *vectors,
                              float *z,
                              float *hidden) {
    size_t G = network->generation_count;
    const reef_vector_generation *last = network->generations[G - 1],
                                 *first = network->generations[0];
    reef_ridge_shape shape = reef_vector_gate_shape(&network->config);
    size_t asked = last->head.gate_count;
    memset(weights, 0, REEF_VECTOR_PIECE * G * sizeof(*weights));
    if (asked == 0) {
        // Without a gate, or before there is anything to tell two generations apart by: the newest
        // one that has learned something.
        size_t newest = G > 1 && last->head.class_count == 0 ? G - 2 : G - 1;
        for (size_t i = 0; i < REEF_VECTOR_PIECE; i++) weights[i * G + newest] = 1.0f;
        return;
    }
    reef_vector_standardise(first, REEF_VECTOR_PIECE, z, vectors);
    reef_vector_hidden(first, shape.size, shape.padded, hidden, z);
    reef_gemm(false, true, REEF_VECTOR_PIECE, asked, shape.padded, 1.0f, hidden, shape.padded,
              last->head.gate, shape.padded, 0.0f, weights, asked);
    reef_vector_gate_weigh(REEF_VECTOR_PIECE, asked, last->head.sharpness, weights);
    // Rows lie `asked` apart; they are moved to their positions from the last to the first.
    for (size_t i = REEF_VECTOR_PIECE; asked < G && i > 0; i--) {
        memmove(weights + (i - 1) * G, weights + (i - 1) * asked, asked * sizeof(*weights));
        memset(weights + (i - 1) * G + asked, 0, (G - asked) * sizeof(*weights));
    }
}

// A generation that no row needs is passed over. A row's weight is cut to zero below WEIGHT_MIN, so
// that what the row gets does not depend on whether another row needs that generation.
static bool cut_small_weights(float *weights, size_t G, size_t g) {
    bool needed = false;
    for (size_t i = 0; i < REEF_VECTOR_PIECE; i++) {
        if (weights[i * G + g] < WEIGHT_MIN) weights[i * G + g] = 0.0f;
        needed |= weights[i * G + g] > 0.0f;
    }
    return needed;
}

void reef_vector_mix(const reef_vector_network *network,
                     float *scores,
                     float *weights,
                     const float *vectors,
                     float *scratch) {
    size_t G = network->generation_count, width = network->generations[0]->shape.padded;
    float *z = scratch, *hidden = z + REEF_VECTOR_PIECE * (network->generations[0]->inputs + 1);
    float *own = hidden + REEF_VECTOR_PIECE * width;
    memset(scores, 0, REEF_VECTOR_PIECE * network->class_count * sizeof(*scores));
    weigh_generations(network, weights, vectors, z, hidden);
    for (size_t g = 0; g < G; g++) {
        const reef_vector_generation *generation = network->generations[g];
        size_t C = generation->head.class_count;
        if (!cut_small_weights(weights, G, g) || C == 0) continue;
        reef_vector_standardise(generation, REEF_VECTOR_PIECE, z, vectors);
        reef_vector_hidden(generation, generation->expert_count, width, hidden, z);
        reef_gemm(false, true, REEF_VECTOR_PIECE, C, width, 1.0f, hidden, width,
                  generation->head.w_up, width, 0.0f, own, C);
        for (size_t i = 0; i < REEF_VECTOR_PIECE; i++)
            reef_axpy(C, scores + i * network->class_count, weights[i * G + g], own + i * C);
    }
}
