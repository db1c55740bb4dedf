// The open generation on command: it is sealed, it grows, and experts of it are frozen or thawed.
#include "boundary.h"
#include "commit.h"
#include "events.h"
#include "room.h"

#include <inttypes.h>
#include <stdlib.h>

static reef_status check_net(const reef_trainer *trainer, reef_error *err) {
    return reef_has_net(trainer)
               ? REEF_OK
               : reef_fail(err, REEF_ERR_INVALID, "the pool has no net, and so no experts");
}

// ---- seal ---------------------------------------------------------------------------------------

// A dry run: it says what a seal would refuse and how large the next generation would be, and
// touches neither the trainer nor the pool.
reef_status reef_trainer_seal_check(reef_trainer *trainer,
                                    const char *seal_dtype,
                                    uint32_t *side,
                                    reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_dtype dtype;
    *side = config->side;
    reef_status status = reef_seal_dtype_parse(config, seal_dtype, &dtype, err);
    return status == REEF_OK ? trainer->ops->seal_check(trainer, err) : status;
}

reef_status reef_trainer_seal(reef_trainer *trainer,
                              const char *seal_dtype,
                              reef_sealing *out,
                              reef_error *err) {
    reef_dtype dtype = REEF_F32;
    reef_status status = reef_trainer_check_whole(trainer, err);
    if (status == REEF_OK)
        status = reef_seal_dtype_parse(&trainer->network.config, seal_dtype, &dtype, err);
    return status == REEF_OK ? trainer->ops->seal(trainer, dtype, out, err) : status;
}

// ---- grow ---------------------------------------------------------------------------------------

reef_status reef_trainer_grow_check(const reef_trainer *trainer, uint32_t side, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_status refused = check_net(trainer, err);
    if (refused != REEF_OK) return refused;
    // Growing means more sub-keys and more experts behind them. A model of dense or mixture layers
    // has neither.
    if (reef_config_retrieving_layers(config) == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool cannot grow to side %" PRIu32 ": its layers are of ffw %s, and "
                         "only those of kind p and k have experts that grow",
                         side, config->ffw);
    if (trainer->ops->grow_check != NULL) refused = trainer->ops->grow_check(trainer, err);
    if (refused != REEF_OK) return refused;
    return reef_room_check_side(trainer, side, err);
}

reef_status reef_trainer_grow(reef_trainer *trainer, uint32_t side, reef_error *err) {
    reef_status status = reef_trainer_grow_check(trainer, side, err);
    if (status != REEF_OK) return status;
    trainer->stream.deferred_batches = 0; // they are decided about again
    status = reef_growth_enlarge(trainer, side, err);
    if (status != REEF_OK) return status;
    if (trainer->ops->grown != NULL) trainer->ops->grown(trainer);
    return reef_trainer_commit(trainer, NULL, err);
}

// ---- freeze -------------------------------------------------------------------------------------

static int ascending_counts(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// The count that a share `quantile` of the layer's experts do not exceed.
static reef_status count_of_quantile(const reef_expert_table *table,
                                     double quantile,
                                     uint64_t *out,
                                     reef_error *err) {
    uint64_t *counts = malloc(table->expert_count * sizeof(*counts));
    if (counts == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to sort %zu experts",
                         table->expert_count);
    for (size_t i = 0; i < table->expert_count; i++) counts[i] = table->usage[i].count;
    qsort(counts, table->expert_count, sizeof(*counts), ascending_counts);
    // The lower quantile by rank: with 0.5 of four experts it is the second lowest count.
    *out = counts[(size_t)(quantile * (double)(table->expert_count - 1))];
    free(counts);
    return REEF_OK;
}

static reef_status freeze_layer(reef_expert_table *table,
                                const reef_freeze *freeze,
                                uint64_t *changed,
                                reef_error *err) {
    uint64_t above = 0;
    // 0.0 freezes by number alone; the counts are not even sorted.
    if (freeze->usage_above > 0.0) {
        reef_status status = count_of_quantile(table, freeze->usage_above, &above, err);
        if (status != REEF_OK) return status;
    }
    uint8_t flag = !freeze->thaw;
    for (uint64_t i = freeze->first; i <= freeze->last && i < table->expert_count; i++) {
        // Experts that are used more than the quantile stay as they are: freezing by usage keeps
        // the rare ones.
        if (freeze->usage_above > 0.0 && table->usage[i].count <= above) continue;
        // Only changes are counted, so that repeating a command reports 0.
        *changed += table->flags[i] != flag;
        if (!freeze->dry_run) table->flags[i] = flag;
    }
    return REEF_OK;
}

static reef_status check_freeze(const reef_trainer *trainer,
                                const reef_freeze *freeze,
                                reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const reef_generation *open = reef_open_generation(trainer);
    uint64_t count = (uint64_t)open->info.side * open->info.side;
    reef_status status = check_net(trainer, err);
    if (status != REEF_OK) return status;
    // -1 stands for every layer.
    if (freeze->layer < -1 || freeze->layer >= (int32_t)config->layers)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "there is no layer %d: the model has 0 to %u",
                         freeze->layer, config->layers - 1);
    if (freeze->layer >= 0 && !reef_layer_retrieves(config, (uint32_t)freeze->layer))
        return reef_fail(
            err, REEF_ERR_INVALID, "layer %d is of kind %s: it has no experts that are retrieved",
            freeze->layer, reef_ffw_text(reef_layer_ffw(config, (uint32_t)freeze->layer)));
    if (freeze->first > freeze->last)
        return reef_fail(err, REEF_ERR_INVALID,
                         "experts %" PRIu64 " to %" PRIu64 " are not a range", freeze->first,
                         freeze->last);
    // REEF_FREEZE_TO_END lets the caller name the end without knowing the side; anything else must
    // exist.
    if (freeze->first >= count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "expert %" PRIu64 " is not in the open generation's 0 to %" PRIu64,
                         freeze->first, count - 1);
    if (freeze->last >= count && freeze->last < REEF_FREEZE_TO_END)
        return reef_fail(err, REEF_ERR_INVALID,
                         "expert %" PRIu64 " is not in the open generation's 0 to %" PRIu64,
                         freeze->last, count - 1);
    // Written so that NaN is refused as well.
    if (!(freeze->usage_above >= 0.0 && freeze->usage_above < 1.0))
        return reef_fail(err, REEF_ERR_INVALID, "usage_above %g is not in 0 to 1",
                         freeze->usage_above);
    return REEF_OK;
}

reef_status reef_trainer_freeze(reef_trainer *trainer,
                                const reef_freeze *freeze,
                                uint64_t *changed,
                                reef_error *err) {
    *changed = 0;
    reef_generation *open = reef_open_generation(trainer);
    reef_status status = check_freeze(trainer, freeze, err);
    for (uint32_t l = 0; status == REEF_OK && l < trainer->network.config.layers; l++) {
        if (open->expert_tables[l].expert_count == 0 ||
            (freeze->layer >= 0 && (uint32_t)freeze->layer != l))
            continue;
        status = freeze_layer(&open->expert_tables[l], freeze, changed, err);
    }
    // What changes nothing is no event.
    if (status != REEF_OK || freeze->dry_run || *changed == 0) return status;
    // Freezing changes what the next step may train, so it is committed at once; a restart must
    // find the same experts frozen.
    status = reef_state_event(trainer, err, freeze->thaw ? "thaw" : "freeze", "\"experts\": %llu",
                              (unsigned long long)*changed);
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}
