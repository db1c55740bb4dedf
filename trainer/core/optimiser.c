// The optimiser of dense parameters: learning rate, gradient norm and Adam, piece by piece on all
// threads.
#include "optimiser.h"
#include "trainer_internal.h"

#include <math.h>
#include <string.h>

// Steps of each generation over which the rate rises, and over which it falls: longer warm-ups lose
// what a short kind has, shorter ones gain nothing (research/NOTEBOOK.md).
#define WARMUP 80
#define DECAY 400
#define CHUNK 8192 // floats of a tensor that one piece updates: they stay in cache

typedef struct dense_update {
    reef_generation *generation;
    reef_adam adam;
    float scale, average_rate;
    uint64_t count;
} dense_update;

// After warm-up the rate falls with the square root of the generation's age: a stream has no end
// that a cosine could aim at.
float reef_learning_rate(const reef_config *config, uint64_t step) {
    double age = (double)step + 1.0;
    if (age < WARMUP) return config->learning_rate * (float)(age / WARMUP);
    return config->learning_rate / (float)sqrt(1.0 + (age - WARMUP) / DECAY);
}

static size_t chunk_floats(const reef_tensor *tensor, size_t at) {
    return tensor->count - at < CHUNK ? tensor->count - at : CHUNK;
}

static void update_tensor(void *context, size_t piece) {
    const dense_update *update = context;
    const reef_tensor *tensor = &update->generation->tensors[piece];
    if (tensor->grad == NULL) return;
    // In chunks that fit the cache: gradient, value and both moments of a chunk are touched once.
    for (size_t at = 0; at < tensor->count; at += CHUNK) {
        size_t count = chunk_floats(tensor, at);
        float *grad = tensor->grad + at;
        reef_adam_update(count, tensor->data + at, tensor->adam_m + at, tensor->adam_v + at, grad,
                         update->scale, update->count, &update->adam);
        // The average is what readers evaluate; it follows the weights after every step (Polyak &
        // Juditsky 1992).
        if (tensor->average != NULL)
            reef_average_update(count, tensor->average + at, tensor->data + at, update->count,
                                update->average_rate);
        // Cleared here, while the chunk is in cache, so that the next backward pass accumulates
        // from zero.
        memset(grad, 0, count * sizeof(*grad));
    }
}

static void square_tensor(void *context, size_t piece) {
    reef_generation *generation = context;
    reef_tensor *tensor = &generation->tensors[piece];
    tensor->grad_squares = 0.0;
    if (tensor->grad == NULL) return;
    for (size_t at = 0; at < tensor->count; at += CHUNK) {
        const float *grad = tensor->grad + at;
        tensor->grad_squares += (double)reef_dot(chunk_floats(tensor, at), grad, grad);
    }
}

// Sums of squares in double, chunk after chunk of a tensor, then tensor after tensor: a fixed
// order.
double reef_step_gradient_norm(reef_thread_pool *workers, reef_generation *generation) {
    double sum = 0.0;
    reef_thread_pool_run(workers, generation->tensor_count, square_tensor, generation);
    for (size_t i = 0; i < generation->tensor_count; i++)
        sum += generation->tensors[i].grad_squares;
    return sqrt(sum);
}

void reef_step_update_dense(reef_trainer *trainer,
                            reef_generation *generation,
                            double gradient_norm) {
    const reef_config *config = &trainer->network.config;
    float norm = (float)gradient_norm;
    dense_update update = {
        .generation = generation,
        .adam = {trainer->net.learning_rate, config->beta1, config->beta2, config->epsilon},
        // Gradients are clipped by their common norm (Pascanu et al. 2013): all tensors shrink by
        // one factor, and the direction stays.
        .scale = config->clip > 0.0f && norm > config->clip ? config->clip / norm : 1.0f,
        .average_rate = REEF_AVERAGE_RATE,
        // Adam's bias correction counts from 1.
        .count = trainer->generation_step + 1,
    };
    reef_thread_pool_run(trainer->workers, generation->tensor_count, update_tensor, &update);
}
