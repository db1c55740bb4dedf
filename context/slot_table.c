// See slot_table.h.
#include "slot_table.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(reef_slot) * REEF_SLOTS_A_LINE == REEF_LINE_BYTES,
              "a line of slots is a cache line");

reef_slot *reef_slot_replace(uint8_t *line, uint32_t key, const reef_histories *histories) {
    reef_slot *slots = (reef_slot *)(void *)line, *found = slots;
    int least = 1 << 30;
    for (int i = 0; i < REEF_SLOTS_A_LINE; i++) {
        // The history of the first bit has counted every visit, as far as it counts.
        int visits = slots[i].check == 0 ? -1 : histories->visits[slots[i].history[0]];
        if (visits < least) least = visits, found = &slots[i];
    }
    memset(found, 0, sizeof(*found));
    found->check = (uint8_t)key | (uint8_t)((key & 0xFF) == 0);
    return found;
}
