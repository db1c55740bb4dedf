// Stride scheduling (Waldspurger and Weihl 1995): several queues of bytes become one stream, by
// position.
//
// A queue of weight w that has given g bytes has the pass g / w. The queue with the lowest pass is
// current, the first one of equals, and stays so for a slice: whole lines, slice_bytes of them or
// more. So the stream is a function of what the queues hold, not of when it came; a
// restarted daemon makes the same stream.
//
// In a pool that watches lines the queue whose next line has the earliest time is current, the first
// one of equals, for that line (scheduler.c finds it): so its watch judges old lines of several
// logs as they were written. Its pass is the time of its last line, in ms since 1970.
//
// Only one thing follows the clock: a queue that is empty for too long becomes idle, so that others
// need not wait, and is active again when it has bytes. Such a decision is written to the pool
// before it takes effect (see below), together with its position in the stream, and is
// repeated at the same position.
#ifndef REEF_STRIDE_H
#define REEF_STRIDE_H

#include "reef_error.h"
#include "reef_store.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_SLICE_BYTES 4096            // at least, unless another number is set; whole lines
#define REEF_SLICE_BYTES_MAX (64u << 10) // a line that is longer is cut here
#define REEF_STRIDE_NONE SIZE_MAX

typedef struct reef_stride_queue {
    const char *name;
    uint32_t weight;
    uint64_t pass;       // where it stands, in thousandths of bytes per weight, or by time
    bool idle;           // empty for too long: the others continue without it
    bool fresh;          // active again without a full slice yet: it may become idle at once
    uint64_t back_bytes; // that it gave since then
    bool partial;        // its last byte was inside a line
    bool done;           // has ended: never current again
} reef_stride_queue;

typedef struct reef_stride {
    reef_stride_queue *queues; // the caller's
    size_t count;
    uint64_t slice_bytes; // 1 to REEF_SLICE_BYTES_MAX; reef_stride_init sets REEF_SLICE_BYTES
    bool by_time;         // a pass is a time, which reef_stride_begin sets
    size_t current;       // the queue of this slice, or REEF_STRIDE_NONE: to be found
    uint64_t given;       // in this slice
    uint64_t total;       // in all slices
    uint64_t decided;     // number of the last decision that took effect
} reef_stride;

/** Begin; with `count` 1 nothing is ever decided. */
void reef_stride_init(reef_stride *stride, reef_stride_queue *queues, size_t count);
/** The current queue; REEF_STRIDE_NONE if all have ended or are idle. */
size_t reef_stride_next(reef_stride *stride);
/** By time: a line of this queue is next. */
void reef_stride_begin(reef_stride *stride, size_t queue, uint64_t time_ms);
/** How many of the next `count` waiting bytes of that queue belong to its slice; 1 or more. */
size_t reef_stride_share(const reef_stride *stride, const uint8_t *bytes, size_t count);
/** These were trained, at most its share. */
void reef_stride_took(reef_stride *stride, const uint8_t *bytes, size_t count);
/**
 * Make a queue current out of order: at the end, when only bytes that cannot be read again are
 * trained.
 */
void reef_stride_give_to(reef_stride *stride, size_t queue);
/** The queue has ended. */
void reef_stride_done(reef_stride *stride, size_t queue);
/** A decision takes effect: the queue becomes idle, or active again. */
void reef_stride_set_idle(reef_stride *stride, size_t queue, bool idle);

/** Everything but weights and ended queues, as JSON. */
json_t *reef_stride_save(const reef_stride *stride);
/**
 * Continue from a saved state. Unknown queues begin at the lowest pass of the others, or at the
 * highest if all are idle; queues that no longer exist are forgotten.
 *
 * Errors: CORRUPT it is nothing that reef_stride_save made.
 */
REEF_MUST_CHECK reef_status reef_stride_load(reef_stride *stride,
                                             const json_t *saved,
                                             reef_error *err);

// ---- what the pool keeps of it ------------------------------------------------------------------
//
// The parts of the stream's order that must survive, in the pool's journal: the scheduler's state,
// decisions that are not in a commit yet, and the read positions of live sources. docs/FORMAT.md
// has the records.

// of its journal records; no live source has a name without a colon
#define REEF_STRIDE_NAME "turns"

/** A queue becomes idle, or active again, from a position of the stream on. */
typedef struct reef_schedule_choice {
    uint64_t number; // one more than the one before
    uint64_t at;     // `total` of the stride when it was made
    bool idle;
    char *queue; // its name, on the heap
} reef_schedule_choice;

typedef struct reef_decisions {
    reef_schedule_choice *items; // (count) by number
    size_t count;
} reef_decisions;

void reef_decisions_release(reef_decisions *decisions);

/**
 * Load what the last commit left, and the decisions that were made after it.
 * Errors: CORRUPT records that make no sense; those of reading.
 */
REEF_MUST_CHECK reef_status reef_stride_read(reef_store *store,
                                             reef_stride *stride,
                                             reef_decisions *after,
                                             reef_error *err);
/**
 * In a commit: the present state of the stride; decisions that took effect before are deleted.
 */
REEF_MUST_CHECK reef_status reef_stride_write(reef_txn *txn,
                                              const reef_stride *stride,
                                              reef_error *err);
REEF_MUST_CHECK reef_status reef_decision_write(reef_txn *txn,
                                                const reef_schedule_choice *decision,
                                                reef_error *err);
/** Remove all decisions after the commit's. */
REEF_MUST_CHECK reef_status reef_decisions_drop(reef_txn *txn,
                                                const reef_decisions *after,
                                                reef_error *err);

/**
 * The checkpoint that locates byte `begin` of a live source. NOT_FOUND leaves it NULL; otherwise it
 * is the caller's.
 */
REEF_MUST_CHECK reef_status reef_source_checkpoint_read(
    reef_store *store, const char *source, uint64_t *begin, char **checkpoint, reef_error *err);
REEF_MUST_CHECK reef_status reef_source_checkpoint_write(
    reef_txn *txn, const char *source, uint64_t begin, const char *checkpoint, reef_error *err);

#endif
