// See kept_states.h. Pure functions.
#include "kept_states.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PREFIX "auto-"
#define KEEP_MAX 100000
#define HOUR_MS 3600000u

// ---- the policy ---------------------------------------------------------------------------------

static uint32_t *find_rule(reef_keep_policy *policy, const char *word, size_t length) {
    const struct {
        const char *name;
        uint32_t *count;
    } rules[] = {
        {"hourly", &policy->hourly}, {"daily", &policy->daily}, {"weekly", &policy->weekly}};
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (strlen(rules[i].name) == length && memcmp(rules[i].name, word, length) == 0)
            return rules[i].count;
    return NULL;
}

reef_status reef_keep_parse(reef_keep_policy *out, const char *text, reef_error *err) {
    *out = (reef_keep_policy){0};
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, "=,");
        uint32_t *count = find_rule(out, at, length);
        char *end = NULL;
        errno = 0;
        bool number = at[length] == '=' && at[length + 1] >= '0' && at[length + 1] <= '9';
        unsigned long value = number ? strtoul(at + length + 1, &end, 10) : 0;
        if (count == NULL || !number || errno || value > KEEP_MAX || (*end && *end != ','))
            return reef_fail(err, REEF_ERR_INVALID,
                             "'%.60s' is not what to keep: rules such as " REEF_KEEP_DEFAULT
                             ", each a number up to %d",
                             text, KEEP_MAX);
        *count = (uint32_t)value;
        if (!*end) break;
        at = end;
    }
    if (out->hourly || out->daily || out->weekly) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "'%.60s' keeps nothing", text);
}

// ---- which stay ---------------------------------------------------------------------------------

// Days since 1970-01-01 of a local date.
static int64_t local_day(uint64_t unix_ms) {
    time_t seconds = (time_t)(unix_ms / 1000u);
    struct tm tm;
    if (localtime_r(&seconds, &tm) == NULL) return (int64_t)(unix_ms / (24 * HOUR_MS));
    int64_t years = tm.tm_year - 70; // leap days up to the end of the year before
    int64_t leap = (years + 1) / 4 - (years + 69) / 100 + (years + 369) / 400;
    return years * 365 + leap + tm.tm_yday;
}

static int64_t hour_of(uint64_t unix_ms) {
    return (int64_t)(unix_ms / HOUR_MS);
}

static int64_t week_of(uint64_t unix_ms) {
    return (local_day(unix_ms) + 3) / 7; // 1970-01-01 was a Thursday
}

// The newest state of each of the last `most` periods.
static void keep_last_of(
    int64_t (*period)(uint64_t), uint32_t most, const uint64_t *unix_ms, size_t count, bool *kept) {
    int64_t last = INT64_MIN;
    for (size_t i = count; most > 0 && i-- > 0;) {
        int64_t now = period(unix_ms[i]);
        if (now == last) continue;
        kept[i] = true;
        last = now;
        most--;
    }
}

void reef_keep_choose(const reef_keep_policy *policy,
                      const uint64_t *unix_ms,
                      size_t count,
                      bool *kept) {
    memset(kept, 0, count * sizeof(*kept));
    keep_last_of(hour_of, policy->hourly, unix_ms, count, kept);
    keep_last_of(local_day, policy->daily, unix_ms, count, kept);
    keep_last_of(week_of, policy->weekly, unix_ms, count, kept);
    if (count > 0) kept[count - 1] = true;
}

// ---- names --------------------------------------------------------------------------------------

void reef_keep_name(char out[REEF_NAME_BYTES_MAX + 1], uint64_t unix_ms) {
    time_t seconds = (time_t)(unix_ms / 1000u);
    struct tm tm = {0};
    (void)gmtime_r(&seconds, &tm);
    (void)strftime(out, REEF_NAME_BYTES_MAX + 1, PREFIX "%Y%m%dT%H%M%SZ", &tm);
}

bool reef_keep_has_name(const char *name) {
    const char *pattern = PREFIX "00000000T000000Z";
    if (strlen(name) != strlen(pattern)) return false;
    for (; *name; name++, pattern++)
        if (*pattern == '0' ? *name < '0' || *name > '9' : *name != *pattern) return false;
    return true;
}
