// What one pass over a batch leaves behind, forward and backward.
#ifndef REEF_ACTIVATIONS_H
#define REEF_ACTIVATIONS_H

#include "architecture.h"
#include "experts.h"
#include "generation.h"
#include "moe.h"
#include "reef_ranks.h"
#include "row_prefetch.h"

#define REEF_LN2 0.6931471805599453 // nats in a bit: computed in nats, reported in bits

/** Windows of one pass. Row t of window w is row w * T + t everywhere. */
typedef struct reef_batch {
    size_t windows;         // B'
    const uint8_t *tokens;  // (B', T) inputs
    const uint8_t *targets; // (B', T) next tokens
    const float *weight;    // (B', T) of the loss gradient, or NULL for no gradient
    size_t fires;           // the one later generation that takes part; 0: none does
} reef_batch;

/** Activations of one layer, kept for backward (evaluation uses one set for all layers). */
typedef struct reef_activations_layer {
    float *x_in;                    // (rows, D) residual stream before attention
    float *norm1;                   // (rows, D) x_in after the first layer norm
    float *norm1_mean, *norm1_rstd; // (rows)
    float *qkv;                     // (rows, 3*D) queries, keys and values of attention
    float *probs;                   // (windows, A, T, T) attention weights
    float *attended;                // (rows, D)
    float *x_mid;                   // (rows, D) residual stream after attention
    float *norm2;                   // (rows, D) x_mid after the second layer norm
    float *norm2_mean, *norm2_rstd; // (rows)
    float *ffw_in, *ffw_act;        // (rows, F) dense: before and after the activation
    reef_moe_tape moe;              // empty where no layer of the set is a mixture
} reef_activations_layer;

/** What one generation leaves in one layer. */
typedef struct reef_activations_table {
    reef_router_tape tape;
    float *hidden;             // (rows, reef_expert_hidden_values)
    float *d_gate;             // (rows, P)
    float *factors;            // (rows, P, reef_expert_vectors) open generation only
    reef_fetched_rows fetched; // chosen rows of other ranks, where rows are divided
} reef_activations_table;

typedef struct reef_activations {
    const reef_config *config;
    reef_layer_plan *plans; // (layers)
    bool training;
    size_t windows_max, rows_max;
    size_t layer_sets; // layers in training, 1 in evaluation
    reef_activations_layer *layers;
    size_t generation_capacity;
    // (generation_capacity) -> (layer_sets), made when a generation first fires
    reef_activations_table **expert_tables;
    float *x;                     // (rows, D) residual stream
    float *norm;                  // (rows, D) x after the final layer norm
    float *norm_mean, *norm_rstd; // (rows)
    float *logits; // (rows, V); their gradient after reef_network_forward with weights
    double *loss;  // (rows) nats
    reef_net_prediction *predictions; // (rows) of the target, for a memory; NULL: pools without
    float *window_scratch;            // (rows, reef_activations_width)
    // Gradients in backward; d_y is of what the experts of one generation add.
    float *d_x, *d_mid, *d_norm, *d_attended, *d_y; // (rows, D)
    float *d_qkv;                                   // (rows, 3*D)
    float *d_probs;                                 // (windows, REEF_ATTENTION_ROWS, T)
    float *norm_grads;                              // (windows, 4 * D)
    uint8_t *window_active;                         // (windows) that a router's backward reads
    reef_expert_pairs pairs;                        // of the open generation
    reef_row_prefetch *prefetch; // not owned: fetches rows that are read in place; NULL if none are
    // The caller's to set: the ranks that share out the training passes from now on; NULL: this
    // process computes all of them. See split.c.
    reef_ranks *ranks;
    // The caller's, once for all: those that the rows of experts are divided over, which then make
    // every pass at once; NULL: this process has all rows. See row_exchange.c.
    reef_ranks *row_ranks;
    double seconds_router, seconds_experts, seconds_update;
} reef_activations;

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
 * Losses (and with batch->weight the gradient of the logits) of a batch.
 *
 * The experts of generation 0 add to x in each layer, and those of the later generation that fires,
 * if one does. Its corrections are added to the embedding and to all matrices.
 *
 * Changes no parameter, but makes the merged matrices that are not fresh (reef_generation_merge),
 * so two passes of one network must not run at once.
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
                                                                const reef_generation *generation,
                                                                size_t g,
                                                                reef_error *err);

/** The generations that take part in a batch, the oldest first: 0, and the one that fires. */
#define REEF_FIRING_MAX 2
size_t reef_batch_firing(const reef_batch *batch, size_t generations[REEF_FIRING_MAX]);
/** x[t] += the embeddings of token t and of those before it in its window. */
void reef_embed_token(
    const reef_config *config, float *x, const float *tables, const uint8_t *tokens, size_t t);
/** The rows of generation g in layer l as a pass reads them, with those fetched for it. */
reef_expert_rows reef_activations_rows(const reef_activations *acts,
                                       const reef_network *network,
                                       size_t g,
                                       uint32_t l);
/**
 * Run `work` over the windows, with the rows that generation g chose in layer l fetched beside it.
 */
void reef_activations_run_experts(reef_activations *acts,
                                  reef_ranks *ranks, // that share the pass, or NULL
                                  const reef_network *network,
                                  reef_thread_pool *workers,
                                  const reef_batch *batch,
                                  size_t g,
                                  uint32_t l,
                                  void (*work)(void *context, size_t window),
                                  void *context);
/** The most floats that a token has in any array of a pass. */
size_t reef_activations_width(const reef_config *config);
/** Drop the tapes of generation g: it was sealed or has grown. */
void reef_activations_forget_generation(reef_activations *acts, size_t g);

/** What the optimiser does with expert rows while they are in cache. */
typedef struct reef_network_update {
    reef_adam adam; // for expert rows
    float average_rate;
    float clip;
    bool freeze_experts; // compute gradients of dense tensors only (gradient checks)
} reef_network_update;

/**
 * Gradients of the open generation's dense tensors (added to generation->grads) and, in the same
 * pass, the update of its experts. Reads forward's tape backwards; sealed generations only pass
 * gradients on.
 */
void reef_network_backward(reef_activations *acts,
                           reef_network *network,
                           reef_thread_pool *workers,
                           const reef_batch *batch,
                           const reef_network_update *update);

#endif
