// A generation's corrections added to copies of the backbone's matrices, see generation.h. They
// share one block of memory, made when the generation first fires.
#include "generation_internal.h"

#include <stdlib.h>

#define MATRICES_MAX (1 + 4 * REEF_LAYER_COUNT_MAX)

typedef struct matrix {
    float **at;
    size_t floats;
} matrix;

// Every matrix that later generations correct, in one order for all weights. Returns how many.
static size_t list_matrices(reef_weights *weights, const reef_config *config, matrix *out) {
    size_t D = config->d_model, F = config->d_ffw, count = 0;
    out[count++] = (matrix){&weights->head, D * REEF_VOCAB};
    for (uint32_t l = 0; l < config->layers; l++) {
        reef_block *block = &weights->blocks[l];
        out[count++] = (matrix){&block->w_qkv, D * 3 * D};
        out[count++] = (matrix){&block->w_out, D * D};
        if (reef_layer_ffw(config, l) != REEF_FFW_DENSE) continue;
        out[count++] = (matrix){&block->w_ffw_in, D * F};
        out[count++] = (matrix){&block->w_ffw_out, F * D};
    }
    return count;
}

static reef_status allocate(reef_generation *generation,
                            size_t count,
                            const matrix *matrices,
                            reef_error *err) {
    size_t floats = 0;
    for (size_t i = 0; i < count; i++) floats += matrices[i].floats;
    float *memory = malloc(floats * sizeof(*memory));
    if (memory == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the corrections of generation %u",
                         generation->info.generation);
    generation->merged_values = memory;
    for (size_t i = 0; i < count; memory += matrices[i++].floats) *matrices[i].at = memory;
    return REEF_OK;
}

reef_status reef_generation_merge(reef_generation *generation,
                                  reef_generation *backbone,
                                  const reef_config *config,
                                  reef_error *err) {
    matrix merged[MATRICES_MAX], base[MATRICES_MAX], correction[MATRICES_MAX];
    if (generation->merged_is_fresh) return REEF_OK;
    size_t count = list_matrices(&generation->merged, config, merged);
    (void)list_matrices(&backbone->weights, config, base);
    (void)list_matrices(&generation->weights, config, correction);
    reef_status status =
        generation->merged_values != NULL ? REEF_OK : allocate(generation, count, merged, err);
    if (status != REEF_OK) return status;
    for (size_t i = 0; i < count; i++) {
        reef_floats_copy(*merged[i].at, *base[i].at, merged[i].floats);
        reef_axpy(merged[i].floats, *merged[i].at, 1.0f, *correction[i].at);
    }
    generation->merged_is_fresh = true;
    return REEF_OK;
}
