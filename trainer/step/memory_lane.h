// Batches that a context memory learns, in their order, while the net continues with the next ones.
//
//   trainer's thread   forward 1 | backward 1           | forward 3 | backward 3        | wait
//   thread of the lane         0 | 1 (what the net said)  2         | 3
//
// The memory reads the net's predictions of a batch, which are copied into the lane before the net
// learns from that batch, and the net reads nothing of the memory. So both may run at once, with
// the same bits as one after the other. What follows from a batch's cost, such as the history of
// the loss, waits until the lane is empty.
#ifndef REEF_MEMORY_LANE_H
#define REEF_MEMORY_LANE_H

#include "trainer_internal.h"

typedef struct reef_memory_lane reef_memory_lane;

/** A batch in the lane. Arrays belong to the lane. */
typedef struct reef_memory_job {
    uint64_t begin;                   // where it stands in the stream
    uint64_t step;                    // of the trainer, before it counted the batch
    uint8_t *bytes;                   // one more than a batch
    bool has_net;                     // the net predicted it
    reef_net_prediction *predictions; // (batch * context) of the targets
    float *bits;                      // (batch * context) written: what each target surprised
} reef_memory_job;

/** Room for batches of that size. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_memory_lane_new(reef_memory_lane **out,
                                                 const reef_config *config,
                                                 reef_error *err);

/** Accepts NULL. The lane is empty. */
void reef_memory_lane_free(reef_memory_lane *lane);

bool reef_memory_lane_is_empty(const reef_memory_lane *lane);
bool reef_memory_lane_is_full(const reef_memory_lane *lane);

/** The next batches are for that memory, which stays where it is until the lane is cleared. */
void reef_memory_lane_open(reef_memory_lane *lane, reef_generation_memory *memory);

/**
 * Add a batch, which is copied.
 *
 * bytes        (a batch and one more)
 * predictions  (batch * context), or NULL: the net did not read the batch
 */
void reef_memory_lane_add(reef_memory_lane *lane,
                          uint64_t begin,
                          uint64_t step,
                          const uint8_t *bytes,
                          const reef_net_prediction *predictions);

/** Begin to learn what is added, on a thread of the lane's own, where `threads` is above 1. */
void reef_memory_lane_start(reef_memory_lane *lane, size_t threads);

/**
 * Wait until all are learned, on this thread where none was started. Batches can be read until the
 * lane is cleared. Errors: NO_MEMORY; the memory is then only good for release.
 */
REEF_MUST_CHECK reef_status reef_memory_lane_wait(reef_memory_lane *lane, reef_error *err);

size_t reef_memory_lane_count(const reef_memory_lane *lane);
const reef_memory_job *reef_memory_lane_job(const reef_memory_lane *lane, size_t i);
void reef_memory_lane_clear(reef_memory_lane *lane);

#endif
