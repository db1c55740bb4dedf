// What a strategy other than generations keeps beside the model: see trainer/strategy.
#ifndef REEF_STRATEGY_STATE_H
#define REEF_STRATEGY_STATE_H

#include "activations.h"
#include "architecture.h"

/** One float for every parameter of the open generation, in the same order. */
typedef struct reef_shadow {
    float *values;                     // (value_count) of its tensors
    float *rows[REEF_LAYER_COUNT_MAX]; // (N, row values) of its experts; NULL if it has none
} reef_shadow;

/** What a baseline has beside the model. All of it is part of a commit but the scratch. */
typedef struct reef_strategy {
    reef_strategy_kind kind;
    uint32_t task;      // boundaries so far; always 0 with generations
    uint64_t task_at;   // position in the stream of the last one
    uint64_t task_from; // generation_step at the last one
    bool dirty;         // what the last boundary made is in no commit yet

    reef_shadow anchor, fisher;                   // ewc, from the first boundary on
    reef_expert_pull pulls[REEF_LAYER_COUNT_MAX]; // ewc, scratch: both, for the update of rows

    reef_generation *teacher;  // lwf, from the first boundary on: the model of the last one, sealed
    reef_activations listened; // lwf, scratch: the teacher's pass over a batch

    // sparse-memory: windows of old data that used a row
    uint32_t *background[REEF_LAYER_COUNT_MAX];
    uint32_t background_windows;         // sparse-memory: of this many
    uint8_t *kept[REEF_LAYER_COUNT_MAX]; // sparse-memory, scratch: 1: not changed by this step
    struct reef_scored_expert *slots;    // sparse-memory, scratch: (N) to be sorted

    uint32_t grid_side; // grid: side before the last boundary; what it had is frozen
} reef_strategy;

/** Does the strategy keep one generation? Then boundaries count tasks. */
static inline bool reef_strategy_is_baseline(const reef_strategy *strategy) {
    return strategy->kind != REEF_STRATEGY_GENERATIONS;
}
/** Joint training never searches for a boundary, by whatever policy. */
static inline bool reef_strategy_has_boundaries(const reef_strategy *strategy) {
    return strategy->kind != REEF_STRATEGY_JOINT;
}

#endif
