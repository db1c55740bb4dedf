// What a pool may still add: what experts_max and kinds_max leave room for.
#ifndef REEF_ROOM_H
#define REEF_ROOM_H

#include "trainer_internal.h"

/** Experts in all generations and layers. */
uint64_t reef_room_experts(const reef_trainer *trainer);

/** Generations that began a kind. */
uint32_t reef_room_kinds(const reef_trainer *trainer);

/** Does experts_max leave room for so many more experts in each layer? */
bool reef_room_for_experts(const reef_trainer *trainer, uint64_t experts);

/** Is there room for a generation that begins another kind? */
bool reef_room_for_generation(const reef_trainer *trainer);

/** Was a boundary refused for want of room, and is there none still? */
bool reef_room_is_full(const reef_trainer *trainer);

/** FULL, with what leaves no room for another generation. */
reef_status reef_room_fail(const reef_trainer *trainer, reef_error *err);

/** FULL when the open generation with `side` sub-keys a side would exceed experts_max. */
REEF_MUST_CHECK reef_status reef_room_check_side(const reef_trainer *trainer,
                                                 uint32_t side,
                                                 reef_error *err);

#endif
