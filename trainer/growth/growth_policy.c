// See policy.h. Everything here is decided by positions in the stream and by what is part of a commit.
#include "growth_policy.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool is(const char *setting, const char *word) {
    return strcmp(setting, word) == 0;
}

// ---- when ----------------------------------------------------------------------------------------

static bool is_saturated(const reef_trainer *trainer) {
    const reef_config *config = &trainer->net.config;
    const reef_gen *open = reef_open_generation(trainer);
    uint64_t steps = reef_task_step(trainer), full = 0, count = 0;
    if (steps == 0 || steps % REEF_POLICY_STEPS != 0) return false;
    for (uint32_t l = 0; l < config->layers; l++) {
        const reef_peer *peer = &open->peers[l];
        count += peer->expert_count;
        for (size_t n = 0; n < peer->expert_count; n++)
            full += peer->usage[n].count >= config->capacity_uses;
    }
    return count > 0 && (double)full >= (double)config->capacity_share * (double)count;
}

static const char *due(const reef_trainer *trainer) {
    const reef_config *config = &trainer->net.config;
    if (!reef_strategy_has_boundaries(&trainer->strategy)) return NULL;
    if (is(config->boundaries, "budget") &&
        trainer->stream_bytes - reef_task_at(trainer) >= config->boundary_bytes)
        return "budget";
    return is(config->boundaries, "capacity") && is_saturated(trainer) ? "capacity" : NULL;
}

const char *reef_policy_due(const reef_trainer *trainer) {
    return reef_policy_is_full(trainer) ? NULL : due(trainer);
}

// ---- how much ------------------------------------------------------------------------------------

static uint64_t peer_layers(const reef_config *config) {
    uint64_t count = 0;
    for (uint32_t l = 0; l < config->layers; l++) count += reef_layer_retrieves(config, l);
    return count;
}

uint64_t reef_policy_experts(const reef_trainer *trainer) {
    uint64_t layers = peer_layers(&trainer->net.config), count = 0;
    for (size_t g = 0; g < trainer->net.gen_count; g++) {
        uint64_t side = trainer->net.gens[g]->info.side;
        count += layers * side * side;
    }
    return count;
}

// Experts a layer that a boundary adds; UINT64_MAX when it cannot. Of the rivals of generations only a grid grows,
// and it says for itself which side is too large.
static uint64_t added_experts(const reef_trainer *trainer, uint32_t side_new) {
    uint64_t side = reef_open_generation(trainer)->info.side;
    bool grid = trainer->strategy.kind == REEF_STRATEGY_GRID;
    if (reef_strategy_is_rival(&trainer->strategy) && !grid) return 0;
    if (!grid && !is(trainer->net.config.growth, "in_place")) return (uint64_t)side_new * side_new;
    uint64_t enlarged = reef_grid_side((uint32_t)side, side_new);
    if (enlarged > REEF_SIDE_MAX && !grid) return UINT64_MAX;
    return enlarged * enlarged - side * side;
}

static bool has_room(const reef_trainer *trainer, uint64_t experts) {
    const reef_config *config = &trainer->net.config;
    if (experts == UINT64_MAX) return false;
    return config->experts_max == 0 ||
           reef_policy_experts(trainer) + peer_layers(config) * experts <= config->experts_max;
}

static uint32_t smallest_side(const reef_config *config) {
    uint32_t half = (config->side_new + 1) / 2;
    return half > config->topk ? half : config->topk;
}

bool reef_policy_is_full(const reef_trainer *trainer) {
    if (!trainer->full) return false;
    return !has_room(trainer, added_experts(trainer, smallest_side(&trainer->net.config)));
}

// Half of side_new for data that is known, twice for data of which the model knows nothing.
static uint32_t side_for(const reef_config *config, double distance) {
    double side = round((double)config->side_new * exp2(2.0 * distance - 1.0));
    double low = smallest_side(config), high = REEF_SIDE_MAX;
    return (uint32_t)fmin(fmax(side, low), high);
}

static double within(double value, double low, double high) {
    return fmin(fmax(value, low), high);
}

size_t reef_policy_look_count(size_t batches) {
    return batches < REEF_POLICY_LOOKS ? batches : REEF_POLICY_LOOKS;
}

// Tokens of the batch just scored on which no gate fires.
static size_t count_unclaimed(const reef_trainer *trainer) {
    const reef_config *config = &trainer->net.config;
    size_t stride = reef_step_windows(config) * config->context, count = 0;
    for (size_t t = 0; t < reef_batch_tokens(config); t++) {
        size_t fired = 0;
        for (size_t g = 1; g < trainer->net.gen_count; g++) fired += trainer->fire[g * stride + t];
        count += fired == 0;
    }
    return count;
}

reef_status reef_policy_walk(reef_trainer *trainer,
                             const uint8_t *fresh,
                             size_t batches,
                             reef_policy_look look,
                             void *context,
                             double *unclaimed,
                             reef_error *err) {
    const reef_config *config = &trainer->net.config;
    size_t size = reef_batch_bytes(config), looks = reef_policy_look_count(batches), looked = 0;
    size_t silent = 0;
    reef_firing moving = {0}, before = {0};
    reef_status status = reef_firing_copy(&moving, &trainer->firing, err);
    for (size_t b = 0; status == REEF_OK && b < batches; b++) {
        const uint8_t *bytes = fresh + b * size;
        status = reef_firing_copy(&before, &moving, err);
        bool answered;
        if (status == REEF_OK) status = reef_step_decide(trainer, bytes, &moving, &answered, err);
        if (status != REEF_OK) break;
        silent += count_unclaimed(trainer);
        if (looked == looks || b != looked * batches / looks) continue;
        double bits;
        status = reef_step_forward(trainer, bytes, &before, &bits, err);
        if (status == REEF_OK) look(context, looked++, bits);
    }
    reef_firing_release(&moving);
    reef_firing_release(&before);
    if (unclaimed != NULL && batches > 0)
        *unclaimed = (double)silent / (double)(batches * reef_batch_tokens(config));
    return status;
}

static void add_bits(void *context, size_t number, double bits) {
    double *sum = context;
    (void)number;
    *sum += bits;
}

// Distance 0: the model as it is foresees the new data as well as its own. 1: it would be as good off
// without a model, and no gate claims any of it. Where gates of older generations fire, these know
// something of the new data that the loss does not show yet: it counts half there.
static reef_status measure_distance(reef_trainer *trainer,
                                    const uint8_t *fresh,
                                    size_t fresh_bytes,
                                    reef_opening *out,
                                    reef_error *err) {
    size_t batches = fresh_bytes / reef_batch_bytes(&trainer->net.config);
    double bits = 0.0, reference, spread;
    if (batches == 0) return REEF_OK;
    reef_status status =
        reef_policy_walk(trainer, fresh, batches, add_bits, &bits, &out->unclaimed, err);
    reef_drift_level(&trainer->drift, &reference, &spread);
    out->gap = bits / (double)reef_policy_look_count(batches) - reference;
    double ignorance =
        log2(trainer->net.config.vocab); // bits per token of a model that knows nothing
    double novelty = within(out->gap / fmax(ignorance - reference, 1e-6), 0.0, 1.0);
    out->distance = novelty * (0.5 + 0.5 * out->unclaimed);
    return status;
}

reef_status reef_policy_size(reef_trainer *trainer,
                             const char *reason,
                             const uint8_t *fresh,
                             size_t fresh_bytes,
                             reef_opening *out,
                             reef_error *err) {
    const reef_config *config = &trainer->net.config;
    *out = (reef_opening){
        .reason = reason,
        .side = config->side_new,
        .fresh = fresh,
        .fresh_bytes = fresh_bytes,
        .gap = NAN,
        .unclaimed = NAN,
        .distance = NAN,
    };
    reef_status status = REEF_OK;
    if (is(config->size_new, "auto") && !reef_strategy_is_rival(&trainer->strategy)) {
        status = measure_distance(trainer, fresh, fresh_bytes, out, err);
        if (status == REEF_OK && !isnan(out->distance)) out->side = side_for(config, out->distance);
    }
    if (!has_room(trainer, added_experts(trainer, out->side))) out->side = smallest_side(config);
    if (!has_room(trainer, added_experts(trainer, out->side))) out->side = 0;
    return status;
}

reef_status reef_policy_check_side(const reef_trainer *trainer, uint32_t side, reef_error *err) {
    const reef_config *config = &trainer->net.config;
    uint64_t before = reef_open_generation(trainer)->info.side, after = side;
    if (after <= before || has_room(trainer, after * after - before * before)) return REEF_OK;
    return reef_fail(
        err, REEF_ERR_FULL,
        "side %" PRIu32 " would make %" PRIu64
        " experts in all; the pool was made for experts_max %" PRIu64 ": choose a smaller side",
        side,
        reef_policy_experts(trainer) + peer_layers(config) * (after * after - before * before),
        config->experts_max);
}

// ---- how -----------------------------------------------------------------------------------------

// From here on no boundary is looked for, unless something makes room again.
static reef_status refuse(reef_trainer *trainer, const char *reason, reef_error *err) {
    trainer->full = true;
    return reef_state_event(trainer, err, "full",
                            "\"reason\": \"%s\", \"experts\": %" PRIu64
                            ", \"experts_max\": %" PRIu64,
                            reason, reef_policy_experts(trainer), trainer->net.config.experts_max);
}

reef_status reef_policy_boundary(reef_trainer *trainer,
                                 const char *reason,
                                 const uint8_t *fresh,
                                 size_t fresh_bytes,
                                 reef_error *err) {
    const reef_config *config = &trainer->net.config;
    reef_opening opening;
    reef_sealing sealing;
    reef_status status = reef_policy_size(trainer, reason, fresh, fresh_bytes, &opening, err);
    if (status != REEF_OK) return status;
    if (opening.side == 0) return refuse(trainer, reason, err);
    if (reef_strategy_is_rival(&trainer->strategy) || !is(config->growth, "in_place"))
        return reef_growth_boundary(trainer, &opening, reef_gen_seal_dtype(config), &sealing, err);
    uint32_t side = reef_grid_side(reef_open_generation(trainer)->info.side, opening.side);
    status = reef_growth_enlarge(trainer, side, &opening, err);
    if (status != REEF_OK) return status;
    // What the loss was before the change says nothing about the time after it.
    reef_drift_reset(&trainer->drift);
    trainer->boundary_at = trainer->stream_bytes;
    trainer->boundary_step = trainer->generation_step;
    return REEF_OK;
}
