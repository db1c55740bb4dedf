// The losses of the last batches that the open generation learned, for people.
#ifndef REEF_RECENT_LOSSES_H
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
