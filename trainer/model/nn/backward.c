// The same pass backwards: forward.c read upwards.
//
// The open generation gets gradients of its dense tensors and, while the rows are in cache, the
// update of its experts; sealed generations only hand the gradient of their input down. Gradients
// of weights are matrix products over all rows of the batch, cut into fixed tiles of the weight, so
// there is nothing to reduce and no trace of the thread count.
#include "nn_internal.h"

#include <assert.h>
#include <string.h>

// The state of one pass: which block, which generation.
typedef struct backward_pass {
    reef_activations *acts;
    reef_network *network;
    const reef_batch *batch;
    reef_thread_pool *workers;
    reef_generation *open; // the generation being trained
    bool first;            // it is generation 0: the backbone trains
    const reef_layer_plan *plan;
    reef_activations_layer *layer;
    uint32_t l;
    size_t g;
    size_t rows;
} backward_pass;

static void weight_gradients(const backward_pass *b,
                             size_t count,
                             const reef_weight_product *products) {
    reef_split_gradients(b->acts->ranks, b->workers, b->acts->config, b->batch->windows, count,
                         products);
}

static void run_windows(backward_pass *b, void (*work)(void *context, size_t w)) {
    reef_split_run(b->acts->ranks, b->workers, b->batch->windows, work, b);
}

// What each window left for sums over all of them: the first `count` floats of its norm_grads.
static void gather_sums(const backward_pass *b, size_t count) {
    const reef_ranks_array sums = {
        .base = b->acts->norm_grads,
        .stride = 4 * b->acts->config->d_model * sizeof(float),
        .bytes = count * sizeof(float),
    };
    reef_ranks_gather(b->acts->ranks, b->batch->windows, 1, &sums);
}

static void gather_rows(const backward_pass *b, float *rows, size_t width) {
    const reef_ranks_array array = reef_split_rows(b->acts->config, rows, width);
    reef_ranks_gather(b->acts->ranks, b->batch->windows, 1, &array);
}

// Sum the windows' layer norm gradients in window order: 4 * D floats a window; `from` is the
// offset of the D of scale and the D of shift.
static void reduce_norm(const backward_pass *b, float *d_scale, float *d_shift, size_t from) {
    size_t D = b->acts->config->d_model;
    for (size_t w = 0; w < b->batch->windows; w++) {
        reef_axpy(D, d_scale, 1.0f, b->acts->norm_grads + w * 4 * D + from);
        reef_axpy(D, d_shift, 1.0f, b->acts->norm_grads + w * 4 * D + from + D);
    }
}

static reef_projection projection_of(const backward_pass *b) {
    return (reef_projection){.network = b->network, .fires = b->batch->fires, .l = b->l};
}

// ---- output head --------------------------------------------------------------------------------

static float *window_scratch(const backward_pass *b, size_t w) {
    const reef_config *config = b->acts->config;
    return b->acts->window_scratch + w * config->context * reef_activations_width(config);
}

static void head_window(void *context, size_t w) {
    const backward_pass *b = context;
    const reef_config *config = b->acts->config;
    size_t D = config->d_model, T = config->context, row = w * T;
    reef_activations *acts = b->acts;
    const reef_weights *base = &b->network->generations[0]->weights;
    float *d_norm = acts->d_norm + row * D, *d_x = acts->d_x + row * D;
    const reef_projection at = projection_of(b);
    reef_project_back(&at, REEF_W_HEAD, d_norm, acts->logits + row * REEF_VOCAB, false);
    float *grads = acts->norm_grads + w * 4 * D;
    memset(d_x, 0, T * D * sizeof(*d_x));
    memset(grads, 0, 2 * D * sizeof(*grads));
    reef_layer_norm_backward(T, D, d_x, b->first ? grads : NULL, b->first ? grads + D : NULL,
                             d_norm, acts->x + row * D, acts->norm_mean + row,
                             acts->norm_rstd + row, base->norm_scale);
}

static void head_backward(backward_pass *b) {
    run_windows(b, head_window);
    if (b->first) gather_sums(b, 2 * b->acts->config->d_model);
    if (b->first) reduce_norm(b, b->open->grads.norm_scale, b->open->grads.norm_shift, 0);
    weight_gradients(b, 1,
                     &(reef_weight_product){b->acts->config->d_model, REEF_VOCAB,
                                            b->open->grads.head, b->acts->norm, b->acts->logits});
}

// ---- retrieved experts --------------------------------------------------------------------------

// d_y of a generation's layer output: the residual gradient.
static void output_gradient_window(void *context, size_t w) {
    const backward_pass *b = context;
    const reef_config *config = b->acts->config;
    size_t count = (size_t)config->context * config->d_model, at = w * count;
    memcpy(b->acts->d_y + at, b->acts->d_x + at, count * sizeof(float));
}

static void experts_window(void *context, size_t w) {
    const backward_pass *b = context;
    const reef_config *config = b->acts->config;
    const reef_expert_shape *shape = &b->plan->experts;
    size_t D = shape->D, P = shape->P, T = config->context, row = w * T,
           at = row * reef_expert_hidden_values(shape);
    reef_activations_table *table = &b->acts->expert_tables[b->g][b->l];
    bool open = b->network->generations[b->g]->open;
    const reef_expert_rows rows = reef_activations_rows(b->acts, b->network, b->g, b->l);
    reef_experts_backward(shape, T, b->acts->d_norm + row * D, table->d_gate + row * P,
                          open ? table->factors + row * P * reef_expert_vectors(shape) : NULL,
                          b->acts->d_y + row * D, table->hidden + at, table->tape.indices + row * P,
                          table->tape.gate + row * P, &rows, NULL);
}

static void update_experts(backward_pass *b, const reef_network_update *update) {
    const reef_expert_shape *shape = &b->plan->experts;
    reef_activations_table *tape = &b->acts->expert_tables[b->g][b->l];
    reef_expert_table *table = &b->open->expert_tables[b->l];
    // Sorted by expert, all pairs of a row meet it while it is in cache: one pass adds up its
    // gradient and applies Adam, and no gradient of the pool is ever stored.
    double start = reef_seconds();
    reef_expert_pairs_sort(&b->acts->pairs, b->workers, b->rows, shape->P, tape->tape.indices,
                           NULL);
    reef_expert_update expert_update = {
        .adam = update->adam,
        .average_rate = update->average_rate,
        .clip = update->clip,
        .flags = table->flags,
        .dirty = table->dirty,
        .usage = table->usage,
        .share = table->share,
    };
    reef_experts_update(b->workers, shape, table->experts, &table->moments, &b->acts->pairs,
                        b->layer->norm2, b->acts->d_y, tape->tape.gate, tape->factors,
                        &expert_update);
    b->acts->seconds_update += reef_seconds() - start;
}

// Numbers of the experts that other ranks chose, from their sub-keys: cheaper than sending them.
static void number_experts(const backward_pass *b,
                           reef_router_tape *tape,
                           size_t first,
                           size_t end) {
    const size_t each = b->acts->config->context * b->plan->experts.P;
    for (size_t i = first * each; i < end * each; i++)
        tape->indices[i] = reef_expert_id_of(tape->index_a[i], tape->index_b[i]);
}

// What the updates of the open generation's experts and of its router read of every window: each
// rank updates the rows that it owns, whichever window chose them.
static void gather_experts(const backward_pass *b) {
    const reef_config *config = b->acts->config;
    reef_activations_table *table = &b->acts->expert_tables[b->g][b->l];
    reef_router_tape *tape = &table->tape;
    reef_ranks *ranks = b->acts->ranks;
    size_t P = b->plan->experts.P, T = config->context, D = config->d_model, count = 0;
    reef_ranks_array left[6];
    if (ranks == NULL) return;
    left[count++] = reef_split_rows(config, b->acts->d_y, D);
    left[count++] = reef_split_rows(config, tape->gate, P);
    left[count++] = reef_split_rows(config, table->d_gate, P);
    left[count++] =
        reef_split_rows(config, table->factors, P * reef_expert_vectors(&b->plan->experts));
    size_t bytes = T * P * sizeof(*tape->index_a), first, end;
    left[count++] = (reef_ranks_array){tape->index_a, bytes, bytes};
    left[count++] = (reef_ranks_array){tape->index_b, bytes, bytes};
    reef_ranks_gather(ranks, b->batch->windows, count, left);
    reef_ranks_share(ranks, reef_ranks_rank(ranks), b->batch->windows, &first, &end);
    number_experts(b, tape, 0, first);
    number_experts(b, tape, end, b->batch->windows);
}

// The windows whose rows the router of a generation passes on: of an open one all, since its batch
// statistics were of every row; of a sealed one this rank's.
static const uint8_t *routed_windows(const backward_pass *b, bool open) {
    reef_activations *acts = b->acts;
    if (open || acts->ranks == NULL) return NULL;
    memset(acts->window_active, 1, b->batch->windows);
    reef_split_mask(acts->ranks, b->batch->windows, acts->window_active);
    return acts->window_active;
}

static void generation_backward(backward_pass *b, const reef_network_update *update) {
    reef_activations *acts = b->acts;
    reef_generation *generation = b->network->generations[b->g];
    reef_activations_table *tape = &acts->expert_tables[b->g][b->l];
    reef_router_shape shape = reef_plan_router(b->plan, generation->info.side);
    double start = reef_seconds();
    run_windows(b, output_gradient_window);
    reef_activations_run_experts(acts, acts->ranks, b->network, b->workers, b->batch, b->g, b->l,
                                 experts_window, b);
    if (generation->open) gather_experts(b);
    double routed = reef_seconds();
    // Sealed routers only pass the gradient of x on.
    reef_router_backward(&shape, &generation->weights.routers[b->l],
                         generation->open ? REEF_ROUTER_TRAIN : REEF_ROUTER_FOLDED, b->workers,
                         b->rows, b->layer->norm2, routed_windows(b, generation->open), &tape->tape,
                         tape->d_gate, acts->d_norm,
                         generation->open ? &generation->grads.routers[b->l] : NULL);
    acts->seconds_experts += routed - start;
    acts->seconds_router += reef_seconds() - routed;
    if (generation->open && !update->freeze_experts) update_experts(b, update);
}

static void experts_backward(backward_pass *b, const reef_network_update *update) {
    size_t firing[REEF_FIRING_MAX], count = reef_batch_firing(b->batch, firing);
    for (size_t i = 0; i < count; i++) {
        b->g = firing[i];
        generation_backward(b, update);
    }
}

// ---- feed-forward -------------------------------------------------------------------------------

static void dense_ffw_window(void *context, size_t w) {
    const backward_pass *b = context;
    const reef_config *config = b->acts->config;
    size_t D = config->d_model, F = config->d_ffw, T = config->context, row = w * T;
    float *d_act = window_scratch(b, w);
    const reef_projection at = projection_of(b);
    reef_project_back(&at, REEF_W_FFW_OUT, d_act, b->acts->d_x + row * D, false);
    // The tape's input of the activation becomes its gradient: it is not needed after this.
    float *in = b->layer->ffw_in + row * F;
    reef_gelu_backward(T * F, in, d_act, in);
    reef_project_back(&at, REEF_W_FFW_IN, b->acts->d_norm + row * D, in, true);
}

static void dense_ffw_backward(backward_pass *b) {
    size_t D = b->acts->config->d_model, F = b->acts->config->d_ffw;
    const reef_block *grads = &b->open->grads.blocks[b->l];
    const reef_weight_product products[] = {
        {F, D, grads->w_ffw_out, b->layer->ffw_act, b->acts->d_x},
        {D, F, grads->w_ffw_in, b->layer->norm2, b->layer->ffw_in},
    };
    run_windows(b, dense_ffw_window);
    weight_gradients(b, 2, products);
}

static void moe_window(void *context, size_t w) {
    const backward_pass *b = context;
    const reef_moe_shape *shape = &b->plan->moe;
    size_t at = w * shape->T * shape->D;
    reef_moe_backward(shape, &b->network->generations[0]->weights.blocks[b->l].moe, &b->layer->moe,
                      w, b->acts->d_norm + at, b->acts->d_x + at, b->layer->norm2 + at);
}

// Where its experts did not choose, the mixture stands still.
static void moe_backward(backward_pass *b) {
    gather_rows(b, b->acts->d_x,
                b->acts->config->d_model); // every rank computes the whole: forward.c
    reef_thread_pool_run(b->workers, b->batch->windows, moe_window, b);
    if (b->layer->moe.chosen)
        reef_moe_gradients(&b->plan->moe, &b->open->grads.blocks[b->l].moe, &b->layer->moe,
                           b->workers, b->layer->norm2);
}

static void ffw_backward(backward_pass *b, const reef_network_update *update) {
    switch (b->plan->ffw) {
    case REEF_FFW_DENSE:
        dense_ffw_backward(b);
        break;
    case REEF_FFW_MOE:
        moe_backward(b);
        break;
    default:
        experts_backward(b, update);
    }
}

// ---- attention ----------------------------------------------------------------------------------

// From d_x (of the block's output) and d_norm (of norm2) to d_x of the block's input. d_mid keeps
// the gradient of x_mid, which w_out's gradient needs.
static void attend_window(void *context, size_t w) {
    const backward_pass *b = context;
    const reef_config *config = b->acts->config;
    size_t D = config->d_model, T = config->context, A = config->attention_heads, row = w * T;
    reef_activations *acts = b->acts;
    const reef_block *block = &b->network->generations[0]->weights.blocks[b->l];
    const reef_activations_layer *layer = b->layer;
    float *d_x = acts->d_x + row * D, *d_mid = acts->d_mid + row * D,
          *d_norm = acts->d_norm + row * D;
    float *d_attended = acts->d_attended + row * D, *d_qkv = acts->d_qkv + row * 3 * D;
    // Each window has gradients of its own, which are summed in a fixed order: the same bits for
    // any number of threads.
    float *grads = acts->norm_grads + w * 4 * D;
    memset(grads, 0, 4 * D * sizeof(*grads));
    // The order is that of the forward pass, reversed: norm2, output projection, attention,
    // projections, norm1.
    reef_layer_norm_backward(T, D, d_x, b->first ? grads : NULL, b->first ? grads + D : NULL,
                             d_norm, layer->x_mid + row * D, layer->norm2_mean + row,
                             layer->norm2_rstd + row, block->norm2_scale);
    // The residual branch takes the gradient as it is.
    memcpy(d_mid, d_x, T * D * sizeof(*d_mid));
    const reef_projection at = projection_of(b);
    reef_project_back(&at, REEF_W_OUT, d_attended, d_mid, false);
    reef_attention_backward(T, D, A, d_qkv, acts->d_probs + w * REEF_ATTENTION_ROWS * T, d_attended,
                            layer->qkv + row * 3 * D, layer->probs + w * A * T * T);
    reef_project_back(&at, REEF_W_QKV, d_norm, d_qkv, false);
    // Adds to d_x, which holds the residual branch's gradient.
    reef_layer_norm_backward(T, D, d_x, b->first ? grads + 2 * D : NULL,
                             b->first ? grads + 3 * D : NULL, d_norm, layer->x_in + row * D,
                             layer->norm1_mean + row, layer->norm1_rstd + row, block->norm1_scale);
}

static void attention_backward(backward_pass *b) {
    run_windows(b, attend_window);
    size_t D = b->acts->config->d_model;
    const reef_block *grads = &b->open->grads.blocks[b->l];
    if (b->first) {
        gather_sums(b, 4 * D);
        reduce_norm(b, grads->norm2_scale, grads->norm2_shift, 0);
        reduce_norm(b, grads->norm1_scale, grads->norm1_shift, 2 * D);
    }
    const reef_weight_product products[] = {
        {D, D, grads->w_out, b->layer->attended, b->acts->d_mid},
        {D, 3 * D, grads->w_qkv, b->layer->norm1, b->acts->d_qkv},
    };
    weight_gradients(b, 2, products);
}

// ---- embedding ----------------------------------------------------------------------------------

// Table `back` holds the token that many positions before one.
static void embed_table(void *context, size_t back) {
    const backward_pass *b = context;
    const reef_config *config = b->acts->config;
    size_t D = config->d_model, T = config->context;
    float *d_table = b->open->grads.embedding + back * REEF_VOCAB * D;
    for (size_t w = 0; back < T && w < b->batch->windows; w++) {
        reef_embedding_backward(T - back, D, d_table, b->acts->d_x + (w * T + back) * D,
                                b->batch->tokens + w * T);
    }
}

static void embed_positions(const backward_pass *b) {
    const reef_config *config = b->acts->config;
    size_t D = config->d_model, T = config->context;
    float *d_position = b->open->grads.position;
    for (size_t w = 0; w < b->batch->windows; w++)
        for (size_t t = 0; t < T; t++)
            reef_axpy(D, d_position + t * D, 1.0f, b->acts->d_x + (w * T + t) * D);
}

static void embedding_backward(backward_pass *b) {
    const reef_config *config = b->acts->config;
    gather_rows(b, b->acts->d_x, config->d_model);
    reef_thread_pool_run(b->workers, reef_embedding_tables(config), embed_table, b);
    embed_positions(b);
}

void reef_network_backward(reef_activations *acts,
                           reef_network *network,
                           reef_thread_pool *workers,
                           const reef_batch *batch,
                           const reef_network_update *update) {
    assert(network->generation_count > 0 && acts->training && batch->weight != NULL);
    backward_pass b = {
        .acts = acts,
        .network = network,
        .batch = batch,
        .workers = workers,
        .open = network->generations[network->generation_count - 1],
        .first = network->generation_count == 1,
        .rows = batch->windows * acts->config->context,
    };
    assert(b.open->open && batch->fires == network->generation_count - 1);
    // Forward read upwards: head, then each block from its end, then the embedding.
    head_backward(&b);
    for (b.l = network->config.layers; b.l-- > 0;) {
        b.plan = &acts->plans[b.l];
        b.layer = &acts->layers[b.l];
        // Experts of all generations and their routers add to d_norm, in that order.
        memset(acts->d_norm, 0, b.rows * acts->config->d_model * sizeof(*acts->d_norm));
        ffw_backward(&b, update);
        attention_backward(&b);
    }
    embedding_backward(&b);
}
