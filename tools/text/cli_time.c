// Times as people type them.
#include "cli_time.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Does the text have a digit for every 0 of the pattern, and its other characters?
static bool matches(const char *text, const char *pattern) {
    if (strlen(text) != strlen(pattern)) return false;
    for (; *pattern; text++, pattern++)
        if (*pattern == '0' ? !isdigit((unsigned char)*text) : *text != *pattern) return false;
    return true;
}

static int digits(const char *text, size_t count) {
    int value = 0;
    for (size_t i = 0; i < count; i++) value = 10 * value + (text[i] - '0');
    return value;
}

// Reads a day or a moment of it in local time, in the format that cli_time writes.
static bool read_date(const char *text, uint64_t *out) {
    // Exactly these forms: a half-understood time would silently select the wrong range.
    bool day = matches(text, "0000-00-00"), minute = matches(text, "0000-00-00T00:00"),
         second = matches(text, "0000-00-00T00:00:00");
    if (!day && !minute && !second) return false;
    struct tm local = {.tm_year = digits(text, 4) - 1900,
                       .tm_mon = digits(text + 5, 2) - 1,
                       .tm_mday = digits(text + 8, 2),
                       .tm_isdst = -1};
    if (!day) local.tm_hour = digits(text + 11, 2);
    if (!day) local.tm_min = digits(text + 14, 2);
    if (second) local.tm_sec = digits(text + 17, 2);
    const struct tm asked = local;
    time_t seconds = mktime(&local);
    // mktime() would take the 31st of February as a day of March.
    if (seconds < 0 || local.tm_mday != asked.tm_mday || local.tm_mon != asked.tm_mon ||
        asked.tm_hour > 23 || asked.tm_min > 59 || asked.tm_sec > 59)
        return false;
    *out = (uint64_t)seconds * 1000u;
    return true;
}

// Reads "3h" or "3h ago".
static bool read_ago(const char *text, uint64_t now_ms, uint64_t *out) {
    static const struct {
        char letter;
        uint64_t ms;
    } UNITS[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', 86400000}, {'w', 604800000}};
    size_t count = strspn(text, "0123456789");
    // Nine digits cannot overflow below.
    if (count == 0 || count > 9) return false;
    const char *unit = text + count;
    if (!*unit || (unit[1] && strcmp(unit + 1, " ago") != 0)) return false;
    for (size_t i = 0; i < sizeof(UNITS) / sizeof(UNITS[0]); i++) {
        if (UNITS[i].letter != *unit) continue;
        uint64_t ago = strtoull(text, NULL, 10) * UNITS[i].ms;
        // Before the epoch is the epoch.
        *out = ago < now_ms ? now_ms - ago : 0;
        return true;
    }
    return false;
}

bool reef_cli_time_parse(const char *text, uint64_t now_ms, uint64_t *out) {
    return read_date(text, out) || read_ago(text, now_ms, out);
}
