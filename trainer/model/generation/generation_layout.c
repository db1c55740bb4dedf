// The one list of every tensor of a generation: its name, size and position in memory. Everything
// else (allocation, views, gradients, storage) walks what it leaves.
#include "generation_internal.h"

#include <stdio.h>

typedef struct layout {
    reef_generation *generation;
    bool counting; // its memory is not there yet
    bool averages; // where the generation is open: of all that train
    size_t tensor_count, value_count, trained_count;
} layout;

// One tensor of `count` floats, with its view `data`, and where it is trained that of its gradient.
static void add_tensor(layout *out, const char *name, size_t count, float **data, float **grad) {
    reef_generation *generation = out->generation;
    if (!out->counting) {
        reef_tensor *tensor = &generation->tensors[out->tensor_count];
        snprintf(tensor->name, sizeof(tensor->name), "%s", name);
        tensor->count = count;
        *data = tensor->data = generation->values + out->value_count;
        if (generation->open && grad != NULL) {
            *grad = tensor->grad = generation->training + out->trained_count;
            tensor->adam_m = tensor->grad + generation->value_count;
            tensor->adam_v = tensor->adam_m + generation->value_count;
            if (out->averages) tensor->average = tensor->adam_v + generation->value_count;
        }
    }
    out->tensor_count++;
    out->value_count += count;
    if (grad != NULL) out->trained_count += count;
}

static void add_block(
    layout *out, uint32_t layer, const char *part, size_t count, float **data, float **grad) {
    char name[REEF_NAME_BYTES_MAX + 1];
    snprintf(name, sizeof(name), "block%u.%s", layer, part);
    add_tensor(out, name, count, data, grad);
}

static void lay_out_router(layout *out, const reef_config *config, uint32_t l) {
    const reef_generation *generation = out->generation;
    size_t D = config->d_model;
    size_t width = (size_t)config->heads * config->d_key;
    reef_router_shape shape = reef_generation_shape(config, generation->info.side);
    size_t keys = shape.side * reef_router_key_row(&shape);
    reef_router_params *w = &out->generation->weights.routers[l];
    reef_router_params *d = &out->generation->grads.routers[l];
    add_block(out, l, "w_query", D * width, &w->w_query, &d->w_query);
    if (!generation->open) {
        add_block(out, l, "query_bias", width, &w->query_bias, NULL);
    } else if (config->batch_norm) {
        add_block(out, l, "bn_scale", width, &w->bn_scale, &d->bn_scale);
        add_block(out, l, "bn_shift", width, &w->bn_shift, &d->bn_shift);
        add_block(out, l, "bn_mean", width, &w->bn_mean, NULL);
        add_block(out, l, "bn_var", width, &w->bn_var, NULL);
    }
    add_block(out, l, "sub_keys_a", keys, &w->sub_keys_a, &d->sub_keys_a);
    add_block(out, l, "sub_keys_b", keys, &w->sub_keys_b, &d->sub_keys_b);
}

static void lay_out_mixture(layout *out, const reef_config *config, uint32_t l) {
    size_t D = config->d_model, F = config->d_ffw, E = config->moe_experts;
    reef_moe_params *w = &out->generation->weights.blocks[l].moe;
    reef_moe_params *d = &out->generation->grads.blocks[l].moe;
    add_block(out, l, "w_moe_router", D * E, &w->w_router, &d->w_router);
    add_block(out, l, "w_moe_in", E * D * F, &w->w_in, &d->w_in);
    add_block(out, l, "w_moe_out", E * F * D, &w->w_out, &d->w_out);
    add_block(out, l, "moe_threshold", E, &w->threshold, NULL);
}

static void lay_out_backbone_block(layout *out, const reef_config *config, uint32_t l) {
    size_t D = config->d_model, F = config->d_ffw;
    reef_block *w = &out->generation->weights.blocks[l], *d = &out->generation->grads.blocks[l];
    add_block(out, l, "norm1_scale", D, &w->norm1_scale, &d->norm1_scale);
    add_block(out, l, "norm1_shift", D, &w->norm1_shift, &d->norm1_shift);
    add_block(out, l, "w_qkv", D * 3 * D, &w->w_qkv, &d->w_qkv);
    add_block(out, l, "w_out", D * D, &w->w_out, &d->w_out);
    add_block(out, l, "norm2_scale", D, &w->norm2_scale, &d->norm2_scale);
    add_block(out, l, "norm2_shift", D, &w->norm2_shift, &d->norm2_shift);
    if (reef_layer_ffw(config, l) == REEF_FFW_MOE) lay_out_mixture(out, config, l);
    if (reef_layer_ffw(config, l) != REEF_FFW_DENSE) return;
    add_block(out, l, "w_ffw_in", D * F, &w->w_ffw_in, &d->w_ffw_in);
    add_block(out, l, "w_ffw_out", F * D, &w->w_ffw_out, &d->w_ffw_out);
}

// What a later generation adds to the matrices of a block.
static void lay_out_corrections(layout *out, const reef_config *config, uint32_t l) {
    size_t D = config->d_model, F = config->d_ffw;
    reef_block *w = &out->generation->weights.blocks[l], *d = &out->generation->grads.blocks[l];
    add_block(out, l, "delta_qkv", D * 3 * D, &w->w_qkv, &d->w_qkv);
    add_block(out, l, "delta_out", D * D, &w->w_out, &d->w_out);
    if (reef_layer_ffw(config, l) != REEF_FFW_DENSE) return;
    add_block(out, l, "delta_ffw_in", D * F, &w->w_ffw_in, &d->w_ffw_in);
    add_block(out, l, "delta_ffw_out", F * D, &w->w_ffw_out, &d->w_ffw_out);
}

static void lay_out(layout *out, const reef_config *config) {
    size_t D = config->d_model, V = REEF_VOCAB;
    bool first = out->generation->info.generation == 0;
    reef_weights *w = &out->generation->weights, *d = &out->generation->grads;
    if (reef_config_is_layer(config)) { // nothing around it
        lay_out_router(out, config, 0);
        return;
    }
    add_tensor(out, first ? "embedding" : "delta_embedding", reef_embedding_tables(config) * V * D,
               &w->embedding, &d->embedding);
    add_tensor(out, first ? "head" : "delta_head", D * V, &w->head, &d->head);
    add_tensor(out, first ? "position" : "delta_position", (size_t)config->context * D,
               &w->position, &d->position);
    if (first) {
        add_tensor(out, "norm_scale", D, &w->norm_scale, &d->norm_scale);
        add_tensor(out, "norm_shift", D, &w->norm_shift, &d->norm_shift);
    }
    for (uint32_t l = 0; l < config->layers; l++)
        if (first)
            lay_out_backbone_block(out, config, l);
        else
            lay_out_corrections(out, config, l);
    for (uint32_t l = 0; l < config->layers; l++)
        if (reef_layer_retrieves(config, l)) lay_out_router(out, config, l);
}

void reef_generation_count_tensors(reef_generation *generation, const reef_config *config) {
    layout count = {.generation = generation, .counting = true};
    lay_out(&count, config);
    generation->tensor_count = count.tensor_count;
    generation->value_count = count.value_count;
}

void reef_generation_lay_out(reef_generation *generation, const reef_config *config) {
    lay_out(&(layout){.generation = generation, .averages = !reef_config_is_layer(config)}, config);
}
