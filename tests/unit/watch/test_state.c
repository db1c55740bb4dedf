// What a watch knows, written and read back: numbers of any size, times of any year, options.
#include "checked.h"
#include "reef_watch_json.h"
#include "watch_internal.h"

#include <math.h>
#include <time.h>

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS INT64_C(3600000)
#define DAY_MS INT64_C(86400000)
#define BEGIN_MS INT64_C(1792022400000)     // 2026-10-15 00:00:00
#define YEAR_2038_MS INT64_C(2147483648000) // 2^31 seconds
#define YEAR_2106_MS INT64_C(4294967296000) // 2^32 seconds
#define PARTS_MAX 256
#define HUGE_OFFSET (UINT64_C(5) << 40)
#define NEAR_2_32 (UINT64_C(4294967296) - 5)

// ---- a watch, and its state ---------------------------------------------------------------------

typedef struct kept_state {
    uint8_t *bytes[PARTS_MAX];
    size_t count[PARTS_MAX];
    uint32_t parts;
} kept_state;

// Logs that are written while they are watched; the last incident that was heard, as JSON.
typedef struct desk {
    reef_watch *watch;
    int64_t now_ms;
    uint64_t offset, said;
    json_t *heard;
    size_t rung;
} desk;

static void find_place(const void *context, uint32_t source, reef_line_place *out) {
    (void)context;
    assert_int_equal(source, 0);
    out->source = "log";
}

static void on_incident(void *context, const reef_incident *incident) {
    desk *d = context;
    json_decref(d->heard);
    d->heard = reef_incident_json(incident, find_place, NULL);
    assert_non_null(d->heard);
    d->rung += incident->is_open;
}

static desk *desk_new(int64_t now_ms, uint64_t offset, const reef_watch_options *options) {
    desk *d = room(sizeof(*d));
    d->now_ms = now_ms;
    d->offset = offset;
    must(reef_watch_new(&d->watch, options, on_incident, d, &why));
    return d;
}

static void desk_free(desk *d) {
    reef_watch_free(d->watch);
    json_decref(d->heard);
}

// A line with its time, as bytes of a source.
static void say(desk *d, const char *format, ...) {
    char line[512];
    time_t now = (time_t)(d->now_ms / 1000);
    struct tm tm;
    assert_non_null(gmtime_r(&now, &tm));
    size_t used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S ", &tm);
    va_list arguments;
    va_start(arguments, format);
    used += (size_t)vsnprintf(line + used, sizeof(line) - used, format, arguments);
    va_end(arguments);
    line[used++] = '\n';
    must(reef_watch_bytes(d->watch, 0, NULL, d->offset, (const uint8_t *)line, used, &why));
    d->offset += used;
    d->said++;
}

static void usual(desk *d, int64_t for_ms) {
    for (int64_t end = d->now_ms + for_ms; d->now_ms < end; d->now_ms += MINUTE_MS) {
        say(d, "request r%zu took %zu ms", (size_t)d->said, (size_t)(1000 + d->said % 91));
        say(d, "answered 200 in time");
        say(d, "heartbeat ok");
    }
}

static reef_watch_counts counts(const desk *d) {
    reef_watch_counts c;
    reef_watch_read_counts(d->watch, &c);
    assert_true(c.lines == c.usual + c.in_events + c.suppressed);
    return c;
}

static reef_status put_part(
    void *context, uint32_t number, const uint8_t *bytes, size_t count, reef_error *err) {
    kept_state *s = context;
    (void)err;
    assert_true(number == s->parts && number < PARTS_MAX);
    s->bytes[number] = copied(bytes, count);
    s->count[number] = count;
    s->parts++;
    return REEF_OK;
}

static reef_status get_part(
    void *context, uint32_t number, const uint8_t **bytes, size_t *count, reef_error *err) {
    const kept_state *s = context;
    if (number >= s->parts) return reef_fail(err, REEF_ERR_NOT_FOUND, "no part %u", number);
    *bytes = s->bytes[number];
    *count = s->count[number];
    return REEF_OK;
}

static kept_state *written(desk *d) {
    kept_state *s = room(sizeof(*s));
    uint32_t parts;
    must(reef_watch_write(d->watch, put_part, s, &parts, &why));
    assert_int_equal(parts, s->parts);
    return s;
}

static void assert_same(const kept_state *a, const kept_state *b) {
    assert_int_equal(a->parts, b->parts);
    for (uint32_t i = 0; i < a->parts; i++) {
        assert_int_equal(a->count[i], b->count[i]);
        assert_memory_equal(a->bytes[i], b->bytes[i], a->count[i]);
    }
}

// A second watch with the state of the first one; it writes the same.
static desk *read_back(desk *d) {
    const kept_state *s = written(d);
    desk *other = desk_new(d->now_ms, d->offset, &(reef_watch_options){0});
    other->said = d->said;
    must(reef_watch_read(other->watch, get_part, (void *)(uintptr_t)s, &why));
    assert_same(s, written(other));
    return other;
}

// Both are told the same, and say and know the same.
static void go_on_alike(desk *d, desk *other, const char *news) {
    desk *const both[] = {d, other};
    for (size_t i = 0; i < 2; i++) {
        both[i]->rung = 0;
        say(both[i], "%s", news);
        usual(both[i], 4 * HOUR_MS);
        reef_watch_finish(both[i]->watch);
        assert_int_equal(both[i]->rung, 1);
    }
    assert_true(json_equal(d->heard, other->heard));
    assert_same(written(d), written(other));
}

static json_int_t of_event(const desk *d, const char *member) {
    const json_t *events = json_object_get(d->heard, "events");
    return json_integer_value(json_object_get(json_array_get(events, 0), member));
}

// ---- numbers ------------------------------------------------------------------------------------

PLAIN_TEST(counts_go_on_beyond_32_bits) {
    desk *d = desk_new(BEGIN_MS, 0, &(reef_watch_options){0});
    usual(d, 2 * DAY_MS);
    say(d, "error: no task is left");
    // As after years of lines and of news.
    reef_watch *w = d->watch;
    w->counts.lines = w->counts.usual + w->counts.in_events + NEAR_2_32;
    w->counts.usual += NEAR_2_32;
    for (int i = 0; i < REEF_NEWS_COUNT; i++) w->counts.events[i] += NEAR_2_32;
    w->sources[0].read += NEAR_2_32;
    w->incidents.number += NEAR_2_32;
    w->incidents.rung += NEAR_2_32;
    for (uint32_t i = 0; i < w->types.count; i++) w->types.types[i].lines += NEAR_2_32;
    reef_watch_finish(w);
    const uint64_t lines = w->counts.lines, usual_lines = w->counts.usual;
    for (int i = 0; i < 3; i++) {
        usual(d, 4 * HOUR_MS);
        say(d, "fatal: case %c%c is lost", 'a' + i, 'x' - i);
        usual(d, 4 * HOUR_MS);
        say(d, "panic: %c%c went away for %c%c", 'a' + i, 'x' - i, 'b' + i, 'k' - i);
    }
    assert_true(counts(d).lines > UINT32_MAX && counts(d).lines > lines);
    assert_true(counts(d).usual > usual_lines && counts(d).usual > UINT32_MAX);
    assert_true(counts(d).events[REEF_NEWS_TYPE] > UINT32_MAX);
    assert_true(counts(d).incidents > UINT32_MAX && counts(d).rung > UINT32_MAX);
    usual(d, 4 * HOUR_MS);
    desk *other = read_back(d);
    assert_true(counts(other).lines == counts(d).lines);
    assert_true(counts(other).incidents == counts(d).incidents);
    go_on_alike(d, other, "disk of backup is in doubt");
    assert_true(json_integer_value(json_object_get(other->heard, "incident")) > UINT32_MAX);
    // What a person says finds it by its number.
    size_t types;
    int64_t until_ms;
    must(reef_watch_decide(other->watch, w->incidents.number, REEF_DECISION_NORMAL, 0, &types,
                           &until_ms, &why));
    assert_int_equal(types, 1);
    desk_free(d);
    desk_free(other);
}

// The next bytes of the source lie in a file, from its byte `offset` on.
static void say_in(desk *d, const char *file, uint64_t offset, const char *text) {
    must(reef_watch_bytes(d->watch, 0, file, offset, (const uint8_t *)text, strlen(text), &why));
}

static void expect_place(const desk *d, size_t event, const char *file, uint64_t offset) {
    const json_t *one = json_array_get(json_object_get(d->heard, "events"), event);
    assert_string_equal(json_string_value(json_object_get(one, "file")), file);
    assert_true(json_integer_value(json_object_get(one, "offset")) == (json_int_t)offset);
}

PLAIN_TEST(a_line_lies_in_the_file_in_which_it_begins) {
    desk *d = desk_new(BEGIN_MS, 0, &(reef_watch_options){0});
    usual(d, 2 * DAY_MS);
    say_in(d, "a.log", 700,
           "2026-10-17T00:00:01 request r1 took 5 ms\n2026-10-17T00:00:02 fatal: ");
    desk *other = read_back(d);
    say_in(other, "b.log", 30, "shop has no carts\n2026-10-17T00:00:02 error: no task is left\n");
    reef_watch_finish(other->watch);
    expect_place(other, 0, "a.log", 741);
    expect_place(other, 1, "b.log", 48);
    desk_free(d);
    desk_free(other);
}

PLAIN_TEST(a_silence_has_the_place_of_the_last_line_of_its_type) {
    desk *d = desk_new(BEGIN_MS, 0, &(reef_watch_options){0});
    usual(d, 4 * DAY_MS);
    const uint64_t at = d->offset;
    char line[64];
    time_t now = (time_t)(d->now_ms / 1000);
    struct tm tm;
    assert_non_null(gmtime_r(&now, &tm));
    assert_true(strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S heartbeat ok\n", &tm) > 0);
    say_in(d, "beats.log", at, line);
    desk *other = read_back(d);
    for (int64_t end = d->now_ms + 2 * HOUR_MS; other->now_ms < end; other->now_ms += MINUTE_MS) {
        say(other, "request r%zu took %zu ms", (size_t)other->said,
            (size_t)(1000 + other->said % 91));
        say(other, "answered 200 in time");
    }
    reef_watch_finish(other->watch);
    expect_place(other, 0, "beats.log", at);
    desk_free(d);
    desk_free(other);
}

PLAIN_TEST(offsets_go_on_beyond_40_bits) {
    desk *d = desk_new(BEGIN_MS, HUGE_OFFSET, &(reef_watch_options){0});
    usual(d, 2 * DAY_MS);
    const uint64_t at = d->offset;
    say(d, "error: no task is left");
    assert_true(of_event(d, "offset") == (json_int_t)at);
    // The beginning of a line, whose end comes behind the state.
    const char *line = "2026-10-17T00:00:30 fatal: shop has no", *end = " carts\n";
    const uint64_t begun = d->offset;
    must(reef_watch_bytes(d->watch, 0, NULL, d->offset, (const uint8_t *)line, strlen(line), &why));
    d->offset += strlen(line);
    desk *other = read_back(d);
    must(reef_watch_bytes(other->watch, 0, NULL, other->offset, (const uint8_t *)end, strlen(end),
                          &why));
    reef_watch_finish(other->watch);
    const json_t *events = json_object_get(other->heard, "events");
    assert_int_equal(json_array_size(events), 2);
    bool found = false;
    for (size_t i = 0; i < 2; i++)
        found |= json_integer_value(json_object_get(json_array_get(events, i), "offset")) ==
                 (json_int_t)begun;
    assert_true(found);
    desk_free(d);
    desk_free(other);
}

PLAIN_TEST(more_lines_in_a_window_than_have_room_are_as_many_as_have) {
    desk *d = desk_new(BEGIN_MS, 0, &(reef_watch_options){0});
    usual(d, 4 * DAY_MS);
    for (int i = 0; i < 9; i++) say(d, "last message repeated 999999999 times");
    assert_int_equal(d->rung, 1);
    assert_true(of_event(d, "count") == 999999999); // as it was when it rang
    desk *other = read_back(d);
    reef_watch_finish(other->watch);
    assert_true(of_event(other, "count") == INT64_C(8999999991));
    usual(other, 3 * DAY_MS); // the days are as before
    assert_int_equal(counts(other).events[REEF_NEWS_RATE], 1);
    desk_free(d);
    desk_free(other);
}

// ---- times --------------------------------------------------------------------------------------

static void expect_year(int64_t moment_ms) {
    desk *d = desk_new(moment_ms - 4 * DAY_MS, 0, &(reef_watch_options){0});
    usual(d, 4 * DAY_MS + HOUR_MS); // across it
    assert_int_equal(counts(d).incidents, 0);
    assert_true(d->watch->now_ms == d->now_ms - MINUTE_MS);
    desk *other = read_back(d);
    const double at = (double)(d->now_ms / 1000);
    go_on_alike(d, other, "error: no task is left");
    assert_true(json_number_value(json_object_get(other->heard, "first_time")) == at);
    // Silence is found behind it.
    for (int64_t end = other->now_ms + 2 * HOUR_MS; other->now_ms < end; other->now_ms += MINUTE_MS)
        say(other, "heartbeat ok");
    assert_true(counts(other).events[REEF_NEWS_SILENCE] > 0);
    desk_free(d);
    desk_free(other);
}

PLAIN_TEST(times_go_on_beyond_2038_and_2106) {
    expect_year(YEAR_2038_MS);
    expect_year(YEAR_2106_MS);
}

// ---- options ------------------------------------------------------------------------------------

static void expect_options(const desk *d, double budget, uint32_t gap_s) {
    reef_watch_options o;
    reef_watch_read_options(d->watch, &o);
    assert_true(o.budget == budget);
    assert_int_equal(o.gap_s, gap_s);
    assert_int_equal(o.quiet_s, 7200);
    assert_int_equal(o.forget_days, 9);
}

PLAIN_TEST(options_are_part_of_the_state) {
    desk *d = desk_new(
        BEGIN_MS, 0,
        &(reef_watch_options){.budget = 2.5, .gap_s = 240, .quiet_s = 7200, .forget_days = 9});
    expect_options(d, 2.5, 240);
    usual(d, 3 * DAY_MS);
    desk *other = read_back(d);
    expect_options(other, 2.5, 240);
    // They count: events of three minutes apart are one incident.
    say(other, "error: no task is left");
    usual(other, 3 * MINUTE_MS);
    say(other, "fatal: shop has no carts any more");
    assert_int_equal(counts(other).incidents, 1);
    desk_free(d);
    desk_free(other);
}

PLAIN_TEST(what_a_person_changes_holds_and_is_read_back) {
    desk *d = desk_new(BEGIN_MS, 0, &(reef_watch_options){.quiet_s = 7200, .forget_days = 9});
    expect_options(d, 5, 60);
    must(reef_watch_change(d->watch, &(reef_watch_options){.budget = 0.5}, &why));
    expect_options(d, 0.5, 60);
    must(reef_watch_change(d->watch, &(reef_watch_options){.gap_s = 600}, &why));
    expect_options(d, 0.5, 600);
    static const struct {
        reef_watch_options change;
        const char *says;
    } WRONG[] = {{{.budget = -1}, "budget"},
                 {{.budget = 1e7}, "budget"},
                 {{.budget = (double)NAN, .gap_s = 60}, "budget"},
                 {{.budget = (double)INFINITY}, "budget"},
                 {{.budget = 1, .gap_s = REEF_WATCH_GAP_S_MAX + 1}, "gap"},
                 {{.quiet_s = REEF_WATCH_QUIET_S_MAX + 1, .gap_s = 1}, "quiet"},
                 {{.forget_days = REEF_WATCH_FORGET_DAYS_MAX + 1, .gap_s = 1}, "forget"},
                 {{.near_ms = 1}, "no budget, gap"}};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++)
        must_fail(reef_watch_change(d->watch, &WRONG[i].change, &why), REEF_ERR_INVALID,
                  WRONG[i].says);
    expect_options(d, 0.5, 600);
    usual(d, 3 * DAY_MS);
    desk *other = read_back(d);
    expect_options(other, 0.5, 600);
    say(other, "error: no task is left");
    usual(other, 9 * MINUTE_MS);
    say(other, "fatal: shop has no carts any more");
    assert_int_equal(counts(other).incidents, 1);
    desk_free(d);
    desk_free(other);
}

PLAIN_TEST(a_changed_quiet_and_forget_count) {
    desk *d = desk_new(BEGIN_MS, 0, &(reef_watch_options){0});
    usual(d, HOUR_MS / 2);
    say(d, "shop has 7 carts");
    usual(d, HOUR_MS - 20 * MINUTE_MS);
    assert_true(counts(d).learning == counts(d).lines);
    must(reef_watch_change(d->watch, &(reef_watch_options){.quiet_s = 1800}, &why));
    usual(d, MINUTE_MS);
    assert_true(counts(d).learning < counts(d).lines);
    // What came a first time four days ago is new again.
    usual(d, 4 * DAY_MS);
    assert_int_equal(counts(d).incidents, 0);
    must(reef_watch_change(d->watch, &(reef_watch_options){.forget_days = 3}, &why));
    usual(d, DAY_MS);
    say(d, "shop has 7 carts");
    desk *other = read_back(d);
    reef_watch_options o;
    reef_watch_read_options(other->watch, &o);
    assert_true(o.quiet_s == 1800 && o.forget_days == 3);
    assert_int_equal(counts(other).incidents, 1);
    desk_free(d);
    desk_free(other);
}

PLAIN_TEST(options_that_make_no_sense_are_refused) {
    desk *d = desk_new(BEGIN_MS, 0, &(reef_watch_options){0});
    usual(d, HOUR_MS);
    const kept_state *s = written(d);
    for (size_t at = 0; at < 20; at += at == 0 ? 8 : 4) { // a budget, a gap, quiet, forget
        memset(s->bytes[0] + at, 0, at == 0 ? 8 : 4);
        desk *other = desk_new(BEGIN_MS, 0, &(reef_watch_options){0});
        must_fail(reef_watch_read(other->watch, get_part, (void *)(uintptr_t)s, &why),
                  REEF_ERR_CORRUPT, "makes no sense");
        desk_free(other);
        const kept_state *whole = written(d);
        memcpy(s->bytes[0], whole->bytes[0], whole->count[0]);
    }
    desk_free(d);
}

// ---- bytes --------------------------------------------------------------------------------------

PLAIN_TEST(a_nul_in_a_line_is_kept) {
    desk *d = desk_new(BEGIN_MS, 0, &(reef_watch_options){0});
    usual(d, 2 * DAY_MS);
    static const char LINE[] = "2026-10-17T00:00:30 error: \0hidden\0 task\n";
    must(reef_watch_bytes(d->watch, 0, NULL, d->offset, (const uint8_t *)LINE, sizeof(LINE) - 1,
                          &why));
    desk *other = read_back(d);
    reef_watch_finish(other->watch);
    const json_t *event = json_array_get(json_object_get(other->heard, "events"), 0),
                 *line = json_object_get(event, "first_line");
    assert_int_equal(json_string_length(line), sizeof(LINE) - 2);
    assert_memory_equal(json_string_value(line), LINE, sizeof(LINE) - 2);
    assert_true(json_equal(json_object_get(other->heard, "title"), line));
    char *text = json_dumps(other->heard, 0);
    assert_non_null(strstr(text, "error: \\u0000hidden\\u0000 task"));
    free(text);
    desk_free(d);
    desk_free(other);
}

RUN_TESTS
