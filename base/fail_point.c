// See reef_fail_point.h. The only code of a library that reads the environment, and in test builds
// only.
#include "reef_fail_point.h"

#ifdef REEF_FAIL_POINTS
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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
#else
typedef int reef_fail_point_none; // a file of ISO C declares something
#endif
