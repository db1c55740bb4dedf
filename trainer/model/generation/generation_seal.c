// The sealed twin of an open generation.
#include "generation_internal.h"

#include <assert.h>
#include <string.h>

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
    reef_gen_copy_tensors(sealed, open, false);
    size_t width = (size_t)config->heads * config->d_key;
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_floats_copy(sealed->weights.routers[l].w_query, open->folded[l].w_query,
                         config->d_model * width);
        reef_floats_copy(sealed->weights.routers[l].query_bias, open->folded[l].query_bias, width);
        move_experts(&sealed->peers[l], &open->peers[l]);
    }
    move_gate(sealed, open);
    *out = sealed;
    return REEF_OK;
}
