// See adapter_merge.h. One block of memory a generation, made when the generation first fires in an
// evaluation.
#include "adapter_merge.h"

#include "generation.h"

#include <stdlib.h>
#include <string.h>

static size_t matrix_floats(const reef_adapter_shape *shape) {
    return shape->in * shape->out;
}

// Where the matrices lie, one after the other; returns how many floats they are. With no memory yet
// it only counts.
static size_t lay_out(reef_merged *merged, const reef_config *config, float *memory) {
    reef_adapter_shape qkv = reef_adapter_shape_qkv(config), out = reef_adapter_shape_out(config);
    reef_adapter_shape in = reef_adapter_shape_ffw_in(config),
                       up = reef_adapter_shape_ffw_out(config);
    // Called twice: once to count, once to assign.
    size_t at = 0;
    struct {
        float **target;
        size_t floats;
    } matrices[4];
    for (uint32_t l = 0; config->adapters > 0 && l < config->layers; l++) {
        // The matrices of the dense network exist only where they are adapted.
        size_t count = reef_layer_adapts_ffw(config, l) ? 4 : 2;
        matrices[0].target = &merged->w_qkv[l], matrices[0].floats = matrix_floats(&qkv);
        matrices[1].target = &merged->w_out[l], matrices[1].floats = matrix_floats(&out);
        matrices[2].target = &merged->w_ffw_in[l], matrices[2].floats = matrix_floats(&in);
        matrices[3].target = &merged->w_ffw_out[l], matrices[3].floats = matrix_floats(&up);
        for (size_t i = 0; i < count; i++) {
            if (memory != NULL) *matrices[i].target = memory + at;
            at += matrices[i].floats;
        }
    }
    if (memory != NULL) merged->head = memory + at;
    return at + (size_t)config->d_model * REEF_VOCAB;
}

// out = base + down up, or base + up
static void add_adapter(float *out,
                        const float *base,
                        const reef_adapter_shape *shape,
                        const reef_adapter *adapter) {
    memcpy(out, base, matrix_floats(shape) * sizeof(*out));
    if (shape->whole)
        reef_axpy(matrix_floats(shape), out, 1.0f, adapter->up);
    else
        reef_gemm(false, false, shape->in, shape->out, shape->rank, 1.0f, adapter->down,
                  shape->rank, adapter->up, shape->out, 1.0f, out, shape->out);
}

static void merge_generation(reef_generation *generation,
                             const reef_generation *base,
                             const reef_config *config) {
    reef_merged *merged = &generation->merged;
    reef_adapter_shape qkv = reef_adapter_shape_qkv(config), out = reef_adapter_shape_out(config);
    reef_adapter_shape in = reef_adapter_shape_ffw_in(config),
                       up = reef_adapter_shape_ffw_out(config);
    // merged = base + down * up: one product at evaluation instead of two for every token that the
    // generation answers alone.
    for (uint32_t l = 0; config->adapters > 0 && l < config->layers; l++) {
        const reef_block *block = &base->weights.blocks[l];
        const reef_weights *weights = &generation->weights;
        add_adapter(merged->w_qkv[l], block->w_qkv, &qkv, &weights->adapters_qkv[l]);
        add_adapter(merged->w_out[l], block->w_out, &out, &weights->adapters_out[l]);
        if (!reef_layer_adapts_ffw(config, l)) continue;
        add_adapter(merged->w_ffw_in[l], block->w_ffw_in, &in, &weights->adapters_ffw_in[l]);
        add_adapter(merged->w_ffw_out[l], block->w_ffw_out, &up, &weights->adapters_ffw_out[l]);
    }
    size_t floats = (size_t)config->d_model * REEF_VOCAB;
    memcpy(merged->head, base->weights.head, floats * sizeof(*merged->head));
    // The head's correction is a whole matrix.
    reef_axpy(floats, merged->head, 1.0f, generation->weights.head);
}

reef_status reef_merged_make(reef_generation *generation,
                             const reef_generation *base,
                             const reef_config *config,
                             reef_error *err) {
    reef_merged *merged = &generation->merged;
    if (merged->fresh) return REEF_OK;
    // Memory is made when the generation first answers alone; most never do in a given text.
    if (merged->memory == NULL) {
        merged->memory = malloc(lay_out(merged, config, NULL) * sizeof(*merged->memory));
        if (merged->memory == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY,
                             "no memory for the corrections of generation %u",
                             generation->info.generation);
        lay_out(merged, config, merged->memory);
    }
    merge_generation(generation, base, config);
    merged->fresh = true;
    return REEF_OK;
}

void reef_merged_release(reef_merged *merged) {
    free(merged->memory);
    *merged = (reef_merged){0};
}
