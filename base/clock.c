// See reef_clock.h.
#include "reef_clock.h"

#include <time.h>

static double seconds_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double reef_seconds(void) {
    return seconds_of(CLOCK_MONOTONIC);
}

double reef_cpu_seconds(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

double reef_process_cpu_seconds(void) {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t reef_unix_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}
