// The baselines: one generation that stays open, and a counter of tasks. What a boundary is for
// each of them, what trains afterwards, and how a step of training differs from that of
// generations.
#include "strategy.h"
#include "enlarge.h"
#include "events.h"
#include "trainer_internal.h"

#include <stdlib.h>
#include <string.h>

void reef_strategy_release(reef_strategy *strategy) {
    reef_shadow_release(&strategy->anchor);
    reef_shadow_release(&strategy->fisher);
    reef_generation_free(strategy->teacher);
    reef_activations_release(&strategy->listened);
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        free(strategy->background[l]);
        free(strategy->kept[l]);
    }
    free(strategy->slots);
    *strategy = (reef_strategy){0};
}

// ---- what trains --------------------------------------------------------------------------------

// After the first boundary the dense part stands still, but for sub-keys that the grid has gained.
static size_t trained_at(const reef_strategy *strategy,
                         const reef_config *config,
                         const reef_tensor *tensor) {
    bool sub_keys = strstr(tensor->name, ".sub_keys_") != NULL;
    reef_router_shape shape = reef_generation_shape(config, strategy->grid_side);
    if (strategy->kind == REEF_STRATEGY_GRID && sub_keys)
        return strategy->grid_side * reef_router_key_row(&shape);
    return tensor->count;
}

void reef_strategy_freeze(reef_trainer *trainer) {
    const reef_strategy *strategy = &trainer->strategy;
    const reef_config *config = &trainer->network.config;
    bool freezes =
        strategy->kind == REEF_STRATEGY_SPARSE_MEMORY || strategy->kind == REEF_STRATEGY_GRID;
    if (!freezes || strategy->task == 0) return;
    reef_generation *generation = reef_open_generation(trainer);
    for (size_t i = 0; i < generation->tensor_count; i++)
        generation->tensors[i].trained_at = trained_at(strategy, config, &generation->tensors[i]);
    generation->queries_frozen = true;
    reef_generation_fold(generation, config);
}

// ---- a boundary ---------------------------------------------------------------------------------

static reef_status end_task(reef_trainer *trainer, const reef_opening *opening, reef_error *err) {
    switch (trainer->strategy.kind) {
    case REEF_STRATEGY_EWC:
        return reef_ewc_boundary(trainer, err);
    case REEF_STRATEGY_LWF:
        return reef_lwf_boundary(trainer, err);
    case REEF_STRATEGY_SPARSE_MEMORY:
        return reef_sparse_boundary(trainer, err);
    case REEF_STRATEGY_GRID:
        return reef_grid_boundary(trainer, opening->side, err);
    // finetune, replay and joint keep nothing of the old task in the model.
    default:
        return REEF_OK;
    }
}

// Memory only, as with generations: the next commit writes what it made.
reef_status reef_strategy_boundary(reef_trainer *trainer,
                                   const reef_opening *opening,
                                   reef_error *err) {
    reef_strategy *strategy = &trainer->strategy;
    if (strategy->kind == REEF_STRATEGY_JOINT)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool's strategy is joint, which has no boundaries: its stream is all "
                         "domains mixed");
    double median, spread;
    // The level before the boundary is reported; the test is reset below.
    reef_drift_level(&trainer->drift, &median, &spread);
    strategy->task++; // from here on, what the reservoir has is of earlier tasks
    reef_status status = end_task(trainer, opening, err);
    if (status != REEF_OK) {
        strategy->task--;
        // A refusal (no room, a side too large) changed nothing and training may continue. Any
        // other failure may have left arrays half made.
        // What it refuses it has not begun.
        if (status != REEF_ERR_INVALID && status != REEF_ERR_FULL)
            reef_trainer_break(trainer, status);
        return status;
    }
    strategy->task_at = trainer->stream_bytes;
    strategy->task_from = trainer->generation_step;
    strategy->dirty = true;
    reef_strategy_freeze(trainer);
    // The sample and the drift history are of the task that ended.
    reef_reservoir_clear_sample(&trainer->reservoir);
    reef_drift_reset(&trainer->drift);
    return reef_state_event(trainer, err, "boundary",
                            "\"reason\": \"%s\", \"task\": %u, \"bits_per_byte\": %.4f",
                            opening->reason, strategy->task, median);
}

// ---- a step -------------------------------------------------------------------------------------

void reef_strategy_update(reef_trainer *trainer, reef_network_update *update) {
    reef_strategy *strategy = &trainer->strategy;
    if (strategy->task == 0) return;
    if (strategy->kind == REEF_STRATEGY_EWC) reef_ewc_pull_rows(trainer, update);
    if (strategy->kind == REEF_STRATEGY_SPARSE_MEMORY) {
        update->freeze = reef_sparse_freeze;
        update->freeze_context = trainer;
    }
}

void reef_strategy_gradients(reef_trainer *trainer) {
    if (trainer->strategy.task > 0 && trainer->strategy.kind == REEF_STRATEGY_EWC)
        reef_ewc_pull_dense(trainer);
}

bool reef_strategy_distills(const reef_trainer *trainer) {
    return trainer->strategy.teacher != NULL && trainer->network.config.lwf_weight > 0.0f;
}
