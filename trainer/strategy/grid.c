// The obvious alternative to generations: the one grid grows in place by as many experts as a new
// generation would have, and only these and their sub-keys train. Old rows, backbone, embedding,
// head and query network do not change, but every new sub-key competes with the old ones for the K
// slots of a token: there, not in the weights, it forgets.
#include "enlarge.h"
#include "strategy.h"
#include "trainer_internal.h"

#include <string.h>

uint32_t reef_grid_side(uint32_t side, uint32_t side_new) {
    uint64_t old = (uint64_t)side * side, wanted = old + (uint64_t)side_new * side_new;
    uint64_t next = side;
    while (next * next < wanted) next++;
    return (uint32_t)next;
}

reef_status reef_grid_boundary(reef_trainer *trainer, uint32_t side_new, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    uint32_t before = reef_open_generation(trainer)->info.side;
    // Rows keep their numbers: the old square is the corner of the new one, expert by expert.
    size_t old = (size_t)before * before;
    reef_status status = reef_growth_enlarge(trainer, reef_grid_side(before, side_new), NULL, err);
    if (status != REEF_OK) return status;
    reef_generation *generation = reef_open_generation(trainer);
    reef_generation_average_adopt(generation, config); // what stands still is what is evaluated
    for (uint32_t l = 0; l < config->layers; l++)
        // The flag freezes a row. New rows stay at 0 and train.
        if (generation->expert_tables[l].expert_count > 0)
            memset(generation->expert_tables[l].flags, 1, old);
    // Sub-keys below this side are frozen by the optimiser (`trained_at`).
    trainer->strategy.grid_side = before;
    return REEF_OK;
}
