// See reef_system.h and reef_fail_point.h.
#define _GNU_SOURCE // for gettid and O_PATH

#include "reef_fail_point.h"
#include "reef_system.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

// ---- time ---------------------------------------------------------------------------------------

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

// ---- threads ------------------------------------------------------------------------------------

int reef_thread_start(pthread_t *out, void *(*run)(void *context), void *context) {
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(out, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void reef_thread_give_way(int niceness) {
    const id_t thread = (id_t)gettid();
    errno = 0; // -1 is a niceness too
    int now = getpriority(PRIO_PROCESS, thread);
    if (errno == 0 && now < niceness) (void)setpriority(PRIO_PROCESS, thread, niceness);
}

// ---- descriptors --------------------------------------------------------------------------------

// A process that was started without standard input, output or error gets its number for the next
// file that it opens. When that is a pool's data file, whatever prints a message writes it over the
// pool's first page.
void reef_std_fds_reserve(void) {
    // The lowest free number is given; whoever reads or writes there gets EBADF, as if nothing were
    // open.
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/", O_PATH);
}

// ---- fail points --------------------------------------------------------------------------------
//
// The only code of a library that reads the environment, and in test builds only.

#ifdef REEF_FAIL_POINTS
static const char *const names[] = {
#define REEF_FAIL_POINT_NAME(upper, name) name,
    REEF_FAIL_POINT_LIST(REEF_FAIL_POINT_NAME)
#undef REEF_FAIL_POINT_NAME
};

void reef_fail_point_reach(reef_fail_point point) {
    static atomic_ulong reached; // how often, of the one point that counts
    const char *wanted = getenv("REEF_FAIL_POINT");
    size_t length = strlen(names[point]);
    if (wanted == NULL || strncmp(wanted, names[point], length) != 0) return;
    if (wanted[length] != '\0' && wanted[length] != ':') return;
    unsigned long nth = wanted[length] == ':' ? strtoul(wanted + length + 1, NULL, 10) : 1;
    if (atomic_fetch_add(&reached, 1) + 1 == nth) (void)raise(SIGKILL);
}
#endif
