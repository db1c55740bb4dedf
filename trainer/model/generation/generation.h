// The model in memory: generations of named tensors and expert rows, and what one pass over a batch
// leaves behind.
//
// A net is a list of generations. Generation 0 owns the backbone; later ones own deltas of embedding
// and head. Each owns a router and a pool of experts per block whose FFW retrieves. A generation in
// memory is either sealed (batch norm folded, nothing but values) or open (gradients, moments, averages,
// flags, usage). Only the last may be open.
#ifndef REEF_MODEL_INSIDE_H
#define REEF_MODEL_INSIDE_H

#include "adapter.h"
#include "adapter_merge.h"
#include "architecture.h"
#include "experts.h"
#include "moe.h"
#include "reef_clock.h"
#include "reef_model.h"
#include "row_prefetch.h"

/** One named dense parameter; all of a generation's lie in one block of memory. */
typedef struct reef_tensor {
    char name[REEF_NAME_BYTES_MAX + 1];
    size_t count;      // floats
    size_t trained_at; // the first float that trains; `count`: all are frozen
    float *data;
    float *grad; // NULL unless open and trained
    float *adam_m, *adam_v;
    float *average; // of `data` over the updates; NULL where there is no gradient or no average
    double grad_squares; // sum of grad's squares, which clipping needs; of the last step
} reef_tensor;

/** One transformer block of the backbone. */
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
    float *embedding; // (1 + previous_bytes, V, D) generation 0; its delta in later ones
    float *head;      // (D, V) generation 0; its delta in later ones
    reef_adapter adapters_qkv[REEF_LAYER_COUNT_MAX];     // of w_qkv; later generations only
    reef_adapter adapters_out[REEF_LAYER_COUNT_MAX];     // of w_out
    reef_adapter adapters_ffw_in[REEF_LAYER_COUNT_MAX];  // of w_ffw_in, where the FFW is dense
    reef_adapter adapters_ffw_out[REEF_LAYER_COUNT_MAX]; // of w_ffw_out
    float *position; // (T, D) generation 0; its delta in later ones, or NULL without adapt_position
    // (D) of each block that retrieves, what is added to a factor of 1 on the sum of older generations' experts where
    // this one fires; later generations with weigh_older, or NULL
    float *delta_older[REEF_LAYER_COUNT_MAX];
    // generation 0 only, but for the routers
    float *norm_scale, *norm_shift;
    reef_block blocks[REEF_LAYER_COUNT_MAX];
    reef_router_params routers[REEF_LAYER_COUNT_MAX];
} reef_weights;

/** The pool of experts of one block in one generation. All empty where the block's FFW retrieves nothing. */
typedef struct reef_expert_table {
    size_t expert_count;   // N = side * side
    size_t row_values;     // of one expert
    void *memory;          // owned: (N, row_values) of the type of `rows`; NULL: not in memory
    float *experts;        // the same where they are floats; NULL where they are bf16
    size_t block_count;    // 1 where the rows are in `memory`
    void *last_block;      // owned: copy of a layer's last block where the others are in the map
    const void **blocks;   // owned: where `rows` finds them, in memory or in the store's map
    reef_expert_rows rows; // as every pass reads them
    uint8_t *flags;        // (N) 1: frozen; NULL, as all below, once sealed and stored
    uint8_t *dirty;        // (N) rows changed since the last commit
    reef_usage *usage;     // (N) since the generation was opened
    uint64_t *used_before; // (N) counts when the window of recycle_after began; NULL without
    reef_expert_moments moments; // of the rows; open generation only
} reef_expert_table;

typedef struct reef_generation {
    reef_generation_record info;
    bool open;
    bool stored; // sealed, and its sealed form is in a commit
    bool
        queries_frozen; // open, but with queries that train no more: training routes by `folded` too
    reef_tensor *tensors;
    size_t tensor_count;
    float *values;   // the block that the tensors' data lie in
    float *training; // open: gradients, then adam_m, then adam_v, then averages
    size_t value_count;
    reef_weights weights, grads;
    reef_router_params folded[REEF_LAYER_COUNT_MAX]; // open: routers as they are evaluated
    float *folded_values;
    reef_merged
        merged; // generations >= 1, once evaluated; not fresh after training until folded anew
    reef_expert_table expert_tables[REEF_LAYER_COUNT_MAX];
    reef_gate gate;          // generations >= 1
    double reference_median; // prequential bits per byte when it was sealed: what "explained" means
    double reference_spread; // 1.4826 * median absolute deviation of the same
    float gate_leak, gate_detect; // measured by the gate's last fit
} reef_generation;

typedef struct reef_network {
    reef_config config;
    size_t generation_count, generation_capacity;
    reef_generation **generations; // owned
} reef_network;

reef_router_shape reef_generation_shape(const reef_config *config, uint32_t side);
/** Of a layer that retrieves: rows of kind k are values alone. */
reef_expert_shape reef_generation_expert_shape(const reef_config *config, uint32_t layer);
/** The longest rows of all layers that retrieve, for memory that they share. */
reef_expert_shape reef_generation_expert_shape_largest(const reef_config *config);
reef_moe_shape reef_generation_moe_shape(const reef_config *config);
static inline size_t reef_rows_value_bytes(reef_dtype dtype) {
    return dtype == REEF_BF16 ? sizeof(reef_bf16) : sizeof(float);
}

/** What rows of experts become when a generation is sealed. */
reef_dtype reef_generation_seal_dtype(const reef_config *config);
reef_adapter_shape reef_adapter_shape_qkv(const reef_config *config);
reef_adapter_shape reef_adapter_shape_out(const reef_config *config);
reef_adapter_shape reef_adapter_shape_ffw_in(const reef_config *config);
reef_adapter_shape reef_adapter_shape_ffw_out(const reef_config *config);
/** The largest rank of the four, of which scratch memory is made; 0 without adapters. */
size_t reef_adapter_rank_max(const reef_config *config);

/**
 * Memory for a generation; values zero. `info.side` decides the sizes, `info.sealed` the layout,
 * `info.dtype` the type of its experts' rows (an open one's are floats). A sealed one has no memory for
 * its rows yet: see reef_generation_hold_rows.
 */
REEF_MUST_CHECK reef_status reef_generation_new(reef_generation **out,
                                                const reef_config *config,
                                                const reef_generation_record *info,
                                                reef_error *err);
void reef_generation_free(reef_generation *gen); // accepts NULL

/** Memory for the rows of a sealed generation, zero; nothing where it has it already. */
REEF_MUST_CHECK reef_status reef_generation_hold_rows(reef_generation *gen, reef_error *err);
/** Give the rows' memory back: they are stored, and found in the map from now on. */
void reef_generation_drop_rows(reef_generation *gen);

/**
 * Initial values of an open generation: by true fan-in for the first; for later ones w_up and
 * deltas zero and the query network (with its batch norm) copied from `before`, still unfolded.
 */
void reef_generation_initialise(reef_generation *gen,
                                const reef_config *config,
                                const reef_generation *before);

/**
 * The sealed twin of an open generation: batch norm folded, rows of experts as `dtype` (REEF_F32, or
 * REEF_BF16: each value rounded once). Experts, flags, usage and gate move over; `open` is only good for
 * reef_generation_free afterwards.
 */
REEF_MUST_CHECK reef_status reef_generation_make_sealed(reef_generation **out,
                                                        reef_generation *open,
                                                        const reef_config *config,
                                                        reef_dtype dtype,
                                                        reef_error *err);

/** An open generation with a larger side: old experts keep ids, rows and moments; new ones are silent. */
REEF_MUST_CHECK reef_status reef_generation_grow(reef_generation **out,
                                                 const reef_generation *open,
                                                 const reef_config *config,
                                                 uint32_t side,
                                                 reef_error *err);

/**
 * Exchange the weights of an open generation with their averages, and fold: training moves the former, the
 * latter are what it is evaluated, sealed and stored as. Twice changes nothing; without averages it only folds.
 */
void reef_generation_exchange(reef_generation *gen, const reef_config *config);

/** The averages of an open generation begin at its weights as they are. */
void reef_generation_average_reset(reef_generation *gen);
/** The gate of `to`, an open generation, becomes a copy of that of `from`. */
void reef_generation_gate_copy(reef_generation *to, const reef_generation *from);
/** The averages of an open generation become its weights, from which training goes on. Folds. */
void reef_generation_average_adopt(reef_generation *gen, const reef_config *config);

/** Refresh `folded` of an open generation from its running statistics; its corrections are merged anew. */
void reef_generation_fold(reef_generation *gen, const reef_config *config);

/** The tensor of that name, or NULL. */
const reef_tensor *reef_generation_find(const reef_generation *gen, const char *name);

/** Make room for `count` generations, so that appending cannot fail. */
REEF_MUST_CHECK reef_status reef_network_reserve(reef_network *network,
                                                 size_t count,
                                                 reef_error *err);
/** Take a generation over into the net. */
REEF_MUST_CHECK reef_status reef_network_append(reef_network *network,
                                                reef_generation *gen,
                                                reef_error *err);
void reef_network_release(reef_network *network);
uint64_t reef_network_parameter_count(const reef_network *network);

// ---- one pass ------------------------------------------------------------------------------------

#define REEF_LN2 0.6931471805599453 // nats in a bit: losses are computed in nats, and told in bits

/** Windows of one pass. Row t of window w is row w * T + t everywhere. */
typedef struct reef_batch {
    size_t windows;         // B'
    size_t retain_windows;  // the last ones of them: old data that only feeds the retain term
    const uint8_t *tokens;  // (B', T) inputs, of reef_token_bytes each
    const uint8_t *targets; // (B', T) next tokens
    const float *weight;    // (B', T) of the loss gradient, or NULL for no gradient
    const uint8_t
        *fire; // (generation_count, windows_max, T) 1: the generation takes part; row 0 is ignored
    size_t fire_stride; // bytes between generations in `fire`
} reef_batch;

/** Activations of one layer, kept for backward (evaluation uses one set for all layers). */
typedef struct reef_activations_layer {
    float *x_in; // (rows, D) residual stream before attention
    float *norm1, *norm1_mean, *norm1_rstd;
    float *qkv, *probs, *attended;
    float *x_mid; // residual stream after attention
    float *norm2, *norm2_mean, *norm2_rstd;
    float *ffw_in, *ffw_act; // (rows, F) dense
    reef_moe_tape moe;       // empty where no layer of the set is a mixture
    float *retain_d_y;       // (rows, D) gradient of the retain term; rows of retain windows only
    float *older;            // (rows, D) what older experts added, where the open generation fires
} reef_activations_layer;

/** What one generation leaves in one layer. */
typedef struct reef_activations_table {
    reef_router_tape tape;
    float *hidden;  // (rows, P)
    float *d_gate;  // (rows, P)
    float *factors; // (rows, P, reef_expert_vectors) open generation only
} reef_activations_table;

typedef struct reef_activations {
    const reef_config *config;
    bool training;
    size_t windows_max, rows_max;
    size_t layer_sets; // layers in training, 1 in evaluation
    reef_activations_layer *layers;
    size_t generation_capacity;
    reef_activations_table *
        *expert_tables; // (generation_capacity) -> (layer_sets), made when a generation first fires
    float *x;           // (rows, D) residual stream
    float *norm, *norm_mean, *norm_rstd; // after the last block
    float *logits;         // (rows, V); their gradient after reef_network_forward with weights
    double *loss;          // (rows) nats
    float *window_scratch; // (windows, T, max(V, 3*D, F)) per window
    uint32_t
        *answers; // (rows) the generation that alone fires; 0: none does; or REEF_ANSWER_SEVERAL
    uint8_t *several; // (rows) scratch: where a generation fires among several
    float *d_x, *d_mid, *d_norm, *d_qkv, *d_attended, *d_probs, *d_y; // backward
    float *low_qkv, *d_low_qkv, *low_out,
        *d_low_out; // (rows, rank) of the open generation's adapters of a block, FFW then attention
    float *norm_grads;       // (windows, 4 * D)
    uint8_t *piece_active;   // (windows)
    reef_expert_pairs pairs; // of the open generation
    reef_row_prefetch
        *prefetch; // not owned: fetches rows that are read in place; NULL while none are
    // Told after the experts of generation g in layer l, while their tape is there, or NULL.
    void (*on_experts)(void *context, size_t g, uint32_t l);
    void *on_experts_context;
    double seconds_router, seconds_experts, seconds_update;
} reef_activations;

/** No merged matrices for this token: corrections are added to the backbone's products one by one. */
#define REEF_ANSWER_SEVERAL UINT32_MAX

REEF_MUST_CHECK reef_status reef_activations_init(reef_activations *acts,
                                                  const reef_config *config,
                                                  size_t windows_max,
                                                  bool training,
                                                  reef_error *err);
void reef_activations_release(reef_activations *acts);

typedef enum reef_activations_mode {
    REEF_PASS_EVALUATE, // every generation as it is evaluated: running batch norm folded
    REEF_PASS_TRAIN,    // the open generation with batch statistics
} reef_activations_mode;

/**
 * Losses (and with batch->weight the gradient of the logits) of a batch. Changes nothing in the net.
 * y(x) = y_0(x) + sum over fired generations of y_g(x), deltas likewise.
 */
REEF_MUST_CHECK reef_status reef_network_forward(reef_activations *acts,
                                                 const reef_network *network,
                                                 reef_thread_pool *workers,
                                                 const reef_batch *batch,
                                                 reef_activations_mode mode,
                                                 reef_error *err);

// Shared by forward.c and backward.c.

/** Memory for what generation g leaves, where it has none yet. */
REEF_MUST_CHECK reef_status reef_activations_prepare_generation(reef_activations *acts,
                                                                const reef_generation *gen,
                                                                size_t g,
                                                                reef_error *err);

/** (T) of window `window`: where generation g takes part; NULL for generation 0, which always does. */
const uint8_t *reef_batch_fire(const reef_batch *batch,
                               const reef_config *config,
                               size_t g,
                               size_t window);
/** Is window `window` old data, of the retain term? */
bool reef_batch_retains(const reef_batch *batch, size_t window);
/** Set piece_active to the windows in which generation g fires at all; false when in none. */
bool reef_activations_activate(reef_activations *acts, const reef_batch *batch, size_t g);
/** x[t] += the embeddings of token t and of those before it in its window. */
void reef_embed_token(
    const reef_config *config, float *x, const float *tables, const uint8_t *tokens, size_t t);
/** Run `work` over the windows, with the rows that generation g chose in layer l fetched beside it. */
void reef_activations_run_experts(reef_activations *acts,
                                  const reef_network *network,
                                  reef_thread_pool *workers,
                                  const reef_batch *batch,
                                  size_t g,
                                  uint32_t l,
                                  void (*work)(void *context, size_t window),
                                  void *context);
/** What a fired token of a window of old data weighs in the retain term of one part of the model. */
float reef_retain_weight(const reef_config *config, const uint8_t *fire);
#define REEF_RETAIN_FLOOR 1e-3f // added to the old output's squared norm, which divides
/** Floats per token of window_scratch. */
size_t reef_activations_scratch_width(const reef_config *config);
/** Drop the tapes of generation g: it was sealed or has grown. */
void reef_activations_forget_generation(reef_activations *acts, size_t g);

/** What the optimiser does with expert rows while they are in cache. */
typedef struct reef_network_update {
    reef_adam adam; // for expert rows
    float average_rate;
    float clip;
    bool freeze_experts;           // compute gradients of dense tensors only (gradient checks)
    const reef_expert_pull *pulls; // (layers) or NULL: a penalty on change of rows
    float *const *squares; // (layers) or NULL: squared gradients of rows are added, no row changes
    // Which experts of layer l stay as they are, (N) flags, now that their pairs are sorted; NULL: those
    // that are flagged as frozen.
    const uint8_t *(*freeze)(void *context, uint32_t l, const reef_expert_pairs *pairs);
    void *freeze_context;
} reef_network_update;

/**
 * Gradients of the open generation's dense tensors (added to gen->grads) and, in the same pass, the
 * update of its experts. Reads forward's tape backwards; sealed generations only pass gradients on.
 */
void reef_network_backward(reef_activations *acts,
                           reef_network *network,
                           reef_thread_pool *workers,
                           const reef_batch *batch,
                           const reef_network_update *update);

/** out[0 .. count - 1]: values from `from` on of row n, which is in reach (see residency.h). */
void reef_expert_table_row_read(
    const reef_expert_table *table, size_t n, size_t from, size_t count, float *out);

#endif
