// One pass through the model, forwards: losses of a batch of windows, and the tape for backward.
//
// A window of T tokens is the piece of work of everything but the router, which cuts the same rows into
// the same pieces: shapes of all matrix products are fixed, so a window's result depends on nothing
// outside it (in training: on nothing but the batch statistics of the open generation's queries).
// Where a generation does not fire for a token, not one bit of the residual stream is touched.
#include "model.h"
#include "transformer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double reef_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// ---- memory --------------------------------------------------------------------------------------

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

size_t reef_pass_scratch_width(const reef_config *config) {
    size_t widest = max_size(max_size(config->vocab, 3 * (size_t)config->d_model), config->d_ffw);
    return widest + reef_adapter_rank_max(config);
}

static bool floats(float **out, size_t count) {
    *out = calloc(count > 0 ? count : 1, sizeof **out);
    return *out != NULL;
}

// Does a set of activations serve a mixture? In training set l is layer l's, in evaluation the one is all layers'.
static bool serves_mixture(const reef_config *config, size_t set, bool training) {
    if (training) return reef_layer_ffw(config, (uint32_t)set) == REEF_FFW_MOE;
    for (uint32_t l = 0; l < config->layers; l++)
        if (reef_layer_ffw(config, l) == REEF_FFW_MOE) return true;
    return false;
}

static bool allocate_layer(reef_pass_layer *layer,
                           const reef_config *config,
                           size_t windows,
                           bool training,
                           bool mixture) {
    size_t D = config->d_model, T = config->context, n = windows * T;
    bool ok = floats(&layer->x_in, n * D) && floats(&layer->norm1, n * D) &&
              floats(&layer->norm1_mean, n) && floats(&layer->norm1_rstd, n) &&
              floats(&layer->qkv, n * 3 * D) && floats(&layer->attended, n * D) &&
              floats(&layer->probs, windows * config->attention_heads * T * T) &&
              floats(&layer->x_mid, n * D) && floats(&layer->norm2, n * D) &&
              floats(&layer->norm2_mean, n) && floats(&layer->norm2_rstd, n) &&
              floats(&layer->ffw_in, n * config->d_ffw) &&
              floats(&layer->ffw_act, n * config->d_ffw);
    reef_moe_shape moe = reef_gen_moe_shape(config);
    ok = ok &&
         (!mixture || reef_moe_tape_init(&layer->moe, &moe, windows, training, NULL) == REEF_OK);
    return ok && (!training || (floats(&layer->retain_d_y, n * D) && floats(&layer->older, n * D)));
}

static bool allocate_backward(reef_pass *pass, const reef_config *config) {
    size_t D = config->d_model, T = config->context, n = pass->rows_max,
           low = n * reef_adapter_rank_max(config);
    return floats(&pass->d_x, n * D) && floats(&pass->d_mid, n * D) &&
           floats(&pass->d_norm, n * D) && floats(&pass->d_qkv, n * 3 * D) &&
           floats(&pass->d_attended, n * D) &&
           floats(&pass->d_probs, pass->windows_max * REEF_ATTENTION_ROWS * T) &&
           floats(&pass->d_y, n * D) && floats(&pass->norm_grads, pass->windows_max * 4 * D) &&
           floats(&pass->low_qkv, low) && floats(&pass->d_low_qkv, low) &&
           floats(&pass->low_out, low) && floats(&pass->d_low_out, low);
}

reef_status reef_pass_init(reef_pass *pass,
                           const reef_config *config,
                           size_t windows_max,
                           bool training,
                           reef_error *err) {
    size_t D = config->d_model, T = config->context;
    *pass = (reef_pass){
        .config = config,
        .training = training,
        .windows_max = windows_max,
        .rows_max = windows_max * T,
        .layer_sets = training ? config->layers : 1,
    };
    size_t n = pass->rows_max;
    bool ok = (pass->layers = calloc(pass->layer_sets, sizeof *pass->layers)) != NULL;
    for (size_t l = 0; ok && l < pass->layer_sets; l++)
        ok = allocate_layer(&pass->layers[l], config, windows_max, training,
                            serves_mixture(config, l, training));
    ok = ok && floats(&pass->x, n * D) && floats(&pass->norm, n * D) &&
         floats(&pass->norm_mean, n) && floats(&pass->norm_rstd, n) &&
         floats(&pass->logits, n * config->vocab) &&
         floats(&pass->window_scratch, n * reef_pass_scratch_width(config)) &&
         (pass->loss = calloc(n, sizeof *pass->loss)) != NULL &&
         (pass->answers = calloc(n, sizeof *pass->answers)) != NULL &&
         (pass->several = calloc(n, 1)) != NULL &&
         (pass->piece_active = calloc(windows_max, 1)) != NULL;
    ok = ok && (!training || allocate_backward(pass, config));
    if (ok) return REEF_OK;
    reef_pass_release(pass);
    return reef_fail(err, REEF_NO_MEMORY, "no memory for a pass over %zu windows of %zu tokens",
                     windows_max, T);
}

static void release_layer(reef_pass_layer *layer) {
    float *const all[] = {layer->x_in,    layer->norm1,      layer->norm1_mean, layer->norm1_rstd,
                          layer->qkv,     layer->probs,      layer->attended,   layer->x_mid,
                          layer->norm2,   layer->norm2_mean, layer->norm2_rstd, layer->ffw_in,
                          layer->ffw_act, layer->retain_d_y, layer->older};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    reef_moe_tape_release(&layer->moe);
}

static void release_peers(reef_pass_peer *peers, size_t count) {
    if (peers == NULL) return;
    for (size_t l = 0; l < count; l++) {
        reef_router_tape_release(&peers[l].tape);
        free(peers[l].hidden);
        free(peers[l].d_gate);
        free(peers[l].factors);
    }
    free(peers);
}

void reef_pass_release(reef_pass *pass) {
    for (size_t l = 0; pass->layers != NULL && l < pass->layer_sets; l++)
        release_layer(&pass->layers[l]);
    for (size_t g = 0; g < pass->gen_capacity; g++) release_peers(pass->peers[g], pass->layer_sets);
    float *const all[] = {
        pass->x,          pass->norm,    pass->norm_mean,  pass->norm_rstd,      pass->logits,
        pass->d_x,        pass->d_mid,   pass->d_norm,     pass->d_qkv,          pass->d_probs,
        pass->d_attended, pass->d_y,     pass->norm_grads, pass->window_scratch, pass->low_qkv,
        pass->d_low_qkv,  pass->low_out, pass->d_low_out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    reef_expert_pairs_release(&pass->pairs);
    free(pass->layers);
    free(pass->peers);
    free(pass->loss);
    free(pass->piece_active);
    free(pass->answers);
    free(pass->several);
    *pass = (reef_pass){0};
}

static reef_status allocate_peer(reef_pass_peer *peer,
                                 const reef_pass *pass,
                                 const reef_gen *gen,
                                 reef_expert_shape experts,
                                 reef_error *err) {
    const reef_config *config = pass->config;
    reef_router_shape shape = reef_gen_shape(config, gen->info.side);
    size_t pairs = pass->rows_max * experts.P;
    size_t hidden = pass->rows_max * reef_expert_hidden_values(&experts);
    reef_status status = reef_router_tape_init(&peer->tape, &shape, pass->rows_max, config->context,
                                               pass->training, err);
    if (status != REEF_OK) return status;
    bool ok = floats(&peer->hidden, hidden);
    if (pass->training) ok = ok && floats(&peer->d_gate, pairs);
    if (pass->training && gen->open)
        ok = ok && floats(&peer->factors, pairs * reef_expert_vectors(&experts));
    return ok ? REEF_OK
              : reef_fail(err, REEF_NO_MEMORY, "no memory for the routing of %zu pairs", pairs);
}

// Tapes of generation g. Made when it takes part for the first time, not per step: most generations
// never fire in a given stream.
static reef_status prepare_peers(reef_pass *pass, const reef_gen *gen, size_t g, reef_error *err) {
    if (g >= pass->gen_capacity) {
        reef_pass_peer **peers = realloc(pass->peers, (g + 1) * sizeof *peers);
        if (peers == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for generation %zu", g);
        pass->peers = peers;
        while (pass->gen_capacity <= g) pass->peers[pass->gen_capacity++] = NULL;
    }
    if (pass->peers[g] != NULL) return REEF_OK;
    reef_pass_peer *sets = calloc(pass->layer_sets, sizeof *sets);
    if (sets == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for generation %zu", g);
    reef_expert_shape largest = reef_gen_expert_shape_largest(pass->config);
    for (size_t l = 0; l < pass->layer_sets; l++) {
        // In evaluation the one set serves all layers.
        if (pass->training && !reef_layer_retrieves(pass->config, (uint32_t)l)) continue;
        reef_expert_shape experts =
            pass->training ? reef_gen_expert_shape(pass->config, (uint32_t)l) : largest;
        reef_status status = allocate_peer(&sets[l], pass, gen, experts, err);
        if (status == REEF_OK) continue;
        release_peers(sets, pass->layer_sets);
        return status;
    }
    pass->peers[g] = sets;
    if (!pass->training || !gen->open) return REEF_OK;
    size_t pairs = pass->rows_max * pass->config->heads * pass->config->topk;
    reef_expert_pairs_release(&pass->pairs);
    return reef_expert_pairs_init(&pass->pairs, pairs, (size_t)gen->info.side * gen->info.side,
                                  reef_expert_row_values(&largest), err);
}

void reef_pass_forget_generation(reef_pass *pass, size_t g) {
    if (g >= pass->gen_capacity) return;
    release_peers(pass->peers[g], pass->layer_sets);
    pass->peers[g] = NULL;
}

// ---- the pass ------------------------------------------------------------------------------------

typedef struct forward {
    reef_pass *pass;
    bool train; // REEF_PASS_TRAIN
    const reef_net *net;
    const reef_batch *batch;
    reef_pass_layer *layer;
    uint32_t l;
    size_t g; // generation of the experts' job
} forward;

const uint8_t *reef_batch_fire(const reef_batch *batch,
                               const reef_config *config,
                               size_t g,
                               size_t window) {
    return g == 0 ? NULL : batch->fire + g * batch->fire_stride + window * config->context;
}

// Does generation g fire for any, or for every, token of a window?
static bool fires_any(const uint8_t *fire, size_t T) {
    return fire == NULL || memchr(fire, 1, T) != NULL;
}

// The tables of a token itself and of those before it in its window: what attention would take many
// steps to learn to fetch (compare the hashed n-gram embeddings of Pagnoni et al. 2024).
void reef_embed_token(
    const reef_config *config, float *x, const float *tables, const uint8_t *tokens, size_t t) {
    size_t D = config->d_model, V = config->vocab, each = reef_token_bytes(config);
    for (size_t back = 0; back <= config->previous_bytes && back <= t; back++)
        reef_axpy(D, x + t * D, 1.0f,
                  tables + (back * V + reef_token_at(tokens, each, t - back)) * D);
}

// Which generation alone answers each token of the window; in training there are no merged matrices.
static void answer_window(const forward *f, size_t w) {
    const reef_config *config = f->pass->config;
    size_t T = config->context;
    uint32_t *answers = f->pass->answers + w * T;
    memset(answers, 0, T * sizeof *answers);
    for (size_t g = 1; g < f->net->gen_count; g++) {
        const uint8_t *fire = reef_batch_fire(f->batch, config, g, w);
        for (size_t t = 0; t < T; t++)
            if (fire[t]) answers[t] = answers[t] || f->train ? REEF_ANSWER_SEVERAL : (uint32_t)g;
    }
}

// x = embeddings + position, plus the deltas of the generations that fire.
static void embed_window(void *context, size_t w) {
    const forward *f = context;
    answer_window(f, w);
    const reef_config *config = f->pass->config;
    size_t D = config->d_model, T = config->context;
    const reef_weights *base = &f->net->gens[0]->weights;
    const uint8_t *tokens = f->batch->tokens + w * T * reef_token_bytes(config);
    float *x = f->pass->x + w * T * D;
    memcpy(x, base->position, T * D * sizeof *x);
    for (size_t t = 0; t < T; t++) reef_embed_token(config, x, base->embedding, tokens, t);
    for (size_t g = 1; g < f->net->gen_count; g++) {
        const uint8_t *fire = reef_batch_fire(f->batch, config, g, w);
        const reef_weights *delta = &f->net->gens[g]->weights;
        for (size_t t = 0; t < T; t++) {
            if (!fire[t]) continue;
            if (delta->position != NULL) reef_axpy(D, x + t * D, 1.0f, delta->position + t * D);
            reef_embed_token(config, x, delta->embedding, tokens, t);
        }
    }
}

// One matrix product of the backbone: y = x W, or y += x W, with the corrections of what fires.
typedef struct product {
    reef_adapter_shape shape;
    const float *w;  // the backbone's
    size_t merged;   // where in reef_merged the matrix (float *) is
    size_t adapters; // where in reef_weights the adapter is; 0: the correction is no adapter
    bool corrected, add;
} product;

static const float *merged_matrix(const forward *f, const product *of, uint32_t answer) {
    if (!of->corrected || answer == 0 || answer == REEF_ANSWER_SEVERAL) return of->w;
    const char *merged = (const char *)&f->net->gens[answer]->merged;
    return *(float *const *)(const void *)(merged + of->merged);
}

static void multiply(
    const forward *f, const product *of, uint32_t answer, float *y, const float *x) {
    size_t T = f->pass->config->context, in = of->shape.in, out = of->shape.out;
    reef_gemm(false, false, T, out, in, 1.0f, x, in, merged_matrix(f, of, answer), out,
              of->add ? 1.0f : 0.0f, y, out);
}

static bool is_uniform(const uint32_t *answers, size_t T) {
    for (size_t t = 1; t < T; t++)
        if (answers[t] != answers[0]) return false;
    return true;
}

// Where generation g fires among several; false when nowhere in the window.
static bool fires_among_several(const forward *f, size_t g, size_t w, uint8_t *several) {
    const reef_config *config = f->pass->config;
    size_t T = config->context, count = 0;
    const uint8_t *fire = reef_batch_fire(f->batch, config, g, w);
    const uint32_t *answers = f->pass->answers + w * T;
    for (size_t t = 0; t < T; t++)
        count += several[t] = fire[t] && answers[t] == REEF_ANSWER_SEVERAL;
    return count > 0;
}

// Tokens of one window may be answered by different generations: each product runs over the whole window,
// so that its shape is fixed, and the token's own rows are taken of it.
static void multiply_mixed(
    const forward *f, const product *of, size_t w, float *y, const float *x) {
    size_t T = f->pass->config->context, out = of->shape.out;
    const uint32_t *answers = f->pass->answers + w * T;
    float *rows = f->pass->window_scratch + w * T * reef_pass_scratch_width(f->pass->config);
    for (size_t t = 0; t < T; t++) {
        size_t before = 0;
        while (before < t && answers[before] != answers[t]) before++;
        if (before < t) continue; // done with its first token
        if (of->add) memcpy(rows, y, T * out * sizeof *rows);
        multiply(f, of, answers[t], rows, x);
        for (size_t u = t; u < T; u++)
            if (answers[u] == answers[t]) memcpy(y + u * out, rows + u * out, out * sizeof *rows);
    }
}

static void multiply_window(
    const forward *f, const product *of, size_t w, float *y, const float *x) {
    const reef_config *config = f->pass->config;
    size_t T = config->context;
    const uint32_t *answers = f->pass->answers + w * T;
    if (!of->corrected || is_uniform(answers, T))
        multiply(f, of, answers[0], y, x);
    else
        multiply_mixed(f, of, w, y, x);
    uint8_t *several = f->pass->several + w * T;
    float *scratch = f->pass->window_scratch + w * T * reef_pass_scratch_width(config);
    for (size_t g = 1; of->corrected && of->adapters > 0 && g < f->net->gen_count; g++) {
        if (!fires_among_several(f, g, w, several)) continue;
        const char *layers = (const char *)&f->net->gens[g]->weights + of->adapters;
        reef_adapter_forward(&of->shape, T, y, x, (const reef_adapter *)(const void *)layers,
                             several, scratch);
    }
}

#define IN_MERGED(matrix, layer) (offsetof(reef_merged, matrix) + (layer) * sizeof(float *))
#define IN_WEIGHTS(adapters, layer)                                                                \
    (offsetof(reef_weights, adapters) + (layer) * sizeof(reef_adapter))

// Everything of a block before its FFW: x_mid = x + attention(norm1(x)), norm2 = norm(x_mid).
static void attend_window(void *context, size_t w) {
    const forward *f = context;
    const reef_config *config = f->pass->config;
    size_t D = config->d_model, T = config->context, A = config->attention_heads, row = w * T;
    const reef_block *block = &f->net->gens[0]->weights.blocks[f->l];
    reef_pass_layer *layer = f->layer;
    float *x_in = layer->x_in + row * D;
    float *x_mid = layer->x_mid + row * D;
    float *norm1 = layer->norm1 + row * D;
    memcpy(x_in, f->pass->x + row * D, T * D * sizeof *x_in);
    reef_layer_norm_forward(T, D, norm1, layer->norm1_mean + row, layer->norm1_rstd + row, x_in,
                            block->norm1_scale, block->norm1_shift);
    float *qkv = layer->qkv + row * 3 * D;
    product to_qkv = {
        .shape = reef_adapter_shape_qkv(config),
        .w = block->w_qkv,
        .merged = IN_MERGED(w_qkv, f->l),
        .adapters = IN_WEIGHTS(adapters_qkv, f->l),
        .corrected = config->adapters > 0,
    };
    multiply_window(f, &to_qkv, w, qkv, norm1);
    float *attended = layer->attended + row * D;
    reef_attention_forward(T, D, A, attended, layer->probs + w * A * T * T, qkv);
    memcpy(x_mid, x_in, T * D * sizeof *x_mid);
    product to_out = {
        .shape = reef_adapter_shape_out(config),
        .w = block->w_out,
        .merged = IN_MERGED(w_out, f->l),
        .adapters = IN_WEIGHTS(adapters_out, f->l),
        .corrected = config->adapters > 0,
        .add = true,
    };
    multiply_window(f, &to_out, w, x_mid, attended);
    reef_layer_norm_forward(T, D, layer->norm2 + row * D, layer->norm2_mean + row,
                            layer->norm2_rstd + row, x_mid, block->norm2_scale, block->norm2_shift);
    memcpy(f->pass->x + row * D, x_mid, T * D * sizeof *x_mid); // the FFW adds to it
}

static void dense_ffw_window(void *context, size_t w) {
    const forward *f = context;
    const reef_config *config = f->pass->config;
    size_t D = config->d_model, F = config->d_ffw, T = config->context, row = w * T;
    const reef_block *block = &f->net->gens[0]->weights.blocks[f->l];
    float *in = f->layer->ffw_in + row * F, *act = f->layer->ffw_act + row * F;
    bool corrected = reef_layer_adapts_ffw(config, f->l);
    product into = {
        .shape = reef_adapter_shape_ffw_in(config),
        .w = block->w_ffw_in,
        .merged = IN_MERGED(w_ffw_in, f->l),
        .adapters = IN_WEIGHTS(adapters_ffw_in, f->l),
        .corrected = corrected,
    };
    multiply_window(f, &into, w, in, f->layer->norm2 + row * D);
    reef_gelu(T * F, act, in);
    product out_of = {
        .shape = reef_adapter_shape_ffw_out(config),
        .w = block->w_ffw_out,
        .merged = IN_MERGED(w_ffw_out, f->l),
        .adapters = IN_WEIGHTS(adapters_ffw_out, f->l),
        .corrected = corrected,
        .add = true,
    };
    multiply_window(f, &out_of, w, f->pass->x + row * D, act);
}

// Experts choose among the tokens of a window where they train. Else thresholds decide, as in evaluation: the
// mixtures of a sealed generation are as they are.
static bool mixtures_train(const forward *f) {
    return f->train && f->net->gens[0]->open && !f->net->gens[0]->queries_frozen;
}

static void moe_window(void *context, size_t w) {
    const forward *f = context;
    reef_moe_shape shape = reef_gen_moe_shape(f->pass->config);
    size_t at = w * shape.T * shape.D;
    reef_moe_forward(&shape, &f->net->gens[0]->weights.blocks[f->l].moe, &f->layer->moe, w,
                     f->pass->x + at, f->layer->norm2 + at);
}

// x += delta * y_old where the generation fires: y_old is what all older ones together have added to x_mid.
// A delta of zero changes no bit, so neither does opening a generation.
static void weigh_older(const forward *f, size_t w) {
    const float *delta = f->net->gens[f->g]->weights.delta_older[f->l];
    if (delta == NULL) return;
    const reef_config *config = f->pass->config;
    size_t D = config->d_model, T = config->context, at = w * T * D;
    const uint8_t *fire = reef_batch_fire(f->batch, config, f->g, w);
    bool keeps = f->train && f->net->gens[f->g]->open;
    for (size_t t = 0; t < T; t++, at += D) {
        if (!fire[t]) continue;
        float *x = f->pass->x + at;
        const float *x_mid = f->layer->x_mid + at;
        for (size_t d = 0; d < D; d++) {
            float old = x[d] - x_mid[d];
            if (keeps) f->layer->older[at + d] = old;
            x[d] += delta[d] * old;
        }
    }
}

static void experts_window(void *context, size_t w) {
    const forward *f = context;
    const reef_config *config = f->pass->config;
    if (!f->pass->piece_active[w]) return;
    if (f->g > 0) weigh_older(f, w);
    reef_expert_shape shape = reef_gen_expert_shape(config, f->l);
    size_t D = shape.D, P = shape.P, T = config->context, row = w * T;
    reef_pass_peer *peer = &f->pass->peers[f->g][f->layer - f->pass->layers];
    reef_experts_forward(
        &shape, T, f->pass->x + row * D, peer->hidden + row * reef_expert_hidden_values(&shape),
        f->layer->norm2 + row * D, peer->tape.indices + row * P, peer->tape.gate + row * P,
        &f->net->gens[f->g]->peers[f->l].rows, reef_batch_fire(f->batch, config, f->g, w));
}

float reef_retain_weight(const reef_config *config, const uint8_t *fire) {
    size_t fired = 0;
    for (size_t t = 0; t < config->context; t++) fired += fire[t];
    // One part each for the layers, the embedding and the head.
    return 2.0f * config->retain_weight /
           ((float)(config->layers + 2) * (float)(fired ? fired : 1));
}

// The retain term of one layer: retain_weight * |y_g|^2 / |y_old|^2, a share of it, averaged over
// the fired tokens, on windows of old data; y_old counts as a constant. `before` is x without y_g.
static void retain_window(const forward *f, size_t w, const float *before) {
    const reef_config *config = f->pass->config;
    size_t D = config->d_model, T = config->context, row = w * T;
    const uint8_t *fire = reef_batch_fire(f->batch, config, f->g, w);
    float weight = reef_retain_weight(config, fire);
    for (size_t t = 0; t < T; t++) {
        const float *x = f->pass->x + (row + t) * D, *base = before + t * D;
        const float *x_mid = f->layer->x_mid + (row + t) * D;
        float *d_y = f->layer->retain_d_y + (row + t) * D;
        float old = REEF_RETAIN_FLOOR;
        for (size_t d = 0; d < D; d++) old += (base[d] - x_mid[d]) * (base[d] - x_mid[d]);
        for (size_t d = 0; d < D; d++) d_y[d] = fire[t] ? weight * (x[d] - base[d]) / old : 0.0f;
    }
}

static bool is_retain_window(const reef_batch *batch, size_t w) {
    return w >= batch->windows - batch->retain_windows;
}

static void experts_open_window(void *context, size_t w) {
    const forward *f = context;
    if (!is_retain_window(f->batch, w)) {
        experts_window(context, w);
        return;
    }
    const reef_config *config = f->pass->config;
    size_t count = (size_t)config->context * config->d_model;
    float *before = f->pass->window_scratch + w * config->context * reef_pass_scratch_width(config);
    memcpy(before, f->pass->x + w * count, count * sizeof *before);
    experts_window(context, w);
    retain_window(f, w, before);
}

// Which windows a generation fires in at all; false when in none.
bool reef_pass_activate(reef_pass *pass, const reef_batch *batch, size_t g) {
    bool any = false;
    for (size_t w = 0; w < batch->windows; w++) {
        pass->piece_active[w] =
            fires_any(reef_batch_fire(batch, pass->config, g, w), pass->config->context);
        any = any || pass->piece_active[w];
    }
    return any;
}

void reef_pass_run_experts(reef_pass *pass,
                           const reef_net *net,
                           reef_workers *workers,
                           const reef_batch *batch,
                           size_t g,
                           uint32_t l,
                           void (*work)(void *context, size_t window),
                           void *context) {
    const reef_peer *peer = &net->gens[g]->peers[l];
    const reef_expert_shape shape = reef_gen_expert_shape(pass->config, l);
    bool in_place = pass->pager != NULL && peer->memory == NULL;
    const reef_pager_request request = {
        .rows = &peer->rows,
        .row_bytes = peer->row_values * reef_rows_value_bytes(peer->rows.dtype),
        .tokens = batch->windows * pass->config->context,
        .P = shape.P,
        .indices = pass->peers[g][pass->layer_sets == 1 ? 0 : l].tape.indices,
        .active = reef_batch_fire(batch, pass->config, g, 0),
    };
    if (in_place) reef_pager_start(pass->pager, &request);
    reef_workers_run(workers, batch->windows, work, context);
    if (in_place) reef_pager_finish(pass->pager);
}

static reef_status peer_layer(forward *f,
                              reef_workers *workers,
                              reef_pass_mode mode,
                              reef_error *err) {
    reef_pass *pass = f->pass;
    for (size_t g = 0; g < f->net->gen_count; g++) {
        const reef_gen *gen = f->net->gens[g];
        if (!reef_pass_activate(pass, f->batch, g)) continue;
        reef_status status = prepare_peers(pass, gen, g, err);
        if (status != REEF_OK) return status;
        bool train = gen->open && mode == REEF_PASS_TRAIN && !gen->queries_frozen;
        reef_router_shape shape = reef_gen_shape(pass->config, gen->info.side);
        const reef_router_params *router =
            gen->open && !train ? &gen->folded[f->l] : &gen->weights.routers[f->l];
        f->g = g;
        double start = reef_seconds();
        // Batch statistics want every row; a window of old data in which the gate is silent is few.
        if (train) memset(pass->piece_active, 1, f->batch->windows);
        status = reef_router_forward(&shape, router, train ? REEF_ROUTER_TRAIN : REEF_ROUTER_FOLDED,
                                     workers, f->batch->windows * pass->config->context,
                                     f->layer->norm2, pass->piece_active,
                                     &pass->peers[g][f->layer - pass->layers].tape, err);
        if (status != REEF_OK) return status;
        double routed = reef_seconds();
        bool retain = train && g > 0;
        reef_pass_run_experts(pass, f->net, workers, f->batch, g, f->l,
                              retain ? experts_open_window : experts_window, f);
        pass->seconds_router += routed - start;
        pass->seconds_experts += reef_seconds() - routed;
        if (pass->on_experts != NULL) pass->on_experts(pass->on_experts_context, g, f->l);
    }
    return REEF_OK;
}

static reef_status ffw(forward *f, reef_workers *workers, reef_pass_mode mode, reef_error *err) {
    size_t windows = f->batch->windows;
    switch (reef_layer_ffw(&f->net->config, f->l)) {
    case REEF_FFW_DENSE:
        reef_workers_run(workers, windows, dense_ffw_window, f);
        return REEF_OK;
    case REEF_FFW_MOE:
        reef_moe_begin(&f->layer->moe, windows, mixtures_train(f));
        reef_workers_run(workers, windows, moe_window, f);
        return REEF_OK;
    default:
        return peer_layer(f, workers, mode, err);
    }
}

// Final norm, logits with the heads' deltas, loss, and with weights the gradient of the logits.
static void head_window(void *context, size_t w) {
    const forward *f = context;
    const reef_config *config = f->pass->config;
    size_t D = config->d_model, T = config->context, V = config->vocab, row = w * T;
    reef_pass *pass = f->pass;
    const reef_weights *base = &f->net->gens[0]->weights;
    float *norm = pass->norm + row * D, *logits = pass->logits + row * V;
    reef_layer_norm_forward(T, D, norm, pass->norm_mean + row, pass->norm_rstd + row,
                            pass->x + row * D, base->norm_scale, base->norm_shift);
    product to_logits = {.shape = {.in = D, .out = V},
                         .w = base->head,
                         .merged = offsetof(reef_merged, head),
                         .corrected = true};
    multiply_window(f, &to_logits, w, logits, norm);
    float *delta = pass->window_scratch + row * reef_pass_scratch_width(config);
    uint8_t *several = pass->several + row;
    for (size_t g = 1; g < f->net->gen_count; g++) {
        if (!fires_among_several(f, g, w, several)) continue;
        reef_gemm(false, false, T, V, D, 1.0f, norm, D, f->net->gens[g]->weights.head, V, 0.0f,
                  delta, V);
        for (size_t t = 0; t < T; t++)
            if (several[t]) reef_axpy(V, logits + t * V, 1.0f, delta + t * V);
    }
    if (f->batch->targets == NULL) return;
    const float *weight = f->batch->weight == NULL ? NULL : f->batch->weight + row;
    size_t each = reef_token_bytes(config);
    reef_cross_entropy(T, V, pass->loss + row, logits, f->batch->targets + row * each, each, weight,
                       weight != NULL);
}

// Corrections of the generations that fire in this evaluation, added up with the backbone.
static reef_status merge_fired(const forward *f, reef_error *err) {
    const reef_net *net = f->net;
    for (size_t g = 1; g < net->gen_count; g++) {
        if (!reef_pass_activate(f->pass, f->batch, g)) continue;
        reef_status status = reef_merged_make(net->gens[g], net->gens[0], &net->config, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

reef_status reef_pass_forward(reef_pass *pass,
                              const reef_net *net,
                              reef_workers *workers,
                              const reef_batch *batch,
                              reef_pass_mode mode,
                              reef_error *err) {
    assert(batch->windows <= pass->windows_max);
    assert(mode == REEF_PASS_EVALUATE || pass->training);
    forward f = {.pass = pass, .train = mode == REEF_PASS_TRAIN, .net = net, .batch = batch};
    reef_status merged = f.train ? REEF_OK : merge_fired(&f, err);
    if (merged != REEF_OK) return merged;
    reef_workers_run(workers, batch->windows, embed_window, &f);
    for (uint32_t l = 0; l < net->config.layers; l++) {
        f.l = l;
        f.layer = &pass->layers[pass->layer_sets == 1 ? 0 : l];
        reef_workers_run(workers, batch->windows, attend_window, &f);
        reef_status status = ffw(&f, workers, mode, err);
        if (status != REEF_OK) return status;
    }
    reef_workers_run(workers, batch->windows, head_window, &f);
    return REEF_OK;
}
