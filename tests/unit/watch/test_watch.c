// What of lines is news, and what becomes of it: incidents, their threshold, the clock.
#include "checked.h"
#include "reef_watch.h"

#include <math.h>
#include <time.h>

#define SECOND_MS INT64_C(1000)
#define MINUTE_MS INT64_C(60000)
#define HOUR_MS INT64_C(3600000)
#define DAY_MS INT64_C(86400000)
#define BEGIN_MS INT64_C(1792022400000) // 2026-10-15 00:00:00
#define SOURCES 2
#define HEARD_MAX 256

// ---- allocations that fail: the linker lets them ------------------------------------------------

static bool counting;
static size_t allocations, failing; // number of the one that does, from 1; 0: none

static bool fails(void) {
    return counting && ++allocations == failing;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes) {
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes) {
    return fails() ? NULL : __real_realloc(old, bytes);
}

// ---- a watch and its logs -----------------------------------------------------------------------

// Logs that are written while they are watched, and the incidents that ended.
typedef struct desk {
    reef_watch *watch;
    int64_t now_ms;
    uint32_t seed;
    uint64_t offsets[SOURCES], lines, status_at;
    reef_incident heard[HEARD_MAX];
    size_t heard_count, rung;
    size_t silent, repeated; // told that they linger, and then that nothing came
} desk;

static void on_incident(void *context, const reef_incident *incident) {
    desk *d = context;
    bool was = counting;
    counting = false;
    for (size_t i = 0; i < incident->event_count; i++) assert_non_null(incident->events[i].line);
    assert_true(incident->rarest < incident->event_count || incident->event_count == 0);
    assert_true(incident->event_count <= REEF_WATCH_EVENTS_MAX);
    assert_false(incident->is_open && (incident->lingers || incident->said));
    d->repeated += !incident->is_open && !incident->lingers && incident->said;
    if (incident->lingers) {
        assert_false(incident->is_open || incident->said);
        d->silent++;
    } else if (incident->is_open) {
        assert_true(incident->rings);
        d->rung++;
    } else if (d->heard_count < HEARD_MAX) {
        reef_incident *own = &d->heard[d->heard_count++];
        *own = *incident;
        if (own->event_count > 0)
            own->events = copied(own->events, own->event_count * sizeof(*own->events));
        for (size_t i = 0; i < own->event_count; i++) {
            reef_event *e = &own->events[i];
            e->line = copied(e->line, strlen(e->line) + 1);
            if (e->nearest != NULL) e->nearest = copied(e->nearest, strlen(e->nearest) + 1);
        }
    }
    counting = was;
}

static desk *desk_new(const reef_watch_options *options) {
    desk *d = room(sizeof(*d));
    d->now_ms = BEGIN_MS;
    d->seed = 1;
    must(reef_watch_new(&d->watch, options, on_incident, d, &why));
    for (uint32_t i = 0, number; i < SOURCES; i++) {
        must(reef_watch_add_source(d->watch, &number, &why));
        assert_int_equal(number, i);
    }
    return d;
}

static int desk_make(void **state) {
    *state = desk_new(&(reef_watch_options){0});
    return 0;
}

static int desk_remove(void **state) {
    reef_watch_free(((desk *)*state)->watch);
    return 0;
}

#define WATCH_TEST(name) TEST_WITH(name, desk_make, desk_remove, desk *d)

static uint32_t draw(desk *d, uint32_t below) {
    d->seed = d->seed * 1664525u + 1013904223u;
    return (d->seed >> 8) % below;
}

static reef_status say_bytes(desk *d, uint32_t source, const void *bytes, size_t count) {
    reef_status status =
        reef_watch_line(d->watch, source, bytes, count, d->offsets[source], d->now_ms, &why);
    d->offsets[source] += count + 1;
    d->lines++;
    return status;
}

/** A line of this text, with the present at its head; its offset. */
static uint64_t say(desk *d, uint32_t source, const char *format, ...) {
    char line[1024];
    time_t now = (time_t)(d->now_ms / 1000);
    struct tm tm;
    assert_non_null(gmtime_r(&now, &tm));
    // One log is of syslog, the others have whole dates.
    size_t used =
        strftime(line, sizeof(line),
                 source == 0 ? "%Y-%m-%d %H:%M:%S " : "%b %e %H:%M:%S web1 app[77]: ", &tm);
    va_list arguments;
    va_start(arguments, format);
    used += (size_t)vsnprintf(line + used, sizeof(line) - used, format, arguments);
    va_end(arguments);
    uint64_t offset = d->offsets[source];
    must(say_bytes(d, source, line, used));
    return offset;
}

// Both logs as always, in rounds of lines; up to a time.
static void usual_until(desk *d, int64_t end_ms, int64_t every_ms) {
    for (; d->now_ms < end_ms; d->now_ms += every_ms)
        for (uint32_t source = 0; source < SOURCES; source++) {
            say(d, source, "request r%u of user%u took %u ms", draw(d, 1000), draw(d, 50),
                1000 + draw(d, 5000));
            say(d, source, "connection from 10.0.%u.%u accepted", draw(d, 256), draw(d, 256));
            say(d, source, "worker %u finished task t%u", 1000 + draw(d, 8), draw(d, 100000));
            say(d, source, "\"GET /shop/cart HTTP/1.1\" 200 %u", 1000 + draw(d, 9000));
            say(d, source, "heartbeat ok");
        }
}

static void usual(desk *d, int64_t for_ms) {
    usual_until(d, d->now_ms + for_ms, MINUTE_MS);
}

// The counts, which always add up.
static reef_watch_counts counts(const desk *d) {
    reef_watch_counts c;
    reef_watch_read_counts(d->watch, &c);
    assert_int_equal(c.lines, c.usual + c.in_events + c.suppressed);
    assert_true(c.learning <= c.usual);
    assert_int_equal(c.rung, d->rung);
    assert_true(c.types <= REEF_WATCH_TYPES_MAX);
    return c;
}

// All incidents, at the end of the logs.
static size_t finish(desk *d) {
    reef_watch_finish(d->watch);
    reef_watch_counts c = counts(d);
    uint64_t events = 0, kept = 0;
    for (size_t i = 0; i < REEF_NEWS_COUNT; i++) events += c.events[i];
    for (size_t i = 0; i < d->heard_count; i++) kept += d->heard[i].event_count + d->heard[i].more;
    if (c.incidents <= HEARD_MAX) {
        assert_int_equal(c.incidents, d->heard_count);
        assert_int_equal(events, kept);
    }
    return d->heard_count;
}

// ---- what is news -------------------------------------------------------------------------------

WATCH_TEST(nothing_rings_while_a_source_is_learned) {
    for (size_t i = 0; i < 100; i++) {
        say(d, 0, "error of sort %c%c: lost", 'a' + i % 26, 'a' + i / 26);
        say(d, 0, "what%c%c never%c%c came", 'a' + i % 26, 'a' + i / 26, 'a' + i % 26,
            'a' + i / 26);
        d->now_ms += MINUTE_MS;
    }
    reef_watch_counts c = counts(d);
    assert_int_equal(c.learning, 200);
    assert_int_equal(c.lines, d->lines);
    assert_int_equal(finish(d), 0);
}

WATCH_TEST(a_source_is_judged_once_nothing_new_came_for_an_hour) {
    usual(d, 3 * HOUR_MS);
    uint64_t learning = counts(d).learning;
    assert_true(learning > 0 && learning < d->lines);
    say(d, 0, "worker 1001 lost its task");
    assert_int_equal(counts(d).incidents, 1);
    assert_int_equal(counts(d).learning, learning);
}

WATCH_TEST(as_always_is_no_news_nor_is_the_first_of_a_month) {
    usual_until(d, BEGIN_MS + 30 * DAY_MS, 5 * MINUTE_MS);
    assert_int_equal(finish(d), 0);
    assert_int_equal(counts(d).usual, d->lines);
}

WATCH_TEST(a_new_message_rings_with_what_is_known_of_it) {
    usual(d, 2 * DAY_MS);
    int64_t at = d->now_ms;
    uint64_t offset = say(d, 0, "worker 1001 lost its task");
    assert_int_equal(d->rung, 1);
    usual(d, 3 * HOUR_MS);
    assert_int_equal(finish(d), 1);
    const reef_incident *incident = &d->heard[0];
    assert_int_equal(incident->number, 1);
    assert_true(incident->rings);
    assert_int_equal(incident->first_ms, at);
    assert_int_equal(incident->event_count, 1);
    const reef_event *e = &incident->events[0];
    assert_int_equal(e->news, REEF_NEWS_TYPE);
    assert_int_equal(e->severity, REEF_SEVERITY_NONE);
    assert_int_equal(e->source, 0);
    assert_int_equal(e->offset, offset);
    assert_int_equal(e->count, 1);
    assert_non_null(strstr(e->line, "worker 1001 lost its task"));
    assert_non_null(strstr(e->nearest, "finished task"));
    assert_true(e->bits >= 8);
    assert_int_equal(incident->bits * 1000, e->bits * 1000);
}

WATCH_TEST(an_error_is_worth_more) {
    usual(d, 2 * DAY_MS);
    say(d, 0, "worker 1001 lost its task");
    d->now_ms += MINUTE_MS;
    say(d, 0, "error: no task for it");
    (void)finish(d);
    assert_int_equal(d->heard_count, 1);
    const reef_event *events = d->heard[0].events;
    assert_int_equal(events[1].severity, REEF_SEVERITY_ERROR);
    assert_true(events[1].bits > events[0].bits);
    assert_int_equal(d->heard[0].rarest, 1);
    assert_true(d->heard[0].bits > events[1].bits); // the more of them there are
}

WATCH_TEST(repeats_are_counted_and_do_not_ring_again) {
    usual(d, 2 * DAY_MS);
    int64_t first = d->now_ms;
    for (size_t i = 0; i < 11; i++, d->now_ms += 30 * SECOND_MS)
        say(d, 0, "worker %zu lost its task", 1000 + i);
    int64_t last = d->now_ms - 30 * SECOND_MS;
    usual(d, 4 * HOUR_MS);
    say(d, 0, "worker 1003 lost its task"); // when the incident has ended it is usual
    assert_int_equal(finish(d), 1);
    assert_int_equal(d->rung, 1);
    assert_int_equal(d->heard[0].events[0].count, 11);
    assert_int_equal(d->heard[0].events[0].first_ms, first);
    assert_int_equal(d->heard[0].events[0].last_ms, last);
    assert_int_equal(d->heard[0].last_ms, last);
    assert_int_equal(counts(d).in_events, 11);
}

WATCH_TEST(a_word_where_always_the_same_one_stood_is_news) {
    usual(d, 2 * DAY_MS);
    say(d, 1, "heartbeat lost");
    (void)finish(d);
    say(d, 1, "\"GET /shop/cart HTTP/1.1\" 503 1234");
    assert_int_equal(finish(d), 2);
    assert_int_equal(d->heard[1].events[0].news, REEF_NEWS_WORD);
    const reef_event *e = &d->heard[1].events[0];
    assert_memory_equal(e->line + e->new_at, "503", e->new_bytes);
    assert_int_equal(e->new_bytes, 3);
    assert_int_equal(counts(d).events[REEF_NEWS_WORD], 2);
}

WATCH_TEST(a_type_that_comes_far_more_often_rings_and_its_lines_are_counted) {
    usual(d, 3 * DAY_MS);
    for (size_t i = 0; i < 300; i++, d->now_ms += SECOND_MS)
        say(d, 0, "connection from 10.0.%u.%u accepted", draw(d, 256), draw(d, 256));
    usual(d, 5 * HOUR_MS);
    assert_int_equal(finish(d), 1);
    assert_int_equal(d->rung, 1);
    assert_int_equal(d->heard[0].events[0].news, REEF_NEWS_RATE);
    assert_true(d->heard[0].events[0].count > 200);
}

WATCH_TEST(a_status_that_comes_far_more_often_rings_where_its_type_does_not) {
    for (size_t day = 0; day < 4; day++)
        for (size_t minute = 0; minute < 1440; minute++, d->now_ms += MINUTE_MS)
            for (size_t i = 0; i < 10; i++) // one in a hundred is no success, later a half
                say(d, 0, "\"GET /shop/cart HTTP/1.1\" %d %u",
                    (i == 0 && minute % 10 == 0) || (i < 5 && day == 3 && minute > 1400) ? 500
                                                                                         : 200,
                    1000 + draw(d, 9000));
    assert_int_equal(finish(d), 1);
    const reef_event *e = &d->heard[0].events[0];
    assert_int_equal(e->news, REEF_NEWS_RATE);
    assert_memory_equal(e->line + e->new_at, "500", e->new_bytes);
    assert_int_equal(e->new_bytes, 3);
}

WATCH_TEST(what_comes_all_the_time_and_stops_rings) {
    usual(d, 3 * DAY_MS);
    int64_t stopped = d->now_ms;
    for (; d->now_ms < stopped + 2 * HOUR_MS; d->now_ms += MINUTE_MS)
        say(d, 1, "worker %u finished task t%u", 1000 + draw(d, 8), draw(d, 100000));
    assert_true(counts(d).events[REEF_NEWS_SILENCE] >= 8); // all others, of both logs
    assert_int_equal(finish(d), 1);                        // at one time
    assert_int_equal(d->rung, 1);
    bool found = false;
    for (size_t i = 0; i < d->heard[0].event_count; i++) {
        const reef_event *e = &d->heard[0].events[i];
        assert_int_equal(e->news, REEF_NEWS_SILENCE);
        assert_in_range(e->first_ms, stopped, stopped + 10 * MINUTE_MS);
        assert_false(e->source == 1 && strstr(e->line, "worker") != NULL);
        found |= e->source == 1 && strstr(e->line, "heartbeat ok") != NULL;
    }
    assert_true(found);
}

// The two logs as always, and a status every ten seconds.
static void status_until(desk *d, int64_t end_ms, int status) {
    for (int64_t i = 0; d->now_ms < end_ms; d->now_ms += 10 * SECOND_MS, i++) {
        if (status > 0) d->status_at = say(d, 0, "probe of shop says status %d", status);
        if (i % 6 != 0) continue;
        say(d, 1, "worker %u finished task t%u", 1000 + draw(d, 8), draw(d, 100000));
    }
}

WATCH_TEST(a_constant_status_that_stops_is_one_silence) {
    status_until(d, BEGIN_MS + 4 * DAY_MS, 200);
    const uint64_t last = d->status_at;
    status_until(d, d->now_ms + 2 * HOUR_MS, 0);
    assert_int_equal(counts(d).events[REEF_NEWS_SILENCE], 1);
    status_until(d, d->now_ms + HOUR_MS, 503); // it is another one, which is news by itself
    assert_int_equal(counts(d).events[REEF_NEWS_SILENCE], 1);
    assert_int_equal(counts(d).events[REEF_NEWS_WORD], 1);
    (void)finish(d);
    assert_int_equal(d->heard[0].event_count, 1);
    assert_int_equal(d->heard[0].events[0].offset, last); // of its last line
}

WATCH_TEST(a_status_that_stops_while_its_type_goes_on_is_a_silence) {
    for (; d->now_ms < BEGIN_MS + 4 * DAY_MS; d->now_ms += 10 * SECOND_MS)
        say(d, 0, "probe of shop says status %d", d->now_ms / 10000 % 3 == 0 ? 304 : 200);
    assert_int_equal(counts(d).events[REEF_NEWS_SILENCE], 0);
    status_until(d, d->now_ms + HOUR_MS, 200);
    assert_int_equal(counts(d).events[REEF_NEWS_SILENCE], 1);
}

WATCH_TEST(lines_that_syslog_only_counts_are_lines_of_the_type_before) {
    static const char *const FORMS[] = {"last message repeated %u times",
                                        "message repeated %u times: [ heartbeat ok]"};
    for (size_t form = 0; form < 2; form++) {
        const size_t before = counts(d).events[REEF_NEWS_RATE];
        for (int64_t end = d->now_ms + 3 * DAY_MS; d->now_ms < end; d->now_ms += MINUTE_MS) {
            usual_until(d, d->now_ms + MINUTE_MS, MINUTE_MS);
            d->now_ms -= MINUTE_MS;
            say(d, 1, FORMS[form], 2 + draw(d, 3)); // as always
        }
        assert_int_equal(counts(d).events[REEF_NEWS_RATE], before);
        const size_t types = counts(d).types;
        say(d, 1, FORMS[form], 5000);
        assert_int_equal(counts(d).events[REEF_NEWS_RATE], before + 1);
        assert_int_equal(counts(d).types, types); // no type of its own
        say(d, 1, FORMS[form], 70);
        usual(d, 3 * HOUR_MS);
    }
    (void)finish(d);
    assert_int_equal(d->heard_count, 2);
    const reef_event *e = &d->heard[1].events[0];
    assert_true(e->count >= 5070);
    assert_non_null(strstr(e->line, "message repeated 5000 times"));
    assert_non_null(strstr(e->nearest, "heartbeat ok")); // what is repeated
}

WATCH_TEST(a_status_has_the_repeats_of_its_line) {
    for (size_t minute = 0; minute < 4 * 1440; minute++, d->now_ms += MINUTE_MS)
        for (size_t i = 0; i < 20; i++) // one in two hundred is no success
            say(d, 1, "answered %d to %u", i == 0 && minute % 10 == 0 ? 500 : 200, draw(d, 99999));
    say(d, 1, "answered 500 to 12345");
    say(d, 1, "last message repeated 60 times"); // of all answers that is not much
    assert_int_equal(counts(d).events[REEF_NEWS_RATE], 1);
    (void)finish(d);
}

WATCH_TEST(repeats_of_an_event_are_its_lines) {
    usual(d, 2 * DAY_MS);
    say(d, 1, "error: no task is left");
    say(d, 1, "last message repeated 9 times");
    say(d, 1, "last message repeated 20 times");
    say(d, 1, "--- last message repeated 5 times ---");
    assert_int_equal(finish(d), 1);
    assert_int_equal(d->heard[0].event_count, 1);
    assert_int_equal(d->heard[0].events[0].count, 35);
    assert_int_equal(counts(d).in_events, 4);
}

WATCH_TEST(what_only_mentions_repeats_is_a_line) {
    usual(d, 2 * DAY_MS);
    const size_t types = counts(d).types;
    say(d, 0, "the last message repeated 5 times was lost");
    say(d, 0, "message repeated 7 times to user7");
    say(d, 0, "last message repeated often times");
    assert_int_equal(counts(d).types, types + 3);
    say(d, 0, "last message repeated 0 times");
    assert_int_equal(counts(d).types, types + 3); // the type of "often"
}

// ---- records of several lines -------------------------------------------------------------------

static void say_plain(desk *d, uint32_t source, const char *line) {
    must(say_bytes(d, source, line, strlen(line)));
}

static void say_trace(desk *d, const char *cause) {
    say_plain(d, 0, cause);
    say_plain(d, 0, "\tat shop.Cart.total(Cart.java:71)");
    say_plain(d, 0, "\tat shop.Checkout.pay(Checkout.java:12)");
    say_plain(d, 0, "Caused by: java.io.IOException: broken pipe");
    say_plain(d, 0, "\t... 12 more");
}

WATCH_TEST(a_stack_trace_is_one_event_with_the_line_before_it) {
    usual(d, 2 * DAY_MS);
    const uint64_t in_events = counts(d).in_events;
    say(d, 0, "error: payment failed");
    say_trace(d, "java.lang.IllegalStateException: no cart");
    usual(d, MINUTE_MS);
    assert_int_equal(counts(d).in_events, in_events + 6);
    assert_int_equal(finish(d), 1);
    assert_int_equal(d->heard[0].event_count, 1);
    assert_int_equal(d->heard[0].more, 0);
    assert_int_equal(d->heard[0].events[0].count, 1); // it came once
    assert_non_null(strstr(d->heard[0].events[0].line, "payment failed"));
}

WATCH_TEST(another_cause_below_a_known_line_is_one_event) {
    for (size_t day = 0; day < 3; day++) {
        usual(d, DAY_MS / 2);
        for (size_t i = 0; i < 5; i++) {
            say(d, 0, "warning: payment failed");
            say_trace(d, "java.lang.IllegalStateException: no cart");
        }
        usual(d, DAY_MS / 2);
    }
    const uint64_t before = counts(d).incidents;
    say(d, 0, "warning: payment failed");
    say_trace(d, "shop.NoStockException: article is gone");
    assert_int_equal(counts(d).incidents, before + 1);
    (void)finish(d);
    const reef_incident *last = &d->heard[d->heard_count - 1];
    assert_int_equal(last->event_count, 1);
    assert_non_null(strstr(last->events[0].line, "NoStockException"));
}

WATCH_TEST(what_is_below_a_line_that_is_normal_does_not_ring) {
    size_t types;
    int64_t until_ms;
    usual(d, 2 * DAY_MS);
    say(d, 0, "error: payment failed");
    usual(d, DAY_MS);
    assert_int_equal(d->rung, 1);
    must(reef_watch_decide(d->watch, 1, REEF_DECISION_NORMAL, 0, &types, &until_ms, &why));
    const uint64_t suppressed = counts(d).suppressed;
    say(d, 0, "error: payment failed");
    say_trace(d, "java.lang.IllegalStateException: no cart");
    usual(d, DAY_MS);
    assert_int_equal(d->rung, 1);
    assert_true(counts(d).suppressed > suppressed);
    (void)finish(d);
}

// Such as a program that stopped to write times.
WATCH_TEST(a_record_has_an_end) {
    usual(d, 2 * DAY_MS);
    say(d, 0, "error: payment failed");
    for (size_t i = 0; i < 300; i++) say_plain(d, 0, "waiting for the till");
    d->now_ms += HOUR_MS / 2;
    say_plain(d, 0, "fatal: no till is left");
    assert_int_equal(finish(d), 2);
}

WATCH_TEST(an_error_that_comes_again_after_a_day_rings) {
    usual(d, 2 * DAY_MS);
    say(d, 0, "error: disk of backup is full");
    usual(d, 2 * DAY_MS);
    say(d, 0, "error: disk of backup is full");
    assert_int_equal(finish(d), 2);
    assert_int_equal(d->rung, 2);
    assert_int_equal(d->heard[1].events[0].news, REEF_NEWS_AGAIN);
}

WATCH_TEST(what_never_came_is_not_said_to_come_again) {
    // A source whose lines are often new: another one is no event.
    for (size_t i = 0; i < 4000; i++, d->now_ms += MINUTE_MS) {
        say(d, 0, "heartbeat ok");
        say(d, 0, "error %c%c%c of %c%c%c sort", 'a' + (int)(i % 26), 'a' + (int)(i / 26 % 26),
            'a' + (int)(i / 676), 'a' + (int)(i % 26), 'a' + (int)(i / 26 % 26),
            'a' + (int)(i / 676));
    }
    (void)finish(d);
    assert_int_equal(counts(d).events[REEF_NEWS_AGAIN], 0);
}

PLAIN_TEST(what_did_not_come_for_long_is_new_again) {
    desk *d = desk_new(&(reef_watch_options){.forget_days = 4});
    usual(d, 2 * DAY_MS);
    say(d, 0, "worker 1001 lost its task");
    usual(d, 3 * DAY_MS);
    say(d, 0, "worker 1001 lost its task");
    assert_int_equal(counts(d).incidents, 1);
    usual(d, 5 * DAY_MS);
    say(d, 0, "worker 1001 lost its task");
    assert_int_equal(counts(d).incidents, 2);
    reef_watch_free(d->watch);
}

// ---- incidents ----------------------------------------------------------------------------------

// Two errors that never came, so long after each other, in two sources: how many incidents.
static size_t incidents_of(int64_t after_ms, uint32_t first, uint32_t second, uint32_t gap_s) {
    desk *d = desk_new(&(reef_watch_options){.gap_s = gap_s});
    usual(d, 2 * DAY_MS);
    say(d, first, "error: no task is left");
    d->now_ms += after_ms;
    say(d, second, "fatal: shop has no carts any more");
    size_t count = finish(d);
    reef_watch_free(d->watch);
    return count;
}

PLAIN_TEST(events_nearer_than_the_gap_are_one_incident) {
    for (uint32_t second = 0; second < SOURCES; second++) {
        assert_int_equal(incidents_of(0, 0, second, 0), 1);
        assert_int_equal(incidents_of(59 * SECOND_MS, 0, second, 0), 1);
        assert_int_equal(incidents_of(61 * SECOND_MS, 0, second, 0), 2);
        assert_int_equal(incidents_of(61 * SECOND_MS, 0, second, 120), 1);
        assert_int_equal(incidents_of(121 * SECOND_MS, 0, second, 120), 2);
    }
}

WATCH_TEST(further_new_types_of_a_source_join_its_incident_for_two_hours) {
    usual(d, 2 * DAY_MS);
    say(d, 0, "version 17.2.1 of the shop starts");
    usual(d, HOUR_MS);
    say(d, 0, "coupon c123 of user7 redeemed now");
    usual(d, 50 * MINUTE_MS);
    say(d, 0, "coupon c123 has no more uses left here");
    assert_int_equal(counts(d).incidents, 1);
    assert_int_equal(d->rung, 1);
    say(d, 1, "mail to user7 is late today"); // near to it
    d->now_ms += 2 * MINUTE_MS;
    say(d, 1, "mail for user7 could not be sent"); // of another source
    assert_int_equal(counts(d).incidents, 2);
    usual(d, 10 * MINUTE_MS);
    say(d, 0, "error: no coupon is left at all for it"); // an error is an incident of its own
    assert_int_equal(counts(d).incidents, 3);
    usual(d, 4 * HOUR_MS);
    say(d, 0, "coupon cards were printed anew"); // too late
    assert_int_equal(finish(d), 4);
    assert_int_equal(d->heard[0].event_count, 4);
}

// Its source's news may still belong to it, but nobody waits for that.
WATCH_TEST(an_incident_has_ended_when_it_is_silent) {
    usual(d, 2 * DAY_MS);
    say(d, 0, "fatal: the volume of the shop is lost");
    usual(d, 30 * 1000);
    assert_int_equal(counts(d).open, 1);
    usual(d, 3 * MINUTE_MS);
    assert_int_equal(counts(d).open, 0);
    assert_int_equal(d->silent, 1);
    assert_int_equal(d->heard_count, 0);
    say(d, 0, "the volume came back by itself"); // belongs to it
    assert_int_equal(counts(d).open, 1);
    assert_int_equal(counts(d).incidents, 1);
    assert_int_equal(d->rung, 1);
    usual(d, 3 * MINUTE_MS);
    assert_int_equal(d->silent, 2);
    usual(d, 3 * HOUR_MS);
    assert_int_equal(d->heard_count, 1);
    assert_int_equal(d->repeated, 1);
    assert_int_equal(d->heard[0].event_count, 2);
}

WATCH_TEST(a_small_number_is_no_news_where_larger_ones_stand) {
    usual(d, 2 * HOUR_MS);
    for (int i = 0; i < 4000; i++) {
        say(d, 0, "order %u has code %u", 100000 + draw(d, 100000), 200 + draw(d, 12));
        d->now_ms += MINUTE_MS;
    }
    const uint64_t before = counts(d).incidents;
    say(d, 0, "order 7 has code 204");
    say(d, 0, "order 712 has code 205");
    assert_int_equal(counts(d).incidents, before);
    say(d, 0, "order 123456 has code 503"); // one of a few
    assert_int_equal(counts(d).incidents, before + 1);
}

WATCH_TEST(an_incident_keeps_so_many_events_and_counts_the_others) {
    usual(d, 2 * DAY_MS);
    for (size_t i = 0; i < 100; i++)
        say(d, 0, "fatal%c%c case%c%c", 'a' + i % 26, 'a' + i / 26, 'a' + i % 26, 'a' + i / 26);
    assert_int_equal(finish(d), 1);
    assert_int_equal(d->heard[0].event_count, REEF_WATCH_EVENTS_MAX - 1);
    assert_int_equal(d->heard[0].more, 101 - REEF_WATCH_EVENTS_MAX);
}

// Ten days, each with one critical message and three others that are new: how many of each ring
// in the last five.
static void count_rung(double budget, size_t *critical, size_t *others) {
    desk *d = desk_new(&(reef_watch_options){.budget = budget});
    usual_until(d, BEGIN_MS + 2 * DAY_MS, 5 * MINUTE_MS);
    for (int day = 0; day < 10; day++)
        for (int i = 0; i < 4; i++) {
            usual_until(d, d->now_ms + 6 * HOUR_MS, 5 * MINUTE_MS);
            say(d, 0, "%s%c%c words%c%c never%c%c came%c%c", i == 1 ? "panic: of " : "", 'a' + i,
                'a' + day, 'a' + i, 'a' + day, 'a' + i, 'a' + day, 'a' + i, 'a' + day);
        }
    assert_int_equal(finish(d), 40);
    *critical = *others = 0;
    for (size_t i = 0; i < 40; i++) {
        bool is_critical = d->heard[i].events[0].severity == REEF_SEVERITY_CRITICAL;
        if (i < 20 || !d->heard[i].rings) continue;
        *(is_critical ? critical : others) += 1;
    }
    reef_watch_free(d->watch);
}

PLAIN_TEST(with_a_small_budget_the_least_rare_do_not_ring) {
    size_t critical, others;
    count_rung(1, &critical, &others);
    assert_true(critical > 0);
    assert_int_equal(others, 0);
    count_rung(100, &critical, &others);
    assert_int_equal(critical, 5);
    assert_int_equal(others, 15);
}

PLAIN_TEST(before_a_given_time_nothing_is_judged_and_then_all_is) {
    desk *d = desk_new(&(reef_watch_options){.since_ms = BEGIN_MS + 5 * DAY_MS});
    usual(d, 4 * DAY_MS);
    say(d, 0, "error: no task is left");
    usual(d, DAY_MS - MINUTE_MS);
    assert_int_equal(counts(d).incidents, 0);
    assert_int_equal(counts(d).learning, d->lines);
    d->now_ms = BEGIN_MS + 5 * DAY_MS;
    say(d, 0, "fatal: shop has no carts any more");
    assert_int_equal(counts(d).learning, d->lines - 1);
    assert_int_equal(finish(d), 1);
    assert_int_equal(d->heard[0].events[0].first_ms, BEGIN_MS + 5 * DAY_MS);
    reef_watch_free(d->watch);
}

// ---- the clock ----------------------------------------------------------------------------------

WATCH_TEST(one_line_of_another_day_is_of_the_present) {
    usual(d, 3 * DAY_MS);
    for (int64_t off = -DAY_MS; off <= DAY_MS; off += 2 * DAY_MS) {
        d->now_ms += off;
        say(d, 0, "heartbeat ok");
        d->now_ms -= off;
        usual(d, HOUR_MS);
    }
    assert_int_equal(counts(d).incidents, 0);
    int64_t now = d->now_ms;
    d->now_ms += DAY_MS;
    say(d, 0, "worker 1001 lost its task");
    d->now_ms = now;
    assert_int_equal(finish(d), 1);
    assert_true(d->heard[0].first_ms <= now);
}

static void expect_set_clock(desk *d, int64_t off_ms) {
    d->now_ms += off_ms;
    usual(d, 2 * HOUR_MS);
    int64_t now = d->now_ms;
    size_t before = finish(d);
    say(d, 0, "%s %c%c lost", off_ms > 0 ? "error: later" : "fatal: earlier", 'a', 'b');
    assert_int_equal(finish(d), before + 1);
    assert_int_equal(d->heard[before].first_ms, now);
}

WATCH_TEST(a_clock_that_is_set_is_believed_and_nobody_was_silent) {
    usual(d, 3 * DAY_MS);
    expect_set_clock(d, DAY_MS);
    expect_set_clock(d, -2 * DAY_MS);
    assert_int_equal(counts(d).events[REEF_NEWS_SILENCE], 0);
    assert_int_equal(counts(d).events[REEF_NEWS_RATE], 0);
}

WATCH_TEST(an_open_incident_ends_where_the_clock_is_set_back) {
    usual(d, 2 * DAY_MS);
    say(d, 0, "error: no task is left");
    usual(d, 30 * SECOND_MS);
    d->now_ms -= 20 * HOUR_MS;
    usual(d, 3 * HOUR_MS);
    assert_int_equal(d->heard_count, 1);
    say(d, 0, "fatal: shop has no carts any more");
    assert_int_equal(finish(d), 2);
}

WATCH_TEST(a_source_is_learned_on_where_the_clock_is_set_back) {
    usual(d, 45 * MINUTE_MS);
    d->now_ms -= 100 * DAY_MS;
    usual(d, 10 * MINUTE_MS);
    assert_int_equal(counts(d).learning, d->lines); // 55 minutes of it
    usual(d, 3 * HOUR_MS);
    say(d, 0, "worker 1001 lost its task");
    assert_int_equal(counts(d).incidents, 1);
}

WATCH_TEST(a_log_of_few_lines_goes_on) {
    for (size_t i = 0; i < 2000; i++, d->now_ms += 2 * HOUR_MS) say(d, 0, "heartbeat ok");
    say(d, 0, "error: no task is left");
    assert_int_equal(finish(d), 1);
    assert_true(d->heard[0].first_ms >= d->now_ms - 6 * HOUR_MS);
}

// ---- what a person says -------------------------------------------------------------------------

WATCH_TEST(a_fault_rings_each_time_and_what_is_normal_or_muted_does_not) {
    size_t types = 0;
    int64_t until_ms = 1;
    usual(d, 2 * DAY_MS);
    say(d, 0, "error: no task is left");
    usual(d, 3 * HOUR_MS);
    assert_int_equal(d->rung, 1);
    must(reef_watch_decide(d->watch, 1, REEF_DECISION_FAULT, 0, &types, &until_ms, &why));
    assert_int_equal(types, 1);
    assert_true(until_ms == 0);
    say(d, 0, "error: no task is left");
    usual(d, 3 * HOUR_MS);
    assert_int_equal(d->rung, 2);
    must(reef_watch_decide(d->watch, 2, REEF_DECISION_MUTE, 3600, &types, &until_ms, &why));
    assert_true(until_ms > d->now_ms && until_ms <= d->now_ms + HOUR_MS);
    say(d, 0, "error: no task is left");
    usual(d, 3 * HOUR_MS);
    assert_int_equal(d->rung, 2);
    must(reef_watch_decide(d->watch, 2, REEF_DECISION_NORMAL, 0, &types, &until_ms, &why));
    usual(d, 2 * DAY_MS); // else it would ring again, as a seldom error
    say(d, 0, "error: no task is left");
    assert_int_equal(d->rung, 2);
    assert_int_equal(counts(d).suppressed, 1);
    assert_int_equal(counts(d).lines, counts(d).usual + counts(d).in_events + counts(d).suppressed);
    must_fail(reef_watch_decide(d->watch, 99, REEF_DECISION_FAULT, 0, &types, &until_ms, &why),
              REEF_ERR_NOT_FOUND, "incident 99 never rang");
}

// ---- bounds and odd input -----------------------------------------------------------------------

// Lines of words that never came, of some sources.
static void random_lines(desk *d, size_t lines, uint32_t sources) {
    char line[512];
    for (size_t i = 0; i < lines; i++, d->now_ms += 100) {
        size_t used = 0, words = 2 + draw(d, 30);
        for (size_t w = 0; w < words; w++) {
            for (uint32_t letter = 0; letter < 6; letter++)
                line[used++] = (char)('a' + draw(d, 26));
            line[used++] = ' ';
        }
        // Of so many words some mean something elsewhere.
        if (i % 400 == 7) used += (size_t)sprintf(line + used, "error");
        must(say_bytes(d, (uint32_t)(i % sources), line, used));
    }
}

// Of all incidents that ended the events of one sort; the last of them in *out.
static size_t heard_of(const desk *d, reef_news news, const reef_event **out) {
    size_t heard = 0;
    for (size_t i = 0; i < d->heard_count; i++)
        for (size_t e = 0; e < d->heard[i].event_count; e++)
            if (d->heard[i].events[e].news == news) {
                *out = &d->heard[i].events[e];
                heard++;
            }
    return heard;
}

WATCH_TEST(a_log_of_lines_that_are_all_new_rings_once) {
    for (size_t day = 0; day < 3; day++) {
        random_lines(d, 20000, 1); // from its first line on
        d->now_ms = BEGIN_MS + (int64_t)(day + 1) * DAY_MS;
    }
    const reef_event *noise = NULL;
    (void)finish(d);
    assert_int_equal(heard_of(d, REEF_NEWS_NOISE, &noise), 1);
    assert_int_equal(counts(d).events[REEF_NEWS_TYPE], 0);
    assert_int_equal(counts(d).incidents, 1);
    assert_int_equal(d->rung, 1);
    assert_true(noise->count > 15000); // what follows is more of it
    assert_true(counts(d).in_events >= noise->count);
}

PLAIN_TEST(all_new_lines_ring_again_after_what_is_new_is_forgotten) {
    desk *d = desk_new(&(reef_watch_options){.forget_days = 4});
    const reef_event *noise = NULL;
    usual(d, 2 * DAY_MS);
    random_lines(d, 5000, 1);
    usual(d, 2 * DAY_MS);
    random_lines(d, 5000, 1);
    assert_int_equal(counts(d).events[REEF_NEWS_NOISE], 1);
    usual(d, 5 * DAY_MS);
    random_lines(d, 5000, 1);
    (void)finish(d);
    assert_int_equal(heard_of(d, REEF_NEWS_NOISE, &noise), 2);
    assert_true(noise->bits > 30.0);
    reef_watch_free(d->watch);
}

WATCH_TEST(lines_of_random_words_are_bounded) {
    usual(d, 2 * DAY_MS);
    random_lines(d, 100000, SOURCES);
    reef_watch_counts c = counts(d);
    assert_int_equal(c.types, REEF_WATCH_TYPES_MAX);
    assert_int_equal(c.lines, d->lines);
    assert_true(d->rung <= 20);
    assert_true(c.events[REEF_NEWS_TYPE] < 1500); // the first ones, before most lines are new
    assert_int_equal(c.events[REEF_NEWS_NOISE], SOURCES);
    (void)finish(d);
    assert_true(counts(d).incidents < 100);
}

// All lines of one time: what came least recently is any of them.
WATCH_TEST(more_types_than_are_kept_at_one_time_are_bounded) {
    usual(d, 2 * DAY_MS);
    for (uint32_t i = 0; i < REEF_WATCH_TYPES_MAX + 500; i++) {
        char word[8] = "";
        for (uint32_t letter = 0, rest = i; letter < 4; letter++, rest /= 26)
            word[letter] = (char)('a' + rest % 26);
        say(d, 0, "%sx %u y%s %u z%s", word, 200 + i % 7, word, 300 + i % 5, word);
    }
    assert_int_equal(counts(d).types, REEF_WATCH_TYPES_MAX);
    (void)finish(d);
}

WATCH_TEST(odd_lines_are_read) {
    enum { LONG = 1 << 20 };
    char *huge = room(LONG);
    usual(d, 2 * DAY_MS);
    must(say_bytes(d, 0, "", 0));
    must(say_bytes(d, 0, "\0\0\0\0", 4));
    must(say_bytes(d, 0, "word \0 \0hidden word", 19));
    must(say_bytes(d, 0, "\xff\xfe \x80\xc3 \xf0\x9f", 8));
    must(say_bytes(d, 0, "\x1b[31m red \x1b[0m", 14));
    must(say_bytes(d, 0, huge, LONG)); // of NULs
    memset(huge, 'x', LONG);
    must(say_bytes(d, 0, huge, LONG));
    memset(huge, ' ', LONG);
    must(say_bytes(d, 0, huge, LONG));
    for (size_t i = 0; i < LONG; i++) huge[i] = (char)(i % 251);
    must(say_bytes(d, 0, huge, LONG));
    assert_int_equal(counts(d).lines, d->lines);
    assert_int_equal(finish(d), 1);
    for (size_t i = 0; i < d->heard[0].event_count; i++)
        assert_true(strlen(d->heard[0].events[i].line) <= REEF_WATCH_SHOWN_BYTES_MAX);
}

WATCH_TEST(what_is_new_lies_within_the_line_that_is_shown) {
    char body[REEF_WATCH_SHOWN_BYTES_MAX + 100] = "";
    memset(body, '7', sizeof(body) - 1); // one long number
    for (size_t i = 0; i < 2000; i++, d->now_ms += MINUTE_MS)
        say(d, 0, "state of %s was %s", body, "fine");
    say(d, 0, "state of %s was %s", body, "poor");
    assert_int_equal(finish(d), 1);
    const reef_event *e = &d->heard[0].events[0];
    assert_int_equal(e->news, REEF_NEWS_WORD);
    assert_true(e->new_at + e->new_bytes <= strlen(e->line));
}

PLAIN_TEST(invalid_options_are_refused) {
    static const double BUDGETS[] = {-1, -0.001, 1e7, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < sizeof(BUDGETS) / sizeof(*BUDGETS); i++) {
        reef_watch *watch;
        must_fail(reef_watch_new(&watch, &(reef_watch_options){.budget = BUDGETS[i]}, on_incident,
                                 NULL, &why),
                  REEF_ERR_INVALID, "budget");
        assert_null(watch);
    }
    reef_watch_free(NULL);
}

WATCH_TEST(so_many_sources_are_watched_and_not_one_more) {
    uint32_t number;
    for (uint32_t i = SOURCES; i < REEF_WATCH_SOURCES_MAX; i++)
        must(reef_watch_add_source(d->watch, &number, &why));
    assert_int_equal(number, REEF_WATCH_SOURCES_MAX - 1);
    must_fail(reef_watch_add_source(d->watch, &number, &why), REEF_ERR_FULL, "at most 1024");
}

// ---- the same again -----------------------------------------------------------------------------

// Two days, and an hour of all sorts of news.
static void story(desk *d) {
    usual_until(d, BEGIN_MS + 2 * DAY_MS + HOUR_MS, 2 * MINUTE_MS);
    for (size_t i = 0; i < 40; i++, d->now_ms += 45 * SECOND_MS)
        say(d, i % 2, "%s%c", i % 3 == 0 ? "error: lost task of shop " : "heartbeat ",
            'a' + draw(d, 9));
    usual_until(d, BEGIN_MS + 3 * DAY_MS, 2 * MINUTE_MS);
    (void)finish(d);
}

WATCH_TEST(the_same_lines_give_the_same_incidents) {
    desk *other = desk_new(&(reef_watch_options){0});
    story(d);
    story(other);
    assert_true(d->heard_count > 0);
    assert_int_equal(d->heard_count, other->heard_count);
    for (size_t i = 0; i < d->heard_count; i++) {
        const reef_incident *a = &d->heard[i], *b = &other->heard[i];
        assert_int_equal(a->event_count, b->event_count);
        assert_true(a->bits == b->bits && a->rings == b->rings && a->last_ms == b->last_ms);
        for (size_t k = 0; k < a->event_count; k++) {
            assert_int_equal(a->events[k].type, b->events[k].type);
            assert_int_equal(a->events[k].offset, b->events[k].offset);
            assert_int_equal(a->events[k].count, b->events[k].count);
            assert_true(a->events[k].bits == b->events[k].bits);
        }
    }
    reef_watch_free(other->watch);
}

// ---- memory -------------------------------------------------------------------------------------

// A short story in which allocation `number` fails; whether there was one.
static bool survives(size_t number) {
    desk *d = room(sizeof(*d));
    uint32_t source;
    size_t failures = 0;
    d->now_ms = BEGIN_MS;
    allocations = 0;
    failing = number;
    counting = true;
    reef_watch_options options = {.since_ms = BEGIN_MS + HOUR_MS};
    reef_status status = reef_watch_new(&d->watch, &options, on_incident, d, &why);
    if (status == REEF_OK) status = reef_watch_add_source(d->watch, &source, &why);
    for (size_t i = 0; status == REEF_OK && i < 240; i++, d->now_ms += 30 * SECOND_MS) {
        char line[64], letter = (char)('a' + i / 20);
        int count = i >= 130 && i % 20 < 2
                        ? snprintf(line, sizeof(line), "error %cq was %cr at %d", letter, letter,
                                   i % 20 ? 200 : 500)
                        : snprintf(line, sizeof(line), "state of %zu is up", 1000 + i);
        reef_status line_status = say_bytes(d, 0, line, (size_t)count);
        failures += line_status != REEF_OK;
        if (line_status != REEF_OK) assert_int_equal(line_status, REEF_ERR_NO_MEMORY);
    }
    counting = false;
    if (status != REEF_OK) assert_int_equal(status, REEF_ERR_NO_MEMORY);
    if (d->watch != NULL && status == REEF_OK) {
        assert_int_equal(counts(d).lines + failures, d->lines);
        reef_watch_finish(d->watch);
        assert_true(failures <= 1);
        assert_true(counts(d).incidents > 0);
    }
    reef_watch_free(d->watch);
    return allocations >= number;
}

PLAIN_TEST(memory_that_runs_out_loses_one_line) {
    size_t number = 1;
    while (survives(number)) number++;
    assert_true(number > 30);
}

RUN_TESTS
