// Which states stay that are kept by the clock, what they are called, and how people say it.
#include <time.h>

#include "kept_states.h"
#include "reef_snapshot.h"
#include "test.h"

#define HOUR 3600000u
#define DAY (24 * (uint64_t)HOUR)
#define BEGIN 1779105600000u // Monday 2026-05-18 12:00 UTC

static void set_zone(const char *zone) {
    assert_int_equal(setenv("TZ", zone, 1), 0);
    tzset();
}

// Makes a state every hour and removes those that do not stay, as the daemon does. Returns how many
// are there at the end.
static size_t live(const reef_keep_policy *policy, size_t hours, uint64_t *there) {
    bool *kept = calloc(hours, sizeof(*kept));
    size_t count = 0;
    assert_non_null(kept);
    for (size_t i = 0; i < hours; i++) {
        there[count++] = BEGIN + i * (uint64_t)HOUR;
        reef_keep_choose(policy, there, count, kept);
        size_t left = 0;
        for (size_t k = 0; k < count; k++)
            if (kept[k]) there[left++] = there[k];
        count = left;
    }
    free(kept);
    return count;
}

PLAIN_TEST(the_last_hours_days_and_weeks_stay) {
    enum { HOURS = 24 * 7 * 60 };
    const reef_keep_policy policy = {.hourly = 24, .daily = 30, .weekly = 52};
    uint64_t *there = calloc(HOURS, sizeof(*there));
    assert_non_null(there);
    set_zone("UTC0");
    size_t count = live(&policy, HOURS, there);
    uint64_t now = BEGIN + (HOURS - 1) * (uint64_t)HOUR;
    // Of the last day each hour, of the 29 days before the last hour of each, of the 52 weeks their
    // last hour; days and weeks share the one, and the newest is of all three.
    assert_int_equal(there[count - 1], now);
    for (size_t i = 1; i < 24; i++) assert_int_equal(there[count - 1 - i], now - i * HOUR);
    uint64_t midnight = now - now % DAY;
    size_t days = 0, weeks = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t last_hour = there[i] % DAY;
        if (there[i] >= now - 23 * (uint64_t)HOUR) continue;
        assert_int_equal(last_hour, 23 * HOUR);
        if (there[i] >= midnight - 30 * DAY)
            days++;
        else
            weeks++;
        // The 3rd day of 1970 was a Saturday, so a Sunday is day 3 of each seven.
        if (there[i] < midnight - 30 * DAY) assert_int_equal(there[i] / DAY % 7, 3);
    }
    assert_in_range(days, 28, 30);
    assert_in_range(weeks, 52 - 6, 52 - 4);
    free(there);
}

PLAIN_TEST(days_are_local) {
    const reef_keep_policy daily = {.daily = 2};
    const uint64_t MADE[] = {BEGIN, BEGIN + 2 * HOUR, BEGIN + 14 * HOUR, BEGIN + 20 * HOUR};
    bool kept[4];
    set_zone("UTC0"); // 12:00, 14:00, 02:00, 08:00
    reef_keep_choose(&daily, MADE, 4, kept);
    assert_true(!kept[0] && kept[1] && !kept[2] && kept[3]);
    set_zone("ZZZ-11"); // 23:00, 01:00, 13:00, 19:00
    reef_keep_choose(&daily, MADE, 4, kept);
    assert_true(kept[0] && !kept[1] && !kept[2] && kept[3]);
}

PLAIN_TEST(hours_without_a_state_do_not_count) {
    const reef_keep_policy hourly = {.hourly = 2};
    const uint64_t MADE[] = {BEGIN, BEGIN + 1, BEGIN + 100 * (uint64_t)HOUR,
                             BEGIN + 100 * (uint64_t)HOUR + 5};
    bool kept[4];
    reef_keep_choose(&hourly, MADE, 4, kept);
    assert_true(!kept[0] && kept[1] && !kept[2] && kept[3]);
    reef_keep_choose(&hourly, MADE, 0, kept);
    const reef_keep_policy weekly = {.weekly = 1};
    reef_keep_choose(&weekly, MADE, 4, kept);
    assert_true(!kept[0] && !kept[1] && !kept[2] && kept[3]);
}

// Looks every second at a clock that jumps, as the daemon does. Returns how many were kept.
static size_t kept_by(uint64_t every, uint64_t seconds, uint64_t jump_at, int64_t jump) {
    size_t kept = 0;
    uint64_t now = BEGIN + 500, due = (now / every + 1) * every;
    for (uint64_t i = 0; i < seconds; i++, now += 1000) {
        if (i == jump_at) now += (uint64_t)jump;
        if (!reef_keep_is_due(due, now, every)) continue;
        due = (now / every + 1) * every;
        kept++;
    }
    return kept;
}

// A jump costs one state at most, and none is missed for longer than a period.
PLAIN_TEST(a_clock_that_jumps_goes_on_keeping_states) {
    static const int64_t JUMPS[] = {-(int64_t)DAY, DAY, -(int64_t)HOUR - 1, -61000, -30000,
                                    7000,          0};
    for (size_t i = 0; i < sizeof(JUMPS) / sizeof(*JUMPS); i++) {
        size_t kept = kept_by(60000, 600, 299, JUMPS[i]);
        assert_in_range(kept, 9, 11);
        // Within a minute of the jump one is kept, and a second one is of the next full minute.
        size_t before = kept_by(60000, 299, 1000, 0);
        assert_in_range(kept_by(60000, 299 + 61, 299, JUMPS[i]) - before, 1, 2);
    }
}

PLAIN_TEST(policies_are_read) {
    static const char *const WRONG[] = {"",          "hourly",       "hourly=",     "hourly=-1",
                                        "hourly=x",  "hourly=24,",   "monthly=3",   "hourly=24 ",
                                        ",hourly=1", "hourly=1;d=2", "hourly=0x10", "hourly=100001",
                                        "daily=0",   "hour=1",       "=1",          "weekly=1=2"};
    reef_keep_policy policy;
    reef_error err;
    assert_int_equal(reef_keep_parse(&policy, REEF_KEEP_DEFAULT, &err), REEF_OK);
    assert_true(policy.hourly == 24 && policy.daily == 30 && policy.weekly == 52);
    assert_int_equal(reef_keep_parse(&policy, "weekly=5,hourly=100000", &err), REEF_OK);
    assert_true(policy.hourly == 100000 && policy.daily == 0 && policy.weekly == 5);
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++) {
        if (reef_keep_parse(&policy, WRONG[i], &err) != REEF_ERR_INVALID)
            fail_msg("'%s' was accepted", WRONG[i]);
    }
    assert_int_equal(reef_keep_parse(&policy, "hour=1", &err), REEF_ERR_INVALID);
    assert_string_equal(err.message, "'hour=1' is not what to keep: rules such as "
                                     "hourly=24,daily=30,weekly=52, each a number up to 100000");
    assert_int_equal(reef_keep_parse(&policy, "hourly=0", &err), REEF_ERR_INVALID);
    assert_string_equal(err.message, "'hourly=0' keeps nothing");
}

PLAIN_TEST(names_say_when) {
    static const char *const OTHERS[] = {
        "auto-20260518T120000",  "auto-2026-05-18T120000Z", "auto-20260518T120000Z2", "auto",
        "auto-20260518X120000Z", "before-upgrade",          "Auto-20260518T120000Z",  ""};
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_error err;
    set_zone("ZZZ-11");
    reef_keep_name(name, BEGIN + 7123);
    assert_string_equal(name, "auto-20260518T120007Z");
    assert_true(reef_keep_has_name(name));
    assert_int_equal(reef_snapshot_name_check(name, &err), REEF_OK);
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(*OTHERS); i++)
        assert_false(reef_keep_has_name(OTHERS[i]));
}

RUN_TESTS
