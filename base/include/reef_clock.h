// What time it is, for records, and how much of it passes, for status and bench.
#ifndef REEF_CLOCK_H
#define REEF_CLOCK_H

#include <stdint.h>

/** Seconds of a monotonic clock. */
double reef_seconds(void);
/** Milliseconds since 1970. */
uint64_t reef_unix_ms(void);

#endif
