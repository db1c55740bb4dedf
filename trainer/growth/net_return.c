// See net_return.h.
//
// The net of a kind that came back goes on with a branch: the open generation, which has trained
// nothing yet, begins as a copy of a sealed one, with its side, query networks, sub-keys, experts
// and corrections. The sealed one is only read.
//
// The pool's function stays what it is. What is copied depends on who answers beside it:
//
//   whole   at most one generation after the first answers, so the branch of such a one replaces
//           its origin. It copies all of it, w_up and corrections too: it computes what its origin
//           does, and trains on from there.
//   silent  generation 0 always answers: what a branch of it and it both know would count twice.
//           So w_up and whatever else adds to the output on its own begins at zero, and only
//           w_down, w_gate, sub-keys and queries are copied.
//
// Its kind's context memory stays where it is, and learns on.
//
// A sealed query network has its batch norm folded away, an open one normalises by the statistics
// of the batch. The branch gets a batch norm that is the identity on its kind's own text: with m
// and v the mean and variance of the raw queries of a batch of what its memory learned last, and b
// the folded bias,
//
//   scale = sqrt(v + epsilon), shift = b + m:   (x W - m) / sqrt(v + epsilon) * scale + shift = x W
//   + b
//
// Layers are measured one after another, each with those before it settled: one forward pass for
// each.
#include "net_return.h"
#include "batch.h"
#include "boundary.h"
#include "events.h"
#include "kind_memories.h"
#include "room.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A kind's net follows once so large a part of what its memory knows is new to it.
#define BEHIND_SHARE 3

// ---- the copy -----------------------------------------------------------------------------------

// Tensors that add to the output, or to what older generations read or add, without anything before
// them.
static bool speaks_alone(const char *name) {
    return strstr(name, "delta_") != NULL;
}

// The folded query network lies under the name of the open one's.
static void copy_tensors(reef_generation *to, const reef_generation *from, bool whole) {
    for (size_t i = 0; i < to->tensor_count; i++) {
        reef_tensor *tensor = &to->tensors[i];
        const reef_tensor *old = reef_generation_find(from, tensor->name);
        if (old == NULL || (!whole && speaks_alone(tensor->name))) continue;
        memcpy(tensor->data, old->data, tensor->count * sizeof(*tensor->data));
    }
}

static void copy_experts(reef_expert_table *to,
                         const reef_expert_table *from,
                         const reef_expert_shape *shape,
                         bool whole) {
    size_t D = shape->D, w_up = reef_expert_up(shape) * D;
    for (size_t n = 0; n < to->expert_count; n++) {
        if (!reef_row_is_here(&to->share, n)) continue; // then neither is it in `from`
        float *row = to->experts + reef_row_place(&to->share, n) * to->row_values;
        reef_expert_table_row_read(from, n, 0, to->row_values, row);
        if (!whole) memset(row + w_up, 0, D * sizeof(*row));
    }
}

// Until it is measured, as if raw queries had mean 0 and variance 1.
static void unfold(reef_generation *generation,
                   const reef_generation *from,
                   const reef_config *config) {
    size_t width = (size_t)config->heads * config->d_key;
    for (uint32_t l = 0; config->batch_norm && l < config->layers; l++) {
        // Without batch norm there is nothing to unfold: the bias is part of the query as it is.
        if (!reef_layer_retrieves(config, l)) continue;
        reef_router_params *router = &generation->weights.routers[l];
        for (size_t i = 0; i < width; i++) {
            router->bn_mean[i] = 0.0f;
            // scale = sqrt(1 + epsilon) undoes the division by sqrt(var + epsilon), so the
            // normalised query equals the raw one plus the shift.
            router->bn_var[i] = 1.0f;
            router->bn_scale[i] = sqrtf(1.0f + REEF_BN_EPSILON);
            router->bn_shift[i] = from->weights.routers[l].query_bias[i];
        }
    }
}

// A generation for the open slot that is a copy of `from`, whole or silent; the caller's.
static reef_status make_branch(reef_generation **out,
                               const reef_trainer *trainer,
                               const reef_generation *from,
                               bool whole,
                               reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const reef_generation *open = reef_open_generation(trainer);
    // Number, ids and positions are those of the open generation that it replaces. Parent and side
    // are its origin's.
    reef_generation_record info = open->info;
    info.parent = from->info.generation;
    info.continues = 0;
    info.side = from->info.side;
    reef_status status = reef_generation_new(out, config, &info, open->division, err);
    if (status != REEF_OK) return status;
    // Everything that is not copied starts as in a new generation.
    reef_generation_initialise(*out, config, open);
    copy_tensors(*out, from, whole);
    for (uint32_t l = 0; l < config->layers; l++) {
        reef_expert_shape shape = reef_generation_expert_shape(config, l);
        if (reef_layer_retrieves(config, l))
            copy_experts(&(*out)->expert_tables[l], &from->expert_tables[l], &shape, whole);
    }
    // Its queries came folded; they need batch statistics to train on.
    unfold(*out, from, config);
    return REEF_OK;
}

// ---- queries ------------------------------------------------------------------------------------

static void settle_layer(const reef_trainer *trainer, const reef_generation *from, uint32_t l) {
    const reef_config *config = &trainer->network.config;
    const reef_router_tape *tape =
        &trainer->net.acts.expert_tables[trainer->network.generation_count - 1][l].tape;
    reef_router_params *router = &reef_open_generation(trainer)->weights.routers[l];
    for (size_t i = 0; i < (size_t)config->heads * config->d_key; i++) {
        router->bn_mean[i] = tape->batch_mean[i];
        router->bn_var[i] = tape->batch_var[i];
        router->bn_scale[i] = sqrtf(tape->batch_var[i] + REEF_BN_EPSILON);
        router->bn_shift[i] = from->weights.routers[l].query_bias[i] + tape->batch_mean[i];
    }
}

// What the kind learned last fills the batch.
static reef_status place_text(reef_trainer *trainer,
                              uint32_t kind,
                              size_t *windows,
                              reef_error *err) {
    const reef_memory *memory = NULL;
    size_t most = reef_batch_bytes(&trainer->network.config) + 1;
    uint8_t *bytes = malloc(most);
    if (bytes == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch of text");
    reef_status status = reef_kind_load_memory(trainer, kind, &memory, err);
    size_t count = status == REEF_OK && memory != NULL ? reef_memory_text(memory, bytes, most) : 0;
    *windows = reef_batch_place_text(trainer, bytes, count);
    free(bytes);
    return status;
}

// The branch is in the model by now. It reads what its origin read, beside generation 0.
static reef_status settle_queries(reef_trainer *trainer,
                                  const reef_generation *from,
                                  reef_error *err) {
    const reef_config *config = &trainer->network.config;
    size_t windows = 0;
    reef_status status = place_text(trainer, reef_generation_kind(&from->info), &windows, err);
    if (status != REEF_OK || !config->batch_norm || windows == 0) return status;
    const reef_batch batch =
        reef_batch_make(trainer, windows, trainer->network.generation_count - 1, false);
    // Layer by layer: the input of layer l depends on the queries of the layers before it. So each
    // needs a pass of its own, with those before it settled.
    for (uint32_t l = 0; status == REEF_OK && l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        status = reef_network_forward(&trainer->net.acts, &trainer->network, trainer->workers,
                                      &batch, REEF_PASS_TRAIN, err);
        if (status == REEF_OK) settle_layer(trainer, from, l);
    }
    return status;
}

// Of such a copy, once it is the open generation: measure its queries, and it can be trained.
static reef_status settle_branch(reef_trainer *trainer,
                                 const reef_generation *from,
                                 reef_error *err) {
    reef_generation *open = reef_open_generation(trainer);
    reef_status status = settle_queries(trainer, from, err);
    if (status != REEF_OK) return status;
    reef_generation_fold(open, &trainer->network.config);
    reef_generation_average_reset(open);
    return REEF_OK;
}

// ---- the return ---------------------------------------------------------------------------------

bool reef_net_return_is_due(const reef_trainer *trainer, uint32_t kind) {
    uint64_t behind = reef_kind_bytes_without_net(trainer, kind);
    if (!reef_has_net(trainer) || behind < trainer->kinds.return_bytes ||
        behind < reef_kind_bytes_learned(trainer, kind) / BEHIND_SHARE)
        return false;
    uint64_t side =
        trainer->network.generations[reef_network_net_of(&trainer->network, kind)]->info.side;
    return trainer->network.generation_count < REEF_GENERATION_COUNT_MAX &&
           reef_room_for_experts(trainer, side * side);
}

static void put_in_place(reef_trainer *trainer, reef_generation *made) {
    reef_network *network = &trainer->network;
    size_t n = network->generation_count - 1;
    reef_generation_free(network->generations[n]);
    network->generations[n] = made;
    reef_activations_forget_generation(&trainer->net.acts, n);
}

// The generation that was just opened becomes one that continues the kind.
static reef_status continue_kind(reef_trainer *trainer,
                                 uint32_t kind,
                                 uint32_t origin,
                                 reef_error *err) {
    const reef_generation *from = trainer->network.generations[origin];
    bool whole = origin > 0; // generation 0 answers everywhere, and would be counted twice
    reef_generation *made = NULL;
    reef_status status = make_branch(&made, trainer, from, whole, err);
    if (status != REEF_OK) return status;
    made->info.continues = kind + 1;
    put_in_place(trainer, made);
    trainer->kinds.current = kind;
    reef_kind_let_net_follow(trainer, kind);
    status = settle_branch(trainer, from, err);
    return status == REEF_OK
               ? reef_state_event(trainer, err, "return",
                                  "\"kind\": %" PRIu32 ", \"from\": %" PRIu32, kind, origin)
               : status;
}

reef_status reef_net_return(reef_trainer *trainer, uint32_t kind, reef_error *err) {
    const uint32_t origin = (uint32_t)reef_network_net_of(&trainer->network, kind);
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
