// `reef usage` over ranges of time, and a daemon that compacts them by itself.
#include "reef_system.h"
#include "reef_usage.h"
#include "test.h"
#include "tools_world.h"

#include <reef/reef.h> // after the rooms, whose words for failure it shares

#include <time.h>

#define HOUR_MS UINT64_C(3600000)
#define EXPERTS (TINY_SIDE * TINY_SIDE) // of the open generation, which is 1

static json_t *only_layer(const json_t *document) {
    json_t *layers = json_at(document, "layers");
    assert_int_equal(json_array_size(layers), 1); // the second block is dense
    return json_at(layers, "0");
}

static json_int_t selections(const char *pool, const char *option, const char *value) {
    json_t *document = reef_json("usage", pool, option, value, NULL);
    return integer(only_layer(document), "selections");
}

static void must(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s", err->message);
}

// Expert 2 of the open generation was used `count` times more, some hours ago, in `commits`
// commits.
static void use_earlier(const char *pool, uint64_t hours, uint64_t count, uint64_t commits) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    uint64_t totals[EXPERTS][2], at = (reef_unix_ms() - hours * HOUR_MS) / 1000 * 1000;
    reef_commit commit;
    const reef_key key = {.db = REEF_DB_USAGE, .generation = 1};
    must(reef_store_open(&store, pool, &(reef_store_options){.write = true}, &err), &err);
    must(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), &err);
    must(reef_commit_read(txn, &commit, &err), &err);
    must(reef_record_read(txn, &key, totals, sizeof(totals), &err), &err);
    for (uint64_t n = 0; n < commits; n++) {
        totals[2][0] += count;
        must(reef_usage_put(txn, 1, 0, 1024, EXPERTS, totals[0], at + n, &err), &err);
    }
    must(reef_txn_commit(txn, &commit, &err), &err);
    reef_store_close(store);
}

// Merges windows as far as it is due; returns in how many steps.
static size_t compact(const char *pool) {
    reef_error err;
    reef_store *store = NULL;
    reef_usage_compaction done = {.merged = 1};
    size_t steps = 0;
    must(reef_store_open(&store, pool, &(reef_store_options){.write = true}, &err), &err);
    for (; done.merged > 0 || done.dropped > 0; steps++)
        must(reef_store_compact(store, reef_unix_ms(), &done, NULL, &err), &err);
    reef_store_close(store);
    return steps - 1;
}

static int setup(void **state) {
    world_make(state);
    const world *w = *state;
    use_earlier(w->pool, 30 * 24, 1000, 3);
    use_earlier(w->pool, 5, 100, 2);
    return 0;
}

// ---- reef usage ---------------------------------------------------------------------------------

WORLD_TEST(a_range_counts_what_was_used_in_it) {
    json_int_t all = selections(w->pool, NULL, NULL);
    json_int_t now = selections(w->pool, "--since", "3h");
    assert_true(now > 0);
    assert_int_equal(all, now + 3200);
    assert_int_equal(selections(w->pool, "--since", "8h ago"), now + 200);
    assert_int_equal(selections(w->pool, "--since", "40d"), now + 3200);
    assert_int_equal(selections(w->pool, "--until", "8h"), 3000);
    assert_int_equal(selections(w->pool, "--since", "2099-01-01"), 0);
    json_t *document =
        reef_json("usage", w->pool, "--since", "8h", "--until", "3h", "--layer", "0", NULL);
    json_t *layer = only_layer(document);
    assert_int_equal(integer(layer, "selections"), 200);
    assert_int_equal(integer(layer, "used"), 1);
    assert_int_equal(integer(layer, "dead"), EXPERTS - 1);
    assert_int_equal(integer(layer, "top.0.expert"), 2);
    assert_int_equal(length(layer, "dead_first"), 10); // no more are listed
    assert_int_equal(integer(layer, "windows"), 2);
    assert_int_equal(integer(layer, "selections_before"), 0);
    assert_true(integer(document, "since_ms") < integer(layer, "from_ms"));
    assert_true(integer(layer, "to_ms") == integer(layer, "from_ms") + 1); // two commits
    assert_true(integer(layer, "to_ms") < integer(document, "until_ms"));
}

// The same through the library.
static void expect_library(const char *path, uint64_t since, uint64_t until, json_int_t wanted) {
    reef_error err;
    reef_pool *pool = NULL;
    uint64_t counts[EXPERTS], sum = 0;
    must(reef_pool_open(&pool, path, NULL, &err), &err);
    must(reef_pool_usage(pool, 1, 0, since, until, counts, NULL, EXPERTS, &err), &err);
    reef_pool_close(pool);
    for (size_t i = 0; i < EXPERTS; i++) sum += counts[i];
    assert_int_equal(sum, wanted);
}

WORLD_TEST(usage_of_before_the_windows_is_reported_and_kept_apart) {
    char *pool = trained_pool(w, "older");
    json_int_t now = selections(pool, NULL, NULL);
    // As a pool has it that was trained when there were no windows: in the totals alone.
    use_earlier(pool, 401 * 24, 7, 1);
    assert_true(compact(pool) > 0);
    assert_int_equal(selections(pool, NULL, NULL), now + 7);
    assert_int_equal(selections(pool, "--since", "500d"), now);
    assert_int_equal(selections(pool, "--until", "3h"), 7);
    expect_library(pool, 0, 0, now + 7);
    expect_library(pool, reef_unix_ms() - 500 * 24 * HOUR_MS, 0, now);
    expect_library(pool, 0, reef_unix_ms() - 3 * HOUR_MS, 7);
    json_t *document = reef_json("usage", pool, "--since", "500d", NULL);
    assert_int_equal(integer(only_layer(document), "selections_before"), 7);
    program p = answers(0, "7 selections before 20", "usage", pool, "--since", "500d", NULL);
    assert_non_null(strstr(p.out, "are known in total only and are not counted"));
    answers(0, "nothing was recorded in this range", "usage", pool, "--since", "2099-01-01", NULL);
}

PLAIN_TEST(times_are_read_as_people_type_them) {
    static const struct {
        const char *text;
        uint64_t ms;
    } times[] = {
        {"2024-05-01", 1714521600000},
        {"2024-05-01T12:00", 1714564800000},
        {"2024-02-29T23:59:59", 1709251199000},
        {"1970-01-01", 0},
        {"90s", 1800000000000 - 90000},
        {"30m ago", 1800000000000 - 1800000},
        {"3h", 1800000000000 - 3 * 3600000},
        {"2d ago", 1800000000000 - 2 * 86400000},
        {"4w", 1800000000000 - 28 * UINT64_C(86400000)},
        {"yesterday", 1799884800000}, // its beginning
        {"999999999w", 0},
    };
    static const char *const wrong[] = {
        "",           "3",          "h",   "3y",          "3h later",         "2024-02-30",
        "2024-13-01", "2024-5-1",   "-3h", "2024-05-01 ", "2024-05-01T24:00", "2024-05-01T12:60",
        "tomorrow",   "9999999999s"};
    setenv("TZ", "UTC", 1);
    tzset();
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        reef_cli_given given = {"since", times[i].text};
        const reef_cli_call call = {.given = &given, .given_count = 1};
        reef_error err;
        uint64_t ms = 1;
        must(reef_cli_time_read(&call, "since", 1800000000000, &ms, &err), &err);
        assert_true(ms == times[i].ms);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        reef_cli_given given = {"since", wrong[i]};
        const reef_cli_call call = {.given = &given, .given_count = 1};
        reef_error err;
        uint64_t ms = 1;
        if (reef_cli_time_read(&call, "since", 1800000000000, &ms, &err) != REEF_ERR_INVALID)
            fail_msg("'%s' was read as a time", wrong[i]);
        assert_non_null(strstr(err.message, "--since"));
        assert_int_equal(ms, 1);
    }
}

// ---- the daemon ---------------------------------------------------------------------------------

// Train a pool on some text with reefd, which must end well; what it said is the caller's.
static char *train_with_daemon(const world *w, const char *pool) {
    char *stream = path_in(w->directory, "stream"), *source = formatted("file:%s", stream);
    char *text = tiny_text("c", 2000);
    write_file(stream, text);
    const char *argv[] = {REEFD_BINARY, "--pool", pool, "--source", source, "--threads", "1", NULL};
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) fail_msg("reefd: exit %d: %s", p.code, p.err);
    return formatted("%s", p.err);
}

WORLD_TEST(a_daemon_compacts_by_itself) {
    char *pool = trained_pool(w, "trained");
    use_earlier(pool, 30 * 24, 1000, 3);
    use_earlier(pool, 5, 100, 2);
    json_int_t before = selections(pool, NULL, NULL);
    char *said = train_with_daemon(w, pool);
    assert_null(strstr(said, "not compacted"));
    assert_int_equal(compact(pool), 0); // nothing was left to do
    assert_true(is_sound(pool));
    json_int_t after = selections(pool, NULL, NULL);
    assert_true(after > before);
    assert_int_equal(selections(pool, "--since", "40d"), after);
}

WORLD_TEST(what_cannot_be_compacted_is_reported_and_stops_no_training) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_commit commit;
    char *pool = trained_pool(w, "malformed");
    const reef_key key = {
        .db = REEF_DB_USAGE, .level = 1, .window = reef_unix_ms() - 5 * HOUR_MS, .generation = 1};
    must(reef_store_open(&store, pool, &(reef_store_options){.write = true}, &err), &err);
    must(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), &err);
    must(reef_commit_read(txn, &commit, &err), &err);
    must(reef_record_put(txn, &key, REEF_BYTES, "\x01\x02\x03", 3, &err), &err);
    must(reef_txn_commit(txn, &commit, &err), &err);
    reef_store_close(store);
    json_int_t before = selections(pool, NULL, NULL);
    char *said = train_with_daemon(w, pool);
    assert_non_null(strstr(said, "usage over time was not compacted: usage (level 1"));
    assert_true(selections(pool, NULL, NULL) > before);
}

RUN_TESTS_IN(setup, world_remove)
