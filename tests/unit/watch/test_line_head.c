// Times and hosts at the heads of lines, as many programs write them.
#include "line_head.h"
#include "reef_watch.h"
#include "test.h"

#include <time.h>

#define NEAR_MS INT64_C(1796040000000) // 2026-11-30 12:00:00
#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

// A time as a calendar of the C library says it.
static const char *text_of(int64_t ms) {
    static char text[64];
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    assert_non_null(gmtime_r(&seconds, &tm));
    size_t length = strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
    (void)snprintf(text + length, sizeof(text) - length, ".%03d", (int)(ms % 1000));
    return text;
}

static int64_t ms_of(const char *text) {
    struct tm tm = {0};
    int ms;
    assert_int_equal(sscanf(text, "%d-%d-%d %d:%d:%d.%d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                            &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms),
                     7);
    // Days of 2026 and the years beside it, none of which is a leap year.
    static const int BEFORE[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    assert_in_range(tm.tm_year, 2025, 2027);
    int64_t days = 20454 + 365 * (tm.tm_year - 2026) + BEFORE[tm.tm_mon - 1] + tm.tm_mday - 1;
    return (((days * 24 + tm.tm_hour) * 60 + tm.tm_min) * 60 + tm.tm_sec) * 1000 + ms;
}

// The line's time is `expected`; "" for none.
static void expect_bytes(const uint8_t *line, size_t count, int64_t near_ms, const char *expected) {
    // Exactly as long as the line, so that a byte read behind it is found.
    uint8_t *exact = memcpy(malloc(count + (count == 0)), line, count);
    int64_t ms = -1;
    bool found = reef_line_time(exact, count, near_ms, &ms);
    free(exact);
    if (found != (*expected != '\0') || (found && strcmp(text_of(ms), expected) != 0))
        fail_msg("'%s': %s, not '%s'", (const char *)line, found ? text_of(ms) : "no time",
                 expected);
    if (!found) assert_int_equal(ms, -1); // and nothing is written
}

static void expect(const char *line, const char *expected) {
    expect_bytes((const uint8_t *)line, strlen(line), NEAR_MS, expected);
}

PLAIN_TEST(dates_as_iso_8601_and_its_relatives) {
    expect("2026-11-30T12:00:01Z started", "2026-11-30 12:00:01.000");
    expect("2026-11-30 12:00:01 started", "2026-11-30 12:00:01.000");
    expect("2026/11/30 12:00:01 [error] 9#9: x", "2026-11-30 12:00:01.000");
    expect("2026.11.30 12:00:01 x", "2026-11-30 12:00:01.000");
    expect("[2026-11-30 12:00:01] x", "2026-11-30 12:00:01.000");
    expect("INFO 2026-11-30 12:00:01 x", "2026-11-30 12:00:01.000");
    expect("{\"level\":\"info\",\"time\":\"2026-11-30T12:00:01.5Z\"}", "2026-11-30 12:00:01.500");
    expect("time=\"2026-11-30T12:00:01Z\" level=info", "2026-11-30 12:00:01.000");
}

PLAIN_TEST(fractions_stand_behind_a_point_or_a_comma) {
    expect("2026-11-30 12:00:01,123 x", "2026-11-30 12:00:01.123");
    expect("2026-11-30 12:00:01.5 x", "2026-11-30 12:00:01.500");
    expect("2026-11-30T12:00:01.123456789Z x", "2026-11-30 12:00:01.123");
    expect("2026-11-30 12:00:01.", "2026-11-30 12:00:01.000");
    expect("2026-11-30 12:00:01, then", "2026-11-30 12:00:01.000");
}

PLAIN_TEST(zones_are_counted) {
    expect("2026-11-30T12:00:01+01:00 x", "2026-11-30 11:00:01.000");
    expect("2026-11-30T12:00:01-0530 x", "2026-11-30 17:30:01.000");
    expect("2026-11-30 12:00:01.250 +0100 x", "2026-11-30 11:00:01.250");
    expect("2026-11-30 12:00:01 UTC x", "2026-11-30 12:00:01.000");
    expect("2026-12-31T23:30:00-01:00 x", "2027-01-01 00:30:00.000");
    // None of these is one.
    expect("2026-11-30 12:00:01 -12345678 x", "2026-11-30 12:00:01.000");
    expect("2026-11-30 12:00:01 - x", "2026-11-30 12:00:01.000");
    expect("2026-11-30T12:00:01+", "2026-11-30 12:00:01.000");
    expect("2026-11-30T12:00:01+0", "2026-11-30 12:00:01.000");
}

PLAIN_TEST(a_time_of_syslog_is_of_the_nearest_year) {
    expect("Nov 30 12:00:01 web1 sshd[9]: x", "2026-11-30 12:00:01.000");
    expect("Nov  3 12:00:01 web1 sshd[9]: x", "2026-11-03 12:00:01.000");
    expect("<13>Nov 30 12:00:01 web1 sshd[9]: x", "2026-11-30 12:00:01.000");
    expect("Nov 30 12:00:01.123 web1 x", "2026-11-30 12:00:01.123");
    expect("Jan  1 00:00:00 web1 x", "2027-01-01 00:00:00.000");
    expect("Jul  4 00:00:00 web1 x", "2026-07-04 00:00:00.000");
    // Across New Year, from both sides.
    const char *line = "Jan  1 00:00:01 web1 x";
    expect_bytes((const uint8_t *)line, strlen(line), ms_of("2025-12-31 23:59:59.0"),
                 "2026-01-01 00:00:01.000");
    line = "Dec 31 23:59:59 web1 x";
    expect_bytes((const uint8_t *)line, strlen(line), ms_of("2026-01-01 00:00:01.0"),
                 "2025-12-31 23:59:59.000");
}

PLAIN_TEST(a_year_behind_a_time_of_syslog_counts) {
    expect("Nov 30 12:00:01 2025 x", "2025-11-30 12:00:01.000");
    expect("[Sun Nov 30 12:00:01.123456 2025] [core:error] x", "2025-11-30 12:00:01.123");
    expect("Nov 30 12:00:01 2025", "2025-11-30 12:00:01.000");
    // A host that begins with such a number is none.
    expect("Nov 30 12:00:01 2019db sshd[9]: x", "2026-11-30 12:00:01.000");
    expect("Nov 30 12:00:01 2019-db sshd[9]: x", "2026-11-30 12:00:01.000");
}

PLAIN_TEST(forms_of_common_programs) {
    expect("10.0.0.1 - - [30/Nov/2026:12:00:01 +0000] \"GET / HTTP/1.1\" 200 7",
           "2026-11-30 12:00:01.000");
    expect("10.0.0.1 - - [30/Nov/2026:12:00:01 -0700] \"GET / HTTP/1.1\" 200 7",
           "2026-11-30 19:00:01.000");
    expect("7:C 30 Nov 2026 12:00:00.123 * Ready", "2026-11-30 12:00:00.123");
    expect("30-Nov-2026 12:00:01.123 INFO [main] x", "2026-11-30 12:00:01.123");
    expect("081109 203615 148 INFO dfs.DataNode: x", "2008-11-09 20:36:15.000");
    expect("- 1131566461 2005.11.09 dn228 Nov 9 12:01:01 x", "2005-11-09 20:01:01.000");
}

PLAIN_TEST(seconds_since_1970_count_at_the_head_and_in_fields) {
    expect("1764504001 x", "2025-11-30 12:00:01.000");
    expect("1764504001.25 x", "2025-11-30 12:00:01.250");
    expect("1764504001123 x", "2025-11-30 12:00:01.123");
    expect("[1764504001] x", "2025-11-30 12:00:01.000");
    expect("{\"ts\":1764504001.5,\"msg\":\"x\"}", "2025-11-30 12:00:01.500");
    expect("{\"msg\":\"x\", \"timestamp\": 1764504001123}", "2025-11-30 12:00:01.123");
    expect("type=SYSCALL msg=audit(1764504001.123:42): x", "2025-11-30 12:00:01.123");
    // What is as long, but of no such place or time.
    expect("user 1764504001 logged in", "");
    expect("{\"id\":1764504001}", "");
    expect("0764504001 x", "");
    expect("9999999999 x", "");
    expect("17645040012 x", "");
    expect("176450400 x", "");
}

// So much is between both parts that the second is not at the head.
static void expect_behind(const char *begin, const char *end, const char *expected) {
    char line[1024], much[300];
    memset(much, 'x', sizeof(much) - 1);
    much[sizeof(much) - 1] = '\0';
    assert_true(snprintf(line, sizeof(line), "%s%s%s", begin, much, end) < (int)sizeof(line));
    expect(line, expected);
}

PLAIN_TEST(fields_of_journald_fluent_bit_and_otlp) {
    static const char TIME[] = "2025-11-30 12:00:01.123";
    expect("{\"__REALTIME_TIMESTAMP\":\"1764504001123456\",\"MESSAGE\":\"x\"}", TIME);
    expect("{ \"__REALTIME_TIMESTAMP\" : \"1764504001123456\", \"MESSAGE\" : \"x\" }", TIME);
    expect("{\"_SOURCE_REALTIME_TIMESTAMP\":\"1764504001123456\"}", TIME);
    expect("{\"__MONOTONIC_TIMESTAMP\":\"1764504001\"}", ""); // since the machine began
    expect("{\"date\":1764504001.123456,\"log\":\"x\"}", TIME);
    expect("{\"date\":1764504001123,\"log\":\"x\"}", TIME);
    expect("{\"timeUnixNano\":\"1764504001123456789\",\"severityNumber\":9}", TIME);
    expect("{\"observedTimeUnixNano\":1764504001123456789}", TIME);
    expect("{\"endTimeUnixNano\":1764504001123456789}", "");
    expect("{\"Timestamp\":\"1764504001123456789\"}", TIME);
    expect("{\"time\":9764504001123456789}", ""); // beyond 64 bits
    expect("{\"time\":4764504001123456789}", "");
    expect("{\"ts\":\"1764504001.123\"}", TIME);
    expect("{\"ats\":1764504001}", "");
    expect("1764504001123456 x", TIME);
}

PLAIN_TEST(a_time_may_lie_anywhere_in_json_where_its_field_says_so) {
    static const char TIME[] = "2025-11-30 12:00:01.123";
    expect_behind("{\"__CURSOR\":\"", "\",\"__REALTIME_TIMESTAMP\":\"1764504001123456\"}", TIME);
    expect_behind("{\"resourceLogs\":[{\"a\":\"",
                  "\",\"logRecords\":[{\"timeUnixNano\":\"1764504001123456789\"}]}]}", TIME);
    expect_behind("{\"log\":\"", "\",\"time\":\"2025-11-30T12:00:01.123Z\"}", TIME);
    expect_behind("{\"log\":\"{\\\"m\\\":\\\"", "\\\",\\\"ts\\\":1764504001.123}\"}", TIME);
    expect_behind("{\"log\":\"{\\\"m\\\":\\\"", "\\\",\\\"ts\\\":\\\"1764504001123\\\"}\"}", TIME);
    expect_behind("{\"log\":\"", "\",\"note\":\"2025-11-30T12:00:01.123Z\"}", "");
    expect_behind("{\"log\":\"", " at 2025-11-30T12:00:01.123Z\"}", "");
    expect_behind("log ", " \"time\":\"2025-11-30T12:00:01.123Z\"", ""); // no JSON
}

PLAIN_TEST(a_time_of_day_is_of_the_nearest_day) {
    expect("12:00:01.123 x", "2026-11-30 12:00:01.123");
    expect("[23:59:59] x", "2026-11-30 23:59:59.000");
    const char *line = "00:00:01 x";
    expect_bytes((const uint8_t *)line, strlen(line), ms_of("2026-11-30 23:59:59.0"),
                 "2026-12-01 00:00:01.000");
    line = "23:59:59 x";
    expect_bytes((const uint8_t *)line, strlen(line), ms_of("2026-11-30 00:00:01.0"),
                 "2026-11-29 23:59:59.000");
}

PLAIN_TEST(what_only_looks_like_a_time_is_none) {
    expect("", "");
    expect(" ", "");
    expect("started", "");
    expect("2026-13-40 x", "");
    expect("2026-13-01 12h x", "");
    expect("25:00:00 x", "");
    expect("12:60:00 x", "");
    expect("12:00:61 x", "");
    expect("12:00:01abc x", "");
    expect("version 1.12.3 of 2026-11-30", "");
    expect("openssl 3.0.15-1 10.0.0.1:8080", "");
    expect("081109 993615 148 INFO", "");
    // Of a date without a clock, or none at all, the time of day is left.
    expect("Nov 32 12:00:02 x", "2026-11-30 12:00:02.000");
    expect("Nox 30 12:00:02 x", "2026-11-30 12:00:02.000");
    expect("2026-11-30 x 12:00:01 y", "2026-11-30 12:00:01.000");
}

PLAIN_TEST(a_line_that_ends_within_a_time_has_none) {
    static const char *const LINES[] = {
        "2026-11-30T12:00:01Z",          "Nov 30 12:00:01", "30/Nov/2026:12:00:01 +0000",
        "30 Nov 2026 12:00:01.123",      "081109 203615",   "12:00:01",
        "<13>Nov  3 12:00:01 2026 web1", "1764504001.123",
    };
    static const size_t WHOLE[] = {19, 15, 20, 20, 13, 8, 19, 10}; // bytes with which it has one
    for (size_t i = 0; i < sizeof(LINES) / sizeof(*LINES); i++)
        for (size_t count = 0; count <= strlen(LINES[i]); count++) {
            int64_t ms;
            uint8_t *cut = memcpy(malloc(count + (count == 0)), LINES[i], count);
            bool found = reef_line_time(cut, count, NEAR_MS, &ms);
            if (found != (count >= WHOLE[i])) fail_msg("%.*s", (int)count, LINES[i]);
            free(cut);
        }
}

PLAIN_TEST(any_bytes_can_be_read) {
    expect_bytes(BYTES("\xff\xfe\x80 x"), NEAR_MS, "");
    expect_bytes(BYTES("2026-11-30\0 x"), NEAR_MS, "");
    expect_bytes(BYTES("\0\0\0\0"), NEAR_MS, "");
    expect_bytes(BYTES("12:00\0:01"), NEAR_MS, "");
    expect_bytes(BYTES("\xe2\x82 2026-11-30 12:00:01 \xff"), NEAR_MS, "2026-11-30 12:00:01.000");
    // Random bytes of times: nothing is read behind the end, and a time found lies in the line.
    static const char SIGNS[] = "0123456789:-/., TZ+NovJan[](\"\0\xff";
    uint32_t seed = 1;
    for (size_t i = 0; i < 20000; i++) {
        uint8_t bytes[40], *exact;
        size_t count = i % sizeof(bytes);
        for (size_t k = 0; k < count; k++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[k] = (uint8_t)SIGNS[(seed >> 8) % (sizeof(SIGNS) - 1)];
        }
        exact = memcpy(malloc(count + (count == 0)), bytes, count);
        reef_line_head head;
        reef_line_head_read(exact, count, NEAR_MS, &head);
        assert_true(head.time_at + head.time_bytes <= count);
        assert_true(head.host_at + head.host_bytes <= count);
        free(exact);
    }
}

// ---- hosts --------------------------------------------------------------------------------------

// The host of a line is `expected`; "" for none.
static void expect_host(const char *line, const char *expected) {
    reef_line_head head;
    reef_line_head_read((const uint8_t *)line, strlen(line), NEAR_MS, &head);
    if (head.host_bytes != strlen(expected) ||
        memcmp(line + head.host_at, expected, head.host_bytes) != 0)
        fail_msg("%s: '%.*s', not '%s'", line, (int)head.host_bytes, line + head.host_at, expected);
}

PLAIN_TEST(the_host_of_syslog_is_found) {
    expect_host("Nov 30 12:00:01 web1 sshd[9]: x", "web1");
    expect_host("Nov 30 12:00:01 web-1.example.org cron: x", "web-1.example.org");
    expect_host("<13>Nov  3 12:00:01 web1 kernel: x", "web1");
    expect_host("2026-11-30T12:00:01.123+01:00 web1 systemd[1]: x", "web1");
    expect_host("Nov 30 12:00:01 web1 cron:", "web1");
}

PLAIN_TEST(other_words_behind_a_time_are_no_host) {
    expect_host("Nov 30 12:00:01 ERROR root: x", "");
    expect_host("2026-11-30T12:00:01Z info server: x", "");
    expect_host("2026-11-30 12:00:01 web1 sshd[9]: x", ""); // no form of syslog
    expect_host("2026-11-30 12:00:01 UTC postgres shop: x", "");
    expect_host("2026-11-30 12:00:01 GMT postgres shop: x", "");
    expect_host("Nov 30 12:00:01 web1 came back", "");
    expect_host("Nov 30 12:00:01 web1 a:b", "");
    expect_host("Nov 30 12:00:01 web1", "");
    expect_host("Nov 30 12:00:01 web1 ", "");
    expect_host("web1 sshd[9]: x", "");
}

PLAIN_TEST(the_text_of_a_line_begins_behind_its_time) {
    static const struct {
        const char *line, *text;
    } CASES[] = {{"2026-11-30 12:00:01 started", "started"},
                 {"[2026-11-30 12:00:01] started", "started"},
                 {"Nov 30 12:00:01 web1 sshd[9]: x", "web1 sshd[9]: x"},
                 {"- 1131566461 2005.11.09 x", "2005.11.09 x"},
                 {"- - [30/Nov/2026:12:00:01 +0000] x", "- - [30/Nov/2026:12:00:01 +0000] x"},
                 {"started", "started"},
                 {"2026-11-30 12:00:01", "2026-11-30 12:00:01"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        const char *line = CASES[i].line;
        assert_string_equal(line + reef_line_text_at((const uint8_t *)line, strlen(line)),
                            CASES[i].text);
    }
}

PLAIN_TEST(months_and_days_are_calendar_words) {
    static const char *const WORDS[] = {"Nov", "nov", "NOV", "Mon", "sunday", "September"};
    static const char *const OTHERS[] = {"no", "nova", "Sund", "moment", "", "may be"};
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(*WORDS); i++)
        assert_true(reef_is_calendar_word((const uint8_t *)WORDS[i], strlen(WORDS[i])));
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(*OTHERS); i++)
        assert_false(reef_is_calendar_word((const uint8_t *)OTHERS[i], strlen(OTHERS[i])));
}

RUN_TESTS
