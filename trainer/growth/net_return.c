// See net_return.h.
#include "net_return.h"
#include "boundary.h"
#include "branch.h"
#include "events.h"
#include "gate_refit.h"
#include "kind_memories.h"
#include "room.h"

#include <inttypes.h>

// A kind's net follows once so large a part of what its memory knows is new to it.
#define BEHIND_SHARE 3

// The newest generation that has the kind's net.
static uint32_t net_of_kind(const reef_trainer *trainer, uint32_t kind) {
    const reef_network *network = &trainer->network;
    uint32_t newest = kind;
    for (uint32_t g = kind; (size_t)g < network->generation_count; g++) {
        const reef_generation_record *info = &network->generations[g]->info;
        if (reef_generation_kind(info) == kind) newest = g;
    }
    return newest;
}

bool reef_net_return_is_due(const reef_trainer *trainer, uint32_t kind) {
    uint64_t behind = reef_kind_bytes_without_net(trainer, kind);
    if (!reef_has_net(trainer) || behind < trainer->kinds.return_bytes ||
        behind < reef_kind_bytes_learned(trainer, kind) / BEHIND_SHARE)
        return false;
    uint64_t side = trainer->network.generations[net_of_kind(trainer, kind)]->info.side;
    return trainer->network.generation_count < REEF_GENERATION_COUNT_MAX &&
           reef_room_for_experts(trainer, side * side);
}

static void put_in_place(reef_trainer *trainer, reef_generation *made) {
    reef_network *network = &trainer->network;
    size_t n = network->generation_count - 1;
    reef_generation_free(network->generations[n]);
    network->generations[n] = made;
    reef_activations_forget_generation(&trainer->net.acts, n);
    reef_gate_reset(&made->gate, &trainer->net.gating.states[n]);
}

// The generation that was just opened becomes one that continues the kind.
static reef_status continue_kind(reef_trainer *trainer,
                                 uint32_t kind,
                                 uint32_t origin,
                                 reef_error *err) {
    const reef_generation *from = trainer->network.generations[origin];
    bool whole = reef_branch_is_whole(origin);
    reef_generation *made = NULL;
    reef_status status = reef_branch_make(&made, trainer, from, whole, err);
    if (status != REEF_OK) return status;
    made->info.continues = kind + 1;
    put_in_place(trainer, made);
    trainer->kinds.current = kind;
    reef_kind_let_net_follow(trainer, kind);
    status = reef_branch_settle(trainer, from, err);
    // What the kind's older generations learned is of it as well, so the gate need not wait.
    if (status == REEF_OK) status = reef_growth_fit_gate(trainer, made, NULL, 0, err);
    return status == REEF_OK
               ? reef_state_event(trainer, err, "return",
                                  "\"kind\": %" PRIu32 ", \"from\": %" PRIu32
                                  ", \"gate_leak\": %.5f, \"gate_detect\": %.5f",
                                  kind, origin, (double)made->gate_leak, (double)made->gate_detect)
               : status;
}

reef_status reef_net_return(reef_trainer *trainer, uint32_t kind, reef_error *err) {
    const uint32_t origin = net_of_kind(trainer, kind);
    const reef_opening opening = {.reason = "return",
                                  .side = trainer->network.generations[origin]->info.side};
    reef_sealing sealing;
    reef_status status = reef_growth_boundary(
        trainer, &opening, reef_generation_seal_dtype(&trainer->network.config), &sealing, err);
    if (status != REEF_OK) return status;
    status = continue_kind(trainer, kind, origin, err);
    if (status != REEF_OK) reef_trainer_break(trainer, status);
    return status;
}
