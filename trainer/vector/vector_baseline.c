// The baselines: Adam on the same layer of experts, all of them trained, with a softmax head.
//
//   finetune  each batch of the stream once
//   replay    beside it as many examples drawn from the memory
//   joint     finetune, for a stream that was shuffled: the ceiling of the two
#include "reef_random.h"
#include "ridge_sums.h"
#include "trainer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REPLAY_STREAM 411 // of random numbers

// w_up and its moments get rows for new classes.
reef_status reef_vector_baseline_widen(reef_vector *vector, size_t class_count, reef_error *err) {
    reef_vector_generation *generation = reef_vector_open(vector);
    size_t width = generation->shape.padded, before = generation->head.class_count;
    float **moments[] = {&vector->adam.w_up_m, &vector->adam.w_up_v};
    // The common case: no new class, and memory is there.
    if (class_count <= before && vector->adam.experts_m != NULL) return REEF_OK;
    for (size_t i = 0; i < 2; i++) {
        float *grown = realloc(*moments[i], (class_count + 1) * width * sizeof(*grown));
        if (grown == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu classes", class_count);
        // Moments of a new class start at zero, as its weights do.
        memset(grown + before * width, 0, (class_count - before) * width * sizeof(*grown));
        *moments[i] = grown;
    }
    size_t values = generation->expert_count * (generation->inputs + 1);
    if (vector->adam.experts_m == NULL) {
        vector->adam.experts_m = calloc(values, sizeof(float));
        vector->adam.experts_v = calloc(values, sizeof(float));
        // The gradients of a tile of experts are computed where the others keep their
        // decomposition.
        vector->factor = calloc(values, sizeof(float));
    }
    if (vector->adam.experts_m == NULL || vector->adam.experts_v == NULL || vector->factor == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the moments of %zu experts",
                         generation->expert_count);
    return reef_vector_head_size(&generation->head, class_count, width, 0, 1, err);
}

// ---- replay -------------------------------------------------------------------------------------

// Rows `rows` .. 2 * rows - 1 of the batch from the memory; returns how many there are in all.
static size_t replay(reef_trainer *trainer, size_t rows) {
    reef_vector *vector = trainer->vector;
    const reef_vector_memory *memory = &vector->memory;
    size_t D = vector->network.config.inputs,
           each = reef_vector_record_bytes(&vector->network.config);
    size_t filled = memory->seen < memory->slots ? memory->seen : memory->slots;
    // Replay doubles the batch: as many old examples as new ones.
    if (filled == 0) return rows;
    for (size_t i = 0; i < rows; i++) {
        // Counted by the step, so a restart replays the same examples.
        size_t slot = reef_random_below(vector->network.config.seed, REPLAY_STREAM,
                                        trainer->step * REEF_VECTOR_BATCH_MAX + i, filled);
        const uint8_t *record = memory->records + slot * each;
        int32_t label;
        memcpy(&label, record, sizeof(label));
        memcpy(vector->vectors + (rows + i) * D, record + REEF_VECTOR_LABEL_BYTES,
               D * sizeof(float));
        // Labels are few; a search costs less than a table that must be kept in step.
        for (size_t c = 0; c < vector->network.class_count; c++)
            if (vector->network.labels[c] == label) vector->classes[rows + i] = (int32_t)c;
    }
    return 2 * rows;
}

// ---- one step -----------------------------------------------------------------------------------

typedef struct step {
    reef_vector *vector;
    reef_vector_generation *generation;
    size_t rows, C;
    reef_adam adam;
    uint64_t count;
} step;

static void forward_piece(void *context, size_t piece) {
    const step *s = context;
    const reef_vector_generation *generation = s->generation;
    size_t from = piece * REEF_VECTOR_PIECE, D = generation->inputs,
           width = generation->shape.padded;
    float *z = s->vector->z + from * (D + 1), *hidden = s->vector->hidden + from * width;
    reef_vector_standardise(generation, REEF_VECTOR_PIECE, z, s->vector->vectors + from * D);
    reef_vector_hidden(generation, generation->expert_count, width, hidden, z);
    reef_gemm(false, true, REEF_VECTOR_PIECE, s->C, width, 1.0f, hidden, width,
              generation->head.w_up, width, 0.0f, s->vector->scores + from * s->C, s->C);
}

// Scores become the gradient of the mean cross-entropy; zero without a label.
static void differentiate(const step *s) {
    size_t labelled = 0;
    for (size_t i = 0; i < s->rows; i++) labelled += s->vector->classes[i] >= 0;
    for (size_t i = 0; i < s->rows; i++) {
        float *row = s->vector->scores + i * s->C;
        int32_t class = s->vector->classes[i];
        // No label, no gradient, but the row stays: products run over whole pieces.
        if (class < 0) {
            memset(row, 0, s->C * sizeof(*row));
            continue;
        }
        reef_softmax(s->C, row);
        row[class] -= 1.0f;
        // Mean over labelled rows only.
        for (size_t c = 0; c < s->C; c++) row[c] /= (float)labelled;
    }
}

// A tile of experts: gradients through the ReLU, then Adam for w_down, bias and w_up.
static void update_tile(void *context, size_t piece) {
    const step *s = context;
    reef_vector *vector = s->vector;
    reef_vector_generation *generation = s->generation;
    size_t width = generation->shape.padded, D1 = generation->inputs + 1;
    // A tile belongs to one worker alone, so no two write the same weights and no order matters.
    size_t first = piece * generation->shape.tile;
    size_t N = generation->expert_count - first < generation->shape.tile
                   ? generation->expert_count - first
                   : generation->shape.tile;
    float *d_hidden = vector->gate_hidden + first * REEF_VECTOR_BATCH_MAX; // (rows, N)
    float *d_experts = vector->factor + first * D1;                        // (N, D + 1)
    // d_hidden = d_scores w_up, for the experts of this tile.
    reef_gemm(false, false, s->rows, N, s->C, 1.0f, vector->scores, s->C,
              generation->head.w_up + first, width, 0.0f, d_hidden, N);
    for (size_t i = 0; i < s->rows; i++)
        for (size_t n = 0; n < N; n++)
            // The ReLU passes the gradient where it passed the value.
            if (vector->hidden[i * width + first + n] == 0.0f) d_hidden[i * N + n] = 0.0f;
    reef_gemm(true, false, N, D1, s->rows, 1.0f, d_hidden, N, vector->z, D1, 0.0f, d_experts, D1);
    float d_w_up[REEF_RIDGE_TILE];
    for (size_t c = 0; c < s->C; c++) {
        memset(d_w_up, 0, N * sizeof(*d_w_up));
        for (size_t i = 0; i < s->rows; i++)
            // Accumulated on the stack: a tile is small, and w_up is stored by class.
            reef_axpy(N, d_w_up, vector->scores[i * s->C + c], vector->hidden + i * width + first);
        size_t at = c * width + first;
        reef_adam_update(N, generation->head.w_up + at, vector->adam.w_up_m + at,
                         vector->adam.w_up_v + at, d_w_up, 1.0f, s->count, &s->adam);
    }
    reef_adam_update(N * D1, generation->experts + first * D1, vector->adam.experts_m + first * D1,
                     vector->adam.experts_v + first * D1, d_experts, 1.0f, s->count, &s->adam);
}

static float rate(const reef_config *config, uint64_t count) {
    if (count < config->warmup) return config->learning_rate * (float)count / (float)config->warmup;
    double after = (double)(count - config->warmup) / (double)config->decay;
    return (float)((double)config->learning_rate / sqrt(1.0 + after));
}

reef_status reef_vector_baseline_step(reef_trainer *trainer, size_t rows, reef_error *err) {
    reef_vector *vector = trainer->vector;
    const reef_config *config = &vector->network.config;
    reef_status status = reef_vector_baseline_widen(vector, vector->network.class_count, err);
    if (status != REEF_OK) return status;
    step s = {.vector = vector,
              .generation = reef_vector_open(vector),
              .rows = replay(trainer, rows),
              .C = vector->network.class_count,
              .count = trainer->step + 1};
    // Before the first label there is nothing to predict.
    if (s.C == 0) return REEF_OK;
    s.adam = (reef_adam){rate(config, s.count), config->beta1, config->beta2, config->epsilon};
    trainer->learning_rate = s.adam.learning_rate;
    size_t pieces = (s.rows + REEF_VECTOR_PIECE - 1) / REEF_VECTOR_PIECE;
    reef_thread_pool_run(trainer->workers, pieces, forward_piece, &s);
    // Forward of all pieces first: the gradient's scale depends on how many rows have a label.
    differentiate(&s);
    reef_thread_pool_run(trainer->workers, s.generation->shape.tiles, update_tile, &s);
    s.generation->experts_stored = false;
    return REEF_OK;
}
