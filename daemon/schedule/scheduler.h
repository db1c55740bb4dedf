// What is trained next: the queues (queues.h), the order between them (stride.h), and how long an
// empty queue is waited for. Without a lock of its own: training_thread.c calls under its own.
#ifndef REEF_SCHEDULER_H
#define REEF_SCHEDULER_H

#include "queues.h"
#include "stride_checkpoint.h"

typedef enum reef_schedule_kind {
    REEF_SCHEDULE_NOTHING, // wait, at most until the deadline
    REEF_SCHEDULE_BYTES,   // train these
    REEF_SCHEDULE_DECIDE,  // write the decision, then reef_schedule_decided
    // decisions that cannot be made again: write that, then reef_schedule_forgot
    REEF_SCHEDULE_FORGET,
} reef_schedule_kind;

typedef struct reef_schedule_next {
    reef_schedule_kind kind;
    size_t queue;
    const uint8_t *bytes; // (count) lent until they are taken
    size_t count;
    bool idle;            // a decision: the queue becomes idle, or active again
    uint64_t deadline_ns; // of uv_hrtime; UINT64_MAX: only a change helps
} reef_schedule_next;

typedef struct reef_schedule {
    reef_queues queues;
    reef_stride stride;
    reef_stride_queue *stride_queues; // (queues.count)
    uint64_t *idle_since;  // (queues.count) since when it is idle, of uv_hrtime; 0 before this run
    uint64_t *empty_since; // (queues.count) since when its ring is empty; 0: it is not
    reef_decisions after;  // of the run before, after its last commit
    size_t applied;        // how many of them took effect again
    uint64_t patience_ns;
    bool stopping;
} reef_schedule;

/**
 * Queues of the sources, and the stride as the pool's last commit has it. Release also after an
 * error.
 */
REEF_MUST_CHECK reef_status reef_schedule_init(reef_schedule *schedule,
                                               reef_store *store,
                                               const reef_input *inputs,
                                               size_t count,
                                               double patience_s,
                                               reef_error *err);
void reef_schedule_release(reef_schedule *schedule);

/**
 * Find what is next at time `now_ns`; lent bytes or a decision are dealt with before the next call.
 */
void reef_schedule_find(reef_schedule *schedule, uint64_t now_ns, reef_schedule_next *next);
/**
 * The first `count` of the lent bytes were trained; true if the loop waits for room and now has it.
 */
bool reef_schedule_took(reef_schedule *schedule, const reef_schedule_next *next, size_t count);
/** For a REEF_SCHEDULE_DECIDE: what has to be written; the queue's name is borrowed. */
reef_schedule_choice reef_schedule_decision(const reef_schedule *schedule,
                                            const reef_schedule_next *next);
/** It was written and takes effect. */
void reef_schedule_decided(reef_schedule *schedule,
                           const reef_schedule_next *next,
                           uint64_t now_ns);
void reef_schedule_forgot(reef_schedule *schedule);
/** Only what cannot be read again is trained from now on. */
void reef_schedule_stop(reef_schedule *schedule);
/** Whether every source has ended and was trained. */
bool reef_schedule_is_done(const reef_schedule *schedule);

#endif
