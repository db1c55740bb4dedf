// See reef_moment.h.
#include "reef_moment.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Does the text begin with a digit for every 0 of the pattern, and its other characters? A blank
// stands for a blank or a T.
static bool matches(const char *text, const char *pattern) {
    for (; *pattern; text++, pattern++) {
        if (*pattern == '0' ? isdigit((unsigned char)*text) : *text == *pattern) continue;
        if (*pattern != ' ' || *text != 'T') return false;
    }
    return true;
}

static int digits(const char *text, size_t count) {
    int value = 0;
    for (size_t i = 0; i < count; i++) value = 10 * value + (text[i] - '0');
    return value;
}

// timegm is not in POSIX: days are counted from the civil calendar (Richards' algorithm).
static int64_t utc_seconds(const struct tm *tm) {
    int64_t year = (int64_t)tm->tm_year + 1900, month = tm->tm_mon + 1;
    year -= month <= 2;
    int64_t era = year / 400, of_era = year % 400;
    int64_t day = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + tm->tm_mday - 1;
    int64_t days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + day - 719468;
    return ((days * 24 + tm->tm_hour) * 60 + tm->tm_min) * 60 + tm->tm_sec;
}

static bool is_calendar(const struct tm *tm) {
    static const int DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = tm->tm_year + 1900;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return year >= 1970 && tm->tm_mon >= 0 && tm->tm_mon < 12 && tm->tm_mday >= 1 &&
           tm->tm_mday <= DAYS[tm->tm_mon] + (leap && tm->tm_mon == 1) && tm->tm_hour < 24 &&
           tm->tm_min < 60 && tm->tm_sec < 60;
}

// By local time, with its changes between summer and winter.
static bool to_ms(struct tm tm, bool utc, uint64_t *out) {
    tm.tm_isdst = -1;
    int64_t seconds = utc ? utc_seconds(&tm) : (int64_t)mktime(&tm);
    if (seconds < 0) return false;
    *out = (uint64_t)seconds * 1000u;
    return true;
}

static bool read_date(const char *text, reef_moment *out) {
    if (!matches(text, "0000-00-00")) return false;
    struct tm tm = {.tm_year = digits(text, 4) - 1900,
                    .tm_mon = digits(text + 5, 2) - 1,
                    .tm_mday = digits(text + 8, 2)};
    const char *rest = text + 10;
    bool minute = matches(rest, " 00:00"), second = matches(rest, " 00:00:00");
    if (minute) {
        tm.tm_hour = digits(rest + 1, 2);
        tm.tm_min = digits(rest + 4, 2);
        tm.tm_sec = second ? digits(rest + 7, 2) : 0;
        rest += second ? 9 : 6;
    }
    bool utc = minute && strcmp(rest, "Z") == 0;
    if ((*rest && !utc) || !is_calendar(&tm) || !to_ms(tm, utc, &out->first)) return false;
    // The next day, minute or second; mktime and utc_seconds carry over.
    tm.tm_mday += !minute;
    tm.tm_min += minute && !second;
    tm.tm_sec += second;
    if (!to_ms(tm, utc, &out->last)) return false;
    out->last--;
    return true;
}

static bool read_day(const char *text, uint64_t now_ms, reef_moment *out) {
    bool yesterday = strcmp(text, "yesterday") == 0;
    if (!yesterday && strcmp(text, "today") != 0) return false;
    time_t now = (time_t)(now_ms / 1000u);
    struct tm tm;
    if (localtime_r(&now, &tm) == NULL) return false;
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    tm.tm_mday -= yesterday;
    if (!to_ms(tm, false, &out->first)) return false;
    tm.tm_mday++;
    if (!to_ms(tm, false, &out->last)) return false;
    out->last--;
    return true;
}

bool reef_span_parse(const char *text, const char **rest, uint64_t *seconds) {
    static const char UNITS[] = "smhdw";
    static const uint32_t SECONDS[] = {1, 60, 3600, 86400, 604800};
    size_t count = strspn(text, "0123456789");
    const char *unit = text[count] != '\0' ? strchr(UNITS, text[count]) : NULL;
    // Nine digits cannot overflow, also as milliseconds.
    if (count == 0 || count > 9 || unit == NULL) return false;
    *seconds = strtoull(text, NULL, 10) * SECONDS[unit - UNITS];
    *rest = text + count + 1;
    return true;
}

// "3h" or "3h ago".
static bool read_ago(const char *text, uint64_t now_ms, reef_moment *out) {
    const char *rest;
    uint64_t ago;
    if (!reef_span_parse(text, &rest, &ago) || (*rest && strcmp(rest, " ago") != 0)) return false;
    ago *= 1000;
    // Before the epoch is the epoch.
    out->first = out->last = ago < now_ms ? now_ms - ago : 0;
    return true;
}

bool reef_moment_parse(const char *text, uint64_t now_ms, reef_moment *out) {
    return read_date(text, out) || read_day(text, now_ms, out) || read_ago(text, now_ms, out);
}
