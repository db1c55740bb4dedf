// How people write an amount of bytes: see reef_memory_parse.
#include "reef_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_memory_parse(const char *text, uint64_t *bytes, reef_error *err) {
    static const char UNITS[] = "KMGTkmgt";
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(UNITS, *end) : NULL;
    // A unit's position among the four is its power of 1024, minus one.
    unsigned shift = unit != NULL ? 10 * (unsigned)((unit - UNITS) % 4 + 1) : 0;
    // strtoull takes signs and leading blanks; a number starts with a digit.
    bool good = text[0] >= '0' && text[0] <= '9' && errno == 0 && value > 0 &&
                end[unit != NULL] == '\0' && value <= UINT64_MAX >> shift;
    if (!good)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "'%.64s' is not an amount of memory: a whole number of bytes, or with K, M, G "
            "or T, such as 2G",
            text);
    *bytes = (uint64_t)value << shift;
    return REEF_OK;
}
