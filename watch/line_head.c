// See line_head.h. Times are looked for where a word begins, near the beginning of the line; those
// of fields of JSON anywhere. The first that is whole is the line's.
#include "line_head.h"
#include "line_tokens.h"
#include "reef_watch.h"

#include <string.h>

#define HEAD_BYTES 160    // of a line in which its time begins
#define FIELDS_BYTES 2048 // of one that is JSON, where a field says that it is one
#define TEXT_AT_MAX 2     // a time behind "[" or "- " is at the head
#define ISO_DATE_BYTES 10
#define DAY_MS INT64_C(86400000)
#define EPOCH_MIN INT64_C(946684800)  // of seconds: 2000
#define EPOCH_MAX INT64_C(4102444800) // 2100

static const char MONTHS[] = "janfebmaraprmayjunjulaugsepoctnovdec";
static const char DAYS[] = "sunmontuewedthufrisat";

// ---- reading ------------------------------------------------------------------------------------

typedef struct cursor {
    const uint8_t *at, *end;
} cursor;

static bool is_digit(uint8_t byte) {
    return (uint8_t)(byte - '0') < 10;
}

static bool is_word_byte(uint8_t byte) {
    return is_digit(byte) || (uint8_t)((byte | 0x20) - 'a') < 26 || byte >= 0x80 || byte == '_';
}

static bool is_host_byte(uint8_t byte) {
    return is_word_byte(byte) || byte == '-' || byte == '.';
}

static bool read_byte(cursor *c, const char *one_of) {
    if (c->at == c->end || *c->at == '\0' || strchr(one_of, *c->at) == NULL) return false;
    c->at++;
    return true;
}

// So many digits, and none behind them.
static bool read_number(cursor *c, size_t least, size_t most, int64_t *out) {
    const uint8_t *at = c->at;
    int64_t value = 0;
    for (; at < c->end && is_digit(*at) && (size_t)(at - c->at) < most; at++)
        value = value * 10 + (*at - '0');
    if ((size_t)(at - c->at) < least || (at < c->end && is_digit(*at))) return false;
    c->at = at;
    *out = value;
    return true;
}

// Two digits, and maybe more behind them.
static bool read_two(cursor *c, int64_t *out) {
    if (c->end - c->at < 2 || !is_digit(c->at[0]) || !is_digit(c->at[1])) return false;
    *out = (c->at[0] - '0') * 10 + (c->at[1] - '0');
    c->at += 2;
    return true;
}

static int find_name(const char *names, const uint8_t *word) {
    char three[4] = {0};
    for (size_t i = 0; i < 3; i++) three[i] = (char)(word[i] | 0x20);
    for (int i = 0; names[3 * i] != '\0'; i++)
        if (memcmp(names + 3 * i, three, 3) == 0) return i;
    return -1;
}

static bool read_month(cursor *c, int64_t *month) {
    if (c->end - c->at < 3) return false;
    int found = find_name(MONTHS, c->at);
    if (found < 0) return false;
    *month = found + 1;
    c->at += 3;
    return true;
}

bool reef_is_calendar_word(const uint8_t *word, size_t count) {
    static const char *const LONG[] = {"january",  "february", "march",     "april",   "june",
                                       "july",     "august",   "september", "october", "november",
                                       "december", "sunday",   "monday",    "tuesday", "wednesday",
                                       "thursday", "friday",   "saturday"};
    if (count == 3) return find_name(MONTHS, word) >= 0 || find_name(DAYS, word) >= 0;
    for (size_t i = 0; i < sizeof(LONG) / sizeof(*LONG); i++) {
        size_t n = 0;
        while (n < count && LONG[i][n] != '\0' && (word[n] | 0x20) == (uint8_t)LONG[i][n]) n++;
        if (n == count && LONG[i][n] == '\0') return true;
    }
    return false;
}

// ---- a calendar ---------------------------------------------------------------------------------

// Days since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
static int64_t days_of(int64_t year, int64_t month, int64_t day) {
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t of_era = year - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool is_date(int64_t year, int64_t month, int64_t day) {
    return year >= 1990 && year <= 2199 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

// The year that makes a date without one nearest to a time.
static int64_t nearest_year(int64_t month, int64_t day, int64_t ms, int64_t near_ms) {
    int64_t best = 1970, off = INT64_MAX, guess = 1970 + near_ms / (365 * DAY_MS + DAY_MS / 4);
    for (int64_t year = guess - 1; year <= guess + 1; year++) {
        int64_t distance = days_of(year, month, day) * DAY_MS + ms - near_ms;
        if (distance < 0) distance = -distance;
        if (distance >= off) continue;
        off = distance;
        best = year;
    }
    return best;
}

// ---- forms of times -----------------------------------------------------------------------------

// "12:00:01", with parts of a second behind '.' or ','.
static bool read_clock(cursor *c, int64_t *ms) {
    int64_t h, m, s;
    if (!read_two(c, &h) || !read_byte(c, ":") || !read_two(c, &m) || !read_byte(c, ":") ||
        !read_two(c, &s) || h > 23 || m > 59 || s > 60)
        return false;
    *ms = ((h * 60 + m) * 60 + s) * 1000;
    if (c->end - c->at < 2 || (*c->at != '.' && *c->at != ',') || !is_digit(c->at[1])) return true;
    c->at++;
    for (int64_t unit = 100; c->at < c->end && is_digit(*c->at); c->at++, unit /= 10)
        *ms += (*c->at - '0') * unit;
    return true;
}

// "Z", "+01:00", "+0100", " UTC", or nothing. Minutes east of Greenwich.
static int64_t read_zone(cursor *c) {
    cursor at = *c;
    int64_t h, m = 0;
    if (read_byte(&at, "Z")) {
        *c = at;
        return 0;
    }
    (void)read_byte(&at, " ");
    if (at.end - at.at >= 3 && (memcmp(at.at, "UTC", 3) == 0 || memcmp(at.at, "GMT", 3) == 0)) {
        at.at += 3;
        *c = at;
        return 0;
    }
    bool west = at.at < at.end && *at.at == '-';
    if (!read_byte(&at, "+-") || !read_two(&at, &h)) return 0;
    (void)read_byte(&at, ":");
    if (!read_two(&at, &m) || (at.at < at.end && is_digit(*at.at))) return 0;
    *c = at;
    return west ? -(h * 60 + m) : h * 60 + m;
}

static int64_t moment_of(int64_t year, int64_t month, int64_t day, int64_t ms, int64_t zone) {
    return days_of(year, month, day) * DAY_MS + ms - zone * 60000;
}

// 2026-11-30T12:00:01.123+00:00, 2026/11/30 12:00:01, 2026-11-30 12:00:01,123
static bool read_iso(cursor *c, int64_t near_ms, int64_t *out) {
    int64_t year, month, day, ms;
    (void)near_ms;
    if (!read_number(c, 4, 4, &year) || !read_byte(c, "-/.") || !read_number(c, 2, 2, &month) ||
        !read_byte(c, "-/.") || !read_two(c, &day) || !read_byte(c, "T _t-") ||
        !read_clock(c, &ms) || !is_date(year, month, day))
        return false;
    *out = moment_of(year, month, day, ms, read_zone(c));
    return true;
}

// 30/Nov/2026:12:00:01 +0000
static bool read_apache(cursor *c, int64_t near_ms, int64_t *out) {
    int64_t year, month, day, ms;
    (void)near_ms;
    if (!read_number(c, 1, 2, &day) || !read_byte(c, "/-") || !read_month(c, &month) ||
        !read_byte(c, "/-") || !read_number(c, 4, 4, &year) || !read_byte(c, ": ") ||
        !read_clock(c, &ms) || !is_date(year, month, day))
        return false;
    *out = moment_of(year, month, day, ms, read_zone(c));
    return true;
}

// Nov  3 12:00:01, Nov 30 12:00:01 2026
static bool read_syslog(cursor *c, int64_t near_ms, int64_t *out) {
    int64_t year, month, day, ms;
    if (!read_month(c, &month) || !read_byte(c, " ")) return false;
    (void)read_byte(c, " ");
    if (!read_number(c, 1, 2, &day) || !read_byte(c, " ") || !read_clock(c, &ms) ||
        !is_date(2000, month, day))
        return false;
    cursor behind = *c;
    if (read_byte(&behind, " ") && read_number(&behind, 4, 4, &year) && is_date(year, month, day) &&
        (behind.at == behind.end || !is_host_byte(*behind.at)))
        *c = behind;
    else
        year = nearest_year(month, day, ms, near_ms);
    *out = moment_of(year, month, day, ms, 0);
    return true;
}

// 30 Nov 2026 12:00:01.123
static bool read_day_first(cursor *c, int64_t near_ms, int64_t *out) {
    int64_t year, month, day, ms;
    (void)near_ms;
    if (!read_number(c, 1, 2, &day) || !read_byte(c, " ") || !read_month(c, &month) ||
        !read_byte(c, " ") || !read_number(c, 4, 4, &year) || !read_byte(c, " ") ||
        !read_clock(c, &ms) || !is_date(year, month, day))
        return false;
    *out = moment_of(year, month, day, ms, read_zone(c));
    return true;
}

// 081109 203615
static bool read_short(cursor *c, int64_t near_ms, int64_t *out) {
    int64_t date, clock;
    (void)near_ms;
    if (!read_number(c, 6, 6, &date) || !read_byte(c, " ") || !read_number(c, 6, 6, &clock))
        return false;
    int64_t year = 2000 + date / 10000, month = date / 100 % 100, day = date % 100;
    int64_t h = clock / 10000, m = clock / 100 % 100, s = clock % 100;
    if (!is_date(year, month, day) || h > 23 || m > 59 || s > 60) return false;
    *out = moment_of(year, month, day, ((h * 60 + m) * 60 + s) * 1000, 0);
    return true;
}

static size_t skip_back(const uint8_t *line, size_t at, uint8_t byte) {
    while (at > 0 && line[at - 1] == byte) at--;
    return at;
}

// Behind `"` or, in JSON that is a string of JSON, `\"`. 0: there is none.
static size_t before_quote(const uint8_t *line, size_t at) {
    if (at == 0 || line[at - 1] != '"') return 0;
    return skip_back(line, at - 1, '\\');
}

// Does the name end there, and is it all of the field's where it is short?
static bool ends_in(const uint8_t *line, size_t at, const char *name) {
    const size_t count = strlen(name);
    if (at < count || memcmp(line + at - count, name, count) != 0) return false;
    return count > 2 || before_quote(line, at - count) > 0;
}

// The value of a field of JSON, a number or a string, whose name says that it is a time. Not of
// journald's monotonic timestamps.
static bool is_time_field(const uint8_t *line, size_t at) {
    static const char *const NAMES[] = {"ts",
                                        "t",
                                        "time",
                                        "timestamp",
                                        "Timestamp",
                                        "date",
                                        "timeUnixNano",
                                        "observedTimeUnixNano",
                                        "REALTIME_TIMESTAMP"};
    if (at > 0 && line[at - 1] == '"') at = before_quote(line, at);
    at = skip_back(line, at, ' ');
    if (at == 0 || line[at - 1] != ':') return false;
    at = before_quote(line, skip_back(line, at - 1, ' '));
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++)
        if (ends_in(line, at, NAMES[i])) return true;
    return false;
}

// Other numbers may be as long: a time is the first of a line, or a field of JSON of such a name.
static bool is_epoch_place(const uint8_t *line, size_t at) {
    if (is_time_field(line, at)) return true;
    at = skip_back(line, at, ' ');
    if (at == 0 || (at == 1 && line[0] == '-')) return true;
    if (line[at - 1] == '[') return at == 1;
    return ends_in(line, at, "audit(");
}

// 1764504001, 1764504001.123, 1764504001123, and as many micro- and nanoseconds
static bool read_epoch(cursor *c, int64_t near_ms, int64_t *out) {
    static const struct {
        size_t digits;
        int64_t a_ms;
    } WHOLE[] = {{13, 1}, {16, 1000}, {19, 1000000}};
    int64_t value, part;
    (void)near_ms;
    if (c->at == c->end || *c->at > '4') return false; // beyond 2100, and maybe beyond 64 bits
    for (size_t i = 0; i < sizeof(WHOLE) / sizeof(*WHOLE); i++)
        if (read_number(c, WHOLE[i].digits, WHOLE[i].digits, &value)) {
            *out = value / WHOLE[i].a_ms;
            return *out / 1000 >= EPOCH_MIN && *out / 1000 < EPOCH_MAX;
        }
    if (!read_number(c, 10, 10, &value) || value < EPOCH_MIN || value >= EPOCH_MAX) return false;
    *out = value * 1000;
    cursor behind = *c;
    if (!read_byte(&behind, ".") || behind.at == behind.end || !is_digit(*behind.at)) return true;
    for (part = 100; behind.at < behind.end && is_digit(*behind.at); behind.at++, part /= 10)
        *out += (*behind.at - '0') * part;
    *c = behind;
    return true;
}

// 12:00:01.123, on the day that makes it nearest
static bool read_time_of_day(cursor *c, int64_t near_ms, int64_t *out) {
    int64_t ms;
    if (!read_clock(c, &ms) || (c->at < c->end && is_word_byte(*c->at))) return false;
    int64_t off = (near_ms - ms) % DAY_MS;
    if (off < 0) off += DAY_MS;
    *out = near_ms - off + (off > DAY_MS / 2 ? DAY_MS : 0);
    return true;
}

typedef bool form(cursor *c, int64_t near_ms, int64_t *out);
static form *const FORMS[] = {read_iso,   read_apache, read_syslog,     read_day_first,
                              read_short, read_epoch,  read_time_of_day};

static bool read_time(
    const uint8_t *line, size_t count, size_t at, int64_t near_ms, reef_line_head *out) {
    for (size_t i = 0; i < sizeof(FORMS) / sizeof(*FORMS); i++) {
        cursor c = {line + at, line + count};
        if (FORMS[i] == read_epoch && !is_epoch_place(line, at)) continue;
        if (!FORMS[i](&c, near_ms, &out->time_ms)) continue;
        out->time_at = at;
        out->time_bytes = (size_t)(c.at - line) - at;
        return true;
    }
    return false;
}

// ---- the host -----------------------------------------------------------------------------------

// "TIME HOST PROGRAM[PID]: ..." or "TIME HOST PROGRAM: ...". TIME is "Nov 30 12:00:01", or has a
// T, as syslog writes it.
static void find_host(const uint8_t *line, size_t count, reef_line_head *out) {
    size_t at = out->time_at + out->time_bytes;
    const uint8_t *time = line + out->time_at;
    bool syslog =
        !is_digit(time[0]) || (out->time_bytes > ISO_DATE_BYTES && time[ISO_DATE_BYTES] == 'T');
    if (!syslog || at >= count || line[at] != ' ') return;
    size_t host = ++at;
    while (at < count && is_host_byte(line[at])) at++;
    size_t host_end = at;
    if (at == host || at >= count || line[at] != ' ' || reef_is_level(line + host, host_end - host))
        return;
    for (at++; at < count && line[at] > ' ' && line[at] != ':' && line[at] != '[';) at++;
    if (at == host_end + 1 || at >= count || line[at] <= ' ') return;
    if (line[at] == ':' && at + 1 < count && line[at + 1] != ' ') return;
    out->host_at = host;
    out->host_bytes = host_end - host;
}

void reef_line_head_read(const uint8_t *line, size_t count, int64_t near_ms, reef_line_head *out) {
    const size_t most = count > 0 && line[0] == '{' ? FIELDS_BYTES : HEAD_BYTES;
    const size_t end = count < most ? count : most;
    *out = (reef_line_head){0};
    for (size_t at = 0; at < end; at++) {
        if (at > 0 && (is_word_byte(line[at - 1]) || !is_word_byte(line[at]))) continue;
        if (at >= HEAD_BYTES && !is_time_field(line, at)) continue;
        if (!is_word_byte(line[at]) || !read_time(line, count, at, near_ms, out)) continue;
        find_host(line, count, out);
        return;
    }
}

bool reef_line_time(const uint8_t *line, size_t count, int64_t near_ms, int64_t *out_ms) {
    reef_line_head head;
    reef_line_head_read(line, count, near_ms, &head);
    if (head.time_bytes > 0) *out_ms = head.time_ms;
    return head.time_bytes > 0;
}

size_t reef_line_text_at(const uint8_t *line, size_t count) {
    reef_line_head head;
    reef_line_head_read(line, count, 0, &head);
    size_t at = head.time_at + head.time_bytes;
    if (head.time_bytes == 0 || head.time_at > TEXT_AT_MAX) return 0;
    while (at < count && (line[at] == ' ' || line[at] == ']' || line[at] == ':')) at++;
    return at < count ? at : 0;
}
