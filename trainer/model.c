// Generations in memory: which tensors there are, in which shape, and how one is made, sealed, grown.
//
// lay_out() is the one list of every tensor; everything else (allocation, views, gradients, storage)
// walks it. It leaves arithmetic to forward.c and backward.c and bytes on disk to persist.c.
#include "model.h"

#include "huge.h"
#include "random.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(REEF_SIDE_MAX == REEF_GENERATION_SIDE_MAX, "router and store agree");

// Streams of random numbers of one generation: layer l draws its own from l * STREAMS on.
enum {
    STREAM_W_DOWN,
    STREAM_W_UP,
    STREAM_KEYS_A,
    STREAM_KEYS_B,
    STREAM_QUERY,
    STREAM_DENSE,
    STREAMS = 16
};

// The words are those that config.c lets through.
static reef_router_score score_of(const reef_config *config) {
    if (strcmp(config->score, "sigmoid") == 0) return REEF_SCORE_SIGMOID;
    return strcmp(config->score, "relu") == 0 ? REEF_SCORE_RELU : REEF_SCORE_SOFTMAX;
}

static reef_expert_kind expert_kind(const reef_config *config) {
    if (strcmp(config->expert, "glu") == 0) return REEF_EXPERT_GLU;
    return strcmp(config->expert, "relu") == 0 ? REEF_EXPERT_RELU : REEF_EXPERT_GELU;
}

reef_router_shape reef_gen_shape(const reef_config *config, uint32_t side) {
    return (reef_router_shape){
        .d_model = config->d_model,
        .head_count = config->heads,
        .topk = config->topk,
        .d_key = config->d_key,
        .side = side,
        .batch_norm = config->batch_norm,
        .score = score_of(config),
    };
}

reef_expert_shape reef_gen_expert_shape(const reef_config *config) {
    return (reef_expert_shape){
        .kind = expert_kind(config),
        .P = (size_t)config->heads * config->topk,
        .D = config->d_model,
    };
}

reef_dtype reef_gen_seal_dtype(const reef_config *config) {
    return strcmp(config->seal_dtype, "bf16") == 0 ? REEF_BF16 : REEF_F32;
}

const char *reef_rows_dtype_text(reef_dtype dtype) {
    return dtype == REEF_BF16 ? "bf16" : "f32";
}

reef_adapter_shape reef_adapter_shape_qkv(const reef_config *config) {
    return (reef_adapter_shape){config->d_model, 3 * (size_t)config->d_model, config->adapters};
}

reef_adapter_shape reef_adapter_shape_out(const reef_config *config) {
    return (reef_adapter_shape){config->d_model, config->d_model, config->adapters};
}

reef_adapter_shape reef_adapter_shape_ffw_in(const reef_config *config) {
    return (reef_adapter_shape){config->d_model, config->d_ffw, config->adapters};
}

reef_adapter_shape reef_adapter_shape_ffw_out(const reef_config *config) {
    return (reef_adapter_shape){config->d_ffw, config->d_model, config->adapters};
}

// ---- the list of tensors -------------------------------------------------------------------------

typedef struct layout {
    reef_gen *gen; // NULL while counting
    bool averages; // where the generation is open: of all that train
    size_t tensor_count, value_count, trained_count;
} layout;

static float **view_at(reef_weights *weights, size_t offset) {
    return (float **)(void *)((char *)weights + offset);
}

// One tensor of `count` floats whose view is the float * at `offset` of reef_weights.
static void add(layout *out, size_t offset, size_t count, bool trained, const char *name) {
    if (out->gen != NULL) {
        reef_gen *gen = out->gen;
        reef_tensor *tensor = &gen->tensors[out->tensor_count];
        snprintf(tensor->name, sizeof tensor->name, "%s", name);
        tensor->count = count;
        tensor->data = gen->values + out->value_count;
        *view_at(&gen->weights, offset) = tensor->data;
        if (gen->open && trained) {
            tensor->grad = gen->training + out->trained_count;
            tensor->adam_m = tensor->grad + gen->value_count;
            tensor->adam_v = tensor->adam_m + gen->value_count;
            if (out->averages) tensor->average = tensor->adam_v + gen->value_count;
            *view_at(&gen->grads, offset) = tensor->grad;
        }
    }
    out->tensor_count++;
    out->value_count += count;
    if (trained) out->trained_count += count;
}

static void add_block(
    layout *out, uint32_t layer, const char *part, size_t offset, size_t count, bool trained) {
    char name[REEF_NAME_BYTES_MAX + 1];
    snprintf(name, sizeof name, "block%u.%s", layer, part);
    add(out, offset, count, trained, name);
}

#define IN_BLOCK(layer, field)                                                                     \
    (offsetof(reef_weights, blocks) + (layer) * sizeof(reef_block) + offsetof(reef_block, field))
#define IN_ROUTER(layer, field)                                                                    \
    (offsetof(reef_weights, routers) + (layer) * sizeof(reef_router_params) +                      \
     offsetof(reef_router_params, field))

static void lay_out_router(
    layout *out, const reef_config *config, uint32_t layer, uint32_t side, bool open) {
    size_t D = config->d_model;
    size_t width = (size_t)config->heads * config->d_key;
    size_t keys = (size_t)side * (config->d_key / 2);
    add_block(out, layer, "w_query", IN_ROUTER(layer, w_query), D * width, true);
    if (!open) {
        add_block(out, layer, "query_bias", IN_ROUTER(layer, query_bias), width, false);
    } else if (config->batch_norm) {
        add_block(out, layer, "bn_scale", IN_ROUTER(layer, bn_scale), width, true);
        add_block(out, layer, "bn_shift", IN_ROUTER(layer, bn_shift), width, true);
        add_block(out, layer, "bn_mean", IN_ROUTER(layer, bn_mean), width, false);
        add_block(out, layer, "bn_var", IN_ROUTER(layer, bn_var), width, false);
    }
    add_block(out, layer, "sub_keys_a", IN_ROUTER(layer, sub_keys_a), keys, true);
    add_block(out, layer, "sub_keys_b", IN_ROUTER(layer, sub_keys_b), keys, true);
}

static void lay_out_backbone_block(layout *out, const reef_config *config, uint32_t layer) {
    size_t D = config->d_model, F = config->d_ffw;
    add_block(out, layer, "norm1_scale", IN_BLOCK(layer, norm1_scale), D, true);
    add_block(out, layer, "norm1_shift", IN_BLOCK(layer, norm1_shift), D, true);
    add_block(out, layer, "w_qkv", IN_BLOCK(layer, w_qkv), D * 3 * D, true);
    add_block(out, layer, "w_out", IN_BLOCK(layer, w_out), D * D, true);
    add_block(out, layer, "norm2_scale", IN_BLOCK(layer, norm2_scale), D, true);
    add_block(out, layer, "norm2_shift", IN_BLOCK(layer, norm2_shift), D, true);
    if (reef_layer_is_peer(config, layer)) return;
    add_block(out, layer, "w_ffw_in", IN_BLOCK(layer, w_ffw_in), D * F, true);
    add_block(out, layer, "w_ffw_out", IN_BLOCK(layer, w_ffw_out), F * D, true);
}

#define IN_ADAPTER(layer, which, field)                                                            \
    (offsetof(reef_weights, which) + (layer) * sizeof(reef_adapter) + offsetof(reef_adapter, field))

static void lay_out_adapters(layout *out, const reef_config *config, uint32_t layer) {
    reef_adapter_shape qkv = reef_adapter_shape_qkv(config), proj = reef_adapter_shape_out(config);
    add_block(out, layer, "qkv_down", IN_ADAPTER(layer, adapters_qkv, down), qkv.in * qkv.rank,
              true);
    add_block(out, layer, "qkv_up", IN_ADAPTER(layer, adapters_qkv, up), qkv.rank * qkv.out, true);
    add_block(out, layer, "out_down", IN_ADAPTER(layer, adapters_out, down), proj.in * proj.rank,
              true);
    add_block(out, layer, "out_up", IN_ADAPTER(layer, adapters_out, up), proj.rank * proj.out,
              true);
    if (!reef_layer_adapts_ffw(config, layer)) return;
    size_t inner = (size_t)config->adapters * config->d_ffw,
           outer = (size_t)config->adapters * config->d_model;
    add_block(out, layer, "ffw_in_down", IN_ADAPTER(layer, adapters_ffw_in, down), outer, true);
    add_block(out, layer, "ffw_in_up", IN_ADAPTER(layer, adapters_ffw_in, up), inner, true);
    add_block(out, layer, "ffw_out_down", IN_ADAPTER(layer, adapters_ffw_out, down), inner, true);
    add_block(out, layer, "ffw_out_up", IN_ADAPTER(layer, adapters_ffw_out, up), outer, true);
}

static void lay_out(layout *out, const reef_config *config, const reef_generation *info) {
    size_t D = config->d_model, V = REEF_VOCAB;
    bool first = info->generation == 0;
    size_t tables = 1 + (size_t)config->previous_bytes;
    add(out, offsetof(reef_weights, embedding), tables * V * D, true,
        first ? "embedding" : "delta_embedding");
    add(out, offsetof(reef_weights, head), D * V, true, first ? "head" : "delta_head");
    if (first || config->adapt_position)
        add(out, offsetof(reef_weights, position), (size_t)config->context * D, true,
            first ? "position" : "delta_position");
    if (first) {
        add(out, offsetof(reef_weights, norm_scale), D, true, "norm_scale");
        add(out, offsetof(reef_weights, norm_shift), D, true, "norm_shift");
        for (uint32_t l = 0; l < config->layers; l++) lay_out_backbone_block(out, config, l);
    }
    for (uint32_t l = 0; !first && config->adapters > 0 && l < config->layers; l++)
        lay_out_adapters(out, config, l);
    for (uint32_t l = 0; !first && config->weigh_older && l < config->layers; l++)
        if (reef_layer_is_peer(config, l))
            add_block(out, l, "delta_older",
                      offsetof(reef_weights, delta_older) + l * sizeof(float *), D, true);
    for (uint32_t l = 0; l < config->layers; l++)
        if (reef_layer_is_peer(config, l))
            lay_out_router(out, config, l, info->side, !info->sealed);
}

// ---- allocation ----------------------------------------------------------------------------------

// Memory for all rows, as one block.
static bool allocate_rows(reef_peer *peer) {
    size_t values = peer->expert_count * peer->row_values;
    peer->memory = reef_huge_new(values, reef_rows_value_bytes(peer->rows.dtype));
    peer->experts = peer->rows.dtype == REEF_F32 ? peer->memory : NULL;
    peer->blocks = calloc(1, sizeof *peer->blocks);
    if (peer->memory == NULL || peer->blocks == NULL) return false;
    peer->block_count = 1;
    peer->blocks[0] = peer->memory;
    peer->rows = (reef_expert_rows){peer->rows.dtype, REEF_EXPERT_ONE_BLOCK, peer->blocks};
    return true;
}

static void release_rows(reef_peer *peer) {
    size_t values = peer->expert_count * peer->row_values;
    reef_huge_free(peer->memory, values, reef_rows_value_bytes(peer->rows.dtype));
    free(peer->blocks);
    free(peer->last_block);
    peer->memory = peer->last_block = NULL;
    peer->experts = NULL;
    peer->blocks = NULL;
    peer->block_count = 0;
    peer->rows.blocks = NULL;
}

reef_status reef_gen_hold_rows(reef_gen *gen, reef_error *err) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        reef_peer *peer = &gen->peers[l];
        if (peer->expert_count == 0 || peer->memory != NULL || allocate_rows(peer)) continue;
        return reef_fail(err, REEF_NO_MEMORY, "no memory for the rows of %zu experts",
                         peer->expert_count);
    }
    return REEF_OK;
}

void reef_gen_drop_rows(reef_gen *gen) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        if (gen->peers[l].expert_count > 0) release_rows(&gen->peers[l]);
}

static reef_status allocate_peer(reef_peer *peer,
                                 const reef_gen *gen,
                                 const reef_expert_shape *shape,
                                 bool averages,
                                 bool recycles,
                                 reef_error *err) {
    size_t N = (size_t)gen->info.side * gen->info.side, values = N * reef_expert_row_values(shape);
    reef_dtype dtype = gen->info.dtype;
    assert(dtype == REEF_F32 || (dtype == REEF_BF16 && !gen->open));
    peer->expert_count = N;
    peer->row_values = reef_expert_row_values(shape);
    peer->rows.dtype = dtype;
    bool ok = true;
    if (gen->open) {
        ok = allocate_rows(peer);
        peer->flags = calloc(N, 1);
        peer->dirty = calloc(N, 1);
        peer->usage = calloc(N, sizeof(reef_usage));
        peer->moments.adam_m = reef_huge_new(values, sizeof(float));
        peer->moments.adam_v = reef_huge_new(values, sizeof(float));
        if (recycles) peer->used_before = calloc(N, sizeof *peer->used_before);
        if (averages) peer->moments.average = reef_huge_new(values, sizeof(float));
        peer->moments.counts = calloc(N, sizeof(uint32_t));
        ok = ok && peer->flags && peer->dirty && peer->usage && peer->moments.adam_m &&
             peer->moments.adam_v && (peer->moments.average || !averages) && peer->moments.counts &&
             (peer->used_before || !recycles);
    }
    if (!ok)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for %zu experts of width %zu", N,
                         shape->D);
    return REEF_OK;
}

static reef_status allocate_folded(reef_gen *gen, const reef_config *config, reef_error *err) {
    size_t width = (size_t)config->heads * config->d_key;
    size_t each = (config->d_model + 1) * width;
    gen->folded_values = calloc(config->layers * each, sizeof(float));
    if (gen->folded_values == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for folded queries");
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_is_peer(config, l)) continue;
        reef_router_params *folded = &gen->folded[l];
        folded->w_query = gen->folded_values + l * each;
        folded->query_bias = folded->w_query + config->d_model * width;
        folded->sub_keys_a = gen->weights.routers[l].sub_keys_a;
        folded->sub_keys_b = gen->weights.routers[l].sub_keys_b;
    }
    return REEF_OK;
}

reef_status reef_gen_new(reef_gen **out,
                         const reef_config *config,
                         const reef_generation *info,
                         reef_error *err) {
    *out = NULL;
    reef_status status = REEF_NO_MEMORY;
    reef_gen *gen = calloc(1, sizeof *gen);
    if (gen == NULL) return reef_fail(err, status, "no memory for generation %u", info->generation);
    gen->info = *info;
    gen->open = !info->sealed;
    if (reef_generation_is_empty(info)) { // nothing but its number; its gate never fires
        *out = gen;
        return REEF_OK;
    }

    layout count = {0};
    lay_out(&count, config, info);
    gen->tensor_count = count.tensor_count;
    gen->value_count = count.value_count;
    gen->tensors = calloc(count.tensor_count, sizeof *gen->tensors);
    gen->values = calloc(count.value_count, sizeof *gen->values);
    bool averages = config->average > 0.0f;
    if (gen->open)
        gen->training = calloc((averages ? 4 : 3) * count.value_count, sizeof *gen->training);
    if (gen->tensors == NULL || gen->values == NULL || (gen->open && gen->training == NULL)) {
        status = reef_fail(err, REEF_NO_MEMORY, "no memory for %zu parameters", count.value_count);
        goto cleanup;
    }
    lay_out(&(layout){.gen = gen, .averages = averages}, config, info);

    reef_expert_shape experts = reef_gen_expert_shape(config);
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_is_peer(config, l)) continue;
        status =
            allocate_peer(&gen->peers[l], gen, &experts, averages, config->recycle_after > 0, err);
        if (status != REEF_OK) goto cleanup;
    }
    if (gen->open) {
        status = allocate_folded(gen, config, err);
        if (status != REEF_OK) goto cleanup;
    }
    status = reef_gate_init(&gen->gate, err);
    if (status != REEF_OK) goto cleanup;
    *out = gen;
    gen = NULL; // the caller owns it now

cleanup:
    reef_gen_free(gen);
    return status;
}

static void release_peer(reef_peer *peer) {
    size_t values = peer->expert_count * peer->row_values;
    release_rows(peer);
    free(peer->flags);
    free(peer->dirty);
    free(peer->usage);
    free(peer->used_before);
    reef_huge_free(peer->moments.adam_m, values, sizeof(float));
    reef_huge_free(peer->moments.adam_v, values, sizeof(float));
    reef_huge_free(peer->moments.average, values, sizeof(float));
    free(peer->moments.counts);
    *peer = (reef_peer){0};
}

void reef_gen_free(reef_gen *gen) {
    if (gen == NULL) return;
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) release_peer(&gen->peers[l]);
    reef_gate_release(&gen->gate);
    reef_merged_release(&gen->merged);
    free(gen->folded_values);
    free(gen->training);
    free(gen->values);
    free(gen->tensors);
    free(gen);
}

// ---- initial values ------------------------------------------------------------------------------

static void fill(float *out, size_t count, float value) {
    for (size_t i = 0; i < count; i++) out[i] = value;
}

static void copy(float *out, const float *in, size_t count) {
    memcpy(out, in, count * sizeof *out);
}

static void initialise_router(reef_gen *gen,
                              const reef_config *config,
                              uint32_t layer,
                              const reef_gen *before,
                              uint64_t seed) {
    size_t D = config->d_model;
    size_t width = (size_t)config->heads * config->d_key;
    size_t keys = (size_t)gen->info.side * (config->d_key / 2);
    uint64_t stream = (uint64_t)layer * STREAMS;
    reef_router_params *router = &gen->weights.routers[layer];
    float bound = 1.0f / sqrtf((float)config->d_key);
    reef_random_uniform(keys, router->sub_keys_a, bound, seed, stream + STREAM_KEYS_A);
    reef_random_uniform(keys, router->sub_keys_b, bound, seed, stream + STREAM_KEYS_B);
    const reef_router_params *old = before != NULL ? &before->weights.routers[layer] : NULL;
    if (old != NULL) {
        copy(router->w_query, old->w_query, D * width);
    } else {
        reef_random_normal(D * width, router->w_query, 1.0f / sqrtf((float)D), seed,
                           stream + STREAM_QUERY);
    }
    if (!config->batch_norm) return;
    if (old != NULL) {
        copy(router->bn_scale, old->bn_scale, width);
        copy(router->bn_shift, old->bn_shift, width);
        copy(router->bn_mean, old->bn_mean, width);
        copy(router->bn_var, old->bn_var, width);
    } else {
        fill(router->bn_scale, width, 1.0f);
        fill(router->bn_var, width, 1.0f);
    }
}

// The vectors of a row alternate in memory: each is drawn from its own streams so that growing the grid
// later continues the same sequence. w_gate is drawn like w_down: a silent w_up silences both.
static void initialise_experts(reef_peer *peer,
                               size_t from,
                               const reef_config *config,
                               uint32_t layer,
                               float up,
                               uint64_t seed) {
    size_t D = config->d_model;
    float down = 1.0f / sqrtf((float)D);
    uint64_t base = ((uint64_t)layer * STREAMS + STREAM_W_DOWN + 1) << 33;
    uint64_t base_gate = ((uint64_t)layer * STREAMS + STREAM_W_DOWN + 2) << 33;
    for (size_t n = from; n < peer->expert_count; n++) {
        float *row = peer->experts + n * peer->row_values;
        reef_random_normal(D, row, down, seed, base + 2 * n);
        if (up > 0.0f) reef_random_normal(D, row + D, up, seed, base + 2 * n + 1);
        if (peer->row_values > 2 * D) reef_random_normal(D, row + 2 * D, down, seed, base_gate + n);
    }
}

static void initialise_backbone(reef_gen *gen, const reef_config *config, uint64_t seed) {
    size_t D = config->d_model, F = config->d_ffw, L = config->layers;
    float by_width = 1.0f / sqrtf((float)D);
    // Output projections are scaled down by the number of residual additions (Radford et al. 2019).
    float residual = 1.0f / sqrtf(2.0f * (float)L);
    uint64_t stream = (uint64_t)REEF_LAYER_COUNT_MAX * STREAMS;
    reef_weights *weights = &gen->weights;
    reef_random_normal((1 + (size_t)config->previous_bytes) * REEF_VOCAB * D, weights->embedding,
                       0.1f, seed, stream++);
    reef_random_normal((size_t)config->context * D, weights->position, 0.02f, seed, stream++);
    reef_random_normal(D * REEF_VOCAB, weights->head, 0.5f * by_width, seed, stream++);
    fill(weights->norm_scale, D, 1.0f);
    for (uint32_t l = 0; l < L; l++) {
        reef_block *block = &weights->blocks[l];
        fill(block->norm1_scale, D, 1.0f);
        fill(block->norm2_scale, D, 1.0f);
        reef_random_normal(D * 3 * D, block->w_qkv, by_width, seed, stream++);
        reef_random_normal(D * D, block->w_out, by_width * residual, seed, stream++);
        if (reef_layer_is_peer(config, l)) continue;
        reef_random_normal(D * F, block->w_ffw_in, by_width, seed, stream++);
        reef_random_normal(F * D, block->w_ffw_out, residual / sqrtf((float)F), seed, stream++);
    }
}

// down N(0, 1/in), up zero.
static void initialise_adapters(reef_gen *gen, const reef_config *config, uint64_t seed) {
    size_t count = (size_t)config->d_model * config->adapters;
    float deviation = 1.0f / sqrtf((float)config->d_model);
    uint64_t stream = (uint64_t)(REEF_LAYER_COUNT_MAX + 8) * STREAMS;
    for (uint32_t l = 0; l < config->layers; l++) {
        reef_random_normal(count, gen->weights.adapters_qkv[l].down, deviation, seed, stream++);
        reef_random_normal(count, gen->weights.adapters_out[l].down, deviation, seed, stream++);
    }
    stream = (uint64_t)(REEF_LAYER_COUNT_MAX + 16) * STREAMS;
    for (uint32_t l = 0; l < config->layers; l++, stream += 2) {
        if (!reef_layer_adapts_ffw(config, l)) continue;
        reef_random_normal(count, gen->weights.adapters_ffw_in[l].down, deviation, seed, stream);
        reef_random_normal((size_t)config->d_ffw * config->adapters,
                           gen->weights.adapters_ffw_out[l].down,
                           1.0f / sqrtf((float)config->d_ffw), seed, stream + 1);
    }
}

void reef_gen_initialise(reef_gen *gen, const reef_config *config, const reef_gen *before) {
    uint64_t seed = reef_random_bits(config->seed, 1, gen->info.generation);
    bool first = gen->info.generation == 0;
    assert(gen->open && (first || before != NULL));
    if (first)
        initialise_backbone(gen, config, seed);
    else if (config->adapters > 0)
        initialise_adapters(gen, config, seed);
    // N(0, 1/(h k)) makes the sum over h heads and k experts unit scale; zero makes opening exact.
    float up = first ? 1.0f / sqrtf((float)config->heads * (float)config->topk) : 0.0f;
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_is_peer(config, l)) continue;
        initialise_router(gen, config, l, first ? NULL : before, seed);
        initialise_experts(&gen->peers[l], 0, config, l, up, seed);
        memset(gen->peers[l].dirty, 1, gen->peers[l].expert_count);
    }
    reef_gen_average_reset(gen);
}

// ---- averages ------------------------------------------------------------------------------------

static void exchange(float *a, float *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

// Over every array of weights that has an average, which `visit` gets second.
static void visit_averages(reef_gen *gen, void (*visit)(float *, float *, size_t)) {
    assert(gen->open);
    for (size_t i = 0; i < gen->tensor_count; i++) {
        reef_tensor *tensor = &gen->tensors[i];
        if (tensor->average != NULL) visit(tensor->data, tensor->average, tensor->count);
    }
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        reef_peer *peer = &gen->peers[l];
        if (peer->moments.average != NULL)
            visit(peer->experts, peer->moments.average, peer->expert_count * peer->row_values);
    }
}

static void begin_average(float *weights, float *average, size_t count) {
    copy(average, weights, count);
}

void reef_gen_average_reset(reef_gen *gen) {
    visit_averages(gen, begin_average);
}

void reef_gen_exchange(reef_gen *gen, const reef_config *config) {
    visit_averages(gen, exchange);
    reef_gen_fold(gen, config);
}

void reef_gen_average_adopt(reef_gen *gen, const reef_config *config) {
    reef_gen_exchange(gen, config);
    reef_gen_average_reset(gen);
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        if (gen->peers[l].moments.average != NULL)
            memset(gen->peers[l].dirty, 1, gen->peers[l].expert_count);
}

// ---- sealing and growing -------------------------------------------------------------------------

void reef_gen_fold(reef_gen *gen, const reef_config *config) {
    gen->merged.fresh = false;
    reef_router_shape shape = reef_gen_shape(config, gen->info.side);
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_is_peer(config, l)) continue;
        reef_router_fold(&shape, &gen->weights.routers[l], gen->folded[l].w_query,
                         gen->folded[l].query_bias);
    }
}

const reef_tensor *reef_gen_find(const reef_gen *gen, const char *name) {
    for (size_t i = 0; i < gen->tensor_count; i++)
        if (strcmp(gen->tensors[i].name, name) == 0) return &gen->tensors[i];
    return NULL;
}

// Copy every tensor that both have in the same size.
static void copy_tensors(reef_gen *to, const reef_gen *from, bool moments) {
    for (size_t i = 0; i < to->tensor_count; i++) {
        reef_tensor *tensor = &to->tensors[i];
        const reef_tensor *old = reef_gen_find(from, tensor->name);
        if (old == NULL) continue;
        size_t count =
            old->count < tensor->count ? old->count : tensor->count; // sub-keys may have grown
        copy(tensor->data, old->data, count);
        if (!moments || tensor->adam_m == NULL) continue;
        copy(tensor->adam_m, old->adam_m, count);
        copy(tensor->adam_v, old->adam_v, count);
        if (tensor->average != NULL) copy(tensor->average, old->average, count);
    }
}

static void move_gate(reef_gen *to, reef_gen *from) {
    reef_gate swap = to->gate;
    to->gate = from->gate;
    from->gate = swap;
    to->reference_median = from->reference_median;
    to->reference_spread = from->reference_spread;
    to->gate_leak = from->gate_leak;
    to->gate_detect = from->gate_detect;
}

// Everything of the experts but the optimiser's state, which stays behind to be freed. Rows of the same
// type change hands; others are rounded into the sealed generation's own, and all of them are dirty.
static void move_experts(reef_peer *to, reef_peer *from) {
    size_t values = from->expert_count * from->row_values;
    to->flags = from->flags;
    to->dirty = from->dirty;
    to->usage = from->usage;
    from->flags = from->dirty = NULL;
    from->usage = NULL;
    if (to->rows.dtype == REEF_BF16) {
        reef_bf16_round(values, to->memory, from->experts);
        memset(to->dirty, 1, to->expert_count);
        return;
    }
    to->memory = from->memory;
    to->experts = from->experts;
    to->blocks = from->blocks;
    to->block_count = from->block_count;
    to->rows = from->rows;
    from->memory = NULL;
    from->experts = NULL;
    from->blocks = NULL;
    from->block_count = 0;
}

reef_status reef_gen_seal(
    reef_gen **out, reef_gen *open, const reef_config *config, reef_dtype dtype, reef_error *err) {
    assert(open->open);
    reef_generation info = open->info;
    info.sealed = true;
    info.dtype = dtype;
    reef_gen *sealed = NULL;
    reef_status status = reef_gen_new(&sealed, config, &info, err);
    if (status == REEF_OK && dtype != REEF_F32) status = reef_gen_hold_rows(sealed, err);
    if (status != REEF_OK) {
        reef_gen_free(sealed);
        return status;
    }
    reef_gen_fold(open, config);
    copy_tensors(sealed, open, false);
    size_t width = (size_t)config->heads * config->d_key;
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_is_peer(config, l)) continue;
        copy(sealed->weights.routers[l].w_query, open->folded[l].w_query, config->d_model * width);
        copy(sealed->weights.routers[l].query_bias, open->folded[l].query_bias, width);
        move_experts(&sealed->peers[l], &open->peers[l]);
    }
    move_gate(sealed, open);
    *out = sealed;
    return REEF_OK;
}

static void copy_gate(reef_gate *to, const reef_gate *from) {
    copy(to->weights, from->weights, REEF_GATE_WEIGHTS);
    to->bias = from->bias;
    to->decay = from->decay;
    to->prior = from->prior;
    to->start = from->start;
    to->threshold = from->threshold;
    to->loss_weight = from->loss_weight;
    to->loss_reference = from->loss_reference;
}

static void copy_row_averages(reef_gen *to, const reef_gen *from) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_peer *old = &from->peers[l];
        if (old->moments.average == NULL) continue;
        copy(to->peers[l].moments.average, old->moments.average,
             old->expert_count * old->row_values);
    }
}

reef_status reef_gen_grow(reef_gen **out,
                          const reef_gen *open,
                          const reef_config *config,
                          uint32_t side,
                          reef_error *err) {
    *out = NULL;
    if (side <= open->info.side)
        return reef_fail(err, REEF_INVALID, "side %u is not larger than the open generation's %u",
                         side, open->info.side);
    reef_generation info = open->info;
    info.side = side;
    reef_gen *grown = NULL;
    reef_status status = reef_gen_new(&grown, config, &info, err);
    if (status != REEF_OK) return status;
    uint64_t seed = reef_random_bits(config->seed, 1, info.generation);
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_is_peer(config, l)) continue;
        initialise_router(grown, config, l, open,
                          seed); // fresh sub-keys; the old ones are copied below
        reef_peer *peer = &grown->peers[l];
        const reef_peer *old = &open->peers[l];
        size_t N = old->expert_count, row = old->row_values;
        copy(peer->experts, old->experts, N * row);
        copy(peer->moments.adam_m, old->moments.adam_m, N * row);
        copy(peer->moments.adam_v, old->moments.adam_v, N * row);
        memcpy(peer->moments.counts, old->moments.counts, N * sizeof *old->moments.counts);
        memcpy(peer->flags, old->flags, N);
        memcpy(peer->usage, old->usage, N * sizeof *old->usage);
        if (peer->used_before != NULL)
            memcpy(peer->used_before, old->used_before, N * sizeof *old->used_before);
        initialise_experts(peer, N, config, l, 0.0f, seed);
        memset(peer->dirty, 1, peer->expert_count);
    }
    reef_gen_average_reset(grown); // of new rows and sub-keys
    copy_row_averages(grown, open);
    copy_tensors(grown, open, true);
    copy_gate(&grown->gate, &open->gate);
    grown->gate_leak = open->gate_leak;
    grown->gate_detect = open->gate_detect;
    *out = grown;
    return REEF_OK;
}

// ---- the list of generations ---------------------------------------------------------------------

reef_status reef_net_reserve(reef_net *net, size_t count, reef_error *err) {
    if (count <= net->gen_capacity) return REEF_OK;
    reef_gen **gens = realloc(net->gens, count * sizeof *gens);
    if (gens == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for %zu generations", count);
    net->gens = gens;
    net->gen_capacity = count;
    return REEF_OK;
}

reef_status reef_net_append(reef_net *net, reef_gen *gen, reef_error *err) {
    reef_status status = reef_net_reserve(net, net->gen_count + 1, err);
    if (status == REEF_OK)
        net->gens[net->gen_count++] = gen;
    else
        reef_gen_free(gen);
    return status;
}

void reef_net_release(reef_net *net) {
    for (size_t g = 0; g < net->gen_count; g++) reef_gen_free(net->gens[g]);
    free(net->gens);
    *net = (reef_net){0};
}

uint64_t reef_net_parameter_count(const reef_net *net) {
    uint64_t count = 0;
    for (size_t g = 0; g < net->gen_count; g++) {
        count += net->gens[g]->value_count;
        for (uint32_t l = 0; l < net->config.layers; l++)
            count +=
                (uint64_t)net->gens[g]->peers[l].expert_count * net->gens[g]->peers[l].row_values;
    }
    return count;
}
