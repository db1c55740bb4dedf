// Vector models: what one generation knows, how generations answer together, and how both learn.
//
//   vector_generation.c       one generation: standardised inputs, frozen experts, a solved head
//   vector_fields.c    the same of images, whose experts are filters in regions
//   vector_gate.c      which generation answers: predictions of several generations, mixed
//   vector_trainer.c     a trainer's part, and the opening of generations
//   vector_stream.c   the stream: what is learned, deferred and skipped; boundaries
//   vector_batch.c     records of a batch, and the scores of the open generation
//   vector_drift.c     the drift test
//   ridge_sums.c      the sums that heads and gates are solved from
//   vector_baseline.c     baselines to compare with: Adam on the same experts and a softmax head
//   vector_checkpoint.c   records of all that, with vector_state.c
//   vector_model.c     a read-only copy, for predictions
//
// A generation is one layer of N = side * side experts that all see every input: hidden unit n is
// relu(w_down[n] . z + bias[n]), z the standardised input. w_down is drawn once and stays (random
// features: Rahimi & Recht 2007; Huang et al. 2006); w_up is the solution of a ridge regression on
// one-hot labels, whose sums are kept, not the examples. So within a generation the order of
// examples and classes does not matter: there is nothing to forget. Of images hidden unit n is what
// vector_fields.h says, and all else is the same.
#ifndef REEF_VECTOR_H
#define REEF_VECTOR_H

#include "reef_model.h"
#include "ridge.h"
#include "vector_fields.h"

#define REEF_VECTOR_PIECE 64                       // rows that one worker takes at a time
#define REEF_VECTOR_BATCH_MAX REEF_VECTOR_DRAW_MAX // examples
#define REEF_VECTOR_BATCH_MIN 32
#define REEF_VECTOR_GATE_MAX 2048 // experts of generation 0 that the gate reads

// ---- one generation -----------------------------------------------------------------------------

/** What a generation has learned, from sums over its examples. */
typedef struct reef_vector_head {
    size_t class_count; // C: the pool's first classes; it knows no others
    float *w_up;        // (C, padded N)
    size_t gate_count;  // generations that its gate separates; 0 in generation 0
    float *gate;        // (gate_count, padded gate width)
    float sharpness;    // of the gate's softmax
} reef_vector_head;

typedef struct reef_vector_generation {
    size_t inputs, expert_count; // D, N
    reef_vector_fields fields;   // of images; else all zero
    size_t rows, row_values;     // of `experts`
    reef_ridge_shape shape;      // of N
    bool drawn;                  // the first batch has come, from which mean and scale are known
    float *mean, *scale;         // (D) z = (x - mean) * scale, and then squashed
    float *experts;              // (rows, row_values) w_down and bias: (N, D + 1), or of filters
    reef_vector_head head;
    double reference;    // prequential share of errors when it was sealed
    bool experts_stored; // as they are now, in a commit
} reef_vector_generation;

REEF_MUST_CHECK reef_status reef_vector_generation_new(reef_vector_generation **out,
                                                       const reef_config *config,
                                                       reef_error *err);
void reef_vector_generation_free(reef_vector_generation *generation); // accepts NULL

/**
 * Learn mean and scale from the first batch, vectors (rows, D), and draw the experts.
 *
 * z        (rows, D + 1) scratch
 * scratch  (rows, N) floats, read and written where the configuration has draw_from
 */
void reef_vector_generation_draw(reef_vector_generation *generation,
                                 const reef_config *config,
                                 uint32_t number,
                                 size_t rows,
                                 const float *vectors,
                                 float *z,
                                 float *scratch);

/**
 * Make a head of that many classes and generations; values kept are those that were there before.
 */
REEF_MUST_CHECK reef_status reef_vector_head_size(reef_vector_head *head,
                                                  size_t class_count,
                                                  size_t width, // padded N
                                                  size_t gate_count,
                                                  size_t gate_width,
                                                  reef_error *err);
void reef_vector_head_release(reef_vector_head *head);

/** Experts of generation 0 that gates read, a whole number of tiles or all. */
reef_ridge_shape reef_vector_gate_shape(const reef_config *config);

/** z (rows, D + 1): standardised, the last value 1, which meets the bias. */
void reef_vector_standardise(const reef_vector_generation *generation,
                             size_t rows,
                             float *z,
                             const float *vectors);

/**
 * Hidden units 0 .. count - 1 of one piece: REEF_VECTOR_PIECE rows, whatever they hold.
 * hidden  (PIECE, stride) written, zero from `count` on
 */
void reef_vector_hidden(const reef_vector_generation *generation,
                        size_t count,
                        size_t stride,
                        float *hidden,
                        const float *z);

/** Index of the largest of `count` > 0 values, the first among equals. */
size_t reef_vector_best(size_t count, const float *values);

// ---- generations together -----------------------------------------------------------------------

typedef struct reef_vector_network {
    reef_config config;
    size_t generation_count, generation_capacity;
    reef_vector_generation **generations; // owned
    size_t class_count;
    int32_t *labels; // (REEF_CLASS_COUNT_MAX) of the classes, in the order of their first example
} reef_vector_network;

void reef_vector_network_release(reef_vector_network *network);
REEF_MUST_CHECK reef_status reef_vector_network_reserve(reef_vector_network *network,
                                                        size_t generation_count,
                                                        reef_error *err);
/** Weights of inputs, experts, heads and gates. */
uint64_t reef_vector_parameter_count(const reef_vector_network *network);
/** Floats of scratch that reef_vector_mix needs. */
size_t reef_vector_mix_floats(const reef_vector_network *network);

/**
 * The scores of all generations together for one piece, REEF_VECTOR_PIECE rows: each head's scores
 * times its weight from the last generation's gate. A row's result does not depend on the other
 * rows.
 *
 * vectors  (PIECE, D)
 * scores   (PIECE, class_count) written
 * weights  (PIECE, generation_count) written; each row sums to 1
 */
void reef_vector_mix(const reef_vector_network *network,
                     float *scores,
                     float *weights,
                     const float *vectors,
                     float *scratch);

/** weights (rows, G) from the gate's scores, in place: softmax(sharpness * score). */
void reef_vector_gate_weigh(size_t rows, size_t G, float sharpness, float *scores);

/**
 * The sharpness, of 1 to 64, that makes the true generations of some examples most likely
 * (temperature scaling: Guo et al. 2017); every generation counts the same.
 *
 * scores       (count, G) of the gate
 * generations  (count) the true ones, below G
 */
float reef_vector_gate_sharpen(size_t count,
                               size_t G,
                               const float *scores,
                               const uint32_t *generations);

// ---- learning -----------------------------------------------------------------------------------

#define REEF_VECTOR_DRIFT_WINDOW 32 // trained batches whose errors are what to expect

/** One example of the past. */
typedef struct reef_vector_memory {
    size_t slots;
    uint64_t seen;         // examples offered so far
    uint8_t *records;      // (slots, record bytes) as they came
    uint32_t *generations; // (slots) which learned it; UINT32_MAX: empty
    bool *dirty;           // (slots) changed since the last commit
} reef_vector_memory;

/** Sums over the inputs of all generations, behind the gate. Every generation counts the same. */
typedef struct reef_vector_gate_sums {
    reef_ridge_shape shape;
    float *sealed; // gram of sealed generations, each divided by its examples
    float *open;   // gram of the open one
    float *means;  // (generations, padded) of hidden units; the open one's row is a sum
    double shares; // sum over sealed generations of 1 / examples
} reef_vector_gate_sums;

/** What Adam keeps of the baselines. */
typedef struct reef_vector_adam {
    float *experts_m, *experts_v; // (N, D + 1)
    float *w_up_m, *w_up_v;       // (C, padded N)
} reef_vector_adam;

typedef struct reef_vector {
    reef_vector_network network; // the open generation's head is of the last scheduled solution
    reef_vector_memory memory;
    bool baseline; // strategy is not generations: Adam, one generation

    // the open generation
    float *gram;           // of all its hidden units
    float *moment;         // (moment classes, padded N) sums of hidden units by class
    size_t moment_classes; // that there is room for
    uint64_t examples;     // with a label
    uint64_t class_examples[REEF_CLASS_COUNT_MAX];
    uint64_t solved_examples; // that its head is of
    uint64_t solved_class_examples[REEF_CLASS_COUNT_MAX];
    reef_vector_gate_sums gate;
    reef_vector_head served; // solved from all examples so far, for the store
    uint64_t served_examples;
    bool served_is_new; // since the last commit
    reef_vector_adam adam;

    // drift
    uint32_t errors[REEF_VECTOR_DRIFT_WINDOW], tested[REEF_VECTOR_DRIFT_WINDOW]; // a ring
    uint32_t history, next; // batches in it; where the next goes
    double excess;          // errors of the deferred batches beyond the tolerated ones
    size_t deferred;        // examples at the beginning of the pending bytes
    uint32_t deferred_batches;
    size_t untested; // examples at the beginning of the pending bytes that were released

    // one batch; rows up to the next whole piece
    float *vectors, *z, *hidden, *gate_hidden, *scores, *weights, *scratch;
    size_t weights_capacity; // generations
    int32_t *classes;        // (rows) index of the label, -1 without
    double *wrong;           // (rows) 1 for a wrong answer, -1 without a label
    float *factor, *solution, *solve_scratch;
    size_t solution_columns;
} reef_vector;

struct reef_trainer;

/** Memory for a trainer whose configuration is known; its generations come after. */
REEF_MUST_CHECK reef_status reef_vector_start(struct reef_trainer *trainer, reef_error *err);
void reef_vector_free(reef_vector *vector); // accepts NULL
/** Open the next generation, or the first. */
REEF_MUST_CHECK reef_status reef_vector_open_generation(struct reef_trainer *trainer,
                                                        reef_error *err);

REEF_MUST_CHECK reef_status reef_vector_push(struct reef_trainer *trainer,
                                             const uint8_t *bytes,
                                             size_t count,
                                             size_t *taken,
                                             size_t *steps,
                                             reef_error *err);

/**
 * What reef_vector_boundary refuses: a strategy without boundaries, and a generation that has
 * learned nothing.
 */
REEF_MUST_CHECK reef_status reef_vector_check_boundary(const struct reef_trainer *trainer,
                                                       reef_error *err);

/** Seal the open generation and open the next, in memory. */
REEF_MUST_CHECK reef_status reef_vector_boundary(struct reef_trainer *trainer,
                                                 const char *reason,
                                                 reef_error *err);

/** Solve for everything learned so far into `served`. */
REEF_MUST_CHECK reef_status reef_vector_refresh(struct reef_trainer *trainer, reef_error *err);

/** Share of errors that is expected of labels that are known well; NaN when too few were seen. */
double reef_vector_expected_errors(const reef_vector *vector);

// vector_baseline.c

/** One step of Adam on a batch whose vectors and classes are known. */
REEF_MUST_CHECK reef_status reef_vector_baseline_step(struct reef_trainer *trainer,
                                                      size_t rows,
                                                      reef_error *err);
REEF_MUST_CHECK reef_status reef_vector_baseline_widen(reef_vector *vector,
                                                       size_t class_count,
                                                       reef_error *err);

// vector_checkpoint.c

REEF_MUST_CHECK reef_status reef_vector_put(struct reef_trainer *trainer,
                                            reef_txn *txn,
                                            reef_error *err);
void reef_vector_settle(struct reef_trainer *trainer);
REEF_MUST_CHECK reef_status reef_vector_load(struct reef_trainer *trainer,
                                             reef_txn *txn,
                                             reef_error *err);
/**
 * A generation and the classes it knows; `records`: its own number, or that of a snapshot's copy.
 */
REEF_MUST_CHECK reef_status reef_vector_load_generation(reef_vector_network *network,
                                                        reef_txn *txn,
                                                        uint32_t records,
                                                        reef_error *err);

// vector_model.c

/** A copy of some generations, for predictions. */
REEF_MUST_CHECK reef_status reef_vector_network_load(reef_vector_network **out,
                                                     reef_txn *txn,
                                                     const reef_config *config,
                                                     size_t count, // generations from 0 on,
                                                     const uint32_t *records, // and where each lies
                                                     reef_error *err);
void reef_vector_network_free(reef_vector_network *network); // accepts NULL

#endif
