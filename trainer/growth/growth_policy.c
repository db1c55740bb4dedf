// See growth_policy.h. Everything here is decided by positions in the stream and by what is part of
// a commit.
#include "growth_policy.h"
#include "boundary.h"
#include "enlarge.h"
#include "events.h"

#include <inttypes.h>
#include <math.h>

// ---- when ---------------------------------------------------------------------------------------

static bool is_saturated(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    const reef_generation *open = reef_open_generation(trainer);
    uint64_t steps = reef_task_step(trainer), full = 0, count = 0;
    // Only every REEF_POLICY_STEPS steps, and only as a function of the step: the check costs a
    // walk over all experts, and must fall on the same steps after a restart.
    if (steps == 0 || steps % REEF_POLICY_STEPS != 0) return false;
    for (uint32_t l = 0; l < config->layers; l++) {
        const reef_expert_table *table = &open->expert_tables[l];
        count += table->expert_count;
        // An expert is full after capacity_uses uses; the generation, when a share of all its
        // experts is.
        for (size_t n = 0; n < table->expert_count; n++)
            full += table->usage[n].count >= config->capacity_uses;
    }
    return count > 0 && (double)full >= (double)config->capacity_share * (double)count;
}

static const char *due(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    if (config->boundaries == REEF_BOUNDARIES_BUDGET &&
        trainer->stream_bytes - reef_task_at(trainer) >= config->boundary_bytes)
        return "budget";
    return config->boundaries == REEF_BOUNDARIES_CAPACITY && is_saturated(trainer) ? "capacity"
                                                                                   : NULL;
}

const char *reef_policy_due(const reef_trainer *trainer) {
    return reef_policy_is_full(trainer) ? NULL : due(trainer);
}

// ---- how much -----------------------------------------------------------------------------------

// Half of side_new for data that is known, twice for data that the model does not know.
static uint32_t side_for(const reef_config *config, double distance) {
    double side = round((double)config->side_new * exp2(2.0 * distance - 1.0));
    double low = reef_growth_smallest_side(config), high = REEF_SIDE_MAX;
    return (uint32_t)fmin(fmax(side, low), high);
}

static double within(double value, double low, double high) {
    return fmin(fmax(value, low), high);
}

static void add_bits(void *context, size_t number, double bits) {
    double *sum = context;
    (void)number;
    *sum += bits;
}

// Distance 0: the model as it is foresees the new data as well as its own. 1: it would be as good
// off without a model, and no gate claims any of it. Where gates of older generations fire, these
// know something of the new data that the loss does not show yet: it counts half there.
static reef_status measure_distance(reef_trainer *trainer,
                                    const uint8_t *fresh,
                                    size_t fresh_bytes,
                                    reef_opening *out,
                                    reef_error *err) {
    // Whole batches only; a rest would make the mean depend on its length.
    size_t batches = fresh_bytes / reef_batch_bytes(&trainer->network.config);
    double bits = 0.0, reference, spread;
    if (batches == 0) return REEF_OK;
    reef_status status =
        reef_probe_walk(trainer, fresh, batches, add_bits, &bits, &out->unclaimed, err);
    // The open generation's median on its own data is the reference: how much worse does it predict
    // the new data?
    reef_drift_level(&trainer->drift, &reference, &spread);
    out->gap = bits / (double)reef_probe_count(batches) - reference;
    double ignorance =
        log2(trainer->network.config.vocab); // bits per token of a model that knows nothing
    // Divided by the gap between knowing nothing and the reference: 0 is as good as on its own
    // data, 1 is no knowledge at all.
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
    const reef_config *config = &trainer->network.config;
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
    if (config->size_new == REEF_SIZE_NEW_AUTO) {
        status = measure_distance(trainer, fresh, fresh_bytes, out, err);
        if (status == REEF_OK && !isnan(out->distance)) out->side = side_for(config, out->distance);
    }
    // If experts_max leaves no room for the wanted size, the smallest is tried; 0 means that
    // even that does not fit.
    if (!reef_growth_has_room(trainer, reef_growth_added_experts(trainer, out->side)))
        out->side = reef_growth_smallest_side(config);
    if (!reef_growth_has_room(trainer, reef_growth_added_experts(trainer, out->side)))
        out->side = 0;
    return status;
}

// ---- how ----------------------------------------------------------------------------------------

// From here on no boundary is looked for, unless something makes room again.
static reef_status report_full(reef_trainer *trainer, const char *reason, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    trainer->full = true;
    return reef_state_event(trainer, err, "full",
                            "\"reason\": \"%s\", \"experts\": %" PRIu64
                            ", \"experts_max\": %" PRIu64 ", \"kinds\": %" PRIu32
                            ", \"kinds_max\": %" PRIu32,
                            reason, reef_policy_experts(trainer), config->experts_max,
                            reef_policy_kinds(trainer), config->kinds_max);
}

reef_status reef_policy_boundary(reef_trainer *trainer,
                                 const char *reason,
                                 const uint8_t *fresh,
                                 size_t fresh_bytes,
                                 reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_opening opening;
    reef_sealing sealing;
    reef_status status = reef_policy_size(trainer, reason, fresh, fresh_bytes, &opening, err);
    if (status != REEF_OK) return status;
    // A full pool continues to learn in the open generation; the event says so once.
    if (opening.side == 0) return report_full(trainer, reason, err);
    if (config->growth != REEF_GROWTH_IN_PLACE)
        return reef_growth_boundary(trainer, &opening, reef_generation_seal_dtype(config), &sealing,
                                    err);
    // Instead of a new generation the open one grows by as many experts as that would have had.
    uint32_t side = reef_grid_side(reef_open_generation(trainer)->info.side, opening.side);
    status = reef_growth_enlarge(trainer, side, &opening, err);
    if (status != REEF_OK) return status;
    // What the loss was before the change says nothing about the time after it.
    reef_drift_reset(&trainer->drift);
    trainer->boundary_at = trainer->stream_bytes;
    trainer->boundary_step = trainer->generation_step;
    return REEF_OK;
}
