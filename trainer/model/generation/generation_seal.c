// The sealed twin of an open generation.
#include "generation_internal.h"

#include <assert.h>
#include <string.h>

// Everything of the experts but the optimiser's state, which stays behind to be freed. Rows of the
// same type change hands; others are rounded into the sealed generation's own, and all of them are
// dirty.
static void move_experts(reef_expert_table *to, reef_expert_table *from) {
    to->flags = from->flags;
    to->dirty = from->dirty;
    to->usage = from->usage;
    from->flags = from->dirty = NULL;
    from->usage = NULL;
    if (to->rows.dtype == REEF_I8) {
        size_t each = reef_row_bytes(REEF_I8, from->row_values);
        for (size_t n = 0; n < from->row_count; n++)
            reef_i8_round(from->row_values, (int8_t *)to->memory + n * each,
                          from->experts + n * from->row_values);
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

reef_status reef_generation_make_sealed(reef_generation **out,
                                        reef_generation *open,
                                        const reef_config *config,
                                        reef_dtype dtype,
                                        reef_error *err) {
    assert(open->open);
    // The record of the open one, so id, position and parent stay.
    reef_generation_record info = open->info;
    info.sealed = true;
    info.dtype = dtype;
    reef_generation *sealed = NULL;
    reef_status status = reef_generation_new(&sealed, config, &info, open->division, err);
    // Rows of another type need memory of their own; else they are moved below.
    if (status == REEF_OK && dtype != REEF_F32) status = reef_generation_allocate_rows(sealed, err);
    if (status != REEF_OK) {
        reef_generation_free(sealed);
        return status;
    }
    // Folded: batch norm is written into the query, so that a sealed router needs no statistics.
    reef_generation_fold(open, config);
    reef_generation_copy_tensors(sealed, open, false);
    size_t width = (size_t)config->heads * config->d_key;
    for (uint32_t l = 0; l < config->layers; l++) {
        // A layer without product keys has no router and no table of experts.
        if (!reef_layer_retrieves(config, l)) continue;
        reef_floats_copy(sealed->weights.routers[l].w_query, open->folded[l].w_query,
                         config->d_model * width);
        reef_floats_copy(sealed->weights.routers[l].query_bias, open->folded[l].query_bias, width);
        // Moved and not copied: the open generation gives its rows away.
        move_experts(&sealed->expert_tables[l], &open->expert_tables[l]);
    }
    reef_generation_memory_move(&sealed->memory, &open->memory);
    *out = sealed;
    return REEF_OK;
}

// ---- evaluation --------------------------------------------------------------------------------
//
// An open generation as it is evaluated, sealed and stored: averages in the place of its weights,
// batch norm folded.

static void exchange(float *a, float *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

// Over every array of weights that has an average, which `visit` gets second.
static void visit_averages(reef_generation *generation, void (*visit)(float *, float *, size_t)) {
    assert(generation->open);
    for (size_t i = 0; i < generation->tensor_count; i++) {
        reef_tensor *tensor = &generation->tensors[i];
        if (tensor->average != NULL) visit(tensor->data, tensor->average, tensor->count);
    }
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        reef_expert_table *table = &generation->expert_tables[l];
        if (table->moments.average != NULL)
            visit(table->experts, table->moments.average, table->row_count * table->row_values);
    }
}

static void begin_average(float *weights, float *average, size_t count) {
    reef_floats_copy(average, weights, count);
}

void reef_generation_average_reset(reef_generation *generation) {
    visit_averages(generation, begin_average);
}

void reef_generation_exchange(reef_generation *generation, const reef_config *config) {
    visit_averages(generation, exchange);
    reef_generation_fold(generation, config);
}

void reef_generation_fold(reef_generation *generation, const reef_config *config) {
    generation->merged_is_fresh = false;
    reef_router_shape shape = reef_generation_shape(config, generation->info.side);
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_router_fold(&shape, &generation->weights.routers[l], generation->folded[l].w_query,
                         generation->folded[l].query_bias);
    }
}
