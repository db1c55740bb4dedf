// `reef snapshot restore, remove, prune`, and names by their beginning, as a user runs them.
#include "tools_world.h"

#include "damaged_record.h"
#include "reef_snapshot.h"

#include <sys/file.h>
#include <time.h>
#include <unistd.h>

typedef struct own_pool {
    char *pool, *restored;
} own_pool;

// A pool of the test's own, trained as the world's, with snapshot "kept".
static own_pool pool_new(world *w, const char *name) {
    return (own_pool){trained_pool(w, name), formatted("%s/%s-restored", w->directory, name)};
}

// A member of the one snapshot that a command takes this name for.
static const char *of_snapshot(const char *pool, const char *name, const char *member) {
    json_t *would = reef_json("snapshot", "remove", pool, name, "--dry-run", NULL);
    return string(json_at(would, "removed.0"), member);
}

static void expect_name(const char *pool, const char *typed, const char *name) {
    assert_string_equal(of_snapshot(pool, typed, "name"), name);
}

static const char *root_of(const char *pool) {
    return string(reef_json("verify", pool, NULL), "root");
}

// Names of the snapshots, each followed by a space.
static void expect_names(const char *pool, const char *expected) {
    char *names = "";
    size_t i;
    json_t *list = reef_json("snapshot", "list", pool, NULL), *one;
    json_array_foreach(json_at(list, "snapshots"), i, one) names =
        formatted("%s%s ", names, string(one, "name"));
    assert_string_equal(names, expected);
}

static void expect_sound(const char *pool) {
    assert_true(is_sound(pool));
}

// In one line, and nothing else.
#define FAILS(code, says, ...)                                                                     \
    do {                                                                                           \
        program failed = answers(code, says, __VA_ARGS__, NULL);                                   \
        assert_int_equal(line_count(failed.err), 1);                                               \
        assert_string_equal(failed.out, "");                                                       \
    } while (0)

// ---- restore ------------------------------------------------------------------------------------

WORLD_TEST(a_snapshot_becomes_a_pool_of_its_own) {
    own_pool own = pool_new(w, "original");
    (void)reef_json("seal", own.pool, NULL);
    (void)reef_json("snapshot", "create", own.pool, "later", NULL);
    const char *root = root_of(own.pool), *kept = of_snapshot(own.pool, "kept", "root");
    json_t *done = reef_json("snapshot", "restore", own.pool, "k", own.restored, "--dry-run", NULL);
    assert_false(is_true(done, "done"));
    assert_int_equal(integer(done, "sealed_gone"), 1);
    assert_int_equal(integer(done, "snapshots_gone"), 1);
    assert_int_not_equal(access(own.restored, F_OK), 0);

    done = reef_json("snapshot", "restore", own.pool, "k", own.restored, NULL);
    assert_true(is_true(done, "done"));
    assert_string_equal(string(done, "commit.root"), kept);
    expect_sound(own.restored);
    expect_names(own.restored, "kept ");
    answers(0, "\"restore\"", "timeline", own.restored, "--json", NULL);
    assert_int_equal(length(reef_json("generations", own.restored, NULL), "generations"), 2);

    const char *after = root_of(own.pool);
    assert_string_equal(after, root); // the original is as it was
    expect_names(own.pool, "kept later ");
    FAILS(64, "not empty", "snapshot", "restore", own.pool, "kept", own.restored);
    FAILS(64, "not empty", "snapshot", "restore", own.pool, "kept", own.restored, "--dry-run");
    FAILS(64, "where to?", "snapshot", "restore", own.pool, "kept");
    FAILS(66, "no snapshot none", "snapshot", "restore", own.pool, "none", w->missing);
    assert_int_not_equal(access(w->missing, F_OK), 0);
}

WORLD_TEST(in_place_the_pool_itself_goes_back) {
    own_pool own = pool_new(w, "in-place");
    (void)reef_json("seal", own.pool, NULL);
    const char *before = root_of(own.pool), *kept = of_snapshot(own.pool, "kept", "root");
    (void)reef_json("snapshot", "restore", own.pool, "kept", "--in-place", "--dry-run", NULL);
    const char *root = root_of(own.pool);
    assert_string_equal(root, before);
    expect_names(own.pool, "kept ");

    // As a daemon or another writer holds it.
    char *lock = path_in(own.pool, "writer.lock");
    FILE *held = fopen(lock, "r+");
    assert_non_null(held);
    assert_int_equal(flock(fileno(held), LOCK_EX), 0);
    FAILS(75, "stop it first", "snapshot", "restore", own.pool, "kept", "--in-place");
    fclose(held);

    program p = answers(0, "snapshot before-restore-", "snapshot", "restore", own.pool, "kept",
                        "--in-place", NULL);
    assert_non_null(strstr(p.out, "exactly as it did"));
    root = root_of(own.pool);
    assert_string_equal(root, kept);
    expect_sound(own.pool);

    // And forward again, by the beginning of its name.
    (void)reef_json("snapshot", "restore", own.pool, "before", "--in-place", NULL);
    root = root_of(own.pool);
    assert_string_equal(root, before);
    expect_sound(own.pool);
    FAILS(64, "makes no sense", "snapshot", "restore", own.pool, "kept", w->missing, "--in-place");
}

// The timeline has so many steps of growth that are not undone, and of these kinds, each followed
// by a space, events that are.
static void expect_growth(const char *pool, size_t grown, const char *undone) {
    char *kinds = "";
    size_t i, seen = 0;
    json_t *timeline = reef_json("timeline", pool, NULL), *event;
    json_array_foreach(json_at(timeline, "events"), i, event) {
        const char *kind = string(event, "event");
        bool gone = json_is_true(json_object_get(event, "undone"));
        if (gone) kinds = formatted("%s%s ", kinds, kind);
        seen += !gone && strcmp(kind, "grow") == 0;
    }
    assert_int_equal(seen, grown);
    assert_string_equal(kinds, undone);
}

static void go_back_to(const char *pool, const char *name) {
    (void)reef_json("snapshot", "restore", pool, name, "--in-place", "--yes", NULL);
}

// Back, from there another way, and forward again: what was undone is known from what led to the
// present state.
WORLD_TEST(events_that_a_restore_undid_are_reported_as_undone) {
    own_pool own = pool_new(w, "undone");
    (void)reef_json("snapshot", "create", own.pool, "small", NULL);
    (void)reef_json("grow", own.pool, "--side", "6", NULL);
    (void)reef_json("grow", own.pool, "--side", "8", NULL);
    expect_growth(own.pool, 2, "");
    go_back_to(own.pool, "small");
    expect_growth(own.pool, 0, "grow grow ");
    (void)reef_json("grow", own.pool, "--side", "7", NULL);
    expect_growth(own.pool, 1, "grow grow ");
    (void)reef_json("snapshot", "restore", own.pool, "small", own.restored, NULL);
    expect_growth(own.restored, 0, "grow grow restore grow ");

    go_back_to(own.pool, "before-restore");
    expect_growth(own.pool, 2, "restore grow ");
    expect_sound(own.pool);
    answers(0, "undone=true", "timeline", own.pool, NULL);
}

// ---- remove and prune ---------------------------------------------------------------------------

WORLD_TEST(snapshots_are_found_by_the_beginning_of_their_root) {
    own_pool own = pool_new(w, "by-root");
    const char *root = of_snapshot(own.pool, "kept", "root");
    char *four = formatted("%.4s", root), *three = formatted("%.3s", root);
    expect_name(own.pool, four, "kept");
    FAILS(66, "no snapshot", "snapshot", "remove", own.pool, three);
    // Two of the same state have the same root.
    (void)reef_json("snapshot", "create", own.pool, "twin-1", NULL);
    (void)reef_json("snapshot", "create", own.pool, "twin-2", NULL);
    char *both = formatted("%.8s", of_snapshot(own.pool, "twin-1", "root"));
    FAILS(64, "twin-1, twin-2", "snapshot", "remove", own.pool, both);
    // Names go before roots.
    char *named = formatted("%s-named", both);
    (void)reef_json("snapshot", "create", own.pool, named, NULL);
    expect_name(own.pool, both, named);
}

WORLD_TEST(snapshots_are_removed_by_name_or_its_beginning) {
    own_pool own = pool_new(w, "remove");
    const char *names[] = {"day-1", "day-2", "night"};
    for (size_t i = 0; i < 3; i++) (void)reef_json("snapshot", "create", own.pool, names[i], NULL);
    const char *root = root_of(own.pool);
    FAILS(64, "day-1, day-2", "snapshot", "remove", own.pool, "day");
    FAILS(66, "no snapshot missing", "snapshot", "remove", own.pool, "night", "missing");
    FAILS(64, "NAME", "snapshot", "remove", own.pool);
    json_t *done = reef_json("snapshot", "remove", own.pool, "ni", "day-2", "--dry-run", NULL);
    assert_int_equal(length(done, "removed"), 2);
    expect_names(own.pool, "day-1 day-2 kept night ");

    done = reef_json("snapshot", "remove", own.pool, "ni", "day-2", "night", NULL);
    assert_true(is_true(done, "done"));
    assert_int_equal(length(done, "removed"), 2);
    assert_int_equal(length(done, "kept"), 2);
    expect_names(own.pool, "day-1 kept ");
    const char *after = root_of(own.pool);
    assert_string_equal(after, root);
    expect_sound(own.pool);

    answers(0, "removed 1 snapshot, 1 is left", "snapshot", "remove", own.pool, "day", NULL);
    expect_names(own.pool, "kept ");
}

WORLD_TEST(one_that_is_damaged_is_reported_and_removed_by_its_whole_name) {
    own_pool own = pool_new(w, "damaged");
    (void)reef_json("snapshot", "create", own.pool, "other", NULL);
    record_damage(own.pool, &(reef_key){.db = REEF_DB_SNAPSHOTS, .name = "kept"});

    program p = answers(65, "record damaged", "snapshot", "list", own.pool, NULL);
    assert_non_null(strstr(p.out, "other"));
    assert_non_null(strstr(p.err, "the records of 1 of 2 snapshots are damaged"));
    p = reef("snapshot", "list", own.pool, "--json", NULL);
    assert_int_equal(p.code, 65);
    json_t *list = json_of_text(p.out);
    assert_int_equal(length(list, "snapshots"), 1);
    assert_string_equal(string(list, "damaged.0"), "kept");

    // The others can be used.
    json_t *done = reef_json("snapshot", "restore", own.pool, "other", own.restored, NULL);
    assert_int_equal(integer(done, "snapshots_gone"), 1);
    expect_names(own.restored, "other ");
    expect_sound(own.restored);
    done = reef_json("snapshot", "prune", own.pool, "--keep-last", "1", NULL);
    assert_int_equal(length(done, "kept"), 1);
    assert_string_equal(string(done, "damaged_kept.0"), "kept");

    FAILS(65, "its whole name is needed", "snapshot", "remove", own.pool, "ke");
    done = reef_json("snapshot", "remove", own.pool, "kept", "--dry-run", NULL);
    assert_string_equal(string(done, "damaged_removed.0"), "kept");
    done = reef_json("snapshot", "remove", own.pool, "kept", NULL);
    assert_string_equal(string(done, "damaged_removed.0"), "kept");
    assert_int_equal(length(done, "kept"), 1);
    expect_names(own.pool, "other ");
    expect_sound(own.pool);
}

// A snapshot of a commit at this time of day: the pool's commits are written as of then.
static void snapshot_at(const char *pool, const char *name, int day, int hour) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_snapshot snapshot;
    reef_commit commit;
    struct tm when = {.tm_year = 120, .tm_mon = 4, .tm_mday = day, .tm_hour = hour, .tm_isdst = -1};
    assert_int_equal(reef_store_open(&store, pool, &(reef_store_options){.write = true}, &err),
                     REEF_OK);
    assert_int_equal(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), REEF_OK);
    assert_int_equal(reef_commit_read(txn, &commit, &err), REEF_OK);
    commit.unix_ms = (uint64_t)mktime(&when) * 1000;
    assert_int_equal(reef_txn_commit(txn, &commit, &err), REEF_OK);
    assert_int_equal(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), REEF_OK);
    assert_int_equal(reef_snapshot_create(txn, name, &snapshot, &err), REEF_OK);
    assert_int_equal(reef_txn_commit(txn, &commit, &err), REEF_OK);
    reef_store_close(store);
}

WORLD_TEST(prune_keeps_the_last_and_the_newest_of_each_day) {
    own_pool own = {path_in(w->directory, "prune"), NULL};
    make_pool(own.pool);
    snapshot_at(own.pool, "first-noon", 1, 12);
    snapshot_at(own.pool, "first-night", 1, 23);
    snapshot_at(own.pool, "third-first", 3, 0); // just after midnight, an hour after the one before
    snapshot_at(own.pool, "third-noon", 3, 12);
    snapshot_at(own.pool, "ninth-six", 9, 6);
    snapshot_at(own.pool, "ninth-seven", 9, 7);
    snapshot_at(own.pool, "ninth-eight", 9, 8);
    const char *all =
        "first-night first-noon ninth-eight ninth-seven ninth-six third-first third-noon ";
    expect_names(own.pool, all);
    FAILS(64, "which snapshots should stay?", "snapshot", "prune", own.pool);
    FAILS(64, "keep-last", "snapshot", "prune", own.pool, "--keep-last", "0");

    program p = answers(0, "would remove 5 snapshots, 2 would be left", "snapshot", "prune",
                        own.pool, "--keep-daily", "2", "--dry-run", NULL);
    assert_non_null(strstr(p.out, "would go"));
    expect_names(own.pool, all);

    json_t *done =
        reef_json("snapshot", "prune", own.pool, "--keep-last", "2", "--keep-daily", "3", NULL);
    assert_int_equal(length(done, "removed"), 3);
    expect_names(own.pool, "first-night ninth-eight ninth-seven third-noon ");
    (void)reef_json("snapshot", "prune", own.pool, "--keep-daily", "2", NULL);
    expect_names(own.pool, "ninth-eight third-noon ");
    (void)reef_json("snapshot", "prune", own.pool, "--keep-last", "1", NULL);
    expect_names(own.pool, "ninth-eight ");
    done = reef_json("snapshot", "prune", own.pool, "--keep-last", "1", NULL); // nothing to do
    assert_int_equal(length(done, "removed"), 0);
    // A clock that was set back makes nothing older.
    snapshot_at(own.pool, "later", 2, 12);
    (void)reef_json("snapshot", "prune", own.pool, "--keep-last", "1", NULL);
    expect_names(own.pool, "later ");
    // What nobody named goes first.
    snapshot_at(own.pool, "before-restore-30", 10, 12);
    snapshot_at(own.pool, "auto-20200511T000000Z", 11, 0);
    (void)reef_json("snapshot", "prune", own.pool, "--keep-last", "2", NULL);
    expect_names(own.pool, "auto-20200511T000000Z later ");
    (void)reef_json("snapshot", "prune", own.pool, "--keep-last", "1", NULL);
    expect_names(own.pool, "later ");
    expect_sound(own.pool);
}

// ---- names --------------------------------------------------------------------------------------

WORLD_TEST(the_beginning_of_a_name_is_enough_everywhere) {
    expect_name(w->pool, "k", "kept");
    json_t *whole = reef_json("eval", w->pool, w->english, "--as-of", "kept", NULL);
    json_t *beginning = reef_json("eval", w->pool, w->english, "--as-of", "ke", NULL);
    assert_true(json_equal(json_at(whole, "files"), json_at(beginning, "files")));
}

WORLD_TEST(a_moment_is_a_state_and_people_hear_which) {
    json_t *now = reef_json("eval", w->pool, w->english, NULL);
    json_t *today = reef_json("eval", w->pool, w->english, "--as-of", "today", NULL);
    assert_true(json_equal(now, today));
    assert_string_equal(string(today, "as_of"), "now");
    static const char *const COMMANDS[] = {"eval", "score"};
    for (size_t i = 0; i < 2; i++) {
        answers(0, "reef: '0s ago' is the state 'now'\n", COMMANDS[i], w->pool, w->english,
                "--as-of", "0s ago", NULL);
    }
    program p = reef("eval", w->pool, w->english, "--as-of", "kept", NULL);
    assert_null(strstr(p.err, "is the state"));
    FAILS(66, "no state is so old: the oldest is ", "eval", w->pool, w->english, "--as-of",
          "9999w ago");
}

// The state of snapshots that were made on days gone by.
WORLD_TEST(a_time_of_a_day_gone_by_is_the_newest_snapshot_before_it) {
    own_pool own = {path_in(w->directory, "calendar"), NULL};
    make_pool(own.pool);
    snapshot_at(own.pool, "noon", 1, 12);
    snapshot_at(own.pool, "night", 1, 23);
    snapshot_at(own.pool, "later", 3, 0);
    static const char *const STATES[][2] = {
        {"2020-05-01 12:00", "noon"},  {"2020-05-01 18:30", "noon"},  {"2020-05-01 22:59", "noon"},
        {"2020-05-01 23:00", "night"}, {"2020-05-01", "night"},       {"2020-05-02 12:00", "night"},
        {"2020-05-03 00:00", "later"}, {"2020-05-04 06:00", "later"},
    };
    for (size_t i = 0; i < sizeof(STATES) / sizeof(STATES[0]); i++) {
        const char *found =
            string(reef_json("eval", own.pool, w->english, "--as-of", STATES[i][0], NULL), "as_of");
        if (strcmp(found, STATES[i][1]) != 0) fail_msg("%s was '%s'", STATES[i][0], found);
    }
    FAILS(66, "the oldest is 'noon', of 2020-05-01 12:00:00", "eval", own.pool, w->english,
          "--as-of", "2020-05-01 11:59");
}

WORLD_TEST(the_pool_may_come_first_or_from_the_environment) {
    setenv("REEF_POOL", w->pool, 1);
    (void)reef_json("snapshot", "remove", "kept", "--dry-run", NULL);
    (void)reef_json("snapshot", "remove", w->pool, "kept", "--dry-run", NULL);
    unsetenv("REEF_POOL");
}

RUN_TESTS_IN(world_make, world_remove)
