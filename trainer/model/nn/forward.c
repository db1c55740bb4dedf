// One pass through the model, forwards: losses of a batch of windows, and the tape for backward.
//
//   generation   one unit of growth: 0 owns the backbone, later ones add corrections and experts
//   backbone     embedding, attention, dense networks and output head of generation 0
//   weights      views of a generation's tensors; of a later one they are corrections, which are
//                added to the backbone's
//   fires        takes part in a batch: of the later generations one or none, the caller says which
//   open         the one generation that trains; all before it are sealed and never change
//   folded       router of an open generation with the batch norm of its queries folded into their
//                projection, by running statistics; a sealed one has no other router
//   merged       copies of the backbone's matrices with one generation's corrections added: what a
//                token is multiplied with where that generation fires (projection.c)
//   side         sub-keys on each side of a router; side * side experts in the layer's table
//   plan         shapes and kind of feed-forward network of one layer, from the configuration
//   tape         what forward stores for backward
//   layer set    one layer's memory in a pass: training has one for each layer, evaluation a single
//                one that all layers use in turn
//   T D V        tokens of a window, width of the residual stream, vocabulary
//   F A P        hidden units of a feed-forward network, attention heads, experts per token
//
// All work is cut into windows of T tokens; the router cuts the same rows into the same pieces. So
// the shapes of all matrix products are fixed, and a window's result depends on that window alone.
// (In training also on the batch statistics of the open generation's queries.) Where a generation
// does not fire, not one bit of the residual stream is touched.
#include "nn_internal.h"

#include <assert.h>
#include <string.h>

// The state of one pass: which block, which generation.
typedef struct forward_pass {
    reef_activations *acts;
    bool train;        // REEF_PASS_TRAIN
    reef_ranks *ranks; // that share the pass; NULL: it is this process's alone
    const reef_network *network;
    const reef_batch *batch;
    // The block that is computed now, and the generation whose experts run in it.
    const reef_layer_plan *plan;
    reef_activations_layer *layer;
    size_t layer_set; // index of `layer`: 0 in evaluation, else l
    uint32_t l;
    size_t g;
} forward_pass;

// ---- embedding ----------------------------------------------------------------------------------

// The tables of a token itself and of those before it in its window: what attention would take many
// steps to learn to fetch (compare the hashed n-gram embeddings of Pagnoni et al. 2024).
void reef_embed_token(
    const reef_config *config, float *x, const float *tables, const uint8_t *tokens, size_t t) {
    size_t D = config->d_model, V = REEF_VOCAB, most = reef_embedding_tables(config);
    for (size_t distance = 0; distance < most && distance <= t; distance++)
        reef_axpy(D, x + t * D, 1.0f, tables + (distance * V + tokens[t - distance]) * D);
}

static void add_embedding(const reef_config *config,
                          float *x,
                          const reef_weights *weights,
                          const uint8_t *tokens,
                          size_t t) {
    size_t D = config->d_model;
    reef_axpy(D, x + t * D, 1.0f, weights->position + t * D);
    reef_embed_token(config, x, weights->embedding, tokens, t);
}

// x = embeddings + position, plus those of the generation that fires.
static void embed_window(void *context, size_t w) {
    const forward_pass *f = context;
    const reef_config *config = f->acts->config;
    size_t D = config->d_model, T = config->context;
    const uint8_t *tokens = f->batch->tokens + w * T;
    float *x = f->acts->x + w * T * D;
    memset(x, 0, T * D * sizeof(*x));
    for (size_t t = 0; t < T; t++) {
        size_t g = f->batch->fires;
        add_embedding(config, x, &f->network->generations[0]->weights, tokens, t);
        if (g > 0) add_embedding(config, x, &f->network->generations[g]->weights, tokens, t);
    }
}

static reef_projection projection_of(const forward_pass *f) {
    return (reef_projection){.network = f->network, .fires = f->batch->fires, .l = f->l};
}

// ---- attention ----------------------------------------------------------------------------------

// Everything of a block before its FFW: x_mid = x + attention(norm1(x)), norm2 = norm(x_mid).
static void attend_window(void *context, size_t w) {
    const forward_pass *f = context;
    const reef_config *config = f->acts->config;
    size_t D = config->d_model, T = config->context, A = config->attention_heads, row = w * T;
    const reef_block *block = &f->network->generations[0]->weights.blocks[f->l];
    reef_activations_layer *layer = f->layer;
    float *x_in = layer->x_in + row * D;
    float *x_mid = layer->x_mid + row * D;
    float *norm1 = layer->norm1 + row * D;
    // Backward needs the block's input, and x is about to change.
    memcpy(x_in, f->acts->x + row * D, T * D * sizeof(*x_in));
    // Pre-norm: the residual stream itself is never normalised (Radford et al. 2019).
    reef_layer_norm_forward(T, D, norm1, layer->norm1_mean + row, layer->norm1_rstd + row, x_in,
                            block->norm1_scale, block->norm1_shift);
    // Queries, keys and values are one product.
    float *qkv = layer->qkv + row * 3 * D;
    const reef_projection at = projection_of(f);
    reef_project(&at, REEF_W_QKV, qkv, norm1, false);
    float *attended = layer->attended + row * D;
    reef_attention_forward(T, D, A, attended, layer->probs + w * A * T * T, qkv);
    // The residual: the output projection adds to a copy of the input.
    memcpy(x_mid, x_in, T * D * sizeof(*x_mid));
    reef_project(&at, REEF_W_OUT, x_mid, attended, true);
    // norm2 is what the feed-forward network and the routers of all generations read.
    reef_layer_norm_forward(T, D, layer->norm2 + row * D, layer->norm2_mean + row,
                            layer->norm2_rstd + row, x_mid, block->norm2_scale, block->norm2_shift);
    memcpy(f->acts->x + row * D, x_mid, T * D * sizeof(*x_mid)); // the FFW adds to it
}

// ---- feed-forward networks ----------------------------------------------------------------------

static void dense_ffw_window(void *context, size_t w) {
    const forward_pass *f = context;
    const reef_config *config = f->acts->config;
    size_t D = config->d_model, F = config->d_ffw, T = config->context, row = w * T;
    float *hidden = f->layer->ffw_in + row * F, *hidden_act = f->layer->ffw_act + row * F;
    const reef_projection at = projection_of(f);
    reef_project(&at, REEF_W_FFW_IN, hidden, f->layer->norm2 + row * D, false);
    reef_gelu(T * F, hidden_act, hidden);
    reef_project(&at, REEF_W_FFW_OUT, f->acts->x + row * D, hidden_act, true);
}

// MoE layers: in training each expert takes its best tokens of the window, which is expert choice
// (Zhou et al. 2022). Otherwise thresholds decide, as in evaluation. They follow the choices of
// training, so a generation that is sealed keeps them (see step.c).
static bool mixtures_train(const forward_pass *f) {
    return f->train && f->network->generations[0]->open;
}

// Every rank computes the whole of a mixture: gradients of its experts sum over the tokens that
// each took, which no rank has alone.
static void gather_mixture_input(const forward_pass *f) {
    const reef_config *config = f->acts->config;
    if (f->ranks == NULL) return;
    const reef_ranks_array input[] = {
        reef_split_rows(config, f->acts->x, config->d_model),
        reef_split_rows(config, f->layer->norm2, config->d_model),
    };
    reef_ranks_gather(f->ranks, f->batch->windows, 2, input);
}

static void moe_window(void *context, size_t w) {
    const forward_pass *f = context;
    const reef_moe_shape *shape = &f->plan->moe;
    size_t offset = w * shape->T * shape->D;
    reef_moe_forward(shape, &f->network->generations[0]->weights.blocks[f->l].moe, &f->layer->moe,
                     w, f->acts->x + offset, f->layer->norm2 + offset);
}

static void experts_window(void *context, size_t w) {
    const forward_pass *f = context;
    const reef_config *config = f->acts->config;
    const reef_expert_shape *shape = &f->plan->experts;
    size_t D = shape->D, P = shape->P, T = config->context, row = w * T;
    reef_activations_table *table = &f->acts->expert_tables[f->g][f->layer_set];
    const reef_expert_rows rows = reef_activations_rows(f->acts, f->network, f->g, f->l);
    reef_experts_forward(shape, T, f->acts->x + row * D,
                         table->hidden + row * reef_expert_hidden_values(shape),
                         f->layer->norm2 + row * D, table->tape.indices + row * P,
                         table->tape.gate + row * P, &rows, NULL);
}

// Statistics of queries, and sums over rows in backward, need the router's input of every window;
// experts are chosen for a rank's own windows.
static void share_choice(const forward_pass *f, reef_router_tape *tape) {
    tape->choose_first = tape->choose_end = 0; // all
    if (f->ranks == NULL) return;
    reef_ranks_share(f->ranks, reef_ranks_rank(f->ranks), f->batch->windows, &tape->choose_first,
                     &tape->choose_end);
}

// Rows of other ranks: of what this rank's windows chose. They stay until backward has read them.
static void fetch_chosen(const forward_pass *f) {
    size_t first = 0, end = f->batch->windows;
    if (f->acts->row_ranks == NULL) return;
    // A pass that is not shared runs on every rank, each of which needs the rows of all windows.
    if (f->ranks != NULL)
        reef_ranks_share(f->ranks, reef_ranks_rank(f->ranks), f->batch->windows, &first, &end);
    reef_rows_fetch(f->acts, f->network, f->g, f->l, first, end);
}

// The retrieved experts of one block: each generation adds its own to x, the oldest first.
static reef_status experts_forward(forward_pass *f, reef_thread_pool *workers, reef_error *err) {
    reef_activations *acts = f->acts;
    if (f->ranks != NULL) {
        const reef_ranks_array input =
            reef_split_rows(acts->config, f->layer->norm2, acts->config->d_model);
        reef_ranks_gather(f->ranks, f->batch->windows, 1, &input);
    }
    size_t firing[REEF_FIRING_MAX], count = reef_batch_firing(f->batch, firing);
    for (size_t i = 0; i < count; i++) {
        const size_t g = firing[i];
        const reef_generation *generation = f->network->generations[g];
        reef_status status = reef_activations_prepare_generation(acts, generation, g, err);
        if (status != REEF_OK) return status;
        bool trains_router = generation->open && f->train;
        reef_router_shape shape = reef_plan_router(f->plan, generation->info.side);
        // An open generation is evaluated with its batch norm folded into the query projection, by
        // running statistics: an evaluation must not depend on what else is in the batch.
        const reef_router_params *router = generation->open && !trains_router
                                               ? &generation->folded[f->l]
                                               : &generation->weights.routers[f->l];
        f->g = g;
        // TRAIN normalises queries by the statistics of this batch; FOLDED has no batch norm left.
        reef_router_mode routing = trains_router ? REEF_ROUTER_TRAIN : REEF_ROUTER_FOLDED;
        reef_router_tape *tape = &acts->expert_tables[g][f->layer_set].tape;
        double start = reef_seconds();
        share_choice(f, tape);
        status = reef_router_forward(&shape, router, routing, workers,
                                     f->batch->windows * acts->config->context, f->layer->norm2,
                                     NULL, tape, err);
        status = reef_split_agree(f->ranks, status, err);
        if (status != REEF_OK) return status;
        double routed = reef_seconds();
        fetch_chosen(f);
        reef_activations_run_experts(acts, f->ranks, f->network, workers, f->batch, g, f->l,
                                     experts_window, f);
        acts->seconds_router += routed - start;
        acts->seconds_experts += reef_seconds() - routed;
    }
    return REEF_OK;
}

static reef_status ffw_forward(forward_pass *f, reef_thread_pool *workers, reef_error *err) {
    size_t windows = f->batch->windows;
    switch (f->plan->ffw) {
    case REEF_FFW_DENSE:
        reef_split_run(f->ranks, workers, windows, dense_ffw_window, f);
        return REEF_OK;
    case REEF_FFW_MOE:
        gather_mixture_input(f);
        reef_moe_begin(&f->layer->moe, windows, mixtures_train(f));
        reef_thread_pool_run(workers, windows, moe_window, f);
        return REEF_OK;
    default:
        return experts_forward(f, workers, err);
    }
}

// ---- output head and loss -----------------------------------------------------------------------

// What the net says of each target of a window, for the mixer of a context memory. It runs before
// the loss, which may replace `logits` by their gradient.
static void predict_targets(const forward_pass *f, size_t row, const float *logits) {
    float p[REEF_VOCAB];
    // t + 1: tokens that the net has seen in this window when it predicts target t.
    for (size_t t = 0; t < f->acts->config->context; t++) {
        memcpy(p, logits + t * REEF_VOCAB, sizeof(p));
        reef_softmax(REEF_VOCAB, p);
        reef_net_predict_byte(p, f->batch->targets[row + t], (uint16_t)(t + 1),
                              &f->acts->predictions[row + t]);
    }
}

// Final norm, logits, loss, and with weights the gradient of the logits.
static void head_window(void *context, size_t w) {
    const forward_pass *f = context;
    const reef_config *config = f->acts->config;
    size_t D = config->d_model, T = config->context, V = REEF_VOCAB, row = w * T;
    reef_activations *acts = f->acts;
    const reef_weights *base = &f->network->generations[0]->weights;
    float *norm = acts->norm + row * D, *logits = acts->logits + row * V;
    reef_layer_norm_forward(T, D, norm, acts->norm_mean + row, acts->norm_rstd + row,
                            acts->x + row * D, base->norm_scale, base->norm_shift);
    const reef_projection at = projection_of(f);
    reef_project(&at, REEF_W_HEAD, logits, norm, false);
    // Text generation passes no targets: it needs the logits alone.
    if (f->batch->targets == NULL) return;
    if (acts->predictions != NULL) predict_targets(f, row, logits);
    const float *weight = f->batch->weight == NULL ? NULL : f->batch->weight + row;
    reef_cross_entropy(T, V, acts->loss + row, logits, f->batch->targets + row, weight,
                       weight != NULL);
}

// What later decisions read of all windows: losses, predictions for a memory, and, without weights,
// the logits: the caller makes their gradient itself.
static void gather_outputs(const forward_pass *f) {
    const reef_config *config = f->acts->config;
    size_t T = config->context, count = 0;
    reef_ranks_array left[3];
    if (f->ranks == NULL) return;
    if (f->batch->targets != NULL) {
        size_t bytes = T * sizeof(*f->acts->loss);
        left[count++] = (reef_ranks_array){f->acts->loss, bytes, bytes};
    }
    if (f->batch->targets != NULL && f->acts->predictions != NULL) {
        size_t bytes = T * sizeof(*f->acts->predictions);
        left[count++] = (reef_ranks_array){f->acts->predictions, bytes, bytes};
    }
    if (f->batch->weight == NULL)
        left[count++] = reef_split_rows(config, f->acts->logits, REEF_VOCAB);
    reef_ranks_gather(f->ranks, f->batch->windows, count, left);
}

// ---- the pass -----------------------------------------------------------------------------------

// Merge the corrections of the generation that fires into copies of the backbone's matrices. They
// are kept until parameters change: a cache, not part of the model, so the network stays const.
// Those of a generation that trains change in every step.
static reef_status merge_fired(const forward_pass *f, reef_error *err) {
    const reef_network *network = f->network;
    if (f->batch->fires == 0) return REEF_OK;
    reef_generation *generation = network->generations[f->batch->fires];
    if (f->train && generation->open) generation->merged_is_fresh = false;
    return reef_generation_merge(generation, network->generations[0], &network->config, err);
}

reef_status reef_network_forward(reef_activations *acts,
                                 const reef_network *network,
                                 reef_thread_pool *workers,
                                 const reef_batch *batch,
                                 reef_activations_mode mode,
                                 reef_error *err) {
    assert(batch->windows <= acts->windows_max && batch->fires < network->generation_count);
    assert(mode == REEF_PASS_EVALUATE || acts->training);
    forward_pass f = {
        .acts = acts, .train = mode == REEF_PASS_TRAIN, .network = network, .batch = batch};
    f.ranks = f.train ? acts->ranks : NULL;
    reef_status merged = merge_fired(&f, err);
    if (merged != REEF_OK) return merged;
    reef_split_run(f.ranks, workers, batch->windows, embed_window, &f);
    // Every stage ends before the next begins: the experts of a block need norm2 of all windows.
    for (uint32_t l = 0; l < network->config.layers; l++) {
        f.l = l;
        f.plan = &acts->plans[l];
        // Training keeps one set of activations for each layer, for backward.
        f.layer_set = acts->layer_sets == 1 ? 0 : l;
        f.layer = &acts->layers[f.layer_set];
        reef_split_run(f.ranks, workers, batch->windows, attend_window, &f);
        reef_status status = ffw_forward(&f, workers, err);
        if (status != REEF_OK) return status;
    }
    reef_split_run(f.ranks, workers, batch->windows, head_window, &f);
    gather_outputs(&f);
    return REEF_OK;
}
