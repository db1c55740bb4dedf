// Moments as people type them: what each form names, and what is none.
#include <time.h>

#include "reef_moment.h"
#include "test.h"

#define NOON 1779105600000u // 2026-05-18 12:00 UTC
#define HOUR 3600000u
#define DAY 86400000u

static void set_zone(const char *zone) {
    assert_int_equal(setenv("TZ", zone, 1), 0);
    tzset();
}

static void assert_names(const char *text, uint64_t first, uint64_t last) {
    reef_moment moment = {0};
    if (!reef_moment_parse(text, NOON, &moment)) fail_msg("'%s' is a moment", text);
    assert_int_equal(moment.first, first);
    assert_int_equal(moment.last, last);
}

PLAIN_TEST(dates_are_of_the_zone_and_as_long_as_they_say) {
    set_zone("UTC0");
    assert_names("2026-05-18", NOON - 12 * HOUR, NOON + 12 * HOUR - 1);
    assert_names("2026-05-18 12:00", NOON, NOON + 59999);
    assert_names("2026-05-18T12:00", NOON, NOON + 59999);
    assert_names("2026-05-18 12:00:07", NOON + 7000, NOON + 7999);
    assert_names("1970-01-01 00:00", 0, 59999);
    assert_names("2024-02-29", 1709164800000u, 1709164800000u + DAY - 1);
    set_zone("CET-1CEST,M3.5.0,M10.5.0/3");
    assert_names("2026-05-18 14:00", NOON, NOON + 59999);
    assert_names("2026-05-18 12:00Z", NOON, NOON + 59999);
    assert_names("2026-05-18T12:00:07Z", NOON + 7000, NOON + 7999);
    // The days on which summer begins and ends have 23 and 25 hours.
    assert_names("2026-03-29", 1774738800000u, 1774738800000u + 23 * HOUR - 1);
    assert_names("2026-10-25", 1792879200000u, 1792879200000u + 25 * HOUR - 1);
}

PLAIN_TEST(days_have_names) {
    set_zone("UTC0");
    assert_names("today", NOON - 12 * HOUR, NOON + 12 * HOUR - 1);
    assert_names("yesterday", NOON - 36 * HOUR, NOON - 12 * HOUR - 1);
    set_zone("ZZZ11"); // where it is one o'clock in the morning
    assert_names("today", NOON - 1 * HOUR, NOON + 23 * HOUR - 1);
}

PLAIN_TEST(lengths_of_time_have_a_number_and_a_unit) {
    static const char *const NONE[] = {"",    "5",   "h",           "-5m", " 5m",
                                       "+5m", "5 m", "1000000000s", "5x"};
    const char *rest;
    uint64_t seconds;
    assert_true(reef_span_parse("999999999w", &rest, &seconds));
    assert_true(seconds == UINT64_C(999999999) * 604800 && *rest == '\0');
    assert_true(reef_span_parse("1h30m", &rest, &seconds) && seconds == 3600);
    assert_string_equal(rest, "30m");
    for (size_t i = 0; i < sizeof(NONE) / sizeof(*NONE); i++)
        if (reef_span_parse(NONE[i], &rest, &seconds)) fail_msg("'%s' is a length", NONE[i]);
}

PLAIN_TEST(times_ago_count_from_now) {
    assert_names("3h", NOON - 3 * HOUR, NOON - 3 * HOUR);
    assert_names("90s ago", NOON - 90000, NOON - 90000);
    assert_names("2w", NOON - 14 * DAY, NOON - 14 * DAY);
    assert_names("5m ago", NOON - 300000, NOON - 300000);
    assert_names("0d", NOON, NOON);
    assert_names("999999999w", 0, 0);
}

PLAIN_TEST(what_is_half_a_moment_is_none) {
    static const char *const NONE[] = {"",
                                       "now",
                                       "12:00",
                                       "2026-5-18",
                                       "2026-05-18 ",
                                       "2026-02-29",
                                       "2026-13-01",
                                       "2026-00-10",
                                       "2026-05-32",
                                       "2026-05-18 24:00",
                                       "1969-12-31",
                                       "2026-05-18Z",
                                       "2026-05-18 1200",
                                       "2026-05-18 12:00:60",
                                       "2026-05-18 12:00 ",
                                       "3",
                                       "3x",
                                       "3h later",
                                       "-3h",
                                       "1234567890s",
                                       "Yesterday",
                                       "3 h",
                                       "2026-05-18_12:00"};
    set_zone("UTC0");
    for (size_t i = 0; i < sizeof(NONE) / sizeof(*NONE); i++) {
        reef_moment moment;
        if (reef_moment_parse(NONE[i], NOON, &moment)) fail_msg("'%s' is no moment", NONE[i]);
    }
}

// UTC is computed here, local time by the C library.
PLAIN_TEST(utc_is_that_of_the_library) {
    set_zone("UTC0");
    for (time_t at = 0; at < (time_t)4102444800; at += 86400 * 13 + 3600 * 7 + 61) {
        char text[40];
        struct tm tm;
        assert_non_null(gmtime_r(&at, &tm));
        assert_true(strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%SZ", &tm) > 0);
        assert_names(text, (uint64_t)at * 1000, (uint64_t)at * 1000 + 999);
    }
}

RUN_TESTS
