// The sums that a generation learns by, and the heads and gates that are solved from them.
#include "ridge_sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SOLVE_ATTEMPTS 8 // each with ten times the penalty of the one before

// ---- memory -------------------------------------------------------------------------------------

static reef_status zeros(float **out, size_t count, const char *what, reef_error *err) {
    *out = calloc(count > 0 ? count : 1, sizeof(**out));
    if (*out != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu values: %s", count, what);
}

reef_status reef_vector_sums_init(reef_vector *vector, reef_error *err) {
    // All buffers of solving are made at open, so that a batch never fails for memory half way.
    reef_ridge_shape shape =
        reef_ridge_shape_of((size_t)vector->network.config.side * vector->network.config.side);
    reef_vector_gate_sums *gate = &vector->gate;
    gate->shape = reef_vector_gate_shape(&vector->network.config);
    reef_status status = zeros(&vector->gram, reef_ridge_floats(&shape), "gram matrix", err);
    if (status == REEF_OK)
        status = zeros(&gate->sealed, reef_ridge_floats(&gate->shape), "gate", err);
    if (status == REEF_OK)
        status = zeros(&gate->open, reef_ridge_floats(&gate->shape), "gate", err);
    if (status == REEF_OK)
        status = zeros(&vector->factor, reef_ridge_floats(&shape), "decomposition", err);
    return status;
}

reef_status reef_vector_sums_generation(reef_vector *vector, reef_error *err) {
    size_t width = vector->gate.shape.padded, G = vector->network.generation_count;
    float *means = realloc(vector->gate.means, G * width * sizeof(*means));
    if (means == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu generations", G);
    memset(means + (G - 1) * width, 0, width * sizeof(*means));
    vector->gate.means = means;
    return REEF_OK;
}

reef_status reef_vector_sums_widen(reef_vector *vector, size_t class_count, reef_error *err) {
    size_t width = reef_vector_open(vector)->shape.padded;
    if (class_count <= vector->moment_classes) return REEF_OK;
    float *moment = realloc(vector->moment, class_count * width * sizeof(*moment));
    if (moment == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for sums of %zu classes", class_count);
    memset(moment + vector->moment_classes * width, 0,
           (class_count - vector->moment_classes) * width * sizeof(*moment));
    vector->moment = moment;
    vector->moment_classes = class_count;
    return REEF_OK;
}

// ---- adding -------------------------------------------------------------------------------------

void reef_vector_sums_add(reef_vector *vector, reef_thread_pool *workers, size_t rows) {
    const reef_vector_generation *open = reef_vector_open(vector);
    size_t width = open->shape.padded, gate_width = vector->gate.shape.padded;
    size_t G = vector->network.generation_count;
    float *sum = vector->gate.means + (G - 1) * gate_width;
    // From generation 1 on the gate sees generation 0's experts. In generation 0 itself these are
    // its own hidden units.
    const float *seen = G > 1 ? vector->gate_hidden : vector->hidden;
    size_t stride = G > 1 ? gate_width : width;
    for (size_t i = 0; i < rows; i++) {
        int32_t class = vector->classes[i];
        // Hidden units of rows without a label are zeroed, not skipped: the product below runs over
        // all rows, and zero adds nothing.
        if (class < 0) { // only looked at: nothing of it may be added
            memset(vector->hidden + i * width, 0, width * sizeof(float));
            if (G > 1) memset(vector->gate_hidden + i * gate_width, 0, gate_width * sizeof(float));
            continue;
        }
        reef_axpy(width, vector->moment + (size_t) class * width, 1.0f, vector->hidden + i * width);
        reef_axpy(gate_width, sum, 1.0f, seen + i * stride);
        vector->class_examples[class]++;
        vector->examples++;
    }
    // Gram matrices are added for all rows at once, tile by tile, so the sum's order does not
    // depend on threads.
    reef_ridge_add(&open->shape, workers, vector->gram, rows, vector->hidden, width);
    if (G > 1)
        reef_ridge_add(&vector->gate.shape, workers, vector->gate.open, rows, vector->gate_hidden,
                       gate_width);
}

void reef_vector_sums_seal(reef_vector *vector) {
    size_t G = vector->network.generation_count, width = vector->gate.shape.padded;
    // Generation 0's own experts are those that the gate reads: its first tiles are the gate's.
    const float *sums = G > 1 ? vector->gate.open : vector->gram;
    // Divided by the number of examples: in the gate's equations every generation weighs the same.
    float share = (float)(1.0 / (double)vector->examples),
          *row = vector->gate.means + (G - 1) * width;
    size_t floats = reef_ridge_floats(&vector->gate.shape);
    // Sealed generations are only ever needed as a sum, so one matrix holds them all.
    for (size_t i = 0; i < floats; i++) vector->gate.sealed[i] += share * sums[i];
    for (size_t i = 0; i < width; i++) row[i] *= share;
    vector->gate.shares += 1.0 / (double)vector->examples;

    // The next generation starts from zero; the sealed one is fully described by its solution.
    memset(vector->gate.open, 0, floats * sizeof(float));
    memset(vector->gram, 0, reef_ridge_floats(&reef_vector_open(vector)->shape) * sizeof(float));
    memset(vector->moment, 0,
           vector->moment_classes * reef_vector_open(vector)->shape.padded * sizeof(float));
    memset(vector->class_examples, 0, sizeof(vector->class_examples));
    memset(vector->solved_class_examples, 0, sizeof(vector->solved_class_examples));
    vector->examples = vector->solved_examples = vector->served_examples = 0;
}

// ---- solving ------------------------------------------------------------------------------------

static reef_status reserve_solution(reef_vector *vector, size_t columns, reef_error *err) {
    const reef_ridge_shape *shape = &reef_vector_open(vector)->shape;
    if (columns <= vector->solution_columns) return REEF_OK;
    // Freed before the larger one is made: the two are never needed together.
    free(vector->solution);
    free(vector->solve_scratch);
    vector->solution_columns = 0;
    vector->solution = malloc(shape->padded * columns * sizeof(float));
    vector->solve_scratch = malloc(reef_ridge_scratch(shape, columns) * sizeof(float));
    if (vector->solution == NULL || vector->solve_scratch == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to solve for %zu columns", columns);
    vector->solution_columns = columns;
    return REEF_OK;
}

// What is to be solved: (gram + penalty I) X' = rows', rows and X (columns, padded).
typedef struct equations {
    const reef_ridge_shape *shape;
    const float *gram, *more; // more: added to gram times `share`; NULL for nothing
    float share;
    double penalty;
    size_t columns;
    const float *rows;
    float last_scale; // of the last row
} equations;

static void copy_gram(const equations *s, float *factor) {
    size_t floats = reef_ridge_floats(s->shape);
    memcpy(factor, s->gram, floats * sizeof(*factor));
    for (size_t i = 0; s->more != NULL && i < floats; i++) factor[i] += s->share * s->more[i];
}

static void copy_rows(const equations *s, float *x) {
    for (size_t i = 0; i < s->shape->padded; i++)
        for (size_t c = 0; c < s->columns; c++)
            x[i * s->columns + c] =
                s->rows[c * s->shape->padded + i] * (c + 1 == s->columns ? s->last_scale : 1.0f);
}

static reef_status solve(reef_vector *vector,
                         reef_thread_pool *workers,
                         const equations *s,
                         float *out, // (columns, padded)
                         reef_error *err) {
    double penalty = s->penalty;
    reef_status status = reserve_solution(vector, s->columns, err);
    if (status != REEF_OK) return status;
    // A gram matrix of few or equal examples may be singular. A tenfold penalty makes it solvable
    // at a small cost in fit.
    for (int attempt = 0; attempt < SOLVE_ATTEMPTS; attempt++, penalty *= 10.0) {
        copy_gram(s, vector->factor);
        copy_rows(s, vector->solution);
        if (!reef_ridge_solve(s->shape, workers, vector->factor, penalty, s->columns,
                              vector->solution, vector->solve_scratch))
            continue;
        // The solver works on columns side by side; heads are stored class by class.
        for (size_t i = 0; i < s->shape->padded; i++)
            for (size_t c = 0; c < s->columns; c++)
                out[c * s->shape->padded + i] = vector->solution[i * s->columns + c];
        return REEF_OK;
    }
    return reef_fail(err, REEF_ERR_INVALID,
                     "the head cannot be solved for: with a ridge of %g the inputs are still "
                     "too much alike; make a pool with a larger ridge",
                     (double)vector->network.config.ridge);
}

static reef_status solve_head(reef_vector *vector,
                              reef_thread_pool *workers,
                              reef_vector_head *out,
                              reef_error *err) {
    const reef_ridge_shape *shape = &reef_vector_open(vector)->shape;
    // The trace is the sum of squared hidden vectors; the penalty one example's share of it.
    double norm = reef_ridge_trace(shape, vector->gram) / (double)vector->examples;
    equations s = {.shape = shape,
                   .gram = vector->gram,
                   .penalty = (double)vector->network.config.ridge * fmax(norm, 1e-12),
                   .columns = out->class_count,
                   .rows = vector->moment,
                   .last_scale = 1.0f};
    return solve(vector, workers, &s, out->w_up, err);
}

// The gate's scores of what is remembered of each generation; returns how many examples those are.
static reef_status sharpen(reef_vector *vector, reef_vector_head *out, reef_error *err) {
    const reef_vector_memory *memory = &vector->memory;
    const reef_vector_generation *first = vector->network.generations[0];
    size_t D = first->inputs, width = vector->gate.shape.padded, G = out->gate_count, count = 0;
    float *scores = calloc((memory->slots + REEF_VECTOR_PIECE) * G, sizeof(*scores));
    // The shape is that of the largest: a piece more than the slots, because the last piece is
    // padded.
    uint32_t *truth = calloc(memory->slots + REEF_VECTOR_PIECE, sizeof(*truth));
    size_t record = reef_vector_record_bytes(&vector->network.config);
    if (scores == NULL || truth == NULL) {
        free(scores);
        free(truth);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to look at %zu examples",
                         memory->slots);
    }
    for (size_t slot = 0; slot < memory->slots;) {
        size_t rows = 0;
        // These rows of the batch's memory are free again when something is solved.
        memset(vector->vectors, 0, REEF_VECTOR_PIECE * D * sizeof(float));
        for (; slot < memory->slots && rows < REEF_VECTOR_PIECE; slot++) {
            // Slots without a generation have none to learn from.
            if (memory->generations[slot] >= G) continue; // empty
            memcpy(vector->vectors + rows * D,
                   memory->records + slot * record + REEF_VECTOR_LABEL_BYTES, D * sizeof(float));
            // The generation that learned the example is the answer that the gate should give.
            truth[count + rows++] = memory->generations[slot];
        }
        reef_vector_standardise(first, REEF_VECTOR_PIECE, vector->z, vector->vectors);
        reef_vector_hidden(first, vector->gate.shape.size, width, vector->gate_hidden, vector->z);
        reef_gemm(false, true, REEF_VECTOR_PIECE, G, width, 1.0f, vector->gate_hidden, width,
                  out->gate, width, 0.0f, scores + count * G, G);
        count += rows;
    }
    // Without a memory the sharpness stays as it was.
    if (count > 0) out->sharpness = reef_vector_gate_sharpen(count, G, scores, truth);
    free(scores);
    free(truth);
    return REEF_OK;
}

static reef_status solve_gate(reef_vector *vector,
                              reef_thread_pool *workers,
                              reef_vector_head *out,
                              reef_error *err) {
    const reef_vector_gate_sums *gate = &vector->gate;
    double G = (double)vector->network.generation_count, share = 1.0 / (double)vector->examples;
    double trace = reef_ridge_trace(&gate->shape, gate->sealed) +
                   share * reef_ridge_trace(&gate->shape, gate->open);
    // As for a head, of generations of the harmonic mean of their numbers of examples.
    // The penalty is scaled like the matrix, so that one setting of `ridge` means the same for any
    // data.
    double penalty = (double)vector->network.config.ridge * trace / G * (gate->shares + share) / G;
    equations s = {.shape = &gate->shape,
                   .gram = gate->sealed,
                   .more = gate->open,
                   .share = (float)share,
                   .penalty = fmax(penalty, 1e-12),
                   .columns = out->gate_count,
                   .rows = gate->means,
                   .last_scale = (float)share};
    reef_status status = solve(vector, workers, &s, out->gate, err);
    return status == REEF_OK ? sharpen(vector, out, err) : status;
}

reef_status reef_vector_solve(reef_vector *vector,
                              reef_thread_pool *workers,
                              reef_vector_head *out,
                              reef_error *err) {
    size_t G = vector->network.generation_count;
    bool gated = G > 1 && vector->network.config.vector_gate != REEF_VECTOR_GATE_OFF;
    // A first solution takes the sharpness of the last one on schedule.
    out->sharpness =
        out->sharpness > 0.0f ? out->sharpness : reef_vector_open(vector)->head.sharpness;
    // A class may have come with batches that are deferred: it has a row, and nothing in it.
    reef_status status = reef_vector_sums_widen(vector, vector->network.class_count, err);
    if (status == REEF_OK)
        status = reef_vector_head_size(out, vector->network.class_count,
                                       reef_vector_open(vector)->shape.padded, gated ? G : 0,
                                       vector->gate.shape.padded, err);
    if (status == REEF_OK) status = solve_head(vector, workers, out, err);
    if (status == REEF_OK && gated) status = solve_gate(vector, workers, out, err);
    return status;
}
