// What the system is asked: the time, threads, and the descriptors of standard streams.
#ifndef REEF_SYSTEM_H
#define REEF_SYSTEM_H

#include "reef_error.h"

#include <pthread.h>
#include <stdint.h>

/** Seconds of a monotonic clock. */
double reef_seconds(void);
/** Seconds of a processor that the calling thread has used. */
double reef_cpu_seconds(void);
/** The same of all threads of the process. */
double reef_process_cpu_seconds(void);
/** Milliseconds since 1970, by the wall clock. A signal handler may call it. */
uint64_t reef_unix_ms(void);

/**
 * As pthread_create, with signals blocked: they belong to the program's own threads. Except signals
 * that a thread raises itself, as when it reads rows in place from a failing disk: blocked, they
 * would end the process whatever handler it has. Returns 0 or an error number.
 */
REEF_API int reef_thread_start(pthread_t *out, void *(*run)(void *context), void *context);

/**
 * The calling thread gives way to others: its niceness becomes `niceness`, 0 to 19 (Linux keeps one
 * for each thread, see sched(7)), unless it is higher already. Threads that it starts later inherit
 * that. Where the system refuses it (a seccomp filter), nothing changes.
 */
REEF_API void reef_thread_give_way(int niceness);

/**
 * Hold the numbers of standard input, output and error, where one of them is closed: no file that
 * is opened later gets them, and with them what others print. Reading and writing there still fail
 * with EBADF. Every opening of a pool does it; a program that opens other files does it first.
 * Nothing else may open files meanwhile.
 */
REEF_API void reef_std_fds_reserve(void);

#endif
