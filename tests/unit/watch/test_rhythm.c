// How often a type of line comes: when it comes far more often, and when it does not come.
#include "test.h"
#include "type_rhythm.h"

#include <math.h>

#define SECOND_MS INT64_C(1000)
#define MINUTE_MS INT64_C(60000)
#define HOUR_MS INT64_C(3600000)
#define DAY_MS INT64_C(86400000)
#define BEGIN_MS (20000 * DAY_MS)

// A type of line, the time, and how often it was news.
typedef struct course {
    reef_rhythm rhythm;
    int64_t now_ms;
    size_t rises, silences;
    double bits; // of the last one
} course;

static course begun(void) {
    return (course){.now_ms = BEGIN_MS};
}

// A line every `every_ms`, for so long; and a look for silence, as often.
static void pass(course *c, int64_t every_ms, int64_t for_ms) {
    for (int64_t end = c->now_ms + for_ms; c->now_ms < end; c->now_ms += every_ms) {
        c->silences += reef_rhythm_is_silent(&c->rhythm, c->now_ms, &c->bits);
        c->rises += reef_rhythm_count(&c->rhythm, 1, c->now_ms, &c->bits);
    }
}

// No line for so long; after how many milliseconds a silence was found, or 0.
static int64_t stop(course *c, int64_t for_ms) {
    int64_t found = 0, begin = c->now_ms;
    for (; c->now_ms < begin + for_ms; c->now_ms += SECOND_MS)
        if (reef_rhythm_is_silent(&c->rhythm, c->now_ms, &c->bits)) {
            c->silences++;
            found = c->now_ms - begin;
        }
    return found;
}

// ---- too many -----------------------------------------------------------------------------------

PLAIN_TEST(ten_times_as_many_are_news_once_and_again_days_later) {
    course c = begun();
    pass(&c, MINUTE_MS, 3 * DAY_MS + HOUR_MS);
    assert_int_equal(c.rises, 0);
    pass(&c, MINUTE_MS / 10, 20 * MINUTE_MS);
    assert_int_equal(c.rises, 1);
    assert_true(c.bits >= 5);
    pass(&c, MINUTE_MS, 3 * DAY_MS);
    assert_int_equal(c.rises, 1);
    pass(&c, MINUTE_MS / 10, 20 * MINUTE_MS);
    assert_int_equal(c.rises, 2);
}

PLAIN_TEST(ten_times_as_many_for_hours_are_news_once) {
    course c = begun();
    pass(&c, MINUTE_MS, 3 * DAY_MS + HOUR_MS);
    pass(&c, MINUTE_MS / 10, 5 * HOUR_MS);
    assert_int_equal(c.rises, 1);
    // Once it was as usual for an hour, it is news again.
    pass(&c, MINUTE_MS, 3 * HOUR_MS);
    pass(&c, MINUTE_MS / 100, HOUR_MS);
    assert_int_equal(c.rises, 2);
}

PLAIN_TEST(so_many_are_as_rare_as_a_poisson_distribution_says) {
    course c = begun();
    pass(&c, MINUTE_MS, 3 * DAY_MS);
    // Ten in ten minutes were the most: more than 1.6 times as many and six are too many.
    pass(&c, MINUTE_MS / 10, 22 * MINUTE_MS / 10);
    assert_int_equal(c.rises, 0);
    pass(&c, MINUTE_MS / 10, MINUTE_MS / 10);
    assert_int_equal(c.rises, 1);
    // Logarithms are rounded down to 1/4096.
    double bits = 23 * log2(23 / 10.0) - (23 - 10) / log(2);
    assert_true(c.bits <= bits && c.bits > bits - 23 / 4096.0);
}

PLAIN_TEST(nothing_is_too_many_before_two_days_are_known) {
    course c = begun();
    pass(&c, MINUTE_MS, DAY_MS + 12 * HOUR_MS);
    pass(&c, MINUTE_MS / 60, HOUR_MS);
    assert_int_equal(c.rises, 0);
}

PLAIN_TEST(a_slow_rise_over_weeks_is_no_news) {
    course c = begun();
    for (int64_t day = 0, every = 6 * MINUTE_MS; day < 40; day++, every -= every / 10)
        pass(&c, every, DAY_MS);
    assert_int_equal(c.rises, 0);
    assert_int_equal(c.silences, 0);
}

PLAIN_TEST(a_weekly_job_is_compared_with_the_week_before) {
    course c = begun();
    for (int week = 0; week < 8; week++) {
        pass(&c, SECOND_MS, 5 * MINUTE_MS);
        c.now_ms += 7 * DAY_MS - 5 * MINUTE_MS;
    }
    assert_int_equal(c.rises, 0);
    pass(&c, SECOND_MS / 10, 5 * MINUTE_MS);
    assert_int_equal(c.rises, 1);
}

PLAIN_TEST(what_comes_more_often_on_one_day_of_the_week_does_so_the_next_week) {
    course c = begun();
    for (int day = 0; day < 28; day++) {
        pass(&c, MINUTE_MS, 23 * HOUR_MS);
        size_t before = c.rises;
        pass(&c, day % 7 == 1 ? MINUTE_MS / 5 : MINUTE_MS, HOUR_MS);
        if (day > 7) assert_int_equal(c.rises, before);
    }
}

PLAIN_TEST(lines_that_come_late_count_for_the_present) {
    course c = begun();
    pass(&c, MINUTE_MS, 3 * DAY_MS);
    int64_t last = c.rhythm.last_ms;
    assert_false(reef_rhythm_count(&c.rhythm, 1, last - DAY_MS, &c.bits));
    assert_int_equal(c.rhythm.last_ms, last);
    assert_int_equal(c.rhythm.count[0], 11);
}

// ---- none ---------------------------------------------------------------------------------------

PLAIN_TEST(a_heartbeat_that_stops_is_found_once_and_again_after_it_came_back) {
    course c = begun();
    pass(&c, MINUTE_MS, 3 * DAY_MS);
    assert_int_equal(c.silences, 0);
    // Twice the longest gap and a minute, from the last line; `stop` begins a minute behind it.
    int64_t after = stop(&c, 2 * HOUR_MS) + MINUTE_MS;
    assert_in_range(after, 3 * MINUTE_MS, 3 * MINUTE_MS + 2 * SECOND_MS);
    assert_int_equal(c.silences, 1);
    assert_true(c.bits >= 12);
    pass(&c, MINUTE_MS, HOUR_MS);
    assert_int_equal(c.silences, 1);
    // The silence counts for a gap of those three minutes, not for its two hours.
    after = stop(&c, 2 * HOUR_MS) + MINUTE_MS;
    assert_in_range(after, 7 * MINUTE_MS, 7 * MINUTE_MS + 2 * SECOND_MS);
    assert_int_equal(c.silences, 2);
}

PLAIN_TEST(a_heartbeat_that_slows_down_is_soon_usual) {
    course c = begun();
    pass(&c, MINUTE_MS, 3 * DAY_MS);
    pass(&c, 9 * MINUTE_MS, 20 * DAY_MS);
    assert_in_range(c.silences, 1, 3);
}

PLAIN_TEST(a_gap_as_long_as_one_before_is_no_silence) {
    course c = begun();
    for (int day = 0; day < 5; day++) {
        pass(&c, MINUTE_MS, 23 * HOUR_MS);
        if (day < 2) {
            c.now_ms += HOUR_MS; // every night
            continue;
        }
        assert_int_equal(stop(&c, HOUR_MS), 0);
    }
    assert_int_equal(c.silences, 0);
}

PLAIN_TEST(nothing_is_missed_before_two_days_are_known) {
    course c = begun();
    pass(&c, MINUTE_MS, DAY_MS + 12 * HOUR_MS);
    assert_int_equal(stop(&c, 6 * HOUR_MS), 0);
}

PLAIN_TEST(what_comes_in_bursts_is_never_missed) {
    course c = begun();
    for (int day = 0; day < 6; day++)
        for (int hour = 0; hour < 24; hour++) {
            pass(&c, SECOND_MS, 10 * MINUTE_MS);
            if (day != 5)
                c.now_ms += 50 * MINUTE_MS;
            else
                assert_int_equal(stop(&c, 50 * MINUTE_MS), 0);
        }
    assert_int_equal(stop(&c, 2 * DAY_MS), 0);
}

PLAIN_TEST(time_that_is_skipped_is_no_silence) {
    course c = begun();
    pass(&c, MINUTE_MS, 3 * DAY_MS);
    reef_rhythm_skip(&c.rhythm, 6 * HOUR_MS);
    c.now_ms += 6 * HOUR_MS;
    pass(&c, MINUTE_MS, 2 * HOUR_MS);
    assert_int_equal(c.silences, 0);
    assert_true(stop(&c, HOUR_MS) > 0); // nor was it a gap
    assert_int_equal(c.silences, 1);
}

RUN_TESTS
