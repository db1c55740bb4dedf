// A message of syslog as a line, the same for all of its forms; see syslog_internal.h.
//
//   <34>1 2026-01-31T23:59:59.123+01:00 web1 nginx 812 ID47 [x@1 a="b"] MESSAGE     RFC 5424
//   <34>Jan 31 23:59:59 web1 nginx[812]: MESSAGE                                    RFC 3164
//   <34>2026-01-31T23:59:59.123+01:00 web1 nginx[812]: MESSAGE                      rsyslog
//   <34>Jan 31 23:59:59 nginx[812]: MESSAGE                                         a local socket
//   MESSAGE                                                                         anything else
//
//   2026-01-31T22:59:59.123Z web1 nginx[812]: MESSAGE                               the line
//       what follows a newline in MESSAGE
//
// So the watch finds the time, the host and the program as in files that rsyslog writes. The
// priority, structured data and the message's id are left out. What a form has not is as in lines
// of journal:, "unknown" for the program.
#include "syslog_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define INDENT "    "
#define WORD_BYTES_MAX 128
#define DAY_MS INT64_C(86400000)
#define AHEAD_MS (31 * DAY_MS) // a clock may be so much ahead of ours

/** What is read, and what was found. */
typedef struct message {
    const char *at, *end;
    reef_syslog_minute *minute;
    int64_t ms; // since 1970; at first when it was received
    char host[WORD_BYTES_MAX], name[WORD_BYTES_MAX], pid[WORD_BYTES_MAX]; // "": it has none
} message;

static size_t left(const message *m) {
    return (size_t)(m->end - m->at);
}

static bool take_char(message *m, char wanted) {
    if (left(m) == 0 || *m->at != wanted) return false;
    m->at++;
    return true;
}

// Up to a space. A word that is too long is not one.
static bool peek_word(const message *m, char out[WORD_BYTES_MAX]) {
    const char *space = memchr(m->at, ' ', left(m));
    const size_t bytes = space != NULL ? (size_t)(space - m->at) : left(m);
    if (bytes == 0 || bytes >= WORD_BYTES_MAX) return false;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)m->at[i] <= ' ' || m->at[i] == 0x7f) return false;
    memcpy(out, m->at, bytes);
    out[bytes] = '\0';
    return true;
}

// "-" is RFC 5424's for none.
static bool take_field(message *m, char out[WORD_BYTES_MAX]) {
    if (!peek_word(m, out)) return false;
    m->at += strlen(out);
    if (strcmp(out, "-") == 0) out[0] = '\0';
    return take_char(m, ' ');
}

// ---- times --------------------------------------------------------------------------------------

// Digits, exactly so many.
static bool read_digits(const char **at, const char *end, size_t count, int *out) {
    *out = 0;
    if ((size_t)(end - *at) < count) return false;
    for (size_t i = 0; i < count; i++) {
        if (!isdigit((unsigned char)(*at)[i])) return false;
        *out = 10 * *out + ((*at)[i] - '0');
    }
    *at += count;
    return true;
}

static bool read_sign(const char **at, const char *end, const char *signs) {
    if (*at == end || strchr(signs, **at) == NULL || **at == '\0') return false;
    ++*at;
    return true;
}

static bool read_clock(const char **at, const char *end, struct tm *tm) {
    return read_digits(at, end, 2, &tm->tm_hour) && read_sign(at, end, ":") &&
           read_digits(at, end, 2, &tm->tm_min) && read_sign(at, end, ":") &&
           read_digits(at, end, 2, &tm->tm_sec) && tm->tm_hour < 24 && tm->tm_min < 60 &&
           tm->tm_sec <= 60;
}

// Days since 1970 of the civil calendar (Richards' algorithm); timegm is not in POSIX.
static int64_t days_of(int64_t year, int month, int day) {
    year -= month <= 2;
    const int64_t era = year / 400, of_era = year % 400;
    const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

// 2026-01-31T23:59:59[.123456](Z|+01:00)
static bool take_iso_time(message *m) {
    const char *at = m->at;
    struct tm tm = {0};
    int hours = 0, minutes = 0, ms = 0;
    if (!read_digits(&at, m->end, 4, &tm.tm_year) || !read_sign(&at, m->end, "-") ||
        !read_digits(&at, m->end, 2, &tm.tm_mon) || !read_sign(&at, m->end, "-") ||
        !read_digits(&at, m->end, 2, &tm.tm_mday) || !read_sign(&at, m->end, "T") ||
        !read_clock(&at, m->end, &tm) || tm.tm_year < 1970 || tm.tm_mon < 1 || tm.tm_mon > 12 ||
        tm.tm_mday < 1 || tm.tm_mday > 31)
        return false;
    if (read_sign(&at, m->end, "."))
        for (int unit = 100; at < m->end && isdigit((unsigned char)*at); at++, unit /= 10)
            ms += (*at - '0') * unit;
    const bool is_behind = at < m->end && *at == '-';
    if (read_sign(&at, m->end, "+-")) {
        if (!read_digits(&at, m->end, 2, &hours) || !read_sign(&at, m->end, ":") ||
            !read_digits(&at, m->end, 2, &minutes))
            return false;
    } else if (!read_sign(&at, m->end, "Z")) {
        return false;
    }
    const int64_t zone = (hours * 60 + minutes) * (is_behind ? -60 : 60);
    const int64_t days = days_of(tm.tm_year, tm.tm_mon, tm.tm_mday);
    const int64_t seconds = ((days * 24 + tm.tm_hour) * 60 + tm.tm_min) * 60 + tm.tm_sec - zone;
    if (seconds < 0 || !read_sign(&at, m->end, " ")) return false;
    m->ms = seconds * 1000 + ms;
    m->at = at;
    return true;
}

// The local zone's, in the last year in which it was not to come. mktime takes some microseconds.
static int64_t local_minute(const struct tm *tm, int64_t received_ms) {
    const time_t received = (time_t)(received_ms / 1000);
    struct tm now = {0};
    (void)localtime_r(&received, &now);
    for (int year = now.tm_year + 1; year >= now.tm_year - 1; year--) {
        struct tm guess = *tm;
        guess.tm_year = year;
        guess.tm_isdst = -1;
        const int64_t ms = (int64_t)mktime(&guess) * 1000;
        if (ms >= 0 && ms <= received_ms + AHEAD_MS) return ms;
    }
    return received_ms;
}

// "Jan 31 23:59:59", also with " 1" or "1" for the day.
static bool take_bsd_time(message *m) {
    static const char MONTHS[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const char *at = m->at;
    struct tm tm = {.tm_mon = 12};
    if (left(m) < 4) return false;
    for (int i = 0; i < 12; i++)
        if (memcmp(at, MONTHS + 3 * i, 3) == 0) tm.tm_mon = i;
    at += 3;
    if (tm.tm_mon == 12 || !read_sign(&at, m->end, " ")) return false;
    const size_t digits = read_sign(&at, m->end, " ") ? 1 : 2;
    if (!read_digits(&at, m->end, digits, &tm.tm_mday) && !read_digits(&at, m->end, 1, &tm.tm_mday))
        return false;
    if (tm.tm_mday < 1 || tm.tm_mday > 31 || !read_sign(&at, m->end, " ") ||
        !read_clock(&at, m->end, &tm) || !read_sign(&at, m->end, " "))
        return false;
    reef_syslog_minute *minute = m->minute;
    const int64_t named =
        ((tm.tm_mon * INT64_C(100) + tm.tm_mday) * 100 + tm.tm_hour) * 100 + tm.tm_min;
    const int64_t today = m->ms / DAY_MS, seconds = tm.tm_sec;
    tm.tm_sec = 0;
    if (minute->named != named || minute->today != today)
        *minute = (reef_syslog_minute){named, today, local_minute(&tm, m->ms)};
    m->ms = minute->ms + seconds * 1000;
    m->at = at;
    return true;
}

// ---- forms --------------------------------------------------------------------------------------

static bool take_priority(message *m) {
    const char *at = m->at;
    size_t digits = 0;
    if (!read_sign(&at, m->end, "<")) return false;
    while (at < m->end && isdigit((unsigned char)*at) && digits < 3) at++, digits++;
    if (digits == 0 || !read_sign(&at, m->end, ">")) return false;
    m->at = at;
    return true;
}

// [id name="value" ...][...], or "-".
static bool take_structured_data(message *m) {
    bool quoted = false;
    if (take_char(m, '-')) return true;
    if (left(m) == 0 || *m->at != '[') return false;
    while (take_char(m, '[')) {
        for (; left(m) > 0 && (quoted || *m->at != ']'); m->at++) {
            if (*m->at == '"') quoted = !quoted;
            if (quoted && *m->at == '\\' && left(m) > 1) m->at++;
        }
        if (!take_char(m, ']')) return false;
    }
    return true;
}

static bool read_rfc5424(message *m) {
    message tried = *m;
    char id[WORD_BYTES_MAX];
    if (!take_char(&tried, '1') || !take_char(&tried, ' ')) return false;
    if (!take_iso_time(&tried) && !(take_char(&tried, '-') && take_char(&tried, ' '))) return false;
    if (!take_field(&tried, tried.host) || !take_field(&tried, tried.name) ||
        !take_field(&tried, tried.pid) || !take_field(&tried, id) || !take_structured_data(&tried))
        return false;
    (void)take_char(&tried, ' ');
    if (left(&tried) >= 3 && memcmp(tried.at, "\xef\xbb\xbf", 3) == 0) tried.at += 3;
    (void)take_char(&tried, ' '); // rsyslog's, of the older form
    *m = tried;
    return true;
}

// "NAME[PID]: " or "NAME: ".
static bool take_tag(message *m) {
    message tried = *m;
    size_t bytes = 0;
    while (bytes < left(m) && (unsigned char)m->at[bytes] > ' ' && m->at[bytes] != '[' &&
           m->at[bytes] != ':')
        bytes++;
    if (bytes == 0 || bytes == left(m) || bytes >= WORD_BYTES_MAX) return false;
    memcpy(tried.name, m->at, bytes);
    tried.name[bytes] = '\0';
    tried.at += bytes;
    if (take_char(&tried, '[')) {
        bytes = 0;
        while (bytes < left(&tried) && (unsigned char)tried.at[bytes] > ' ' &&
               tried.at[bytes] != ']')
            bytes++;
        if (bytes == left(&tried) || bytes >= WORD_BYTES_MAX) return false;
        memcpy(tried.pid, tried.at, bytes);
        tried.pid[bytes] = '\0';
        tried.at += bytes;
        if (!take_char(&tried, ']')) return false;
    }
    if (!take_char(&tried, ':') || (left(&tried) > 0 && !take_char(&tried, ' '))) return false;
    *m = tried;
    return true;
}

static void read_rfc3164(message *m) {
    if (!take_iso_time(m) && !take_bsd_time(m)) return;
    message tried = *m;
    if (take_tag(m) || !take_field(&tried, tried.host)) return;
    (void)take_tag(&tried);
    *m = tried;
}

// ---- the line -----------------------------------------------------------------------------------

static size_t write_head(uint8_t *out, const message *m) {
    char *at = (char *)out;
    const time_t seconds = (time_t)(m->ms / 1000);
    struct tm tm = {0};
    (void)gmtime_r(&seconds, &tm);
    size_t count = strftime(at, REEF_SYSLOG_HEAD_BYTES_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    count += (size_t)snprintf(at + count, REEF_SYSLOG_HEAD_BYTES_MAX - count,
                              ".%03dZ %s%s%s%s%s%s: ", (int)(m->ms % 1000), m->host,
                              m->host[0] ? " " : "", m->name[0] ? m->name : "unknown",
                              m->pid[0] ? "[" : "", m->pid, m->pid[0] ? "]" : "");
    return count;
}

size_t reef_syslog_line_write(uint8_t *out,
                              const uint8_t *bytes,
                              size_t count,
                              const char *from,
                              uint64_t received_ms,
                              reef_syslog_minute *minute) {
    const char *text = (const char *)bytes;
    while (count > 0 && strchr("\r\n", text[count - 1]) != NULL) count--; // and NULs
    message m = {.at = text, .end = text + count, .minute = minute, .ms = (int64_t)received_ms};
    if (take_priority(&m) && read_rfc5424(&m))
        ; // the newer form says what it is
    else
        read_rfc3164(&m);
    if (left(&m) == 0) return 0;
    if (!m.host[0]) snprintf(m.host, sizeof(m.host), "%s", from);
    size_t written = write_head(out, &m);
    for (; m.at < m.end; m.at++) {
        out[written++] = *m.at == '\0' ? ' ' : (uint8_t)*m.at;
        if (*m.at != '\n') continue;
        memcpy(out + written, INDENT, strlen(INDENT));
        written += strlen(INDENT);
    }
    out[written++] = '\n';
    return written;
}
