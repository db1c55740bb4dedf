// See branch.h.
//
// A sealed query network has its batch norm folded away, an open one normalises by the statistics
// of the batch. The branch gets a batch norm that is the identity on its origin's own text: with m
// and v the mean and variance of the raw queries of a batch from the reservoir, and b the folded
// bias,
//
//   scale = sqrt(v + epsilon), shift = b + m:   (x W - m) / sqrt(v + epsilon) * scale + shift = x W
//   + b
//
// Layers are measured one after another, each with those before it settled: one forward pass for
// each.
#include "branch.h"

#include "batch.h"
#include "generation.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

bool reef_branch_is_whole(uint32_t from) {
    return from > 0;
}

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
void reef_branch_unfold(reef_generation *generation,
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

reef_status reef_branch_make(reef_generation **out,
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
    reef_status status = reef_generation_new_divided(out, config, &info, open->division, err);
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
    reef_branch_unfold(*out, from, config);
    return REEF_OK;
}

// ---- queries ------------------------------------------------------------------------------------

// Place windows of the reservoir into the batch: those of generation `from`, or with `any` all.
// Returns how many.
static size_t place_windows(reef_trainer *trainer, uint32_t from, bool any) {
    const reef_config *config = &trainer->network.config;
    const reef_reservoir *reservoir = &trainer->net.reservoir;
    size_t count = 0;
    for (size_t slot = 0; slot < reservoir->slots; slot++) {
        if (!any && reservoir->generations[slot] != from) continue;
        const uint8_t *bytes = reservoir->bytes + slot * reservoir->window_bytes;
        size_t tokens = reservoir->sizes[slot];
        // Windows of the context's length, side by side: overlapping ones would count the same text
        // twice.
        for (size_t at = 0; at + config->context < tokens; at += config->context) {
            if (count == config->batch) return count;
            reef_batch_place(trainer, count++, bytes + at);
        }
    }
    return count;
}

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

// The branch is in the model by now. It reads what its origin read, beside generation 0.
static reef_status settle_queries(reef_trainer *trainer,
                                  const reef_generation *from,
                                  reef_error *err) {
    const reef_config *config = &trainer->network.config;
    size_t windows = place_windows(trainer, from->info.generation, false);
    // An imported origin may have no text of its own in the reservoir. Any text is
    // better than none: it is only a start.
    if (windows == 0) windows = place_windows(trainer, from->info.generation, true);
    if (!config->batch_norm || windows == 0) return REEF_OK;
    size_t stride = reef_batch_windows(config) * config->context,
           open = trainer->network.generation_count - 1;
    memset(trainer->batch.fire, 0, trainer->network.generation_count * stride);
    memset(trainer->batch.fire + open * stride, 1, stride);
    const reef_batch batch = {.windows = windows,
                              .tokens = trainer->batch.tokens,
                              .targets = trainer->batch.targets,
                              .fire = trainer->batch.fire,
                              .fire_stride = stride};
    reef_status status = REEF_OK;
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

reef_status reef_branch_settle(reef_trainer *trainer,
                               const reef_generation *from,
                               reef_error *err) {
    reef_generation *open = reef_open_generation(trainer);
    reef_status status = settle_queries(trainer, from, err);
    if (status != REEF_OK) return status;
    reef_generation_fold(open, &trainer->network.config);
    reef_generation_average_reset(open);
    return REEF_OK;
}
