// Whose turn it is: several lanes of bytes made into one stream, by position.
//
// A lane of weight w that has given g bytes stands at g / w. The lane that stands lowest has the
// turn, the first one of equals, and keeps it for a slice: whole records, REEF_SLICE_BYTES of them
// or more. So the stream is a function of what the lanes hold, not of when it came; a daemon that
// was killed makes the same one again.
//
// Only one thing follows the clock: a lane that has nothing for too long sits out, so that others
// need not wait, and comes back when it has something again. Such a decision is written to the pool
// before it takes effect (stride_checkpoint.c), together with where in the stream it was made, and
// is made at the same place again.
#ifndef REEF_STRIDE_H
#define REEF_STRIDE_H

#include "reef_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_SLICE_BYTES 4096            // a turn is at least so long, to the end of a record
#define REEF_SLICE_BYTES_MAX (64u << 10) // a line that is longer is cut here
#define REEF_STRIDE_NONE SIZE_MAX

typedef struct reef_stride_queue {
    const char *name;
    uint32_t weight;
    uint64_t pass; // where it stands, in thousandths of bytes per weight
    bool idle;     // sits out
    bool fresh;    // came back and has not given a slice yet: it may sit out at once
    bool partial;  // its last byte was inside a record
    bool done;     // has ended: never its turn again
} reef_stride_queue;

typedef struct reef_stride {
    reef_stride_queue *queues; // the caller's
    size_t count;
    size_t record_bytes; // of a vector's record; 0: records are lines
    size_t current;      // whose turn it is, or REEF_STRIDE_NONE: to be found
    uint64_t given;      // in this turn
    uint64_t total;      // in all turns
    uint64_t decided;    // number of the last decision that took effect
} reef_stride;

/** Begin; where lanes have `count` 1 there is nothing to decide. */
void reef_stride_init(reef_stride *stride,
                      reef_stride_queue *queues,
                      size_t count,
                      size_t record_bytes);
/** The lane whose turn it is; REEF_STRIDE_NONE when all have ended or sit out. */
size_t reef_stride_next(reef_stride *stride);
/** How many of the next `count` waiting bytes of that lane belong to its turn; 1 or more. */
size_t reef_stride_share(const reef_stride *stride, const uint8_t *bytes, size_t count);
/** These were trained, at most its share. */
void reef_stride_took(reef_stride *stride, const uint8_t *bytes, size_t count);
/** The lane goes on out of turn: at the end, when only what cannot be read again is trained. */
void reef_stride_give_to(reef_stride *stride, size_t queue);
/** The lane has ended. */
void reef_stride_done(reef_stride *stride, size_t queue);
/** A decision takes effect: the lane sits out, or is back. */
void reef_stride_set_idle(reef_stride *stride, size_t queue, bool idle);

/** Everything but weights and lanes that have ended, as JSON. */
json_t *reef_stride_save(const reef_stride *stride);
/**
 * Go on from what was saved. Lanes that it does not know begin where the lowest of the others
 * stands, of those that sit out the highest where all do; those that are gone are forgotten.
 *
 * Errors: CORRUPT it is nothing that reef_stride_save made.
 */
REEF_MUST_CHECK reef_status reef_stride_load(reef_stride *stride,
                                             const json_t *saved,
                                             reef_error *err);

#endif
