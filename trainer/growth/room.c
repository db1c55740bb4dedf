// See room.h.
#include "room.h"

#include <inttypes.h>

uint64_t reef_room_experts(const reef_trainer *trainer) {
    uint64_t layers = reef_config_retrieving_layers(&trainer->network.config), count = 0;
    for (size_t g = 0; g < trainer->network.generation_count; g++) {
        uint64_t side = trainer->network.generations[g]->info.side;
        count += layers * side * side;
    }
    return count;
}

uint32_t reef_room_kinds(const reef_trainer *trainer) {
    uint32_t count = 0;
    for (size_t g = 0; g < trainer->network.generation_count; g++)
        count += reef_generation_begins_kind(&trainer->network.generations[g]->info);
    return count;
}

static bool has_room_for_kind(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    return config->kinds_max == 0 || reef_room_kinds(trainer) < config->kinds_max;
}

bool reef_room_for_experts(const reef_trainer *trainer, uint64_t experts) {
    const reef_config *config = &trainer->network.config;
    return config->experts_max == 0 ||
           reef_room_experts(trainer) + reef_config_retrieving_layers(config) * experts <=
               config->experts_max;
}

bool reef_room_for_generation(const reef_trainer *trainer) {
    uint64_t side = trainer->network.config.side;
    return has_room_for_kind(trainer) && reef_room_for_experts(trainer, side * side);
}

bool reef_room_is_full(const reef_trainer *trainer) {
    return trainer->full && !reef_room_for_generation(trainer);
}

reef_status reef_room_fail(const reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    if (!has_room_for_kind(trainer))
        return reef_fail(err, REEF_ERR_FULL,
                         "the pool has %" PRIu32 " kinds and was made for kinds_max %" PRIu32
                         ": there is no room for another generation",
                         reef_room_kinds(trainer), config->kinds_max);
    return reef_fail(err, REEF_ERR_FULL,
                     "the pool has %" PRIu64 " experts and was made for experts_max %" PRIu64
                     ": there is no room for another generation",
                     reef_room_experts(trainer), config->experts_max);
}

reef_status reef_room_check_side(const reef_trainer *trainer, uint32_t side, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    // Growing in place replaces the side, so only the difference of the squares is new. Shrinking
    // is refused elsewhere.
    uint64_t before = reef_open_generation(trainer)->info.side, after = side;
    if (after <= before || reef_room_for_experts(trainer, after * after - before * before))
        return REEF_OK;
    return reef_fail(err, REEF_ERR_FULL,
                     "side %" PRIu32 " would make %" PRIu64
                     " experts in all; the pool was made for experts_max %" PRIu64
                     ": choose a smaller side",
                     side,
                     reef_room_experts(trainer) +
                         reef_config_retrieving_layers(config) * (after * after - before * before),
                     config->experts_max);
}
