// Which threads a core goes to first.
#ifndef REEF_PRIORITY_H
#define REEF_PRIORITY_H

#include "reef_error.h"

/**
 * The calling thread gives way to others: its niceness becomes `niceness`, 0 to 19 (Linux keeps one
 * for each thread, see sched(7)), unless it is higher already. Threads that it starts later inherit
 * that. Where the system refuses it (a seccomp filter), nothing changes.
 */
REEF_API void reef_thread_give_way(int niceness);

#endif
