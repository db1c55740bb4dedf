// Threads of our own beside those of the program.
#ifndef REEF_THREAD_H
#define REEF_THREAD_H

#include "reef_error.h"

#include <pthread.h>

/**
 * As pthread_create, with signals blocked: they belong to the program's own threads. Except signals
 * that a thread raises itself, as when it reads rows in place from a failing disk: blocked, they
 * would end the process whatever handler it has. Returns 0 or an error number.
 */
REEF_API int reef_thread_start(pthread_t *out, void *(*run)(void *context), void *context);

#endif
