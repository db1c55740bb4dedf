// The one list of every tensor of a generation: its name, size and position in memory. Everything
// else (allocation, views, gradients, storage) walks what it leaves.
#include "generation_internal.h"

#include <stdio.h>

typedef struct layout {
    reef_generation *generation; // NULL while counting
    bool averages;               // where the generation is open: of all that train
    size_t tensor_count, value_count, trained_count;
} layout;

static float **view_at(reef_weights *weights, size_t offset) {
    return (float **)(void *)((char *)weights + offset);
}

// One tensor of `count` floats whose view is the float * at `offset` of reef_weights.
static void add_tensor_view(
    layout *out, size_t offset, size_t count, bool trained, const char *name) {
    if (out->generation != NULL) {
        reef_generation *generation = out->generation;
        reef_tensor *tensor = &generation->tensors[out->tensor_count];
        snprintf(tensor->name, sizeof(tensor->name), "%s", name);
        tensor->count = count;
        tensor->data = generation->values + out->value_count;
        *view_at(&generation->weights, offset) = tensor->data;
        if (generation->open && trained) {
            tensor->grad = generation->training + out->trained_count;
            tensor->adam_m = tensor->grad + generation->value_count;
            tensor->adam_v = tensor->adam_m + generation->value_count;
            if (out->averages) tensor->average = tensor->adam_v + generation->value_count;
            *view_at(&generation->grads, offset) = tensor->grad;
        }
    }
    out->tensor_count++;
    out->value_count += count;
    if (trained) out->trained_count += count;
}

static void add_block(
    layout *out, uint32_t layer, const char *part, size_t offset, size_t count, bool trained) {
    char name[REEF_NAME_BYTES_MAX + 1];
    snprintf(name, sizeof(name), "block%u.%s", layer, part);
    add_tensor_view(out, offset, count, trained, name);
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
    reef_router_shape shape = reef_generation_shape(config, side);
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

// The tensors of one adapter, at `offset` of reef_weights: NAME_down and NAME_up, or
// delta_NAME.
static void add_adapter(
    layout *out, uint32_t layer, size_t offset, const reef_adapter_shape *shape, const char *name) {
    char tensor[16]; // the longest is ffw_out_down
    size_t up = offset + offsetof(reef_adapter, up);
    snprintf(tensor, sizeof(tensor), shape->whole ? "delta_%s" : "%s_down", name);
    if (!shape->whole)
        add_block(out, layer, tensor, offset + offsetof(reef_adapter, down),
                  shape->in * shape->rank, true);
    if (!shape->whole) snprintf(tensor, sizeof(tensor), "%s_up", name);
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

static void lay_out(layout *out, const reef_config *config, const reef_generation_record *info) {
    size_t D = config->d_model, V = REEF_VOCAB;
    bool first = info->generation == 0;
    if (reef_config_is_layer(config)) { // nothing around it
        lay_out_router(out, config, 0, info->side, !info->sealed);
        return;
    }
    size_t tables = reef_embedding_tables(config);
    add_tensor_view(out, offsetof(reef_weights, embedding), tables * V * D, true,
                    first ? "embedding" : "delta_embedding");
    add_tensor_view(out, offsetof(reef_weights, head), D * V, true, first ? "head" : "delta_head");
    if (first || config->adapt_position)
        add_tensor_view(out, offsetof(reef_weights, position), (size_t)config->context * D, true,
                        first ? "position" : "delta_position");
    if (first) {
        add_tensor_view(out, offsetof(reef_weights, norm_scale), D, true, "norm_scale");
        add_tensor_view(out, offsetof(reef_weights, norm_shift), D, true, "norm_shift");
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

void reef_generation_count_tensors(reef_generation *generation, const reef_config *config) {
    layout count = {0};
    lay_out(&count, config, &generation->info);
    generation->tensor_count = count.tensor_count;
    generation->value_count = count.value_count;
}

void reef_generation_lay_out(reef_generation *generation, const reef_config *config) {
    lay_out(&(layout){.generation = generation, .averages = !reef_config_is_layer(config)}, config,
            &generation->info);
}
