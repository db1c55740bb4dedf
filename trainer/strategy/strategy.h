// Strategies: what a boundary does to the model. `generations` seals one generation and opens the
// next (boundary.c). The baselines keep one generation open for ever and count tasks instead; they
// share stream, drift test, optimiser and sampling with it, so that a comparison compares the
// strategy alone.
//
//   strategy.c         the counter of tasks, what freezes, which baseline does what when
//   replay.c  replay: windows of earlier tasks in every step
//   ewc.c     ewc: a penalty on change, stiff where the old data's gradients were large
//   lwf.c     lwf: distillation from the model of the last boundary
//   sparse_memory.c  sparse-memory: the few rows that matter to the new data and not to the old
//   grid.c    grid: new rows in the same grid, everything else frozen
//   strategy_checkpoint.c   what baselines keep beside the model, as records
#ifndef REEF_STRATEGY_H
#define REEF_STRATEGY_H

#include "enlarge.h"
#include "strategy_state.h"
#include "trainer_internal.h"
#include "trainer_state.h"

void reef_strategy_release(reef_strategy *strategy);

// ---- elastic weight consolidation ---------------------------------------------------------------

/** Zero memory for one float per parameter. */
REEF_MUST_CHECK reef_status reef_shadow_init(reef_shadow *shadow,
                                             const reef_generation *generation,
                                             reef_error *err);
void reef_shadow_release(reef_shadow *shadow); // accepts the zeroed one

// ---- learning without forgetting ----------------------------------------------------------------

/**
 * Distillation of one token (Hinton et al. 2015): KL(p || q) in nats, with p and q the softmax of
 * the teacher's and the student's logits (V) divided by `temperature`. Adds weight times its
 * gradient with respect to the student's logits to d_logits (V), when that is not NULL.
 */
double reef_distill(size_t V,
                    float *d_logits,
                    const float *student,
                    const float *teacher,
                    float temperature,
                    float weight);

// ---- sparse memory finetuning -------------------------------------------------------------------

/** One expert that a step chose, and what TF-IDF thinks of it. */
typedef struct reef_scored_expert {
    double score;
    reef_expert_id expert;
} reef_scored_expert;

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
                          reef_scored_expert *scratch);

// ---- grid ---------------------------------------------------------------------------------------

/**
 * The smallest side with at least as many new experts as a new generation of `side_new` would have.
 */
uint32_t reef_grid_side(uint32_t side, uint32_t side_new);

// ---- strategy.c --------------------------------------------------------------------------------

/**
 * What baselines do at a boundary, in memory: the next task begins. INVALID with `joint`.
 */
REEF_MUST_CHECK reef_status reef_strategy_boundary(reef_trainer *trainer,
                                                   const reef_opening *opening,
                                                   reef_error *err);
/** Freeze in the open generation what the strategy does not train (any more). */
void reef_strategy_freeze(reef_trainer *trainer);
/** Before backward: what is different about this step's update of experts. */
void reef_strategy_update(reef_trainer *trainer, reef_network_update *update);
/** After backward: what is added to the gradients of dense tensors. */
void reef_strategy_gradients(reef_trainer *trainer);
/** Does a teacher's opinion join the loss? Then forward leaves logits for reef_lwf_gradient. */
bool reef_strategy_distills(const reef_trainer *trainer);

// ---- strategy_checkpoint.c ---------------------------------------------------------------------

/** What the last boundary made, into the transaction; nothing when an earlier commit has it. */
REEF_MUST_CHECK reef_status reef_strategy_put(reef_trainer *trainer,
                                              reef_txn *txn,
                                              reef_error *err);
/** After reef_state_load: what the last boundary made. */
REEF_MUST_CHECK reef_status reef_strategy_load(reef_trainer *trainer,
                                               reef_txn *txn,
                                               reef_error *err);

// ---- ewc.c -------------------------------------------------------------------------------------

REEF_MUST_CHECK reef_status reef_ewc_boundary(reef_trainer *trainer, reef_error *err);
void reef_ewc_pull_rows(reef_trainer *trainer, reef_network_update *update);
void reef_ewc_pull_dense(reef_trainer *trainer);

// ---- grid.c ------------------------------------------------------------------------------------

/** Grow by as many experts as a generation of that side would have. */
REEF_MUST_CHECK reef_status reef_grid_boundary(reef_trainer *trainer,
                                               uint32_t side_new,
                                               reef_error *err);

// ---- lwf.c -------------------------------------------------------------------------------------

/** Memory for a teacher of the open generation's shape. */
REEF_MUST_CHECK reef_status reef_lwf_prepare(reef_trainer *trainer, reef_error *err);
REEF_MUST_CHECK reef_status reef_lwf_boundary(reef_trainer *trainer, reef_error *err);
/** Replace the logits that forward left by the gradient of the loss with distillation. */
REEF_MUST_CHECK reef_status reef_lwf_gradient(reef_trainer *trainer,
                                              const reef_batch *batch,
                                              reef_error *err);

// ---- replay.c ----------------------------------------------------------------------------------

/** Place windows of earlier tasks behind the stream's; returns how many. 0 but with `replay`. */
size_t reef_replay_add(reef_trainer *trainer);

// ---- sparse_memory.c ---------------------------------------------------------------------------

/** Memory for the counts of the background. */
REEF_MUST_CHECK reef_status reef_sparse_prepare(reef_trainer *trainer, reef_error *err);
REEF_MUST_CHECK reef_status reef_sparse_boundary(reef_trainer *trainer, reef_error *err);
const uint8_t *reef_sparse_freeze(void *trainer, uint32_t l, const reef_expert_pairs *pairs);

#endif
