// Times as people type them.
#include "cli.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t cli_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

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

// A day or a moment of it, in local time, as cli_time writes them.
static bool read_date(const char *text, uint64_t *out) {
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
    // mktime would take the 31st of February as a day of March.
    if (seconds < 0 || local.tm_mday != asked.tm_mday || local.tm_mon != asked.tm_mon ||
        asked.tm_hour > 23 || asked.tm_min > 59 || asked.tm_sec > 59)
        return false;
    *out = (uint64_t)seconds * 1000u;
    return true;
}

// 3h, or 3h ago.
static bool read_ago(const char *text, uint64_t now_ms, uint64_t *out) {
    static const struct {
        char letter;
        uint64_t ms;
    } UNITS[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', 86400000}, {'w', 604800000}};
    size_t count = strspn(text, "0123456789");
    if (count == 0 || count > 9) return false;
    const char *unit = text + count;
    if (!*unit || (unit[1] && strcmp(unit + 1, " ago") != 0)) return false;
    for (size_t i = 0; i < sizeof(UNITS) / sizeof(UNITS[0]); i++) {
        if (UNITS[i].letter != *unit) continue;
        uint64_t ago = strtoull(text, NULL, 10) * UNITS[i].ms;
        *out = ago < now_ms ? now_ms - ago : 0;
        return true;
    }
    return false;
}

reef_status cli_time_read(
    const cli_call *cli, const char *name, uint64_t now_ms, uint64_t *out, reef_error *err) {
    const char *text = cli_text(cli, name);
    if (!text || read_date(text, out) || read_ago(text, now_ms, out)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--%s is '%.40s', which is no time: write a day such as 2024-05-01, a moment "
                     "such as 2024-05-01T12:00, or how long ago such as 30m, 3h or 2d",
                     name, text);
}

reef_status cli_time_range(
    const cli_call *cli, bool *ranged, uint64_t *since_ms, uint64_t *until_ms, reef_error *err) {
    uint64_t now = cli_now_ms();
    *until_ms = UINT64_MAX;
    *ranged = cli_text(cli, "since") || cli_text(cli, "until");
    reef_status status = cli_time_read(cli, "since", now, since_ms, err);
    if (status == REEF_OK) status = cli_time_read(cli, "until", now, until_ms, err);
    if (status != REEF_OK || *since_ms < *until_ms) return status;
    return reef_fail(err, REEF_ERR_INVALID, "--since '%.40s' is not before --until '%.40s'",
                     cli_text(cli, "since") ? cli_text(cli, "since") : "the beginning",
                     cli_text(cli, "until"));
}
