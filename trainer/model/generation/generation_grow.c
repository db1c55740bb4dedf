// An open generation with a larger side.
#include "generation_internal.h"
#include "reef_random.h"

#include <string.h>

static void copy_row_averages(reef_gen *to, const reef_gen *from) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_peer *old = &from->peers[l];
        if (old->moments.average == NULL) continue;
        reef_floats_copy(to->peers[l].moments.average, old->moments.average,
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
        return reef_fail(err, REEF_ERR_INVALID,
                         "side %u is not larger than the open generation's %u", side,
                         open->info.side);
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
        reef_floats_copy(peer->experts, old->experts, N * row);
        reef_floats_copy(peer->moments.adam_m, old->moments.adam_m, N * row);
        reef_floats_copy(peer->moments.adam_v, old->moments.adam_v, N * row);
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
    reef_gen_copy_tensors(grown, open, true);
    reef_gen_gate_copy(grown, open);
    *out = grown;
    return REEF_OK;
}
