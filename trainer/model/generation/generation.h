// The model in memory: generations of named tensors and expert rows.
//
// A network is a list of generations. Generation 0 owns the backbone; later ones own corrections of
// its matrices. Each owns a router and a pool of experts per block whose FFW retrieves. A
// generation in memory is either sealed (batch norm folded, nothing but values) or open (gradients,
// moments, averages, flags, usage). Only the last may be open.
#ifndef REEF_GENERATION_H
#define REEF_GENERATION_H

#include "architecture.h"
#include "generation_memory.h"
#include "reef_model.h"
#include "reef_system.h"

/** One named dense parameter; all of a generation's lie in one block of memory. */
typedef struct reef_tensor {
    char name[REEF_NAME_BYTES_MAX + 1];
    size_t count; // floats
    float *data;
    float *grad; // NULL unless open and trained
    float *adam_m, *adam_v;
    float *average;      // of `data` over the updates; NULL without a gradient or an average
    double grad_squares; // sum of grad's squares, which clipping needs; of the last step
} reef_tensor;

/**
 * One transformer block of the backbone. Of a later generation the corrections of w_qkv, w_out,
 * w_ffw_in and w_ffw_out, which are added to them where it fires; the rest is NULL.
 */
typedef struct reef_block {
    float *norm1_scale, *norm1_shift; // (D)
    float *w_qkv;                     // (D, 3*D)
    float *w_out;                     // (D, D)
    float *norm2_scale, *norm2_shift; // (D)
    float *w_ffw_in;                  // (D, F) where the FFW is dense
    float *w_ffw_out;                 // (F, D)
    reef_moe_params moe;              // where it is a mixture
} reef_block;

/** Views of a generation's tensors; a second one of the same layout views their gradients. */
typedef struct reef_weights {
    float *embedding; // (reef_embedding_tables, V, D) generation 0; its delta in later ones
    float *head;      // (D, V) to logits; generation 0; its delta in later ones
    float *position;  // (T, D) generation 0; its delta in later ones
    float *norm_scale, *norm_shift; // generation 0 only
    reef_block blocks[REEF_LAYER_COUNT_MAX];
    reef_router_params routers[REEF_LAYER_COUNT_MAX];
} reef_weights;

/**
 * The pool of experts of one block in one generation. All empty where the block's FFW retrieves
 * nothing.
 */
typedef struct reef_expert_table {
    size_t expert_count;   // N = side * side
    size_t row_values;     // of one expert
    reef_row_share share;  // which rows are here: this rank's, where they are divided
    size_t row_count;      // how many those are; else N
    void *memory;          // owned: (row_count, row_values) of the type of `rows`; NULL: not there
    float *experts;        // the same where they are floats; NULL where they are rounded
    size_t block_count;    // 1 where all rows are in `memory`
    void *last_block;      // owned: copy of a layer's last block where the others are in the map
    const void **blocks;   // owned: where `rows` finds them, in memory or in the store's map
    reef_expert_rows rows; // as every pass reads them
    uint8_t *flags;        // (N) 1: frozen; NULL, as all below, once sealed and stored
    uint8_t *dirty;        // (N) rows changed since the last commit
    reef_usage *usage;     // (N) since the generation was opened
    reef_expert_moments moments; // of the rows; open generation only
} reef_expert_table;

typedef struct reef_generation {
    reef_generation_record info;
    bool open;
    bool stored;                // sealed, and its sealed form is in a commit
    reef_row_division division; // of the rows of its experts
    reef_tensor *tensors;
    size_t tensor_count;
    float *values;   // the block that the tensors' data lie in
    float *training; // open: gradients, then adam_m, then adam_v, then averages
    size_t value_count;
    reef_weights weights, grads;
    reef_router_params folded[REEF_LAYER_COUNT_MAX]; // open: routers as they are evaluated
    float *folded_values;
    // Generations >= 1: the head and the matrices of blocks with the corrections added, see
    // reef_generation_merge. Nothing else of it is set.
    reef_weights merged;
    float *merged_values; // owned; NULL: not made
    bool merged_is_fresh; // made of the parameters as they are
    reef_expert_table expert_tables[REEF_LAYER_COUNT_MAX];
    reef_generation_memory memory;
    reef_visit *visits; // owned: what of older kinds is sealed with it, until it is stored
    size_t visit_count;
} reef_generation;

typedef struct reef_network {
    reef_config config;
    size_t generation_count, generation_capacity;
    reef_generation **generations; // owned
} reef_network;

/**
 * Memory for a generation; values zero. `info.side` decides the sizes, `info.sealed` the layout,
 * `info.dtype` the type of its experts' rows (an open one's are floats). A sealed one has no memory
 * for its rows yet: see reef_generation_allocate_rows. Of divided rows there are those of one rank.
 */
REEF_MUST_CHECK reef_status reef_generation_new(reef_generation **out,
                                                const reef_config *config,
                                                const reef_generation_record *info,
                                                reef_row_division division,
                                                reef_error *err);
void reef_generation_free(reef_generation *generation); // accepts NULL
/** They are stored, or given up. */
void reef_generation_release_visits(reef_generation *generation);

/** Memory for the rows of a sealed generation, zero; nothing where it has it already. */
REEF_MUST_CHECK reef_status reef_generation_allocate_rows(reef_generation *generation,
                                                          reef_error *err);
/** Give the rows' memory back: they are stored, and found in the map from now on. */
void reef_generation_drop_rows(reef_generation *generation);

/**
 * Initial values of an open generation: by true fan-in for the first; for later ones w_up and
 * deltas zero and the query network (with its batch norm) copied from `before`, still unfolded.
 */
void reef_generation_initialise(reef_generation *generation,
                                const reef_config *config,
                                const reef_generation *before);

/**
 * The sealed twin of an open generation: batch norm folded, rows of experts as `dtype` (REEF_F32,
 * or REEF_I8: each value rounded once). Experts, flags and usage move over; `open`
 * is only good for reef_generation_free afterwards.
 */
REEF_MUST_CHECK reef_status reef_generation_make_sealed(reef_generation **out,
                                                        reef_generation *open,
                                                        const reef_config *config,
                                                        reef_dtype dtype,
                                                        reef_error *err);

/**
 * An open generation with a larger side: old experts keep ids, rows and moments; new ones are
 * silent.
 */
REEF_MUST_CHECK reef_status reef_generation_grow(reef_generation **out,
                                                 const reef_generation *open,
                                                 const reef_config *config,
                                                 uint32_t side,
                                                 reef_error *err);

/**
 * Exchange the weights of an open generation with their averages, and fold: training moves the
 * former, the latter are what it is evaluated, sealed and stored as. Twice changes nothing; without
 * averages it only folds.
 */
void reef_generation_exchange(reef_generation *generation, const reef_config *config);

/** The averages of an open generation begin at its weights as they are. */
void reef_generation_average_reset(reef_generation *generation);
/**
 * Make `merged` of a later generation, where it is not fresh: the backbone's matrices plus its
 * corrections (as LoRA merges them, Hu et al. 2021), so that these cost nothing per token.
 * NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_generation_merge(reef_generation *generation,
                                                  reef_generation *backbone,
                                                  const reef_config *config,
                                                  reef_error *err);

/**
 * Refresh `folded` of an open generation from its running statistics; its corrections are merged
 * again.
 */
void reef_generation_fold(reef_generation *generation, const reef_config *config);

/** The tensor of that name, or NULL. */
const reef_tensor *reef_generation_find(const reef_generation *generation, const char *name);

/** Make room for `count` generations, so that appending cannot fail. */
REEF_MUST_CHECK reef_status reef_network_reserve(reef_network *network,
                                                 size_t count,
                                                 reef_error *err);
/** Move a generation into the model. */
REEF_MUST_CHECK reef_status reef_network_append(reef_network *network,
                                                reef_generation *generation,
                                                reef_error *err);
void reef_network_release(reef_network *network);
uint64_t reef_network_parameter_count(const reef_network *network);
/** The newest generation that learns with its net what generation `kind` began. */
size_t reef_network_net_of(const reef_network *network, uint32_t kind);

/** out[0 .. count - 1]: values from `from` on of row n, here and in reach (see residency.h). */
void reef_expert_table_row_read(
    const reef_expert_table *table, size_t n, size_t from, size_t count, float *out);

#endif
