// What a pool may still add: what experts_max and kinds_max leave room for. See growth_policy.h.
#include "growth_policy.h"

#include <inttypes.h>

uint64_t reef_policy_experts(const reef_trainer *trainer) {
    uint64_t layers = reef_config_retrieving_layers(&trainer->network.config), count = 0;
    for (size_t g = 0; g < trainer->network.generation_count; g++) {
        uint64_t side = trainer->network.generations[g]->info.side;
        count += layers * side * side;
    }
    return count;
}

uint32_t reef_grid_side(uint32_t side, uint32_t side_new) {
    uint64_t before = (uint64_t)side * side, grown = (uint64_t)side + 1;
    while (grown * grown - before < (uint64_t)side_new * side_new) grown++;
    return (uint32_t)grown;
}

uint64_t reef_growth_added_experts(const reef_trainer *trainer, uint32_t side_new) {
    uint64_t side = reef_open_generation(trainer)->info.side;
    if (trainer->network.config.growth != REEF_GROWTH_IN_PLACE)
        return (uint64_t)side_new * side_new;
    uint64_t enlarged = reef_grid_side((uint32_t)side, side_new);
    return enlarged > REEF_SIDE_MAX ? UINT64_MAX : enlarged * enlarged - side * side;
}

uint32_t reef_policy_kinds(const reef_trainer *trainer) {
    uint32_t count = 0;
    for (size_t g = 0; g < trainer->network.generation_count; g++)
        count += reef_generation_begins_kind(&trainer->network.generations[g]->info);
    return count;
}

// May a boundary begin another kind?
static bool has_room_for_kind(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    return config->kinds_max == 0 || config->growth == REEF_GROWTH_IN_PLACE ||
           reef_policy_kinds(trainer) < config->kinds_max;
}

bool reef_growth_has_experts(const reef_trainer *trainer, uint64_t experts) {
    const reef_config *config = &trainer->network.config;
    if (experts == UINT64_MAX) return false;
    return config->experts_max == 0 ||
           reef_policy_experts(trainer) + reef_config_retrieving_layers(config) * experts <=
               config->experts_max;
}

bool reef_growth_has_room(const reef_trainer *trainer, uint64_t experts) {
    return has_room_for_kind(trainer) && reef_growth_has_experts(trainer, experts);
}

uint32_t reef_growth_smallest_side(const reef_config *config) {
    uint32_t half = (config->side_new + 1) / 2;
    return half > config->topk ? half : config->topk;
}

reef_status reef_policy_fail_full(const reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    if (!has_room_for_kind(trainer))
        return reef_fail(err, REEF_ERR_FULL,
                         "the pool has %" PRIu32 " kinds and was made for kinds_max %" PRIu32
                         ": there is no room for another generation",
                         reef_policy_kinds(trainer), config->kinds_max);
    return reef_fail(err, REEF_ERR_FULL,
                     "the pool has %" PRIu64 " experts and was made for experts_max %" PRIu64
                     ": there is no room for another generation",
                     reef_policy_experts(trainer), config->experts_max);
}

bool reef_policy_is_full(const reef_trainer *trainer) {
    if (!trainer->full) return false;
    return !reef_growth_has_room(
        trainer,
        reef_growth_added_experts(trainer, reef_growth_smallest_side(&trainer->network.config)));
}

reef_status reef_policy_check_side(const reef_trainer *trainer, uint32_t side, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    // Growing in place replaces the side, so only the difference of the squares is new. Shrinking
    // is refused elsewhere.
    uint64_t before = reef_open_generation(trainer)->info.side, after = side;
    if (after <= before || reef_growth_has_experts(trainer, after * after - before * before))
        return REEF_OK;
    return reef_fail(err, REEF_ERR_FULL,
                     "side %" PRIu32 " would make %" PRIu64
                     " experts in all; the pool was made for experts_max %" PRIu64
                     ": choose a smaller side",
                     side,
                     reef_policy_experts(trainer) +
                         reef_config_retrieving_layers(config) * (after * after - before * before),
                     config->experts_max);
}
