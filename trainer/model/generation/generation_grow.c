// An open generation with a larger side.
#include "generation_internal.h"
#include "reef_random.h"

#include <string.h>

static void copy_row_averages(reef_generation *to, const reef_generation *from) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_expert_table *old = &from->expert_tables[l];
        if (old->moments.average == NULL) continue;
        reef_floats_copy(to->expert_tables[l].moments.average, old->moments.average,
                         old->row_count * old->row_values);
    }
}

reef_status reef_generation_grow(reef_generation **out,
                                 const reef_generation *open,
                                 const reef_config *config,
                                 uint32_t side,
                                 reef_error *err) {
    *out = NULL;
    if (side <= open->info.side)
        return reef_fail(err, REEF_ERR_INVALID,
                         "side %u is not larger than the open generation's %u", side,
                         open->info.side);
    reef_generation_record info = open->info;
    info.side = side;
    reef_generation *grown = NULL;
    reef_status status = reef_generation_new_divided(&grown, config, &info, open->division, err);
    if (status != REEF_OK) return status;
    uint64_t seed = reef_random_bits(config->seed, 1, info.generation);
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_generation_draw_router(grown, config, l, open,
                                    seed); // fresh sub-keys; the old ones are copied below
        reef_expert_table *table = &grown->expert_tables[l];
        const reef_expert_table *old = &open->expert_tables[l];
        // New rows come behind those that are here: of both tables a rank has every so many blocks.
        size_t N = old->expert_count, here = old->row_count, row = old->row_values;
        reef_floats_copy(table->experts, old->experts, here * row);
        reef_floats_copy(table->moments.adam_m, old->moments.adam_m, here * row);
        reef_floats_copy(table->moments.adam_v, old->moments.adam_v, here * row);
        memcpy(table->moments.counts, old->moments.counts, here * sizeof(*old->moments.counts));
        memcpy(table->flags, old->flags, N);
        memcpy(table->usage, old->usage, N * sizeof(*old->usage));
        reef_generation_draw_experts(table, N, config, l, 0.0f, seed);
        memset(table->dirty, 1, table->expert_count);
    }
    reef_generation_average_reset(grown); // of new rows and sub-keys
    copy_row_averages(grown, open);
    reef_generation_copy_tensors(grown, open, true);
    reef_generation_gate_copy(grown, open);
    *out = grown;
    return REEF_OK;
}
