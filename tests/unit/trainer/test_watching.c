// Lines of the stream are judged as they are accepted: what is known of them is part of the state.
#include "lifelong_restore.h"
#include "trainer_internal.h"

enum { LINES = 1800, LINE_BYTES = 128, SECONDS = 10 };

typedef struct text {
    char *bytes;
    size_t count;
} text;

static void add_line(text *t, uint32_t second, const char *message) {
    t->count += (size_t)sprintf(
        t->bytes + t->count, "2026-11-%02uT%02u:%02u:%02u web app[%u]: %s\n", 1 + second / 86400,
        second / 3600 % 24, second / 60 % 60, second % 60, 100 + second % 7, message);
}

// A log of five hours: requests, and two faults.
static text make_log(void) {
    text t = {room((size_t)LINES * LINE_BYTES), 0};
    for (uint32_t i = 0; i < LINES; i++) {
        char message[64];
        snprintf(message, sizeof(message), "request %u of user%u took %u ms", i, i * 7 % 13,
                 i * 31 % 97);
        if (i == 700) add_line(&t, SECONDS * i + 1, "disk sda1 is full, error 28");
        if (i == 1500) add_line(&t, SECONDS * i + 1, "replica is in doubt");
        if (i % 4 == 3) add_line(&t, SECONDS * i + 2, "replica is in sync");
        add_line(&t, SECONDS * i, message);
    }
    return t;
}

static int watching_setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    choose(&f->config, "memory", "4M");
    choose(&f->config, "net_share", "0");
    choose(&f->config, "watch", "true");
    return 0;
}

#define WATCHING_TEST(name) TEST_WITH(name, watching_setup, lifelong_teardown, lifelong *f)

static void feed_part(lifelong *f, const text *log, size_t from, size_t to) {
    feed(f, (const uint8_t *)log->bytes + from, to - from);
}

// From the cursor on: what was not committed is read again.
static void feed_rest(lifelong *f, const text *log) {
    feed_part(f, log, (size_t)reef_trainer_cursor(f->trainer, "test"), log->count);
}

static void assert_rang(const lifelong *f) {
    assert_int_equal(times_said(f, "\"state\":\"open\""), 2);
    // When it rings and when it ends, each as title and as first line.
    assert_int_equal(times_said(f, "disk sda1 is full, error 28"), 4);
    assert_int_equal(times_said(f, "replica is in doubt"), 4);
    assert_int_equal(times_said(f, "\"sort\":\"word\""), 2);
}

static void assert_same_root(const reef_commit *a, const reef_commit *b) {
    assert_memory_equal(a->root, b->root, sizeof(a->root));
}

// In one piece, with two threads.
static reef_commit whole(lifelong *f, const text *log) {
    make_pool(f, 2);
    feed_rest(f, log);
    reef_commit end = commit(f);
    assert_rang(f);
    remove_pool(f);
    f->said[0] = '\0';
    return end;
}

WATCHING_TEST(what_is_new_is_told_with_its_line) {
    const text log = make_log();
    make_pool(f, 1);
    feed_rest(f, &log);
    commit(f);
    assert_rang(f);
    // Where it stands in its source.
    char place[64];
    const char *line = strstr(log.bytes, "replica is in doubt");
    while (line > log.bytes && line[-1] != '\n') line--;
    snprintf(place, sizeof(place), "\"offset\":%zu,", (size_t)(line - log.bytes));
    assert_int_equal(times_said(f, place), 2);
    assert_sound(f);
}

WATCHING_TEST(nothing_is_judged_where_it_is_not_asked_for) {
    const text log = make_log();
    choose(&f->config, "watch", "false");
    make_pool(f, 1);
    feed_rest(f, &log);
    commit(f);
    assert_int_equal(times_said(f, "\"incident\""), 0);
}

WATCHING_TEST(how_it_is_cut_changes_nothing) {
    const text log = make_log();
    const reef_commit goal = whole(f, &log);
    make_pool(f, 1);
    for (size_t at = 0, size = 1; at < log.count; at += size, size = size * 5 % 997 + 1) {
        if (size > log.count - at) size = log.count - at;
        feed_part(f, &log, at, at + size);
    }
    const reef_commit end = commit(f);
    assert_same_root(&end, &goal);
    assert_rang(f);
}

// Each time what came since the last commit is undone, amid a line, and read again.
WATCHING_TEST(after_kills_the_same_is_found_and_known) {
    const text log = make_log();
    const reef_commit goal = whole(f, &log);
    make_pool(f, 1);
    for (size_t at = 0; at + 9001 < log.count; at += 7001) {
        feed_part(f, &log, at, at + 7001);
        commit(f);
        size_t said = strlen(f->said);
        feed_part(f, &log, at + 7001, at + 9001);
        f->said[said] = '\0'; // what was told of it is told again
        open_again(f, 1);
    }
    feed_rest(f, &log);
    const reef_commit end = commit(f);
    assert_same_root(&end, &goal);
    assert_rang(f);
}

WATCHING_TEST(a_state_that_was_kept_has_what_was_known_then) {
    const text log = make_log();
    const reef_commit goal = whole(f, &log);
    make_pool(f, 1);
    feed_part(f, &log, 0, log.count / 2);
    take(f, "half");
    feed_rest(f, &log);
    commit(f);
    go_back(f, "half");
    assert_int_equal(reef_trainer_cursor(f->trainer, "test"), log.count / 2);
    f->said[0] = '\0';
    feed_rest(f, &log);
    const reef_commit end = commit(f);
    assert_same_root(&end, &goal);
    // The first fault was told before that.
    assert_int_equal(times_said(f, "\"state\":\"open\""), 1);
    assert_int_equal(times_said(f, "replica is in doubt"), 4);
    assert_sound(f);
}

// Of the pool's watch.
static void change(lifelong *f, double budget, uint32_t gap_s, double is_budget, uint32_t is_gap) {
    reef_watch_options now;
    must(reef_trainer_watch_change(
        f->trainer, &(reef_watch_options){.budget = budget, .gap_s = gap_s}, &now, &why));
    assert_true(now.budget == is_budget);
    assert_int_equal(now.gap_s, is_gap);
}

WATCHING_TEST(what_a_person_changes_is_part_of_the_state_and_an_event) {
    const text log = make_log();
    make_pool(f, 1);
    feed_part(f, &log, 0, log.count / 2);
    const reef_commit before = commit(f);
    change(f, 2, 0, 2, 60);
    assert_int_equal(times_said(f, "\"watch_changed\""), 1);
    assert_int_equal(
        times_said(f, "\"budget\": 2, \"gap_s\": 60, \"quiet_s\": 3600, \"forget_days\": 30"), 1);
    const reef_commit changed = commit(f);
    assert_true(memcmp(before.root, changed.root, sizeof(before.root)) != 0); // it is in the root
    take(f, "two");
    change(f, 0.25, 300, 0.25, 300);
    open_again(f, 1);
    change(f, 0, 301, 0.25, 301); // it was read back
    go_back(f, "two");
    change(f, 0, 302, 2, 302); // a state that was kept has its own
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    open_again(f, 1);
    change(f, 3, 0, 3, 302); // and so it does across a boundary
    reef_watch_options now;
    reef_watch_options wrong = {.budget = -1};
    must_fail(reef_trainer_watch_change(f->trainer, &wrong, &now, &why), REEF_ERR_INVALID,
              "budget");
    wrong.budget = 0;
    must_fail(reef_trainer_watch_change(f->trainer, &wrong, &now, &why), REEF_ERR_INVALID,
              "no budget");
    assert_sound(f);
}

WATCHING_TEST(a_pool_that_watches_nothing_has_nothing_to_change) {
    choose(&f->config, "watch", "false");
    make_pool(f, 1);
    reef_watch_options now;
    must_fail(reef_trainer_watch_change(f->trainer, &(reef_watch_options){.budget = 2}, &now, &why),
              REEF_ERR_INVALID, "watches no lines");
}

WATCHING_TEST(it_goes_on_across_a_boundary) {
    const text log = make_log();
    make_pool(f, 1);
    feed_part(f, &log, 0, log.count / 2);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    open_again(f, 1);
    feed_rest(f, &log);
    commit(f);
    assert_rang(f);
    assert_sound(f);
}

WATCHING_TEST(a_damaged_part_is_found) {
    const text log = make_log();
    make_pool(f, 1);
    feed_rest(f, &log);
    reef_commit last = commit(f);
    close_trainer(f);
    const reef_key key = {.db = REEF_DB_TENSORS, .generation = 0, .name = "watch", .block = 2};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    reef_view view;
    must(reef_record_view(txn, &key, &view, &why));
    uint8_t *cut = copied(view.data, view.bytes);
    must(reef_record_put(txn, &key, REEF_BYTES, cut, view.bytes - 3, &why));
    must(reef_txn_commit(txn, &last, &why));
    must_fail(reef_trainer_open(&f->trainer, f->store, NULL, &why), REEF_ERR_CORRUPT,
              "part 2 of the state of a watch");
}

RUN_TESTS
