// The context memory's part of a training step: it learns the batch while the net does.
//
// The memory reads the net's predictions of the batch, made before the net learned from it, and the
// net reads nothing of the memory. So both may run at once, with the same bits as one after the
// other.
#ifndef REEF_MEMORY_STEP_H
#define REEF_MEMORY_STEP_H

#include "trainer_internal.h"

#include <pthread.h>

typedef struct reef_memory_step {
    reef_trainer *trainer;
    reef_generation_memory *memory; // not owned
    bool runs, net, threaded;
    pthread_t thread;
    reef_status status;
    reef_error error;
} reef_memory_step;

/**
 * Begin to learn the first pending batch, on a thread of its own where the trainer may use two.
 * Nothing in a pool without context memories. Pending bytes and predictions stay as they are until
 * reef_memory_step_end.
 *
 * memory  that learns it
 * net     its forward pass has just been run
 */
void reef_memory_step_begin(reef_memory_step *step,
                            reef_trainer *trainer,
                            reef_generation_memory *memory,
                            bool net);

/**
 * Wait for it. bits: written where the pool has context memories; the mean surprise of the batch,
 * with what the net knew. Losses are counted by source.
 *
 * Errors: NO_MEMORY: the trainer is broken then, since the net has learned the batch.
 */
REEF_MUST_CHECK reef_status reef_memory_step_end(reef_memory_step *step,
                                                 double *bits,
                                                 reef_error *err);

/**
 * The open generation's memory learns the batch at `bytes` (one more than a batch), which stands at
 * `begin` in the stream. The first of them it learns only where it has not yet.
 *
 * net   the forward pass of the batch has just been run, and nothing trained on it yet
 * bits  written; the mean surprise
 *
 * Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_memory_step_learn(const reef_trainer *trainer,
                                                   const uint8_t *bytes,
                                                   uint64_t begin,
                                                   bool net,
                                                   double *bits,
                                                   reef_error *err);

/**
 * Count again how full the open generation's memory is, for status, if it has learned enough since
 * the last count. Changes nothing that is learned.
 */
void reef_memory_step_refresh_stats(reef_trainer *trainer);

/**
 * The last counts, and what memories know without counting: `memory` and `kind_memory` of a status
 * whose `kind` is known.
 */
void reef_memory_step_describe(const reef_trainer *trainer, reef_trainer_status *out);

/**
 * Score a batch by the memory, as a text that begins there: its mean surprise. Learns nothing.
 * `bytes` has one more than a batch. Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_memory_step_probe(const reef_trainer *trainer,
                                                   const uint8_t *bytes,
                                                   double *bits,
                                                   reef_error *err);

#endif
