// Incidents through the library: what rang in a pool that watches its lines and what is said of it,
// and lines that are judged without a pool.
#include <reef/reef.h>

#include "json_at.h"
#include "lib_log.h"
#include "lib_pool.h"
#include "test.h"

#include <float.h>
#include <math.h>

#define SETTINGS                                                                                   \
    "layers=1", "d_model=16", "attention_heads=2", "context=16", "batch=4", "heads=2", "topk=2",   \
        "d_key=8", "side=4", "net_share=0", "memory=4M"

static const char *const WATCHING[] = {SETTINGS, "watch=true", NULL};
static const char *const PLAIN[] = {SETTINGS, NULL};

// ---- a pool -------------------------------------------------------------------------------------

static json_t *incidents_of(reef_pool *pool, uint64_t last) {
    char *text;
    must(reef_pool_incidents(pool, last, &text, &why));
    json_t *list = json_at(json_of_text(text), "incidents");
    reef_text_free(text);
    assert_true(json_is_array(list));
    return list;
}

static reef_pool *make_pool(const char *path) {
    const lib_log log = lib_log_make(true, NULL, NULL);
    must(reef_pool_create_model(path, WATCHING, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    assert_int_equal(json_array_size(incidents_of(pool, 0)), 0);
    must(reef_pool_train(pool, "web", log.bytes, log.count, &why));
    must(reef_pool_commit(pool, NULL, &why));
    return pool;
}

DIRECTORY_TEST(a_pool_tells_what_rang) {
    WITHIN(directory, path);
    reef_pool *pool = make_pool(path), *reader = lib_pool_open(path, 0, NULL, 1);
    const json_t *all = incidents_of(pool, 0), *last = incidents_of(reader, 1);
    assert_int_equal(json_array_size(all), 2);
    assert_int_equal(integer(all, "0.incident"), 1);
    assert_string_equal(string(all, "0.state"), "ended");
    assert_non_null(strstr(string(all, "0.title"), "disk sda1 is full"));
    assert_string_equal(string(all, "0.events.0.source"), "web");
    assert_string_equal(string(all, "1.events.0.sort"), "word");
    assert_null(json_at(all, "0.decision"));
    assert_int_equal(json_array_size(last), 1);
    assert_true(json_equal(json_at(last, "0"), json_at(all, "1")));
    assert_int_equal(json_array_size(incidents_of(pool, 100)), 2);
    reef_pool_close(reader);
    reef_pool_close(pool);
}

DIRECTORY_TEST(what_is_said_last_holds) {
    WITHIN(directory, path);
    reef_pool *pool = make_pool(path);
    uint64_t types = 0;
    must(reef_pool_decide(pool, 1, "mute", 86400, &types, &why));
    assert_int_equal(types, 1);
    assert_string_equal(string(incidents_of(pool, 0), "0.decision"), "mute");
    must(reef_pool_decide(pool, 1, "fault", 0, NULL, &why));
    assert_string_equal(string(incidents_of(pool, 0), "0.decision"), "fault");
    reef_pool_close(pool);
    // It is in the pool, and judged by: the same line rings each time.
    const char line[] = "2026-11-01T06:00:00 web app[3]: disk sda1 is full, error 28\n";
    pool = lib_pool_open(path, 1, NULL, 1);
    assert_string_equal(string(incidents_of(pool, 0), "0.decision"), "fault");
    must(reef_pool_train(pool, "web", line, sizeof(line) - 1, &why));
    must(reef_pool_commit(pool, NULL, &why));
    const json_t *again = incidents_of(pool, 1);
    assert_int_equal(integer(again, "0.incident"), 3);
    assert_string_equal(string(again, "0.state"), "open");
    reef_pool_close(pool);
}

DIRECTORY_TEST(wrong_decisions_change_nothing) {
    WITHIN(directory, path);
    reef_pool *pool = make_pool(path);
    uint64_t before, after;
    must(reef_pool_commit(pool, &before, &why));
    const struct {
        const char *decision;
        int64_t for_s;
        const char *what;
    } wrong[] = {{"usual", 0, "'usual' is none"},
                 {"", 0, "'' is none"},
                 {"none", 0, "'none' is none"},
                 {"\xff", 0, "is none"},
                 {"mute", 0, "for_s 0"},
                 {"mute", -1, "for_s -1"},
                 {"mute", 31536001, "31536000"},
                 {"normal", 5, "nothing else has a time"},
                 {"fault", INT64_MIN, "for_s -922"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        must_fail(reef_pool_decide(pool, 1, wrong[i].decision, wrong[i].for_s, NULL, &why),
                  REEF_ERR_INVALID, wrong[i].what);
    must_fail(reef_pool_decide(pool, 3, "normal", 0, NULL, &why), REEF_ERR_NOT_FOUND, "incident 3");
    must_fail(reef_pool_decide(pool, 0, "normal", 0, NULL, &why), REEF_ERR_NOT_FOUND, "incident 0");
    reef_pool *reader = lib_pool_open(path, 0, NULL, 1);
    must_fail(reef_pool_decide(reader, 1, "normal", 0, NULL, &why), REEF_ERR_INVALID,
              "opened for reading");
    reef_pool_close(reader);
    assert_null(json_at(incidents_of(pool, 0), "0.decision"));
    reef_pool_info info = {.size = sizeof(info)};
    must(reef_pool_read_info(pool, &info, &why));
    after = info.commit;
    assert_int_equal(after, before);
    reef_pool_close(pool);
}

DIRECTORY_TEST(a_pool_that_watches_nothing_says_so) {
    WITHIN(directory, path);
    WITHIN(directory, layer);
    const reef_layer_options options = {.size = sizeof(options), .d_model = 8, .side = 16};
    must(reef_pool_create_model(path, PLAIN, &why));
    must(reef_pool_create_layer(layer, &options, &why));
    const char *const paths[] = {path, layer};
    for (size_t i = 0; i < 2; i++) {
        char *text = directory;
        reef_pool *pool = lib_pool_open(paths[i], 1, NULL, 1);
        must_fail(reef_pool_incidents(pool, 0, &text, &why), REEF_ERR_INVALID, "watches no lines");
        assert_null(text);
        must_fail(reef_pool_decide(pool, 1, "normal", 0, NULL, &why), REEF_ERR_INVALID,
                  "watches no lines");
        reef_pool_close(pool);
    }
    reef_text_free(NULL);
}

// ---- without a pool -----------------------------------------------------------------------------

typedef struct heard {
    reef_watcher *watcher;
    bool timed; // lines get their time by the call
    size_t opened, ended;
    json_t *last; // that ended
} heard;

static void take(heard *h) {
    char *text;
    must(reef_watcher_take(h->watcher, &text, &why));
    if (text == NULL) return;
    const json_t *list = json_at(json_of_text(text), "incidents");
    reef_text_free(text);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const bool open = strcmp(string(json_array_get(list, i), "state"), "open") == 0;
        h->opened += open;
        h->ended += !open;
        if (!open) h->last = json_array_get(list, i);
    }
}

#define MIDNIGHT INT64_C(1793491200000) // 2026-11-01

static void hear(void *context, const char *line, size_t count, uint32_t second) {
    heard *h = context;
    const int64_t time_ms = h->timed ? MIDNIGHT + 1000 * (int64_t)second : 0;
    must(reef_watcher_line(h->watcher, "web", line, count - second % 2, time_ms, &why));
    take(h);
}

static reef_watcher_counts counts_of(const reef_watcher *watcher) {
    reef_watcher_counts counts = {.size = sizeof(counts)};
    must(reef_watcher_read_counts(watcher, &counts, &why));
    assert_int_equal(counts.lines, counts.usual + counts.in_events + counts.suppressed);
    return counts;
}

DIRECTORY_TEST(a_watcher_hears_what_a_pool_does) {
    WITHIN(directory, path);
    reef_pool *pool = make_pool(path);
    const json_t *rang = incidents_of(pool, 1);
    heard h = {0};
    must(reef_watcher_new(&h.watcher, NULL, &why));
    (void)lib_log_make(true, hear, &h);
    must(reef_watcher_finish(h.watcher, &why));
    take(&h);
    assert_int_equal(h.opened, 2);
    assert_int_equal(h.ended, 2);
    // All but when the pool heard of it.
    json_t *last = json_deep_copy(json_at(rang, "0"));
    json_object_del(last, "unix_ms");
    json_object_del(last, "stream_bytes");
    assert_true(json_equal(last, h.last));
    json_decref(last);
    assert_int_equal(counts_of(h.watcher).rung, 2);
    assert_int_equal(counts_of(h.watcher).lines, LOG_LINES + LOG_LINES / 4 + 2);
    reef_watcher_free(h.watcher);
    reef_pool_close(pool);
}

PLAIN_TEST(a_time_that_is_given_holds) {
    heard h = {.timed = true};
    must(reef_watcher_new(&h.watcher, NULL, &why));
    (void)lib_log_make(false, hear, &h);
    must(reef_watcher_finish(h.watcher, &why));
    take(&h);
    assert_int_equal(h.opened, 2);
    assert_true(number(h.last, "first_time") == MIDNIGHT / 1000 + 15001);
    reef_watcher_free(h.watcher);
}

// Odd bytes in the first line that is new; `name` of its source.
static json_t *told_of(const char *line, size_t count, const char *name) {
    heard h = {0};
    char usual[64];
    const reef_watcher_options options = {
        .size = sizeof(options), .since_ms = MIDNIGHT + 3600 * 1000, .budget = 1000};
    must(reef_watcher_new(&h.watcher, &options, &why));
    for (uint32_t i = 0; i < 1000; i++) {
        int bytes = snprintf(usual, sizeof(usual), "worker %u is done", i);
        must(reef_watcher_line(h.watcher, name, usual, (size_t)bytes, MIDNIGHT + 10000 * (int64_t)i,
                               &why));
    }
    must(reef_watcher_line(h.watcher, name, line, count, MIDNIGHT + 10000 * 1000, &why));
    must(reef_watcher_finish(h.watcher, &why));
    take(&h);
    assert_int_equal(h.ended, 1);
    reef_watcher_free(h.watcher);
    return h.last;
}

PLAIN_TEST(lines_and_names_are_any_text) {
    static const char ODD[] = "error: \xff\xfe broken \xc3 pipe in thread";
    static const char ENDED[] = "error: pipe is broken in thread\r\n";
    const json_t *told = told_of(ODD, sizeof(ODD) - 1, "d\xc3\xa4mon");
    assert_string_equal(string(told, "title"), "error: \\xff\\xfe broken \\xc3 pipe in thread");
    assert_string_equal(string(told, "events.0.source"), "d\xc3\xa4mon");
    told = told_of(ENDED, sizeof(ENDED) - 1, "web");
    assert_string_equal(string(told, "title"), "error: pipe is broken in thread");
    // Each usual line and its newline.
    assert_int_equal(integer(told, "events.0.offset"), 10 * 17 + 90 * 18 + 900 * 19);
}

PLAIN_TEST(a_line_with_zeros_or_without_bytes_is_read) {
    reef_watcher *watcher;
    char *text;
    must(reef_watcher_new(&watcher, NULL, &why));
    must(reef_watcher_line(watcher, "web", "a\0b\0\0", 5, 0, &why));
    must(reef_watcher_line(watcher, "web", "\0", 1, 5, &why));
    must(reef_watcher_line(watcher, "other", "\xff", 1, 0, &why));
    assert_int_equal(counts_of(watcher).lines, 3);
    const char *const empty[] = {"", "\n", "\r\n", "\r"};
    for (size_t i = 0; i < 4; i++)
        for (int64_t time_ms = 0; time_ms < 2; time_ms++)
            must(reef_watcher_line(watcher, "web", empty[i], strlen(empty[i]), time_ms, &why));
    must(reef_watcher_line(watcher, "web", NULL, 0, 0, &why));
    assert_int_equal(counts_of(watcher).lines, 3);
    must(reef_watcher_take(watcher, &text, &why));
    assert_null(text);
    reef_watcher_free(watcher);
}

PLAIN_TEST(what_is_no_line_is_refused) {
    reef_watcher *watcher;
    must(reef_watcher_new(&watcher, NULL, &why));
    must_fail(reef_watcher_line(watcher, "web", "a\nb", 3, 0, &why), REEF_ERR_INVALID,
              "a newline behind byte 1");
    must_fail(reef_watcher_line(watcher, "web", "\n\n", 2, 0, &why), REEF_ERR_INVALID, "newline");
    must_fail(reef_watcher_line(watcher, "web", "a", 1, -1, &why), REEF_ERR_INVALID,
              "time_ms is -1");
    must_fail(reef_watcher_line(watcher, "web", "a", 1, INT64_MAX, &why), REEF_ERR_INVALID,
              "to the year 9999");
    must_fail(reef_watcher_line(watcher, "", "a", 1, 0, &why), REEF_ERR_INVALID, "empty");
    must_fail(reef_watcher_line(watcher, "\xff\xff", "a", 1, 0, &why), REEF_ERR_INVALID,
              "2 bytes is no UTF-8");
    assert_int_equal(counts_of(watcher).lines, 0);
    reef_watcher_counts counts = {0};
    must_fail(reef_watcher_read_counts(watcher, &counts, &why), REEF_ERR_INVALID,
              "sizeof(reef_watcher_counts)");
    // More sources than there can be.
    for (uint32_t i = 0; i < 1024; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        must(reef_watcher_line(watcher, name, "a", 1, 0, &why));
    }
    assert_int_equal(reef_watcher_line(watcher, "more", "a", 1, 0, &why), REEF_ERR_FULL);
    must(reef_watcher_line(watcher, "1023", "a", 1, 0, &why));
    reef_watcher_free(watcher);
    reef_watcher_free(NULL);
}

PLAIN_TEST(options_that_make_no_sense_are_refused) {
    reef_watcher_options options = {.size = sizeof(options)};
    reef_watcher *watcher = (reef_watcher *)(void *)&options;
    const double budgets[] = {-1, NAN, INFINITY, DBL_MAX};
    for (size_t i = 0; i < 4; i++) {
        options.budget = budgets[i];
        must_fail(reef_watcher_new(&watcher, &options, &why), REEF_ERR_INVALID, "budget");
        assert_null(watcher);
    }
    options = (reef_watcher_options){.size = sizeof(options), .near_ms = -1};
    must_fail(reef_watcher_new(&watcher, &options, &why), REEF_ERR_INVALID, "near_ms -1");
    options = (reef_watcher_options){.size = sizeof(options), .since_ms = INT64_MAX};
    must_fail(reef_watcher_new(&watcher, &options, &why), REEF_ERR_INVALID, "since_ms 922");
    options.size = 0;
    must_fail(reef_watcher_new(&watcher, &options, &why), REEF_ERR_INVALID,
              "sizeof(reef_watcher_options)");
}

RUN_TESTS
