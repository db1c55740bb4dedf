// The inside of a layer by itself, shared by the files that make it up:
//
//   layer.c         forward and backward over generations
//   layer_tape.c    memory of one forward
//   layer_grad.c    what backward collects
//   layer_model.c   parameters by name, and a read-only copy
#ifndef REEF_LAYER_INTERNAL_H
#define REEF_LAYER_INTERNAL_H

#include "experts.h"
#include "generation.h"
#include "reef_layer.h"
#include "row_prefetch.h"

/** What one generation leaves. */
typedef struct reef_layer_trace {
    reef_router_tape tape;
    size_t side, rows_max; // that it was made for
    bool backward;         // and whether a backward may follow
    bool ran;              // in this forward
    float *hidden;         // (rows_max, hidden values)
    float *d_gate;         // (rows_max, P)
    float *factors;        // (rows_max, P, vectors) where it trains
} reef_layer_trace;

struct reef_layer_tape {
    bool filled, train;
    size_t rows, generations;
    uint64_t layer;           // number of the forward's,
    uint64_t version;         // and of the weights that it met
    reef_router_shape router; // that the memory below is for, but for the side, which is a trace's
    reef_expert_shape experts;
    size_t trace_count;
    reef_layer_trace *traces; // (trace_count)
    size_t padded_max;        // rows that the next lines have room for
    float *x, *d_x;           // (padded_max, D) whole pieces, where the caller's rows are none
    uint8_t *piece_active;    // (pieces)
    uint8_t *mask;            // (generations, rows) copy of the forward's, or NULL
};

/**
 * What backward has collected for the next step: the pairs of any number of batches, one after the
 * other.
 */
typedef struct reef_layer_collected {
    size_t rows, rows_max;
    float *x, *d_y;          // (rows, D)
    reef_expert_id *indices; // (rows, P)
    float *gate, *factors;   // (rows, P), (rows, P, vectors)
    uint8_t *active;         // (rows)
    size_t batches, batches_max;
    float *statistics; // (batches, 2, H*d_key) means, variances of queries; NULL without batch norm
} reef_layer_collected;

typedef struct reef_layer {
    reef_layer_tape scratch; // of evaluations that nothing follows
    reef_layer_collected collected;
    reef_expert_pairs pairs;
    bool fold_is_stale;
    uint64_t number; // which no other layer of this process has or had
    uint64_t version;
} reef_layer;

/** The layer of a trainer or of a model: what a pass needs. */
typedef struct reef_layer_view {
    reef_network *network;
    reef_thread_pool *workers;
    reef_row_prefetch *prefetch; // NULL while all rows are in memory
    reef_layer *layer;
} reef_layer_view;

REEF_MUST_CHECK reef_status reef_layer_new(reef_layer **out, reef_error *err);
void reef_layer_free(reef_layer *layer); // accepts NULL

// layer_tape.c

void reef_layer_tape_release(reef_layer_tape *tape);
/** Begin a forward of so many rows; `keep` what a backward needs. */
REEF_MUST_CHECK reef_status reef_layer_tape_reserve(reef_layer_tape *tape,
                                                    const reef_network *network,
                                                    size_t generations,
                                                    size_t rows,
                                                    bool keep,
                                                    reef_error *err);
/** Where generation g leaves what it computes; without `keep` until the next one does. */
REEF_MUST_CHECK reef_status reef_layer_tape_trace(reef_layer_trace **out,
                                                  reef_layer_tape *tape,
                                                  const reef_network *network,
                                                  size_t g,
                                                  size_t rows,
                                                  bool keep,
                                                  reef_error *err);

// layer.c

REEF_MUST_CHECK reef_status reef_layer_run(const reef_layer_view *view,
                                           const reef_layer_choice *choice,
                                           size_t rows,
                                           const float *x,
                                           float *y,
                                           reef_layer_tape *tape,
                                           reef_error *err);
REEF_MUST_CHECK reef_status reef_layer_back(const reef_layer_view *view,
                                            reef_layer_tape *tape,
                                            const float *x,
                                            const float *d_y,
                                            float *d_x,
                                            reef_error *err);

// layer_grad.c

void reef_layer_collected_release(reef_layer_collected *collected);
/** Make room for the rows of a tape before its backward, so that collecting cannot fail. */
REEF_MUST_CHECK reef_status reef_layer_collect_reserve(const reef_layer_view *view,
                                                       size_t rows,
                                                       reef_error *err);
void reef_layer_collect(const reef_layer_view *view,
                        const reef_layer_tape *tape,
                        const float *x,
                        const float *d_y);
/** Values of the batch statistics of one batch; 0 without batch norm. */
size_t reef_layer_statistics_width(const reef_config *config);

// layer_model.c

REEF_MUST_CHECK reef_status reef_layer_tensor_read(const reef_network *network,
                                                   uint32_t generation,
                                                   const char *name,
                                                   float *out,
                                                   size_t count,
                                                   reef_error *err);

/** A parameter by its name. */
typedef struct reef_layer_parameter {
    bool is_vector; // of every expert; else a tensor
    size_t vector;  // which of a row's: 0 w_down, 1 w_up, 2 w_gate
    size_t vectors; // that a row has
    const reef_tensor *tensor;
} reef_layer_parameter;

/**
 * A parameter of the generation, whose vectors have D values.
 *
 * Errors: NOT_FOUND there is none of that name; INVALID it has not `count` values.
 */
REEF_MUST_CHECK reef_status reef_layer_parameter_find(reef_layer_parameter *out,
                                                      const reef_generation *generation,
                                                      size_t D,
                                                      const char *name,
                                                      size_t count,
                                                      reef_error *err);

/** NOT_FOUND, naming generation and parameter. */
REEF_MUST_CHECK reef_status reef_layer_parameter_missing(const reef_generation *generation,
                                                         const char *name,
                                                         reef_error *err);

#endif
