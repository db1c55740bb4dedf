// The loss before training, by source: how well each of several sources is known, as its bytes
// come.
//
// Kept in memory since the trainer was opened, for people to watch; nothing depends on it.
#ifndef REEF_PREQUENTIAL_H
#define REEF_PREQUENTIAL_H

#include "reef_trainer.h"

struct reef_trainer;

/**
 * From byte `begin` of the stream on the bytes are of source number `source`, up to the next span.
 */
typedef struct reef_span {
    uint64_t begin;
    size_t source;
} reef_span;

typedef struct reef_prequential {
    reef_span *spans; // (count) those that may hold a byte that was not scored yet
    size_t count, capacity;
    uint64_t scored; // every position before this one was scored
} reef_prequential;

void reef_prequential_release(reef_prequential *prequential);
/** What is accepted next comes from source number `source`. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_prequential_source(struct reef_trainer *trainer,
                                                    size_t source,
                                                    reef_error *err);
/**
 * Item i lies at stream position `begin` + i * `each`; those that were counted before are left out.
 *
 * loss   (count) of each item; below 0: not counted
 * scale  from its unit to bits, or of a wrong answer
 */
void reef_prequential_count(struct reef_trainer *trainer,
                            uint64_t begin,
                            size_t each,
                            const double *loss,
                            double scale,
                            size_t count);

// ---- the last batches that the open generation learned ------------------------------------------

#define REEF_RECENT_LOSSES_H

#include <stdint.h>

#define REEF_RECENT_BATCHES 128 // enough that their median stands still on text of one kind

typedef struct reef_recent_losses {
    uint32_t count, next;             // how many there are; where the next one goes
    double bits[REEF_RECENT_BATCHES]; // a byte, in a ring
} reef_recent_losses;

void reef_recent_losses_add(reef_recent_losses *recent, double bits);
/** NaN where there are none. */
double reef_recent_losses_median(const reef_recent_losses *recent);

#endif
