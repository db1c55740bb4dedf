// What time it is, for records, and how much of it passes, for status and bench.
#ifndef REEF_CLOCK_H
#define REEF_CLOCK_H

#include <stdint.h>

/** Seconds of a monotonic clock. */
double reef_seconds(void);
/** Seconds of a processor that the calling thread has used. */
double reef_cpu_seconds(void);
/** The same of all threads of the process. */
double reef_process_cpu_seconds(void);
/** Milliseconds since 1970, by the wall clock. A signal handler may call it. */
uint64_t reef_unix_ms(void);

#endif
