// The context memory's part of a training step: it learns the batch while the net does.
//
// The memory takes what the net said of the batch before the net learned from it, and gives the net
// nothing. So the two may run side by side, and the bits are those of one after the other.
#ifndef REEF_MEMORY_STEP_H
#define REEF_MEMORY_STEP_H

#include "trainer_internal.h"

#include <pthread.h>

typedef struct reef_memory_step {
    reef_trainer *trainer;
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
 * net  its forward pass has just been run
 */
void reef_memory_step_begin(reef_memory_step *step, reef_trainer *trainer, bool net);

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
 * See how full the open generation's memory is, for people, if it has learned enough since the last
 * look. Changes nothing that is learned.
 */
void reef_memory_step_refresh_stats(reef_trainer *trainer);

/** What is known of it. */
void reef_memory_step_describe(const reef_trainer *trainer, reef_memory_status *out);

/**
 * What the memory would say of a batch, if it began to read there: its mean surprise. Learns
 * nothing. `bytes` has one more than a batch.
 */
REEF_MUST_CHECK reef_status reef_memory_step_probe(const reef_trainer *trainer,
                                                   const uint8_t *bytes,
                                                   double *bits,
                                                   reef_error *err);

#endif
