// Strategies: what a boundary does to the model. `generations` seals one generation and opens the
// next (boundary.c). Its rivals keep one generation open for ever and count tasks instead; they
// share stream, drift test, optimiser and sampling with it, so that a comparison compares the
// strategy alone.
//
//   strategy.c         the counter of tasks, what freezes, which rival does what when
//   replay.c  replay: windows of earlier tasks in every step
//   ewc.c     ewc: a penalty on change, stiff where the old data's gradients were large
//   lwf.c     lwf: distillation from the model of the last boundary
//   sparse_memory.c  sparse-memory: the few rows that matter to the new data and not to the old
//   grid.c    grid: new rows in the same grid, everything else frozen
//   strategy_checkpoint.c   what rivals keep beside the model, as records
#ifndef REEF_STRATEGY_H
#define REEF_STRATEGY_H

#include "strategy_state.h"

void reef_strategy_release(reef_strategy *strategy);

// ---- elastic weight consolidation ---------------------------------------------------------------

/** Zero memory for one float per parameter. */
REEF_MUST_CHECK reef_status reef_shadow_init(reef_shadow *shadow,
                                             const reef_generation *gen,
                                             reef_error *err);
void reef_shadow_release(reef_shadow *shadow); // accepts the zeroed one

// ---- learning without forgetting ----------------------------------------------------------------

/**
 * Distillation of one token (Hinton et al. 2015): KL(p || q) in nats, with p and q the softmax of the
 * teacher's and the student's logits (V) divided by `temperature`. Adds weight times its gradient
 * with respect to the student's logits to d_logits (V), when that is not NULL.
 */
double reef_distill(size_t V,
                    float *d_logits,
                    const float *student,
                    const float *teacher,
                    float temperature,
                    float weight);

// ---- sparse memory finetuning -------------------------------------------------------------------

/** One expert that a step chose, and what TF-IDF thinks of it. */
typedef struct reef_slot {
    double score;
    reef_expert_id expert;
} reef_slot;

/**
 * The `slots` best of the experts that `pairs` have, of those that `flags` (N, or NULL) do not
 * freeze: score = uses * log((windows + 1) / (background + 1)), the lower id first among equals
 * (Lin et al. 2025).
 *
 * kept     (N) written: 0 for the chosen, 1 for all others
 * scratch  (N)
 * returns how many were chosen
 */
size_t reef_sparse_choose(const reef_expert_pairs *pairs,
                          size_t expert_count,
                          const uint32_t *background,
                          uint32_t windows,
                          size_t slots,
                          const uint8_t *flags,
                          uint8_t *kept,
                          reef_slot *scratch);

// ---- grid ---------------------------------------------------------------------------------------

/**
 * The smallest side with at least as many new experts as a new generation of `side_new` would have.
 */
uint32_t reef_grid_side(uint32_t side, uint32_t side_new);

#endif
