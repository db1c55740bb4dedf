// Generations in memory: which tensors there are, in which shape, and how one is made, sealed, grown.
//
// lay_out() is the one list of every tensor; everything else (allocation, views, gradients, storage)
// walks it. It leaves arithmetic to forward.c and backward.c and bytes on disk to persist.c.
#include "model.h"

#include "gen_initial.h"
#include "huge.h"
#include "random.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(REEF_SIDE_MAX == REEF_GENERATION_SIDE_MAX, "router and store agree");

// The words are those that config_field.c lets through.
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
        .head_keys = strcmp(config->subkeys, "head") == 0,
        .score = score_of(config),
    };
}

static reef_expert_shape shape_of_kind(const reef_config *config, reef_expert_kind kind) {
    return (reef_expert_shape){
        .kind = kind,
        .P = (size_t)config->heads * config->topk,
        .D = config->d_model,
    };
}

reef_expert_shape reef_gen_expert_shape(const reef_config *config, uint32_t layer) {
    bool values = reef_layer_ffw(config, layer) == REEF_FFW_PKM;
    return shape_of_kind(config, values ? REEF_EXPERT_VALUE : expert_kind(config));
}

reef_expert_shape reef_gen_expert_shape_largest(const reef_config *config) {
    for (uint32_t l = 0; l < config->layers; l++)
        if (reef_layer_ffw(config, l) == REEF_FFW_PEER) return reef_gen_expert_shape(config, l);
    return shape_of_kind(config, REEF_EXPERT_VALUE);
}

reef_moe_shape reef_gen_moe_shape(const reef_config *config) {
    return (reef_moe_shape){
        .T = config->context,
        .D = config->d_model,
        .F = config->d_ffw,
        .E = config->moe_experts,
        .C = reef_moe_capacity(config),
    };
}

reef_dtype reef_gen_seal_dtype(const reef_config *config) {
    return strcmp(config->seal_dtype, "bf16") == 0 ? REEF_BF16 : REEF_F32;
}

const char *reef_rows_dtype_text(reef_dtype dtype) {
    return dtype == REEF_BF16 ? "bf16" : "f32";
}

// A whole matrix where it has no more values than the two of rank `adapters` that would correct it.
static reef_adapter_shape adapter_shape(const reef_config *config, size_t in, size_t out) {
    size_t rank = config->adapters;
    bool whole = config->adapt_whole && rank * (in + out) >= in * out;
    return (reef_adapter_shape){in, out, whole ? in : rank, whole};
}

reef_adapter_shape reef_adapter_shape_qkv(const reef_config *config) {
    return adapter_shape(config, config->d_model, 3 * (size_t)config->d_model);
}

reef_adapter_shape reef_adapter_shape_out(const reef_config *config) {
    return adapter_shape(config, config->d_model, config->d_model);
}

reef_adapter_shape reef_adapter_shape_ffw_in(const reef_config *config) {
    return adapter_shape(config, config->d_model, config->d_ffw);
}

reef_adapter_shape reef_adapter_shape_ffw_out(const reef_config *config) {
    return adapter_shape(config, config->d_ffw, config->d_model);
}

size_t reef_adapter_rank_max(const reef_config *config) {
    size_t qkv = reef_adapter_shape_qkv(config).rank, out = reef_adapter_shape_out(config).rank;
    size_t rank = config->adapters == 0 ? 0 : qkv > out ? qkv : out;
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_adapts_ffw(config, l)) continue;
        size_t in = reef_adapter_shape_ffw_in(config).rank;
        size_t up = reef_adapter_shape_ffw_out(config).rank;
        rank = rank > in ? rank : in;
        rank = rank > up ? rank : up;
    }
    return rank;
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
    reef_router_shape shape = reef_gen_shape(config, side);
    size_t keys = shape.side * reef_router_key_row(&shape);
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

static void lay_out_mixture(layout *out, const reef_config *config, uint32_t layer) {
    size_t D = config->d_model, F = config->d_ffw, E = config->moe_experts;
    add_block(out, layer, "w_moe_router", IN_BLOCK(layer, moe.w_router), D * E, true);
    add_block(out, layer, "w_moe_in", IN_BLOCK(layer, moe.w_in), E * D * F, true);
    add_block(out, layer, "w_moe_out", IN_BLOCK(layer, moe.w_out), E * F * D, true);
    add_block(out, layer, "moe_threshold", IN_BLOCK(layer, moe.threshold), E, false);
}

static void lay_out_backbone_block(layout *out, const reef_config *config, uint32_t layer) {
    size_t D = config->d_model, F = config->d_ffw;
    add_block(out, layer, "norm1_scale", IN_BLOCK(layer, norm1_scale), D, true);
    add_block(out, layer, "norm1_shift", IN_BLOCK(layer, norm1_shift), D, true);
    add_block(out, layer, "w_qkv", IN_BLOCK(layer, w_qkv), D * 3 * D, true);
    add_block(out, layer, "w_out", IN_BLOCK(layer, w_out), D * D, true);
    add_block(out, layer, "norm2_scale", IN_BLOCK(layer, norm2_scale), D, true);
    add_block(out, layer, "norm2_shift", IN_BLOCK(layer, norm2_shift), D, true);
    if (reef_layer_ffw(config, layer) == REEF_FFW_MOE) lay_out_mixture(out, config, layer);
    if (reef_layer_ffw(config, layer) != REEF_FFW_DENSE) return;
    add_block(out, layer, "w_ffw_in", IN_BLOCK(layer, w_ffw_in), D * F, true);
    add_block(out, layer, "w_ffw_out", IN_BLOCK(layer, w_ffw_out), F * D, true);
}

// The tensors of one adapter, at `place` in reef_weights: NAME_down and NAME_up, or delta_NAME.
static void add_adapter(
    layout *out, uint32_t layer, size_t place, const reef_adapter_shape *shape, const char *name) {
    char tensor[16]; // the longest is ffw_out_down
    size_t up = place + offsetof(reef_adapter, up);
    snprintf(tensor, sizeof tensor, shape->whole ? "delta_%s" : "%s_down", name);
    if (!shape->whole)
        add_block(out, layer, tensor, place + offsetof(reef_adapter, down), shape->in * shape->rank,
                  true);
    if (!shape->whole) snprintf(tensor, sizeof tensor, "%s_up", name);
    add_block(out, layer, tensor, up, shape->rank * shape->out, true);
}

#define ADAPTER(which, layer) (offsetof(reef_weights, which) + (layer) * sizeof(reef_adapter))

static void lay_out_adapters(layout *out, const reef_config *config, uint32_t layer) {
    reef_adapter_shape qkv = reef_adapter_shape_qkv(config), proj = reef_adapter_shape_out(config);
    reef_adapter_shape in = reef_adapter_shape_ffw_in(config),
                       up = reef_adapter_shape_ffw_out(config);
    add_adapter(out, layer, ADAPTER(adapters_qkv, layer), &qkv, "qkv");
    add_adapter(out, layer, ADAPTER(adapters_out, layer), &proj, "out");
    if (!reef_layer_adapts_ffw(config, layer)) return;
    add_adapter(out, layer, ADAPTER(adapters_ffw_in, layer), &in, "ffw_in");
    add_adapter(out, layer, ADAPTER(adapters_ffw_out, layer), &up, "ffw_out");
}

static void lay_out(layout *out, const reef_config *config, const reef_generation *info) {
    size_t D = config->d_model, V = config->vocab;
    bool first = info->generation == 0;
    if (reef_config_is_layer(config)) { // nothing around it
        lay_out_router(out, config, 0, info->side, !info->sealed);
        return;
    }
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
        if (reef_layer_retrieves(config, l))
            add_block(out, l, "delta_older",
                      offsetof(reef_weights, delta_older) + l * sizeof(float *), D, true);
    for (uint32_t l = 0; l < config->layers; l++)
        if (reef_layer_retrieves(config, l))
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
        if (!reef_layer_retrieves(config, l)) continue;
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

    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_expert_shape experts = reef_gen_expert_shape(config, l);
        status =
            allocate_peer(&gen->peers[l], gen, &experts, averages, config->recycle_after > 0, err);
        if (status != REEF_OK) goto cleanup;
    }
    if (gen->open) {
        status = allocate_folded(gen, config, err);
        if (status != REEF_OK) goto cleanup;
    }
    if (!reef_config_is_layer(config)) status = reef_gate_init(&gen->gate, err);
    if (status != REEF_OK) goto cleanup;
    gen->gate.token_bytes = (uint32_t)reef_token_bytes(config);
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

// ---- averages ------------------------------------------------------------------------------------

static void copy(float *out, const float *in, size_t count) {
    memcpy(out, in, count * sizeof *out);
}

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
        if (!reef_layer_retrieves(config, l)) continue;
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
        if (!reef_layer_retrieves(config, l)) continue;
        copy(sealed->weights.routers[l].w_query, open->folded[l].w_query, config->d_model * width);
        copy(sealed->weights.routers[l].query_bias, open->folded[l].query_bias, width);
        move_experts(&sealed->peers[l], &open->peers[l]);
    }
    move_gate(sealed, open);
    *out = sealed;
    return REEF_OK;
}

void reef_gen_gate_copy(reef_gen *to, const reef_gen *from) {
    to->gate_leak = from->gate_leak;
    to->gate_detect = from->gate_detect;
    if (from->gate.weights == NULL) return;
    float *weights = to->gate.weights;
    copy(weights, from->gate.weights, REEF_GATE_WEIGHTS);
    to->gate = from->gate;
    to->gate.weights = weights;
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
        if (!reef_layer_retrieves(config, l)) continue;
        reef_gen_draw_router(grown, config, l, open,
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
        reef_gen_draw_experts(peer, N, config, l, 0.0f, seed);
        memset(peer->dirty, 1, peer->expert_count);
    }
    reef_gen_average_reset(grown); // of new rows and sub-keys
    copy_row_averages(grown, open);
    copy_tensors(grown, open, true);
    reef_gen_gate_copy(grown, open);
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
