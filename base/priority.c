// See reef_priority.h.
#define _GNU_SOURCE // for gettid

#include "reef_priority.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

void reef_thread_give_way(int niceness) {
    const id_t thread = (id_t)gettid();
    errno = 0; // -1 is a niceness too
    int now = getpriority(PRIO_PROCESS, thread);
    if (errno == 0 && now < niceness) (void)setpriority(PRIO_PROCESS, thread, niceness);
}
